"""Runs that are killed, interrupted or out of disk in a process of their own; nothing paid for is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import understudy as us
from understudy.release import read_partial

RUN = """
import os, signal, sys
import polars as pl
import understudy as us
from understudy.release.partial import PartialWriter
from understudy.mechanism.independent import Independent
from understudy.cli import main

stage, action, folder = sys.argv[1:4]

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
    "charged": (PartialWriter, "charged", 1),
    "measured": (PartialWriter, "measured", 2),
    "finished": (Independent, "finish", 1),
}[stage])
sys.argv = ["understudy", "synthesize", f"{folder}/t.csv", "-s", f"{folder}/s.yaml", "--epsilon", "1",
            "--delta", "1e-6", "-m", "independent", "-o", f"{folder}/r.release", *sys.argv[4:]]
main()
"""
SCHEMA = us.Schema.from_domain({"a": 3, "b": 2, "c": 2})
MEASURED = {"charged": 0, "measured": 2, "finished": 3}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n0,1,1\n2,1,0\n1,0,0\n")
    SCHEMA.save(tmp_path / "s.yaml")
    (tmp_path / "run.py").write_text(RUN)
    return tmp_path


def start(folder, *arguments):
    return subprocess.run(
        [sys.executable, str(folder / "run.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "UNDERSTUDY_BOOK": str(folder / "book")},
    )


@pytest.mark.parametrize("stage", MEASURED)
def test_a_killed_run_leaves_what_was_paid_for(folder, stage):
    done = start(folder, stage, "kill", str(folder))
    assert done.returncode == -signal.SIGKILL
    assert us.Book(folder / "book").spent("t").runs == 1
    partial = folder / "r.release.partial"
    held = read_partial(partial)
    assert (len(held.charges), len(held.measurements)) == (3, MEASURED[stage])
    assert not (folder / "r.release").exists()
    if stage == "charged":
        with pytest.raises(us.errors.ReleaseError, match="charges were made and stand"):
            us.resume(partial)
        return
    release = us.resume(partial, output=folder / "r.release")
    assert len(release.measurements) == MEASURED[stage]
    assert release.receipt.charges == held.charges
    assert us.Release.load(folder / "r.release").sample(5, seed=1).num_rows == 5
    assert us.Book(folder / "book").spent("t").runs == 1
    assert not partial.exists()


@pytest.mark.parametrize(("stage", "extra"), [("measured", []), ("finished", ["--json"])])
def test_an_interrupted_run_says_what_is_kept_and_exits_130(folder, stage, extra):
    done = start(folder, stage, "interrupt", str(folder), *extra)
    assert done.returncode == 130
    told = json.loads(done.stderr)["message"] if extra else done.stderr
    assert "interrupted. The charge stands." in told
    assert f"understudy resume {folder / 'r.release.partial'} -o RELEASE" in told
    assert "Traceback" not in done.stderr
    assert len(us.resume(folder / "r.release.partial").measurements) == MEASURED[stage]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", [("sample", "-n", "100000"), ("inspect",)])
def test_what_cannot_be_written_is_told(folder, command):
    release = us.synthesize(
        str(folder / "t.csv"), SCHEMA, rho=1.0, mechanism="independent", output=folder / "r.release"
    )
    assert release.default_rows >= 1
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "understudy.cli", command[0], str(folder / "r.release"), *command[1:]],
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
    inspect = f"{sys.executable} -m understudy.cli inspect {folder / 'r.release'} >&-"
    done = subprocess.run(inspect, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_stops_early_is_no_error(folder):
    us.synthesize(str(folder / "t.csv"), SCHEMA, rho=1.0, mechanism="independent", output=folder / "r.release")
    sample = f"{sys.executable} -m understudy.cli sample {folder / 'r.release'} -n 200000 --seed 1"
    done = subprocess.run(f"{sample} | head -2", shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.stdout.splitlines()[0] == '"a","b","c"'
    assert [line for line in done.stderr.splitlines() if not line.startswith("note: ")] == []
