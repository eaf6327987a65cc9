"""Columns left to discovery: what a schema file may declare, how cells are read, how discovery completes them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from understudy.errors import InputError, SchemaError
from understudy.schema import Dialect, Schema
from understudy.schema.file import fill_field, parse_field
from understudy.schema.open import LONGEST, Open, Shape, Words, trial_facts
from understudy.source.draft import read_header

BOTH = {"bounds": "discover", "bins": "discover"}
FIELDS = [
    {"name": "t", "type": "discover"},
    {"name": "n", "type": "integer", "understudy": dict(BOTH)},
    {"name": "m", "type": "number", "understudy": {"bounds": "discover", "decimals": 2, "bins": 12}},
    {"name": "b", "type": "date", "constraints": {"minimum": "2000-01-01", "maximum": "2030-12-31"},
     "understudy": {"bins": "discover"}},
    {"name": "w", "type": "string", "constraints": {"required": True}, "understudy": {"values": "discover"}},
    {"name": "i", "type": "integer", "understudy": {"values": "discover", "missing": {"-9": "refused"}}},
]  # fmt: skip
CONTENT = {"fields": FIELDS, "understudy": {"privacy_unit": "row"}}


def column(field):
    found = parse_field(field, 0)
    assert isinstance(found, Open)
    return found


def test_a_schema_left_to_discovery_has_no_domain_and_says_how_to_get_one(tmp_path):
    schema = Schema.from_dict(CONTENT)
    assert [c.name for c in schema.open] == ["t", "n", "m", "b", "w", "i"]
    assert [c.discovers for c in schema.open] == [
        ("type",), ("bounds", "bins"), ("bounds",), ("bins",), ("values",), ("values",)
    ]  # fmt: skip
    assert schema.needs == ("t", "n", "m", "b", "w", "i")
    with pytest.raises(SchemaError, match=r"'t': `type: discover` is left to `synthesize`"):
        _ = schema.domain
    for name in ("s.yaml", "s.json"):
        schema.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == schema
        assert Schema.load(tmp_path / name).to_dict()["fields"] == FIELDS


def test_only_columns_with_values_or_an_unknown_type_need_delta():
    assert [c.name for c in Schema.from_dict(CONTENT).open if c.may_need_delta] == ["t", "w", "i"]


@pytest.mark.parametrize("field", FIELDS[1:], ids=lambda field: field["name"])
@pytest.mark.parametrize("codes", [1, 2, 40])
def test_discovered_facts_complete_the_field_and_name_their_origin(field, codes):
    made = parse_field(fill_field(field, **trial_facts(field, codes)), 0)
    assert made.origin == "discovered"
    assert made.name == field["name"]
    assert "'discover'" not in str(fill_field(field, **trial_facts(field, codes)))


def test_the_facts_take_the_place_of_the_word():
    made = parse_field(fill_field(FIELDS[2], minimum=1.5, maximum=9.25, spikes=[2]), 0)
    assert (made.minimum, made.maximum, made.bins, made.decimals, made.spikes) == (1.5, 9.25, 12, 2, (2.0,))
    made = parse_field(fill_field(FIELDS[5], categories=[3, 4]), 0)
    assert (made.values, made.missing) == ((3, 4), {"-9": "refused"})


# -- words --


def texts(cells, *tokens, **dialect):
    return Words(name="w", tokens=tokens).texts(cells, Dialect(**dialect)).to_pylist()


def test_words_are_trimmed_and_what_is_not_a_value_is_left_out():
    cells = pa.array([" a ", "b", "", "  ", None, "?", "x" * LONGEST, "y" * (LONGEST + 1)])
    assert texts(cells, "?") == ["a", "b", None, None, None, None, "x" * LONGEST, None]
    assert texts(cells, trim=False)[:4] == [" a ", "b", None, "  "]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([5, None, 7]),
        pa.array([5.0, None, 7.0]),
        pa.array([5.0, None, 7.0]).cast(pa.float32()),
        pa.array(np.array([5.0, np.nan, 7.0], np.float16)),
        pa.array([Decimal("5.00"), None, Decimal(7)], pa.decimal128(8, 2)),
        pa.array(["5", None, "7"]).dictionary_encode(),
        pa.array(["5", None, "7"], pa.large_string()),
        pa.array(["5", None, "7"], pa.string_view()),
    ],
    ids=lambda cells: str(cells.type),
)
def test_a_number_is_one_value_however_it_is_typed(cells):
    assert texts(cells) == ["5", None, "7"]


@pytest.mark.parametrize(
    ("number", "written", "dialect"),
    [
        (7.0, ["7.0", "7", "+7", " 7 ", "007", "7e0"], {}),
        (2.5, ["2.5", "2.50", "+2.5", "25e-1"], {}),
        (2.5, ["2,5", "2,50"], {"decimal": ","}),
        (1234.5, ["1.234,50", "1234,5"], {"decimal": ",", "group": "."}),
        (9007199254740991, ["9007199254740991", "+9007199254740991"], {}),
    ],
)
def test_a_number_is_one_value_however_it_is_written_where_values_are_numbers(number, written, dialect):
    numbers, dialect = Words(name="w", tokens=("-9",), numeric=True), Dialect(**dialect)
    (short,) = numbers.texts(pa.array([number]), dialect).to_pylist()
    assert set(numbers.texts(pa.array(written), dialect).to_pylist()) == {short}
    assert numbers.texts(pa.array(["x", "-9", "-9e0", "", None]), dialect).to_pylist() == ["x", *[None] * 4]


def test_text_that_looks_like_a_number_is_text_where_values_are_text():
    codes = ["250.0", "250.00", "250", "0250", "1E3"]
    assert texts(pa.array(codes)) == codes


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([True, None, False]),
        pa.array([None, None]),
        pa.array([[1, 2], None]),
        pa.array([{"a": 1}, None]),
        pa.array([b"\xff\xfe", b"a", None]),
        pa.array([0, None], pa.timestamp("us")),
        pa.array([np.inf, -np.inf, np.nan]),
        pa.array([], pa.string()),
    ],
    ids=lambda cells: str(cells.type),
)
def test_words_of_any_type_are_texts_or_nothing(cells):
    found = texts(cells)
    assert len(found) == len(cells)
    assert all(text is None or isinstance(text, str) for text in found)


def test_a_words_text_does_not_depend_on_other_rows():
    cells = pa.array(["b", "a", " b", None, "c"])
    alone = [texts(cells.slice(i, 1))[0] for i in range(len(cells))]
    assert texts(cells) == alone


# -- shapes --


def shapes(cells, **rest):
    column = Shape(name="t", **rest)
    codes = column.encode(cells, Dialect())["t"]
    return [(*column.values, "null", "other")[code] for code in codes]


def test_the_shape_of_a_text():
    cells = pa.array(["7", "-3.0", "2.5", "1e400", "007", "0.5", "0", "2024-02-30", "2024-02-29", "2024-01-31T08:30",
                      "word", "", None, "?", "nan", "inf", " 8 "])  # fmt: skip
    assert shapes(cells, missing={"?": None}) == [
        "integer", "integer", "1 decimals", "string", "string", "1 decimals", "integer", "string", "date", "datetime",
        "string", "null", "null", "null", "null", "string", "integer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pa.array([1, None]), ["integer", "null"]),
        (pa.array([1.0, 2.5, np.nan, np.inf]), ["integer", "1 decimals", "null", "string"]),  # as its text
        (pa.array([0.07, 1234567.1, 1 / 3, -1.2345]), ["2 decimals", "1 decimals", "number", "4 decimals"]),
        (pa.array([0], pa.date32()), ["date"]),
        (pa.array([0, 1], pa.timestamp("s")), ["date", "datetime"]),  # each by itself: midnight is a date
        (pa.array([True]), ["integer"]),
    ],
)
def test_the_shape_of_a_typed_cell(cells, expected):
    assert shapes(cells) == expected


def test_no_engine_is_given_shapes_to_guess():
    with pytest.raises(SchemaError, match="write the column's type instead"):
        Shape(name="t").table()


@pytest.mark.parametrize(
    "row",
    ["Ann,1980-02-03,teacher", "Ann,03.02.1980", "Ann,12:30", "Ann,+49 30 1234", "Ann,$5.00", "Ann,50%", "Ann,1.234,5",
     "Ann,1e5", "Ann,1980-02-03T10:00:00Z", "Ann,ann@mail.org", "Ann,,x", "Ann,Ann"],
)  # fmt: skip
def test_a_first_line_that_may_be_a_row_is_not_taken_for_names_nor_quoted(tmp_path, row):
    (tmp_path / "t.csv").write_text(f"{row}\nBob,x,y\n")
    with pytest.raises(InputError, match="does not look like column names") as refused:
        read_header(tmp_path / "t.csv")
    assert "Ann" not in str(refused.value)


def test_ordinary_names_are_names(tmp_path):
    names = ["id", "income_2020", "1st visit", "Größe (cm)", "% poor", "q1", "E5_b", "#", "x"]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n")
    assert read_header(tmp_path / "t.csv")[1] == names
