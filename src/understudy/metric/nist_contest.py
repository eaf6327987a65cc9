"""`nist_contest`: the score of a match of the NIST 2018 challenge, the mean of the scores that it counts."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic.dataclasses import dataclass as settings_class

from understudy.errors import SettingError
from understudy.metric import nist_conjunctions, nist_density, nist_income
from understudy.metric.base import STRICT, Metric, Part, Positive, Score
from understudy.metric.nist_density import SCALE
from understudy.metric.tables import Rows
from understudy.schema import Schema

CHANCE = {2: 0.33, 3: 0.10}
"""By match, the chance that a column enters a conjunction."""


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `nist_contest`.

    Attributes:
        match: 1 counts densities; 2 also conjunctions; 3 also incomes, and needs `group`, `binary` and `amount`.
        triples: how many sets of three columns are drawn.
        conjunctions: how many conjunctions are drawn.
        group: as for `nist_income`.
        binary: as for `nist_income`.
        amount: as for `nist_income`.
        below: as for `nist_income`.
    """

    match: Literal[1, 2, 3] = 2
    triples: Positive = 100
    conjunctions: Positive = 300
    group: str = ""
    binary: str = ""
    amount: str = ""
    below: float | None = None


def nist_contest(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return the mean of the match's scores, each up to 1,000,000; the challenge averages it over three budgets."""
    scores = [nist_density.nist_density(real, synthetic, schema, nist_density.Settings(draws=settings.triples), rng)]
    if settings.match > 1:
        rules = nist_conjunctions.Settings(draws=settings.conjunctions, chance=CHANCE[settings.match])
        scores.append(nist_conjunctions.nist_conjunctions(real, synthetic, schema, rules, rng))
    if settings.match > 2:
        if not (settings.group and settings.binary and settings.amount):
            raise SettingError("nist_contest: match 3 needs group, binary and amount; give them, or choose match 2")
        columns = {"group": settings.group, "binary": settings.binary, "amount": settings.amount}
        wages = nist_income.Settings(**columns, below=settings.below)
        scores.append(nist_income.nist_income(real, synthetic, schema, wages, rng))
    parts = [Part("part", score.metric, score.value) for score in scores]
    notes = tuple(dict.fromkeys(note for score in scores for note in score.notes))
    return METRIC.score(float(np.mean([score.value for score in scores])), parts, notes)


METRIC = Metric(
    name="nist_contest",
    title="NIST 2018: score of a match",
    measure=nist_contest,
    settings=Settings,
    better="higher",
    best=SCALE,
    worst=0.0,
    meaning="The mean of the scores that a match of the challenge counted: densities in match 1, conjunctions as well "
    "in match 2, incomes as well in match 3. The challenge averaged it over three budgets.",
    rows=True,
    needs=("match",),
)
