"""The registry of metrics, and how several of them score the same two tables."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, TypeAlias, get_origin, get_type_hints

import numpy as np
from pydantic import ValidationError

from understudy.arguments import plain_setting, setting_error, unknown_setting
from understudy.errors import SettingError
from understudy.metric import (
    disclosure,
    k_marginal,
    mgd,
    ml_efficacy,
    nist_conjunctions,
    nist_contest,
    nist_density,
    nist_income,
    numbers,
    pie_chart,
    propensity,
    range_queries,
    workload,
)
from understudy.metric.base import Metric, Part, Score
from understudy.metric.tables import Answers, Rows
from understudy.progress import Progress, Step, report_compiling, silent
from understudy.schema import Schema

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        workload.METRIC,
        nist_density.METRIC,
        nist_conjunctions.METRIC,
        nist_income.METRIC,
        nist_contest.METRIC,
        k_marginal.METRIC,
        pie_chart.METRIC,
        propensity.PMSE,
        propensity.PMSE_RATIO,
        propensity.SPECKS,
        range_queries.METRIC,
        numbers.METRIC,
        mgd.METRIC,
        ml_efficacy.METRIC,
        disclosure.METRIC,
    )
}
"""Our own metrics, by name, in the order in which they are shown."""

Given: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Settings by metric."""
GROUP = "understudy.metrics"
"""The entry-point group under which other packages offer theirs: each point is a `Metric`."""


def all_metrics() -> dict[str, Metric]:
    """Return our metrics and those of installed packages; ours have precedence."""
    others = {point.name: point for point in entry_points(group=GROUP) if point.name not in METRICS}
    return METRICS | {name: point.load() for name, point in others.items()}


def get_metric(name: str) -> Metric:
    """Return the metric of that name.

    Raises:
        SettingError: for an unknown name, listing the known ones.
    """
    known = METRICS if name in METRICS else all_metrics()  # asking installed packages takes time
    if name not in known:
        raise SettingError(f"metric {name!r} is unknown; the choices are {', '.join(known)}")
    return known[name]


def read_settings(metric: Metric, given: Mapping[str, Any]) -> Any:
    """Make a metric's settings from plain values: lists become tuples, and one value stands for a list of one.

    Raises:
        SettingError: for a setting that the metric does not have, or a value of another kind or out of range.
    """
    kinds = get_type_hints(metric.settings)
    names = [field.name for field in fields(metric.settings)]
    for name in given:
        if name not in names:
            raise unknown_setting(metric.name, name, names)
    missing = [name for name in metric.needs if given.get(name) is None]
    if missing:
        raise SettingError(f"{metric.name} needs {', '.join(missing)}; give {metric.name}.{missing[0]}=VALUE")
    values = {name: plain_setting(value) for name, value in given.items()}
    for name, value in values.items():
        if get_origin(kinds[name]) is tuple and not isinstance(value, tuple):
            values[name] = (value,)
    try:
        return metric.settings(**values)
    except ValidationError as error:
        raise setting_error(metric.name, get_type_hints(metric.settings, include_extras=True), error) from None


def choose_metrics(metrics: Sequence[str] | None, settings: Given) -> list[str]:
    """Return the names of the metrics to compute: those given, or all of ours that have the settings they need.

    Raises:
        SettingError: for an unknown name, or settings of a metric that is not computed.
    """
    for name in settings:
        get_metric(name)
    if metrics is None:
        ours = [name for name, metric in METRICS.items() if not metric.needs or name in settings]
        return ours + [name for name in settings if name not in METRICS]
    names = list(dict.fromkeys([metrics] if isinstance(metrics, str) else metrics))
    for name in names:
        get_metric(name)
    unused = [name for name in settings if name not in names]
    if unused:
        raise SettingError(f"settings are given for {unused[0]}, which is not among the metrics; add it")
    return names


def average(scores: Sequence[Score]) -> Score:
    """Return the mean of scores of one metric over several synthetic tables, and of the parts that all of them have."""
    first, parts = scores[0], [{(part.kind, part.name): part.value for part in score.parts} for score in scores]
    shared = [key for key in parts[0] if all(key in others for others in parts)]
    means = tuple(Part(*key, float(np.mean([values[key] for values in parts]))) for key in shared)
    notes = tuple(dict.fromkeys(note for score in scores for note in score.notes))
    if len(scores) > 1:
        notes = (f"The mean over {len(scores)} synthetic tables.", *notes)
    return replace(first, value=float(np.mean([score.value for score in scores])), parts=means, notes=notes)


def measure(
    real: Rows,
    synthetic: Rows | Answers,
    schema: Schema,
    metrics: Sequence[str] | None = None,
    settings: Given | None = None,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Score]:
    """Compute several metrics on the same two tables; each draws from a generator of its own.

    Args:
        real: the real rows.
        synthetic: the synthetic rows, or answers where a mechanism makes no rows.
        schema: what is public about both.
        metrics: names; None: all that can run.
        settings: settings by metric, as plain values.
        seed: the same tables, settings and seed give the same scores.
        progress: called before each metric.

    **Privacy.** Scores are computed from real rows: for the custodian only.

    Raises:
        SettingError: for an unknown metric or setting.
    """
    settings = settings or {}
    names = choose_metrics(metrics, settings)
    metrics_by_name = {name: get_metric(name) for name in names}
    ready = [(metric, read_settings(metric, settings.get(name, {}))) for name, metric in metrics_by_name.items()]
    scores = []
    with report_compiling(progress), one_thread() if CLASSIFIERS & set(names) else nullcontext():
        for place, (metric, given) in enumerate(ready):
            progress(Step("evaluate", place / len(ready), metric.title))
            rng = np.random.default_rng([seed, zlib.crc32(metric.name.encode())])
            scores.append(metric.measure(real, synthetic, schema, given, rng))
    return scores


CLASSIFIERS = {"pmse", "pmse_ratio", "specks", "ml_efficacy"}
"""Metrics that train classifiers."""


def one_thread() -> AbstractContextManager[object]:
    """Keep numpy and scikit-learn to one thread: on a busy machine, threads that wait for each other take most time."""
    if not has_sklearn():
        return nullcontext()
    import sklearn.ensemble  # noqa: F401 - its threads are limited only once they are loaded
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


def has_sklearn() -> bool:
    """Return whether scikit-learn is installed, which trees and forests need."""
    return find_spec("sklearn") is not None
