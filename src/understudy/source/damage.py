"""What is wrong with a CSV file: the place and the remedy, never a cell.

**Privacy.** Readers quote the line that they stumble over; here it is looked for again and told by its number. That of
the last line would be the number of rows, so the last line is called that.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from understudy.schema.format.dialect import Dialect

_LARGEST = 1 << 30  # bytes of a file that is read once more to say where it is damaged


def csv_trouble(file: Path, error: Exception, dialect: Dialect) -> str:
    """What went wrong, told from the reader's error but never in its words."""
    words = str(error)
    if isinstance(error, UnicodeError) or "UTF8" in words:
        place = _place(file, dialect, _undecodable)
        told = f"{place} is not written in {dialect.encoding}" if place else f"not written in {dialect.encoding}"
        remedy = "set `encoding` in the schema's dialect (Excel: windows-1252), or save it again as UTF-8"
        few = place not in ("", "line 1")
        remedy += ", if a few bytes are damaged with `iconv -c -f UTF-8 -t UTF-8`" if few else ""
        return f"{file}: {told}; {remedy}"
    if "Expected" in words and "columns" in words:
        place, remedy = _place(file, dialect, _ragged), "mend it, or check `delimiter` and `quote` in the dialect"
        return f"{file}: {place or 'a line'} has more or fewer cells than the header; {remedy}"
    if isinstance(error, PermissionError):
        return f"{file}: no permission to read it; ask its owner for access"
    return f"{file}: damaged, cut short or not CSV; copy or export the file again"


def _place(file: Path, dialect: Dialect, find: Callable[[BinaryIO, Dialect], tuple[int, bool] | None]) -> str:
    """The line where it was found; nothing where it was not, or the file is too large to be searched."""
    try:
        if file.stat().st_size > _LARGEST:
            return ""
        with gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb") as content:
            found = find(cast(BinaryIO, content), dialect)
    except (OSError, EOFError, ValueError, csv.Error):
        return ""
    return "" if found is None else "its last line" if found[1] else f"line {found[0]:,}"


def _undecodable(content: BinaryIO, dialect: Dialect) -> tuple[int, bool] | None:
    """The first line that is not in the dialect's encoding, and whether it is the last."""
    if dialect.encoding.lower().startswith(("utf-16", "utf-32", "utf16", "utf32", "utf_16", "utf_32")):
        return None  # their lines do not end with a byte
    lines = enumerate(content, 1)
    for number, line in lines:
        try:
            line.decode(dialect.encoding)
        except UnicodeError:
            return number, not any(rest.strip() for _, rest in lines)
    return None


def _ragged(content: BinaryIO, dialect: Dialect) -> tuple[int, bool] | None:
    """The first line with more or fewer cells than the first one, and whether it is the last."""
    with io.TextIOWrapper(content, encoding=dialect.encoding, errors="replace", newline="") as text:
        rows = csv.reader(text, delimiter=dialect.delimiter, quotechar=dialect.quote)
        width = 0
        for row in filter(None, rows):
            width = width or len(row)
            if len(row) != width:
                number = rows.line_num
                return number, next(filter(None, rows), None) is None
    return None
