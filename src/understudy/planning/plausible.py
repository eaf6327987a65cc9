"""Made-up tables as skewed and as dependent as real ones, and the fit of one pair of columns to its noisy tables.

A prediction needs a table: how much error non-negativity takes away, and which codes are merged, depends on how many
cells are empty. `SKEW` and `TIE` were chosen by hand so that predictions for `mst` come out right on the six tables of
the AIM paper together; benchmarks/plan.md has those and tables that were not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SKEW = 2.0
"""The standard deviation of the log of a code's share."""

TIE = 1.6
"""The standard deviation of the log of a cell's share beside what its two codes explain."""

DEPENDENCE, DEPENDENCE_SPREAD = 0.15, 1.2
"""The median of a pair's distance from independence, and the standard deviation of its log."""

LARGEST = 60_000
"""A larger table is drawn smaller: most of its codes are rare."""

_STEPS = 40
_BATCH = 20_000


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


def plausible_dependence(rng: np.random.Generator, sizes: NDArray[Any]) -> Array:
    """How far pairs of columns are from independence, as shares of the rows (L1): most a little, few much."""
    drawn = DEPENDENCE * np.exp(DEPENDENCE_SPREAD * rng.standard_normal(len(sizes)))
    return np.asarray(np.minimum(drawn, 2 * (1 - 1 / sizes.min(axis=1))))


def merged_size(noisy: Array, sigma: float, threshold: float) -> int:
    """How many codes a mechanism would keep of a column: rare ones become one."""
    return int(_groups(noisy, np.full(len(noisy), sigma), threshold).max()) + 1


def informed(rng: np.random.Generator, pair: Pair, more: Sequence[float]) -> Pair:
    """The pair with other measurements of its two columns added to its own, of this precision each."""
    rows, rows_sigma = _combined(rng, pair.rows, pair.rows_sigma, pair.counts.sum(axis=1), more[0])
    columns, columns_sigma = _combined(rng, pair.columns, pair.columns_sigma, pair.counts.sum(axis=0), more[1])
    return replace(pair, rows=rows, rows_sigma=rows_sigma, columns=columns, columns_sigma=columns_sigma)


@dataclass(frozen=True, eq=False)
class Problem:
    """A pair of columns with everything that was measured of it.

    Attributes:
        pair: the columns, their noisy counts among it.
        noisy: the noisy table.
        sigma: the standard deviation of its cells.
        total: the number of rows.
    """

    pair: Pair
    noisy: Array
    sigma: float
    total: float


def fitted(problems: Sequence[Problem]) -> list[Array]:
    """For each the non-negative table nearest to its noisy one and to its noisy margins, weighted by precision.

    All are first moved to the same total, which many tables together tell well: in a least-squares fit the total and
    the differences between cells do not touch each other. Then FISTA, on many tables at once.
    """
    order = sorted(range(len(problems)), key=lambda i: problems[i].noisy.shape)
    found: dict[int, Array] = {}
    for batch in _batches(order, problems):
        together = _descended([problems[i] for i in batch])
        for i, table in zip(batch, together, strict=True):
            rows, columns = problems[i].noisy.shape
            found[i] = table[:rows, :columns]
    return [found[i] for i in range(len(problems))]


def _batches(order: Sequence[int], problems: Sequence[Problem]) -> Iterator[list[int]]:
    """Tables of about the same shape, few enough to stay in the processor's cache."""
    batch: list[int] = []
    rows = columns = 0
    for i in order:
        shape = problems[i].noisy.shape
        most, widest = max(rows, shape[0]), max(columns, shape[1])
        if batch and (len(batch) + 1) * most * widest > max(_BATCH, 1.5 * sum(problems[j].noisy.size for j in batch)):
            yield batch
            batch, most, widest = [], *shape
        batch.append(i)
        rows, columns = most, widest
    if batch:
        yield batch


def _descended(problems: Sequence[Problem]) -> Array:
    """FISTA on tables padded to one shape; what was padded has no precision and stays 0."""
    shape = (len(problems), *(max(problem.noisy.shape[axis] for problem in problems) for axis in (0, 1)))
    target, real = np.zeros(shape), np.zeros(shape)
    rows, by_row = np.zeros((*shape[:2], 1)), np.zeros((*shape[:2], 1))
    columns, by_column = np.zeros((shape[0], 1, shape[2])), np.zeros((shape[0], 1, shape[2]))
    precision, step = np.zeros((shape[0], 1, 1)), np.zeros((shape[0], 1, 1))
    for i, problem in enumerate(problems):
        pair, noisy = problem.pair, problem.noisy
        here = (i, slice(noisy.shape[0]), slice(noisy.shape[1]))
        own_rows, own_columns = pair.rows_sigma**-2, pair.columns_sigma**-2
        target[here], real[here] = noisy + (problem.total - noisy.sum()) / noisy.size, 1.0
        rows[i, : len(own_rows), 0], columns[i, 0, : len(own_columns)] = own_rows, own_columns
        by_row[i, : len(own_rows), 0] = _moved(pair.rows, own_rows, problem.total)
        by_column[i, 0, : len(own_columns)] = _moved(pair.columns, own_columns, problem.total)
        precision[i] = problem.sigma**-2
        step[i] = 1 / (precision[i] + noisy.shape[1] * own_rows.max() + noisy.shape[0] * own_columns.max())
    now: Array = np.maximum(target, 0) * real
    ahead, pace = now, 1.0
    real *= step
    for _ in range(_STEPS):
        slope = precision * (ahead - target)
        slope += rows * (ahead.sum(axis=2, keepdims=True) - by_row)
        slope += columns * (ahead.sum(axis=1, keepdims=True) - by_column)
        after: Array = np.maximum(ahead - real * slope, 0)
        faster = (1 + math.sqrt(1 + 4 * pace**2)) / 2
        ahead = after + (pace - 1) / faster * (after - now)
        now, pace = after, faster
    return now


def _combined(
    rng: np.random.Generator, noisy: Array, sigma: Array, true: Array, precision: float
) -> tuple[Array, Array]:
    if precision * sigma.max() ** 2 < 1e-9:
        return noisy, sigma
    own = sigma**-2
    other = true + rng.standard_normal(len(true)) / math.sqrt(precision)
    return (noisy * own + other * precision) / (own + precision), (own + precision) ** -0.5


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
