"""How each kind of column codes and decodes its cells."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
from understudy.schema.column import Identifier
from understudy.schema.frames import mark_as_written
from understudy.schema.temporal import parse_dates


def schema_of(*fields, **ours):
    return Schema.from_dict({"fields": list(fields), "understudy": {"privacy_unit": "row", **ours}})


def number(kind="integer", low=0, high=100, required=False, **ours):
    limits = {"minimum": low, "maximum": high, "required": required}
    return {"name": "x", "type": kind, "constraints": limits, "understudy": ours}


def words(*values, required=False, **ours):
    return {"name": "x", "type": "string", "categories": list(values), "constraints": {"required": required}} | {
        "understudy": ours
    }


def codes(schema, cells):
    return schema.encode(pa.table({"x": pa.array(cells, pa.string())})).codes["x"].tolist()


def values(schema, codes, seed=0, **options):
    arrays = {part: np.asarray(codes) for part in schema.domain}
    return schema.decode(arrays, np.random.default_rng(seed), **options)["x"].to_pylist()


# -- layout of codes -------------------------------------------------------------------------------------------------


def test_codes_are_values_then_reasons_then_null_then_other():
    schema = schema_of(words("a", "b", missing={"-9": "refused", "-8": "not_applicable", "?": None}))
    assert dict(schema.domain) == {"x": 6}
    assert codes(schema, ["a", "b", "-9", "-8", "?", "", "zzz", None]) == [0, 1, 3, 2, 4, 4, 5, 4]
    assert values(schema, [0, 1, 2, 3, 4, 5]) == ["a", "b", "-8", "-9", None, "other"]


@pytest.mark.parametrize(
    ("required", "rule", "unknown", "null", "size"),
    [
        (False, "other", 3, 2, 4),
        (False, "null", 2, 2, 3),
        (True, "other", 2, 2, 3),
    ],
)
def test_unknown_and_empty_cells_follow_the_rule(required, rule, unknown, null, size):
    schema = schema_of(words("a", "b", required=required, on_unknown=rule))
    assert schema.domain["x"] == size
    assert codes(schema, ["zzz", None, "a"]) == [unknown, null, 0]


def test_drop_row_keeps_no_row_with_an_unknown_cell_and_adds_no_code():
    schema = schema_of(words("a", "b", required=True, on_unknown="drop_row"))
    encoded = schema.encode(pa.table({"x": ["a", "zzz", None, "b"]}))
    assert schema.domain["x"] == 2
    assert encoded.keep.tolist() == [True, False, False, True]
    assert encoded.codes["x"][encoded.keep].tolist() == [0, 1]


def test_a_declared_value_called_other_takes_unknown_values_in():
    schema = schema_of(words("a", "Other", required=True, other="Other"))
    assert schema.domain["x"] == 2
    assert codes(schema, ["zzz", "Other", "a"]) == [1, 1, 0]


def test_an_unknown_number_becomes_null_or_a_value_of_a_neighbouring_row():
    nullable, required = schema_of(number(high=9)), schema_of(number(high=9, required=True))
    assert values(nullable, [3, 11]) == [3, None]
    drawn = values(required, [3, 3, 7, 10, 10, 10, 10, 10])
    assert set(drawn[3:]) <= {3, 7}
    assert None not in drawn
    assert None not in values(required, [10, 10, 10])


def test_blanks_around_a_value_do_not_matter_unless_declared():
    assert codes(schema_of(words("a", " b")), [" a ", " b", "b"]) == [0, 1, 3]
    assert codes(schema_of(words("a"), dialect={"trim": False}), [" a"]) == [2]


def test_leading_zeros_survive_where_no_reader_guessed():
    """In a frame, whether 007 is text depends on other rows: of two writings of one number the short one counts."""
    schema = schema_of(words("007", "7", required=True))
    cells = pa.table({"x": ["007", "7", "07"]})
    assert schema.encode(mark_as_written(cells)).codes["x"].tolist() == [0, 1, 1]
    for frame in (cells, cells.to_pandas(), pd.DataFrame({"x": [7, 7, 7]})):
        assert schema.encode(frame).codes["x"].tolist() == [1, 1, 1]
    assert codes(schema_of(words("007", "8")), ["007", "7", "8.0"]) == [0, 0, 1]


def test_whole_number_categories_are_found_however_they_are_written():
    field = {"name": "x", "type": "integer", "categories": [1, 2, 10], "categoriesOrdered": True}
    schema = schema_of(field)
    assert codes(schema, ["1", "2.0", "010", "3", ""]) == [0, 1, 2, 4, 3]
    for frame in (pd.DataFrame({"x": [1.0, 10.0, np.nan]}), pl.DataFrame({"x": [1, 10, None]})):
        assert schema.encode(frame).codes["x"].tolist() == [0, 2, 3]
    assert values(schema, [0, 2, 3, 4]) == [1, 10, None, None]


def test_booleans_read_their_words_and_come_back_as_booleans():
    field = {"name": "x", "type": "boolean", "trueValues": ["YES"], "falseValues": ["NO"]}
    schema = schema_of(field | {"understudy": {"missing": {"9": "refused"}}})
    assert codes(schema, ["YES", "NO", "maybe", "9", ""]) == [1, 0, 4, 2, 3]
    assert values(schema, [0, 1, 2, 3]) == [False, True, None, None]
    assert values(schema, [0, 1, 2, 3], text=True) == ["NO", "YES", "9", ""]


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_values_outside_the_bounds_are_clipped_or_unknown():
    assert codes(schema_of(number(high=9)), ["-5", "0", "9", "10000000000000000000000"]) == [0, 0, 9, 9]
    assert codes(schema_of(number(high=9, outside="unknown")), ["-5", "0", "9", "10"]) == [11, 0, 9, 11]


def test_text_that_is_not_a_number_follows_the_rule_and_infinity_too():
    schema = schema_of(number(high=9))
    assert codes(schema, ["abc", "1 2", "0x", "1_0", "inf", "-Infinity", "\u0663"]) == [11] * 7
    assert codes(schema, ["nan", "NaN"]) == [10] * 2  # among typed numbers it is an empty cell


@pytest.mark.parametrize(
    ("ours", "edges"),
    [
        ({"bins": 4}, [0, 25, 50, 75]),
        ({"bins": {"width": 40}}, [0, 40, 80]),
        ({"bins": {"edges": [0, 18, 65, 100]}}, [0, 18, 65]),
        ({"bins": 3, "scale": "log"}, [0, 4, 21]),
        ({"bins": 2, "top": {"from": 90}}, [0, 50, 90]),
    ],
)
def test_bins_begin_where_they_are_declared_to(ours, edges):
    schema = schema_of(number(high=100, **ours))
    starts = [entry.lower for entry in schema.column("x").table() if entry.what == "interval"]
    assert starts == pytest.approx(edges)
    found = codes(schema, [str(value) for value in range(101)])
    assert found == (np.searchsorted(edges, np.arange(101), side="right") - 1).tolist()


def test_without_bins_small_ranges_are_exact_and_large_ones_have_100():
    assert schema_of(number(high=199)).column("x").ordinary == 200
    assert schema_of(number(high=200)).column("x").ordinary == 100
    assert schema_of(number("number")).column("x").ordinary == 100


def test_spikes_have_their_own_codes_and_bins_never_draw_them():
    schema = schema_of(number(high=9, bins=1, spikes=[0, 5]))
    assert codes(schema, ["0", "5", "3", "9"]) == [0, 2, 1, 1]
    drawn = values(schema, [1] * 500)
    assert set(drawn) == {1, 2, 3, 4, 6, 7, 8, 9}
    assert values(schema, [0, 2]) == [0, 5]


def test_a_bin_that_holds_only_a_spike_disappears():
    schema = schema_of(number(high=3, spikes=[0]))
    assert schema.column("x").ordinary == 4
    assert codes(schema, ["0", "1", "2", "3"]) == [0, 1, 2, 3]


def test_draws_fill_the_bin_evenly_or_sit_where_declared():
    uniform = np.bincount(values(schema_of(number(high=9, bins=1)), [0] * 20_000), minlength=10)
    assert np.abs(uniform / 2000 - 1).max() < 0.15
    assert set(values(schema_of(number(high=9, bins=1, draw="lower")), [0] * 9)) == {0}
    assert set(values(schema_of(number(high=9, bins=1, draw="midpoint")), [0] * 9)) == {5}
    points = schema_of(number(high=100, bins=2, points=[10, 20, 60]))
    assert set(values(points, [0] * 200)) == {10, 20}
    assert set(values(points, [1] * 20)) == {60}


def test_the_top_bin_follows_its_rule():
    base = {"high": 1000, "bins": 10}
    assert set(values(schema_of(number(**base, top={"from": 900, "rule": "value", "value": 950})), [9] * 5)) == {950}
    pareto = schema_of(number(**base, top={"from": 100, "rule": "pareto", "alpha": 3}))
    drawn = np.array(values(pareto, [1] * 5000))
    assert drawn.min() >= 100
    assert drawn.max() <= 1000
    assert np.median(drawn) == pytest.approx(100 * 2 ** (1 / 3), abs=4)


def test_a_top_bin_below_a_spike_at_the_maximum_still_follows_its_rule():
    schema = schema_of(number(high=100, bins=2, spikes=[100], top={"from": 90, "rule": "value", "value": 95}))
    assert codes(schema, ["95", "100", "3"]) == [2, 3, 0]
    assert values(schema, [2, 3]) == [95, 100]


def test_a_missing_code_between_the_bounds_is_never_drawn_as_a_value():
    exact = schema_of(number(high=99, required=True, missing={"99": "refused"}, on_unknown="drop_row"))
    assert exact.domain["x"] == 100
    assert codes(exact, ["98", "99", "99.0", "500"]) == [98, 99, 99, 98]
    binned = schema_of(number(high=9, bins=1, missing={"5": "refused"}, spikes=[0]))
    assert set(values(binned, [1] * 400)) == {1, 2, 3, 4, 6, 7, 8, 9}
    heaped = schema_of(number(high=99, heaped=[10, 5, 1], missing={"50": "refused"}))
    arrays = {"x": np.full(300, 5), "x.round": np.zeros(300, int)}
    assert 50 not in heaped.decode(arrays, np.random.default_rng(0))["x"].to_pylist()


def test_decimals_are_kept_and_bins_are_cut_between_them():
    schema = schema_of(number("number", 0, 1, decimals=1, bins=11))
    assert codes(schema, ["0.1", "0.30000000000000004", "1"]) == [1, 3, 10]
    assert values(schema, range(11)) == [k / 10 for k in range(11)]
    assert values(schema, [3, 10], text=True) == ["0.3", "1.0"]


def test_decimal_comma_and_digit_groups():
    schema = schema_of(number("number", 0, 5000, bins=5000), dialect={"decimal": ",", "group": ".", "delimiter": ";"})
    assert codes(schema, ["1.234,5", "12,0", "1,5e3"]) == [1234, 12, 1500]


def test_missing_codes_next_to_numbers_keep_their_reasons():
    schema = schema_of(
        number(high=9, missing={"-9": "refused", "-8": "not_applicable", "N": "other reason", "?": None})
    )
    assert codes(schema, ["-9", "-8.0", "-8", "N", "?", "5"]) == [12, 10, 10, 11, 13, 5]
    assert schema.encode(pd.DataFrame({"x": [-9.0, 5.0]})).codes["x"].tolist() == [12, 5]
    assert values(schema, [12, 10, 11, 13, 14, 5]) == [-9, -8, None, None, None, 5]
    assert values(schema, [12, 10, 11, 13, 14, 5], text=True) == ["-9", "-8", "N", "?", "?", "5"]


def test_missing_codes_may_be_written_as_numbers_in_yaml(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "fields: [{name: x, type: integer, constraints: {minimum: 0, maximum: 9}, "
        "understudy: {missing: {-9: refused}}}]\n"
        "understudy: {privacy_unit: row}\n"
    )
    assert codes(Schema.load(tmp_path / "s.yaml"), ["-9"]) == [10]


# -- times -----------------------------------------------------------------------------------------------------------


def moment(kind="date", low="2020-01-01", high="2020-12-31", **ours):
    field = {"name": "x", "type": kind, "constraints": {"minimum": low, "maximum": high}}
    return field | {"understudy": ours}


def test_dates_by_month_and_in_other_formats():
    schema = schema_of(moment(bins={"width": "1 month"}) | {"format": "%d/%m/%Y"})
    assert codes(schema, ["31/01/2020", "1/2/2020", "30/02/2020", "2020-03-01", "31/12/2031"]) == [0, 1, 13, 2, 11]
    assert schema.encode(pl.DataFrame({"x": [dt.date(2020, 12, 31)]})).codes["x"].tolist() == [11]
    drawn = values(schema, [1] * 300)
    assert {day.month for day in drawn} == {2}
    assert {day.day for day in drawn} == set(range(1, 30))
    assert all(text.endswith("/02/2020") for text in values(schema, [1] * 5, text=True))


def test_years_of_two_digits_are_no_years_of_four():
    """05.07.22 is not a day of the year 22, which would be moved to the lower bound."""
    days, valid = parse_dates(pa.array(["05.07.2022", "5.7.2022", "05.07.22", "05.07.0022"]), "%d.%m.%Y")
    assert valid.tolist() == [True, True, False, True]
    assert days[0] == days[1]


def test_two_digit_years_and_month_names_are_read():
    assert codes(schema_of(moment(bins={"width": "1 month"}) | {"format": "%d %b %y"}), ["05 Mar 20"]) == [2]


def test_datetimes_with_and_without_an_offset():
    schema = schema_of(moment("datetime", "2020-01-01", "2020-01-02", bins={"width": "1 hour"}))
    assert codes(schema, ["2020-01-01T05:30:00", "2020-01-01T05:30:00+02:00", "2020-01-01"]) == [5, 3, 0]
    assert all(stamp.hour == 5 for stamp in values(schema, [5] * 20))


def test_durations_in_every_way_they_are_written():
    schema = schema_of(moment("duration", 0, "P2D", bins={"width": "1 hour"}))
    texts = ["P1DT2H", "26:30:00", "1 day, 2:00:00", "7200", "PT90M", "-PT1H", "soon"]
    assert codes(schema, texts) == [26, 26, 26, 2, 1, 0, 50]
    assert schema.encode(pd.DataFrame({"x": [pd.Timedelta(hours=3)]})).codes["x"].tolist() == [3]
    assert values(schema, [3])[0] // dt.timedelta(hours=1) == 3


# -- the whole schema ------------------------------------------------------------------------------------------------


def test_columns_that_are_not_synthesised_are_never_read():
    schema = schema_of(
        {"name": "secret", "understudy": {"kind": "drop"}},
        words("a"),
        {"name": "key", "understudy": {"kind": "id", "pattern": "P-##"}},
        {"name": "year", "understudy": {"kind": "constant", "value": 2011}},
    )
    assert schema.needs == ("x",)
    assert dict(schema.domain) == {"x": 3}
    frame = schema.decode({"x": np.zeros(120, np.uint8)}, np.random.default_rng(0), as_="pandas")
    assert list(frame.columns) == ["x", "key", "year"]
    assert frame["key"].is_unique
    assert frame["key"].iloc[0] == "P-001"
    assert set(frame["year"]) == {2011}


@pytest.mark.parametrize(
    ("pattern", "last", "key"),
    [("P-##", 7, "P-07"), ("P-##", 120, "P-120"), ("C####-##", 120, "C0001-20"), ("#-#x", 1234, "123-4x")],
)
def test_the_digits_of_a_running_number_fill_the_pattern_from_the_right(pattern, last, key):
    assert Identifier(name="key", pattern=pattern).make(3, first=last - 2).to_pylist()[-1] == key


def test_the_unit_column_is_needed_but_not_synthesised():
    fields = [{"name": "pid", "understudy": {"kind": "id"}}, words("a")]
    schema = schema_of(*fields, privacy_unit={"column": "pid", "max_rows": 3})
    assert schema.needs == ("pid", "x")
    assert "pid" not in schema.domain
    assert (schema.privacy_unit.column, schema.privacy_unit.max_rows) == ("pid", 3)


def test_from_domain_takes_codes_as_they_are():
    schema = Schema.from_domain({"age": 85, "sex": 2})
    assert dict(schema.domain) == {"age": 85, "sex": 2}
    encoded = schema.encode(pd.DataFrame({"age": [0, 84, 85, -1], "sex": [0, 1, 1, 0]}))
    assert encoded.keep.tolist() == [True, True, False, False]
    assert encoded.codes["age"][:2].tolist() == [0, 84]
    assert encoded.codes["age"].dtype == np.uint8
    again = schema.decode({"age": np.arange(85), "sex": np.zeros(85, int)}, np.random.default_rng(0))
    assert again["age"].to_pylist() == list(range(85))
    assert Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize(("size", "dtype"), [(256, np.uint8), (257, np.uint16), (70_000, np.uint32)])
def test_codes_are_compact(size, dtype):
    schema = Schema.from_domain({"a": size})
    assert schema.encode(pa.table({"a": [size - 1]})).codes["a"].dtype == dtype


@pytest.mark.parametrize(
    ("frame", "remedy"),
    [
        (pd.DataFrame({"y": ["a"]}), "column 'x' is not in the table; add or rename there"),
        (pd.DataFrame([["a", "b"]], columns=["x", "x"]), "column 'x' is named more than once"),
        (pd.DataFrame([["a", "b", "c"]], columns=["x", "secret", "secret"]), "column 2 and others"),
        (pd.DataFrame(), "give one with the columns that the schema names"),
        ([1, 2], "must be a pandas, polars or pyarrow frame"),
        (np.zeros((2, 2)), "must be a pandas, polars or pyarrow frame"),
        (type("Odd", (), {"columns": [pa.array(["secret"]), pa.array(["secret"])]})(), "must be a pandas, polars or"),
        (pl.LazyFrame({"x": ["a"]}), "collect a lazy frame"),
    ],
)
def test_structure_is_an_error_that_names_the_remedy(frame, remedy):
    with pytest.raises(InputError) as caught:
        schema_of(words("a")).encode(frame)
    assert remedy in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_record_batch_is_a_table():
    assert schema_of(words("a")).encode(pa.record_batch({"x": ["a", "b"]})).codes["x"].tolist() == [0, 2]


def test_empty_tables_are_fine():
    schema = schema_of(words("a"))
    assert schema.encode(pd.DataFrame({"x": pd.Series([], dtype=object)})).codes["x"].tolist() == []
    assert schema.decode({"x": np.zeros(0, int)}, np.random.default_rng(0)).num_rows == 0


def test_integer_column_labels_of_a_headerless_frame_are_names():
    assert schema_of(words("a") | {"name": "0"}).encode(pd.DataFrame([["a"]])).codes["0"].tolist() == [0]


def test_drafts_are_refused_by_name():
    schema = schema_of(words("a", status="draft"), words("a") | {"name": "fine"})
    with pytest.raises(SchemaError, match="still drafts: x;"):
        schema.require_reviewed()
    assert "custodian_only" in schema.to_dict()["understudy"]
    schema_of(words("a")).require_reviewed()


# -- the table of a coding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        number(high=50, bins={"width": 7}, spikes=[0, 9], missing={"-9": "refused", "?": None}),
        number("number", high=5, bins=9, spikes=[2]),
        number(high=999, scale="log", required=True),
        number(high=60, top={"from": 50}, required=True, on_unknown="drop_row"),
        moment(bins={"width": "1 month"}, missing={"N": "not_applicable"}),
    ],
)
def test_the_table_of_a_coding_codes_cells_by_itself(field):
    """A small engine that knows only `Entry` gets the same codes: what a SQL compiler will rely on."""
    schema = schema_of(field)
    column = schema.column("x")
    cells = ["-9", "?", "N", "", "0", "9", "8", "2", "50", "4.999", "5", "99", "-3", "abc", "2020-02-29", "2031-01-01"]
    encoded = schema.encode(pa.table({"x": cells}))
    found = np.where(encoded.keep, encoded.codes["x"].astype(int), -1).tolist()
    assert [engine(column, cell) for cell in cells] == found


def engine(column, cell):
    table = column.table()
    for entry in table:
        if entry.what in ("missing", "null") and cell == (entry.value or ""):
            return entry.code
    units = unit(column, cell)
    if units is None:
        return next(entry.code for entry in table if entry.what == "unknown")
    units = min(max(units, column.bounds[0]), column.bounds[1])
    for entry in table:
        if entry.what == "value" and entry.value == units:
            return entry.code
    held = [entry for entry in table if entry.what == "interval" and entry.lower <= units]
    return next(entry.code for entry in held if units < entry.upper or (entry.closed and units == entry.upper))


def unit(column, cell):
    try:
        if column.kind == "date":
            return (dt.date.fromisoformat(cell) - dt.date(1970, 1, 1)).days
        return round(float(cell)) if column.kind == "integer" else float(cell)
    except ValueError:
        return None


@pytest.mark.parametrize("rule", ["other", "null", "drop_row"])
@pytest.mark.parametrize("kind", ["number", "date"])
def test_a_missing_code_of_nought_takes_no_cell_that_cannot_be_read(kind, rule):
    nought, low, high = ("0", -5, 9) if kind == "number" else ("1970-01-01", "1960-01-01", "2020-12-31")
    ours = {"bins": 9, "missing": {nought: "refused"}, "on_unknown": rule}
    field = {"name": "x", "type": kind, "constraints": {"minimum": low, "maximum": high}, "understudy": ours}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    column = schema.coded[0]
    coded = column.encode(pa.array([nought, "abc", ""]), schema.dialect)["x"].tolist()
    assert coded == [column.reason_code("refused"), column.unknown_code, column.null_code]
