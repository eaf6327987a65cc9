"""Answers to counting queries, each with an interval that holds with a stated confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from understudy.bounds import Evidence, count_interval
from understudy.errors import SettingError
from understudy.release.conditions import Condition, conditions, parsed
from understudy.release.evidence import evidence_of

if TYPE_CHECKING:
    from understudy.release.artefact import Release

_LARGEST = 1 << 26

_WORDS = {
    "measured": "the noise of a measured marginal that has all these columns",
    "selected": "selections that preferred another marginal",
    "contained": "measured marginals of some of these columns: the count is at most theirs",
    "unknown": "no bound is known",
}


@dataclass(frozen=True)
class Answer:
    """A count, or a share of the rows, by the model, and where the true one lies.

    Attributes:
        value: the model's answer.
        low: the true one is at least this, with the stated confidence.
        high: and at most this; None where nothing is known.
        bound: how far the model's answer can be from the true one; None where nothing is known.
        source: where the interval comes from, in words.
        confidence: the probability with which it holds, over the mechanism's noise.
        rows_value: the same query on given synthetic rows, scaled to the model's total; None without rows.
        rows_bound: how far that can be from the true answer: the bound, and the rows' distance from the model.
        left_out: which rows of the true table are not counted, in words, since the release does not use them; None
            where it uses all.
    """

    value: float
    low: float
    high: float | None
    bound: float | None
    source: str
    confidence: float
    rows_value: float | None = None
    rows_bound: float | None = None
    left_out: str | None = None


def check_confidence(confidence: Any) -> None:
    """Refuse what is no probability.

    Raises:
        SettingError: saying what is one.
    """
    if not isinstance(confidence, Real) or not 0 < cast(float, confidence) < 1:
        raise SettingError("confidence must lie between 0 and 1, such as 0.95")


def answer(
    release: Release,
    query: str | Mapping[str, Any],
    *,
    confidence: float = 0.95,
    share: bool = False,
    rows: Any = None,
) -> Answer:
    """The answer to one query; see `Release.answer`."""
    check_confidence(confidence)
    found = conditions(release.schema, parsed(query) if isinstance(query, str) else query)
    evidence = evidence_of(release)
    known = evidence.rows
    half = share and known is None  # the number of rows is then uncertain as well
    level = 1 - (1 - confidence) / 2 if half else confidence
    inner, outer = {c.column: c.inner for c in found}, {c.column: c.outer for c in found}
    interval = count_interval(evidence, inner, outer, confidence=level)
    value, low, high = _count(evidence, found), interval.low, interval.high
    if share:
        least, most = (float(known), float(known)) if known is not None else _rows(evidence, level)
        value, low = value / evidence.model.total, low / most
        high = min(1.0, high / least) if least > 0 else 1.0
    finite = math.isfinite(high)
    on_rows = None if rows is None else _on_rows(release, found, rows, 1.0 if share else evidence.model.total)
    return Answer(
        value=value,
        low=low,
        high=high if finite else None,
        bound=max(high - value, value - low) if finite else None,
        source=_WORDS[interval.source],
        confidence=confidence,
        rows_value=on_rows,
        rows_bound=max(high - on_rows, on_rows - low) if finite and on_rows is not None else None,
        left_out=release.schema.left_out,
    )


def rows_known(evidence: Evidence, confidence: float = 0.999) -> float | None:
    """The most rows that the true table can have; None where nothing tells."""
    high = count_interval(evidence, {}, {}, confidence=confidence).high
    return high if math.isfinite(high) else None


def _count(evidence: Evidence, found: list[Condition]) -> float:
    """The model's expected number of rows; part of a merged code is taken to be spread evenly over what it holds."""
    domain = evidence.model.domain
    clique = tuple(condition.column for condition in found)
    if domain.cells(clique) > _LARGEST:
        raise SettingError(f"query: the table of {clique} has {domain.cells(clique)} cells; ask about fewer columns")
    table = evidence.model.project(clique)
    for condition in reversed(found):
        merged = evidence.merged.get(condition.column)
        part = condition.part
        if merged is not None:
            size = domain[condition.column]
            part = np.bincount(merged, weights=part, minlength=size) / np.bincount(merged, minlength=size)
        table = table @ part
    return float(table)


def _rows(evidence: Evidence, confidence: float) -> tuple[float, float]:
    interval = count_interval(evidence, {}, {}, confidence=confidence)
    return max(interval.low, 1.0), max(interval.high, 1.0)


def _on_rows(release: Release, found: list[Condition], rows: Any, total: float) -> float:
    codes = release.schema.encode(rows).codes
    inside = np.ones(len(next(iter(codes.values()))))
    for condition in found:
        inside = inside * condition.part[codes[condition.column]]
    return float(inside.mean()) * total
