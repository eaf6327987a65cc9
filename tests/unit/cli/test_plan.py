"""`understudy plan` on the command line."""

from __future__ import annotations

import json

import pytest

import understudy as us
from understudy.planning.plan import MECHANISMS, describe_error


@pytest.fixture
def plan(call, tmp_path):
    us.Schema.from_domain({"a": 3, "b": 2, "c": 9}).save(tmp_path / "s.yaml")
    return lambda *arguments: call("plan", tmp_path / "s.yaml", *arguments)


def test_words(plan):
    code, out, _ = plan("--people", "~20000")
    assert code == 0
    assert "about 20000 people" in out
    assert out.count("recommended: ") == 3
    assert "No data was read" in out
    assert "the odds grow at most 2.72-fold" in out


def test_compares_the_default_mechanisms(plan):
    _, out, _ = plan("--people", "~20000", "--epsilon", "1", "--json")
    assert tuple(json.loads(out)["budgets"][0]["mechanisms"]) == MECHANISMS


def test_a_range_where_tables_of_one_schema_differ():
    assert describe_error(12.34, (11.0, 14.0)) == "12"
    assert describe_error(12.34, (6.0, 25.0)) == "6 to 25"
    assert describe_error(155.6, (107.0, 226.2)) == "110 to 230"
    assert describe_error(None, None) == "-"


def test_json(plan):
    code, out, _ = plan("--people", "20,000", "--epsilon", "1", "-m", "mst,independent", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["delta"] == 1e-6
    [budget] = data["budgets"]
    assert set(budget["mechanisms"]) == {"mst", "independent"}
    assert budget["mechanisms"]["mst"]["expected"]["two_way"] > 0
    assert budget["mechanisms"]["mst"]["expected"]["pairs"] == 2
    assert data["assumed"] == []


def test_every_mechanism_is_predicted(plan):
    names = "adaptive,aim,gaussian,independent,mst,mwem,nist-mst,privbayes,privsyn"
    code, out, _ = plan("--people", "20,000", "--epsilon", "1", "-m", names)
    assert code == 0
    assert "Assumed: nist-mst: " in out


def test_accuracy(plan):
    code, out, _ = plan("--people", "20,000", "--accuracy", "200:10%", "-m", "mst,independent")
    assert code == 0
    assert "epsilon for groups of 200 people within 10 %, 95 times in 100" in out
    assert out.count("recommended: ") == 1
    assert "none up to 20" in out  # independent measures no pair


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--people"),
        (("--people", "many"), "--people takes a number"),
        (("--people", "~"), "--people takes a number"),
        (("--people", "2.5"), "--people takes a number"),
        (("--people", "2²"), "--people takes a number"),
        (("--people", "5"), "people must be at least 10"),
        (("--people", "9" * 30), "people must be a whole number"),
        (("--people", "~20000", "--epsilon", "one"), "--epsilon takes numbers"),
        (("--people", "~20000", "--epsilon", ""), "--epsilon takes numbers"),
        (("--people", "~20000", "--epsilon", "1,nan"), "epsilon must be a positive"),
        (("--people", "~20000", "--epsilon", "0"), "epsilon must be a positive"),
        (("--people", "~20000", "--delta", "0.1"), "delta"),
        (("--people", "~20000", "--delta", "nan"), "delta must be a number"),
        (("--people", "~20000", "--delta", "0", "-m", "dp-wgan"), "dp-wgan needs Gaussian noise: give a delta above 0"),
        (("--people", "~20000", "-m", "magic"), "'magic' is unknown"),
        (("--people", "~20000", "-m", ","), "mechanisms: give at least one"),
        (("--people", "~20000", "--accuracy", "10%"), "such as 200:10%"),
        (("--people", "~20000", "--accuracy", "nan:10%"), "such as 200:10%"),
    ],
)
def test_refusals(plan, arguments, said):
    code, _, err = plan(*arguments)
    assert code == 3
    assert said in err


NUMBERS = """
understudy: {privacy_unit: row}
fields:
  - {name: age, type: integer, constraints: {minimum: 0, maximum: 99}}
  - {name: income, type: number, constraints: {minimum: 0, maximum: 100000}, understudy: {bins: 40}}
  - {name: sex, type: string, constraints: {enum: [f, m]}}
"""


def test_numbers_are_predicted_by_column(call, tmp_path):
    (tmp_path / "s.yaml").write_text(NUMBERS)
    code, out, _ = call("plan", tmp_path / "s.yaml", "--people", "~20000", "--epsilon", "1", "-m", "mst")
    assert code == 0
    assert "numbers" in out.splitlines()[4]
    assert "its error of the mean (worst percentile) in standard deviations: age 0." in out
    assert "in standard deviations of the column" in out
    _, out, _ = call("plan", tmp_path / "s.yaml", "--people", "~20000", "--epsilon", "1", "-m", "mst", "--json")
    expected = json.loads(out)["budgets"][0]["mechanisms"]["mst"]["expected"]
    assert set(expected["statistics"]) == {"age", "income"}
    assert set(expected["statistics"]["age"]) == {
        "mean", "25th percentile", "median", "75th percentile", "95th percentile",
    }  # fmt: skip
    assert 0 < expected["numbers"] < 0.5


def test_no_column_for_numbers_without_any(plan):
    _, out, _ = plan("--people", "~20000", "--epsilon", "1", "-m", "mst")
    assert "numbers" not in out
