"""Rows as Stata (.dta) and SPSS (.sav) files: variable labels, value labels, missing codes (extra `[office]`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.bundle.rows import labels_of, titles_of
from understudy.errors import InputError, OutputError
from understudy.page import reason
from understudy.release import Release
from understudy.schema.categorical import Categorical
from understudy.schema.column import Coded

_LONGEST = {".dta": 32, ".sav": 64}
_LABEL = {".dta": 80, ".sav": 250}
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def check_office() -> None:
    """Make sure that what these files need is installed.

    Raises:
        InputError: saying what to install.
    """
    from importlib.util import find_spec

    if find_spec("pyreadstat") is None or find_spec("pandas") is None:
        raise InputError("Stata and SPSS files need pyreadstat: pip install 'understudy[office]'")


def write_office(table: Any, path: Path, release: Release) -> None:
    """Write a typed table; `renamed` tells what its columns are called in the file.

    Whole numbers with gaps, and dates, become what the format has for them; true and false become 1 and 0 with labels;
    lengths of time become seconds.

    Raises:
        OutputError: when the file cannot be written.
    """
    import pyreadstat

    names = safe_names(table.column_names, _LONGEST[path.suffix])
    frame, flags = _frame(table)
    frame.columns = [names[name] for name in table.column_names]
    titles, values = titles_of(release), labels_of(release)
    labels: list[str | None] = [
        _label(name, titles.get(name, ""), names[name], _LABEL[path.suffix]) for name in table.column_names
    ]
    shown: dict[str, dict[Any, str]] = {names[name]: {0: "false", 1: "true"} for name in flags}
    shown |= {
        names[name]: found
        for name, found in values.items()
        if name in names and all(isinstance(value, int | float) for value in found)
    }
    title = (release.schema.title or "synthetic rows")[:60]
    try:
        if path.suffix == ".dta":
            pyreadstat.write_dta(frame, path, file_label=title, column_labels=labels, variable_value_labels=shown)
        else:
            missing = {names[name]: found for name, found in _missing(release).items() if name in names}
            pyreadstat.write_sav(
                frame,
                path,
                file_label=title,
                column_labels=labels,
                variable_value_labels=shown,
                missing_ranges=missing or None,
                row_compress=True,
            )
    except OSError as error:
        raise OutputError(f"{path} could not be written ({reason(error)})") from None


def renamed(table: Any, path: Path) -> dict[str, str]:
    """The columns whose name the format does not allow, with their names in the file."""
    names = safe_names(table.column_names, _LONGEST[path.suffix])
    return {name: safe for name, safe in names.items() if name != safe}


def safe_names(names: Sequence[str], longest: int) -> dict[str, str]:
    """Names that Stata and SPSS allow: letters, digits and underscores, not too long, each once.

    >>> safe_names(["age", "first name", "first-name", "2nd"], 32)
    {'age': 'age', 'first name': 'first_name', 'first-name': 'first_name_2', '2nd': 'v2nd'}
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_]", "_", name)[:longest] or "v"
        base = base if base[0].isalpha() else f"v{base}"[:longest]
        safe, number = base, 1
        while safe.lower() in taken:
            number += 1
            safe = f"{base[: longest - len(str(number)) - 1]}_{number}"
        taken.add(safe.lower())
        found[name] = safe
    return found


def _frame(table: Any) -> tuple[Any, list[str]]:
    """A pandas frame that pyreadstat can write, and the columns of true and false in it."""
    import pandas as pd
    import pyarrow as pa

    flags = [field.name for field in table.schema if pa.types.is_boolean(field.type)]
    frame = pd.DataFrame({name: _cells(table[name].combine_chunks()) for name in table.column_names}, copy=False)
    return frame, flags


def _cells(column: Any) -> Any:
    """One column as pyreadstat likes it best: text as objects that share their text, which it writes fastest."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = column.dictionary_encode()
        words = np.array([*coded.dictionary.to_pylist(), None], dtype=object)
        return pd.Series(words[np.asarray(pc.fill_null(coded.indices, len(words) - 1))], dtype=object)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_duration(column.type):
        column = pc.divide(column.cast(pa.int64()).cast(pa.float64()), _PER_SECOND[column.type.unit])
    return column.to_pandas(date_as_object=True)


def _label(name: str, title: str, safe: str, longest: int) -> str:
    """The title; a column that was renamed says what it was called."""
    text = title if safe == name else f"{name}: {title}" if title else name
    return text[:longest]


def _missing(release: Release) -> Mapping[str, list[Any]]:
    """Numbers that mean "missing", as SPSS knows them: at most three a column."""
    found: dict[str, list[Any]] = {}
    for column in release.schema.columns:
        if not isinstance(column, Coded) or (isinstance(column, Categorical) and column.type == "string"):
            continue
        numbers = [number for token in column.missing if (number := _number(token)) is not None]
        if 0 < len(numbers) <= 3 and column.kind not in ("boolean", "date", "datetime", "duration"):
            found[column.name] = numbers
    return found


def _number(token: str) -> float | None:
    try:
        return float(token)
    except ValueError:
        return None
