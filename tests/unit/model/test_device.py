"""The GPU path: the same marginals as the processor's, and the processor takes over whatever goes wrong.

numpy stands in for cupy as the module of arrays: the same code runs. Tests marked `gpu` run it on a real device.
"""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model import device as module
from understudy.model.device import Device, DeviceFailed, DevicePropagation, find_device, make_propagation
from understudy.model.estimate import estimate
from understudy.model.junction_tree import JunctionTree
from understudy.model.propagate import Propagation

NONE = np.empty(0, np.int64)
HOST = Device(np, np.asarray, lambda: 1e9)
DOMAIN = Domain({"a": 3, "b": 4, "c": 2, "d": 5, "e": 3, "one": 1, "f": 6, "alone": 4})
CLIQUES = [("a", "b"), ("b", "c", "d"), ("c",), ("d", "e"), ("e", "a"), ("f",), ("d",), ("one", "f", "c")]


def both(domain=DOMAIN, cliques=CLIQUES, device=HOST):
    tree = JunctionTree.of(domain, cliques)
    ours = DevicePropagation(tree, cliques, more=3, device=device)
    return ours, Propagation(tree, cliques, more=3, beliefs=False)


@pytest.mark.parametrize("seed", range(5))
def test_marginals_and_the_partition_function_are_the_processors(seed):
    rng = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(9)]
    domain = Domain({name: int(rng.integers(1, 6)) for name in names})
    cliques = [tuple(rng.permutation(names)[: rng.integers(1, 4)]) for _ in range(10)]
    ours, theirs = both(domain, cliques)
    for _ in range(3):
        potentials = rng.normal(0.0, 3.0, ours.size)
        forbidden = rng.choice(ours.starts[ours.factors], 2, replace=False)
        found = ours.marginals(potentials, 50.0, forbidden=forbidden).copy()
        np.testing.assert_allclose(found, theirs.marginals(potentials, 50.0, forbidden=forbidden), rtol=1e-9, atol=1e-9)
        assert ours.log_partition == pytest.approx(theirs.log_partition)
        assert ours.smallest_message == pytest.approx(theirs.smallest_message)
        assert ours.lost == pytest.approx(theirs.lost)
        assert ours.is_on_device


def test_where_products_underflow_the_processor_takes_over_in_logarithms():
    chain = Domain({"a": 2, "b": 3, "c": 4})
    ours, theirs = both(chain, [("a", "b"), ("b", "c")])
    ab, bc = np.zeros((2, 3)), np.zeros((3, 4))
    ab[:, 1:] -= 2000.0
    bc[:2, :] -= 2000.0
    parts = {("a", "b"): ab, ("b", "c"): bc, (): np.zeros(1)}
    potentials = np.concatenate([parts[clique].ravel() for clique in ours.tables])
    found = ours.marginals(potentials, 1.0, forbidden=NONE).copy()
    assert ours.in_logs
    np.testing.assert_allclose(found, theirs.marginals(potentials, 1.0, forbidden=NONE), atol=1e-12)
    assert ours.marginals(np.zeros(ours.size), 1.0, forbidden=NONE)[-1] == pytest.approx(1.0)
    assert not ours.in_logs


def failing(after):
    """A device whose memory is exhausted after some arrays."""
    left = [after]

    def ones(shape):
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError("out of device memory")
        return np.ones(shape)

    names = ("asarray", "empty", "where")
    arrays = SimpleNamespace(ones=ones, **{name: getattr(np, name) for name in names})
    return Device(arrays, np.asarray, lambda: 1e9)


@pytest.mark.parametrize("after", [0, 2, 9])
def test_a_device_that_runs_out_of_memory_is_given_up_and_the_fit_goes_on(after):
    ours, theirs = both(device=failing(after))
    potentials = np.random.default_rng(0).normal(0.0, 1.0, ours.size)
    want = theirs.marginals(potentials, 9.0, forbidden=NONE)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(4):
            np.testing.assert_allclose(ours.marginals(potentials, 9.0, forbidden=NONE), want, rtol=1e-9)
    assert [str(one.message) for one in told] == ["the GPU failed (MemoryError); the processor does the work instead"]
    assert not ours.is_on_device


def test_a_device_that_computes_something_else_is_given_up():
    wrong = Device(np, lambda values: values * np.linspace(1.0, 1.001, len(values)), lambda: 1e9)
    ours, theirs = both(device=wrong)
    potentials = np.random.default_rng(1).normal(0.0, 1.0, ours.size)
    with pytest.warns(DeviceFailed, match="differ from the processor's"):
        found = ours.marginals(potentials, 9.0, forbidden=NONE).copy()
    np.testing.assert_allclose(found, theirs.marginals(potentials, 9.0, forbidden=NONE), rtol=1e-9)
    assert not ours.is_on_device


def measurements():
    rng = np.random.default_rng(2)
    return [Measurement(r, rng.poisson(200.0 / DOMAIN.cells(r), DOMAIN.cells(r)) + 0.0, 2.0) for r in CLIQUES]


def test_fits_are_the_same_with_and_without_a_device(monkeypatch):
    plain = estimate(DOMAIN, measurements())
    monkeypatch.setattr(module, "find_device", lambda: HOST)
    monkeypatch.setattr(module, "LEAST_MIB", 0.0)
    told = []
    fitted = estimate(DOMAIN, measurements(), progress=told.append)
    assert fitted.loss == pytest.approx(plain.loss, rel=1e-3)
    assert any("on the GPU" in step.detail for step in told)
    np.testing.assert_allclose(fitted.project(("a", "d")), plain.project(("a", "d")), atol=0.2)


def test_only_large_trees_with_enough_room_use_a_device(monkeypatch):
    monkeypatch.setattr(module, "find_device", lambda: HOST)
    tree = JunctionTree.of(DOMAIN, CLIQUES)
    assert type(make_propagation(tree, CLIQUES, more=0)) is Propagation
    monkeypatch.setattr(module, "LEAST_MIB", 0.0)
    assert type(make_propagation(tree, CLIQUES, more=0)) is DevicePropagation
    monkeypatch.setattr(module, "find_device", lambda: Device(np, np.asarray, lambda: 0.0))
    with pytest.warns(DeviceFailed, match="the GPU has 0 MiB left"):
        assert type(make_propagation(tree, CLIQUES, more=0)) is Propagation


def test_a_device_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("UNDERSTUDY_GPU", "off")
    assert find_device.__wrapped__() is None


@pytest.mark.gpu
def test_a_real_device_agrees_with_the_processor():
    domain = Domain({f"x{i}": 16 for i in range(8)})
    cliques = [tuple(f"x{(i + k) % 8}" for k in range(4)) for i in range(8)]
    tree = JunctionTree.of(domain, cliques)
    assert tree.size_mib > module.LEAST_MIB
    ours, theirs = make_propagation(tree, cliques, more=0), Propagation(tree, cliques, beliefs=False)
    potentials = np.random.default_rng(0).normal(0.0, 1.0, ours.size)
    found = ours.marginals(potentials, 1e5, forbidden=NONE).copy()
    assert isinstance(ours, DevicePropagation)
    assert ours.is_on_device
    np.testing.assert_allclose(found, theirs.marginals(potentials, 1e5, forbidden=NONE), rtol=1e-9)
