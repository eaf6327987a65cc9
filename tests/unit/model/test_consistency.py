from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.errors import InputError
from understudy.measurement import Measurement, Scaling
from understudy.model.consistency import (
    NoisyTable,
    _SharedColumns,
    average_tables,
    make_consistent,
    norm_sub,
    shared_sets,
    sum_smallest_table,
)

DOMAIN = Domain({"a": 2, "b": 2, "c": 3})


def table(clique: str, counts: list, rho: float) -> NoisyTable:
    array = np.array(counts, dtype=np.float64)
    return NoisyTable(tuple(clique), array, np.full(array.shape, 1 / (2 * rho)))


def test_the_worked_example_of_weighted_averaging() -> None:
    one, other = table("ab", [[10, 20], [30, 40]], 0.3), table("ac", [[9, 9, 9], [25, 25, 25]], 0.1)
    counts = {one.clique: one.counts.copy(), other.clique: other.counts.copy()}
    _SharedColumns(("a",), [one, other]).agree(counts, 100.363636)
    assert counts["a", "b"] == pytest.approx(np.array([[9.727273, 19.727273], [30.454545, 40.454545]]), abs=1e-6)
    assert counts["a", "c"] == pytest.approx(np.array([[9.818182] * 3, [23.636364] * 3]), abs=1e-6)


def test_agreement_on_subsets_survives_supersets() -> None:
    tables = [table("abc", np.arange(12).reshape(2, 2, 3).tolist(), 0.2), table("ab", [[9, 2], [3, 4]], 0.4)]
    tables += [table("b", [30, 50], 0.1)]
    counts = {one.clique: one.counts.copy() for one in tables}
    rows = None
    for columns in shared_sets(counts):
        rows = _SharedColumns(columns, tables).agree(counts, rows)
        assert rows == pytest.approx(
            sum(c.counts.sum() * 0.2 * k for c, k in zip(tables, (1 / 12, 2 / 4, 0.5 / 2), strict=True))
            / (0.2 / 12 + 0.4 / 4 + 0.1 / 2)
        )
    assert counts["a", "b", "c"].sum(axis=2) == pytest.approx(counts["a", "b"])
    assert counts["a", "b"].sum(axis=0) == pytest.approx(counts["b",])


def test_shared_sets_come_subsets_first_and_are_closed() -> None:
    assert shared_sets([("a", "b", "c"), ("b", "c", "d"), ("a", "c", "d")]) == [
        (),
        ("c",),
        ("a", "c"),
        ("b", "c"),
        ("c", "d"),
    ]
    assert shared_sets([]) == [()]


def test_norm_sub_by_hand() -> None:
    assert norm_sub(np.array([5, 3, -2, 0.5]), 6.5) == pytest.approx([4.25, 2.25, 0, 0])
    assert norm_sub(np.array([0.6, 0.5, -0.2, 0.05]), 1) == pytest.approx([0.55, 0.45, 0, 0])
    assert norm_sub(np.array([-5.0, -5.0]), 4) == pytest.approx([2, 2])


def test_tables_end_non_negative_agreeing_and_of_the_public_total() -> None:
    rng = np.random.default_rng(3)
    truth = rng.poisson(20, (2, 2, 3)).astype(float)
    noisy = [
        Measurement(("b", "a"), truth.sum(axis=2).T + rng.normal(0, 15, (2, 2)), 15.0),
        Measurement(("b", "c"), truth.sum(axis=0) + rng.normal(0, 15, (2, 3)), 15.0),
        Measurement(("a", "c"), truth.sum(axis=1) + rng.normal(0, 15, (2, 3)), 15.0),
    ]
    found = make_consistent(average_tables(DOMAIN, noisy), total=240)
    assert all(counts.min() >= 0 and counts.sum() == pytest.approx(240) for counts in found.values())
    assert found["a", "b"].sum(axis=1) == pytest.approx(found["a", "c"].sum(axis=1), abs=1e-3)
    assert found["a", "b"].sum(axis=0) == pytest.approx(found["b", "c"].sum(axis=1), abs=1e-3)


def test_a_merged_code_counts_less_in_the_average() -> None:
    merged = Measurement(("a",), np.array([50.0, 90 / 3]), 1.0, Scaling(np.array([1.0, 1 / 3])))
    plain = Measurement(("a",), np.array([60.0, 30.0]), 1.0)
    (one,) = average_tables(DOMAIN, [merged, plain])
    assert one.counts == pytest.approx([55, (90 / 9 + 30) / (1 / 9 + 1)])
    assert one.variance == pytest.approx([1 / 2, 1 / (1 + 1 / 9)])


def test_other_queries_are_refused() -> None:
    sums = Measurement(("a",), np.array([5.0, 6.0]), 1.0, np.array([[1.0, 1.0], [0.0, 1.0]]))
    with pytest.raises(InputError, match="graphical-model"):
        average_tables(DOMAIN, [sums])


def test_a_total_below_one_is_one() -> None:
    found = make_consistent([table("ab", [[-9, -9], [-9, -9]], 0.1)])
    assert found["a", "b"] == pytest.approx(np.full((2, 2), 0.25))


def test_marginal_takes_the_order_asked_from_the_smallest_table() -> None:
    counts = {("a", "b", "c"): np.arange(12.0).reshape(2, 2, 3), ("a", "c"): np.arange(6.0).reshape(2, 3)}
    found = sum_smallest_table(counts, ("c", "a"))
    assert found is not None
    assert found.tolist() == counts["a", "c"].T.tolist()
    assert sum_smallest_table(counts, ("c", "d")) is None
