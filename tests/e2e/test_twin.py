"""Two tables that share nothing but their structure, given the same answers: every output is the same, byte by byte."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

import understudy as us
from understudy.errors import InputError
from understudy.ledger import Grant
from understudy.mechanism.independent import Independent
from understudy.schema import PrivacyUnit
from understudy.source import MemorySource
from understudy.testing.twin import check_twins

SCHEMA = """
fields:
  - {name: sex, type: string, categories: [f, m], understudy: {on_unknown: other}}
  - {name: age, type: integer, constraints: {minimum: 0, maximum: 120}, understudy: {bins: 6}}
  - {name: income, type: number, constraints: {minimum: 0, maximum: 1000}, understudy: {bins: 4}}
understudy:
  privacy_unit: row
"""
FIRST = "sex,age,income\n" + "f,30,10.5\nm,41,999\nf,7,0\n"
SECOND = "sex,age,income\n" + "x,-5,nan\n,,\nzebra,1e9,inf\n" * 40 + "m,not a number,-1\n" * 3
EMPTY = "sex,age,income\n"


@pytest.mark.parametrize("second", [SECOND, EMPTY], ids=["wild", "empty"])
@pytest.mark.parametrize(
    "options",
    [("--epsilon", "1", "--delta", "1e-6"), ("--epsilon", "1", "--delta", "0", "--json"), ("--rho", "0.1", "--quiet")],
    ids=["certified", "pure", "rho"],
)
def test_the_command_line_distinguishes_two_tables_by_paid_answers_alone(tmp_path, run_commands, options, second):
    def run(text, folder):
        more = ("inspect", "--json"), ("sample", "--seed", 3, "-n", 9, "-o", folder / "rows.parquet")
        run_commands(text, SCHEMA, folder, *options, more=more)

    left = check_twins(run, FIRST, second, tmp_path / "twin")
    assert {"t.release", "rows.csv", "rows.parquet", "ledger.db"} <= set(left)
    assert left["stdout"].count(b"exit 0") == 6


def frames():
    first = pl.DataFrame({"who": [1, 2, 3, 3, 3], "a": [0, 1, 2, 1, 1], "b": [0, 1, 1, 0, 1]})
    second = pl.DataFrame({"who": ["x"] * 30 + [None] * 9, "a": ["2"] * 20 + ["?"] * 19, "b": [1.0, 7.5, None] * 13})
    return first, second


@pytest.mark.parametrize("rows", [None, 5])
@pytest.mark.parametrize("unit", [PrivacyUnit(), PrivacyUnit("who", 2)], ids=["row", "unit"])
def test_python_distinguishes_two_frames_by_paid_answers_alone(tmp_path, unit, rows):
    schema = replace(us.Schema.from_domain({"a": 3, "b": 2}), privacy_unit=unit, rows=rows)

    def run(frame, folder):
        steps = []
        release = us.synthesize(
            frame, schema, epsilon=1.0, delta=1e-6, output=folder / "r", dataset="d", progress=steps.append
        )
        print(steps, release, release.receipt.text(), release.sample(seed=1, as_="arrow").to_pydict())

    check_twins(run, *frames(), tmp_path / "twin")


def fails(monkeypatch, stage):
    """Make a run fail at a stage, in the same way for every table."""

    def boom(*args, **kwargs):
        raise RuntimeError("boom")

    target = {
        "read": (MemorySource, "__init__"),
        "count": (MemorySource, "counts"),
        "estimate": (Independent, "finish"),
        "save": (us.Release, "save"),
    }[stage]
    monkeypatch.setattr(*target, boom)


@pytest.mark.parametrize("stage", ["read", "count", "estimate", "save"])
@pytest.mark.parametrize("second", [SECOND, EMPTY], ids=["wild", "empty"])
def test_failing_runs_tell_two_tables_apart_by_paid_answers_alone(tmp_path, monkeypatch, stage, second):
    fails(monkeypatch, stage)

    def run(text, folder):
        table, schema = folder / "t.csv", folder / "s.yaml"
        table.write_text(text)
        schema.write_text(SCHEMA)
        try:
            us.synthesize(table, schema, epsilon=1.0, delta=1e-6, mechanism="independent", output=folder / "r")
        finally:
            table.unlink()

    left = check_twins(run, FIRST, second, tmp_path / "twin")
    answered = stage in ("estimate", "save")
    assert (b"RunInterrupted" if answered else b"InternalError") in left["ending"]
    assert (b'"kind": "answer"' in left["ledger.db"]) == answered
    assert (b'"kind": "cancel"' in left["ledger.db"]) != answered


def test_the_twin_sees_a_leak_into_the_ledger_a_message_a_file_and_its_name(tmp_path):
    """What the twin is for: each of these leaks must make it fail."""

    def leak(how):
        def run(frame, folder):
            if how == "file":
                (folder / "log.txt").write_text(str(len(frame)))
            elif how == "name":
                (folder / f"{len(frame)}.txt").write_text("")
            elif how == "print":
                print(len(frame))
            elif how == "ledger":
                us.Ledger().add_dataset(f"people {len(frame)}")
            elif how == "grant":
                us.Ledger().grant(Grant("people", rho=len(frame)))
            else:
                raise InputError(str(len(frame)))

        return run

    for how in ("file", "name", "print", "error", "ledger", "grant"):
        with pytest.raises(AssertionError):
            check_twins(leak(how), *frames(), tmp_path / "twin")
    same = Grant("people", rho=1.0)
    check_twins(lambda frame, folder: print(us.Ledger().grant(same)), *frames(), tmp_path / "twin")


def test_the_twin_proves_nothing_by_a_run_that_breaks(tmp_path):
    with pytest.raises(AssertionError, match="the first run failed"):
        check_twins(lambda frame, folder: 1 / 0, *frames(), tmp_path / "twin")
