"""The registry of metrics: a plain dict, and the entry points of other packages."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any

from understudy.errors import SettingError
from understudy.metric import (
    disclosure,
    k_marginal,
    mgd,
    ml_efficacy,
    nist_conjunctions,
    nist_density,
    nist_income,
    pie_chart,
    pmse,
    pmse_ratio,
    range_queries,
    specks,
    workload,
)
from understudy.metric.protocol import Metric

METRICS: dict[str, Metric] = {
    module.METRIC.name: module.METRIC
    for module in (
        workload,
        nist_density,
        nist_conjunctions,
        nist_income,
        k_marginal,
        pie_chart,
        pmse,
        pmse_ratio,
        specks,
        range_queries,
        mgd,
        ml_efficacy,
        disclosure,
    )
}
"""Our own metrics, by name, in the order in which they are shown."""

GROUP = "understudy.metrics"
"""The entry-point group under which other packages offer theirs: each point is a `Metric`."""


def metrics_known() -> dict[str, Metric]:
    """Our metrics and those of installed packages; ours win a name they share."""
    others = {point.name: point for point in entry_points(group=GROUP) if point.name not in METRICS}
    return METRICS | {name: point.load() for name, point in others.items()}


def metric_named(name: str) -> Metric:
    """The metric of that name.

    Raises:
        SettingError: for an unknown name, listing the known ones.
    """
    known = metrics_known()
    if name not in known:
        raise SettingError(f"metric {name!r} is unknown; the choices are {', '.join(known)}")
    return known[name]


def settings_of(metric: Metric, given: dict[str, Any]) -> Any:
    """A metric's settings from plain values; lists become tuples.

    Raises:
        SettingError: for a setting it does not have, or one that is out of range.
    """
    names = [field.name for field in fields(metric.settings)]
    for name in given:
        if name not in names:
            raise SettingError(f"{metric.name} has no setting {name!r}; its settings are: {', '.join(names)}")
    missing = [name for name in metric.needs if given.get(name) is None]
    if missing:
        raise SettingError(f"{metric.name} needs {', '.join(missing)}; give {metric.name}.{missing[0]}=COLUMN")
    return metric.settings(**{name: _frozen(value) for name, value in given.items()})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
