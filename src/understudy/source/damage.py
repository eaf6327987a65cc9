"""What is wrong with a CSV file: the place and the remedy, never a cell.

**Privacy.** Readers quote the line that they stumble over; here it is looked for again and told by its number. That of
the last line would be the number of rows, so the last line is called that.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from understudy.schema.format.dialect import Dialect

_LARGEST = 1 << 30  # bytes of a file that is read once more to say where it is damaged


def csv_trouble(file: Path, error: Exception, dialect: Dialect) -> str:
    """What went wrong, told from the reader's error but never in its words."""
    words = str(error)
    if isinstance(error, UnicodeError):
        remedy = "set `encoding` in the schema's dialect (Excel: windows-1252), or save it again as UTF-8"
        return f"{file}: its header is not written in {dialect.encoding}; {remedy}"
    if "Expected" in words and "columns" in words:
        place, remedy = _place(file, dialect), "mend it, or check `delimiter` and `quote` in the dialect"
        return f"{file}: {place or 'a line'} has a quote, and more or fewer cells than the header; {remedy}"
    if isinstance(error, PermissionError):
        return f"{file}: no permission to read it; ask its owner for access"
    return f"{file}: damaged, cut short or not CSV; copy or export the file again"


def _place(file: Path, dialect: Dialect) -> str:
    """The line where the quote is; nothing where none was found, or the file is too large to be searched."""
    try:
        if file.stat().st_size > _LARGEST:
            return ""
        with gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb") as content:
            found = _ragged(cast(BinaryIO, content), dialect)
    except (OSError, EOFError, ValueError, csv.Error):
        return ""
    return "" if found is None else "its last line" if found[1] else f"line {found[0]:,}"


def _ragged(content: BinaryIO, dialect: Dialect) -> tuple[int, bool] | None:
    """The first row with a quote and more or fewer cells than the first one, and whether it is the last."""
    with io.TextIOWrapper(content, encoding=dialect.encoding, errors="replace", newline="") as text:
        lines: list[str] = []
        rows = csv.reader(_kept(text, lines), delimiter=dialect.delimiter, quotechar=dialect.quote)
        width, number = 0, 1
        for row in rows:
            width = width or len(row)
            if row and len(row) != width and any(dialect.quote in line for line in lines):
                return number, next(filter(None, rows), None) is None
            lines.clear()
            number = rows.line_num + 1
    return None


def _kept(text: Iterable[str], lines: list[str]) -> Iterator[str]:
    for line in text:
        lines.append(line)
        yield line
