"""`pmse`: the mean squared error of propensity scores."""

from __future__ import annotations

import numpy as np

from understudy.metric.base import Metric, Part, Score
from understudy.metric.propensity import Settings, choose_complexity, score_held_out, score_in_sample, stack_tables
from understudy.metric.tables import Rows
from understudy.schema import Schema


def pmse(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """``(1/N) sum (p - c)^2``, p the estimated chance that a row is synthetic and c the share of synthetic rows."""
    data = stack_tables(real, synthetic, settings, rng)
    parts = []
    for model in settings.models:
        complexity = choose_complexity(model, data, rng)
        parts.append(Part("model", model, score_in_sample(model, data, complexity).pmse))
        if settings.cross_validated:
            parts.append(Part("model", f"{model}, cross-validated", score_held_out(model, data, complexity, rng).pmse))
        if model == "cart":
            parts.append(Part("setting", "complexity", complexity))
    return Score(METRIC.name, parts[0].value, "lower", 0.0, tuple(parts), data.notes)


METRIC = Metric(
    name="pmse",
    title="pMSE",
    measure=pmse,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=0.25,
    meaning="Trains a classifier to tell synthetic rows from real ones. 0: it cannot. 0.25 (for equal sizes): it "
    "always can. The logistic regression sees single columns, the tree sees combinations.",
    rows=True,
)
