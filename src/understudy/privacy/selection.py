"""The exact exponential mechanism: a private choice that no rounding has touched.

**Privacy.** With rate = epsilon / (2 Delta), for scores that move by at most Delta between neighbouring tables, the
choice is epsilon-DP and epsilon^2/8-zCDP. That holds for the law below and no other: weights are enclosed between two
integers, and a uniform number is extended bit by bit until the enclosures prove where it falls. The first ones are made
with machine numbers, whose rounding IEEE 754 bounds; what they leave open is decided in wide fixed point.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.privacy.fixed_point import exp_neg
from understudy.privacy.noise.randomness import Stream, stream

_PLACES = 44
_MANY = 1 << 18  # weights of 44 places whose sum has 62


def exponential_mechanism(scores: Sequence[int], rate: Fraction) -> int:
    """The index i with probability exactly exp(rate scores[i]) / sum_j exp(rate scores[j]).

    **Privacy.** See the module. The scores are private and only the index may be kept; the rate is public.

    Args:
        scores: integers of any size; the public scaling that made them integers belongs into `rate`.
        rate: what one unit of score adds to the logarithm of the weight; rational, not negative.

    Raises:
        SettingError: if there is no candidate or the rate is negative.
    """
    if not len(scores):
        raise SettingError("candidates must not be empty")
    if rate < 0:
        raise SettingError(f"rate must not be negative, not {rate}")
    numbers = [int(score) for score in scores]
    top = max(numbers)
    return invert([top - number for number in numbers], Fraction(rate), stream())


def invert(gaps: Sequence[int], rate: Fraction, source: Stream, width: int = 64) -> int:
    """The i with cumulative(i - 1) <= U total < cumulative(i), for a uniform U and weights exp(-rate gap).

    `width` is how many bits of U are drawn first. Tests take few, so that the undecided case is common.
    """
    first = source.bits(width)
    if rate and len(gaps) < _MANY:
        short, error = _short_weights(gaps, rate)
        index = _fallen(np.cumsum(short).tolist(), error, first, width)
        if index is not None:
            return index
    while True:
        weights, error = _weights(gaps, rate, width + len(gaps).bit_length() + 16)
        index = _fallen(list(accumulate(weights)), error, first, width)
        if index is not None:
            return index
        first, width = first << 64 | source.bits(64), width + 64


def _fallen(lower: list[int], error: int, first: int, width: int) -> int | None:
    """Where U falls, of which `first` holds the first bits, as far as sums of enclosed weights prove it."""
    slack = error * len(lower)  # lower[i] <= true sum <= lower[i] + slack
    low, high = first * lower[-1] >> width, ((first + 1) * (lower[-1] + slack) >> width) + 1
    index = min(bisect_left(lower, high), len(lower) - 1)  # U < 1 is always below the last sum
    return index if index == 0 or lower[index - 1] + slack <= low else None


def _short_weights(gaps: Sequence[int], rate: Fraction) -> tuple[NDArray[np.int64], int]:
    """Lower bounds of exp(-rate gap) 2^44 for each gap, and an error that bounds them all: for a quick decision.

    Gaps lose their last bits, which are worth at most 2^-48 of a weight. Then as `_by_digits`, in machine numbers: the
    entries of at most eight tables are rounded (2^-53 of each) and so are their products. Together that is below 2^-46,
    a quarter of a unit; a whole unit is allowed for, on either side, and one for rounding down.
    """
    lost = max(0, (rate.denominator >> 48).bit_length() - rate.numerator.bit_length() - 1)  # rate 2^lost <= 2^-48
    most = -(-_PLACES * rate.denominator // rate.numerator)  # from there on exp(-rate gap) < 2^-44
    short = np.array([min(gap, most) >> lost for gap in gaps], np.int64)
    found = np.ones(len(short))
    for low in range(0, int(short.max()).bit_length(), 8):
        unit, _ = exp_neg(rate * (1 << low + lost), 96)
        found *= np.ldexp(np.array(_powers(unit, 256, 96), np.float64), -96)[short >> low & 255]
    return np.maximum(np.floor(np.ldexp(found, _PLACES)).astype(np.int64) - 1, 0), 3


def _weights(gaps: Sequence[int], rate: Fraction, places: int) -> tuple[list[int], int]:
    """Lower bounds of exp(-rate gap) 2^places for each gap, and an error that bounds them all."""
    if rate == 0:
        return [1 << places] * len(gaps), 0
    cutoff = -(-places * rate.denominator // rate.numerator)  # from there on, exp(-rate gap) < 2^-places: zero, nearly
    distinct = {gap for gap in gaps if gap < cutoff}
    few = len(distinct) <= max(distinct).bit_length() // 2  # four to a digit of eight bits
    known, error = (_one_by_one if few else _by_digits)(distinct, rate, places)
    return [known.get(gap, 0) for gap in gaps], error


def _one_by_one(gaps: set[int], rate: Fraction, places: int) -> tuple[dict[int, int], int]:
    """A series for each gap: for few candidates."""
    bounds = {gap: exp_neg(rate * gap, places) for gap in gaps}
    return {gap: lower for gap, (lower, _) in bounds.items()}, 1 + max(high - low for low, high in bounds.values())


def _by_digits(gaps: set[int], rate: Fraction, places: int) -> tuple[dict[int, int], int]:
    """exp(-rate gap) as the product of exp(-rate d B^j) over the gap's digits d in base B, each looked up."""
    bits = 8 if len(gaps) < 2000 else 12  # larger tables pay off for many gaps
    tables, error = [], 1
    for low in range(0, max(gaps).bit_length(), bits):
        unit, upper = exp_neg(rate * (1 << low), places)
        tables.append(_powers(unit, 1 << bits, places))
        error += (upper - unit + 1) * (1 << bits) + 1  # a product errs by the sum of its factors' errors and one unit
    known, mask = {}, (1 << bits) - 1
    for gap in gaps:
        product, rest = 1 << places, gap
        for powers in tables:
            product = product * powers[rest & mask] >> places
            rest >>= bits
        known[gap] = product
    return known, error


def _powers(unit: int, count: int, places: int) -> list[int]:
    """Lower bounds of unit^0 .. unit^(count - 1); each step adds the error of unit and one in the last place."""
    return list(accumulate(range(1, count), lambda power, _: power * unit >> places, initial=1 << places))
