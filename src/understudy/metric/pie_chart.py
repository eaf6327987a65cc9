"""`pie_chart`: the score of the Temporal Map challenge's first sprint."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as settings_class

from understudy.errors import SettingError
from understudy.metric.base import STRICT, Counted, Metric, Part, Score
from understudy.metric.tables import find_column, require_same_columns
from understudy.schema import Schema
from understudy.tabulate import to_dense

SMALL = 0.05
MISLEADING = 0.2
BIAS = 0.25
FAR = 500
_CELLS = 1 << 27


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `pie_chart`. In the challenge: neighbourhood, month, incident type.

    Attributes:
        place: the column of places.
        month: the column of periods.
        type: the column whose distribution is compared for each place and month.
    """

    place: str = ""
    month: str = ""
    type: str = ""


def pie_chart(real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return the mean over places and months of `pie_score`; the challenge's own total is the part ``total``."""
    require_same_columns(real, synthetic)
    clique = (settings.place, settings.month, settings.type)
    for setting, name in zip(("place", "month", "type"), clique, strict=True):
        find_column(schema, name, f"pie_chart.{setting}")
    if len(set(clique)) < 3:
        raise SettingError("pie_chart: place, month and type must be three different columns")
    if real.domain.cells(clique) > _CELLS:
        raise SettingError("pie_chart: the three columns have too many cells together; give the schema coarser bins")
    tables = []
    for table in (real, synthetic):
        ((_, counts),) = table.counts([clique])
        tables.append(to_dense(counts).reshape(-1, real.domain[settings.type]).astype(np.float64))
    scores = pie_score(*tables)
    parts = (Part("total", "score", float(scores.sum())), Part("total", "rows", float(len(scores))))
    return METRIC.score(float(scores.mean()), parts)


def pie_score(real: NDArray[np.float64], released: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score of each row of counts.

    >>> pie_score(np.array([[60.0, 30, 6, 4]]), np.array([[50.0, 30, 10, 10]])).round(6)
    array([0.558626])
    """
    bias = np.where(np.abs(real.sum(1) - released.sum(1)) > FAR, BIAS, 0.0)
    kept, shown = _drop_small_slices(real), _drop_small_slices(released)
    misleading = MISLEADING * ((kept == 0) & (shown > 0)).sum(1)
    score: NDArray[np.float64] = np.clip(1 - jensen_shannon(kept + 1e-9, shown + 1e-9) - misleading - bias, 0.0, 1.0)
    score[(real == released).all(1)] = 1.0
    return score


def jensen_shannon(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Jensen-Shannon distance to base 2 of each row of positive weights."""
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    middle = (p + q) / 2
    divergence = ((p * np.log2(p / middle)).sum(1) + (q * np.log2(q / middle)).sum(1)) / 2
    distance: NDArray[np.float64] = np.sqrt(np.maximum(divergence, 0.0))
    return distance


def _drop_small_slices(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    total = counts.sum(1, keepdims=True)
    return np.where(counts / np.maximum(total, 1e-300) >= SMALL, counts, 0.0)


METRIC = Metric(
    name="pie_chart",
    title="Pie charts (Temporal Map)",
    measure=pie_chart,
    settings=Settings,
    better="higher",
    best=1.0,
    worst=0.0,
    meaning="For every place and month compares the pie chart of types, ignoring slices below 5 %. 1: every chart "
    "is the same; slices that are not in the real chart cost most.",
    needs=("place", "month", "type"),
)
