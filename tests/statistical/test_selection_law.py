"""The exponential mechanism and the Bernoulli trial against their exact laws.

A test fails by chance with probability below 1e-9: one comparison with the law by `p_value_bound` at 5e-10, and a wrong
rate is missed with probability below 1e-12. A rate wrong by a factor of two, the forgotten 1/2 of
exp(epsilon q / (2 Delta)), must be told apart.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from understudy.gate.noise import below_exp_neg
from understudy.gate.randomness import stream
from understudy.gate.selection import exponential_mechanism, invert
from understudy.testing.audit import p_value_bound

pytestmark = pytest.mark.law
ALPHA = 5e-10
DRAWS = 14_000
CASES = [
    ([0, 1, 2, 3], Fraction(1, 2)),
    ([5, 5, 0, 7, 7, 7], Fraction(1, 3)),
    ([10**9, 10**9 - 10**8, 0, 10**9 - 2 * 10**8], Fraction(1, 10**8)),
    (list(range(0, 3000, 100)), Fraction(1, 700)),
    ([-3 << 70, -1 << 70, -2 << 70], Fraction(1, 1 << 70)),
    (list(range(60)), Fraction(1, 20)),  # more than four candidates a digit: weights by digits
]


def p_value(counts: np.ndarray, scores: list[int], rate: Fraction) -> float:
    top = max(scores)
    weights = np.array([math.exp(-float(rate * (top - score))) for score in scores])
    return p_value_bound(counts, weights / weights.sum())


def judge(chosen: list[int], scores: list[int], rate: Fraction) -> None:
    counts = np.bincount(chosen, minlength=len(scores)).astype(np.float64)
    assert p_value(counts, scores, rate) > ALPHA, "the law is wrong"
    for factor in (Fraction(2), Fraction(1, 2), Fraction(3, 2), Fraction(2, 3)):
        assert p_value(counts, scores, rate * factor) < ALPHA, f"the test cannot tell a rate wrong by {factor}"


@pytest.mark.parametrize(("scores", "rate"), CASES)
def test_exponential_mechanism(scores: list[int], rate: Fraction) -> None:
    judge([exponential_mechanism(scores, rate) for _ in range(DRAWS)], scores, rate)


@pytest.mark.parametrize("width", [1, 4])
def test_undecided_choices_follow_the_law(width: int) -> None:
    """With so few bits first, most choices need more bits and a closer enclosure."""
    scores, rate = CASES[1]
    gaps = [max(scores) - score for score in scores]
    judge([invert(gaps, rate, stream(), width) for _ in range(DRAWS)], scores, rate)


@pytest.mark.parametrize("x", [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(7, 2)])
def test_bernoulli(x: Fraction) -> None:
    n, source = 40_000, stream()
    hits = sum(below_exp_neg(x, source.bits(64), 64, source) for _ in range(n))
    for factor in (1.0, 2.0, 0.5):
        p = math.exp(-float(x) * factor)
        found = p_value_bound([hits, n - hits], [p, 1 - p])
        if factor == 1.0:
            assert found > ALPHA
        elif x > Fraction(1, 100):  # of x = 1/1000, 40 failures are expected: too few to tell
            assert found < ALPHA
