"""Several metrics on the same two tables: each with its own stream of randomness, so that order does not matter."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from understudy.errors import SettingError
from understudy.metric.protocol import Score
from understudy.metric.registry import METRICS, metric_named, settings_of
from understudy.metric.tables import Rows
from understudy.progress import Progress, Step, silent
from understudy.schema import Schema

Given = Mapping[str, Mapping[str, Any]]
"""Settings by metric."""


def chosen_metrics(metrics: Sequence[str] | None, settings: Given) -> list[str]:
    """The names to run: those asked for, or all of ours whose needs are met.

    Raises:
        SettingError: for an unknown name, or settings of a metric that is not run.
    """
    for name in settings:
        metric_named(name)
    if metrics is None:
        ours = [name for name, metric in METRICS.items() if not metric.needs or name in settings]
        return ours + [name for name in settings if name not in METRICS]
    names = list(dict.fromkeys([metrics] if isinstance(metrics, str) else metrics))
    for name in names:
        metric_named(name)
    idle = [name for name in settings if name not in names]
    if idle:
        raise SettingError(f"settings are given for {idle[0]}, which is not among the metrics asked for; add it")
    return names


def measure(
    real: Rows,
    synthetic: Rows,
    schema: Schema,
    metrics: Sequence[str] | None = None,
    settings: Given | None = None,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Score]:
    """The scores of the metrics asked for, in order.

    Args:
        real: the real rows.
        synthetic: the synthetic rows.
        schema: what is public about both.
        metrics: names; None: all that can run.
        settings: settings by metric, as plain values.
        seed: the same tables, settings and seed give the same scores.
        progress: told about each metric.

    **Privacy.** Scores are made of real rows: for the custodian only.

    Raises:
        SettingError: for an unknown metric or setting.
    """
    settings = settings or {}
    names = chosen_metrics(metrics, settings)
    chosen = {name: metric_named(name) for name in names}
    ready = [(metric, settings_of(metric, dict(settings.get(name, {})))) for name, metric in chosen.items()]
    scores = []
    for place, (metric, given) in enumerate(ready):
        progress(Step("evaluate", place / len(ready), metric.title))
        rng = np.random.default_rng([seed, zlib.crc32(metric.name.encode())])
        scores.append(metric.measure(real, synthetic, schema, given, rng))
    return scores
