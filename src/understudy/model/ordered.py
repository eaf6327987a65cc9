"""Counts of a column whose codes stand in order on an axis, such that its mean and percentiles are right on average.

Counts cannot be negative, so noise in the many nearly empty codes of a long tail can only push mass up if every code is
made non-negative by itself: the nearest non-negative counts have means that are too high by several standard
deviations. `nearest_distribution` looks at cumulative counts instead, whose noise adds up to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.domain import CodeGroups, Domain
from understudy.measurement import Measurement, combine, noisy_total, weighted_mean
from understudy.schema import Recoding

Array = NDArray[np.float64]
_KEPT = 0.1  # of a column's rows: with less, 95th percentiles of small tables are too high, with more too low
_CLEAR = 1.1  # chosen on two tables (docs/decisions/numeric-columns.md)


def fit_ordered_counts(
    domain: Domain,
    measurements: Sequence[Measurement],
    recoding: Recoding,
    groups: CodeGroups,
    total: float | None = None,
) -> dict[str, Array]:
    """Estimate the counts of the declared codes of each column with an axis that was measured by itself.

    The counts are not negative and add up to the number of rows. The column's own measurements and the margins of all
    other tables with the column are averaged by precision first, which is unbiased.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: the declared domain.
        measurements: identity measurements, as the gate returned them, before and after codes were merged.
        recoding: the merged codes.
        groups: which columns have an axis.
        total: the number of rows if public; otherwise it is estimated from the measurements.
    """
    rows = noisy_total(measurements) if total is None else float(total)
    found = {}
    for column, size in domain.items():
        places = groups.axis(column)
        own = [m for m in measurements if m.clique == (column,) and m.query is None and len(m.values) == size]
        if places and own:
            found[column] = _fit_column(_combine_margins(domain, column, own, measurements, recoding), places, rows)
    return found


def order_groups(
    domain: Domain, tables: Sequence[Measurement], recoding: Recoding, groups: CodeGroups
) -> list[Measurement]:
    """Replace each table of two columns, at least one with an axis, by one whose groups were each fitted in order.

    The non-negative cells of a small group would otherwise pull its mean towards the middle of the axis, and make two
    numbers depend on each other. A group's rows are those of the table and of the other column's own counts, averaged
    by precision. If both columns have an axis, the codes of the one with fewer codes are the groups.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: the declared domain.
        tables: measurements over merged codes.
        recoding: the merged codes.
        groups: which columns have an axis.
    """
    ones = {table.clique[0]: table for table in tables if len(table.clique) == 1 and table.query is None}
    merged, maps = recoding.recode(domain), recoding.maps
    found = []
    for table in tables:
        axes = [column for column in table.clique if groups.axis(column)]
        if len(table.clique) == 2 and axes and table.query is None:
            axis = max(axes, key=lambda column: merged[column])
            size = len(table.values) // merged[axis]
            place = maps.get(axis, np.arange(domain[axis]))
            first = table.clique[0] == axis
            cells = np.asarray(table.values, np.float64).reshape((-1, size) if first else (size, -1))
            other = ones.get(table.clique[1 if first else 0])
            fitted = _fit_groups(
                cells.T if first else cells, table.sigma, _order_codes(place, groups.axis(axis)), other
            )
            table = Measurement(table.clique, (fitted.T if first else fitted).ravel(), table.sigma, None, table.noise)
        found.append(table)
    return found


def _order_codes(place: NDArray[np.int64], places: int) -> NDArray[np.int64]:
    """Return merged codes in their order on the axis, without those that have codes from more than half of it."""
    code = np.arange(len(place))
    low, high = np.full(place.max() + 1, len(place)), np.full(place.max() + 1, -1)
    np.minimum.at(low, place, code)
    np.maximum.at(high, place, code)
    on_axis = np.flatnonzero((high < places) & (2 * (high - low) <= places))
    order: NDArray[np.int64] = on_axis[np.argsort((low + high)[on_axis], kind="stable")]
    return order


def _fit_groups(cells: Array, sigma: float, order: NDArray[np.int64], own: Measurement | None) -> Array:
    """Fit each row of a table in order; codes without a place on the axis by themselves."""
    sums = cells.sum(axis=1)
    estimates = [(sums, np.full(len(sums), 1 / (cells.shape[1] * sigma**2)))]
    if own is not None:
        estimates.append((np.asarray(own.values, np.float64), np.full(len(sums), own.sigma**-2)))
    totals = np.maximum(weighted_mean(estimates)[0], 0.0)
    fitted: Array = np.maximum(cells + ((totals - sums) / cells.shape[1])[:, None], 0.0)
    fitted[:, order] = 0.0
    fitted *= np.minimum(1.0, totals / np.maximum(fitted.sum(axis=1), 1e-9))[:, None]
    for row, total in enumerate(totals - fitted.sum(axis=1)):
        counts = cells[row, order]
        if len(order) and total > 0:
            fitted[row, order] = nearest_distribution(counts + (total - counts.sum()) / len(order), sigma, total)
    return fitted


@dataclass(frozen=True)
class _Combined:
    """The counts of a column, averaged over all tables with the column.

    Attributes:
        counts: the counts of its codes.
        sigma: the standard deviation of its own measurements.
        place: the merged code of each code.
        variances: of the counts of merged codes.
    """

    counts: Array
    sigma: float
    place: NDArray[np.int64]
    variances: Array

    def variances_of_sums(self, codes: NDArray[np.int64]) -> Array:
        """Return the variance of the sum of the first 0, 1, 2, ... of these codes.

        A merged code of u codes has its own variance v; a of its codes have a part a/u of that, and the noise of their
        own counts, which add up to the merged one.
        """
        members = np.bincount(self.place)
        seen, part, found = np.zeros(len(members)), np.zeros(len(members)), np.zeros(len(codes) + 1)
        for number, merged in enumerate(self.place[codes], 1):
            seen[merged] += 1
            share, before = seen[merged] / members[merged], part[merged]
            part[merged] = self.sigma**2 * seen[merged] * (1 - share) + share**2 * self.variances[merged]
            found[number] = found[number - 1] + part[merged] - before
        return found


def _combine_margins(
    domain: Domain, column: str, own: Sequence[Measurement], measurements: Sequence[Measurement], recoding: Recoding
) -> _Combined:
    """Average a column's counts by its own and by all other tables.

    Other tables know merged codes only: what they add to a merged code is divided evenly among its codes.
    """
    counts, sigma = combine(own)
    place = recoding.maps.get(column, np.arange(len(counts)))
    members = np.bincount(place)
    merged = recoding.recode(domain)
    sums: Array = np.bincount(place, counts).astype(np.float64)
    estimates = [(sums, 1 / (sigma**2 * members))]
    for measurement in measurements:
        if column in measurement.clique and measurement not in own and measurement.query is None:
            shape = merged.shape(measurement.clique)
            if math.prod(shape) == len(measurement.values):
                away = tuple(axis for axis, name in enumerate(measurement.clique) if name != column)
                margin = np.asarray(measurement.values, np.float64).reshape(shape).sum(axis=away)
                summed = math.prod(shape) // len(members)
                estimates.append((margin, np.full(len(members), 1 / (measurement.sigma**2 * summed))))
    mean, precision = weighted_mean(estimates)
    return _Combined(counts + ((mean - sums) / members)[place], sigma, place, 1 / precision)


def _fit_column(column: _Combined, places: int, total: float) -> Array:
    """Fit the codes on the axis in order, after other codes (missing values) by themselves."""
    counts = column.counts + (total - column.counts.sum()) / len(column.counts)
    others = np.maximum(counts[places:], 0.0)
    others *= min(1.0, total / max(float(others.sum()), total))
    rows = max(total - float(others.sum()), 0.0)
    on_axis = counts[:places] + (rows - counts[:places].sum()) / places
    codes = np.arange(places)
    ends = column.variances_of_sums(codes), column.variances_of_sums(codes[::-1])
    return np.concatenate((nearest_distribution(on_axis, column.sigma, rows, kept=_KEPT, ends=ends), others))


def nearest_distribution(
    counts: Array, sigma: float, total: float, *, kept: float = 0.5, ends: tuple[Array, Array] | None = None
) -> Array:
    """Find counts that are not negative, whose cumulative counts are nearest to the given ones by least squares.

    Cumulative counts that rise are isotonic regression, which keeps the mean of the cumulative counts and hence that of
    the column, as far as 0 and the total allow. Rises at both ends that noise explains are moved inwards, so that
    bounds which were declared too wide stay empty: an end of m of n codes needs 1.1 sqrt(1 + log(n / m)) standard
    deviations of its noise, because the shorter an end, the more such ends there are. The rows of an empty end go to
    the next codes inwards, up to 2 sigma to each, which noise hides. With less, more rows are beyond the true
    extremes; with more, means of long tails are too low by more than half a standard deviation.

    Args:
        counts: unbiased counts of codes in order, which add up to the total; they may be negative.
        sigma: the standard deviation of their noise.
        total: the number of rows.
        kept: an end that seems to hold this share of the rows is not empty, whatever the noise.
        ends: the variances of the sums of the first 0, 1, 2, ... counts, and of the last ones; by default those of
            independent counts.

    **Guarantees.** The result is not negative and adds up to the total.

    >>> nearest_distribution(np.array([9.0, 60.0, 35.0, -4.0, 3.0, -3.0]), 3.0, 100.0).tolist()
    [9.0, 60.0, 31.0, 0.0, 0.0, 0.0]
    """
    levels, sizes = _isotonic(np.cumsum(counts)[:-1])
    levels = np.clip(levels, 0.0, total)
    last = np.cumsum(sizes)
    first = last - sizes + 1
    independent: Array = sigma**2 * np.arange(len(counts) + 1, dtype=np.float64)
    low, high = ends or (independent, independent)
    needed = _needed_rows(len(counts) - last, len(counts) - first, high)
    above = total - levels < np.minimum(needed, kept * total)
    above = np.logical_and.accumulate(above[::-1])[::-1]
    needed = _needed_rows(first, last, low)
    below = levels < np.minimum(needed, kept * total)
    below = np.logical_and.accumulate(below & ~above)
    found = np.diff(np.repeat(levels, sizes), prepend=0.0, append=total)
    start, stop = int(sizes[below].sum()), len(counts) - int(sizes[above].sum())
    _move_inwards(found[start:], float(found[:start].sum()), 2 * sigma)
    _move_inwards(found[:stop][::-1], float(found[stop:].sum()), 2 * sigma)
    found[:start] = found[stop:] = 0.0
    return found


def _move_inwards(counts: Array, rows: float, most: float) -> None:
    """Add rows to the first counts, in equal parts of at most `most` where there are enough counts."""
    parts = min(max(math.ceil(rows / most), 1), len(counts))
    counts[:parts] += rows / parts


def _needed_rows(fewest: NDArray[np.int64], most: NDArray[np.int64], variances: Array) -> Array:
    """Return how many rows there must be at an end, by level; `variances` are those of sums of 0, 1, 2, ... counts.

    A level is the mean of sums over `fewest` to `most` counts from the end: of s such sums of independent counts the
    mean has the variance of fewest + (1/s)^2 + ... + ((s-1)/s)^2 counts. If counts are not independent, the variance
    of a count is that of the middle sum, divided by its counts.
    """
    sums, middle, codes = most - fewest + 1, (fewest + most) // 2, len(variances) - 1
    counts = fewest + (sums - 1) * (2 * sums - 1) / (6 * sums)
    needed: Array = _CLEAR * np.sqrt(counts * variances[middle] / middle * (1 + np.log(codes / most)))
    return needed


def _isotonic(values: Array) -> tuple[Array, NDArray[np.int64]]:
    """Find the nearest values that do not fall (pool adjacent violators): levels, and how many values share each."""
    levels: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        size = 1
        while levels and levels[-1] >= value:
            level, other = levels.pop(), sizes.pop()
            value, size = (value * size + level * other) / (size + other), size + other
        levels.append(value)
        sizes.append(size)
    return np.array(levels), np.array(sizes, np.int64)
