"""Import a schema from a data dictionary (column, value, label) in CSV or XLSX.

Public documents only, no row is read.
"""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from understudy.errors import InputError
from understudy.schema.exchange import Imported
from understudy.schema.sniff import sniff

_NAMES = {
    "column": ("column", "variable", "field", "name", "column name", "variable name", "field name"),
    "value": ("value", "code", "values", "codes"),
    "label": ("label", "meaning", "value label", "description", "text"),
    "type": ("type", "data type", "format"),
    "missing": ("missing", "missing reason", "reason"),
    "title": ("title", "column label", "variable label", "question"),
}
_RANGE = re.compile(r"^\s*(-?[0-9]+(?:\.[0-9]+)?)\s*(?:\.\.+|to|\u2013|-)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*$")
_WHOLE = re.compile(r"^-?(0|[1-9][0-9]*)$")


def read_dictionary(path: Path) -> Imported:
    """Read a schema from a dictionary with one line per value.

    Column, value, label, and optionally type, title, missing.

    A value like ``17..90`` declares bounds; a line with a ``missing`` cell declares a missing code and its reason. A
    column without values is reported as a gap.

    Raises:
        InputError: when the file cannot be read or has no column and value headings.
    """
    rows = read_cells(path)
    places = _find_headings([cell.strip().lower() for cell in rows[0]] if rows else [])
    if "column" not in places or "value" not in places:
        raise InputError(
            f"{path}: the first line must name a column `column` and a column `value`; rename the headings"
        )
    columns: dict[str, list[dict[str, str]]] = {}
    current = ""
    for row in rows[1:]:
        line = {key: row[place].strip() if place < len(row) else "" for key, place in places.items()}
        current = line["column"] or current  # spreadsheets name a column once and list its values below
        columns.setdefault(current, []).append(line)
    fields, gaps = [], ["`privacy_unit`: a dictionary does not say who is protected"]
    for name, lines in columns.items():
        field, gap = _field(lines)
        fields.append({"name": name} | field)
        gaps += [f"column {name!r}: {gap}"] if gap else []
    return Imported({"fields": fields, "understudy": {}}, tuple(gaps))


def _find_headings(headings: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, names in _NAMES.items():
        for place, heading in enumerate(headings):
            if heading in names and key not in found and place not in found.values():
                found[key] = place
    return found


def _field(lines: list[dict[str, str]]) -> tuple[dict[str, Any], str]:
    title = next((line["title"] for line in lines if line.get("title")), None)
    head: dict[str, Any] = {"title": title} if title else {}
    missing = {line["value"]: line["missing"] for line in lines if line.get("missing") and line["value"]}
    ours: dict[str, Any] = {"understudy": {"missing": missing}} if missing else {}
    named = [line for line in lines if line["value"] and line["value"] not in missing]
    ranges = [match for line in named if (match := _RANGE.match(line["value"]))]
    if ranges:
        return head | _bounds(ranges, named, missing), ""
    if not named:
        kind = next((line["type"].lower() for line in lines if line.get("type")), "string")
        return head | {"type": kind} | ours, "it lists no values; add `categories` or bounds, or `kind: drop`"
    values = list(dict.fromkeys(line["value"] for line in named))
    declared = next((line["type"].lower() for line in lines if line.get("type")), "")
    whole = all(_WHOLE.match(value) for value in values) and declared not in ("string", "text", "char")
    labels = {line["value"]: line.get("label", "") for line in named}
    shown = [
        {"value": int(value) if whole else value, "label": labels[value]}
        if labels[value]
        else int(value)
        if whole
        else value
        for value in values
    ]
    return head | {"type": "integer" if whole else "string", "categories": shown} | ours, ""


def _bounds(ranges: list[re.Match[str]], named: list[dict[str, str]], missing: dict[str, str]) -> dict[str, Any]:
    """Return bounds from the ranges; single values become spikes."""
    numbers = [number for match in ranges for number in match.groups()]
    whole = all(_WHOLE.match(number) for number in numbers)
    convert = int if whole else float
    singles = [convert(line["value"]) for line in named if _WHOLE.match(line["value"])]
    ends = [convert(number) for number in numbers] + singles
    ours: dict[str, Any] = ({"missing": missing} if missing else {}) | ({"spikes": singles} if singles else {})
    field: dict[str, Any] = {"type": "integer" if whole else "number"}
    field["constraints"] = {"minimum": min(ends), "maximum": max(ends)}
    return field | ({"understudy": ours} if ours else {})


# -- Cells of a CSV file, or of the first sheet of an XLSX file ------------------------------------------------------


_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LARGEST = 1 << 26


def read_cells(path: Path) -> list[list[str]]:
    """Read all rows as text.

    Raises:
        InputError: when the file cannot be read.
    """
    if path.suffix.lower() == ".xlsx":
        return _xlsx(path)
    dialect, _ = sniff(path)
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    try:
        with path.open(encoding=encoding, newline="") as file:
            rows = csv.reader(file, delimiter=dialect.delimiter, quotechar=dialect.quote)
            return [row for row in rows if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise InputError(f"{path} cannot be read as CSV; save it again as CSV in UTF-8") from None


def _xlsx(path: Path) -> list[list[str]]:
    try:
        with zipfile.ZipFile(path) as book:
            shared = _shared_strings(book) if "xl/sharedStrings.xml" in book.namelist() else []
            sheets = sorted(name for name in book.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", name))
            rows = [_row(row, shared) for row in _tree(book, sheets[0]).iter(f"{_MAIN}row")]
    except (OSError, zipfile.BadZipFile, ElementTree.ParseError, KeyError, IndexError, ValueError):
        raise InputError(f"{path} cannot be read as XLSX; save it again, or as CSV") from None
    return [row for row in rows if any(cell.strip() for cell in row)]


def _tree(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    if book.getinfo(name).file_size > _LARGEST:
        raise ValueError("too large for a data dictionary")
    return ElementTree.fromstring(book.read(name))  # noqa: S314  (expat limits entity expansion; the size is bounded)


def _shared_strings(book: zipfile.ZipFile) -> list[str]:
    return ["".join(text.text or "" for text in item.iter(f"{_MAIN}t")) for item in _tree(book, "xl/sharedStrings.xml")]


def _row(row: ElementTree.Element, shared: list[str]) -> list[str]:
    cells: list[str] = []
    for cell in row.iter(f"{_MAIN}c"):
        place = _column_index(cell.get("r", ""), len(cells))
        cells += [""] * (place - len(cells)) + [_value(cell, shared)]
    return cells


def _column_index(reference: str, default: int) -> int:
    """Return the column number of a reference like "C7"; XLSX files leave out empty cells."""
    letters = re.match(r"[A-Z]+", reference)
    if letters is None:
        return default
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - ord("A") + 1
    return place - 1


def _value(cell: ElementTree.Element, shared: list[str]) -> str:
    kind = cell.get("t")
    if kind == "inlineStr":
        return "".join(text.text or "" for text in cell.iter(f"{_MAIN}t"))
    text = cell.findtext(f"{_MAIN}v") or ""
    return shared[int(text)] if kind == "s" else text
