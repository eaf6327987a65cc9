"""Domain compression (Algorithm 4 of "Winning the NIST Contest"): rare codes, judged by noisy counts, become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import NO_GROUPS, Clique, CodeGroups, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, combine
from understudy.schema import Recoding

_MANY = 1000
"""From this many codes on, the threshold is at least the expected largest noise among them."""

_COARSE = 8.0
"""An interval of an axis is halved if its rows times its places exceed `_COARSE` sigma times the column's `_spread`.

Chosen on two tables by the errors of means within groups (benchmarks/numbers.md), which differ little from 4 to 16:
noise in many small cells biases means more than a few wide intervals do."""


def compress(
    domain: Domain,
    one_ways: Sequence[Measurement],
    groups: CodeGroups = NO_GROUPS,
    *,
    threshold: float = 3.0,
    once: bool = False,
    as_printed: bool = False,
    alike: Mapping[str, str] | None = None,
    noise: Mapping[str, float] | None = None,
) -> Recoding:
    """Merge the codes of a column whose noisy count is below `threshold` standard deviations into one code at its end.

    In a column with a hierarchy, rare codes are first merged within groups: a group with enough rows becomes one code,
    the others are merged at the next level, and finally into one code. In a column with an axis, codes become
    intervals: the axis is halved repeatedly while an interval has enough rows and is wide for its rows. A code with
    many rows stays by itself.

    A column that was not measured, or has at most one rare code, is not changed. A column without a frequent code
    becomes a single code. Several measurements of a column are first averaged by precision.

    **Privacy.** Post-processing: the decision depends on noisy counts only, and codes are merged row by row.

    Args:
        domain: the columns as they were measured.
        one_ways: measurements of single columns with the identity query; others are ignored.
        groups: which codes belong together; by default none do.
        threshold: how many standard deviations a count must reach to be kept; more in columns of 1000 codes and more,
            sqrt(2 log codes), unless it is 0.
        once: whether pairs are measured once, with about the same noise; then columns in an order rule are coarser.
        as_printed: Algorithm 4 as printed: one code for all rare ones, and one threshold for all columns.
        alike: for columns that are measured roughly, columns with the same codes, about the same counts and less noise,
            whose counts and axis are used instead.
        noise: for columns, the standard deviation that tells how many rows a code needs, if it is larger than that of
            its counts; ignored for columns in an order rule.

    Raises:
        SettingError: if the threshold is negative or not a number.

    >>> ages = Measurement(("age",), np.array([50, 2, 40, -1]), 2.0)
    >>> compress(Domain({"age": 4, "sex": 2}), [ages]).merged_codes("age")
    [[0], [2], [1, 3]]
    """
    if not threshold >= 0:
        raise SettingError("threshold: give a number of standard deviations, 0 or more; 0 merges negative counts only")
    maps = {}
    combined, alike = _combine_columns(domain, one_ways), alike or {}
    for column, (counts, sigma) in combined.items():
        groups = NO_GROUPS if as_printed else groups
        axis, rough, tied = column, max(sigma, (noise or {}).get(column, 0.0)), groups.has_order_rule(column)
        if (like := alike.get(column)) in combined and len(combined[like][0]) == len(counts):
            (counts, sigma), axis = combined[like], like
        rough = sigma if tied else rough
        enough = (threshold if as_printed else _raise_threshold(threshold, len(counts))) * rough
        rare = counts < enough
        places = groups.axis(axis) if threshold else 0
        if places:
            least, area = (2 * enough, 0.0) if tied else (3 * enough, _COARSE * _spread(counts[:places]) * sigma)
            if tied and once:
                least = 2 * math.sqrt(max(float(counts.sum()), 0.0) * sigma)
            array = _merge_intervals(rare, counts, places, least=least, area=area)
            if array.max() + 1 < len(array):
                maps[column] = array
        elif rare.sum() > 1:
            maps[column] = _merge_rare(rare, counts, enough, groups.levels(axis))
    return Recoding(maps)


def measure_columns_again(
    table: PrivateTable,
    ones: Sequence[Measurement],
    *,
    rho: float,
    merge: Callable[[Sequence[Measurement]], Recoding],
    weights: Mapping[Clique, float] | None = None,
) -> tuple[PrivateTable, list[Measurement]]:
    """Spend what is left on the columns, where merging codes left no marginal of several columns to measure.

    Args:
        table: the private table, without merged codes.
        ones: the first measurements of the columns.
        rho: what is left; 0 for nothing.
        merge: merges codes by measurements of columns.
        weights: relative weights of the columns; equal by default.

    Returns:
        The table with codes merged by both measurements, and the second measurements.
    """
    later = table.measure([one.clique for one in ones], rho=rho, weights=weights) if rho else []
    return table.recode(merge([*ones, *later])), later


def _combine_columns(domain: Domain, one_ways: Sequence[Measurement]) -> dict[str, tuple[NDArray[np.float64], float]]:
    tables: dict[str, list[Measurement]] = {}
    for measurement in one_ways:
        if len(measurement.clique) == 1 and measurement.query is None:
            measurement.check(domain)
            tables.setdefault(measurement.clique[0], []).append(measurement)
    return {column: combine(tables[column]) for column in domain if column in tables}


def _raise_threshold(threshold: float, codes: int) -> float:
    """Raise the threshold in columns of very many codes: the noise alone takes thousands of empty ones past it."""
    return max(threshold, math.sqrt(2 * math.log(codes))) if threshold and codes >= _MANY else threshold


def _spread(counts: NDArray[np.float64]) -> float:
    """Return the number of places that most rows take up: 1.25 times those between their 10th and 90th percentile.

    Bounds that are too wide, and a few distant values, do not change it.
    """
    sums = np.maximum.accumulate(np.cumsum(counts))
    low, high = np.searchsorted(sums, np.array([0.1, 0.9]) * sums[-1])
    return 1.25 * float(high - low + 1)


def _merge_rare(
    rare: NDArray[np.bool_], counts: NDArray[np.float64], enough: float, levels: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Keep frequent codes in order; merge rare ones by groups of the hierarchy with enough rows, the rest into one."""
    kept = np.flatnonzero(~rare)
    array = np.full(len(rare), -1, dtype=np.int64)
    array[kept] = np.arange(len(kept))
    size = len(kept)
    for groups in levels:
        left = np.flatnonzero(array < 0)
        names, place, members = np.unique(groups[left], return_inverse=True, return_counts=True)
        reached = np.bincount(place, counts[left], minlength=len(names)) >= enough * np.sqrt(members)
        reached &= members > 1
        number = np.cumsum(reached) - 1 + size
        array[left] = np.where(reached[place], number[place], -1)
        size += int(reached.sum())
    array[array < 0] = size
    return array


def _merge_intervals(
    rare: NDArray[np.bool_], counts: NDArray[np.float64], places: int, *, least: float, area: float
) -> NDArray[np.int64]:
    """Divide an axis of `places` places into intervals; rare codes outside the axis become one code.

    Rows are spread within intervals by the noisy counts, so a column by itself loses nothing. If a rule orders two
    columns, the noise of their marginal lies on one side of its diagonal and moves the first column down and the second
    up. Intervals of 2 sqrt(rows sigma) rows limit this to some hundredths of the rows for any sigma.
    """
    sums = np.concatenate(([0.0], np.cumsum(counts[:places])))

    def halve(start: int, size: int) -> list[int]:
        """Return the ends of intervals; one that holds enough rows for its places is halved."""
        if start >= places:
            return []
        end = min(start + size, places)
        rows = sums[end] - sums[start]
        if size == 1 or rows < least or rows * (end - start) < area:
            return [end]
        return halve(start, size // 2) + halve(start + size // 2, size // 2)

    ends = halve(0, 1 << (places - 1).bit_length())
    array = np.empty(len(counts), dtype=np.int64)
    array[:places] = np.searchsorted(ends, np.arange(places), side="right")
    kept = np.flatnonzero(~rare[places:]) + places
    array[places:] = len(ends) + len(kept)
    array[kept] = len(ends) + np.arange(len(kept))
    return array
