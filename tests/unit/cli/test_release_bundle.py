"""`understudy bundle` on the command line."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import understudy as us


@pytest.fixture
def bundle(call, tmp_path):
    frame = pd.DataFrame({"a": [0, 1, 2] * 30, "b": [0, 1] * 45})
    release = us.synthesize(frame, us.Schema.from_domain({"a": 3, "b": 2}), epsilon=1, delta=1e-6)
    release.save(tmp_path / "x.release")
    return lambda *arguments: call("bundle", *arguments)


def test_words_and_files(bundle, tmp_path):
    code, out, _ = bundle(tmp_path / "x.release", "-o", tmp_path / "out", "-n", 10)
    assert code == 0
    assert "(10 synthetic rows)" in out
    told = {line.strip() for line in out.splitlines()[1:]}
    assert told == {path.name for path in (tmp_path / "out").iterdir()}


def test_json(bundle, tmp_path):
    code, out, _ = bundle(tmp_path / "x.release", "-o", tmp_path / "out", "--seed", 4, "--format", "parquet", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["seed"] == 4
    assert "rows.parquet" in data["files"]
    assert "rows.csv" not in data["files"]
    assert data["quoted"] == {}


def test_never_overwrites(bundle, tmp_path):
    assert bundle(tmp_path / "x.release", "-o", tmp_path / "out")[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    code, _, err = bundle(tmp_path / "x.release", "-o", tmp_path / "out")
    assert code == 8
    assert "choose another output" in err
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def test_refusals(bundle, tmp_path):
    code, _, err = bundle(tmp_path / "x.release", "-o", tmp_path / "out", "--format", "xls")
    assert (code, "xls" in err) == (3, True)
    (tmp_path / "bad.release").write_bytes(b"not a release")
    code, _, err = bundle(tmp_path / "bad.release", "-o", tmp_path / "out")
    assert code == 5
    code, _, err = bundle(tmp_path / "no.release", "-o", tmp_path / "out")
    assert code == 5
    assert not (tmp_path / "out").exists()
