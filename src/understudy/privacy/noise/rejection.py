"""Exact sampling by rejection, many draws at a time, where a table would be too large.

The discrete Gaussian sampler is Canonne, Kamath and Steinke's (2020, algorithm 3): propose from a discrete Laplace law,
accept with probability exp(-gamma). The discrete Laplace magnitude is U + M V with V geometric and U in [0, M) of
weight exp(-U / scale), which are independent for any M.

A trial accepts if U < exp(-gamma), for a uniform U of which 64 bits are drawn. Floating point settles only what it can
prove: the computed probability errs by less than 2^-45 (docs/decisions/exact-noise.md), and a U within `margin` = 2^-40
of it goes to `below_exp_neg`, which decides with the exact rational gamma, integers and further bits.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.privacy.fixed_point import below_exp_neg
from understudy.privacy.noise.randomness import Stream
from understudy.privacy.noise.tables import Geometric, table

MARGIN = 2.0**-40
_BATCH = 1 << 15  # proposals handled at a time, so that all intermediate arrays stay in the cache
_LARGEST = 1 << 62


def trials(
    gamma: NDArray[np.float64], exact: Callable[[int], Fraction], stream: Stream, margin: float = MARGIN
) -> NDArray[np.bool_]:
    """One trial for each gamma: True with probability exactly exp(-exact(i)).

    Args:
        gamma: the exponents in floating point, as near to the exact ones as the module's docstring says.
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
    """`size` uniform integers in [0, bound)."""
    words = stream.words(size)
    limit = (1 << 64) // bound * bound  # a multiple of bound: words at or above it would favour small remainders
    while limit < 1 << 64 and (bad := np.flatnonzero(words >= np.uint64(limit))).size:
        words = words.copy()
        words[bad] = stream.words(len(bad))
    return (words % np.uint64(bound)).astype(np.int64)


def _proposals(scale: Fraction, size: int, stream: Stream, margin: float) -> NDArray[np.int64]:
    """About 0.6 x `size` draws of the discrete Laplace law."""
    unit = -(-scale.numerator // scale.denominator)
    uniform = _below(unit, size, stream)
    low = uniform[trials(uniform / float(scale), lambda i: int(uniform[i]) / scale, stream, margin)]
    high = table(Geometric(unit / scale)).draw(len(low), stream)
    if high.size and int(high.max()) >= _LARGEST // unit:
        raise SettingError("sigma or scale: a draw of the noise does not fit a 64-bit integer; choose a smaller one")
    magnitude: NDArray[np.int64] = low + unit * high
    negative = (stream.words(len(low)) & np.uint64(1)).astype(np.bool_)
    kept: NDArray[np.bool_] = ~(negative & (magnitude == 0))  # or zero would count twice
    signed: NDArray[np.int64] = np.where(negative, -magnitude, magnitude)
    return signed[kept]


def _collect(size: int, draw: Callable[[int], NDArray[np.int64]], rate: float) -> NDArray[np.int64]:
    """The first `size` of the independent draws that `draw` makes from a number of proposals it is given."""
    parts: list[NDArray[np.int64]] = []
    missing = size
    while missing > 0:
        part = draw(min(_BATCH, int(missing / rate) + 16))[:missing]
        parts.append(part)
        missing -= len(part)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def laplace_by_rejection(scale: Fraction, size: int, stream: Stream, margin: float = MARGIN) -> NDArray[np.int64]:
    """`size` draws, each x with probability exactly proportional to exp(-|x| / scale), for scale <= 2^50."""
    return _collect(size, lambda n: _proposals(scale, n, stream, margin), 0.6)


def gaussian_by_rejection(sigma: Fraction, size: int, stream: Stream, margin: float = MARGIN) -> NDArray[np.int64]:
    """`size` draws, each x with probability exactly proportional to exp(-x^2 / (2 sigma^2)), for sigma <= 2^50."""
    scale = sigma.numerator // sigma.denominator + 1
    centre, twice = sigma * sigma / scale, 2 * sigma * sigma
    centre_float, twice_float = float(centre), float(twice)

    def accepted(proposals: int) -> NDArray[np.int64]:
        y = _proposals(Fraction(scale), proposals, stream, margin)
        gamma = (np.abs(y) - centre_float) ** 2 / twice_float
        return y[trials(gamma, lambda i: (abs(int(y[i])) - centre) ** 2 / twice, stream, margin)]

    return _collect(size, accepted, 0.45)
