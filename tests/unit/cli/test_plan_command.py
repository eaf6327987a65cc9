"""`understudy plan` on the command line."""

from __future__ import annotations

import json
import sys

import pytest

import understudy as us
from understudy.cli import app


@pytest.fixture
def call(monkeypatch, capfd, tmp_path):
    us.Schema.from_domain({"a": 3, "b": 2, "c": 9}).save(tmp_path / "s.yaml")

    def run(*arguments):
        words = ["plan", str(tmp_path / "s.yaml"), *arguments]
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        with pytest.raises(SystemExit) as left:
            app(words)
        out, err = capfd.readouterr()
        return left.value.code, out, err

    return run


def test_words(call):
    code, out, _ = call("--people", "~20000")
    assert code == 0
    assert "about 20000 people" in out
    assert out.count("recommended: ") == 3
    assert "No data was read" in out
    assert "the odds grow at most 2.72-fold" in out


def test_json(call):
    code, out, _ = call("--people", "20,000", "--epsilon", "1", "-m", "mst,independent", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["delta"] == 1e-6
    [budget] = data["budgets"]
    assert set(budget["mechanisms"]) == {"mst", "independent"}
    assert budget["mechanisms"]["mst"]["expected"]["two_way"] > 0
    assert budget["mechanisms"]["mst"]["expected"]["pairs"] == 2
    assert data["assumed"] == []


def test_every_mechanism_is_predicted(call):
    names = "aim,gaussian,independent,mst,mwem,nist-mst,privsyn"
    code, out, _ = call("--people", "20,000", "--epsilon", "1", "-m", names)
    assert code == 0
    assert "?" not in out
    assert "Assumed: nist-mst: " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--people"),
        (("--people", "many"), "--people takes a number"),
        (("--people", "~20000", "--epsilon", "one"), "--epsilon takes numbers"),
        (("--people", "~20000", "--delta", "0.1"), "delta"),
    ],
)
def test_refusals(call, arguments, said):
    code, _, err = call(*arguments)
    assert code == 3
    assert said in err
