from itertools import combinations

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.model import schedule as crossing
from understudy.model.junction_tree import JunctionTree
from understudy.model.kernels.arguments import CROSS
from understudy.model.propagate import Propagation
from understudy.model.schedule import ScheduleBuilder, find_crossing, make_scratch

NONE = np.empty(0, np.int64)


def test_rows_and_columns_meet_in_few_tables():
    domain = Domain({"a": 4, "b": 10, "c": 12, "d": 15, "e": 16})
    inputs = [(0, ("a", "b", "c", "d")), (0, ("a", "b", "c", "e")), (0, ("a", "d", "e"))]
    found = find_crossing(domain, ("a", "b", "c", "d", "e"), inputs, inputs)
    assert found is not None
    assert (found.outer, found.inner) == (("a",), ("b", "c"))
    assert {found.rows, found.columns} == {("d",), ("e",)}


def test_a_clique_with_a_table_of_its_own_is_visited_cell_by_cell():
    domain = Domain({"a": 20, "b": 20, "c": 20})
    whole = [(0, ("a", "b", "c"))]
    assert find_crossing(domain, ("a", "b", "c"), whole, [(0, ("a", "b"))]) is None
    assert find_crossing(Domain({"a": 3, "b": 3, "c": 3}), ("a", "b", "c"), whole[:0], [(0, ("a", "b"))]) is None


def test_a_clique_of_a_first_small_table_is_visited_cell_by_cell():
    """So that a newcomer does not wait for the loop of crossings to be compiled."""
    domain = Domain({"a": 2, "b": 5, "c": 6, "d": 15, "e": 16})
    inputs = [(0, ("a", "b", "c", "d")), (0, ("a", "b", "c", "e")), (0, ("a", "d", "e"))]
    assert find_crossing(domain, ("a", "b", "c", "d", "e"), inputs, inputs) is None


@pytest.mark.parametrize("seed", range(25))
def test_sums_are_those_of_the_whole_clique(seed, monkeypatch):
    """Any tables, any choice of rows and columns: the same sums as with the clique written out."""
    from understudy.model.kernels import propagation as kernels

    monkeypatch.setattr(crossing, "_LARGE", 1)
    monkeypatch.setattr(crossing, "_WORTH", np.inf)
    monkeypatch.setattr(crossing, "_LEAST_SAVING", -np.inf)
    uncached = crossing._find_crossing_bits.__wrapped__
    monkeypatch.setattr(crossing, "_find_crossing_bits", uncached)
    rng = np.random.default_rng(seed)
    domain = Domain({name: int(rng.integers(1, 7)) for name in "abcdef"[: rng.integers(3, 7)]})
    clique = tuple(domain)

    def some(start):
        tables = []
        for _ in range(rng.integers(1, 5)):
            columns = tuple(c for c in clique if rng.random() < 0.5)
            tables.append((start, columns))
            start += domain.cells(columns)
        return tables, start

    inputs, middle = some(0)
    outputs, end = some(middle)
    work = rng.random(end)
    belief = np.ones(domain.shape(clique))
    for start, columns in inputs:
        shape = [domain[c] if c in columns else 1 for c in clique]
        belief = belief * work[start : start + domain.cells(columns)].reshape(shape)
    builder = ScheduleBuilder(domain, True)
    builder.fuse(clique, inputs, outputs)
    schedule = builder.build({})
    assert schedule.kind[0] == CROSS
    kernels.cross(work, schedule, 0, *make_scratch(schedule))
    for start, columns in outputs:
        lost = tuple(i for i, c in enumerate(clique) if c not in columns)
        np.testing.assert_allclose(
            work[start : start + domain.cells(columns)], belief.sum(axis=lost).ravel(), rtol=1e-12
        )


def test_propagation_crosses_and_the_log_domain_agrees():
    rng = np.random.default_rng(0)
    domain = Domain({"a": 9, "b": 10, "c": 11, "d": 13, "e": 12})
    cliques = list(combinations(domain, 2))
    propagation = Propagation(JunctionTree.of(domain, cliques), cliques)

    assert (propagation._steps.schedule.kind == CROSS).any()
    potentials = rng.normal(size=propagation.size)
    linear = propagation.marginals(potentials, 1.0, forbidden=NONE).copy()
    partition = propagation.log_partition
    logs = propagation.marginals(potentials, 1.0, forbidden=NONE, logs=True).copy()
    np.testing.assert_allclose(linear, logs, atol=1e-14)
    assert propagation.log_partition == pytest.approx(partition)
    again = propagation.marginals(potentials, 1.0, forbidden=NONE)
    np.testing.assert_array_equal(linear, again)
