from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model import network
from understudy.model.network import Network, network_of
from understudy.model.relaxed import Targets

DOMAIN = Domain({"a": 2, "b": 3})
TABLE = Measurement(("a", "b"), np.array([40, 5, 5, 0, 10, 40]), 0.5)


def test_the_gradient_is_that_of_the_loss(monkeypatch):
    monkeypatch.setattr(network, "_NOISE", 3)
    monkeypatch.setattr(network, "_HIDDEN", 4)
    targets = Targets(DOMAIN, [TABLE], None)
    made = Network(DOMAIN, {"a": np.array([0.5, 0.5]), "b": np.array([0.2, 0.3, 0.5])})
    _, gradients = made.loss(targets.loss)
    assert [array.shape for array in gradients] == [array.shape for array in made.parameters]
    rng = np.random.default_rng(0)
    for parameter, gradient in zip(made.parameters, gradients, strict=True):
        way = rng.normal(size=parameter.shape).astype(np.float32)
        losses = []
        for step in (0.002, -0.002):
            parameter += step * way
            losses.append(made.loss(targets.loss)[0])
            parameter -= step * way
        assert (losses[0] - losses[1]) / 0.004 == pytest.approx(float((gradient * way).sum()), rel=0.03, abs=2e-4)


def test_a_dependent_table_is_learned_and_the_same_table_gives_the_same_rows():
    one, other = (network_of(DOMAIN, [TABLE]) for _ in range(2))
    assert np.abs(one.project(("a", "b")).reshape(-1) - TABLE.values).max() < 2
    assert np.array_equal(one.shares, other.shares)


def test_a_round_goes_on_from_the_network_of_the_round_before():
    first = network_of(DOMAIN, [TABLE])
    again = network_of(DOMAIN, [TABLE, Measurement(("a",), np.array([50, 50]), 0.5)], start=first)
    assert again.network is first.network


def test_without_measurements_columns_are_uniform():
    assert np.abs(network_of(DOMAIN, [], total=6.0).project(("b",)) - 2).max() < 0.05
