"""The cells of a CSV file or of the first sheet of an XLSX file, as text: enough for a data dictionary."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

from understudy.errors import InputError
from understudy.schema.drafting.sniff import sniff

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LARGEST = 1 << 26


def read_cells(path: Path) -> list[list[str]]:
    """All rows as text.

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
            shared = _shared(book) if "xl/sharedStrings.xml" in book.namelist() else []
            sheets = sorted(name for name in book.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", name))
            rows = [_row(row, shared) for row in _tree(book, sheets[0]).iter(f"{_MAIN}row")]
    except (OSError, zipfile.BadZipFile, ElementTree.ParseError, KeyError, IndexError, ValueError):
        raise InputError(f"{path} cannot be read as XLSX; save it again, or as CSV") from None
    return [row for row in rows if any(cell.strip() for cell in row)]


def _tree(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    if book.getinfo(name).file_size > _LARGEST:
        raise ValueError("too large for a data dictionary")
    return ElementTree.fromstring(book.read(name))  # noqa: S314  (expat limits entity expansion; the size is bounded)


def _shared(book: zipfile.ZipFile) -> list[str]:
    return ["".join(text.text or "" for text in item.iter(f"{_MAIN}t")) for item in _tree(book, "xl/sharedStrings.xml")]


def _row(row: ElementTree.Element, shared: list[str]) -> list[str]:
    cells: list[str] = []
    for cell in row.iter(f"{_MAIN}c"):
        place = _place(cell.get("r", ""), len(cells))
        cells += [""] * (place - len(cells)) + [_value(cell, shared)]
    return cells


def _place(reference: str, default: int) -> int:
    """The column number of a reference like "C7"; cells that are empty are left out of the file."""
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
