"""Intervals for a count: what every measurement says about it, and what selections add."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.bounds.marginals import Evidence, codes_of, marginal_bounds
from understudy.bounds.tails import Law
from understudy.measurement import Measurement

Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Interval:
    """Where a true count lies.

    Attributes:
        low: at least this many rows.
        high: at most this many; infinity where nothing is known.
        source: "measured" (a measured clique has all columns of the query), "selected" (a selection preferred another
            clique), "contained" (only parts of the query were measured: the count is at most theirs) or "unknown".
    """

    low: float
    high: float
    source: Literal["measured", "selected", "contained", "unknown"]


def count_interval(
    evidence: Evidence, inner: Mapping[str, Mask], outer: Mapping[str, Mask], *, confidence: float = 0.95
) -> Interval:
    """An interval for the number of rows whose code is in the set of each column.

    A condition may cut through a code (part of a bin, one of several merged codes): the true count then lies between
    those of the codes that are wholly inside and of those that are touched.

    **Guarantees.** It holds with probability `confidence` over the mechanism's noise, whatever the rows.

    Args:
        evidence: what was released.
        inner: by column, which declared codes are wholly inside the condition.
        outer: by column, which declared codes are touched by it.
        confidence: between 0 and 1.
    """
    doubt = 1 - confidence
    same = all(np.array_equal(inner[column], outer[column]) for column in inner)
    low, high = (0.0, math.inf) if evidence.rows is None else (0.0, float(evidence.rows))
    source: Literal["measured", "selected", "contained", "unknown"] = "unknown"
    for stage in evidence.stages:
        part = doubt * stage.part / len(stage.measurements)
        for measurement in stage.measurements:
            covers = set(inner) <= set(measurement.clique)
            found = _sides(evidence, measurement, inner, outer, part if same or not covers else part / 2)
            if found is None:
                continue
            high = min(high, found[1])
            low = max(low, found[0]) if covers else low
            source = "measured" if covers else "contained" if source == "unknown" else source
    found_so_far = Interval(min(low, high), high, source if math.isfinite(high) else "unknown")
    return found_so_far if source == "measured" else _with_selection(evidence, inner, outer, found_so_far, confidence)


def _sides(
    evidence: Evidence, measurement: Measurement, inner: Mapping[str, Mask], outer: Mapping[str, Mask], doubt: float
) -> tuple[float, float] | None:
    """The ends of the interval by one measurement, of the part of the query that it has."""
    apart = bool(inner) and not set(inner) & set(measurement.clique)
    if measurement.query is not None or doubt <= 0 or apart:
        return None
    low = _sum(evidence, measurement, inner, doubt, whole=True)
    high = _sum(evidence, measurement, outer, doubt, whole=False)
    return None if low is None or high is None else (low[0] - low[1], high[0] + high[1])


def _sum(
    evidence: Evidence, measurement: Measurement, masks: Mapping[str, Mask], doubt: float, *, whole: bool
) -> tuple[float, float] | None:
    """The noisy count of the query's cells, and how far noise can have moved it; None where that is not known."""
    codes = codes_of(evidence, measurement)
    axes = [_axis(evidence, column, len(places), masks, whole=whole) for column, places in codes.items()]
    cells = math.prod(map(len, axes))
    if cells == 0:
        return 0.0, 0.0
    table = measurement.values.reshape([len(places) for places in codes.values()])
    value = float(table[np.ix_(*axes)].sum())
    law = Law.of(measurement.noise, measurement.sigma, cells)
    if law is not None:
        return value, law.either_side(doubt)
    if measurement.noise != "gaussian":
        return None
    return value, measurement.sigma * math.sqrt(2 * cells * math.log(2 / doubt))


def _axis(evidence: Evidence, column: str, size: int, masks: Mapping[str, Mask], *, whole: bool) -> NDArray[np.intp]:
    """The codes of one column to sum over: all of a column that the query does not have."""
    if column not in masks:
        return np.arange(size)
    mask = masks[column]
    return np.flatnonzero(mask if len(mask) == size else grouped(evidence, column, mask, whole=whole))


def grouped(evidence: Evidence, column: str, mask: Mask, *, whole: bool) -> Mask:
    """Which merged codes are wholly inside a set of declared codes, or touched by it."""
    merged = evidence.merged.get(column)
    if merged is None:
        return mask
    size = evidence.model.domain[column]
    inside = np.bincount(merged, weights=mask, minlength=size)
    result: Mask = inside == np.bincount(merged, minlength=size) if whole else inside > 0
    return result


def _with_selection(
    evidence: Evidence, inner: Mapping[str, Mask], outer: Mapping[str, Mask], sofar: Interval, confidence: float
) -> Interval:
    """The interval together with what selections say: a subset of cells errs by no more than the whole table.

    Where the model has the true number of rows, what is too much in some cells is missing in others: half of it.
    """
    names = {evidence.model.domain.canonical(inner)} & {clique for clique, _ in evidence.cliques}
    if not names:
        return sofar
    clique = names.pop()
    bound = marginal_bounds(evidence, [clique], confidence=confidence)[0]
    if bound.bound is None or bound.source != "selected":
        return sofar
    reach = bound.bound / 2 if evidence.rows is not None else bound.bound
    table = evidence.model.project(clique)
    ends = []
    for masks, whole in ((inner, True), (outer, False)):
        axes = [np.flatnonzero(grouped(evidence, column, masks[column], whole=whole)) for column in clique]
        ends.append(float(table[np.ix_(*axes)].sum()))
    low, high = max(sofar.low, ends[0] - reach), min(sofar.high, ends[1] + reach)
    return Interval(min(low, high), high, "selected" if high < sofar.high or low > sofar.low else sofar.source)
