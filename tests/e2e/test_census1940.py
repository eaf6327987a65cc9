"""The 98 columns of the 1940 census from the command line, with the contest's forced tables; made-up rows, few."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import understudy as us

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = EXAMPLES / "census1940" / "schema.yaml"
FORCED = ["SEX,CITY,INCWAGE:6", "SEX,CITY:2", "SEX,INCWAGE:2", "CITY,INCWAGE:2"]


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Made-up states of about 400 people that follow the same rules, as the example makes them."""
    spec = importlib.util.spec_from_file_location("nist1940_rows", EXAMPLES / "nist1940" / "rows.py")
    rows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rows)
    folder = tmp_path_factory.mktemp("census")
    rows.main(str(folder), "0.0014")
    return folder


@pytest.mark.parametrize("mechanism", [pytest.param("mst", marks=pytest.mark.slow), "nist-mst"])
def test_the_contest_runs_from_the_command_line(states, tmp_path, shell, mechanism):
    options = [part for clique in FORCED for part in ("--keep", clique)]
    if mechanism == "nist-mst":
        options += ["--public", states / "colorado.parquet"]
    budget = ["--epsilon", "8", "--delta", "2e-12"]
    given = ["synthesize", states / "arizona.parquet", "-s", SCHEMA, "-o", tmp_path / "r", "-q"]
    assert shell(*given, *budget, "-m", mechanism, *options) == 0
    release = us.Release.load(tmp_path / "r")
    measured = {m.clique for m in release.measurements}
    assert {("SEX", "CITY", "INCWAGE"), ("SEX", "CITY"), ("SEX", "INCWAGE"), ("CITY", "INCWAGE")} <= measured
    made = release.sample(50, seed=1, as_="arrow")
    assert made.num_rows == 50
    assert set(made.column_names) == set(pq.read_schema(states / "arizona.parquet").names)
    assert made.num_columns == 98
