"""Guess the dialect of a text file from its first lines: encoding, separator, quote, decimal mark, header."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from understudy.errors import InputError
from understudy.schema.text import Dialect

_T = TypeVar("_T")

_PEEK = 1 << 17
_LINES = 200
_FEW = 10
"""With at most this many rows, nothing is learned from values that recur."""
_NUMBER = re.compile(r"^\s*[+-]?[0-9]+([.,][0-9]+)?\s*$")
COMMA_NUMBER = re.compile(r"^\s*[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+),[0-9]+\s*$")
_POINT_NUMBER = re.compile(r"^\s*[+-]?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)\.[0-9]+\s*$")


def sniff(path: Path, header: bool | None = None) -> tuple[Dialect, list[str]]:
    """Guess the dialect of a CSV file, and return it with the names of its columns.

    Without a header, columns are called field1, field2, ...; with one, a name may be empty.

    Args:
        path: the file.
        header: whether its first line names the columns; by default that is guessed as well.

    **Privacy.** Reads rows: what it finds is part of a draft, for the custodian to look at.

    Raises:
        InputError: if the file cannot be read or holds no table.
    """
    text, encoding = _read_start(path)
    lines = [line for line in io.StringIO(text, newline="") if line.strip()][:_LINES]
    if not lines:
        raise InputError(f"{path} is empty; give a file with at least one line")
    quote = guess_quote(lines)
    delimiter = _guess_delimiter(lines, quote)
    rows = [row for row in csv.reader(lines, delimiter=delimiter, quotechar=quote) if row]
    header = _has_header(rows) if header is None else header
    names = rows[0] if header else [f"field{index + 1}" for index in range(len(rows[0]))]
    decimal = _guess_decimal(rows, delimiter)
    group = _guess_group(rows, decimal)
    found = Dialect(delimiter=delimiter, decimal=decimal, group=group, encoding=encoding, header=header, quote=quote)
    return found, names


def guess_quote(lines: list[str]) -> str:
    """Guess the quote: an apostrophe if most lines have a cell between apostrophes and no cell is in double quotes."""
    single, double = (
        sum(bool(re.search(rf"(^|[,;\t|]){mark}[^{mark}]*{mark}([,;\t|]|\s*$)", line)) for line in lines)
        for mark in "'\""
    )
    return "'" if not double and 2 * single > len(lines) else '"'


def read_beginning(path: Path, read: Callable[[io.BufferedIOBase], _T]) -> _T:
    """Apply `read` to the beginning of a file, which may be compressed.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            return read(file)
    except (OSError, EOFError):
        raise InputError(f"{path} cannot be read; check the path, and that the file is whole") from None


def _read_start(path: Path) -> tuple[str, str]:
    start = read_beginning(path, lambda file: file.read(_PEEK))
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if start.startswith(mark):
            return _whole_lines(start.decode(encoding, errors="ignore").lstrip("\ufeff"), len(start)), encoding
    try:
        text = start[: _utf8_end(start)].decode("utf-8")
    except UnicodeDecodeError:
        return _whole_lines(start.decode("windows-1252", errors="replace"), len(start)), "windows-1252"
    if len(start) == _PEEK and not read_beginning(path, _is_utf8):  # the first non-ASCII character may come late
        if not text.isascii():
            raise InputError(f"{path}: begins in UTF-8 and continues in another encoding; save it again as UTF-8")
        return _whole_lines(text, len(start)), "windows-1252"
    return _whole_lines(text, len(start)), "utf-8"


def _is_utf8(file: io.BufferedIOBase) -> bool:
    """Return whether a whole file is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while block := file.read(_PEEK):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _utf8_end(start: bytes) -> int:
    """Return where a peek can be cut without splitting a character."""
    return start.rfind(b"\n") + 1 if len(start) == _PEEK else len(start)


def _whole_lines(text: str, size: int) -> str:
    return text[: text.rfind("\n") + 1] if size == _PEEK else text


def _guess_delimiter(lines: list[str], quote: str) -> str:
    """Guess the separator: the one that gives most lines the same number of cells, preferring more cells."""
    best, best_score = ",", 0.0
    for candidate in (",", ";", "\t", "|", " "):
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=candidate, quotechar=quote))
        width, count = widths.most_common(1)[0]
        score = 0.0 if width < 2 else count / len(lines) * (2.0 - 1.0 / width) - (0.2 if candidate == " " else 0.0)
        if score > best_score:
            best, best_score = candidate, score
    return best


def _has_header(rows: list[list[str]]) -> bool:
    """Return whether the first line is a header: it has no numbers, and its cells differ or head columns of numbers.

    Some headings may be empty. A line with numbers or repetitions is still a header if its words never recur below in
    columns where others do.
    """
    first = [cell.strip() for cell in rows[0]]
    cells_with_text = [cell for cell in first if cell]
    if not cells_with_text:
        return False
    below = [[row[place].strip() for row in rows[1:] if place < len(row)] for place in range(len(first))]
    if not any(map(_NUMBER.match, cells_with_text)) and (
        len(set(cells_with_text)) == len(cells_with_text)
        or any(cells and all(map(_NUMBER.match, cells)) for cells in below)
    ):
        return True
    words = [place for place, cell in enumerate(first) if cell and not _NUMBER.match(cell)]
    if len(rows) <= _FEW or any(first[place] in below[place] for place in words):
        return False
    return any(2 * len(set(below[place])) <= len(below[place]) for place in words)


def _guess_decimal(rows: list[list[str]], delimiter: str) -> str:
    cells = [cell for row in rows for cell in row]
    commas = sum(bool(COMMA_NUMBER.match(cell)) for cell in cells)
    return "," if delimiter != "," and commas > sum(bool(_POINT_NUMBER.match(cell)) for cell in cells) else "."


def _guess_group(rows: list[list[str]], decimal: str) -> str:
    """Guess the mark between thousands.

    A number has it together with the decimal mark, and no number has it elsewhere. An apostrophe is enough by itself.
    """
    cells = [cell.strip() for row in rows for cell in row]
    for mark in "'\u2019":
        if any(re.fullmatch(rf"[+-]?[0-9]{{1,3}}({mark}[0-9]{{3}})+(\{decimal}[0-9]+)?", cell) for cell in cells):
            return mark
    mark = "." if decimal == "," else ","
    both = re.compile(rf"[+-]?[0-9]{{1,3}}(\{mark}[0-9]{{3}})+\{decimal}[0-9]+")
    other = re.compile(rf"[+-]?[0-9]+\{mark}[0-9]+")
    thousands = re.compile(rf"[+-]?[0-9]{{1,3}}\{mark}[0-9]{{3}}")
    odd = any(other.fullmatch(cell) and not thousands.fullmatch(cell) for cell in cells)
    return mark if not odd and any(map(both.fullmatch, cells)) else ""
