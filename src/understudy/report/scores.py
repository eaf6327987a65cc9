"""Scores on a reference scale: the stand-in between two halves of the real table and an independent stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.metric.base import Metric, Score
from understudy.metric.registry import choose_metrics, measure, metric_named
from understudy.metric.tables import Rows
from understudy.progress import Progress, Step, silent
from understudy.schema import Schema

REPORTED: dict[str, dict[str, Any]] = {
    "workload": {"most": 150},
    "pmse": {"rows": 10_000, "cross_validated": False},
    "pmse_ratio": {"rows": 10_000, "cross_validated": False},
    "specks": {"rows": 10_000, "cross_validated": False},
    "ml_efficacy": {"rows": 10_000},
}
"""A report computes every metric three times, so the slow ones take fewer rows than `evaluate` does, and no folds."""


@dataclass(frozen=True)
class Placed:
    """A score with its references.

    Attributes:
        metric: the metric.
        score: the stand-in's score.
        halves: the score of one half of the real table against the other.
        independent: the score of the real table with every column shuffled by itself.
    """

    metric: Metric
    score: Score
    halves: Score
    independent: Score


def placed_scores(
    real: Rows,
    standin: Rows,
    schema: Schema,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Placed]:
    """All metrics that can run, each three times.

    **Privacy.** Scores are made of real rows: for the custodian only.
    """
    given = {name: dict(values) for name, values in (settings or {}).items()}
    names = choose_metrics(None, given)
    for name in names:
        given[name] = REPORTED.get(name, {}) | given.get(name, {})
    rng = np.random.default_rng([seed, 2])
    one, other = real.split(rng)
    tables = {"stand-in": (real, standin), "halves": (one, other), "independent": (real, shuffled(real, rng))}
    columns = []
    for place, (word, (left, right)) in enumerate(tables.items()):

        def told(step: Step, place: int = place, word: str = word) -> None:
            progress(replace(step, fraction=(place + (step.fraction or 0)) / 3, detail=f"{step.detail} ({word})"))

        columns.append(measure(left, right, schema, names, given, seed=seed, progress=told))
    return [Placed(metric_named(name), *row) for name, *row in zip(names, *columns, strict=True)]


def shuffled(real: Rows, rng: np.random.Generator) -> Rows:
    """The real table with every column shuffled by itself: exact one-way tables and no association."""
    codes: dict[str, NDArray[Any]] = {}
    units = dict(real.units)
    for column in real.schema.coded:
        order = rng.permutation(real.rows)
        codes |= {part: real.codes[part][order] for part in column.parts}
        if column.name in units:
            units[column.name] = units[column.name][order]
    return replace(real, codes=codes, units=units)
