"""A value is released exactly as often as the noise and the threshold say. A wrong scale is noticed.

A test fails by chance with probability below 1e-9: each makes one exact binomial comparison. Of 8,000 values, a scale
wrong by 0.7 or 1.3 is missed with probability below 1e-10.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from scipy.stats import binomtest

from understudy.accounting import Budget
from understudy.gate import PrivateTable
from understudy.testing.spy import gaussian_tail
from understudy.testing.tables import WordSource

pytestmark = pytest.mark.law
VALUES = 8000
ALARM = 1e-9
BUDGET = Budget.of(rho=0.02, delta=1e-3, discovery_delta=5e-4)


def count_released(below: float, max_rows: int = 1) -> tuple[int, int, Fraction]:
    """Of many values of one count, `below` sigmas under the threshold: how many were released, at which distance."""
    probe = PrivateTable(WordSource({"a": 1}, max_rows=max_rows), BUDGET)
    probe.values("w", rho=Fraction(1, 100), delta=Fraction(1, 10**4))
    charge = probe.account.charges[0]
    gap = round(below * charge.scale)
    source = WordSource({str(i): charge.threshold - gap for i in range(VALUES)}, max_rows=max_rows)
    table = PrivateTable(source, BUDGET)
    answer = table.values("w", rho=Fraction(1, 100), delta=Fraction(1, 10**4))
    assert all(count >= charge.threshold for count in answer.values())
    return len(answer), gap, Fraction(charge.scale)


@pytest.mark.parametrize("max_rows", [1, 5])
@pytest.mark.parametrize("below", [-1.0, 0.0, 1.0, 2.0])
def test_a_value_is_released_as_often_as_its_noise_passes_the_threshold(below, max_rows):
    hits, gap, sigma = count_released(below, max_rows)
    assert binomtest(hits, VALUES, gaussian_tail(sigma, gap)).pvalue > ALARM


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_a_wrong_scale_is_noticed(factor, monkeypatch):
    original = PrivateTable._draw
    monkeypatch.setattr(PrivateTable, "_draw", lambda t, c, size: original(t, replace(c, scale=c.scale * factor), size))
    hits, gap, sigma = count_released(1.0)
    assert binomtest(hits, VALUES, gaussian_tail(sigma, gap)).pvalue < ALARM


def test_a_threshold_moved_by_half_a_sigma_is_noticed():
    hits, gap, sigma = count_released(1.0)
    assert binomtest(hits, VALUES, gaussian_tail(sigma, gap + round(sigma / 2))).pvalue < ALARM
