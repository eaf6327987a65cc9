"""A value counts by what it means, never by how a reader typed it: 2,000 columns through every reader of CSV.

Each case is a column: a declaration, cells of one look, and one odd cell that one more row has. The same rows are
written as CSV and read by pandas, polars and pyarrow, which guess types from all cells, and by path. Whatever a reader
makes of them, the odd row changes no other row's code, unit, discovered value or shape; and all frames agree.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from understudy.schema import Schema
from understudy.schema.frames import columns_by_meaning, is_as_written
from understudy.schema.open import Shape, Words
from understudy.schema.text import Dialect
from understudy.source.read import read_table
from understudy.source.unit import unit_text

TABLES, COLUMNS, ROWS = 40, 50, 6

LOOKS: dict[str, list[str]] = {
    "digits": ["1", "2", "7", "12", "100000"],
    "padded": ["007", "7", "07", "1", "01", "0"],
    "signed": ["+7", "-3", "-0", "0", "7", " 7"],
    "decimal": ["1.50", "1.5", "2", "7.0", ".25", "3."],
    "powers": ["1e5", "100000", "1E2", "100", "7"],
    "long": ["9007199254740993", "9007199254740992", "123456789012345678", "7"],
    "hexadecimal": ["0x10", "16", "0x7", "7"],
    "truth": ["true", "false"],
    "Truth": ["True", "False", "TRUE"],
    "bits": ["0", "1"],
    "days": ["2024-01-31", "2024-02-01", "2023-12-24"],
    "moments": ["2024-01-31 08:30:00", "2024-02-01T00:00:00", "2024-02-01 09:15"],
    "days and moments": ["2024-01-31", "2024-02-01 00:00:00", "2024-01-31 08:30"],
    "zones": ["2024-01-31 08:30:00Z", "2024-01-31T09:30:00+01:00"],
    "times": ["08:30", "09:15", "09:15:00"],
    "short times": ["8:30", "9:5", "9:05:00.1234567", "09:15"],
    "lengths": ["1.9999995", "2", "59.999999", "60"],
    "numbers and NA": ["NA", "7", "1", ""],
    "empty": ["", "NA", "null"],
    "infinite": ["inf", "-inf", "7", "1e400"],
    "words": ["a", "b", "A", "null"],
    "joined days": ["20240131", "20240201"],
    "joined days, day first": ["01022024", "31012024"],
    "months": ["2024.10", "2024.01", "2024.11"],
    "slashes": ["31/01/2024", "01/02/2024", "01/02/2024 08:30"],
}
ODD = ["", "X17", "true", "FALSE", "1", "0", "007", "1.5", ".5", "1e5", "-5", "+1", " 3", "0x1F", "inf", "NA", "None"]
ODD += ["nan", "99999999999999999999", "2019-01-01", "2019-01-01 05:00:00", "2019-01-01T05:00Z", "2019-13-45", "08:15"]
ODD += ["31/12/2019", "26:30:00", "?", "[1]", "1_000", "9007199254740993", "1" * 30, "P1D"]
DAYS = {"minimum": "2020-01-01", "maximum": "2024-12-31"}
MOMENTS = {key: f"{day}T00:00:00" for key, day in DAYS.items()}
FIELDS: list[dict[str, Any]] = [
    {"type": "string", "categories": ["007", "7", "1", "0"]},
    {"type": "string", "categories": ["1e5", "100000", "1.5", "1.50", "2.0"]},
    {"type": "string", "categories": ["07", "007", "16", "0x10"]},
    {"type": "string", "categories": ["true", "false"]},
    {"type": "string", "categories": ["True", "1", "0"]},
    {"type": "string", "categories": ["NA", "7", "a"], "understudy": {"missing": {"null": "lost"}}},
    {"type": "string", "categories": ["2024-01-31", "2024-02-01 00:00:00", "2024-01-31 08:30:00", "08:30", "09:15:00"]},
    {"type": "string", "categories": ["9007199254740993", "9007199254740992", "inf"]},
    {"type": "string", "categories": ["8:30", "09:05:00", "09:05:00.123456", "09:15"]},
    {"type": "integer", "categories": [1, 7, 100, 16]},
    {"type": "number", "categories": [1.5, 2, 7], "understudy": {"missing": {"1": "refused", "01": "lost"}}},
    {"type": "boolean"},
    {"type": "boolean", "trueValues": ["Y", "1"], "falseValues": ["N", "2"]},
    {"type": "boolean", "trueValues": ["a"], "falseValues": ["b"], "understudy": {"missing": {"7": "refused"}}},
    {"type": "integer", "constraints": {"minimum": 0, "maximum": 20}},
    {
        "type": "integer",
        "constraints": {"minimum": 0, "maximum": 200},
        "understudy": {"missing": {"NA": "refused", "-3": "lost", "true": "odd"}, "outside": "unknown"},
    },
    {"type": "integer", "constraints": {"minimum": 0, "maximum": 999}, "understudy": {"heaped": [100, 10, 1]}},
    {"type": "number", "constraints": {"minimum": 0, "maximum": 10}, "understudy": {"bins": 20}},
    {"type": "number", "constraints": {"minimum": 0, "maximum": 10, "required": True}, "understudy": {"decimals": 1}},
    {"type": "date", "constraints": DAYS},
    {"type": "date", "constraints": DAYS, "format": "%d/%m/%Y"},
    {"type": "date", "constraints": DAYS, "format": "%Y%m%d"},
    {"type": "date", "constraints": DAYS, "format": "%d%m%Y"},
    {"type": "date", "constraints": DAYS, "format": "%Y.%m"},
    {"type": "datetime", "constraints": MOMENTS, "understudy": {"bins": {"width": "7 days"}}},
    {"type": "datetime", "constraints": MOMENTS, "format": "%d/%m/%Y %H:%M"},
    {"type": "duration", "constraints": {"minimum": 0, "maximum": 120}, "understudy": {"bins": {"width": 1}}},
]


def _objects(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text)).astype(object)


def _arrow_backed(text: str) -> pd.DataFrame:
    """By pandas' own parser, which refuses whole numbers of more than 64 bits, or else by arrow's."""
    try:
        return pd.read_csv(io.StringIO(text), dtype_backend="pyarrow")
    except OverflowError:
        return pd.read_csv(io.StringIO(text), dtype_backend="pyarrow", engine="pyarrow")


def _polars(text: str, **options: Any) -> pl.DataFrame:
    return pl.read_csv(io.StringIO(text), infer_schema_length=None, **options)


def _polars_dates(text: str) -> pl.DataFrame:
    """A column that polars takes for times, and then cannot read as such, is read without dates."""
    try:
        return _polars(text, try_parse_dates=True)
    except pl.exceptions.PolarsError:
        plain = _polars(text)
    columns = {}
    for name in plain.columns:
        try:
            columns[name] = _polars(text, try_parse_dates=True, columns=[name])[name]
        except pl.exceptions.PolarsError:
            columns[name] = plain[name]
    return pl.DataFrame(columns)


READERS: dict[str, Callable[[str], Any]] = {
    "pandas objects": _objects,
    "pandas nullable": lambda text: pd.read_csv(io.StringIO(text), dtype_backend="numpy_nullable"),
    "pandas arrow": _arrow_backed,
    "polars": _polars,
    "pyarrow": lambda text: arrow_csv.read_csv(io.BytesIO(text.encode())),
}
IN_TURN: list[tuple[str, Callable[[str], Any]]] = [
    ("pandas", lambda text: pd.read_csv(io.StringIO(text))),
    ("polars dates", _polars_dates),
    ("pandas by arrow", lambda text: pd.read_csv(io.StringIO(text), engine="pyarrow")),
    ("pandas text", lambda text: pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)),
]
"""More ways to read, one for each table."""


def _case(rng: np.random.Generator) -> tuple[dict[str, Any], list[str], str]:
    """A declaration, cells of one look, and an odd cell."""
    look = str(rng.choice(list(LOOKS)))
    field = FIELDS[rng.integers(len(FIELDS))]
    if look == "slashes":  # polars can be told to read them as days: no text of theirs is declared
        field = FIELDS[int(rng.choice([i for i, one in enumerate(FIELDS) if "/" in one.get("format", "")]))]
    cells = [str(cell) for cell in rng.choice(LOOKS[look], ROWS)]
    return field, cells, str(rng.choice(ODD))


def _csv(columns: dict[str, list[str]]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "\n".join(",".join(row) for row in [tuple(columns), *rows]) + "\n"


def _coded(frame: Any, schema: Schema) -> dict[str, list[Any]]:
    """What each row counts as: its codes, and columns in turn as unit, as a value that is discovered, and by shape."""
    cells, _ = columns_by_meaning(frame, schema.needs, Dialect())  # which is what `Schema.encode` starts from
    found: dict[str, list[Any]] = {}
    for column in schema.coded:
        found |= {part: codes.tolist() for part, codes in column.encode(cells[column.name], Dialect()).items()}
    names = [column.name for column in schema.coded if column.kind not in ("date", "datetime")]
    for name in names[::4]:
        units = unit_text(nw.from_native(frame[name], series_only=True), exact=is_as_written(frame))
        found[f"{name} as unit"] = units.to_pylist()
    for name in names[1::4]:
        found[f"{name} as value"] = Words(name=name, tokens=("-3", "01")).texts(cells[name], Dialect()).to_pylist()
    for name in names[2::4]:
        found[f"{name} by shape"] = Shape(name=name).encode(cells[name], Dialect())[name].tolist()
    return found


@pytest.mark.filterwarnings("ignore")  # pandas' own, about what it makes of such columns
@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(i, marks=pytest.mark.slow) for i in range(20, TABLES))])
def test_an_odd_row_changes_no_other_whatever_a_reader_guesses(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng([20, seed])
    cases = {f"c{place}": _case(rng) for place in range(COLUMNS)}
    fields = [{"name": name, **field} for name, (field, _, _) in cases.items()]
    schema = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    alone = _csv({"k": ["k"] * ROWS} | {name: cells for name, (_, cells, _) in cases.items()})
    beside = _csv({"k": ["k"] * (ROWS + 1)} | {name: [*cells, odd] for name, (_, cells, odd) in cases.items()})
    by_frame = {}
    for reader, read in [*READERS.items(), IN_TURN[seed % len(IN_TURN)]]:
        wanted, found = _coded(read(alone), schema), _coded(read(beside), schema)
        _same(wanted, {part: rows[:ROWS] for part, rows in found.items()}, reader, cases)
        by_frame[reader] = wanted
    for reader, wanted in by_frame.items():
        _same(by_frame["pyarrow"], wanted, f"pyarrow and {reader}", cases)
    (tmp_path / "alone.csv").write_text(alone)
    (tmp_path / "beside.csv").write_text(beside)
    wanted, found = (_coded(read_table(tmp_path / f"{name}.csv", schema), schema) for name in ("alone", "beside"))
    _same(wanted, {part: rows[:ROWS] for part, rows in found.items()}, "path", cases)


def _same(wanted: dict[str, list[Any]], found: dict[str, list[Any]], reader: str, cases: dict[str, Any]) -> None:
    for part, rows in wanted.items():
        assert rows == found[part], (reader, part, cases[part.split(" ")[0].split(".")[0]])


def test_there_are_two_thousand_cases() -> None:
    assert TABLES * COLUMNS >= 2000


@pytest.mark.parametrize("reader", ["pandas nullable", "pyarrow"])
def test_readers_do_guess(reader: str) -> None:
    """The test above would say nothing if they did not: one odd cell makes text of numbers."""
    kinds = [str(nw.from_native(READERS[reader](f"k,x\nk,007\n{odd}"))["x"].dtype) for odd in ("", "k,X17\n")]
    assert kinds == ["Int64", "String"]
    assert isinstance(READERS["pyarrow"]("x\n1\n"), pa.Table)
