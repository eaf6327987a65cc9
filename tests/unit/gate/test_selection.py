"""The exponential mechanism: weights against decimal arithmetic, edges, bad arguments."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import SettingError
from understudy.gate import selection
from understudy.gate.noise import below_exp_neg
from understudy.gate.randomness import stream
from understudy.gate.selection import (
    _locate,
    _short_weights,
    _upper_bounds,
    _weights,
    exponential_mechanism,
    exponential_mechanism_many,
    invert,
)


class Fixed:
    """A stream that answers with the digits of one number."""

    def __init__(self, number: int, places: int) -> None:
        self.number, self.places = number, places

    def bits(self, k: int) -> int:
        self.places -= k
        assert self.places >= 0
        return self.number >> self.places & (1 << k) - 1


def test_one_candidate_and_obvious_winners() -> None:
    assert exponential_mechanism([-5], Fraction(3)) == 0
    assert exponential_mechanism([0, 10**9, 5], Fraction(3)) == 1
    assert exponential_mechanism([10**30, -(10**30)], Fraction(1, 7)) == 0
    assert exponential_mechanism(np.array([1, 10**6]), Fraction(1)) == 1  # type: ignore[arg-type]


def test_ties_and_rate_zero_are_uniform() -> None:
    for scores, rate in (([4, 4, 4], Fraction(9)), ([0, 10**9, -3], Fraction(0))):
        counts = np.bincount([exponential_mechanism(scores, rate) for _ in range(3000)], minlength=3)
        # standard deviation 26; eight of them are exceeded with probability below 1e-14
        assert (abs(counts - 1000) < 210).all()


@pytest.mark.parametrize("width", [1, 7, 64])
def test_choices_just_below_and_above_an_edge(width: int) -> None:
    gaps, rate, places = [3, 0, 1, 10**9, 1], Fraction(2, 7), 384 + width
    with localcontext() as context:
        context.prec = 200
        weights = [(-Decimal(2 * gap) / 7).exp() for gap in gaps]
        for i in range(len(gaps) - 1):
            edge = int((sum(weights[: i + 1]) / sum(weights) * 2**places).to_integral_value("ROUND_FLOOR"))
            after = i + 1 if i + 1 != 3 else 4  # the weight exp(-2e9/7) is invisible at this distance
            before = i if i != 3 else 2
            shift = 1 << places - 250
            assert invert(gaps, rate, Fixed(edge - shift, places), width) == before  # type: ignore[arg-type]
            assert invert(gaps, rate, Fixed(edge + shift, places), width) == after  # type: ignore[arg-type]


@pytest.mark.parametrize("lower", [(0, 50, 10), (9, 0, 0), (30, 31, 29), (1, 1, 200), (7,)])
def test_a_choice_is_made_only_where_every_weight_within_its_bounds_makes_it(lower: tuple[int, ...]) -> None:
    """Every number of seven bits, its first and its last continuation, and weights at either bound, in fractions."""
    error, width, told = 2, 7, 0
    sums = list(accumulate(lower))
    for first in range(1 << width):
        found = _locate(sums, error, first, width)
        told += found is not None
        for above in product((0, error), repeat=len(lower)):
            true = list(accumulate(low + more for low, more in zip(lower, above, strict=True)))
            for end in (Fraction(first, 1 << width), Fraction(first + 1, 1 << width) - Fraction(1, 1 << 99)):
                chosen = next(i for i, upto in enumerate(true) if end * true[-1] < upto) if true[-1] else found
                assert found in (None, chosen)
    assert told > 20


@pytest.mark.parametrize("rate", [Fraction(1, 10**6), Fraction(1, 3), Fraction(5), Fraction(1, 1 << 80)])
def test_weights_are_enclosed(rate: Fraction) -> None:
    """By a series for each, by digits of eight bits, by digits of twelve."""
    few = [0, 1, 2, 255, 256, 257, 65_535, 10**6, 10**9, 1 << 81]
    for places, gaps in product((40, 100), (few, few + list(range(3, 200)), few + list(range(3, 9000, 3)))):
        weights, error = _weights(gaps, rate, places)
        assert error < 1 << 20
        with localcontext() as context:
            context.prec = 60
            for gap, weight in zip(gaps, weights, strict=True):
                x = rate * gap
                exact = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**places
                assert weight <= exact <= weight + error


@pytest.mark.parametrize(
    "rate",
    [Fraction(10**9), Fraction(5), Fraction(1, 3), Fraction(1, 10**6), Fraction(3**40, 2**150), Fraction(7, 3**200)],
)
def test_quick_weights_are_enclosed(rate: Fraction) -> None:
    rng = np.random.default_rng(0)
    reach = 45 * rate.denominator // rate.numerator  # beyond it a weight is below 2^-60
    shares = [int(share * 2**40) for share in rng.random(3000)]
    gaps = [0, 1, 255, 256, reach, 2 * reach, 1 << 400, *(reach * share >> 40 for share in shares)]
    weights, error = _short_weights(gaps, rate)
    assert weights.min() >= 0
    with localcontext() as context:
        context.prec = 60
        for gap, weight in zip(gaps, weights.tolist(), strict=True):
            x = rate * gap
            exact = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**44
            assert weight <= exact <= weight + error


def test_quick_weights_decide_as_wide_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    gaps = [int(gap) << 70 for gap in rng.integers(0, 10**6, 5000)]
    numbers = [int.from_bytes(rng.bytes(80), "big") for _ in range(200)]

    def chosen() -> list[int]:
        return [invert(gaps, Fraction(1, 10**5 << 70), Fixed(number, 640)) for number in numbers]  # type: ignore[arg-type]

    quick = chosen()
    monkeypatch.setattr(selection, "_MANY", 0)
    assert chosen() == quick
    monkeypatch.setattr(selection, "_MANY", 1 << 18)
    monkeypatch.setattr(selection, "_weights", None)  # nearly always the quick ones are enough
    assert chosen()[:20] == quick[:20]


@given(
    st.lists(st.integers(-(1 << 61), 1 << 61), min_size=1, max_size=20),
    st.fractions(min_value=0, max_value=100, max_denominator=1 << 80),
    st.sampled_from([44, 20, 3]),
    st.integers(0, 70),
)
def test_bounds_of_many_weights_hold(scores: list[int], rate: Fraction, places: int, finer: int) -> None:
    rate, top = rate / (1 << finer), max(scores)
    is_open = np.arange(len(scores)) % 3 != 1
    bounds = _upper_bounds(np.array(scores, np.int64), top, rate, is_open, places).tolist()
    with localcontext() as context:
        context.prec = 60
        for score, bound, kept in zip(scores, bounds, is_open, strict=True):
            x = rate * (top - score)
            exact = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**places
            assert bound - 3 <= exact <= bound if kept else bound == 0


def test_many_are_drawn_once_each_and_obvious_winners_in_their_order() -> None:
    scores = np.array([0, 1 << 60, 7, 1 << 61, -(1 << 61), 1 << 59])
    assert exponential_mechanism_many(scores, Fraction(3), 4) == [3, 1, 5, 2]
    assert exponential_mechanism_many(scores, Fraction(3), 3, [3, 1]) == [5, 2, 0]
    wide = np.zeros(10_000, np.int64)
    wide[[5000, 9999]] = 1 << 40
    assert sorted(exponential_mechanism_many(wide, Fraction(1), 2)) == [5000, 9999]
    for rate in (Fraction(0), Fraction(1, 10**30)):
        drawn = exponential_mechanism_many(wide, rate, 5000, range(5000))
        assert sorted(drawn) == list(range(5000, 10_000))


def test_bad_arguments_of_many() -> None:
    scores = np.zeros(3, np.int64)
    for count, dropped in ((4, ()), (0, ()), (3, (1,))):
        with pytest.raises(SettingError, match="fewer than are to be drawn"):
            exponential_mechanism_many(scores, Fraction(1), count, dropped)
    with pytest.raises(SettingError, match="rate"):
        exponential_mechanism_many(scores, Fraction(-1), 1)


def test_bad_arguments() -> None:
    with pytest.raises(SettingError, match="candidates"):
        exponential_mechanism([], Fraction(1))
    with pytest.raises(SettingError, match="rate"):
        exponential_mechanism([1, 2], Fraction(-1))


def test_trials_that_are_certain() -> None:
    source = stream()
    for x, passed in ((Fraction(0), True), (Fraction(10**9), False)):
        assert all(below_exp_neg(x, source.bits(64), 64, source) is passed for _ in range(100))


def test_ten_thousand_candidates() -> None:
    scores = list(range(10_000))
    chosen = [exponential_mechanism(scores, Fraction(1, 10)) for _ in range(3)]
    assert min(chosen) > 9_000  # exp(-100): further down has probability below 1e-42
    assert 0 <= invert([5] * 10_000, Fraction(1), stream()) < 10_000


def test_more_candidates_than_machine_numbers_can_add_up() -> None:
    gaps, ones = [0] * 600_000, (1 << 640) - 1
    for number, index in ((ones, 599_999), (ones // 2 + 2**600, 300_000), (0, 0)):
        assert invert(gaps, Fraction(1), Fixed(number, 640)) == index  # type: ignore[arg-type]
