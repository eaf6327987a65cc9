from __future__ import annotations

import math
from fractions import Fraction

import pytest

from understudy.accounting.neighbours import Neighbours
from understudy.errors import SettingError


@pytest.mark.parametrize(
    ("k", "replace_one", "l2", "l1", "score", "indif"),
    [
        (1, False, 1, 1, 5, 4),
        (3, False, 3, 3, 15, 12),
        (1, True, math.sqrt(2), 2, 10, 8),
        (3, True, 3 * math.sqrt(2), 6, 30, 24),
    ],
)
def test_sensitivities(k, replace_one, l2, l1, score, indif):
    neighbours = Neighbours("person", k, replace_one)
    assert math.isclose(math.sqrt(neighbours.marginal_l2_squared), l2)
    assert neighbours.marginal_l1 == l1
    assert neighbours.score(Fraction(5)) == score
    assert neighbours.indif == indif


def test_a_unit_has_at_least_one_row():
    with pytest.raises(SettingError, match="at least 1"):
        Neighbours(max_rows=0)


@pytest.mark.parametrize(
    ("neighbours", "words"),
    [
        (Neighbours(), "one row of the table; the guarantee compares its being in the table or not"),
        (Neighbours("person", 1), "column 'person' (one row of each used)"),
        (Neighbours("person", 3), "at most 3 rows of each used"),
        (Neighbours(None, 1, True), "having other content (the number of rows is public)"),
    ],
)
def test_who_is_protected_is_stated_in_words(neighbours, words):
    assert words in neighbours.describe()
