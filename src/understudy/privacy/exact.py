"""Exact arithmetic around the gate: counts and scores in integers, roots and floats that round to the safe side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.tabulate import Counts, SparseCounts

BITS = 16
"""Given marginals are rounded to multiples of 2^-16 of a row, so that L1 distances are exact int64 sums."""

_LARGEST = 2.0**44
"""Given cells beyond this many rows would overflow the scaled int64 sums."""


def float_below(value: Fraction) -> float:
    """The largest float that is not above `value`."""
    guess = float(value)
    return guess if Fraction(guess) <= value else math.nextafter(guess, -math.inf)


def float_above(value: Fraction) -> float:
    """The smallest float that is not below `value`."""
    guess = float(value)
    return guess if Fraction(guess) >= value else math.nextafter(guess, math.inf)


def sqrt_above(square: Fraction) -> float:
    """A float just not below the square root: a sigma rounded so costs no more than its share."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def sqrt_below(square: Fraction) -> float:
    """A float just not above the square root: an epsilon rounded so costs no more than its share."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 > square:
        root = math.nextafter(root, 0.0)
    return root


def dyadic(marginal: ArrayLike, cells: int, clique: Clique) -> NDArray[np.int64]:
    """A public marginal in whole units of 2^-16 rows.

    Raises:
        SettingError: when it has the wrong size or holds something that is not a reasonable number of rows.
    """
    flat = np.asarray(marginal, dtype=np.float64).reshape(-1)
    if len(flat) != cells:
        raise SettingError(f"the given marginal of {clique} has {len(flat)} cells, its table {cells}")
    if not (np.abs(flat) < _LARGEST).all():
        raise SettingError(f"the given marginal of {clique} holds a value that is not finite or is too large")
    return np.rint(np.ldexp(flat, BITS)).astype(np.int64)


def distance(counts: NDArray[np.int64], given: NDArray[np.int64]) -> Fraction:
    """The L1 distance between exact counts and a marginal in units of 2^-16, exactly, in rows."""
    return Fraction(int(np.abs((counts << BITS) - given).sum()), 1 << BITS)


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
