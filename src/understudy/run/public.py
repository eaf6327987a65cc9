"""The public table of a run: its rows, and rows of the private model, weighted to fit the measurements.

Public rows may or may not resemble the private ones. So several models are made, with and without public rows, their
errors are measured, and one with public rows is used only if its noisy error is clearly smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism import Fit
from understudy.model.generate import re_express_all
from understudy.model.weighted import WeightedRows, find_possible, tilt
from understudy.progress import Progress, Step
from understudy.run.quality import Rating, measure_quality
from understudy.schema import PrivacyUnit, Schema
from understudy.source import Source
from understudy.source.memory import encode_rows
from understudy.source.read import collect_table

PRIORS = ((1.0, True), (1.0, False), (0.9, False))
"""For each candidate, the prior weight of all public rows together (the rest is on rows of the private model), and
whether the public rows count as a sample of the same population, so that noise hardly changes their weights."""

CANDIDATES = 1 + len(PRIORS)
"""The private model itself, and one weighting for each prior."""

SHARE = 0.0075
"""The part of the budget that measures the error of one candidate."""

_GAIN = 0.1  # public rows are used if they lower the noisy error by this part: noise then seldom picks useless ones

_MOST_ROWS = 50_000  # of either kind: more rows add little, and every step of the fit processes all of them


@dataclass(frozen=True)
class PublicRows:
    """Rows that the custodian declares public, coded by the private table's schema.

    Attributes:
        name: what the receipt calls the table.
        codes: one array by column.
    """

    name: str
    codes: dict[str, NDArray[Any]]

    @classmethod
    def read(cls, table: Any, name: str, schema: Schema) -> PublicRows:
        """Read and code a public table; of a very large one, every k-th row.

        Raises:
            InputError: if the table cannot be read, lacks a column, or holds no rows.
        """
        if isinstance(table, Source):
            raise SettingError("public: give the table as a frame or a file: its rows are needed, not only counts")
        as_rows = replace(schema, privacy_unit=PrivacyUnit(), rows=None)
        codes = encode_rows(collect_table(table, as_rows), as_rows, exact=False).codes
        rows = len(next(iter(codes.values())))
        if not rows:
            raise SettingError("public: the public table holds no rows that the schema accepts; give another one")
        kept = np.linspace(0, rows - 1, min(rows, _MOST_ROWS)).astype(np.int64)
        return cls(name, {column: array[kept] for column, array in codes.items()})


def choose_model(
    table: PrivateTable, fit: Fit, public: PublicRows, schema: Schema, workload: str, progress: Progress
) -> Fit:
    """Return the private model, or the best of its combinations with public rows if their error is a tenth smaller.

    **Privacy.** Weighting the rows is post-processing. The error of each candidate is one question to the gate, charged
    `SHARE` of the budget.

    Args:
        table: the rows behind the gate.
        fit: the private model.
        public: the public rows.
        schema: what is public about the columns.
        workload: which marginals are compared.
        progress: called with each step.
    """
    progress(Step("estimate", None, f"weights for the rows of {public.name}"))
    candidates = [fit, *_weigh(fit, public, schema, table.rows_public)]
    progress(Step("measure", None, f"the errors of {len(candidates)} models"))
    errors = [measure_quality(table, candidate, Rating(SHARE, workload)).value for candidate in candidates]
    best = candidates[int(np.argmin([(1 - _GAIN) * errors[0], *errors[1:]]))]
    used = best.model if isinstance(best.model, WeightedRows) else None
    entry: dict[str, Any] = {
        "measured": 0,
        "share": 0.0,
        "public": public.name,
        "errors": [float(error) for error in errors],
        "effective_rows": None if used is None else used.effective_rows,
    }
    return replace(best, rounds=[*best.rounds, entry])


def _weigh(fit: Fit, public: PublicRows, schema: Schema, total: float | None) -> Sequence[Fit]:
    """Return the candidates with public rows, one for each prior; none if rules of the schema forbid every row."""
    domain, recoding = fit.model.domain, fit.recoding
    measured = re_express_all(schema.domain, fit.measurements, recoding, schema.code_groups, total=total)
    size = int(np.clip(round(fit.model.total), 1, _MOST_ROWS))
    drawn = fit.model.sample(size, np.random.default_rng(0))
    codes = {
        column: np.concatenate([recoding.apply(column, public.codes[column]), drawn[column]]).astype(np.int64)
        for column in domain
    }
    given = len(next(iter(public.codes.values())))
    is_public = np.arange(given + size) < given
    possible = find_possible(domain, codes, given + size)
    made = []
    for prior, alike in PRIORS:
        weights = np.where(is_public, prior / given, (1 - prior) / size) * possible
        kept = weights > 0
        if kept.any():
            rows = {column: array[kept] for column, array in codes.items()}
            model = tilt(domain, rows, weights[kept], measured, total=fit.model.total, trust=given * alike)
            made.append(replace(fit, model=model, generator=None))
    return made
