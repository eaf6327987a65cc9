"""`answer`, `bounds` and `--workload` on the command line."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
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


def test_a_bound_that_says_nothing_is_said_to(tmp_path):
    rows = pd.DataFrame({"a": [0, 1] * 5, "b": [0] * 10})
    schema = us.Schema.from_domain({"a": 50, "b": 50})
    us.synthesize(rows, schema, rho=1e-4, mechanism="gaussian", output=tmp_path / "r.release")
    assert "a x b: 2 or more, which excludes nothing (measured)" in call("bounds", tmp_path / "r.release")[1]


def test_marginals_without_a_bound_are_counted_and_listed_in_json(tmp_path):
    rows = pd.DataFrame({name: [0, 1] * 50 for name in "abcd"})
    schema = us.Schema.from_domain(dict.fromkeys("abcd", 2))
    release = us.synthesize(rows, schema, rho=1.0, mechanism="mst", output=tmp_path / "r.release")
    tree = [measured.clique for measured in release.measurements if len(measured.clique) == 2]
    code, words, _ = call("bounds", tmp_path / "r.release")
    lines = words.splitlines()
    assert (code, len(tree)) == (0, 3)
    assert {line.split(":")[0] for line in lines[:3]} == {" x ".join(clique) for clique in tree}
    assert lines[3].startswith("3 of 6 marginals have a bound")
    assert lines[4:] == ["Nothing is known about the others; --json lists them."]
    listed = json.loads(call("bounds", tmp_path / "r.release", "--json")[1])["bounds"]
    assert [bound["share"] is None for bound in listed] == [False] * 3 + [True] * 3
    _, words, _ = call("bounds", tmp_path / "r.release", "--top", 1)
    assert words.splitlines() == [lines[0], *lines[3:]]
    assert call("bounds", tmp_path / "r.release", "--top", -1)[0] == 2


def test_more_rows_than_there_can_be_are_noted(release, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["understudy"])  # notes are told unless -q is there, as it may be for pytest
    code, _, err = call("sample", release, "-n", 5000, "-o", tmp_path / "many.csv")
    assert code == 0
    assert "standard errors computed from them are too small" in err
    assert call("sample", release, "-n", 10, "-o", tmp_path / "few.csv")[2] == ""
