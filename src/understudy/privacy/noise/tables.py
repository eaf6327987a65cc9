"""Exact sampling by inversion: distribution functions in wide fixed point, and tables of their leading 64 bits.

A `Law` encloses its distribution function F at any precision asked for. A `Table` keeps, for each value x, the integer
T[x] with T[x] <= 2^64 F(x) <= T[x] + 1. A uniform number U is drawn bit by bit, 64 bits u first; the sample is the x
with F(x - 1) <= U < F(x). If u < T[x] then U < F(x), and if u > T[x] then U >= F(x): only u = T[x] leaves it open, and
then `settle` draws more bits of U and encloses F more closely until it is decided. Nothing is ever rounded,
so the law of the sample is exactly the law asked for, tails included. The proof is in docs/decisions/exact-noise.md.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from understudy.privacy.fixed_point import exp_neg
from understudy.privacy.noise.randomness import Stream

_GUIDE_BITS = 14  # a guide of 64 KiB stays in the cache; 2^16 bins measured no faster
_GUIDE_FROM = 1 << 14  # fewer draws than this do not pay for building the guide
_BLOCK = 1 << 15  # draws handled at a time, so that all intermediate arrays stay in the cache
_OPEN = np.iinfo(np.int32).min
_MAX_PLACES = 1 << 12


@dataclass(frozen=True)
class Enclosure:
    """lower[i] <= 2^places F(first + i) <= lower[i] + error, for a distribution function F on the integers."""

    first: int
    lower: list[int]
    error: int
    places: int


class Law(Protocol):
    """A distribution on the integers whose distribution function can be enclosed as closely as one likes."""

    def enclose(self, bits: int) -> Enclosure:
        """F over a range of values, aiming at an error and a mass outside below 2^-bits.

        Only `Enclosure.error` is relied on: if the aim is missed, more bits are asked for.
        """
        ...


def _symmetric(tails: list[int], error: int, places: int) -> Enclosure:
    """F from lower bounds of P(X >= j), j = 1..N, of a symmetric law: F(-j) = P(X >= j), F(j - 1) = 1 - P(X >= j)."""
    top = (1 << places) - error
    return Enclosure(-len(tails), tails[::-1] + [top - tail for tail in tails], error, places)


@dataclass(frozen=True)
class Gaussian:
    """P(x) proportional to exp(-x^2 / (2 sigma^2)) on the integers."""

    sigma: Fraction

    def enclose(self, bits: int) -> Enclosure:
        """See `Law.enclose`. Weights w_0 = 1, w_(i+1) = w_i r_i, r_i = exp(-(2 i + 1) / (2 sigma^2)), by recurrence."""
        square = self.sigma * self.sigma
        last = isqrt(int(Fraction(7, 5) * (bits + 8) * square)) + 2  # exp(-N^2 / (2 sigma^2)) < 2^-(bits + 8)
        places = bits + 3 * (last + 2).bit_length() + 16
        r, r_upper = exp_neg(1 / (2 * square), places)
        q, q_upper = exp_neg(1 / square, places)
        # All are rounded down. Each r_i errs by at most c more than the one before, w_i by r_i's error and one unit.
        c = max(r_upper - r, q_upper - q) + 1
        w = one = 1 << places
        weights = []
        for _ in range(last):
            w, r = w * r >> places, r * q >> places
            weights.append(w)
        r_top = r + c * (last + 1)
        beyond = (w + c * (last + 2) ** 2) * r_top // (one - r_top) + 1  # a geometric series bounds the rest
        slack = c * (last + 2) ** 3 + beyond
        sums = list(accumulate(reversed(weights)))[::-1]
        inverse = (one << places) // (one + 2 * sums[0] + 2 * slack)
        return _symmetric([s * inverse >> places for s in sums], 2 * slack + 4, places)


@dataclass(frozen=True)
class Laplace:
    """P(x) proportional to exp(-|x| / scale) on the integers."""

    scale: Fraction

    def enclose(self, bits: int) -> Enclosure:
        """See `Law.enclose`. P(X >= j) = q^j / (1 + q), q = exp(-1 / scale)."""
        powers, error, places = _powers(1 / self.scale, bits)
        inverse = (1 << 2 * places) // ((1 << places) + powers[0] + error)
        return _symmetric([p * inverse >> places for p in powers], 2 * error + 4, places)


@dataclass(frozen=True)
class Geometric:
    """P(v) proportional to exp(-rate v) on the integers v >= 0."""

    rate: Fraction

    def enclose(self, bits: int) -> Enclosure:
        """See `Law.enclose`. F(v) = 1 - q^(v + 1), q = exp(-rate); F(-1) = 0 opens the list."""
        powers, error, places = _powers(self.rate, bits)
        top = (1 << places) - error
        return Enclosure(-1, [0] + [top - p for p in powers], error, places)


def _powers(rate: Fraction, bits: int) -> tuple[list[int], int, int]:
    """Lower bounds of exp(-rate j), j = 1..N, until they fall below 2^-(bits + 8); their common error; the places."""
    last = int(Fraction(7, 10) * (bits + 8) / rate) + 2
    places = bits + last.bit_length() + 16
    q, upper = exp_neg(rate, places)
    powers = list(accumulate(range(last - 1), lambda p, _: p * q >> places, initial=q))
    return powers, last * (upper - q + 1), places


class Table:
    """The leading `width` bits of a law's distribution function, and exact draws by inverting it.

    Args:
        law: the distribution.
        width: bits drawn before anything else. 64 in use; tests take a few bits, so that `settle` is called often.
    """

    def __init__(self, law: Law, width: int = 64) -> None:
        self.law, self.width = law, width
        self.first, entries = _leading_bits(law, width)
        self.entries: NDArray[np.uint64] = np.array(entries, dtype=np.uint64)

    @cached_property
    def _guide(self) -> NDArray[np.int32]:
        """The value for each pattern of leading bits that decides it alone, else `_OPEN`."""
        shift = np.uint64(64 - _GUIDE_BITS)
        low = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << shift
        high = low | np.uint64((1 << int(shift)) - 1)
        at = np.searchsorted(self.entries, low)
        same = (at == np.searchsorted(self.entries, high)) & (self.entries[at] != high)
        return np.where(same, at + self.first, _OPEN).astype(np.int32)

    def draw(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """`size` independent draws from exactly the law."""
        if self.width != 64 or size < _GUIDE_FROM:
            return self._search(stream.words(size) >> np.uint64(64 - self.width), stream)
        out = np.empty(size, dtype=np.int64)
        for start in range(0, size, _BLOCK):
            block = out[start : start + _BLOCK]
            words = stream.words(len(block))
            block[:] = self._guide[words >> np.uint64(64 - _GUIDE_BITS)]
            left = np.flatnonzero(block == _OPEN)
            block[left] = self._search(words[left], stream)
        return out

    def _search(self, words: NDArray[np.uint64], stream: Stream) -> NDArray[np.int64]:
        at = np.searchsorted(self.entries, words)
        out = at + np.int64(self.first)
        for i in np.flatnonzero(self.entries[at] == words):
            out[i] = settle(self.law, int(words[i]), self.width, stream)
        return out


def _leading_bits(law: Law, width: int) -> tuple[int, list[int]]:
    """The first value and the certified entries T[x], from the last that is 0 to the first that is all ones."""
    bits = width + 24  # an entry that cannot be certified at once has probability about 2^-24
    while True:
        enclosed = law.enclose(bits)
        shift = enclosed.places - width
        entries = [lower >> shift for lower in enclosed.lower]
        top = (1 << width) - 1
        if (
            entries[0] == 0
            and entries[-1] == top
            and all(
                entry == top or lower + enclosed.error <= entry + 1 << shift
                for entry, lower in zip(entries, enclosed.lower, strict=True)
            )
        ):
            break
        bits *= 2
        if bits > _MAX_PLACES:
            raise ArithmeticError("a distribution function agrees with a dyadic number to 4096 bits")
    start, stop = bisect_left(entries, 1) - 1, bisect_left(entries, top)
    return enclosed.first + start, [*entries[start:stop], top]


def settle(law: Law, first: int, width: int, stream: Stream) -> int:
    """The draw for a uniform number that starts with the `width` bits `first`, however close to an edge it lies.

    **Guarantees.** Exact: every further bit of the uniform number is drawn from `stream`, and a value is returned only
    when the enclosures prove it. Ends with probability one.
    """
    while True:
        first, width = first << 64 | stream.bits(64), width + 64
        enclosed = law.enclose(width + 24)
        shift = enclosed.places - width
        at = bisect_left(enclosed.lower, first + 1 << shift)
        if 0 < at < len(enclosed.lower) and enclosed.lower[at - 1] + enclosed.error <= first << shift:
            return enclosed.first + at


@lru_cache(maxsize=32)
def table(law: Law) -> Table:
    """The table of a law; the 32 used last are kept."""
    return Table(law)
