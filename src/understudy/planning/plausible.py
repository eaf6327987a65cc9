"""Made-up tables as skewed and as dependent as real ones, and the fit of one pair of columns to its noisy tables.

A prediction needs a table: how much error non-negativity takes away, and which codes are merged, depends on how many
cells are empty. `SKEW` and `TIE` were chosen by hand so that predictions for `mst` come out right on the six tables of
the AIM paper together; benchmarks/plan.md has those and tables that were not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SKEW = 2.0
"""The standard deviation of the log of a code's share."""

TIE = 1.6
"""The standard deviation of the log of a cell's share beside what its two codes explain."""

_STEPS = 40


@dataclass(frozen=True, eq=False)
class Pair:
    """One pair of columns: its true table, and what was measured of it.

    Attributes:
        first: the place of the first column.
        second: the place of the second column.
        counts: the true table.
        rows: noisy counts of the first column's codes.
        rows_sigma: their standard deviations.
        columns: noisy counts of the second column's codes.
        columns_sigma: their standard deviations.
    """

    first: int
    second: int
    counts: Array
    rows: Array
    rows_sigma: Array
    columns: Array
    columns_sigma: Array

    def merged(self, threshold: float) -> Pair:
        """The same with the codes merged that a mechanism would find too rare."""
        first, second = (
            _groups(self.rows, self.rows_sigma, threshold),
            _groups(self.columns, self.columns_sigma, threshold),
        )
        counts = np.zeros((first.max() + 1, second.max() + 1))
        np.add.at(counts, (first[:, None], second[None]), self.counts)
        return replace(
            self,
            counts=counts,
            rows=_summed(first, self.rows),
            rows_sigma=np.sqrt(_summed(first, self.rows_sigma**2)),
            columns=_summed(second, self.columns),
            columns_sigma=np.sqrt(_summed(second, self.columns_sigma**2)),
        )


def plausible_table(rng: np.random.Generator, first: int, second: int, rows: int) -> Array:
    """Counts of a made-up pair of columns with so many codes."""
    logs = SKEW * rng.standard_normal((first, 1)) + SKEW * rng.standard_normal((1, second))
    shares = np.exp(logs + TIE * rng.standard_normal((first, second)))
    return np.asarray(rng.poisson(rows * shares / shares.sum()), dtype=np.float64)


def plausible_column(rng: np.random.Generator, size: int, rows: int) -> Array:
    """Counts of a made-up column."""
    shares = np.exp(math.hypot(SKEW, TIE / math.sqrt(size)) * rng.standard_normal(size))
    return np.asarray(rng.poisson(rows * shares / shares.sum()), dtype=np.float64)


def fitted(pair: Pair, noisy: Array, sigma: float, total: float) -> Array:
    """The non-negative table nearest to a noisy one and to its noisy margins, weighted by precision.

    All are first moved to the same total, which many tables together tell well: in a least-squares fit the total and
    the differences between cells do not touch each other. Then FISTA.
    """
    precision, rows, columns = sigma**-2, pair.rows_sigma**-2, pair.columns_sigma**-2
    target = noisy + (total - noisy.sum()) / noisy.size
    by_row, by_column = _moved(pair.rows, rows, total), _moved(pair.columns, columns, total)
    step = 1 / (precision + noisy.shape[1] * rows.max() + noisy.shape[0] * columns.max())
    now: Array = np.maximum(target, 0)
    ahead = now
    pace = 1.0
    for _ in range(_STEPS):
        slope = precision * (ahead - target)
        slope += (rows * (ahead.sum(axis=1) - by_row))[:, None] + columns * (ahead.sum(axis=0) - by_column)
        after: Array = np.maximum(ahead - step * slope, 0)
        faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
        ahead = after + (pace - 1) / faster * (after - now)
        now, pace = after, faster
    return now


def _moved(counts: Array, precision: Array, total: float) -> Array:
    moved: Array = counts + (total - counts.sum()) / precision / (1 / precision).sum()
    return moved


def _summed(groups: NDArray[np.int64], values: Array) -> Array:
    return np.asarray(np.bincount(groups, values), dtype=np.float64)


def _groups(noisy: Array, sigma: Array, threshold: float) -> NDArray[np.int64]:
    rare = noisy < threshold * sigma
    kept = np.flatnonzero(~rare)
    if len(noisy) - len(kept) < 2:
        return np.arange(len(noisy))
    groups = np.full(len(noisy), len(kept))
    groups[kept] = np.arange(len(kept))
    return groups
