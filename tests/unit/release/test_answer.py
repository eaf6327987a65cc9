"""Answers: what conditions mean in codes, and intervals that hold the true count."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.bundle import make_bundle
from understudy.cli import app
from understudy.errors import SettingError
from understudy.release.answer import Excluded, parse_query, read_conditions
from understudy.testing import insecure

SCHEMA = us.Schema.from_dict(
    {
        "understudy": {"privacy_unit": "row"},
        "fields": [
            {"name": "sex", "type": "string", "constraints": {"enum": ["F", "M"]}},
            {
                "name": "age",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 99},
                "understudy": {"bins": {"width": 10}},
            },
            {
                "name": "pay",
                "type": "number",
                "constraints": {"minimum": 0, "maximum": 8},
                "understudy": {"bins": 4},
            },
            {"name": "ok", "type": "boolean"},
        ],
    }
)


def _part(query, column):
    return next(c for c in read_conditions(SCHEMA, query) if c.column == column).part


def test_text_is_parsed():
    assert parse_query("sex=F, age=30..40 , pay=..2,ok=") == {
        "sex": "F",
        "age": ("30", "40"),
        "pay": (None, "2"),
        "ok": None,
    }


def test_quotes_keep_signs_together():
    assert parse_query('dose="2,5 mg"|"a..b"|c, "x=y"=1, range="1,5".."2,5", note="a|b"') == {
        "dose": ["2,5 mg", "a..b", "c"],
        "x=y": "1",
        "range": ("1,5", "2,5"),
        "note": "a|b",
    }


def test_comparisons_are_ranges():
    assert parse_query("age>30, age<=40, pay<2") == {"age": (Excluded("30"), "40"), "pay": (None, Excluded("2"))}
    assert parse_query("income=<=50K") == {"income": "<=50K"}  # a value that begins with a comparison
    assert _part(parse_query("age>29"), "age").tolist() == _part(parse_query("age>=30"), "age").tolist()
    assert _part(parse_query("age<30"), "age").tolist() == _part(parse_query("age=..29"), "age").tolist()
    assert _part(parse_query("age>=30, age<40"), "age").tolist() == _part(parse_query("age=30..39"), "age").tolist()
    assert _part(parse_query("pay>2"), "pay").tolist()[:4] == [0, 1, 1, 1]


def test_prefixes_words_and_dates_as_the_file_writes_them():
    fields = [
        {"name": "icd", "type": "string", "constraints": {"enum": ["J40", "J44.1", "K52", "*"]}},
        {"name": "smoker", "type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]},
        {
            "name": "seen",
            "type": "date",
            "format": "%d.%m.%Y",
            "constraints": {"minimum": "2024-01-01", "maximum": "2024-12-31"},
        },
    ]
    schema = us.Schema.from_dict({"understudy": {"privacy_unit": "row"}, "fields": fields})

    def part(text):
        return read_conditions(schema, parse_query(text))[0].part.tolist()

    assert part("icd=J4*")[:4] == [1, 1, 0, 0]
    assert part("icd=*")[:4] == [0, 0, 0, 1]
    assert part("smoker=Y") == part("smoker=true")
    assert part("smoker=N")[:2] == [1, 0]
    assert part("seen>=01.07.2024") == part("seen=2024-07-01..")
    with pytest.raises(SettingError, match="not a value"):
        part("icd=Z*")


@pytest.mark.parametrize("text", ["age>", "age>3, age>5", "sex=F, age>3, sex=M"])
def test_comparisons_that_say_nothing_are_refused(text):
    with pytest.raises(SettingError):
        parse_query(text)


@pytest.mark.parametrize("text", ["sex", "=F", "sex=F, sex=M", "sex F", "pay=2,5", 'sex="F', '""=F'])
def test_other_text_is_refused(text):
    with pytest.raises(SettingError):
        parse_query(text)


def test_values_and_sets():
    assert _part({"sex": "M"}, "sex").tolist() == [0, 1, 0, 0]
    assert _part({"sex": ["F", "M"]}, "sex").tolist() == [1, 1, 0, 0]
    assert _part({"sex": None}, "sex").tolist() == [0, 0, 1, 0]
    assert _part({"ok": True}, "ok").tolist()[:2] == [0, 1]
    assert _part({"ok": "false"}, "ok").tolist()[:2] == [1, 0]


def test_a_cell_that_the_schema_calls_empty_is_an_empty_cell():
    declared = SCHEMA.to_dict()
    declared["fields"][0]["understudy"] = {"missing": {"NA": None}}
    declared["fields"][1]["understudy"]["missing"] = {"-9": None}
    schema = us.Schema.from_dict(declared)
    for column, cell in (("sex", "NA"), ("age", "-9")):
        asked, empty = (read_conditions(schema, {column: value})[0] for value in (cell, None))
        assert asked.part.tolist() == empty.part.tolist()
        assert asked.spans == empty.spans == ()


@pytest.mark.parametrize("empty", [float("nan"), np.float64("nan"), pd.NA, pd.NaT])
def test_what_frames_call_empty_is_an_empty_cell(empty):
    assert _part({"sex": empty}, "sex").tolist() == _part({"sex": None}, "sex").tolist()
    assert _part({"age": [empty, 35]}, "age").tolist() == _part({"age": [None, 35]}, "age").tolist()
    with pytest.raises(SettingError, match="cannot be compared"):
        read_conditions(SCHEMA, {"age": (30, empty)})


@pytest.mark.parametrize("kind", ["date", "datetime"])
@pytest.mark.parametrize(
    "make", [pd.Timestamp, dt.datetime.fromisoformat, np.datetime64, lambda t: np.datetime64(t, "ns")]
)
def test_moments_of_frames_are_understood(kind, make):
    bounds = {"minimum": "2020-01-01", "maximum": "2020-12-31"}
    field = {"name": "d", "type": kind, "constraints": bounds, "understudy": {"bins": {"width": "1 month"}}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    asked = read_conditions(schema, {"d": (make("2020-02-01"), make("2020-06-30"))})[0]
    written = read_conditions(schema, {"d": ("2020-02-01", "2020-06-30")})[0]
    assert asked.spans == written.spans
    assert asked.part.tolist() == written.part.tolist()
    assert asked.part.sum() > 4


@pytest.mark.parametrize(
    ("query", "remedy"),
    [
        ({"sex": "f"}, "its values are F, M"),
        ({"age": "30-40"}, r"write a whole number such as 30, a range as LOW\.\.HIGH"),
        ({"pay": (1, "x")}, "write a number such as 30.5"),
        ({"age": (40, 30)}, "the range of 'age' ends before it begins"),
        (["sex"], "give columns with their conditions"),
        (None, "give columns with their conditions"),
    ],
)
def test_what_was_meant_is_suggested(query, remedy):
    with pytest.raises(SettingError, match=remedy):
        read_conditions(SCHEMA, query)


def test_of_many_values_the_nearest_are_suggested():
    names = [f"Town {index}" for index in range(50)] + ["Düsseldorf"]
    field = {"name": "town", "type": "string", "categories": names}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    with pytest.raises(SettingError, match=r"the nearest are Düsseldorf .all 51 of them"):
        read_conditions(schema, {"town": "dusseldorf"})
    with pytest.raises(SettingError, match=r"its values are Town 0, .*Town 11 .all 51 of them"):
        read_conditions(schema, {"town": "xyz"})


def test_ranges_include_both_ends_and_may_cut_a_bin():
    part = _part({"age": (30, 44)}, "age")
    assert part[3] == 1.0
    assert part[4] == pytest.approx(0.5)
    assert part.sum() == pytest.approx(1.5)
    assert _part({"age": (None, 9)}, "age").tolist()[:2] == [1.0, 0.0]
    assert _part({"age": 35}, "age")[3] == pytest.approx(0.1)
    condition = read_conditions(SCHEMA, {"age": (30, 44)})[0]
    assert condition.inner.sum() == 1
    assert condition.outer.sum() == 2


def test_on_the_real_line_a_touched_bin_counts_as_touched():
    condition = read_conditions(SCHEMA, {"pay": (2.0, 5.0)})[0]
    assert condition.inner[:4].tolist() == [False, True, False, False]
    assert condition.outer[:4].tolist() == [True, True, True, False]
    assert condition.part[2] == pytest.approx(0.5)
    assert read_conditions(SCHEMA, {"pay": 3.0})[0].outer[1]


@pytest.mark.parametrize(
    "query", [{"zz": 1}, {"sex": "X"}, {"sex": ("F", "M")}, {"age": "old"}, {"age": (1, 2, 3)}, {"age": ("x", None)}]
)
def test_conditions_that_do_not_fit_are_refused(query):
    with pytest.raises(SettingError, match="query"):
        read_conditions(SCHEMA, query)


@pytest.mark.parametrize("query", [{"age": 200}, {"age": (None, -1)}, {"age": [30, 100]}, {"pay": (8.5, None)}])
def test_what_lies_beyond_the_bounds_cannot_be_known(query):
    """Rows of 200 years are among those of 99: nobody knows that there are none."""
    with pytest.raises(SettingError, match=r"goes from 0(\.0)? to (99|8\.0); values beyond count as the nearest"):
        read_conditions(SCHEMA, query)
    assert _part({"age": (90, 200)}, "age")[9] == 1.0


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"sex": rng.choice(["F", "M"], 3000), "age": rng.integers(18, 80, 3000)})
    frame["pay"] = np.clip(frame["age"] / 12 + rng.normal(0, 1, 3000), 0, 8)
    return frame.assign(ok=rng.random(3000) < 0.3)


@pytest.fixture(scope="module")
def release(people, tmp_path_factory):
    with insecure(11):
        return us.synthesize(people, SCHEMA, rho=0.5, mechanism="aim", workload="all-2way")


@pytest.mark.parametrize(
    "query",
    [
        "sex=F, age=30..49",
        "age=30..44",
        "pay=2..5, ok=true",
        "sex=F",
        "sex=F, age=20..59, ok=false",
        "age=..39, pay=..3",
    ],
)
def test_intervals_hold_the_true_count(release, people, query):
    inside = np.ones(len(people), bool)
    for name, wanted in parse_query(query).items():
        column = people[name].astype(str).str.lower() if name == "ok" else people[name]
        if isinstance(wanted, tuple):
            low, high = (float(end) if end else edge for end, edge in zip(wanted, (-np.inf, np.inf), strict=True))
            inside &= (column >= low) & (column <= high)
        else:
            inside &= column == wanted
    found = release.answer(query, confidence=1 - 1e-9)
    assert found.low <= inside.sum() <= found.high
    assert found.bound >= abs(found.value - inside.sum())
    share = release.answer(query, confidence=1 - 1e-9, share=True)
    assert share.low <= inside.mean() <= share.high
    assert share.value == pytest.approx(found.value / release.model.total)


def test_what_is_not_counted_is_stated_with_the_count(tmp_path):
    visits = pd.DataFrame({"patient": np.arange(3000) // 10, "a": 1, "b": np.where(np.arange(3000) % 3, "1", "x")})
    drops = {"name": "b", "type": "integer", "categories": [0, 1], "understudy": {"on_unknown": "drop_row"}}
    fields = [{"name": "patient", "understudy": {"kind": "id"}}, {"name": "a", "type": "integer", "categories": [0, 1]}]
    unit = {"understudy": {"privacy_unit": {"column": "patient", "max_rows": 2}}}
    schema = us.Schema.from_dict({"fields": [*fields, drops], **unit})
    with insecure(4):
        release = us.synthesize(visits, schema, rho=50, mechanism="independent")
    found = release.answer({"a": 1}, confidence=1 - 1e-9)
    assert found.high < 700
    assert found.left_out == "rows beyond 2 of one 'patient' and rows with an unknown cell in 'b'"
    release.save(tmp_path / "r.release")
    told = CliRunner().invoke(app, ["answer", str(tmp_path / "r.release"), "a=1"]).output
    assert f"in the true table (without {found.left_out}), with confidence 0.95" in told
    folder = make_bundle(release, tmp_path / "b").folder
    for page in ("README.md", "report.html"):
        assert "rows beyond 2 of one" in (folder / page).read_text()


def test_rows_add_their_distance_from_the_model(release):
    rows = release.sample(500, seed=1, as_="pandas")
    found = release.answer("sex=F", rows=rows)
    true_share = (rows["sex"] == "F").mean()
    assert found.rows_value == pytest.approx(true_share * release.model.total)
    assert found.rows_bound == pytest.approx(max(found.high - found.rows_value, found.rows_value - found.low))


def test_bounds_survive_a_file(release, tmp_path):
    release.save(tmp_path / "r.release")
    again = us.Release.load(tmp_path / "r.release")
    before, after = release.bounds(), again.bounds()
    assert [b.clique for b in before] == [b.clique for b in after]
    assert [b.bound for b in before] == pytest.approx([b.bound for b in after])
    assert again.answer("sex=F") == release.answer("sex=F")


def test_every_mechanism_has_bounds_for_what_it_measured(people):
    with insecure(5):
        release = us.synthesize(people, SCHEMA, epsilon=1.0, delta=1e-6, mechanism="independent")
    one, pair = release.bounds("all-1way"), release.bounds("all-2way")
    assert all(bound.supported and bound.share < 0.2 for bound in one)
    assert all(bound.bound is None and bound.source == "unknown" for bound in pair)


def test_bounds_are_of_the_mechanisms_own_workload_also_where_a_columns_name_has_a_dot():
    schema = us.Schema.from_domain({"a": 2, "b": 2, "c": 50, "pay.gross": 2})
    rows = pd.DataFrame({column: [0, 1] for column in schema.domain})
    with insecure(6):
        release = us.synthesize(rows, schema, rho=1.0, mechanism="gaussian", workload="target:pay.gross", max_cells=100)
    assert {bound.clique for bound in release.bounds()} == {(*pair, "pay.gross") for pair in ("ab", "ac", "bc")}


@pytest.mark.parametrize("confidence", [0.0, 1.0, 2.0, "high", None])
def test_impossible_confidence_is_refused(release, confidence):
    with pytest.raises(SettingError, match="confidence"):
        release.answer("sex=F", confidence=confidence)
    with pytest.raises(SettingError, match="confidence"):
        release.bounds(confidence=confidence)


def test_replicates_differ_and_are_repeatable(release):
    first, again = release.replicates(2, rows=300, seed=4), release.replicates(2, rows=300, seed=4)
    assert all(a.equals(b) for a, b in zip(first, again, strict=True))
    assert not first[0].equals(first[1])
    assert [len(table) for table in first] == [300, 300]
    for count in (1, 2.5, "two", None):
        with pytest.raises(SettingError, match="at least 2"):
            release.replicates(count)


def test_a_workload_that_is_not_text_is_reported(release):
    with pytest.raises(SettingError, match="workload: give text"):
        release.bounds([["sex", "age"]])


def test_the_most_rows_there_can_be(release, people):
    assert len(people) <= release.most_rows <= 1.1 * len(people)


def test_numbers_are_written_as_in_the_file():
    fields = [{"name": "cost", "type": "number", "constraints": {"minimum": 0, "maximum": 2000}}]
    dialect = {"delimiter": ";", "decimal": ",", "group": "."}
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row", "dialect": dialect}})
    for text in ('cost>"1.000,50"', "cost>1000.5"):
        (condition,) = read_conditions(schema, parse_query(text))
        assert condition.spans[0][0] == pytest.approx(1000.5)
    (thousand,) = read_conditions(schema, parse_query("cost>1.000"))
    assert thousand.spans[0][0] == pytest.approx(1000)
    with pytest.raises(SettingError, match="cannot be compared"):
        read_conditions(schema, parse_query('cost>"many,50"'))


def test_a_date_that_is_none_is_answered_by_one_as_the_table_writes_it():
    limits = {"minimum": "1930-01-01", "maximum": "2006-12-31"}
    born = {"name": "born", "type": "date", "format": "%d.%m.%Y", "constraints": limits}
    schema = us.Schema.from_dict({"fields": [born], "understudy": {"privacy_unit": "row"}})
    with pytest.raises(SettingError, match=r"write a value as in the table, such as 01\.01\.1930,"):
        read_conditions(schema, parse_query("born=12.1950"))
