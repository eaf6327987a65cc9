"""The registry of metrics: a plain dict, and the entry points of other packages."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any, get_origin, get_type_hints

from understudy.arguments import describe_kind, plain_setting, unknown_setting
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
    known = METRICS if name in METRICS else metrics_known()  # asking installed packages takes time
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
            raise unknown_setting(metric.name, name, names)
    missing = [name for name in metric.needs if given.get(name) is None]
    if missing:
        raise SettingError(f"{metric.name} needs {', '.join(missing)}; give {metric.name}.{missing[0]}=COLUMN")
    kinds = get_type_hints(metric.settings, include_extras=True)
    return metric.settings(
        **{name: _check_kind(metric.name, name, kinds[name], value) for name, value in given.items()}
    )


def _check_kind(metric: str, name: str, kind: Any, value: Any) -> Any:
    """A value as the setting's type has it; one alone stands for a list of one."""
    from pydantic import TypeAdapter, ValidationError

    plain = plain_setting(value)
    plain = (plain,) if get_origin(kind) is tuple and not isinstance(plain, tuple) else plain
    try:
        return TypeAdapter(kind).validate_python(plain, strict=True)
    except ValidationError:
        raise SettingError(f"{metric}.{name}: give {describe_kind(kind)}") from None
