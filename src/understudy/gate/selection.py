"""Private selection: exact scores of many candidates, and the exact exponential mechanism."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.accounting.exact import exp_neg
from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.gate.noise import below_exp_neg
from understudy.gate.randomness import Stream, stream
from understudy.tabulate import Counts, SparseCounts

BITS = 16
"""Given marginals are rounded to multiples of 2^-16 of a row, so that L1 distances are exact int64 sums."""

T = TypeVar("T")
_BATCH = 1 << 20

_LARGEST = 2.0**44
"""Given marginals of more rows than this are refused: their scaled int64 sums could overflow."""


def round_to_units(marginals: Sequence[tuple[Clique, int, ArrayLike]]) -> list[NDArray[np.int64]]:
    """Round public marginals, given with their clique and its number of cells, to whole units of 2^-16 rows.

    Raises:
        SettingError: if one has the wrong size, or a value that is not a possible number of rows.
    """
    flat = []
    for clique, cells, marginal in marginals:
        try:
            flat.append(np.asarray(marginal, dtype=np.float64).reshape(-1))
        except (TypeError, ValueError, OverflowError):
            raise SettingError(f"the given marginal of {clique} holds a value that is not a number") from None
        if len(flat[-1]) != cells:
            raise SettingError(f"the given marginal of {clique} has {len(flat[-1])} cells; its clique has {cells}")
    whole, starts = np.concatenate(flat), _starts(flat)
    for (clique, _, _), reasonable in zip(marginals, np.add.reduceat(np.abs(whole), starts) < _LARGEST, strict=True):
        if not reasonable:
            raise SettingError(f"the given marginal of {clique} holds a value that is not finite or is too large")
    whole *= 2.0**BITS  # a power of two: the product is exact
    return np.split(np.rint(whole, out=whole).astype(np.int64), starts[1:])


def distances(counts: Sequence[NDArray[np.integer[Any]]], given: Sequence[NDArray[np.int64]]) -> list[int]:
    """Return the exact L1 distances between counts and given marginals, in units of 2^-16 rows."""
    apart = np.concatenate(counts, dtype=np.int64)
    np.left_shift(apart, BITS, out=apart)
    np.subtract(apart, np.concatenate(given), out=apart)
    found: list[int] = np.add.reduceat(np.abs(apart, out=apart), _starts(counts)).tolist()
    return found


def batches(items: Iterable[T], cells: Callable[[T], int]) -> Iterator[list[T]]:
    """Group items into batches of about a million cells, so that thousands of small marginals are handled together."""
    batch: list[T] = []
    taken = 0
    for item in items:
        batch.append(item)
        taken += cells(item)
        if taken >= _BATCH:
            yield batch
            batch, taken = [], 0
    if batch:
        yield batch


def _starts(tables: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return the offsets of non-empty arrays that are laid out one after the other."""
    return np.cumsum([0, *map(len, tables[:-1])])


def indif(counts: NDArray[np.int64], shape: tuple[int, ...]) -> int:
    """Return InDif of a two-way marginal, sum |M_ab - M_a M_b / n|, rounded to the nearest integer; 0 if it is empty.

    Computed as floor((2 sum |n M_ab - M_a M_b| + n) / (2 n)) in integers that cannot overflow.
    """
    table = counts.reshape(shape)
    n = int(table.sum())
    if n == 0:
        return 0
    if n >= 2**30:
        table = table.astype(object)
    product = np.multiply.outer(table.sum(axis=1), table.sum(axis=0))
    return (2 * int(np.abs(n * table - product).sum()) + n) // (2 * n)


def merge_codes(counts: Counts, shape: tuple[int, ...], maps: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64]:
    """Return the dense marginal of a clique after merging codes along each axis (None leaves an axis unchanged)."""
    sizes = [size if axis is None else int(axis.max()) + 1 for size, axis in zip(shape, maps, strict=True)]
    out = np.zeros(math.prod(sizes), dtype=np.int64)
    if isinstance(counts, SparseCounts):
        codes = np.unravel_index(counts.cells, shape) if shape else ()
        kept = [code if axis is None else axis[code] for code, axis in zip(codes, maps, strict=True)]
        np.add.at(out, np.ravel_multi_index(kept, sizes) if shape else counts.cells, counts.counts)
        return out
    if all(axis is None for axis in maps):
        return counts
    target = np.zeros((), dtype=np.int64)
    for size, merged_size, axis in zip(shape, sizes, maps, strict=True):
        place = np.arange(size) if axis is None else axis
        target = np.add.outer(target * merged_size, place)
    np.add.at(out, target.reshape(-1), counts)
    return out


# ----------------------------------------------------------------------------------------------------
# Scores of a private selection in exact integers, and public marginals whose distances the gate may cache.


class FixedMarginals(Mapping[Clique, NDArray[np.float64]]):
    """Public marginals that do not change; each is computed on first use.

    Pass these to `PrivateTable.select` instead of a dict if the same marginals are used in many selections: the gate
    then counts each clique once. Two are equal only if they are the same object.
    """

    again: ClassVar[bool] = False
    """Whether the same cliques will be compared with other marginals later; the gate then caches their exact counts."""

    @abstractmethod
    def __getitem__(self, clique: Clique) -> NDArray[np.float64]:
        """Return the marginal of one clique."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)


class Distances:
    """A cache of exact L1 distances from fixed marginals, in units of 2^-16 rows; used only inside the gate.

    **Privacy.** Distances are exact, hence private. A cached distance is a distance from some public marginal, with the
    same sensitivity, even if a caller has changed its marginals since. InDif scores depend on the rows only.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[FixedMarginals, dict[Clique, int]] = WeakKeyDictionary()
        self._indif: dict[Clique, int] = {}

    def __repr__(self) -> str:
        return "Distances()"

    def of(self, against: Mapping[Clique, ArrayLike] | None) -> dict[Clique, int]:
        """Return the cached distances from these marginals, to be extended; a new dict unless they are fixed.

        None stands for InDif scores, which depend on the order of a clique's columns, as the keys do.
        """
        if against is None:
            return self._indif
        return self._known.setdefault(against, {}) if isinstance(against, FixedMarginals) else {}


def compute_distances(
    counted: Iterable[tuple[Clique, NDArray[np.integer[Any]]]], given: Mapping[Clique, Callable[[], NDArray[np.int64]]]
) -> Iterator[tuple[Clique, int]]:
    """Yield each clique with the exact L1 distance of its counts from the given marginal, in units of 2^-16 rows."""
    for batch in batches(counted, lambda one: len(one[1])):
        cliques = [clique for clique, _ in batch]
        yield from zip(cliques, distances([c for _, c in batch], [given[c]() for c in cliques]), strict=True)


def scale_scores(
    distances: Sequence[int], weights: Sequence[float] | None, offsets: Sequence[float] | None
) -> tuple[list[int], int]:
    """Return scores ``weight * (distance - offset)`` as whole numbers, and the number of units that make one row.

    Distances are in units of 2^-16 rows, offsets in rows.

    Exact: a float stands for its binary value. Fractions are never reduced, which would take most of the time of a
    selection among thousands of candidates.

    >>> scale_scores([3 << 16, 1 << 16], [0.5, 2.0], [1.0, 0.0])
    ([131072, 262144], 131072)
    """
    scores, unit = list(distances), 1 << BITS
    if offsets is not None:
        less, fine = _to_common_denominator([offset.as_integer_ratio() for offset in offsets])
        common = math.lcm(unit, fine)
        scores = [s * (common // unit) - o * (common // fine) for s, o in zip(scores, less, strict=True)]
        unit = common
    if weights is not None:
        times, parts = _to_common_denominator([weight.as_integer_ratio() for weight in weights])
        scores = [s * w for s, w in zip(scores, times, strict=True)]
        unit *= parts
    return scores, unit


def _to_common_denominator(ratios: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Express ratios as multiples of one over their common denominator."""
    common = math.lcm(*{denominator for _, denominator in ratios})
    return [numerator * (common // denominator) for numerator, denominator in ratios], common


# ----------------------------------------------------------------------------------------------------
# The exact exponential mechanism: no rounding affects the selection.
# **Privacy.** With rate = epsilon / (2 Delta) and scores that differ by at most Delta between neighbouring tables, the
# selection is epsilon-DP and epsilon^2/8-zCDP, if it has exactly the distribution below. Weights are therefore
# enclosed between two integers, and a uniform number is extended bit by bit until the enclosures prove where it falls.
# The first enclosures use machine numbers, whose rounding IEEE 754 bounds; undecided cases use wide fixed point.


_PLACES = 44
_MANY = 1 << 18  # weights of 44 places whose sum has 62


def exponential_mechanism(scores: Sequence[int], rate: Fraction) -> int:
    """Draw an index i with probability exactly exp(rate scores[i]) / sum_j exp(rate scores[j]).

    **Privacy.** See above. The scores are private, and only the index may be released; the rate is public.

    Args:
        scores: integers of any size; `rate` includes the public factor that made them integers.
        rate: the increase of the log weight per unit of score; rational, not negative.

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
    """Draw the i with cumulative(i - 1) <= U total < cumulative(i), for a uniform U and weights exp(-rate gap).

    `width` is the number of bits of U that are drawn first. Tests use few, so that undecided cases are common.
    """
    first = source.bits(width)
    if rate and len(gaps) < _MANY:
        short, error = _short_weights(gaps, rate)
        index = _locate(np.cumsum(short).tolist(), error, first, width)
        if index is not None:
            return index
    while True:
        weights, error = _weights(gaps, rate, width + len(gaps).bit_length() + 16)
        index = _locate(list(accumulate(weights)), error, first, width)
        if index is not None:
            return index
        first, width = first << 64 | source.bits(64), width + 64


def _locate(lower: list[int], error: int, first: int, width: int) -> int | None:
    """Locate U, whose first bits are `first`, among the sums of enclosed weights; None if more bits are needed."""
    slack = error * len(lower)  # lower[i] <= true sum <= lower[i] + slack
    low, high = first * lower[-1] >> width, ((first + 1) * (lower[-1] + slack) >> width) + 1
    index = min(bisect_left(lower, high), len(lower) - 1)  # U < 1 is always below the last sum
    return index if index == 0 or lower[index - 1] + slack <= low else None


def _short_weights(gaps: Sequence[int], rate: Fraction) -> tuple[NDArray[np.int64], int]:
    """Return lower bounds of exp(-rate gap) 2^44 for each gap, and an error that bounds them all; fast.

    The last bits of gaps, worth at most 2^-48 of a weight, are dropped. The rest is `_exp_by_digits` in machine
    numbers: entries of at most eight tables and their products are rounded (2^-53 each). Together these errors are
    below 2^-46, a quarter of a unit; one unit is allowed on either side, and one for rounding down.
    """
    lost = max(0, (rate.denominator >> 48).bit_length() - rate.numerator.bit_length() - 1)  # rate 2^lost <= 2^-48
    most = -(-_PLACES * rate.denominator // rate.numerator)  # from there on exp(-rate gap) < 2^-44
    short = np.array([min(gap, most) >> lost for gap in gaps], np.int64)
    found = np.ones(len(short))
    for low in range(0, int(short.max()).bit_length(), 8):
        found *= _short_powers(rate * (1 << low + lost), 8)[short >> low & 255]
    return np.maximum(np.floor(np.ldexp(found, _PLACES)).astype(np.int64) - 1, 0), 3


@lru_cache(maxsize=256)
def _short_powers(rate: Fraction, bits: int) -> NDArray[np.float64]:
    """Compute exp(-rate d) for digits d of this many bits; cached, because a run uses few rates, all of them public."""
    unit, _ = exp_neg(rate, 96)
    found: NDArray[np.float64] = np.ldexp(np.array(_powers(unit, 1 << bits, 96), np.float64), -96)
    return found


# ----------------------------------------------------------------------------------------------------
# Several selections without replacement among millions of candidates, with weights that are computed once.
# **Privacy.** Let w_i = exp(-rate gap_i) 2^44 be the true weight of candidate i, and u_i >= w_i a whole number. A trial
# draws a candidate i and a whole number v below u_i, all such pairs being equally likely, and accepts i if v + F < w_i,
# for a uniform F between 0 and 1. Given i, the number v + F is uniform between 0 and u_i, so a trial accepts i with
# probability w_i / sum_j u_j. Trials are repeated until one accepts: i is selected with probability exactly
# w_i / sum_j w_j, whatever the bounds u_j are. Where v + 1 is at most a lower bound of w_i, v + F < w_i is certain;
# elsewhere `below_exp_neg` decides it, with as many bits of F as it takes. A candidate that was selected gets u_i = 0
# and is never drawn again. Weights may be relative to any score, so the one they are relative to may change in between.


_BLOCK = 1 << 12  # candidates whose bounds are added up: 2^12 numbers of 44 places have a sum of 57
_CHUNK = 1 << 15  # candidates at a time, for the processor's cache
_DIGIT = 12


def exponential_mechanism_many(
    scores: NDArray[np.int64], rate: Fraction, count: int, dropped: Sequence[int] = (), *, places: int = _PLACES
) -> list[int]:
    """Draw `count` indices one after the other, each as `exponential_mechanism` does among those not drawn before.

    **Privacy.** See above. The scores are private, and only the indices may be released; all else is public.

    Args:
        scores: whole numbers of at most 2^61 in absolute value.
        rate: the increase of the log weight per unit of score; rational, not negative.
        count: the number of draws.
        dropped: indices that are never drawn.
        places: the binary places of the weights' bounds; tests use few, so that undecided trials are common.

    Raises:
        SettingError: if fewer candidates are left than are to be drawn, or the rate is negative.
    """
    is_open = np.ones(len(scores), np.bool_)
    is_open[list(dropped)] = False
    if not 0 < count <= int(is_open.sum()):
        raise SettingError("candidates: there are fewer than are to be drawn")
    if rate < 0:
        raise SettingError(f"rate must not be negative, not {rate}")
    drawn: list[int] = []
    top, sums, source = 0, [0], stream()
    bounds = np.zeros(0, np.int64)
    for left in range(int(is_open.sum()), int(is_open.sum()) - count, -1):
        if sum(sums) < 6 * left:  # most trials might fail: compute the weights again, for the largest score left
            top = int(np.max(scores, where=is_open, initial=-(1 << 62)))
            bounds = _upper_bounds(scores, top, rate, is_open, places)
            sums = np.add.reduceat(bounds, np.arange(0, len(bounds), _BLOCK)).tolist()
        while True:
            index, value = _draw_pair(bounds, sums, source)
            if value + 1 <= int(bounds[index]) - 3:
                break
            if value < 1 << places and below_exp_neg(rate * (top - int(scores[index])), value, places, source):
                break
        sums[index // _BLOCK] -= int(bounds[index])
        bounds[index], is_open[index] = 0, False
        drawn.append(index)
    return drawn


def _draw_pair(bounds: NDArray[np.int64], sums: Sequence[int], source: Stream) -> tuple[int, int]:
    """Draw an index and a whole number below its bound, all such pairs being equally likely."""
    ends = list(accumulate(sums))
    width = ends[-1].bit_length()
    while (number := source.bits(width)) >= ends[-1]:
        pass
    block = bisect_right(ends, number)
    number -= ends[block - 1] if block else 0
    inner = np.cumsum(bounds[block * _BLOCK : (block + 1) * _BLOCK])
    place = int(np.searchsorted(inner, number, side="right"))
    return block * _BLOCK + place, number - (int(inner[place - 1]) if place else 0)


def _upper_bounds(
    scores: NDArray[np.int64], top: int, rate: Fraction, is_open: NDArray[np.bool_], places: int
) -> NDArray[np.int64]:
    """Return upper bounds of exp(-rate (top - score)) 2^places, 0 for those not open; less 3, they are lower bounds.

    As `_short_weights`, but for arrays: the same errors, in digits of twelve bits.
    """
    lost, most = 0, 0
    if rate:
        lost = min(62, max(0, (rate.denominator >> 48).bit_length() - rate.numerator.bit_length() - 1))
        most = min((1 << 62) - 1, -(-_PLACES * rate.denominator // rate.numerator))
    tables = [_short_powers(rate * (1 << low + lost), _DIGIT) for low in range(0, (most >> lost).bit_length(), _DIGIT)]
    bounds = np.empty(len(scores), np.int64)
    for start in range(0, len(scores), _CHUNK):
        part = slice(start, start + _CHUNK)
        short = np.clip(top - scores[part], 0, most) >> lost  # scores that are not open may be above the top
        found = np.ones(len(short))
        for low, powers in enumerate(tables):
            found *= powers[short >> low * _DIGIT & (1 << _DIGIT) - 1]
        lower = np.maximum(np.floor(np.ldexp(found, places)).astype(np.int64) - 1, 0)
        bounds[part] = np.where(is_open[part], lower + 3, 0)
    return bounds


def _weights(gaps: Sequence[int], rate: Fraction, places: int) -> tuple[list[int], int]:
    """Return lower bounds of exp(-rate gap) 2^places for each gap, and an error that bounds them all."""
    if rate == 0:
        return [1 << places] * len(gaps), 0
    cutoff = -(-places * rate.denominator // rate.numerator)  # from there on, exp(-rate gap) < 2^-places: zero, nearly
    distinct = {gap for gap in gaps if gap < cutoff}
    few = len(distinct) <= max(distinct).bit_length() // 2  # four to a digit of eight bits
    known, error = (_exp_by_series if few else _exp_by_digits)(distinct, rate, places)
    return [known.get(gap, 0) for gap in gaps], error


def _exp_by_series(gaps: set[int], rate: Fraction, places: int) -> tuple[dict[int, int], int]:
    """Compute each exp(-rate gap) by a series; for few candidates."""
    bounds = {gap: exp_neg(rate * gap, places) for gap in gaps}
    return {gap: lower for gap, (lower, _) in bounds.items()}, 1 + max(high - low for low, high in bounds.values())


def _exp_by_digits(gaps: set[int], rate: Fraction, places: int) -> tuple[dict[int, int], int]:
    """Compute exp(-rate gap) as the product of tabulated exp(-rate d B^j) over the gap's digits d in base B."""
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
    """Return lower bounds of unit^0 .. unit^(count - 1); each step adds the error of unit and one in the last place."""
    return list(accumulate(range(1, count), lambda power, _: power * unit >> places, initial=1 << places))
