"""The codebook: each column's values, what was merged or bought, and how noisy it is. Public facts only."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.bundle.formulas import guarded
from understudy.bundle.pages import rendered
from understudy.release import Release
from understudy.report.public import CAUTION, measured_tables, on_axis
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded, Column, Constant, Identifier
from understudy.schema.labels import code_labels

ORIGINS = {
    "public": "from public documents",
    "reviewed": "declared by the custodian",
    "bought": "bought with part of the budget",
}
_COLUMNS = ("column", "title", "type", "value", "label", "missing", "estimate", "noise", "remark", "origin")


@dataclass(frozen=True)
class Line:
    """One value of a column.

    Attributes:
        value: what the files hold: a value, or the range that values are drawn from.
        label: what it means.
        missing: the reason, for a code that means "missing".
        estimate: how many rows have it, by the model; None where it was merged with others.
        remark: what to be careful about.
    """

    value: str
    label: str
    missing: str
    estimate: float | None
    remark: str


@dataclass(frozen=True)
class Described:
    """A column as the codebook describes it.

    Attributes:
        name: its name in the files.
        title: what it means, in a few words.
        type: what kind of column it is.
        origin: what its declared facts rest on.
        noise: the standard deviation of the noise on each count, in rows; None where it was not measured alone.
        notes: what else is worth knowing.
        lines: its values.
    """

    name: str
    title: str
    type: str
    origin: str
    noise: float | None
    notes: tuple[str, ...]
    lines: tuple[Line, ...]


def described(release: Release) -> list[Described]:
    """Every column of the rows, in order."""
    noise = {table.clique[0]: table.sigma for table in measured_tables(release) if len(table.clique) == 1}
    coded = {column.name for column in release.schema.coded}
    return [
        _coded(release, column, noise.get(column.name)) if isinstance(column, Coded) else _made(column)
        for column in release.schema.columns
        if column.name in coded or isinstance(column, Identifier | Constant)
    ]


def codebook_csv(columns: Sequence[Described]) -> str:
    """One line a value, with headings that `understudy schema import` understands."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for column in columns:
        for line in column.lines or (Line("", "", "", None, "; ".join(column.notes)),):
            cells = (column.name, column.title, column.type, line.value, line.label, line.missing)
            numbers = (_rounded(line.estimate), "" if column.noise is None else f"{column.noise:.3g}")
            writer.writerow([guarded(cell) for cell in (*cells, *numbers, line.remark, column.origin)])
    return text.getvalue()


def codebook_html(release: Release, columns: Sequence[Described], rows: int) -> str:
    """The same as one HTML page that works offline and on paper.

    Raises:
        InputError: when jinja2 is not installed.
    """
    return rendered("codebook.html.j2", html=True, release=release, columns=columns, rows=rows, caution=CAUTION)


def _coded(release: Release, column: Coded, noise: float | None) -> Described:
    labels, groups = code_labels(column), _groups(release, column)
    counts = np.maximum(np.asarray(release.model.project((column.name,)), dtype=np.float64).reshape(-1), 0.0)
    joined = on_axis(release, column)
    places = 0 if joined is None else column.ordinary
    lines: dict[int, Line] = {}
    for place, group in enumerate(groups):
        for code in group:
            estimate = float(counts[place]) if len(group) == 1 else None
            estimate = float(joined[code]) if joined is not None and code < places else estimate
            lines[code] = _line(column, code, labels[code], estimate, noise)
    merged = [group for group in groups if len(group) > 1 and group[0] >= places]
    notes = [
        f"{len(group)} values were too rare to tell apart: together about {counts[groups.index(group)]:,.0f} rows"
        for group in merged
    ]
    notes += (
        [] if joined is None else ["beside other columns, neighbouring ranges with few rows are told apart less well"]
    )
    notes += ["values are drawn evenly inside each range"] * (isinstance(column, AxisColumn) and _binned(column))
    notes += [] if noise is not None else ["not measured by itself: its counts follow from tables with other columns"]
    kept = [lines[code] for code in sorted(lines) if not _unseen(column, code, lines[code])]
    return Described(
        column.name,
        column.title or column.description or "",
        _type(column),
        ORIGINS[column.origin],
        noise,
        tuple(notes),
        tuple(kept),
    )


def _made(column: Column) -> Described:
    words = "fresh keys, one for each row; they mean nothing" if isinstance(column, Identifier) else "a constant"
    return Described(
        column.name, column.title or column.description or "", column.kind, ORIGINS[column.origin], None, (words,), ()
    )


def _groups(release: Release, column: Coded) -> list[list[int]]:
    if column.name in release.recoding.columns:
        return [[int(code) for code in group] for group in release.recoding.merged(column.name)]
    return [[code] for code in range(column.size)]


def _line(column: Coded, code: int, label: str, estimate: float | None, noise: float | None) -> Line:
    remark = ""
    if estimate is None:
        remark = "too rare to tell apart"
    elif noise is not None and estimate < CAUTION * noise:
        remark = "mostly noise: do not analyse alone"
    if code < column.ordinary:
        value, meaning = _value(column, code, label)
        return Line(value, meaning, "", estimate, remark)
    if code < column.ordinary + len(column.reasons):
        reason = column.reasons[code - column.ordinary]
        tokens = [token for token, why in column.missing.items() if why == reason]
        return Line(tokens[0], "", reason, estimate, remark)
    if code == column.null_code:
        return Line("", "", "missing", estimate, remark)
    other = column.other if isinstance(column, Categorical) and column.type == "string" else ""
    return Line(other, "any value that is not listed", "", estimate, remark)


def _value(column: Coded, code: int, label: str) -> tuple[str, str]:
    """What the files hold for an ordinary code, and what it means."""
    if isinstance(column, Categorical):
        value = str(column.values[code])
        return value, "" if label == value else label
    if isinstance(column, Boolean):
        return (column.true_values if code else column.false_values)[0], ""
    return label.replace(",", "") if " to " in label else label, ""


def _unseen(column: Coded, code: int, line: Line) -> bool:
    """The code of unknown values is left out where the model has next to none of them."""
    return code >= column.ordinary and line.estimate is not None and line.estimate < 0.5 and line.missing == ""


def _binned(column: AxisColumn) -> bool:
    sizes: NDArray[Any] = np.asarray(column.axis.upper) - np.asarray(column.axis.lower)
    return bool((sizes > (column.axis.grain or 0)).any())


def _type(column: Coded) -> str:
    return getattr(column, "type", column.kind) if column.kind == "categorical" else column.kind


def _rounded(estimate: float | None) -> str:
    return "" if estimate is None else f"{estimate:.0f}"
