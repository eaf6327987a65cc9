"""The codebook and `datapackage.json`: each column's values, labels, merged values and noise. Public facts only."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.bundle.rows import MARK, guard_cell
from understudy.files import file_digest
from understudy.release import Release
from understudy.report.page import load_template
from understudy.report.public import CAUTION, count_by_model, list_measured_marginals, spread_on_axis
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded, Column, Constant, Difference, Identifier

ORIGINS = {
    "public": "from public documents",
    "reviewed": "declared by the custodian",
    "discovered": "discovered with part of the budget",
}
_COLUMNS = ("column", "title", "type", "value", "label", "missing", "estimate", "noise", "remark", "origin")


@dataclass(frozen=True)
class CodebookLine:
    """One value of a column in the codebook.

    Attributes:
        value: the value in the files, or the range that values are drawn from.
        label: its meaning.
        missing: the reason, for a code that means "missing".
        estimate: how many rows have it, by the model; None if it was merged with others.
        remark: a warning, if any.
    """

    value: str
    label: str
    missing: str
    estimate: float | None
    remark: str


@dataclass(frozen=True)
class DescribedColumn:
    """A column in the codebook.

    Attributes:
        name: its name in the files.
        title: its meaning, in a few words.
        type: its type.
        origin: the source of its declared facts.
        noise: the standard deviation of the noise on each count, in rows; None if it was not measured alone.
        notes: further remarks.
        lines: its values.
    """

    name: str
    title: str
    type: str
    origin: str
    noise: float | None
    notes: tuple[str, ...]
    lines: tuple[CodebookLine, ...]


def describe_columns(release: Release) -> list[DescribedColumn]:
    """Describe every column of the rows, in order."""
    noise = {table.clique[0]: table.sigma for table in list_measured_marginals(release) if len(table.clique) == 1}
    coded = {column.name for column in release.schema.coded}
    return [
        _describe_coded(release, column, noise.get(column.name))
        if isinstance(column, Coded)
        else _describe_generated(column)
        for column in release.schema.columns
        if column.name in coded or isinstance(column, Identifier | Constant | Difference)
    ]


def format_codebook(columns: Sequence[DescribedColumn]) -> str:
    """Format the codebook as CSV, one line per value, with headings that `understudy schema import` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for column in columns:
        for line in column.lines or (CodebookLine("", "", "", None, "; ".join(column.notes)),):
            cells = (column.name, column.title, column.type, line.value, line.label, line.missing)
            estimate = "" if line.estimate is None else f"{line.estimate:.0f}"
            noise = "" if column.noise is None else f"{column.noise:.3g}"
            writer.writerow([guard_cell(cell) for cell in (*cells, estimate, noise, line.remark, column.origin)])
    return text.getvalue()


def render_codebook(release: Release, columns: Sequence[DescribedColumn], rows: int) -> str:
    """Format the codebook as one HTML page that works offline and on paper."""
    template = load_template("codebook.html.j2", "understudy.bundle")
    return f"{template.render(release=release, columns=columns, rows=rows, caution=CAUTION)}\n"


def _describe_coded(release: Release, column: Coded, noise: float | None) -> DescribedColumn:
    labels, groups = column.code_labels(), _list_groups(release, column)
    counts = count_by_model(release, column)
    joined = spread_on_axis(release, column)
    places = 0 if joined is None else column.ordinary
    lines: dict[int, CodebookLine] = {}
    for place, group in enumerate(groups):
        for code in group:
            estimate = float(counts[place]) if len(group) == 1 else None
            estimate = float(joined[code]) if joined is not None and code < places else estimate
            lines[code] = _make_line(column, code, labels[code], estimate, noise)
    merged = [group for group in groups if len(group) > 1 and group[0] >= places]
    notes = [
        f"{len(group)} values were too rare to tell apart: together about {counts[groups.index(group)]:,.0f} rows"
        for group in merged
    ]
    notes += (
        []
        if joined is None
        else ["together with other columns, neighbouring ranges with few rows are distinguished less well"]
    )
    notes += ["values are drawn evenly inside each range"] * (isinstance(column, AxisColumn) and _has_ranges(column))
    notes += [] if noise is not None else ["not measured by itself: its counts follow from tables with other columns"]
    kept = [lines[code] for code in sorted(lines) if not _is_unseen(column, code, lines[code])]
    return DescribedColumn(
        column.name,
        column.title or column.description or "",
        _type(column),
        ORIGINS[column.origin],
        noise,
        tuple(notes),
        tuple(kept),
    )


def _describe_generated(column: Column) -> DescribedColumn:
    words = "fresh keys, one for each row; they mean nothing" if isinstance(column, Identifier) else "a constant"
    words = f"days: {' minus '.join(column.of)}" if isinstance(column, Difference) else words
    return DescribedColumn(
        column.name, column.title or column.description or "", column.kind, ORIGINS[column.origin], None, (words,), ()
    )


def _list_groups(release: Release, column: Coded) -> list[list[int]]:
    if column.name in release.recoding.columns:
        return [[int(code) for code in group] for group in release.recoding.merged_codes(column.name)]
    return [[code] for code in range(column.size)]


def _make_line(column: Coded, code: int, label: str, estimate: float | None, noise: float | None) -> CodebookLine:
    remark = ""
    if estimate is None:
        remark = "too rare to tell apart"
    elif noise is not None and estimate < CAUTION * noise:
        remark = "mostly noise: do not analyse alone"
    if code < column.ordinary:
        value, meaning = _describe_value(column, code, label)
        return CodebookLine(value, meaning, "", estimate, remark)
    if code < column.ordinary + len(column.reasons):
        reason = column.reasons[code - column.ordinary]
        tokens = [token for token, why in column.missing.items() if why == reason]
        return CodebookLine(tokens[0], "", reason, estimate, remark)
    if code == column.null_code:
        return CodebookLine("", "", "missing", estimate, remark)
    other = column.other if isinstance(column, Categorical) and column.type == "string" else ""
    return CodebookLine(other, "any value that is not listed", "", estimate, remark)


def _describe_value(column: Coded, code: int, label: str) -> tuple[str, str]:
    """Return the value in the files for an ordinary code, and its meaning."""
    if isinstance(column, Categorical):
        value = str(column.values[code])
        return value, "" if label == value else label
    if isinstance(column, Boolean):
        return (column.true_values if code else column.false_values)[0], ""
    return label.replace(",", "") if " to " in label else label, ""


def _is_unseen(column: Coded, code: int, line: CodebookLine) -> bool:
    """Return whether to leave out the code of unknown values, because the model has next to none of them."""
    return code >= column.ordinary and line.estimate is not None and line.estimate < 0.5 and line.missing == ""


def _has_ranges(column: AxisColumn) -> bool:
    sizes: NDArray[Any] = np.asarray(column.axis.upper) - np.asarray(column.axis.lower)
    return bool((sizes > (column.axis.grain or 0)).any())


def _type(column: Coded) -> str:
    return getattr(column, "type", column.kind) if column.kind == "categorical" else column.kind


# -- `datapackage.json`: a Frictionless Data Package that describes each file and column.


_MEDIA = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".dta": "application/x-stata",
    ".sav": "application/x-spss-sav",
}


def make_data_package(release: Release, files: Sequence[Path], rows: int, *, mark: bool) -> dict[str, Any]:
    """Make the content of the data package; `files` are the rows in each format, the CSV first if there is one."""
    title = release.title
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": _slug(title),
        "title": title,
        "description": "Synthetic rows, made with differential privacy. No row is a person. "
        f"Guarantee: {release.receipt.guarantee()}.",
        "resources": [_describe_resource(release, path, rows, mark=mark) for path in files],
        "understudy": {"guarantee": release.receipt.guarantee(), "mechanism": release.mechanism},
    }


def _describe_resource(release: Release, path: Path, rows: int, *, mark: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": "rows" if path.suffix == ".csv" else f"rows-{path.suffix[1:]}",
        "path": path.name,
        "format": path.suffix[1:],
        "mediatype": _MEDIA[path.suffix],
        "bytes": path.stat().st_size,
        "hash": f"sha256:{file_digest(path)}",
    }
    if path.suffix != ".csv":
        return facts
    return facts | {
        "type": "table",
        "rows": rows,
        "encoding": "utf-8",
        "dialect": {"delimiter": ",", "quoteChar": '"', "header": True},
        "schema": make_table_schema(release, mark=mark),
    }


def make_table_schema(release: Release, *, mark: bool) -> dict[str, Any]:
    """Make the Table Schema of the CSV file: standard keys only, missing codes per field."""
    fields = [_describe_field(field) for field in release.schema.to_dict()["fields"] if _is_written(release, field)]
    if mark:
        fields.append({"name": MARK, "type": "integer", "title": "1: a synthetic row", "constraints": {"enum": [1]}})
    return {"fields": fields, "missingValues": [""]}


def _is_written(release: Release, field: dict[str, Any]) -> bool:
    kind = field.get("understudy", {}).get("kind")
    unit = release.schema.privacy_unit.column
    return bool(kind != "drop" and (field["name"] != unit or kind == "id"))


def _describe_field(field: dict[str, Any]) -> dict[str, Any]:
    ours = field.get("understudy", {})
    written = {key: value for key, value in field.items() if key != "understudy"} | {"name": guard_cell(field["name"])}
    if written.get("type") == "duration":  # the standard's durations are written P1DT2H, the file's are seconds
        written["type"] = "integer"
        written["title"] = f"{written.get('title', field['name'])} (seconds)"
        written.pop("constraints", None)
    if tokens := list(ours.get("missing", {})):
        written["missingValues"] = ["", *tokens]
    if "categories" in written:
        written["categories"] = [_guard_category(entry) for entry in written["categories"]]
        written["categories"] += _list_other(ours, written)
    return written


def _guard_category(entry: Any) -> Any:
    if isinstance(entry, dict):
        return entry | {"value": _guard_category(entry["value"])}
    return guard_cell(entry) if isinstance(entry, str) else entry


def _list_other(ours: dict[str, Any], field: dict[str, Any]) -> list[str]:
    """Return the text of unknown and rare values, unless it is a listed value."""
    values = [entry["value"] if isinstance(entry, dict) else entry for entry in field["categories"]]
    name = guard_cell(ours.get("other", "other"))
    wanted = field.get("type") == "string" and ours.get("on_unknown", "other") == "other" and name not in values
    return [name] if wanted else []


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "stand-in"
