"""Distances of many tables at once: exact, in batches, and only of what is a number of rows."""

import math

import numpy as np
import pytest

from understudy.errors import SettingError
from understudy.gate.selection import batches, distances, round_to_units


def test_distance_is_exact_where_floats_are_not():
    counts = np.array([2**36, 1], np.int64)
    given_cells = round_to_units([(("a",), 2, [2.0**36 - 2.0**-16, 0.5]), (("b",), 1, 3.0)])
    assert distances([counts, np.array([5], np.int32)], given_cells) == [1 + 2**15, 2 << 16]


def test_tables_kept_in_four_bytes_a_cell_do_not_wrap_around():
    """Neither alone nor together: a distance that wraps around moves by any amount."""
    counts = [np.array([2**31 - 1, 0], np.int32), np.array([40_000], np.int32)]
    given_cells = round_to_units([(("a",), 2, [0, 0]), (("b",), 1, [0])])
    assert distances(counts, given_cells) == [(2**31 - 1) << 16, 40_000 << 16]
    assert distances(counts[1:], given_cells[1:]) == [40_000 << 16]


def test_tables_come_in_batches_of_about_a_million_cells():
    sizes = [5, 1 << 20, 3, 4, 1 << 21]
    assert list(batches(sizes, int)) == [[5, 1 << 20], [3, 4, 1 << 21]]
    assert list(batches([3, 4], int)) == [[3, 4]]
    assert list(batches([], int)) == []


@pytest.mark.parametrize("bad", [[math.nan, 0], [math.inf, 0], [2.0**44, 0], [2.0**43, 2.0**43]])
def test_marginals_whose_distances_could_wrap_around_are_refused(bad):
    with pytest.raises(SettingError, match=r"marginal of .'b',. .*too large"):
        round_to_units([(("a",), 2, [1.0, 2.0]), (("b",), 2, bad)])


def test_marginal_of_another_size_is_refused():
    with pytest.raises(SettingError, match="has 3 cells; its clique has 2"):
        round_to_units([(("a",), 2, [1, 2, 3])])
