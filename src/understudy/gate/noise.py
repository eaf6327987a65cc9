"""Exact sampling by inversion: distribution functions in wide fixed point, and tables of their leading 64 bits.

A `Law` encloses its distribution function F at any requested precision. A `Table` keeps, for each value x, the integer
T[x] with T[x] <= 2^64 F(x) <= T[x] + 1. A uniform number U is drawn bit by bit, 64 bits u first; the sample is the x
with F(x - 1) <= U < F(x). If u < T[x] then U < F(x), and if u > T[x] then U >= F(x): only u = T[x] is undecided, and
then `resolve_draw` draws more bits of U and encloses F more closely until the sample is decided. Nothing is rounded, so
the sample has exactly the requested distribution, tails included. The proof is in docs/proofs/exact-noise.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from math import isqrt
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.accounting.exact import exp_neg
from understudy.errors import SettingError
from understudy.gate.randomness import Stream, stream

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
    """A distribution on the integers whose distribution function can be enclosed at any precision."""

    def enclose(self, bits: int) -> Enclosure:
        """Enclose F over a range of values, with an error and a mass outside of about 2^-bits.

        Callers rely on `Enclosure.error` only, and request more bits if it is too large.
        """
        ...


def _symmetric(tails: list[int], error: int, places: int) -> Enclosure:
    """Compute F of a symmetric law from bounds of P(X >= j), j = 1..N: F(-j) = P(X >= j), F(j - 1) = 1 - P(X >= j)."""
    top = (1 << places) - error
    return Enclosure(-len(tails), tails[::-1] + [top - tail for tail in tails], error, places)


@dataclass(frozen=True)
class GaussianLaw:
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
class LaplaceLaw:
    """P(x) proportional to exp(-|x| / scale) on the integers."""

    scale: Fraction

    def enclose(self, bits: int) -> Enclosure:
        """See `Law.enclose`. P(X >= j) = q^j / (1 + q), q = exp(-1 / scale)."""
        powers, error, places = _powers(1 / self.scale, bits)
        inverse = (1 << 2 * places) // ((1 << places) + powers[0] + error)
        return _symmetric([p * inverse >> places for p in powers], 2 * error + 4, places)


@dataclass(frozen=True)
class GeometricLaw:
    """P(v) proportional to exp(-rate v) on the integers v >= 0."""

    rate: Fraction

    def enclose(self, bits: int) -> Enclosure:
        """See `Law.enclose`. F(v) = 1 - q^(v + 1), q = exp(-rate); F(-1) = 0 opens the list."""
        powers, error, places = _powers(self.rate, bits)
        top = (1 << places) - error
        return Enclosure(-1, [0] + [top - p for p in powers], error, places)


def _powers(rate: Fraction, bits: int) -> tuple[list[int], int, int]:
    """Return lower bounds of exp(-rate j), j = 1..N, down to 2^-(bits + 8), their common error and the places."""
    last = int(Fraction(7, 10) * (bits + 8) / rate) + 2
    places = bits + last.bit_length() + 16
    q, upper = exp_neg(rate, places)
    powers = list(accumulate(range(last - 1), lambda p, _: p * q >> places, initial=q))
    return powers, last * (upper - q + 1), places


class Table:
    """The leading `width` bits of a law's distribution function, and exact draws by inverting it.

    Args:
        law: the distribution.
        width: bits drawn before anything else. 64 in use; tests take a few, so that `resolve_draw` is called often.
    """

    def __init__(self, law: Law, width: int = 64) -> None:
        self.law, self.width = law, width
        self.first, entries = _leading_bits(law, width)
        self.entries: NDArray[np.uint64] = np.array(entries, dtype=np.uint64)

    @cached_property
    def _guide(self) -> NDArray[np.int32]:
        """Return the value for each pattern of leading bits that determines it, else `_OPEN`."""
        shift = np.uint64(64 - _GUIDE_BITS)
        low = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << shift
        high = low | np.uint64((1 << int(shift)) - 1)
        at = np.searchsorted(self.entries, low)
        same = (at == np.searchsorted(self.entries, high)) & (self.entries[at] != high)
        return np.where(same, at + self.first, _OPEN).astype(np.int32)

    def draw(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return `size` independent draws from exactly the law."""
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
            out[i] = resolve_draw(self.law, int(words[i]), self.width, stream)
        return out


def _leading_bits(law: Law, width: int) -> tuple[int, list[int]]:
    """Return the first value and the certified entries T[x], from the last that is 0 to the first that is all ones."""
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


def resolve_draw(law: Law, first: int, width: int, stream: Stream) -> int:
    """Decide the draw of a uniform number whose first `width` bits are `first`, by drawing more bits.

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
    """Return the table of a law; the 32 most recently used are cached."""
    return Table(law)


# ----------------------------------------------------------------------------------------------------
# Exact sampling by rejection, many draws at a time, for laws whose table would be too large.
#
# The discrete Gaussian sampler is Canonne, Kamath and Steinke's (2020, algorithm 3): propose from a discrete Laplace
# law, accept with probability exp(-gamma). The discrete Laplace magnitude is U + M V with V geometric and U in [0, M)
# of weight exp(-U / scale), which are independent for any M.
#
# A trial accepts if U < exp(-gamma), for a uniform U of which 64 bits are drawn. Floating point settles only what it
# can prove: the computed probability errs by less than 2^-45 (docs/proofs/exact-noise.md), and a U within `margin`
# = 2^-40 of it goes to `below_exp_neg`, which decides with the exact rational gamma, integers and further bits.


MARGIN = 2.0**-40
_BATCH = 1 << 15  # proposals handled at a time, so that all intermediate arrays stay in the cache
_LARGEST_PROPOSAL = 1 << 62


def run_trials(
    gamma: NDArray[np.float64], exact: Callable[[int], Fraction], stream: Stream, margin: float = MARGIN
) -> NDArray[np.bool_]:
    """Run one trial for each gamma: True with probability exactly exp(-exact(i)).

    Args:
        gamma: the exponents in floating point, as close to the exact ones as stated above.
        exact: the i-th exponent as a rational number.
        stream: where the bits come from.
        margin: distance within which floating point does not decide. Tests widen it to force the exact path.
    """
    words = stream.words(len(gamma))
    uniform = (words >> np.uint64(11)) * 2.0**-53  # below the true uniform number by less than 2^-53
    probability = np.exp(-gamma)
    accepted = uniform < probability - margin
    for i in np.flatnonzero(accepted != (uniform < probability + margin)):
        accepted[i] = below_exp_neg(exact(int(i)), int(words[i]), 64, stream)
    return accepted


def _below(bound: int, size: int, stream: Stream) -> NDArray[np.int64]:
    """Draw `size` uniform integers in [0, bound)."""
    words = stream.words(size)
    limit = (1 << 64) // bound * bound  # a multiple of bound: words at or above it would favour small remainders
    while limit < 1 << 64 and (bad := np.flatnonzero(words >= np.uint64(limit))).size:
        words = words.copy()
        words[bad] = stream.words(len(bad))
    return (words % np.uint64(bound)).astype(np.int64)


def _proposals(scale: Fraction, size: int, stream: Stream, margin: float) -> NDArray[np.int64]:
    """Return about 0.6 x `size` draws of the discrete Laplace law."""
    unit = -(-scale.numerator // scale.denominator)
    uniform = _below(unit, size, stream)
    low = uniform[run_trials(uniform / float(scale), lambda i: int(uniform[i]) / scale, stream, margin)]
    high = table(GeometricLaw(unit / scale)).draw(len(low), stream)
    if high.size and int(high.max()) >= _LARGEST_PROPOSAL // unit:
        raise SettingError("sigma or scale: the noise does not fit 64-bit integers; choose a smaller one")
    magnitude: NDArray[np.int64] = low + unit * high
    negative = (stream.words(len(low)) & np.uint64(1)).astype(np.bool_)
    kept: NDArray[np.bool_] = ~(negative & (magnitude == 0))  # or zero would count twice
    signed: NDArray[np.int64] = np.where(negative, -magnitude, magnitude)
    return signed[kept]


def _collect(size: int, draw: Callable[[int], NDArray[np.int64]], rate: float) -> NDArray[np.int64]:
    """Return `size` independent draws; `draw` makes some of them from a given number of proposals."""
    parts: list[NDArray[np.int64]] = []
    missing = size
    while missing > 0:
        part = draw(min(_BATCH, int(missing / rate) + 16))[:missing]
        parts.append(part)
        missing -= len(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def laplace_by_rejection(scale: Fraction, size: int, stream: Stream, margin: float = MARGIN) -> NDArray[np.int64]:
    """Draw `size` integers, each x with probability exactly proportional to exp(-|x| / scale); scale <= 2^50."""
    return _collect(size, lambda n: _proposals(scale, n, stream, margin), 0.6)


def gaussian_by_rejection(sigma: Fraction, size: int, stream: Stream, margin: float = MARGIN) -> NDArray[np.int64]:
    """Draw `size` integers, each x with probability exactly proportional to exp(-x^2 / (2 sigma^2)); sigma <= 2^50."""
    scale = sigma.numerator // sigma.denominator + 1
    centre, twice = sigma * sigma / scale, 2 * sigma * sigma
    centre_float, twice_float = float(centre), float(twice)

    def accept(proposals: int) -> NDArray[np.int64]:
        y = _proposals(Fraction(scale), proposals, stream, margin)
        gamma = (np.abs(y) - centre_float) ** 2 / twice_float
        return y[run_trials(gamma, lambda i: (abs(int(y[i])) - centre) ** 2 / twice, stream, margin)]

    return _collect(size, accept, 0.45)


def below_exp_neg(x: Fraction, first: int, width: int, stream: Stream) -> bool:
    """Return whether a uniform U < exp(-x), where `first` holds U's first `width` bits; more bits are drawn as needed.

    **Guarantees.** Given uniform first bits, True with probability exactly exp(-x).
    """
    if x == 0:
        return True
    while True:
        lower, upper = exp_neg(x, width + 16)
        if (first + 1) << 16 <= lower:
            return True
        if first << 16 >= upper:
            return False
        first, width = first << 64 | stream.bits(64), width + 64


# ----------------------------------------------------------------------------------------------------
# Integer noise: the discrete Gaussian and the discrete Laplace.
#
# Small parameters invert a table of the distribution function, large ones use rejection. Both are exact: no draw is
# rounded, truncated or approximated. Which one is used depends only on the parameter and the number of draws.


Parameter: TypeAlias = float | int | Fraction
Shape: TypeAlias = int | tuple[int, ...]

_LARGEST = 1 << 50
_SMALL_TABLE = 1 << 8  # entries that are cheap to compute for a single draw
_LARGE_TABLE = 1 << 15  # entries beyond which rejection is about as fast, and needs no building


def discrete_gaussian(sigma: Parameter, size: Shape) -> NDArray[np.int64]:
    """Draw from the discrete Gaussian: x has probability proportional to exp(-x^2 / (2 sigma^2)).

    **Guarantees.** The distribution is exact for the rational number `sigma` (a float stands for its binary value).
    Random bits come from `understudy.gate.randomness` and cannot be seeded. Added to an integer query of L2
    sensitivity D, the noise is D^2 / (2 sigma^2)-zCDP.

    Args:
        sigma: the law's parameter, positive and at most 2^50; nearly its standard deviation unless below 1.
        size: how many draws, or the shape of the array.

    Raises:
        SettingError: if sigma is not a positive, finite number of at most 2^50, or size is negative.
    """
    exact, count = _parameter("sigma", sigma), _count(size)
    if _tabulate(18 * exact, count):
        draws = table(GaussianLaw(exact)).draw(count, stream())
    else:
        draws = gaussian_by_rejection(exact, count, stream())
    return draws.reshape(size)


def discrete_laplace(scale: Parameter, size: Shape) -> NDArray[np.int64]:
    """Draw from the discrete Laplace distribution: x has probability proportional to exp(-|x| / scale).

    **Guarantees.** Exact and unseeded like `discrete_gaussian`. Added to an integer query of L1 sensitivity D, the
    noise is pure (D / scale)-DP.

    Args:
        scale: the law's parameter, positive and at most 2^50.
        size: how many draws, or the shape of the array.

    Raises:
        SettingError: if scale is not a positive, finite number of at most 2^50, or size is negative.
    """
    exact, count = _parameter("scale", scale), _count(size)
    if _tabulate(88 * exact, count):
        draws = table(LaplaceLaw(exact)).draw(count, stream())
    else:
        draws = laplace_by_rejection(exact, count, stream())
    return draws.reshape(size)


class Noise(Protocol):
    """A sampler of integer noise from the two distributions that privacy accounting supports."""

    def gaussian(self, sigma: Parameter, size: Shape) -> NDArray[np.int64]:
        """Draw from the discrete Gaussian of parameter `sigma`."""
        ...

    def laplace(self, scale: Parameter, size: Shape) -> NDArray[np.int64]:
        """Draw from the discrete Laplace distribution of parameter `scale`."""
        ...


class _Exact:
    """Understudy's own samplers."""

    def gaussian(self, sigma: Parameter, size: Shape) -> NDArray[np.int64]:
        return discrete_gaussian(sigma, size)

    def laplace(self, scale: Parameter, size: Shape) -> NDArray[np.int64]:
        return discrete_laplace(scale, size)


class _OpenDP:
    """OpenDP's samplers of the same distributions: vetted code, but slower. They cannot be seeded."""

    def gaussian(self, sigma: Parameter, size: Shape) -> NDArray[np.int64]:
        return self._draw("make_gaussian", "l2_distance", _as_float("sigma", sigma), size)

    def laplace(self, scale: Parameter, size: Shape) -> NDArray[np.int64]:
        return self._draw("make_laplace", "l1_distance", _as_float("scale", scale), size)

    def _draw(self, maker: str, metric: str, parameter: float, size: Shape) -> NDArray[np.int64]:
        count = _count(size)
        try:
            import opendp.prelude as dp
        except ImportError:
            raise SettingError('noise="opendp" needs OpenDP: pip install "understudy[opendp]"') from None
        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), getattr(dp, metric)(T="i64")
        release = getattr(dp.m, maker)(*space, scale=parameter)
        return np.array(release([0] * count), dtype=np.int64).reshape(size)


NOISES: dict[str, Noise] = {"exact": _Exact(), "opendp": _OpenDP()}
"""The choices of the setting ``noise``. Both are integer and exact; there is no continuous one."""


def _tabulate(entries: Fraction, count: int) -> bool:
    """Return whether a table of about `entries` entries costs less than `count` draws by rejection."""
    return entries <= _SMALL_TABLE or (entries <= _LARGE_TABLE and 8 * entries <= count)


def _parameter(name: str, value: Parameter) -> Fraction:
    if not isinstance(value, int | Fraction) and not math.isfinite(value):
        raise SettingError(f"{name} must be a finite number, not {value}")
    exact = Fraction(value if isinstance(value, int | Fraction) else float(value))
    if not 0 < exact <= _LARGEST:
        raise SettingError(f"{name} must be positive and at most 2^50, not {value}: larger noise would not fit 64 bits")
    return exact


def _as_float(name: str, value: Parameter) -> float:
    """Return the parameter as a float, never smaller than given, for a library that takes floats."""
    exact = _parameter(name, value)
    number = float(exact)
    return number if Fraction(number) >= exact else math.nextafter(number, math.inf)


def _count(size: Shape) -> int:
    shape = size if isinstance(size, tuple) else (size,)
    if any(length < 0 for length in shape):
        raise SettingError(f"size must not be negative, not {size}")
    return math.prod(shape)


def get_noise(noise: str | Noise) -> Noise:
    """Return a sampler by its name, or the given one.

    Raises:
        SettingError: if the name is unknown; the message lists the names.
    """
    if not isinstance(noise, str):
        return noise
    if noise not in NOISES:
        raise SettingError(f"noise: {noise!r} is unknown; the choices are {', '.join(NOISES)}")
    return NOISES[noise]
