"""Exact arithmetic around the gate: counts and scores in integers, roots and floats that round to the safe side."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from numbers import Rational

import numpy as np
from numpy.typing import NDArray

from understudy.tabulate import Counts, SparseCounts

_DIGITS = 6


def float_below(value: Fraction) -> float:
    """The largest finite float that is not above `value`."""
    try:
        guess = float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -math.inf
    return guess if Fraction(guess) <= value else math.nextafter(guess, -math.inf)


def float_above(value: Fraction) -> float:
    """The smallest float that is not below `value`; infinity where none is large enough."""
    return 0.0 - float_below(-value) if value <= sys.float_info.max else math.inf


def exact_of(number: float | Fraction) -> Fraction:
    """The number as a fraction: whole numbers and fractions as they are, of whatever library, others by their float."""
    if isinstance(number, Rational):  # numpy's integers would stay 64-bit ones inside a fraction, and overflow
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(float(number))


def sqrt_above(square: Fraction) -> float:
    """A float just not below the square root: a sigma rounded so costs no more than its share."""
    root, unit = _root(square)
    return float_above(Fraction(root) * unit if (root * unit) ** 2 == square else (root + 1) * unit)


def sqrt_below(square: Fraction) -> float:
    """A float just not above the square root: an epsilon rounded so costs no more than its share."""
    root, unit = _root(square)
    return float_below(root * unit)


def _root(square: Fraction) -> tuple[int, Fraction]:
    """The square root as a whole number of more than 64 bits, rounded down, and the power of two it is counted in."""
    shift = 66 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square * Fraction(4) ** shift
    return math.isqrt(scaled.numerator // scaled.denominator), Fraction(2) ** -shift


def upwards(value: float) -> str:
    """A bound in six digits, never smaller than it is.

    >>> upwards(1.0), upwards(0.12345671), upwards(1e-9)
    ('1', '0.123457', '1e-09')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(value)
    shortest = Decimal(repr(value))
    exact = shortest if len(shortest.as_tuple().digits) <= _DIGITS else exact
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() + 1 - _DIGITS), ROUND_CEILING)):.{_DIGITS}g}"


def fraction_of(text: str) -> Fraction:
    """The fraction that `str` wrote. Nothing else is read: "1e999999999" in a forged file would take for ever.

    Raises:
        ValueError: when the text is not a whole number or a quotient of two.
    """
    if not isinstance(text, str) or len(text) > 1 << 16 or not re.fullmatch(r"-?[0-9]+(/[1-9][0-9]*)?", text):
        raise ValueError("not a fraction")
    numerator, _, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator or 1))


def indif(counts: NDArray[np.int64], shape: tuple[int, ...]) -> int:
    """InDif of a pair's table, sum |M_ab - M_a M_b / n|, rounded to the nearest integer; 0 for an empty table.

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


def merged(counts: Counts, shape: tuple[int, ...], maps: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64]:
    """The dense table of a clique after merging codes along each axis (None leaves an axis alone)."""
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
