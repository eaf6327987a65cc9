"""`numbers`: the error of means and percentiles of numeric and time columns, overall and within groups."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as settings_class

from understudy.metric.base import STRICT, Metric, Part, Positive, Score
from understudy.metric.tables import Rows, find_column, require_same_columns
from understudy.schema import Schema

_FEW_CODES = 12  # columns of at most this many codes make groups, unless others are named
_FARTHEST = 1.0  # the error of a statistic that one table does not have, and the largest that is counted
_PERCENTILES = {"25th percentile": 25, "median": 50, "75th percentile": 75, "95th percentile": 95}


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `numbers`.

    Attributes:
        groups: columns whose values make groups; by default those of at most 12 codes that are not numeric.
        fewest: the least number of real rows of a group that counts.
        most: the largest number of pairs of a numeric column and a column of groups; they are drawn at random.
    """

    groups: tuple[str, ...] = ()
    fewest: Positive = 30
    most: Positive = 200


def numbers(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return the mean error of means, quartiles and 95th percentiles, in standard deviations of the real column.

    Half of the score is about whole columns, the other half about means within groups. Errors above one standard
    deviation count as one. The part ``noise`` is the error of a column's mean, or the largest one of its means within
    groups, in units of what chance would make of two samples of these sizes: beyond 3 or so (within groups a little
    more), an analyst would find a difference that the table does not have.
    """
    require_same_columns(real, synthetic)
    names = list(real.units)
    overall, signed, noise = [], [], []
    for name in names:
        errors = _column_errors(real.units[name], synthetic.units[name])
        overall.append(Part("column", name, float(np.mean([min(abs(error), _FARTHEST) for error in errors.values()]))))
        signed += [Part("error", f"{statistic} of {name}", error) for statistic, error in errors.items()]
        noise.append(Part("noise", f"mean of {name}", _count_standard_errors(real.units[name], synthetic.units[name])))
    pairs = [(name, group) for group in _group_columns(schema, settings) for name in names if name != group]
    drawn = sorted(rng.choice(len(pairs), settings.most, replace=False)) if len(pairs) > settings.most else None
    within = []
    for name, group in pairs if drawn is None else [pairs[place] for place in drawn]:
        error, deviations = _group_errors(real, synthetic, name, group, settings.fewest)
        within.append(Part("group", f"mean of {name} by {group}", error))
        noise.append(Part("noise", f"mean of {name} by {group}", deviations))
    halves = [float(np.mean([part.value for part in parts])) for parts in (overall, within) if parts]
    notes: tuple[str, ...] = () if names else ("No column is numeric.",)
    notes += () if drawn is None else (f"{settings.most} of {len(pairs)} pairs with groups, drawn at random.",)
    parts = (*overall, *within, *noise, *signed)
    return METRIC.score(float(np.mean(halves)) if halves else 0.0, parts, notes)


def _column_errors(real: NDArray[np.float64], synthetic: NDArray[np.float64]) -> dict[str, float]:
    """Return, by statistic, the difference of the synthetic from the real one, in standard deviations of the column."""
    one, other = real[~np.isnan(real)], synthetic[~np.isnan(synthetic)]
    if not len(one) or not len(other):
        return {"mean": 0.0 if len(one) == len(other) else _FARTHEST}
    scale = float(one.std()) or 1.0
    found = {"mean": float(other.mean() - one.mean()) / scale}
    places = list(_PERCENTILES.values())
    gaps = np.percentile(other, places, method="inverted_cdf") - np.percentile(one, places, method="inverted_cdf")
    return found | dict(zip(_PERCENTILES, map(float, gaps / scale), strict=True))


def _count_standard_errors(real: NDArray[np.float64], synthetic: NDArray[np.float64]) -> float:
    """Return the difference of means in standard errors of a difference between two samples; 0 if there is none."""
    one, other = real[~np.isnan(real)], synthetic[~np.isnan(synthetic)]
    if not len(one) or not len(other):
        return 0.0
    error = math.sqrt(float(one.var() / len(one) + other.var() / len(other)))
    return float(other.mean() - one.mean()) / error if error else 0.0


def _group_columns(schema: Schema, settings: Settings) -> list[str]:
    if settings.groups:
        return [find_column(schema, name, "numbers.groups").name for name in settings.groups]
    numeric = {"integer", "number", "date", "datetime", "duration"}
    return [c.name for c in schema.coded if c.kind not in numeric and 1 < c.ordinary <= _FEW_CODES]


def _group_errors(real: Rows, synthetic: Rows, name: str, group: str, fewest: int) -> tuple[float, float]:
    """Return two errors of means within large enough groups.

    The mean over their rows in standard deviations of the column, and the largest one in standard errors.
    """
    units, others = real.units[name], synthetic.units[name]
    scale = float(np.nanstd(units)) if not np.isnan(units).all() else 0.0
    size = max(real.domain[group], 1)
    rows, means, errors = _group_means(units, real.codes[group], size)
    found, theirs, others_errors = _group_means(others, synthetic.codes[group], size)
    large = rows >= fewest
    if not large.any():
        return 0.0, 0.0
    gaps = np.minimum(np.abs(theirs - means) / (scale or 1.0), _FARTHEST)
    both = np.sqrt(errors + others_errors)
    deviations = ((theirs - means) / np.where(both > 0, both, np.inf))[large & (found >= fewest)]
    most = float(deviations[np.abs(deviations).argmax()]) if len(deviations) else 0.0
    return float(np.average(np.where(found > 0, gaps, _FARTHEST)[large], weights=rows[large])), most


def _group_means(
    units: NDArray[np.float64], codes: NDArray[np.integer], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return rows with a value, the mean of the values and the variance of that mean, by group."""
    there = ~np.isnan(units)
    rows = np.bincount(codes[there], minlength=size).astype(np.float64)
    least = np.maximum(rows, 1.0)
    means = np.bincount(codes[there], units[there], size) / least
    spread = np.bincount(codes[there], (units[there] - means[codes[there]]) ** 2, size) / least
    return rows, means, spread / least


METRIC = Metric(
    name="numbers",
    title="Means and percentiles",
    measure=numbers,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=1.0,
    meaning="Compares what people compute first: means, quartiles and 95th percentiles of every numeric column, and "
    "means within groups. The score is the average error in standard deviations of the column.",
    rows=True,
)
