"""Drafts: what is proposed for which column, and that nothing private slips into it unwidened or unfolded."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from understudy.errors import InputError
from understudy.schema import Dialect, Schema
from understudy.schema.custodian import MARK, OUTPUTS, find_marked, mark_path, unmark_path
from understudy.schema.draft import draft, widen_bounds
from understudy.schema.sniff import sniff
from understudy.source.draft import declared_decimals, draft_open_schema, schema_type

ROWS = 1000
RNG = np.random.default_rng(7)
TABLE = pd.DataFrame(
    {
        "person_id": RNG.integers(0, 300, ROWS).astype(str),
        "record": [f"r{index}" for index in range(ROWS)],
        "age": RNG.integers(17, 91, ROWS).astype(str),
        "income": np.where(RNG.random(ROWS) < 0.3, "0", (RNG.integers(3, 170, ROWS) * 100).astype(str)),
        "weight": [f"{value:.1f}" for value in RNG.uniform(41.3, 149.2, ROWS)],
        "smokes": RNG.choice(["yes", "no", "?"], ROWS, p=[0.4, 0.5, 0.1]),
        "zip": RNG.choice(["01234", "99999", "00501"], ROWS),
        "city": ["Rare-town"] * 3 + RNG.choice(["Lyon", "Paris", ""], ROWS - 3).tolist(),
        "score": RNG.choice(["-9", "-8", "1", "2", "3", "4", "5"], ROWS),
        "joined": [str(dt.date(2011, 3, 4) + dt.timedelta(days=int(day))) for day in RNG.integers(0, 2000, ROWS)],
        "seen": [f"{day}/{1 + day % 12}/2020" for day in RNG.integers(1, 29, ROWS)],
        "remarks": [f"said {index} things" for index in range(ROWS)],
        "empty": [""] * ROWS,
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def proposal():
    return draft(TABLE, list(TABLE.columns), Dialect())


@pytest.fixture(scope="module")
def fields(proposal):
    return {field["name"]: field for field in proposal.content["fields"]}


def test_a_draft_loads_and_every_column_of_it_is_a_draft(proposal):
    schema = Schema.from_dict(proposal.content)
    assert {column.status for column in schema.columns} == {"draft"}
    assert {column.origin for column in schema.columns} == {"reviewed"}
    with pytest.raises(Exception, match="still drafts: person_id, record"):
        schema.require_reviewed()
    assert set(proposal.notes) == set(TABLE.columns)


def test_a_key_that_repeats_is_asked_about_and_protected_meanwhile(proposal, fields):
    assert proposal.content["understudy"]["privacy_unit"] == {"column": "person_id", "max_rows": 1}
    assert fields["person_id"]["understudy"]["kind"] == "id"
    assert "person_id" in proposal.questions[0]


def test_without_such_a_key_the_question_is_still_asked():
    proposal = draft(TABLE[["age"]], ["age"], Dialect())
    assert proposal.content["understudy"]["privacy_unit"] == "row"
    assert "more than one row" in proposal.questions[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("PatientenNr", [f"{index % 90}" for index in range(300)]),
        ("Fallnummer", [f"{index % 90}" for index in range(300)]),
        ("patientid", [f"{index % 90}" for index in range(300)]),
        ("patient", [f"{index % 90}" for index in range(300)]),
        ("who", [f"P{index % 90:05d}" for index in range(300)]),
    ],
)
def test_a_key_that_repeats_is_known_by_its_name_or_its_shape(name, values):
    content = draft(pd.DataFrame({name: values}), [name], Dialect()).content
    assert content["understudy"]["privacy_unit"] == {"column": name, "max_rows": 1}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("paid", [f"{index % 90}" for index in range(300)]),
        ("remark", [f"said {'x' * (index % 90)} 1" for index in range(300)]),
        ("surname", [f"Miller{'n' * (index % 90)}" for index in range(300)]),
    ],
)
def test_what_only_repeats_is_not_a_key(name, values):
    assert draft(pd.DataFrame({name: values}), [name], Dialect()).content["understudy"]["privacy_unit"] == "row"


def test_typed_moments_reach_to_the_end_of_the_last_day():
    moments = pd.Series(pd.to_datetime(["2020-01-01T08:00", "2020-12-31T20:00"] * 20))
    (field,) = draft(pd.DataFrame({"at": moments}), ["at"], Dialect()).content["fields"]
    assert field["constraints"] == {"minimum": "2020-01-01T00:00:00", "maximum": "2020-12-31T23:59:59"}


@pytest.mark.parametrize(("name", "kind"), [("record", "drop"), ("remarks", "drop"), ("empty", "drop")])
def test_near_unique_free_and_empty_columns_are_not_synthesised(fields, name, kind):
    assert fields[name]["understudy"]["kind"] == kind


def test_a_near_unique_key_gets_fresh_keys():
    frame = pd.DataFrame({"case_no": [str(1000 + index) for index in range(200)], "x": ["a", "b"] * 100})
    fields = draft(frame, ["case_no", "x"], Dialect()).content["fields"]
    assert fields[0]["understudy"]["kind"] == "id"


def test_bounds_are_round_and_outside_every_value(fields):
    assert fields["age"]["constraints"] == {"minimum": 10, "maximum": 100, "required": True}
    assert fields["weight"]["constraints"]["minimum"] <= 41.3
    assert fields["weight"]["constraints"]["maximum"] >= 149.2
    assert fields["weight"]["understudy"]["decimals"] == 1
    assert fields["income"]["understudy"]["spikes"] == [0]
    assert fields["income"]["understudy"]["heaped"][0] == 100


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (17, 90, (10, 100)),
        (0, 99_999, (0, 100_000)),
        (1937, 2011, (1930, 2020)),
        (-3.2, 7.7, (-5, 10)),
        (5, 5, (5, 6)),
        (-10_200, 1_490_400, (-20_000, 1_500_000)),
        (-9000, 99_000, (-10_000, 100_000)),
    ],
)
def test_widening_never_cuts_and_never_quotes_the_extremes(low, high, bounds):
    assert widen_bounds(low, high) == bounds


@pytest.mark.parametrize(("rows", "farthest"), [(20_000, 451.3), (2000, 451.3), (2000, 900.0)])
def test_a_far_outlier_does_not_hide_the_middle_of_a_column(rows, farthest):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"bmi": [*rng.normal(26, 4, rows).round(2), farthest], "kg": [*rng.normal(75, 12, rows).round(1), 149.2]}
    )
    proposal = draft(frame, ["bmi", "kg"], Dialect())
    bmi, kg = proposal.accept("row").columns
    assert bmi.top.start == 40  # a few rows are above: they have one code, and values near it
    assert bmi.ordinary <= 102
    middle = bmi.encode(pa.array([23.3, 28.7]), Dialect())["bmi"]
    assert middle[1] - middle[0] >= 10
    assert (kg.top, kg.bins) == (None, None)


def test_where_the_middle_half_spans_most_bins_no_top_is_open():
    losses = [*np.random.default_rng(0).normal(1900, 350, 4000).round(), 4356.0]
    field = draft(pd.DataFrame({"loss": losses}), ["loss"], Dialect()).content["fields"][0]
    assert "top" not in field["understudy"]


def test_round_amounts_that_bins_would_hide_have_codes_of_their_own():
    rng = np.random.default_rng(0)
    smooth = np.rint(rng.normal(27_000, 9000, 19_000)).clip(-4000, None)
    round_amounts = np.repeat([20_000, 25_000, 30_000, 12_345], [400, 500, 300, 60])
    frame = pd.DataFrame({"wage": [*smooth, *round_amounts, 2_000_000]})
    (field,) = draft(frame, ["wage"], Dialect()).content["fields"]
    assert field["understudy"]["spikes"] == [20_000, 25_000, 30_000]
    even = pd.DataFrame({"dose": 10 * np.rint(rng.normal(1400, 25, 20_000))})  # common, as are their neighbours
    assert "spikes" not in draft(even, ["dose"], Dialect()).content["fields"][0]["understudy"]


def test_few_rows_have_no_fine_bins():
    frame = pd.DataFrame({"fee": [*np.random.default_rng(0).normal(500, 20, 2000), *np.linspace(0, 1000, 200)]})
    assert "bins" not in draft(frame, ["fee"], Dialect()).content["fields"][0]["understudy"]
    assert draft(pd.concat([frame] * 3), ["fee"], Dialect()).content["fields"][0]["understudy"]["bins"] == 200


def test_codes_that_look_like_numbers_are_values_without_an_order():
    codes = np.repeat([1, 3, 7, 11, 23, 24, 25, 31, 40, 44, 50, 62, 63, 64, 99], 40)
    names = ["source_id", "stay", "number_of_visits", "education-num"]
    coded, *numbers = draft(pd.DataFrame(dict.fromkeys(names, codes)), names, Dialect(), "row").content["fields"]
    assert coded["categories"] == sorted(set(codes.tolist()))
    assert coded["type"] == "integer"
    assert "categoriesOrdered" not in coded
    assert not any("categories" in number for number in numbers)


def test_a_few_numbers_far_apart_stay_exact():
    values = np.repeat([16.3, 90.7, 2674.3, 50441.6], 50)
    (field,) = draft(pd.DataFrame({"density": values}), ["density"], Dialect()).content["fields"]
    assert field["understudy"]["spikes"] == [16.3, 90.7, 2674.3, 50441.6]
    assert field["understudy"]["bins"] == 1


@pytest.mark.parametrize("values", [[1, 2, 1, 2], [10, 11, 11, 10], [0, 1], [1], [0], [-5, -4]])
def test_a_few_whole_numbers_close_together_keep_whole_bounds(values):
    """Half a step beyond 2 would be 2.5, which no column of whole numbers can declare."""
    (field,) = (content := draft(pd.DataFrame({"n": values}), ["n"], Dialect()).content)["fields"]
    limits = field["constraints"]
    assert isinstance(limits["minimum"], int)
    assert limits["minimum"] <= min(values) <= max(values) < limits["maximum"]
    assert Schema.from_dict(content).domain["n"] >= 2


def test_rare_values_are_folded_and_never_named(proposal, fields):
    assert fields["city"]["categories"] == ["Lyon", "Paris"]
    assert "Rare-town" not in str(proposal)


def test_missing_words_and_codes_are_found(fields):
    assert fields["smokes"]["understudy"]["missing"] == {"?": None}
    assert set(fields["score"]["understudy"]["missing"]) == {"-9", "-8"}
    assert fields["score"]["categories"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([160, 171.5, 182, 999], {"999"}),
        ([1, 2, 3, 4, 97, 99], {"97", "99"}),
        ([0, 60, 95, 99], set()),  # ages: not far above the others
        ([0, 1, 2, 100], set()),
        ([-9, 5, 12, 99], {"-9", "99"}),
    ],
)
def test_nines_far_above_all_other_values_are_taken_for_missing_codes(values, codes):
    spread = [value for value in values[:-1] for _ in range(40)]
    frame = pd.DataFrame({"n": [str(value) for value in spread + [values[-1]] * 30]})
    proposal = draft(frame, ["n"], Dialect())
    assert set(proposal.content["fields"][0]["understudy"].get("missing", {})) == codes
    assert ("taken for missing codes" in str(proposal.notes)) == bool(codes)


@pytest.mark.parametrize(("values", "told"), [(["ja", "JA", "nein"], True), (["ja", "nein", "egal"], False)])
def test_values_that_differ_in_capitals_alone_are_reported(values, told):
    notes = draft(pd.DataFrame({"smokes": values * 50}), ["smokes"], Dialect()).notes
    assert ("differ only in capitals" in str(notes)) == told


def test_a_single_nine_is_a_value():
    frame = pd.DataFrame({"n": [*map(str, range(100, 200)), "999"]})
    field = draft(frame, ["n"], Dialect()).content["fields"][0]
    assert "missing" not in field["understudy"]


def test_codes_with_leading_zeros_stay_text(fields):
    assert fields["zip"]["type"] == "string"
    assert "00501" in fields["zip"]["categories"]


@pytest.mark.parametrize("cells", [lambda value: value, str], ids=["numbers", "text"])
def test_long_whole_numbers_stay_codes_that_are_distinguished(cells):
    codes = [12345678901234567, 12345678901234568]
    frame = pd.DataFrame({"code": [cells(code) for code in codes * 50]})
    (field,) = draft(frame, ["code"], Dialect()).content["fields"]
    assert (field["type"], field["categories"]) == ("string", ["12345678901234567", "12345678901234568"])


def test_dates_get_whole_years_and_their_format(fields):
    assert fields["joined"]["type"] == "date"
    assert fields["joined"]["constraints"]["minimum"] == "2011-01-01"
    assert fields["joined"]["constraints"]["maximum"] == "2016-12-31"
    assert fields["seen"]["format"] == "%d/%m/%Y"


def test_typed_columns_are_drafted_by_their_type():
    frame = pd.DataFrame(
        {
            "flag": [True, False] * 50,
            "when": pd.date_range("2020-01-01", periods=100, freq="h"),
            "took": pd.to_timedelta(np.arange(100), unit="m"),
            "size": pd.Categorical(["S", "L"] * 50),
            "share": np.linspace(0, 1, 100),
        }
    )
    schema = Schema.from_dict(draft(frame, list(frame.columns), Dialect()).content)
    assert [column.kind for column in schema.columns] == ["boolean", "datetime", "duration", "categorical", "number"]
    schema.encode(frame)


def test_lists_records_and_bytes_are_left_out():
    """As text they would be written differently by every engine."""
    cells = {"l": [["a"], ["b"]], "s": [{"a": 1}, {"a": 2}], "b": [b"a", b"b"], "c": ["a", "b"]}
    frame = pa.table({name: values * 50 for name, values in cells.items()})
    fields = {field["name"]: field for field in draft(frame, list(cells), Dialect()).content["fields"]}
    assert [fields[name]["understudy"].get("kind") for name in cells] == ["drop", "drop", "drop", None]


def test_dates_that_hardly_repeat_are_dates_in_every_notation():
    days = [dt.date(2011, 1, 1) + dt.timedelta(days=index) for index in range(100)]
    patterns = ("%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%b-%Y", "%d%b%Y", "%d-%b-%y", "%d %B %Y", "%b %d, %Y")
    frame = pd.DataFrame({pattern: [day.strftime(pattern) for day in days] for pattern in patterns})
    fields = draft(frame, list(frame.columns), Dialect()).content["fields"]
    assert [(field["type"], field["format"]) for field in fields] == [("date", name) for name in frame.columns]
    schema = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    for column in schema.columns:
        units, valid = column.units_of_text(pa.array(frame[column.name]), Dialect())
        assert valid.all()
        assert column.format_values(column.from_units(units), Dialect()).to_pylist() == list(frame[column.name])


def test_digits_are_dates_only_if_nearly_all_are():
    days = [(dt.date(2011, 1, 1) + dt.timedelta(days=index)).strftime("%Y%m%d") for index in range(300)]
    assert drafted([*days, "20111399", "0"])[0]["type"] == "date"
    assert drafted([f"{day}083000" for day in days])[0]["format"] == "%Y%m%d%H%M%S"
    assert drafted([str(20_110_101 + 37 * index) for index in range(300)])[0]["type"] == "integer"


@pytest.mark.parametrize(("pattern", "decimal"), [("{0.day}.{0.month}.{0.year}", ","), ("{0:%d.%m.%Y}", ",")])
def test_dates_beside_amounts_with_grouped_digits_are_no_amounts(pattern, decimal):
    days = [pattern.format(dt.date(2011, 1, 1) + dt.timedelta(days=index)) for index in range(300)]
    assert drafted(days, decimal=decimal, group=".")[0]["format"] == "%d.%m.%Y"


@pytest.mark.parametrize("pattern", ["%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%y"])
@pytest.mark.parametrize("repeats", [1, 3])
def test_years_of_two_digits_are_years_of_a_life_time(pattern, repeats):
    days = [dt.date(2011, 1, 1) + dt.timedelta(days=index) for index in range(100)] * repeats
    frame = pd.DataFrame({"d": [day.strftime(pattern) for day in days] + ["NA"]})
    proposal = draft(frame, ["d"], Dialect())
    (field,) = proposal.content["fields"]
    assert (field["type"], field["format"], field["constraints"]["minimum"]) == ("date", pattern, "2011-01-01")
    assert "1969 to 2068" in proposal.notes["d"]
    Schema.from_dict(proposal.content)


def test_moments_of_whole_minutes_stay_such():
    forms = {"2024-01-31 08:{:02}:00": "minute", "2024-01-31T08:00:{:02}Z": None, "08:{:02}:00": "minute"}
    for cell, grain in forms.items():
        cells = [cell.format(number % 60) for number in range(300)]
        assert drafted(cells)[0]["understudy"].get("resolution") == grain
    typed = pd.DataFrame({"x": pd.to_datetime([f"2024-01-31 08:{number % 60:02}:00" for number in range(300)])})
    assert draft(typed, ["x"], Dialect()).content["fields"][0]["understudy"]["resolution"] == "minute"


def test_dates_of_many_years_get_bins_of_a_year():
    birth = [f"{1930 + number % 80}-05-{1 + number % 28:02}" for number in range(900)]
    assert drafted(birth)[0]["understudy"]["bins"] == {"width": "1 year"}
    assert drafted([f"20{day[2:]}" for day in birth[:15]] * 40)[0]["understudy"]["bins"] == {"width": "1 month"}
    typed = draft(pd.DataFrame({"x": pd.to_datetime(birth)}), ["x"], Dialect()).content["fields"][0]
    assert typed["understudy"]["bins"] == {"width": "1 year"}


def test_a_few_short_years_among_long_ones_move_no_bound():
    frame = pd.DataFrame({"d": ["05.07.2015", "31.12.2016"] * 200 + ["05.07.15"]})
    (field,) = draft(frame, ["d"], Dialect()).content["fields"]
    assert field["constraints"]["minimum"] == "2015-01-01"


def drafted(cells, **dialect):
    """The proposed field of one column, and its note."""
    proposal = draft(pd.DataFrame({"x": cells, "y": "kept"}), ["x", "y"], Dialect(**dialect))
    Schema.from_dict(proposal.content)
    return proposal.content["fields"][0], proposal.notes["x"]


@pytest.mark.parametrize("words", [("yes", "no"), ("Y", "N"), ("T", "F")])
def test_yes_and_no_stay_text(words):
    field, _ = drafted([*words] * 40)
    assert (field["type"], field["categories"]) == ("string", sorted(words))
    assert drafted(["true", "FALSE"] * 40)[0]["type"] == "boolean"


def industries(rng):
    return rng.choice([170, 180, 190, 770, *range(1070, 9900, 97), 7860, 8191], 6000)


@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (industries, True),
        (lambda rng: rng.choice(np.arange(100, 10_000, 50), 6000), False),  # round amounts
        (lambda rng: np.r_[0, industries(rng)], False),  # a code is never 0
        (lambda rng: rng.integers(1000, 9999, 6000), False),  # hardly one repeats
        (lambda rng: rng.integers(1930, 2010, 6000), False),  # years: every number of the range occurs
    ],
)
def test_numbers_that_leave_out_most_of_their_range_are_codes(make, codes):
    numbers = make(np.random.default_rng(0))
    field, note = drafted([str(number) for number in numbers])
    assert ("categories" in field) == codes
    if codes:
        assert set(field["categories"]) == set(numbers.tolist())
        assert "categoriesOrdered" not in field
        assert note.startswith("codes: ")


def stays(rows=400):
    rng = np.random.default_rng(1)
    start, days = rng.integers(0, 600, rows), rng.integers(0, 30, rows)
    dates = {name: pd.Timestamp("2021-01-01") + pd.to_timedelta(at, unit="D")
             for name, at in (("discharge", start + days), ("birth", -rng.integers(4000, 20000, rows)),
                              ("admission", start))}  # fmt: skip
    frame = pd.DataFrame({name: at.strftime("%Y-%m-%d") for name, at in dates.items()})
    return frame.assign(stay=days.astype(str), days=rng.permutation(days).astype(str))


def test_dates_in_order_and_their_difference_are_proposed():
    table = stays()
    proposal = draft(table, list(table), Dialect(), "row")
    assert proposal.content["understudy"]["rules"] == [{"order": ["admission", "discharge"]}]  # birth is far away
    assert "admission <= discharge" in proposal.questions[0]
    fields = {field["name"]: field for field in proposal.content["fields"]}
    assert fields["stay"]["understudy"]["of"] == ["discharge", "admission"]
    assert "kind" not in fields["days"]["understudy"]
    table.loc[:9, "discharge"] = "2021-01-01"  # in 2 % of the rows the order does not hold
    assert "rules" not in draft(table, list(table), Dialect(), "row").content["understudy"]


def test_moments_in_order_are_proposed_apart_from_dates():
    table = stays().drop(columns=["stay", "days"])
    table["arrival"] = table["admission"] + " 08:30"
    table["departure"] = table["discharge"] + " 16:15"
    rules = draft(table, list(table), Dialect(), "row").content["understudy"]["rules"]
    assert rules == [{"order": ["admission", "discharge"]}, {"order": ["arrival", "departure"]}]


def test_a_difference_is_that_of_the_dates_in_every_row():
    table = stays()
    table.loc[:39, "admission"] = ""
    content = draft(table, list(table), Dialect(), "row").content
    for field in content["fields"]:
        field["understudy"]["status"] = "reviewed"
    schema = Schema.from_dict(content)
    assert Schema.from_dict(schema.to_dict()) == schema
    assert "stay" not in schema.domain
    codes = schema.encode(table).codes
    typed = schema.decode(codes, np.random.default_rng(0), as_="pandas")
    gap = (pd.to_datetime(typed["discharge"]) - pd.to_datetime(typed["admission"])).dt.days
    assert typed["stay"].isna().sum() == 40
    assert (typed["stay"].dropna() == gap.dropna()).all()
    text = schema.decode(codes, np.random.default_rng(0), as_="pandas", text=True)
    assert (text["stay"].dropna() == typed["stay"].dropna().astype(int).astype(str)).all()


def test_the_decimals_of_a_type_are_declared():
    kinds = {"price": pa.decimal128(10, 2), "rate": pa.float64(), "count": pa.decimal128(8, 0)}
    decimals = {name: declared_decimals(kind) for name, kind in kinds.items()}
    content = draft_open_schema({n: schema_type(k) for n, k in kinds.items()}, Dialect(), "row", decimals)
    price, rate, count = content["fields"]
    assert price["understudy"]["decimals"] == 2
    assert "decimals" not in rate["understudy"]
    assert count["type"] == "integer"


def test_a_common_word_among_numbers_is_a_missing_code():
    field, note = drafted([f"{number / 10}" for number in range(600, 900)] * 2 + ["k.A."] * 40)
    assert (field["type"], field["understudy"]["missing"]) == ("number", {"k.A.": "k.A."})
    assert "words that were taken for missing codes: k.A." in note


def test_a_few_odd_cells_make_no_column_text():
    field, note = drafted([str(number) for number in range(100)] * 10 + ["12a", "about 30"])
    assert field["type"] == "integer"
    assert "2 cells that are no numbers count as unknown" in note


@pytest.mark.parametrize(
    "cells",
    [
        [str(age) for age in range(80)] * 5 + ["80+"] * 50,
        ["1", "2", "3"] * 100 + ["A"] * 100,
        ["250", "401"] * 100 + ["V58"] * 40 + ["E90"] * 40,
        [str(number) for number in range(50)] * 2 + ["word"] * 150,
    ],
    ids=["the top of a range", "codes", "diagnoses", "mostly words"],
)
def test_words_that_are_values_stay_values(cells):
    field, _ = drafted(cells)
    assert field["type"] == "string"


def test_costs_with_cents_and_a_word_are_no_key():
    field, _ = drafted([f"{1000 + 7 * number}.{number % 100:02d}" for number in range(900)] + ["open"] * 60)
    assert field["type"] == "number"


def test_dates_in_several_ways_are_said_to_be_so():
    field, note = drafted(["31.12.2020", "2020-12-31", "12/31/2020"] * 100)
    assert field["understudy"]["kind"] == "drop"
    assert "dates written in several ways (%Y-%m-%d, %m/%d/%Y, %d.%m.%Y)" in note


DAYS = [(dt.date(2019, 1, 1) + dt.timedelta(days=index % 700)).strftime("%d.%m.%Y") for index in range(2000)]


@pytest.mark.parametrize(
    ("others", "missing"),
    [
        (["n/a"] * 200, {"n/a": None}),
        (["-"] * 100 + ["n/a"] * 100, {"-": "-", "n/a": "n/a"}),
        (["00.00.0000"] * 50, {"00.00.0000": "00.00.0000"}),
        (["unbekannt"] * 50 + ["?"] * 50, {"?": "?", "unbekannt": "unbekannt"}),
    ],
    ids=["a usual word", "two of them", "a date that is none", "a word of its own"],
)
def test_words_for_missing_make_no_dates_text(others, missing):
    field, note = drafted(DAYS + others)
    assert (field["type"], field["format"], field["understudy"]["missing"]) == ("date", "%d.%m.%Y", missing)
    assert note.startswith("bounds widened to whole years")


def test_a_few_cells_that_are_no_dates_are_counted():
    field, note = drafted([*DAYS, "31.02.2020", "soon"])
    assert field["type"] == "date"
    assert note == "bounds widened to whole years; 2 cells that are no dates count as unknown"


def test_short_years_among_long_ones_are_another_way_to_write_dates():
    field, note = drafted(DAYS + [day[:6] + day[8:] for day in DAYS[:200]] + ["n/a"] * 100)
    assert field["understudy"]["kind"] == "drop"
    assert "dates written in several ways (%d.%m.%Y, years of two digits)" in note


def test_keys_keep_their_form():
    """`C2021…` becomes `C000000001`, not 1; keys that share no form become running numbers."""
    table = pd.DataFrame({"patient_id": [f"C2021{n:05}" for n in range(60)] * 2, "sex": ["F", "M"] * 60})
    (key, _) = draft(table, ["patient_id", "sex"], Dialect(), {"column": "patient_id", "max_rows": 2}).content["fields"]
    assert (key["understudy"]["kind"], key["understudy"]["pattern"]) == ("id", "C#########")
    table["patient_id"] = [f"{'AB'[n % 2]}{n}" for n in range(60)] * 2
    (key, _) = draft(table, ["patient_id", "sex"], Dialect(), {"column": "patient_id", "max_rows": 2}).content["fields"]
    assert "pattern" not in key["understudy"]


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        ("C2021-{:06}", "C####-######"),
        ("{:09}", "#########"),
        ("1{:08}", None),
        ("12-345/{:03}", "##-###/###"),
        ("Ward 7 {:04}", None),
    ],
)
def test_keys_of_several_parts_keep_their_form(written, pattern):
    table = pd.DataFrame({"case_id": [written.format(n) for n in range(120)], "sex": ["F", "M"] * 60})
    (key, _) = draft(table, ["case_id", "sex"], Dialect(), "row").content["fields"]
    assert (key["understudy"]["kind"], key["understudy"].get("pattern")) == ("id", pattern)


def test_times_of_day_are_lengths_since_midnight():
    times = [f"{minute // 60 % 24:02}:{minute % 60:02}" for minute in range(0, 28800, 7)]
    field, note = drafted([*times, "8:15", "", "-", "unbekannt"])
    assert (field["type"], field["constraints"]) == ("duration", {"minimum": 0, "maximum": 86399})
    assert field["understudy"]["bins"] == {"width": "1 hour"}
    assert field["understudy"]["resolution"] == "minute"
    assert field["format"] == "%H:%M"
    assert note.startswith("times of day, coded as seconds since midnight")
    assert drafted(["25:00", "03:99"] * 50)[0]["type"] == "string"


@pytest.mark.parametrize("pattern", ["%I:%M %p", "%I:%M:%S %p", "%I:%M%p"])
def test_times_of_day_with_am_and_pm_come_back_as_such(pattern):
    times = [(dt.datetime(2020, 1, 1) + dt.timedelta(minutes=17 * index)).strftime(pattern) for index in range(85)]
    field, note = drafted(times * 2)
    assert (field["type"], field["format"]) == ("duration", pattern)
    assert note.startswith("times of day")
    (column,) = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}}).columns
    units, valid = column.units_of_text(pa.array([*times, "0:17:00"]), Dialect())
    assert valid.all()
    assert units[-1] == units[1] == 17 * 60_000_000
    assert column.format_values(column.from_units(units[:-1]), Dialect()).to_pylist() == times


def test_numbers_with_a_unit_are_said_to_be_so():
    field, note = drafted([f"{number},50 €" for number in range(700)] * 2, decimal=",")
    assert field["understudy"]["kind"] == "drop"
    assert note == "numbers with a unit (€); write them without it to keep them"
    assert drafted([f"${number}" for number in range(40)] * 30)[1].startswith("numbers with a unit ($)")
    assert drafted([f"{number}{letter}" for number in range(5) for letter in "ab"] * 30)[0]["type"] == "string"


def test_numbers_with_another_decimal_mark_than_the_file_are_said_to_be_so():
    for repeats in (1, 3):
        field, note = drafted([f"{number},5" for number in range(700)] * repeats)
        assert field["understudy"]["kind"] == "drop"
        assert note.startswith("numbers with a comma, unlike the rest of the file; write them as the others")
        assert drafted([f"{number},5" for number in range(700)] * repeats, decimal=",")[0]["type"] == "number"


def test_amounts_with_a_unit_that_hardly_repeat_are_no_key():
    amounts = [f"{number}.{number % 997:03},50 €" for number in range(1, 900)]
    assert drafted(amounts, decimal=",")[1] == "numbers with a unit (€); write them without it to keep them"
    keys = [f"{number}A" for number in range(900)]
    assert (
        draft(pd.DataFrame({"case_nr": keys}), ["case_nr"], Dialect()).content["fields"][0]["understudy"]["kind"]
        == "id"
    )


def test_times_of_day_that_hardly_repeat_are_no_key():
    times = [f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}" for second in range(0, 86400, 61)]
    assert drafted(times)[0]["type"] == "duration"
    assert draft(pd.DataFrame({"x": [*times, *times[:200]]}), ["x"], Dialect()).content["understudy"] == {
        "privacy_unit": "row"
    }


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(
    ("pattern", "resolution"),
    [
        ("%d.%m.%Y %H:%M", "minute"),
        ("%d/%m/%Y %H:%M:%S", "minute"),
        ("%m/%d/%Y %I:%M %p", "minute"),
        ("%Y/%m/%d %H:%M", "minute"),
        ("%d.%m.%y %H:%M", "minute"),
        ("%d-%b-%Y %H:%M:%S", "minute"),
    ],
)
def test_moments_are_known_in_the_notations_of_many_countries(pattern, resolution, repeats):
    start = dt.datetime(2019, 3, 1, 7, 5)
    cells = [(start + dt.timedelta(minutes=1717 * number)).strftime(pattern) for number in range(900)] * repeats
    field, note = drafted([*cells, "", "k.A."])
    assert (field["type"], field["format"]) == ("datetime", pattern)
    assert field["constraints"]["minimum"] == "2019-01-01T00:00:00"
    assert field["constraints"]["maximum"] == "2022-12-31T23:59:59"
    assert field["understudy"].get("resolution") == resolution
    assert note.startswith("bounds widened to whole years")


ISO_FORMS = [
    ("%Y-%m-%d %H:%M:%S", "minute"),
    ("%Y-%m-%d %H:%M", "minute"),
    ("%Y-%m-%dT%H:%M", "minute"),
    ("%Y-%m-%d %H:%M:%S.000", "minute"),
    ("%Y-%m-%dT%H:%M:%SZ", "minute"),
]


@pytest.mark.parametrize(("pattern", "resolution"), ISO_FORMS)
def test_moments_keep_the_form_of_the_file(pattern, resolution):
    start = dt.datetime(2019, 3, 1, 7, 5)
    cells = [(start + dt.timedelta(minutes=1717 * number)).strftime(pattern) for number in range(900)]
    field, _ = drafted([*cells, "2019-04-01T09:00:00", ""])
    assert (field["type"], field["format"]) == ("datetime", pattern)
    assert field["understudy"].get("resolution") == resolution
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    (column,) = schema.columns
    units, valid = column.units_of_text(pa.array(cells), Dialect())
    assert valid.all()
    assert column.format_values(column.from_units(units), Dialect()).to_pylist() == cells
    other, also = column.units_of_text(pa.array(["2019-03-01T07:05:00"]), Dialect())  # one cell in another form
    assert also.all()
    assert other[0] == units[0]
    assert Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize(
    ("cell", "pattern"),
    [
        ("2019-03-01 07:05:0{}.12{}", "%Y-%m-%d %H:%M:%S"),
        ("2019-03-01T07:05:0{}.1{}+01:00", "%Y-%m-%dT%H:%M:%S+00:00"),
        ("2019-03-01 07:0{}:1{}-05", "%Y-%m-%d %H:%M:%S+00"),
    ],
)
def test_moments_with_fractions_or_an_offset_keep_the_rest_of_their_form(cell, pattern):
    cells = [cell.format(number % 10, number // 10) for number in range(90)]
    field, _ = drafted(cells)
    assert field["format"] == pattern
    (column,) = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}}).columns
    units, valid = column.units_of_text(pa.array(cells), Dialect())
    assert valid.all()
    moment = dt.datetime.fromisoformat(cells[0])
    assert units[0] == (moment.replace(tzinfo=moment.tzinfo or dt.UTC).timestamp() * 1e6 // 1)


def test_moments_in_the_default_form_need_no_format():
    cells = [f"2019-03-{1 + number % 28:02}T07:05:{number % 60:02}" for number in range(900)]
    field, _ = drafted(cells)
    assert (field["type"], field.get("format")) == ("datetime", None)
    (column,) = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}}).columns
    units, _ = column.units_of_text(pa.array(cells), Dialect())
    assert column.format_values(column.from_units(units), Dialect()).to_pylist() == cells
    spaced, valid = column.units_of_text(pa.array([cell.replace("T", " ") for cell in cells]), Dialect())
    assert valid.all()  # a schema without the form reads both
    assert (spaced == units).all()


@pytest.mark.parametrize("end", ["", " 00:00:00", "T00:00:00", " 00:00:00.000"])
def test_dates_keep_the_midnight_of_the_file(end):
    cells = [f"2019-03-{1 + number % 28:02}{end}" for number in range(900)]
    field, _ = drafted(cells)
    assert (field["type"], field.get("format")) == ("date", f"%Y-%m-%d{end}" if end else None)
    (column,) = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}}).columns
    units, valid = column.units_of_text(pa.array([*cells, "2019-03-05"]), Dialect())
    assert valid.all()
    assert column.format_values(column.from_units(units[:-1]), Dialect()).to_pylist() == cells


def test_a_stated_unit_is_the_only_one():
    table = pd.DataFrame({"pat": RNG.integers(0, 300, 900).astype(str), "code": [f"K{n % 700:04}" for n in range(900)]})
    unit = {"column": "pat", "max_rows": 2}
    stated = draft(table, ["pat", "code"], Dialect(), unit)
    assert stated.content["understudy"]["privacy_unit"] == unit
    assert stated.notes["pat"] == "is the privacy unit, fresh keys in synthetic rows"
    assert "privacy unit" not in stated.notes["code"]
    assert stated.questions == ()
    rowwise = draft(table, ["pat", "code"], Dialect(), "row")
    assert rowwise.content["understudy"]["privacy_unit"] == "row"
    assert not any("privacy unit" in note for note in rowwise.notes.values())


def test_blanks_around_a_value_make_no_other_value():
    assert drafted(["C50", "C50 ", "I10"] * 50)[0]["categories"] == ["C50", "I10"]
    assert drafted(["C50", "C50 ", "I10"] * 50, trim=False)[0]["categories"] == ["C50", "C50 ", "I10"]
    assert drafted([" C50", " I10"] * 50)[0]["categories"] == [" C50", " I10"]
    assert drafted(["KH1"] * 50)[1] == "1 value"


def test_notes_do_not_count_nothing(proposal):
    assert proposal.notes["zip"] == "3 values"
    assert proposal.notes["city"] == "2 values; 1 rare one folded into other"


# -- dialects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "dialect", "names"),
    [
        (b"a,b\n1,x\n2,y\n", {}, ["a", "b"]),
        (b"\xef\xbb\xbfa;b\r\n1,5;x\r\n2,5;y\r\n", {"delimiter": ";", "decimal": ","}, ["a", "b"]),
        ("größe\tb\n1\tx\n".encode("windows-1252"), {"delimiter": "\t", "encoding": "windows-1252"}, ["größe", "b"]),
        (b"A11 6 A34\nA12 48 A32\n", {"delimiter": " ", "header": False}, ["field1", "field2", "field3"]),
        (b"a|b\n1|x\n", {"delimiter": "|"}, ["a", "b"]),
        (b"'a';'b; c'\n1.5;'x; y'\n2.5;'it''s'\n", {"delimiter": ";", "quote": "'"}, ["a", "b; c"]),
        (b"a,b\n'90s,x\n'tis,\"y\"\n'a',z\n", {}, ["a", "b"]),
        (b"a;b\n1.234,50;x\n5,00;y\n", {"delimiter": ";", "decimal": ",", "group": "."}, ["a", "b"]),
        (b"a;b\n1.234,50;1.5\n5,00;1.25\n6,1;x\n", {"delimiter": ";", "decimal": ","}, ["a", "b"]),
        (b"a;b\n1.234,50;x\n", {"delimiter": ";", "decimal": ",", "group": "."}, ["a", "b"]),
        (b'a;b\n"1,234.50";x\n', {"delimiter": ";", "group": ","}, ["a", "b"]),
        (b"a;b\n1'234;x\n", {"delimiter": ";", "group": "'"}, ["a", "b"]),
        ("\ufeffa,b\n1,2\n".encode("utf-16-le"), {"encoding": "utf-16"}, ["a", "b"]),
        (b",a\n0,x\n1,y\n", {}, ["", "a"]),
        (b",a,,b\n0,x,,1\n1,y,,2\n", {}, ["", "a", "", "b"]),
        (b'"a\nb",c\nx,1\n', {}, ["a\nb", "c"]),
        (b"region,2019\n" + b"A,5\nB,6\n" * 10, {}, ["region", "2019"]),
        (b"a,b,a\n" + b"x,y,z\n" * 20, {}, ["a", "b", "a"]),
        (b"A,5\n" + b"A,6\nB,7\n" * 10, {"header": False}, ["field1", "field2"]),
        (b"a,a,b\n1,2,x\n3,4,y\n", {}, ["a", "a", "b"]),
        (b"x,x,b\nx,y,a\ny,y,b\n", {"header": False}, ["field1", "field2", "field3"]),
    ],
)
def test_the_dialect_of_a_file_is_found(tmp_path, content, dialect, names):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    found_dialect, found_names = sniff(path)
    assert found_dialect.model_dump(exclude_defaults=True) == dialect
    assert found_names == names


def test_an_encoding_that_shows_late_in_a_file_is_found(tmp_path):
    lines = "n,town\n" + "".join(f"{number},Ulm\n" for number in range(30_000))
    path = tmp_path / "t.csv"
    path.write_bytes((lines + "1,Köln\n").encode("windows-1252"))
    assert sniff(path)[0].encoding == "windows-1252"
    path.write_bytes((lines + "1,Köln\n").encode())
    assert sniff(path)[0].encoding == "utf-8"
    path.write_bytes("n,Größe\n".encode() + (lines + "1,Köln\n").encode("windows-1252"))
    with pytest.raises(InputError, match="continues in another encoding; save it again as UTF-8"):
        sniff(path)


def test_outputs_for_the_custodian_are_marked(tmp_path):
    path = tmp_path / "people.yaml"
    assert mark_path(path).name == "people.custodian-only.yaml"
    assert mark_path(mark_path(path)) == mark_path(path)
    assert unmark_path(mark_path(path)) == path
    assert find_marked(path) == path
    mark_path(path).touch()
    assert find_marked(path) == mark_path(path)
    assert set(OUTPUTS) >= {"schema draft", "schema check"}
    assert MARK.startswith("CUSTODIAN ONLY")


def test_dates_among_which_some_are_iso_are_read_both_ways():
    cells = [day if number % 30 else f"{day[6:]}-{day[3:5]}-{day[:2]}" for number, day in enumerate(DAYS)]
    field, _ = drafted(cells)
    assert (field["type"], field["format"]) == ("date", "%d.%m.%Y")
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    one, other = (schema.encode(pd.DataFrame({"x": days})).codes["x"] for days in (cells, DAYS))
    assert np.array_equal(one, other)


def test_times_of_day_come_back_as_times():
    cells = [f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(60)]
    field, _ = drafted(cells)
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    codes = schema.encode(pd.DataFrame({"x": cells})).codes
    typed = schema.decode(codes, np.random.default_rng(0))
    assert typed.schema.field("x").type == pa.time64("us")
    assert np.array_equal(schema.encode(typed).codes["x"], codes["x"])
    assert np.array_equal(schema.encode(typed.to_pandas()).codes["x"], codes["x"])
    assert schema.decode(codes, np.random.default_rng(0), text=True)["x"][0].as_py().startswith("00:")
    longer = {**field, "constraints": {"minimum": 0, "maximum": 90_000}}  # beyond midnight it is a length of time
    longer = Schema.from_dict({"fields": [longer], "understudy": {"privacy_unit": "row"}})
    assert longer.decode(codes, np.random.default_rng(0)).schema.field("x").type == pa.duration("us")
