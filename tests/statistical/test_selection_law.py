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
from understudy.gate.selection import exponential_mechanism, exponential_mechanism_many, invert
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


SMALL = [case for case in CASES if max(map(abs, case[0])) < 1 << 62]


@pytest.mark.parametrize("places", [44, 3])
@pytest.mark.parametrize(("scores", "rate"), SMALL)
def test_the_first_of_many_selections(scores: list[int], rate: Fraction, places: int) -> None:
    """With bounds of so few places, most trials are decided by more bits, and many fail."""
    given = np.array(scores, np.int64)
    judge([exponential_mechanism_many(given, rate, 1, places=places)[0] for _ in range(DRAWS)], scores, rate)


@pytest.mark.parametrize("places", [44, 3])
def test_selections_without_replacement(places: int) -> None:
    """Pairs in their order, of candidates of which one is dropped and one far ahead: p_i p_j / (1 - p_i)."""
    scores, rate, dropped = np.array([5, 3, 99, 4, 60]), Fraction(1, 2), [2]
    drawn = [tuple(exponential_mechanism_many(scores, rate, 2, dropped, places=places)) for _ in range(DRAWS)]
    law, doubled = (pairs_law({i: int(scores[i]) for i in (0, 1, 3, 4)}, one) for one in (0.5, 1.0))
    assert set(drawn) <= set(law)
    counts = [drawn.count(pair) for pair in law]
    assert p_value_bound(counts, list(law.values())) > ALPHA, "the law is wrong"
    assert p_value_bound(counts, list(doubled.values())) < ALPHA, "the test cannot tell a rate wrong by two"


def pairs_law(scores: dict[int, int], rate: float) -> dict[tuple[int, int], float]:
    weights = {i: math.exp(rate * (score - 60)) for i, score in scores.items()}
    whole = sum(weights.values())
    return {
        (i, j): weights[i] / whole * weights[j] / sum(weights[k] for k in weights if k != i)
        for i in weights
        for j in weights
        if i != j
    }


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
