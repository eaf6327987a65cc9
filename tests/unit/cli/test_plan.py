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
        (("--people", "~20000", "--epsilon", "one"), "--epsilon takes numbers"),
        (("--people", "~20000", "--delta", "0.1"), "delta"),
        (("--people", "~20000", "--accuracy", "10%"), "such as 200:10%"),
    ],
)
def test_refusals(plan, arguments, said):
    code, _, err = plan(*arguments)
    assert code == 3
    assert said in err
