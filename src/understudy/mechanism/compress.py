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


def compress(
    domain: Domain,
    one_ways: Sequence[Measurement],
    groups: CodeGroups = NO_GROUPS,
    *,
    threshold: float = 3.0,
    once: bool = False,
    many: float = math.inf,
    as_printed: bool = False,
) -> Recoding:
    """Merge the codes of a column whose noisy count is below `threshold` standard deviations into one code at its end.

    In a column with a hierarchy, rare codes of one group are merged first: where they are many enough together they
    stay one code, and only what is still too rare goes up to the next level, at last into one code for all. Intervals
    of 2, 4, 8, ... places are such groups in a column with an axis. In a column
    that an order rule ties, or whose rare bins hold `many` of its rows, codes stay on their axis: it is halved, and
    halved again, as long as there are enough rows.

    A column with no such code, or with only one, is left alone (one code merged with itself would only move); a column
    that was not measured too. A column with no other code becomes a single code. Several measurements of a column are
    averaged by precision first.

    **Privacy.** Post-processing: the decision reads noisy counts, and applying it to rows acts row by row.

    Args:
        domain: the columns as they were measured.
        one_ways: measurements of single columns with the identity query; others are ignored.
        groups: which codes belong together; by default none do.
        threshold: how many standard deviations a count must reach to be kept; more in columns of 1000 codes and more,
            sqrt(2 log codes), unless it is 0.
        once: a table of two columns is measured once, with about the same noise; then those in order are coarser.
        many: the share of a column's rows in its rare bins that is too much for one code.
        as_printed: Algorithm 4 to the letter: one code for all rare ones, whatever they are, and one threshold.

    Raises:
        SettingError: if the threshold is negative or not a number.

    >>> ages = Measurement(("age",), np.array([50, 2, 40, -1]), 2.0)
    >>> compress(Domain({"age": 4, "sex": 2}), [ages]).merged("age")
    [[0], [2], [1, 3]]
    """
    if not threshold >= 0:
        raise SettingError("threshold: give a number of standard deviations, 0 or more; 0 merges negative counts only")
    maps = {}
    for column, (counts, sigma) in _combine_columns(domain, one_ways).items():
        enough = (threshold if as_printed else _raise_threshold(threshold, len(counts))) * sigma
        rare = counts < enough
        groups = NO_GROUPS if as_printed else groups
        places, tied = groups.axis(column) if threshold else 0, groups.tied(column)
        if places and (tied or _share(rare[:places], counts[:places]) >= many):
            least = (2 if tied else 3) * enough
            if tied and once:
                least = 2 * math.sqrt(max(float(counts.sum()), 0.0) * sigma)
            array = _merge_intervals(rare, counts, least, places)
            if array.max() + 1 < len(array):
                maps[column] = array
        elif rare.sum() > 1:
            levels = groups.levels(column) or _axis_levels(places, len(counts))
            maps[column] = _merge_rare(rare, counts, enough, levels)
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
        The table with codes merged by both looks, and the second measurements.
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
    """The threshold, raised in columns of very many codes: the noise alone takes thousands of empty ones past it."""
    return max(threshold, math.sqrt(2 * math.log(codes))) if threshold and codes >= _MANY else threshold


def _merge_rare(
    rare: NDArray[np.bool_], counts: NDArray[np.float64], enough: float, levels: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Kept codes in order, then groups of the hierarchy that reach enough rows together, then one code for the rest."""
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


def _axis_levels(places: int, codes: int) -> list[NDArray[np.int64]]:
    """Intervals of an axis of 2, 4, 8, ... places: what they hold together keeps its relation to other columns.

    Codes outside the axis are alone in their groups.
    """
    code = np.arange(codes)
    sizes = range(1, max(places - 1, 0).bit_length() + 1)
    return [np.where(code < places, code >> size, codes + code) for size in sizes]


def _share(rare: NDArray[np.bool_], counts: NDArray[np.float64]) -> float:
    """The part of a column's rows that is in rare bins."""
    return float(counts[rare].sum() / max(counts.sum(), 1.0))


def _merge_intervals(
    rare: NDArray[np.bool_], counts: NDArray[np.float64], least: float, places: int
) -> NDArray[np.int64]:
    """Divide an axis of `places` places into intervals too small to be halved; rare codes outside the axis become one.

    Where two columns are in order, the noise of their table is on one side of its diagonal: it makes the first early
    and the second late. Intervals of 2 sqrt(rows sigma) rows keep it to some hundredths of the rows whatever sigma is;
    rows are spread within them by the noisy counts, so that a column on its own loses nothing.
    """
    ends = _halve(np.concatenate(([0.0], np.cumsum(counts[:places]))), 0, 1 << (places - 1).bit_length(), least)
    array = np.empty(len(counts), dtype=np.int64)
    array[:places] = np.searchsorted(ends, np.arange(places), side="right")
    kept = np.flatnonzero(~rare[places:]) + places
    array[places:] = len(ends) + len(kept)
    array[kept] = len(ends) + np.arange(len(kept))
    return array


def _halve(sums: NDArray[np.float64], start: int, size: int, least: float) -> list[int]:
    """The ends of intervals; one that holds enough rows and more than one code is halved."""
    places = len(sums) - 1
    if start >= places:
        return []
    end = min(start + size, places)
    if size == 1 or sums[end] - sums[start] < least:
        return [end]
    half = size // 2
    return _halve(sums, start, half, least) + _halve(sums, start + half, half, least)
