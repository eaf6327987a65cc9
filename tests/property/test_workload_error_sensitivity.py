"""How far one unit moves the workload error, in exact integers: never further than its noise is made for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from understudy.accounting import Budget
from understudy.gate import PrivateTable
from understudy.testing.tables import CodedSource

SIZES = {"a": 3, "b": 2}
CLIQUES = [("a",), ("b",), ("a", "b")]

row = st.tuples(*(st.integers(0, size - 1) for size in SIZES.values()))
marginal = st.lists(st.floats(-5, 20), min_size=6, max_size=6)


class NoNoise:
    def gaussian(self, sigma, size):
        return np.zeros(size, np.int64)

    laplace = gaussian


def measure_error(rows, given_, weights, k, replaced):
    """The exact weighted sum of distances in units of 2^-16 rows, and the sensitivity it was charged for."""
    source = CodedSource(SIZES, rows, max_rows=k, rows_public=9 if replaced else None)
    table = PrivateTable(source, Budget.of(rho=1.0), noise=NoNoise())
    found = table.error(given_, weights=weights, rho=1.0)
    return Fraction(found.rows) * sum(weights.values()) * 2**16, table.account.charges[0].sensitivity


@given(st.data())
def test_the_error_moves_by_its_sensitivity_at_most(data):
    k, replaced = data.draw(st.sampled_from([1, 3])), data.draw(st.booleans())
    rest = data.draw(st.lists(row, max_size=8))
    unit = data.draw(st.lists(row, max_size=k))
    instead = data.draw(st.lists(row, min_size=0, max_size=k)) if replaced else []
    weights = {clique: data.draw(st.integers(1, 1000)) for clique in CLIQUES}
    given_ = {
        clique: data.draw(marginal)[: 3 if clique == ("a",) else 2 if clique == ("b",) else 6] for clique in CLIQUES
    }
    first, sensitivity = measure_error([*rest, *unit], given_, weights, k, replaced)
    second, same = measure_error([*rest, *instead], given_, weights, k, replaced)
    assert sensitivity == same == k * (1 + replaced) * sum(weights.values()) * 2**16
    assert abs(first - second) <= Fraction(sensitivity) * (1 + Fraction(1, 10**9))  # the mean is a float


def test_it_can_move_by_all_of_it():
    weights = {("a",): 2, ("b",): 5}
    empty = {("a",): [0.0] * 3, ("b",): [0.0] * 2}
    first, sensitivity = measure_error([(0, 0), (1, 1), (1, 1)], empty, weights, 3, False)
    second, _ = measure_error([], empty, weights, 3, False)
    assert first - second == sensitivity
