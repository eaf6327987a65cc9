"""One odd cell must not change how the cells of other rows are coded: sensitivity rests on it."""

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from understudy.schema import Schema
from understudy.schema.text import parse_numbers

SCHEMA = Schema.from_dict(
    {
        "fields": [
            {"name": "words", "type": "string", "categories": ["a", "1", "true", "2020-01-02"]},
            {"name": "codes", "type": "integer", "categories": [0, 1, 7]},
            {"name": "flags", "type": "boolean", "trueValues": ["Y", "true", "1"], "falseValues": ["N", "false", "0"]},
            {"name": "whole", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
            {"name": "real", "type": "number", "constraints": {"minimum": 0, "maximum": 9}},
            {"name": "day", "type": "date", "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"}},
            {"name": "stamp", "type": "datetime", "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"}},
            {"name": "span", "type": "duration", "constraints": {"minimum": 0, "maximum": 3600}},
        ],
        "understudy": {"privacy_unit": "row"},
    }
)
OBJECTS = [
    [1, 7], [1.0, 7.0], [True, False], ["a", "1"], [dt.date(2020, 1, 2), dt.date(2020, 5, 5)],
    [dt.datetime(2020, 1, 2, 3), dt.datetime(2020, 5, 5)], [dt.timedelta(seconds=90), dt.timedelta(seconds=5)],
    [decimal.Decimal("1"), decimal.Decimal("7")], [b"a", b"1"], ["2020-01-02", "P0DT1M"],
]  # fmt: skip
ODD = [
    "x", 3.5, 10**40, -1, True, None, float("nan"), float("inf"), b"\xff", "\ud800", [1], {"a": 1}, pd.NA, pd.NaT,
    dt.date(1, 1, 1), dt.datetime(9999, 12, 31), dt.timedelta.max, decimal.Decimal("NaN"), object(), "2020-02-30",
]  # fmt: skip


def codes_of(series):
    encoded = SCHEMA.encode(pd.DataFrame({column.name: series for column in SCHEMA.coded}))
    return {part: array.tolist() for part, array in encoded.codes.items()}


@pytest.mark.parametrize("cells", OBJECTS, ids=[str(cells[0]) for cells in OBJECTS])
def test_odd_objects_change_nobody_else(cells):
    alone = codes_of(pd.Series(cells, dtype=object))
    for odds in (ODD, ["x"], [10**40], [b"\xff"], ["\ud800"]):
        beside = pd.Series([None] * (len(cells) + len(odds)), dtype=object)
        for index, cell in enumerate([*cells, *odds]):
            beside.at[index] = cell
        together = codes_of(beside)
        assert {part: array[: len(cells)] for part, array in together.items()} == alone


TYPED = {
    "binary": (pa.binary(), [b"a", b"1"], [b"\xff\xfe", None]),
    "date32": (pa.date32(), [dt.date(2020, 1, 2), dt.date(2020, 5, 5)], [None]),
    "text": (
        pa.string(),
        ["a", "1", "2020-01-02", "60"],
        ["", "x" * 9999, "1e999", "2020-13-41", "P9999999999999999D"],
    ),
    "large_text": (pa.large_string(), ["a", "1", "7"], ["-", "1_000", "\u0661"]),
    "float": (pa.float64(), [1.0, 7.0, 0.0], [float("inf"), float("nan"), 1e308, None]),
    "float16": (pa.float16(), [np.float16(1), np.float16(7)], [np.float16("inf")]),
    "int": (pa.int64(), [1, 7], [2**63 - 1, -(2**63), None]),
    "uint": (pa.uint64(), [1, 7], [2**64 - 1]),
    "decimal": (pa.decimal128(38, 2), [decimal.Decimal("1.00"), decimal.Decimal("7.00")], [decimal.Decimal("1e35")]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "1"], ["z", None]),
}


@pytest.mark.parametrize("name", sorted(TYPED))
def test_an_odd_typed_cell_changes_nobody_else(name):
    kind, cells, odds = TYPED[name]
    names = [column.name for column in SCHEMA.coded]
    alone = SCHEMA.encode(pa.table({column: pa.array(cells, kind) for column in names}))
    for odd in odds:
        together = SCHEMA.encode(pa.table({column: pa.array([*cells, odd], kind) for column in names}))
        for part in SCHEMA.domain:
            assert together.codes[part][:-1].tolist() == alone.codes[part].tolist(), (part, odd)


@pytest.mark.parametrize(
    ("kind", "extreme"),
    [(pa.date32(), 2**31 - 1), (pa.date64(), 2**63 - 1), (pa.timestamp("s"), 2**63 - 1), (pa.duration("s"), -(2**63))],
)
def test_the_far_ends_of_time_are_clipped(kind, extreme):
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array([extreme, None], whole).view(kind)
    encoded = SCHEMA.encode(pa.table(dict.fromkeys(SCHEMA.needs, column)))
    for part, size in SCHEMA.domain.items():
        assert encoded.codes[part].max() < size


def test_what_the_same_cell_is_does_not_depend_on_its_type():
    """1, 1.0, "1" and Decimal(1) are the same whole number and the same declared value."""
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.decimal128(5, 0), pa.int64()):
        cells = [decimal.Decimal(1)] if pa.types.is_decimal(kind) else ["1"] if kind == pa.string() else [1]
        encoded = SCHEMA.encode(pa.table({name: pa.array(cells, kind) for name in SCHEMA.needs}))
        found = {name: encoded.codes[name].item() for name in ("words", "codes", "whole", "flags")}
        assert found == {"words": 1, "codes": 1, "whole": 1, "flags": 1}, kind


def test_numbers_are_read_alike_whether_or_not_every_cell_is_one():
    """The fast way, taken when every cell is a number, must agree with the careful way on each cell."""
    texts = [
        "1",
        "-1.5",
        "+2",
        ".5",
        "5.",
        "1e3",
        "1E-3",
        "007",
        "1e999",
        "nan",
        "-nan",
        "NaN",
        "nan(1)",
        "inf",
        "-inf",
        "Infinity",
        "0x10",
        "1_0",
        "1,5",
        "1e",
        "e1",
        "--1",
    ]
    texts += ["1d", "1f", "\u0661", "1 2", " 8 ", "", "\u066b5", "0e0", "-0"]
    careful = parse_numbers(pa.array([*texts, "no number"]))[:-1]
    for text, expected in zip(texts, careful, strict=True):
        found = parse_numbers(pa.array([text]))[0]
        assert (found == expected) or not (np.isfinite(found) or np.isfinite(expected)), text


@pytest.mark.parametrize("kind", ["text", "large", "view", "dictionary", "chunks"])
def test_bytes_that_are_no_text_fail_nothing_and_change_nobody_else(kind):
    """Arrow holds whatever a file calls text, and refuses a whole column for one cell of it."""
    plain, raw = {"large": (pa.large_string(), pa.large_binary())}.get(kind, (pa.string(), pa.binary()))
    cells = [b"a", b"\xff\xfe", b"1", b"2020-01-02", b"P0DT1M"]
    odd = pa.Array.from_buffers(plain, len(cells), pa.array(cells, raw).buffers())
    good = pa.array([cell.decode() for cell in cells if cell != b"\xff\xfe"])
    if kind == "view":
        odd = pa.array(cells, pa.binary_view()).view(pa.string_view())
    if kind == "dictionary":
        odd = pa.DictionaryArray.from_arrays(pa.array(range(len(cells))), odd)
    if kind == "chunks":
        odd = pa.chunked_array([odd[:2], odd[2:]])
    names = [column.name for column in SCHEMA.coded]
    among = SCHEMA.encode(pa.table(dict.fromkeys(names, odd)))
    alone = SCHEMA.encode(pa.table(dict.fromkeys(names, good)))
    for name in names:
        assert among.codes[name][[0, 2, 3, 4]].tolist() == alone.codes[name].tolist()
        assert among.codes[name][1] == SCHEMA.column(name).unknown_code
