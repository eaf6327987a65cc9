"""Runs that are killed, interrupted or out of disk in a process of their own; nothing paid for is lost."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import understudy as us

RUN = """
import os, signal, sys
import polars as pl
import understudy as us
from understudy.cli import main
from understudy.ledger import Ledger
from understudy.mechanism import MECHANISMS
from understudy.mechanism.independent import Independent
from understudy.progress import silent
from understudy.run import pipeline
from understudy.schema import Recoding

stage, action, folder = sys.argv[1:4]

class OneByOne(Independent):
    name = "one-by-one"

    def plan(self, domain):
        return {}

    def fit(self, table, *, rho, progress=silent):
        ones = [one for column in table.domain for one in table.measure([(column,)], rho=rho / len(table.domain))]
        return self.finish(table.domain, ones, recoding=Recoding.identity(), total=None, progress=progress)

MECHANISMS["one-by-one"] = OneByOne
if stage == "resume":
    sys.argv = ["understudy", *sys.argv[4:]]
    sys.exit(main())

def act():
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()

def after(owner, name, times):
    original, calls = getattr(owner, name), []
    def wrapped(*args, **kwargs):
        result = original(*args, **kwargs)
        calls.append(1)
        if len(calls) == times:
            act()
        return result
    setattr(owner, name, wrapped)

after(*{
    "reserved": (Ledger, "reserve", 1),
    "opened": (pipeline, "open_source", 1),
    "recorded": (Ledger, "record", 2),
    "fitted": (Independent, "finish", 1),
    "finished": (Ledger, "finish", 1),
}[stage])
sys.argv = ["understudy", "synthesize", f"{folder}/t.csv", "-s", f"{folder}/s.yaml", "--epsilon", "1",
            "--delta", "1e-6", "-m", "one-by-one", "-o", f"{folder}/r.release", *sys.argv[4:]]
main()
"""
SCHEMA = us.Schema.from_domain({"a": 3, "b": 2, "c": 2})
ANSWERED = {"reserved": 0, "recorded": 2, "fitted": 3, "finished": 3}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n0,1,1\n2,1,0\n1,0,0\n")
    SCHEMA.save(tmp_path / "s.yaml")
    return tmp_path


@pytest.fixture
def start(fork):
    return functools.partial(fork, RUN)


@pytest.fixture
def resume(start, folder):
    return functools.partial(start, "resume", "", folder, "resume")


def recorded():
    return [(entry.body, entry.payload) for entry in us.Ledger().entries() if entry.kind == "answer"]


@pytest.mark.parametrize("stage", ANSWERED)
@pytest.mark.parametrize("there", [True, False], ids=["with its rows", "without"])
def test_a_killed_run_is_finished_and_counted_once(folder, start, resume, stage, there):
    done = start(stage, "kill", folder)
    assert done.returncode == -signal.SIGKILL
    (run,) = us.Ledger().reservations()
    held = recorded()
    assert (run.state, run.answers, len(held)) == (
        "finished" if stage == "finished" else "unfinished", ANSWERED[stage], ANSWERED[stage],
    )  # fmt: skip
    assert not (folder / "r.release").exists()
    if not there:
        (folder / "t.csv").unlink()
    again = resume(run.run[:8])
    if not there and not held:
        assert again.returncode == us.errors.InputError.exit_code
        assert "the table is not available" in again.stderr
        assert us.Ledger().total("t").runs == 0
        return
    assert again.returncode == 0, again.stderr
    assert recorded()[: len(held)] == held
    assert len(recorded()) == (3 if there else len(held))
    release = us.Release.load(folder / "r.release")
    assert len(release.measurements) == len(recorded())
    paid = [charge for body, _ in recorded() for charge in body["charges"]]
    assert [charge.to_dict() for charge in release.receipt.charges] == paid
    assert release.sample(5, seed=1).num_rows == 5
    assert us.Ledger().total("t").runs == 1
    assert us.Ledger().reservations()[0].state == "finished"
    assert not [path for path in folder.iterdir() if path.name.startswith(".r.release")]


@pytest.mark.parametrize(("stage", "extra"), [("recorded", []), ("fitted", ["--json"])])
def test_an_interrupted_run_says_what_is_kept_and_exits_130(folder, start, resume, stage, extra):
    done = start(stage, "interrupt", folder, *extra)
    assert done.returncode == 130
    words = json.loads(done.stderr)["message"] if extra else done.stderr
    (run,) = us.Ledger().reservations()
    assert f"interrupted. The charges stand and every answer is recorded as run {run.run}" in words
    assert f"`understudy resume {run.run}`" in words
    assert "Traceback" not in done.stderr
    assert resume(run.run).returncode == 0
    assert us.Ledger().total("t").runs == 1


def test_an_interrupted_run_that_was_answered_nothing_costs_nothing(folder, start):
    done = start("opened", "interrupt", folder)
    assert done.returncode == 130
    assert "Nothing was spent." in done.stderr
    assert us.Ledger().total("t").runs == 0


def test_a_run_that_is_not_there_is_refused(resume):
    again = resume("0123")
    assert again.returncode == us.errors.LedgerError.exit_code
    assert "`understudy runs` lists them" in again.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", [("sample", "-n", "100000"), ("inspect",)])
def test_what_cannot_be_written_is_reported(folder, command):
    release = us.synthesize(
        str(folder / "t.csv"), SCHEMA, rho=1.0, mechanism="independent", output=folder / "r.release"
    )
    assert release.default_rows >= 1
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "understudy", command[0], str(folder / "r.release"), *command[1:]],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 8
    assert b"could not be written (No space left on device)" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_command_without_a_standard_output_works(folder):
    us.synthesize(str(folder / "t.csv"), SCHEMA, rho=1.0, mechanism="independent", output=folder / "r.release")
    inspect = f"{sys.executable} -m understudy inspect {folder / 'r.release'} >&-"
    done = subprocess.run(inspect, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_stops_early_is_not_an_error(folder):
    us.synthesize(str(folder / "t.csv"), SCHEMA, rho=1.0, mechanism="independent", output=folder / "r.release")
    sample = f"{sys.executable} -m understudy sample {folder / 'r.release'} -n 200000 --seed 1"
    done = subprocess.run(f"{sample} | head -2", shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.stdout.splitlines()[0] == '"a","b","c"'
    assert [line for line in done.stderr.splitlines() if not line.startswith("note: ")] == []
