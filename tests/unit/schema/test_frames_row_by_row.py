"""One odd cell must not change how the cells of other rows are coded, whatever type the frame then has."""

import datetime
import io
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv as pa_csv

from understudy.errors import SchemaError
from understudy.schema import Dialect, Schema
from understudy.schema.frames import columns_by_meaning, mark_as_written
from understudy.schema.open import Shape, Words
from understudy.source.draft import schema_type
from understudy.source.memory import MemorySource

DATES = {"minimum": "2020-01-01", "maximum": "2020-12-31"}
MOMENTS = [datetime.datetime(2020, 3, 1, 10), datetime.datetime(2020, 9, 2, 23, 30, 5)]
NUMBER = {"type": "number", "constraints": {"minimum": 0, "maximum": 100}, "understudy": {"bins": 100, "decimals": 1}}
CASES = {
    "numbers in a comma dialect": (NUMBER, [1.5, 22.5]),
    "decimals in a comma dialect": (NUMBER, [Decimal("1.5"), Decimal("22.5")]),
    "lengths in a comma dialect": (
        {"type": "duration", "constraints": {"minimum": 0, "maximum": 9999}},
        [datetime.timedelta(seconds=90.5), datetime.timedelta(seconds=5000)],
    ),
    "lengths of numpy in a comma dialect": (
        {"type": "duration", "constraints": {"minimum": 0, "maximum": 9999}},
        [np.timedelta64(90500, "ms"), np.timedelta64(5000, "s")],
    ),
    "numbers with nothing imaginary": (NUMBER, [np.complex64(1.5), np.complex64(22.5)]),
    "values of text that numbers fit": ({"type": "string", "categories": ["01", "02"]}, [1, 2]),
    "values of text with decimals": ({"type": "string", "categories": ["1.5", "2"]}, [1.5, 2.0]),
    "values of text with the table's own mark": ({"type": "string", "categories": ["1,5", "2"]}, [1.5, 2.0]),
    "missing with the table's own mark": (NUMBER | {"understudy": {"missing": {"22,5": "refused"}}}, [1.5, 22.5]),
    "lengths among numbers": (NUMBER, [datetime.timedelta(seconds=1.5), datetime.timedelta(seconds=50)]),
    "truth by other words": ({"type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]}, [True, False]),
    "periods": ({"type": "date", "constraints": DATES}, [pd.Period("2020-03-01", "D"), pd.Period("2020-09-02", "D")]),
    "whole values": ({"type": "integer", "categories": [1, 2]}, [1, 2]),
    "dates with a pattern": ({"type": "date", "format": "%d/%m/%Y", "constraints": DATES}, MOMENTS),
    "moments with a pattern": (
        {"type": "datetime", "format": "%d/%m/%Y %H:%M", "constraints": {k: f"{v}T00:00:00" for k, v in DATES.items()}},
        MOMENTS,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_odd_cell_changes_no_other(case):
    field, cells = CASES[case]
    ours = {"privacy_unit": "row", "dialect": {"decimal": ",", "group": "."}}
    schema = Schema.from_dict({"fields": [{"name": "x", **field}], "understudy": ours})
    alone, beside = pd.DataFrame({"x": cells}), pd.DataFrame({"x": pd.Series([*cells, "?"], dtype=object)})
    codes, among = schema.encode(alone).codes["x"], schema.encode(beside).codes["x"]
    assert len(set(codes)) == 2
    assert codes.tolist() == among[:-1].tolist()
    assert among[-1] == schema.coded[0].unknown_code


@pytest.mark.parametrize(
    ("field", "cells"),
    [
        ({"type": "date", "format": "%d/%m/%Y", "constraints": DATES}, [datetime.date(2020, 3, 1)]),
        ({"type": "string", "categories": ["08:30:00"]}, [datetime.time(8, 30)]),
        ({"type": "string", "categories": ["1"]}, [Decimal("1.00")]),
    ],
)
def test_an_odd_cell_changes_no_other_of_arrow_types(field, cells):
    schema = Schema.from_dict({"fields": [{"name": "x", **field}], "understudy": {"privacy_unit": "row"}})
    alone = pd.DataFrame({"x": pd.Series(pa.array(cells).to_pandas(types_mapper=pd.ArrowDtype))})
    beside = pd.DataFrame({"x": pd.Series([*cells, "?"], dtype=object)})
    assert alone["x"].dtype != object
    code, other = schema.encode(alone).codes["x"].tolist(), schema.coded[0].unknown_code
    assert code != [other]
    assert schema.encode(beside).codes["x"].tolist() == [*code, other]


DISCOVERED = {
    "numbers": [1.5, 22.0, float("inf")],
    "decimals": [Decimal("1.50"), Decimal("22.00")],
    "lengths": [datetime.timedelta(seconds=90.5), datetime.timedelta(seconds=5000)],
    "lengths of numpy": [np.timedelta64(90500, "ms"), np.timedelta64(5000, "s")],
    "short lengths of numpy": [np.timedelta64(90_500_000_000, "ns")],
    "moments": MOMENTS,
    "truth": [True, False],
    "periods": [pd.Period("2020-03-01", "D")],
}


@pytest.mark.parametrize("cells", DISCOVERED.values(), ids=DISCOVERED)
@pytest.mark.parametrize("mark", [".", ","])
def test_an_odd_cell_changes_no_discovered_value_or_shape(cells, mark):
    """Else one odd cell would show in every value that is told."""
    dialect = Dialect(decimal=mark)
    alone, beside = pd.DataFrame({"x": cells}), pd.DataFrame({"x": pd.Series([*cells, "?"], dtype=object)})
    found, among = (columns_by_meaning(frame, ["x"], dialect)[0]["x"] for frame in (alone, beside))
    words = [Words(name="x").texts(each, dialect).to_pylist() for each in (found, among)]
    assert words[0] == words[1][:-1]
    shapes = [Shape(name="x").encode(each, dialect)["x"].tolist() for each in (found, among)]
    assert shapes[0] == shapes[1][:-1]


def test_a_cell_too_large_for_a_float_is_coded_without_a_word():
    schema = Schema.from_dict({"fields": [{"name": "x", **NUMBER}], "understudy": {"privacy_unit": "row"}})
    codes = schema.encode(pd.DataFrame({"x": [1e308, -1e308, 1.0]})).codes["x"]
    assert codes.tolist() == [99, 0, codes[2]]
    assert np.array_equal(schema.encode(pd.DataFrame({"x": ["1e308", "-1e308", "1"]})).codes["x"], codes)


COLUMNS = [
    {"type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
    NUMBER | {"understudy": {"missing": {"2,5": "refused"}}},
    {"type": "string", "categories": ["1", "2,5", "01", "true", "2020-03-01"]},
    {"type": "number", "categories": [1, 2.5]},
    {"type": "boolean", "trueValues": ["Y", "1"], "falseValues": ["N", "0"]},
    {"type": "date", "format": "%d.%m.%Y", "constraints": DATES},
    {"type": "duration", "constraints": {"minimum": 0, "maximum": 99}},
]
CELLS = {
    "whole numbers": [1, 2, 3],
    "numbers": [1.0, 2.5],
    "truth": [True, False],
    "moments": MOMENTS,
    "moments with a zone": [moment.replace(tzinfo=datetime.UTC) for moment in MOMENTS],
    "dates": [datetime.date(2020, 3, 1)],
    "lengths": [datetime.timedelta(seconds=1), datetime.timedelta(seconds=2.5)],
    "text": ["1", "2,5", "01", "true", "01.03.2020"],
}
MORE = [None, "?", 2**63, 2**70, 1e308, float("-inf"), 1 + 0j, True, 1.5, "true", b"x", [1], pd.NA, pd.NaT]
MORE += [datetime.date(2020, 3, 1), *MOMENTS, datetime.datetime.max, datetime.timedelta(1), datetime.time(1)]


@pytest.mark.filterwarnings("ignore")  # pandas' own, about what it makes of such columns
@pytest.mark.parametrize("kind", CELLS)
def test_one_more_row_moves_the_counts_by_one(kind):
    """Whatever type pandas gives to the column then: this is what the noise is made for."""
    for field in COLUMNS:
        ours = {"privacy_unit": "row", "dialect": {"decimal": ",", "group": "."}}
        schema = Schema.from_dict({"fields": [{"name": "x", **field}], "understudy": ours})

        def counts(cells, schema=schema):
            return dict(MemorySource(pd.DataFrame({"x": cells}), schema).counts([("x",)]))["x",]

        before = counts(CELLS[kind])
        for one in MORE:
            assert np.abs(counts([one, *CELLS[kind]]) - before).sum() == 1, (field, one)


@pytest.mark.parametrize("odd", [datetime.date(2020, 3, 1), MOMENTS[0], "?", b"?"])
def test_categories_of_any_type_are_coded_each_by_itself(odd):
    """Arrow would guess one type for all categories, and take a 5 beside a date for a day of 1970."""
    field = {"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    cells = pd.Categorical([odd, 5, None], categories=pd.Index([odd, 5], dtype=object))
    column = schema.coded[0]
    assert schema.encode(pd.DataFrame({"x": cells})).codes["x"].tolist() == [column.unknown_code, 5, column.null_code]


def test_nested_cells_that_python_cannot_hold_fail_nothing():
    cells = pa.array([None, [0], [2**30]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    schema = Schema.from_dict({"fields": [{"name": "x", **NUMBER}], "understudy": {"privacy_unit": "row"}})
    null, unknown = schema.coded[0].null_code, schema.coded[0].unknown_code
    assert schema.encode(pa.table({"x": cells})).codes["x"].tolist()[:2] == [null, unknown]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(21, 1), pa.string()])
def test_an_empty_cell_is_as_round_in_every_type(kind):
    """One cell with a decimal makes floats of whole numbers: empty cells of heaped amounts stay what they were."""
    field = {"name": "x", "type": "integer", "constraints": {"minimum": 1, "maximum": 900}}
    schema = Schema.from_dict(
        {"fields": [field | {"understudy": {"heaped": [100, 10, 1]}}], "understudy": {"privacy_unit": "row"}}
    )
    codes = schema.encode(pa.table({"x": pa.array([None, 5]).cast(kind)})).codes
    assert codes["x"].tolist() == [schema.coded[0].null_code, 0]
    assert codes["x.round"].tolist() == [0, 2]


GUESSED = {
    "truth": (["True", "False"], [{"categories": ["True", "False"]}, {"categories": ["true", "false"]}]),
    "truth in capitals": (["TRUE", "FALSE"], [{"categories": ["TRUE", "FALSE"]}, {"categories": ["true", "false"]}]),
    "truth by other words": (["True", "FALSE"], [{"type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]}]),
    "numbers": (["7.0", "8.50"], [{"categories": ["7", "8.5"]}, {"categories": ["7.0", "8.50"]}]),
    "codes": (["007", "012"], [{"categories": ["7", "12"]}, {"categories": ["007", "012"]}]),
    "powers": (["1e3", "2E3"], [{"categories": ["1000", "2000"]}, {"categories": ["1e3", "2E3"]}]),
    "signs": (["+7", "-0"], [{"categories": ["7", "0"]}, {"categories": ["+7", "-0"]}]),
    "long numbers": (
        ["12345678901234567", "98765432109876543"],
        [
            {"categories": ["12345678901234567", "98765432109876543"]},
            {"type": "integer", "categories": [12345678901234567, 98765432109876543]},
        ],
    ),
    "no numbers": (["inf", "-inf", "7"], [{"categories": ["inf", "-inf", "7"]}, {"categories": ["7"]}, NUMBER]),
    "not a number": (["NaN", "7"], [{"categories": ["8", "7"]}, NUMBER]),
    "days": (["2020-01-31", "2020-02-01"], [{"categories": ["2020-01-31", "2020-02-01"]}]),
    "moments": (
        ["2020-01-31 08:30:00", "2020-02-01 00:00:00"],
        [
            {"categories": ["2020-01-31 08:30:00", "2020-02-01 00:00:00"]},
            {"categories": ["2020-01-31T08:30:00", "2020-02-01"]},
        ],
    ),
}
READERS = {
    "pandas": lambda text: pd.read_csv(io.StringIO(text)),
    "polars": lambda text: pl.read_csv(io.StringIO(text), try_parse_dates=True),
    "arrow": lambda text: pa_csv.read_csv(io.BytesIO(text.encode())),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", GUESSED)
def test_one_odd_row_moves_the_counts_by_one_whatever_a_reader_guesses(case, reader):
    cells, fields = GUESSED[case]
    text = "x,y\n" + "".join(f"{cell},1\n" for cell in cells * 5)
    for field in fields:
        schema = Schema.from_dict(
            {"fields": [{"name": "x", "type": "string", **field}], "understudy": {"privacy_unit": "row"}}
        )

        def counts(text, schema=schema):
            return np.bincount(schema.encode(READERS[reader](text)).codes["x"], minlength=schema.domain["x"])

        for odd in ("?", "", "5", "5.5", "2019-01-01", "2019-01-01 05:00:00", "True", "99999999999999999999"):
            assert np.abs(counts(f"{text}{odd},1\n") - counts(text)).sum() == 1, (field, odd)


LONG = [2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**53 + 2, 2**63 - 2]


@pytest.mark.parametrize("kind", ["integer", "string"])
def test_a_long_whole_number_of_a_file_is_itself(kind):
    values = LONG[:4] if kind == "integer" else [str(value) for value in LONG[:4]]
    field = {"name": "x", "type": kind, "categories": values}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    table = mark_as_written(pa.table({"x": [str(value) for value in LONG[:4]]}))
    assert schema.encode(table).codes["x"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["integer", "string"])
@pytest.mark.parametrize(
    "cells",
    [
        pa.array(LONG),
        pa.array(map(float, LONG)),
        pa.array(map(str, LONG)),
        pa.array([f" {value:+d} " for value in LONG]),
        pa.array(LONG).dictionary_encode(),
        pa.array(map(Decimal, LONG), pa.decimal128(30, 4)),
        pd.Series(LONG, dtype=object),
        pl.Series(LONG),
    ],
    ids=lambda cells: str(getattr(cells, "type", type(cells))),
)
def test_a_long_whole_number_of_a_frame_is_what_floating_point_makes_of_it(cells, kind):
    """One empty or longer cell makes floating point of a column: what it cannot tell apart is never told apart."""
    values = LONG[:4] if kind == "integer" else [str(value) for value in LONG[:4]]
    field = {"name": "x", "type": kind, "categories": values}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    frame = cells.to_frame("x") if hasattr(cells, "to_frame") else pa.table({"x": cells})
    first, second, third, fourth, fifth, sixth = schema.encode(frame).codes["x"].tolist()
    assert (first, third, fourth) == (second, 2, 3)
    assert fifth == 5
    assert sixth == fourth


def test_a_long_missing_code_next_to_categories_is_written_where_the_type_holds_it():
    missing = {"9007199254740993": "refused", "99999999999999999999": "lost"}
    field = {"name": "x", "type": "integer", "categories": [1], "understudy": {"missing": missing}}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    made = schema.decode({"x": np.array([0, 1, 2])}, np.random.default_rng(0))
    assert made["x"].to_pylist() == [1, None, 9007199254740993]


FINE = Decimal("0.00001")
DECIMALS = {
    "values": ({"type": "number", "categories": [7, 14, 0.7]}, [0, 1, 2]),
    "values of text": ({"type": "string", "categories": ["7", "14", "0.7"]}, [0, 1, 2]),
    "missing and spikes": (
        {
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 20},
            "understudy": {"bins": 2, "missing": {"7": "refused", "0.7": "lost"}, "spikes": [14]},
        },
        [4, 2, 3],
    ),
    "bins": (
        {
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 20},
            "understudy": {"bins": {"edges": [0, 0.7, 7, 14, 20]}},
        },
        [2, 3, 1],
    ),
}


@pytest.mark.parametrize("case", DECIMALS)
@pytest.mark.parametrize("made", [pa.table, pl.DataFrame, pd.DataFrame])
def test_a_cell_with_more_decimals_changes_no_other(case, made):
    """Pyarrow and polars give a column of decimals the scale that its longest cell needs."""
    field, codes = DECIMALS[case]
    schema = Schema.from_dict({"fields": [{"name": "x", **field}], "understudy": {"privacy_unit": "row"}})
    cells = [Decimal("7"), Decimal("14"), Decimal("0.7")]
    assert schema.encode(made({"x": cells})).codes["x"].tolist() == codes
    for digits in range(1, 30):
        more = [*cells, Decimal(1).scaleb(-digits)]
        assert schema.encode(made({"x": more})).codes["x"].tolist()[:3] == codes


@pytest.mark.parametrize("case", DECIMALS)
@pytest.mark.parametrize("kind", [pa.decimal32(5, 1), pa.decimal64(10, 5), pa.decimal128(38, 9), pa.decimal256(60, 9)])
def test_decimals_of_every_width_are_coded_alike(case, kind):
    field, codes = DECIMALS[case]
    schema = Schema.from_dict({"fields": [{"name": "x", **field}], "understudy": {"privacy_unit": "row"}})
    cells = pa.array([Decimal("7"), Decimal("14"), Decimal("0.7")]).cast(kind)
    assert schema.encode(pa.table({"x": cells})).codes["x"].tolist() == codes
    assert schema.encode(pa.table({"x": cells.cast(pa.string()).dictionary_encode()})).codes["x"].tolist() == codes


MISSING = {"-9": "refused", "09": "lost", "2,5": None, "2020-03-01": "never", "true": "odd"}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("mark", [".", ","])
def test_an_odd_cell_changes_no_shape_that_means_missing(kind, mark):
    cells = [*CELLS[kind], *{"whole numbers": [-9, 9], "numbers": [-9.0, 9.0]}.get(kind, [])]
    beside = pd.Series([*cells, "?"], dtype=object)
    shape, dialect = Shape(name="x", missing=MISSING), Dialect(decimal=mark)
    found, among = (
        shape.encode(columns_by_meaning(pd.DataFrame({"x": column}), ["x"], dialect)[0]["x"], dialect)["x"].tolist()
        for column in (cells, beside)
    )
    assert found == among[:-1]
    marked = int(mark == ",")
    wanted = {"whole numbers": 3, "numbers": 3 + marked, "truth": 1, "dates": 1, "lengths": 1 + marked, "text": 4}
    assert found.count(shape.empty_code) == wanted.get(kind, 0)


@pytest.mark.parametrize("token", ["9999999999999999", "99999999999999999999", "-9999999999999999"])
def test_a_long_code_for_missing_is_found_in_whole_numbers_as_in_floats(token):
    """An empty cell makes floats of pandas' whole numbers."""
    field = {"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}
    schema = Schema.from_dict(
        {"fields": [field | {"understudy": {"missing": {token: "refused"}}}], "understudy": {"privacy_unit": "row"}}
    )
    cells = [3, 9999999999999999, -9999999999999999, 2**62]
    alone, beside = pd.DataFrame({"x": cells}), pd.DataFrame({"x": [*cells, None]})
    assert (alone["x"].dtype, beside["x"].dtype) == ("int64", "float64")
    assert schema.encode(alone).codes["x"].tolist() == schema.encode(beside).codes["x"].tolist()[:-1]


@pytest.mark.parametrize("missing", [{"9": "refused", "09": "lost"}, {"09": "refused", "9": "lost"}])
@pytest.mark.parametrize("mark", [".", ","])
def test_two_codes_for_missing_of_one_number_are_distinguished_in_the_same_way(missing, mark):
    missing = missing | {f"9{mark}0": "never"}
    field = {"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 5}}
    content = {"privacy_unit": "row", "dialect": {"decimal": mark, "delimiter": ";"}}
    schema = Schema.from_dict({"fields": [field | {"understudy": {"missing": missing}}], "understudy": content})
    column = schema.coded[0]
    wanted = [3, column.reason_code(missing["9"])]
    for cells in ([3, 9], [3.0, 9.0], [3, 9, "?"], [3, 9.0, "?"], ["3", "9"]):
        assert schema.encode(pd.DataFrame({"x": cells})).codes["x"].tolist()[:2] == wanted


def test_truth_that_is_declared_missing_is_so_in_every_type():
    field = {"name": "x", "type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]}
    field["understudy"] = {"missing": {"true": "refused"}}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    for cells in ([True, False], [True, False, None], [True, False, "?"]):
        assert schema.encode(pd.DataFrame({"x": cells})).codes["x"].tolist()[:2] == [2, 0]


def test_a_missing_token_that_is_a_truth_value_is_refused_before_rows_are_read():
    """It was found out in the middle of a run, and only where a cell made words of the column."""
    field = {"name": "x", "type": "boolean", "understudy": {"missing": {"0": "refused"}}}
    with pytest.raises(SchemaError, match="both a truth value and a `missing` token"):
        Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})


@pytest.mark.parametrize("decimal", [".", ","])
def test_lengths_of_engines_are_lengths_and_months_are_none(decimal):
    """DuckDB holds lengths of time as months, days and nanoseconds; one of months leaves the others what they are."""
    field = {"name": "x", "type": "duration", "constraints": {"minimum": 0, "maximum": 100_000}}
    ours = {"privacy_unit": "row", "dialect": {"decimal": decimal, "group": ""}}
    schema = Schema.from_dict({"fields": [field], "understudy": ours})
    lengths = [(0, 0, 90_500_000_000), (0, 1, 0), None, (1, 0, 0), (0, 2**31 - 1, 0), (0, 0, -1)]
    cells = pa.array([None if length is None else pa.MonthDayNano(length) for length in lengths])
    plain = pa.array([90_500_000, 86_400_000_000, None], pa.int64()).view(pa.duration("us"))
    found = schema.encode(pa.table({"x": cells})).codes["x"].tolist()
    assert found[:3] == schema.encode(pa.table({"x": plain})).codes["x"].tolist()
    assert found[3:] == [schema.coded[0].unknown_code, schema.coded[0].unknown_code, 0]


def test_lengths_of_engines_are_drafted_as_lengths():
    assert schema_type(pa.month_day_nano_interval()) == schema_type(pa.duration("us")) == "duration"
