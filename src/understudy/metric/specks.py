"""`specks`: the Kolmogorov-Smirnov distance of propensity scores."""

from __future__ import annotations

import numpy as np

from understudy.metric.base import Metric, Part, Score
from understudy.metric.propensity import Settings, choose_complexity, score_held_out, score_in_sample, stack_tables
from understudy.metric.tables import Rows
from understudy.schema import Schema


def specks(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """The largest gap between the distributions of propensity scores of real and of synthetic rows."""
    data = stack_tables(real, synthetic, settings, rng)
    parts = []
    for model in settings.models:
        complexity = choose_complexity(model, data, rng)
        parts.append(Part("model", model, score_in_sample(model, data, complexity).distance))
        if settings.cross_validated:
            parts.append(
                Part("model", f"{model}, cross-validated", score_held_out(model, data, complexity, rng).distance)
            )
    return Score(METRIC.name, parts[0].value, "lower", 0.0, tuple(parts), data.notes)


METRIC = Metric(
    name="specks",
    title="SPECKS",
    measure=specks,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=1.0,
    meaning="As pMSE, but asks how far the classifier's verdicts on real and on synthetic rows lie apart. 0: the same "
    "verdicts; 1: every synthetic row is recognised.",
    rows=True,
)
