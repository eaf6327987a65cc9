"""`nist_conjunctions`: high-order conjunctions, the second score of the NIST 2018 challenge."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.metric.base import STRICT, Metric, Part, Positive, Score
from understudy.metric.tables import Rows
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn

SCALE = 1e6
FLOOR = 1e-6
WORST = math.log(1e-3)

Rule: TypeAlias = Callable[[Rows], NDArray[np.bool_]]


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `nist_conjunctions`.

    Attributes:
        draws: how many rows are drawn (with replacement; repeats are dropped).
        chance: the chance that a column enters a rule: 0.10 in match 3, 0.33 in match 2.
        rows: the largest number of rows of each table that is tested.
    """

    draws: Positive = 300
    chance: Annotated[float, Field(gt=0, le=1)] = 0.10
    rows: Positive = 1_000_000


def nist_conjunctions(
    real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Score:
    """``10^6 max(0, 1 + RMS/ln 0.001)``, RMS of the log ratios of the shares that fulfil random rules.

    A rule is built around a real row, so the real share is above 0. Columns that the synthetic table lacks count as
    fulfilled.
    """
    notes: tuple[str, ...] = ()
    if max(real.rows, synthetic.rows) > settings.rows:
        notes = (f"At most {settings.rows:,} rows of each table were drawn at random.",)
        real, synthetic = real.sample(settings.rows, rng), synthetic.sample(settings.rows, rng)
    chosen = np.unique(rng.integers(0, real.rows, settings.draws))
    shares = np.array([_compute_shares(real, synthetic, schema, int(row), settings.chance, rng) for row in chosen])
    rms, score = conjunction_score(shares[:, 0], shares[:, 1])
    return METRIC.score(score, (Part("error", "root mean square", rms),), notes)


def conjunction_score(real: NDArray[np.float64], synthetic: NDArray[np.float64]) -> tuple[float, float]:
    """Return the RMS of the log ratios and the score.

    >>> [round(value, 3) for value in conjunction_score(np.array([0.1]), np.array([0.05]))]
    [0.693, 899656.668]
    """
    gaps = np.log(np.maximum(synthetic, FLOOR)) - np.log(real)
    rms = float(np.sqrt(np.mean(gaps**2)))
    return rms, SCALE * max(0.0, 1 + rms / WORST)


def _compute_shares(
    real: Rows, synthetic: Rows, schema: Schema, row: int, chance: float, rng: np.random.Generator
) -> tuple[float, float]:
    fits = [np.ones(real.rows, np.bool_), np.ones(synthetic.rows, np.bool_)]
    for column in schema.coded:
        if rng.random() >= chance:
            continue
        if isinstance(column, AxisColumn):
            rule = _make_range_rule(column.name, float(real.units[column.name][row]), column, rng)
        else:
            rule = _make_set_rule(column.name, int(real.codes[column.name][row]), column.size, rng)
        fits[0] &= rule(real)
        if column.name in synthetic.domain:
            fits[1] &= rule(synthetic)
    return float(fits[0].mean()), float(fits[1].mean())


def _make_range_rule(name: str, centre: float, column: AxisColumn, rng: np.random.Generator) -> Rule:
    low, high = map(float, column.bounds)
    width = rng.uniform(0.0, high - low)
    if math.isnan(centre):
        return lambda table: np.isnan(table.units[name])
    return lambda table: np.abs(table.units[name] - centre) <= width


def _make_set_rule(name: str, value: int, size: int, rng: np.random.Generator) -> Rule:
    allowed = np.zeros(size, np.bool_)
    allowed[value] = True
    while not allowed[drawn := int(rng.integers(0, size))]:
        allowed[drawn] = True
    return lambda table: allowed[table.codes[name]]


METRIC = Metric(
    name="nist_conjunctions",
    title="NIST 2018: high-order conjunctions",
    measure=nist_conjunctions,
    settings=Settings,
    better="higher",
    best=SCALE,
    worst=0.0,
    meaning="Picks real people, describes each by a few loose conditions, and compares how many rows of either table "
    "fit the description. 1,000,000: always the same share. 0: typically a thousand times too many or too few.",
    rows=True,
)
