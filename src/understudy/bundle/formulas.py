"""Cells that a spreadsheet would run as a formula: found, and made harmless by an apostrophe.

A cell of text that begins with ``= + - @``, a tab or a line break (or a full-width form of the four) and is no plain
number is run or mangled when a spreadsheet opens the file. Such cells get a leading apostrophe, which spreadsheets take
as "this is text" and other programs read as one more character. Numbers are left alone: ``-9`` is harmless.
"""

from __future__ import annotations

import re
from typing import Any

_STARTS = "=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20"
_FORMULA = re.compile(f"^[{_STARTS}]")
_NUMBER = re.compile(r"^[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?$")


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may run this cell.

    >>> [is_formula(text) for text in ("=1+1", "-9", "-cmd", "@home", "a=b", "--", "")]
    [True, False, True, True, False, False, False]
    """
    runs = bool(_FORMULA.match(text)) and any(letter.isalnum() for letter in text)
    return runs and not _NUMBER.match(text)


def guarded(text: str) -> str:
    """The text, with an apostrophe in front where a spreadsheet may run it."""
    return f"'{text}" if is_formula(text) else text


def guard_table(table: Any) -> tuple[Any, dict[str, list[str]]]:
    """An arrow table whose text can be opened in a spreadsheet, and by column the values that got an apostrophe."""
    import pyarrow as pa

    changed: dict[str, list[str]] = {}
    for place, name in enumerate(table.column_names):
        if not (pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)):
            continue
        coded = table[name].combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        values = coded.dictionary.to_pylist()
        if found := [value for value in values if value is not None and is_formula(value)]:
            safe = pa.array([None if value is None else guarded(value) for value in values], table[name].type)
            table = table.set_column(place, name, safe.take(coded.indices))
            changed[name] = sorted(found)
    return table.rename_columns([guarded(name) for name in table.column_names]), changed
