"""`answer`, `bounds` and `--workload` on the command line."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app

SCHEMA = {
    "understudy": {"privacy_unit": "row"},
    "fields": [
        {"name": "sex", "type": "string", "constraints": {"enum": ["F", "M"]}},
        {"name": "city", "type": "string", "constraints": {"enum": ["Bonn", "Ulm", "Kiel"]}},
    ],
}


def call(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    rng = np.random.default_rng(0)
    rows = [f"{rng.choice(['F', 'M'])},{rng.choice(['Bonn', 'Ulm'])}" for _ in range(400)]
    (folder / "people.csv").write_text("sex,city\n" + "\n".join(rows) + "\n")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    with us.testing.insecure(1):  # an interval of 95 % need not hold the model's answer, and one of 10,000 does not
        code, _, err = call(
            *("synthesize", folder / "people.csv", "-s", folder / "schema.json", "--rho", 2, "-m", "aim"),
            *("--workload", "all-2way", "-o", folder / "people.release", "-q"),
        )
    assert (code, err) == (0, "")
    return folder / "people.release"


def test_workload_becomes_the_mechanisms_setting(release):
    assert us.Release.load(release).settings["workload"] == "all-2way"


def test_answer_in_words_and_in_json(release):
    code, words, _ = call("answer", release, "sex=F, city=Bonn|Ulm")
    assert code == 0
    assert "by the model" in words
    assert "in the true table, with confidence 0.95" in words
    code, out, _ = call("answer", release, "sex=F", "--share", "--json")
    found = json.loads(out)
    assert code == 0
    assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1


@pytest.mark.parametrize("query", ["sex=X", "age=3", "sex", "sex=F..M"])
def test_a_query_that_does_not_fit_is_explained(release, query):
    code, out, err = call("answer", release, query)
    assert (code, out) == (3, "")
    assert err.startswith("error: ")


def test_bounds_in_words_and_in_json(release):
    code, words, _ = call("bounds", release)
    assert code == 0
    assert "sex x city: " in words
    assert "1 of 1 marginals have a bound (confidence 0.95)." in words
    code, out, _ = call("bounds", release, "--workload", "all-1way", "--simultaneous", "--top", 1, "--json")
    (bound,) = json.loads(out)["bounds"]
    assert code == 0
    assert bound["supported"] is True
    assert call("bounds", release, "--workload", "everything")[0] == 3


def test_more_rows_than_there_can_be_are_noted(release, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["understudy"])  # notes are told unless -q is there, as it may be for pytest
    code, _, err = call("sample", release, "-n", 5000, "-o", tmp_path / "many.csv")
    assert code == 0
    assert "standard errors computed from them are too small" in err
    assert call("sample", release, "-n", 10, "-o", tmp_path / "few.csv")[2] == ""
