from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.accounting.exact import float_above, float_below, format_up, parse_fraction, sqrt_above, sqrt_below
from understudy.gate.selection import indif, merge_codes
from understudy.tabulate import SparseCounts

positive = st.fractions(min_value=Fraction(1, 10**30), max_value=10**30)
huge = st.integers(1, 10**400) | st.integers(1, 10**400).map(lambda n: Fraction(1, n))


@given(positive | huge)
def test_floats_enclose_a_fraction_tightly(value):
    low, high = float_below(Fraction(value)), float_above(Fraction(value))
    assert Fraction(low) <= value
    assert high == math.inf or Fraction(high) >= value
    assert high in (low, math.nextafter(low, math.inf))


@given(positive | huge)
def test_roots_enclose_the_root_tightly(value):
    low, high = sqrt_below(Fraction(value)), sqrt_above(Fraction(value))
    assert Fraction(low) ** 2 <= value
    assert high == math.inf or Fraction(high) ** 2 >= value
    assert high <= math.nextafter(math.nextafter(low, math.inf), math.inf)


@given(st.fractions(min_value=Fraction(1, 1000), max_value=1000))
def test_roots_of_squares_are_exact(root):
    assert sqrt_above(root**2) == float_above(root)
    assert sqrt_below(root**2) == float_below(root)


@given(st.floats(1e-3, 1e3))
def test_a_root_a_hair_above_a_float_is_not_that_float(root):
    assert sqrt_above(Fraction(root) ** 2 + Fraction(1, 10**60)) == math.nextafter(root, math.inf)
    assert sqrt_below(Fraction(root) ** 2 + Fraction(1, 10**60)) == root


def test_floats_beyond_the_range_stay_on_the_safe_side():
    assert float_above(Fraction(10) ** 400) == math.inf
    assert float_below(Fraction(10) ** 400) == sys.float_info.max
    assert float_above(Fraction(1, 10**400)) == 5e-324
    assert float_below(Fraction(1, 10**400)) == 0.0


@given(st.fractions())
def test_fractions_survive_text(value):
    assert parse_fraction(str(value)) == value


@pytest.mark.parametrize(
    "text", ["1e999999999", "1/0", "nan", "inf", "", " 1", "1/-2", "0x10", "1.5", None, 3, "9" * 10**5]
)
def test_nothing_else_is_read_as_a_fraction(text):
    with pytest.raises(ValueError, match=r"fraction|digits"):
        parse_fraction(text)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_bounds_are_never_stated_smaller(value):
    told = float(format_up(value))
    assert value <= told or format_up(value) == repr(value)
    assert told <= value * (1 + 1e-5)


def _indif_by_definition(table):
    n = int(table.sum())
    if n == 0:
        return 0
    a, b = table.sum(axis=1), table.sum(axis=0)
    total = sum(
        abs(Fraction(int(table[i, j])) - Fraction(int(a[i]) * int(b[j]), n))
        for i in range(table.shape[0])
        for j in range(table.shape[1])
    )
    return math.floor(total + Fraction(1, 2))


tables = st.lists(st.integers(0, 9), min_size=6, max_size=6).map(lambda c: np.array(c, np.int64).reshape(2, 3))


@given(tables)
def test_indif_is_its_definition_rounded(table):
    assert indif(table.reshape(-1), (2, 3)) == _indif_by_definition(table)


@pytest.mark.parametrize("power", range(27, 41))
def test_indif_of_billions_of_rows_does_not_wrap_around(power):
    table = np.array([[2**power, 0], [0, 2**power]], np.int64)
    assert indif(table.reshape(-1), (2, 2)) == 2 ** (power + 1)


@given(tables, st.sampled_from([[0, 0], [0, 1], [1, 0]]), st.sampled_from([None, [0, 1, 1], [0, 0, 0], [2, 1, 0]]))
def test_merging_dense_and_sparse_counts_agree_with_a_loop(table, rows, columns):
    maps = [np.array(rows), None if columns is None else np.array(columns)]
    expected = np.zeros((max(rows) + 1, 3 if columns is None else max(columns) + 1), np.int64)
    for i in range(2):
        for j in range(3):
            expected[rows[i], j if columns is None else columns[j]] += table[i, j]
    flat = table.reshape(-1)
    cells = np.flatnonzero(flat)
    sparse = SparseCounts(cells, flat[cells], len(flat))
    assert merge_codes(flat, (2, 3), maps).tolist() == expected.reshape(-1).tolist()
    assert merge_codes(sparse, (2, 3), maps).tolist() == expected.reshape(-1).tolist()
