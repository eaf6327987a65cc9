"""`pmse_ratio`: pMSE over what a correct synthesis would give on average."""

from __future__ import annotations

import math

import numpy as np

from understudy.metric.base import Metric, Part, Score
from understudy.metric.propensity import (
    Model,
    Propensities,
    Settings,
    Stacked,
    choose_complexity,
    score_held_out,
    score_in_sample,
    stack_tables,
)
from understudy.metric.tables import Rows
from understudy.schema import Schema

_DOUBTFUL = 1000.0


def pmse_ratio(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """PMSE over its null expectation: rows drawn from the very model that was fitted to the real rows.

    A regression's null has a closed form. A tree's null is the mean over permutations of the labels, times 1 - c:
    permuting mimics two independent samples, whose pMSE is 1/(1 - c) times larger. A null that comes out as 0 (no
    permuted tree found a split) is replaced by the closed form of a single parameter.
    """
    data = stack_tables(real, synthetic, settings, rng)
    parts: list[Part] = []
    notes = data.notes
    for model in settings.models:
        complexity = choose_complexity(model, data, rng)
        found = score_in_sample(model, data, complexity)
        expected = _estimate_null(model, data, found, complexity, settings, rng, held=False)
        parts.append(Part("model", model, found.pmse / expected))
        if model == "logistic":
            parts.append(Part("model", "logistic, standardised", _standardise(found)))
        if settings.cross_validated:
            found = score_held_out(model, data, complexity, rng)
            expected = _estimate_null(model, data, found, complexity, settings, rng, held=True)
            parts.append(Part("model", f"{model}, cross-validated", found.pmse / expected))
    if any(part.name == "cart" and part.value > _DOUBTFUL for part in parts):
        notes += ("The tree's null value is close to zero, so its ratio only says 'clearly different'.",)
    return Score(METRIC.name, parts[0].value, "lower", 0.0, tuple(parts), notes)


def null_expectation(parameters: int, rows: int, share: float) -> float:
    """``(k - 1) (1 - c)^2 c / N`` for a regression of k parameters.

    >>> round(null_expectation(2, 200, 0.5), 6), round(null_expectation(2, 300, 2 / 3), 9)
    (0.000625, 0.000246914)
    """
    return max(parameters - 1, 1) * (1 - share) ** 2 * share / rows


def null_deviation(parameters: int, rows: int, share: float) -> float:
    """``sqrt(2 (k - 1)) (1 - c)^2 c / N``."""
    return math.sqrt(2 * max(parameters - 1, 1)) * (1 - share) ** 2 * share / rows


def _standardise(found: Propensities) -> float:
    rows, share = len(found.chance), float(found.synthetic.mean())
    expected = null_expectation(found.parameters, rows, share)
    return (found.pmse - expected) / null_deviation(found.parameters, rows, share)


def _estimate_null(
    model: Model,
    data: Stacked,
    found: Propensities,
    complexity: float,
    settings: Settings,
    rng: np.random.Generator,
    *,
    held: bool,
) -> float:
    rows, share = len(found.chance), float(found.synthetic.mean())
    least = null_expectation(2, rows, share)
    if model == "logistic":
        return null_expectation(found.parameters, rows, share)
    values = []
    for _ in range(settings.permutations):
        shuffled = data.relabel(rng.permutation(data.synthetic))
        made = (
            score_held_out(model, shuffled, complexity, rng) if held else score_in_sample(model, shuffled, complexity)
        )
        values.append(made.pmse)
    return max((1 - share) * float(np.mean(values)), least)


METRIC = Metric(
    name="pmse_ratio",
    title="pMSE ratio",
    measure=pmse_ratio,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=None,
    meaning="pMSE divided by what it would be for a perfect synthesis of the same size. Around 1: as good as chance "
    "allows; two real samples of the same people give about 2; 10 or more: clearly different.",
    rows=True,
)
