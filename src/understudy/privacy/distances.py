"""Exact L1 distances between counts and public marginals, for thousands of tables at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.domain import Clique
from understudy.errors import SettingError

BITS = 16
"""Given marginals are rounded to multiples of 2^-16 of a row, so that L1 distances are exact int64 sums."""

T = TypeVar("T")
_BATCH = 1 << 20

_LARGEST = 2.0**44
"""Given tables of more rows than this could overflow the scaled int64 sums, and a wrapped sum has no sensitivity."""


def dyadic(marginals: Sequence[tuple[Clique, int, ArrayLike]]) -> list[NDArray[np.int64]]:
    """Public marginals in whole units of 2^-16 rows, given with their clique and how many cells it has.

    Raises:
        SettingError: when one has the wrong size or holds something that is not a reasonable number of rows.
    """
    flat = []
    for clique, cells, marginal in marginals:
        try:
            flat.append(np.asarray(marginal, dtype=np.float64).reshape(-1))
        except (TypeError, ValueError, OverflowError):
            raise SettingError(f"the given marginal of {clique} holds something that is no number of rows") from None
        if len(flat[-1]) != cells:
            raise SettingError(f"the given marginal of {clique} has {len(flat[-1])} cells, its table {cells}")
    whole, starts = np.concatenate(flat), _starts(flat)
    for (clique, _, _), reasonable in zip(marginals, np.add.reduceat(np.abs(whole), starts) < _LARGEST, strict=True):
        if not reasonable:
            raise SettingError(f"the given marginal of {clique} holds a value that is not finite or is too large")
    whole *= 2.0**BITS  # a power of two: the product is exact
    return np.split(np.rint(whole, out=whole).astype(np.int64), starts[1:])


def distances(counts: Sequence[NDArray[np.integer[Any]]], given: Sequence[NDArray[np.int64]]) -> list[int]:
    """L1 distances between exact counts and marginals in units of 2^-16 rows: exactly, in the same units."""
    apart = np.concatenate(counts, dtype=np.int64)
    np.left_shift(apart, BITS, out=apart)
    np.subtract(apart, np.concatenate(given), out=apart)
    found: list[int] = np.add.reduceat(np.abs(apart, out=apart), _starts(counts)).tolist()
    return found


def batches(items: Iterable[T], cells: Callable[[T], int]) -> Iterator[list[T]]:
    """Items whose tables have about a million cells together: thousands of small ones are handled as one."""
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
    """Where each of these tables, none of them empty, begins when they lie one after the other."""
    return np.cumsum([0, *map(len, tables[:-1])])
