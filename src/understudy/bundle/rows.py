"""The rows of a bundle, written as CSV, Parquet, Stata and SPSS files: text for CSV, typed columns for the others."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.errors import InputError, SettingError
from understudy.files import could_not_write
from understudy.release import Release
from understudy.schema import Dialect
from understudy.schema.categorical import Categorical
from understudy.schema.column import Coded

MARK = "synthetic"
"""The column that marks every row as synthetic."""


def use_plain_dialect(release: Release) -> Release:
    """Return the release with the default dialect, which every tool reads: commas, decimal points, UTF-8."""
    return replace(release, schema=replace(release.schema, dialect=Dialect()))


def sample_table(release: Release, rows: int | None, seed: int, *, mark: bool, as_text: bool) -> Any:
    """Make rows as an arrow table; the same release, number and seed give the same rows, as text or typed.

    **Privacy.** Post-processing.

    Raises:
        SettingError: if a column `synthetic` exists already.
    """
    import pyarrow as pa

    table = release.sample(rows, seed=seed, as_="arrow", as_written=as_text)
    if not mark:
        return table
    if MARK in table.column_names:
        raise SettingError(f"the table has a column {MARK!r} already; leave out --mark")
    flag = pa.array(np.ones(table.num_rows, np.int8))
    return table.append_column(MARK, flag)


def write_csv(table: Any, path: Path) -> dict[str, list[str]]:
    """Write a table as CSV; returns by column the values that got an apostrophe."""
    from pyarrow import csv

    safe, changed = guard_table(table)
    csv.write_csv(safe, path, csv.WriteOptions(quoting_style="needed"))
    return changed


def write_parquet(table: Any, path: Path, release: Release) -> None:
    """Write a table as Parquet, with titles and value labels in the columns' metadata; missing codes are null."""
    import pyarrow.parquet as pq

    table = _hide_missing_codes(table, release)
    pq.write_table(table.cast(_add_metadata(table.schema, release)), path, compression="zstd")


def list_value_labels(release: Release) -> dict[str, dict[Any, str]]:
    """List by column the labels of its values, where the schema has some."""
    return {
        column.name: {value: column.labels[str(value)] for value in column.values if str(value) in column.labels}
        for column in release.schema.columns
        if isinstance(column, Categorical) and column.labels
    }


def list_titles(release: Release) -> dict[str, str]:
    """List by column its title, where the schema has one."""
    titles = {column.name: column.title or column.description for column in release.schema.columns}
    return {name: title for name, title in titles.items() if title} | {MARK: "1: a synthetic row"}


def _add_metadata(schema: Any, release: Release) -> Any:
    import json

    import pyarrow as pa

    labels, titles = list_value_labels(release), list_titles(release)

    def metadata_of(name: str) -> Mapping[str, str]:
        known = {"title": titles[name]} if name in titles else {}
        listed = {str(value): label for value, label in labels.get(name, {}).items()}
        return known | ({"labels": json.dumps(listed, ensure_ascii=False)} if listed else {})

    fields = [field.with_metadata(metadata_of(field.name) or None) for field in schema]
    return pa.schema(fields, metadata={"understudy": release.receipt.guarantee()})


# -- Spreadsheet formulas.
#
# A cell of text that begins with ``= + - @``, a tab or a line break (or a full-width form of the four) and is not a
# plain number is run or mangled when a spreadsheet opens the file. Such cells get a leading apostrophe, which
# spreadsheets take as "this is text" and other programs read as one more character. Numbers are left alone:
# ``-9`` is harmless.


_STARTS = "=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20"
_FORMULA = re.compile(f"^[{_STARTS}]")
_NUMBER = re.compile(r"^[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?$")


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet may run this cell.

    >>> [is_formula(text) for text in ("=1+1", "-9", "-cmd", "@home", "a=b", "--", "")]
    [True, False, True, True, False, False, False]
    """
    runs = bool(_FORMULA.match(text)) and any(letter.isalnum() for letter in text)
    return runs and not _NUMBER.match(text)


def guard_cell(text: str) -> str:
    """Put an apostrophe in front of a text that a spreadsheet may run."""
    return f"'{text}" if is_formula(text) else text


def guard_table(table: Any) -> tuple[Any, dict[str, list[str]]]:
    """Make an arrow table safe for spreadsheets; returns it, and by column the values that got an apostrophe."""
    import pyarrow as pa

    changed: dict[str, list[str]] = {}
    for place, name in enumerate(table.column_names):
        if not (pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type)):
            continue
        coded = table[name].combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        values = coded.dictionary.to_pylist()
        if found := [value for value in values if value is not None and is_formula(value)]:
            safe = pa.array([None if value is None else guard_cell(value) for value in values], table[name].type)
            table = table.set_column(place, name, safe.take(coded.indices))
            changed[name] = sorted(found)
    return table.rename_columns([guard_cell(name) for name in table.column_names]), changed


# -- Stata (.dta) and SPSS (.sav) files: variable labels, value labels, missing codes (extra `[office]`).


_LONGEST = {".dta": 32, ".sav": 64}
_LABEL = {".dta": 80, ".sav": 250}
_SPSS_MISSING = 3  # the largest number of codes of a column that SPSS marks as missing
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def check_office() -> None:
    """Check that the libraries for Stata and SPSS files are installed.

    Raises:
        InputError: saying what to install.
    """
    from importlib.util import find_spec

    if find_spec("pyreadstat") is None or find_spec("pandas") is None:
        raise InputError("Stata and SPSS files need pyreadstat: pip install 'understudy[office]'")


def write_office(table: Any, path: Path, release: Release) -> None:
    """Write a typed table; `find_renamed` lists the columns that have another name in the file.

    Integers with missing values, and dates, become the format's own types; true and false become 1 and 0 with labels;
    durations become seconds.

    Raises:
        OutputError: if the file cannot be written.
    """
    import pyreadstat

    names = make_safe_names(table.column_names, _LONGEST[path.suffix])
    marked = {name: codes for name, codes in _list_missing_codes(release).items() if len(codes) <= _SPSS_MISSING}
    table = _hide_missing_codes(table, release, marked if path.suffix == ".sav" else {})
    frame, flags = _to_pandas(table)
    frame.columns = [names[name] for name in table.column_names]
    titles, values = list_titles(release), list_value_labels(release)
    labels: list[str | None] = [
        _make_label(name, titles.get(name, ""), names[name], _LABEL[path.suffix]) for name in table.column_names
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
            missing = {names[name]: found for name, found in marked.items() if name in names}
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
        raise could_not_write(path, error) from None


def find_renamed(table: Any, path: Path) -> dict[str, str]:
    """Find the columns whose names the format does not allow, with their names in the file."""
    names = make_safe_names(table.column_names, _LONGEST[path.suffix])
    return {name: safe for name, safe in names.items() if name != safe}


def make_safe_names(names: Sequence[str], longest: int) -> dict[str, str]:
    """Return names that Stata and SPSS allow: letters, digits and underscores, not too long, each once.

    >>> make_safe_names(["age", "first name", "first-name", "2nd"], 32)
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


def _to_pandas(table: Any) -> tuple[Any, list[str]]:
    """Convert to a pandas frame that pyreadstat can write; returns it and its boolean columns."""
    import pandas as pd
    import pyarrow as pa

    flags = [field.name for field in table.schema if pa.types.is_boolean(field.type)]
    frame = pd.DataFrame({name: _to_series(table[name].combine_chunks()) for name in table.column_names}, copy=False)
    return frame, flags


def _to_series(column: Any) -> Any:
    """Convert one column for pyreadstat; equal texts share one object, which is written fastest."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        coded = column.dictionary_encode()
        words = np.array([*coded.dictionary.to_pylist(), None], dtype=object)
        return pd.Series(words[np.asarray(pc.fill_null(coded.indices, len(words) - 1))], dtype=object)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_duration(column.type) or pa.types.is_time(column.type):
        column = pc.divide(column.cast(pa.int64()).cast(pa.float64()), _PER_SECOND[column.type.unit])
    return column.to_pandas(date_as_object=True)


def _make_label(name: str, title: str, safe: str, longest: int) -> str:
    """Return the title, with the original name of a renamed column."""
    text = title if safe == name else f"{name}: {title}" if title else name
    return text[:longest]


def _list_missing_codes(release: Release) -> Mapping[str, list[Any]]:
    """List the numbers that mean "missing", by column."""
    found: dict[str, list[Any]] = {}
    for column in release.schema.columns:
        if not isinstance(column, Coded) or (isinstance(column, Categorical) and column.type == "string"):
            continue
        numbers = [number for token in column.missing if (number := _parse_number(token)) is not None]
        if numbers and column.kind not in ("boolean", "date", "datetime", "duration"):
            found[column.name] = numbers
    return found


def _hide_missing_codes(table: Any, release: Release, marked: Mapping[str, Any] | None = None) -> Any:
    """Replace numbers that mean "missing" by nulls, except where the format marks them: -9 enters no mean."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, numbers in _list_missing_codes(release).items():
        if name in table.column_names and name not in (marked or {}) and _is_numeric(table[name].type):
            codes = pa.array(numbers, pa.float64())
            hidden = pc.is_in(table[name].cast(pa.float64()), value_set=codes)
            empty = pa.scalar(None, table[name].type)
            table = table.set_column(table.column_names.index(name), name, pc.if_else(hidden, empty, table[name]))
    return table


def _is_numeric(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _parse_number(token: str) -> float | None:
    try:
        return float(token)
    except ValueError:
        return None


# -- A second process for a Stata or SPSS file: writing one keeps a core busy for long.
#
# Not through `multiprocessing`: it would start a caller's own script again, and a script may spend budget.


PROCESS_ROWS = 200_000
"""From this many rows, a second process saves more time than starting it takes."""


@contextmanager
def write_in_process(table: Any, path: Path, release: Release) -> Iterator[None]:
    """Write a typed table to a Stata or SPSS file in a second process while the body runs; complete when the body ends.

    If the process cannot be started or fails, the file is written here instead, with our own error messages.

    **Privacy.** Only synthetic rows and the release go to the process, through files in the output folder.
    """
    rows, model = path.with_suffix(".arrow"), path.with_suffix(".release")
    try:
        _write_arrow(table, rows)
        release.save(model)
        child = _start_process(rows, model, path)
        try:
            yield
            done = child is not None and child.wait() == 0
        finally:
            if child is not None:
                child.kill()
                child.wait()
    finally:
        rows.unlink(missing_ok=True)
        model.unlink(missing_ok=True)
    if not done:
        write_office(table, path, release)


def _write_arrow(table: Any, path: Path) -> None:
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _start_process(rows: Path, model: Path, path: Path) -> subprocess.Popen[bytes] | None:
    command = [sys.executable, "-P", "-m", "understudy.bundle.rows", str(rows), str(model), str(path)]
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    except (OSError, TypeError, ValueError):  # no interpreter of its own, as inside another program
        return None


def main() -> None:
    """Write the file that the command line names, as the parent process asked."""
    import pyarrow as pa

    rows, model, path = (Path(argument) for argument in sys.argv[1:])
    with pa.memory_map(str(rows)) as file:
        write_office(pa.ipc.open_file(file).read_all(), path, Release.load(model))


if __name__ == "__main__":
    main()
