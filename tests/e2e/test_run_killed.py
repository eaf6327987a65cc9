"""`run` killed at every stage, in a process of its own: started again it finishes, and the book holds one entry."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from fractions import Fraction

import pytest

import understudy as us
from understudy.measurement import Measurement
from understudy.release import read_partial

RUN = """
import os, signal, sys
import numpy as np
import understudy.journey.folder as folder
import understudy.journey.stages as stages
import understudy.release.artefact as artefact
import understudy.report.page
from understudy.synthesis import road
from understudy import _tabulate_kernels
from understudy.cli import main
from understudy.mechanism import MECHANISMS
from understudy.mechanism.independent import Independent
from understudy.privacy.records.book import Book
from understudy.gate import PrivateTable
from understudy.progress import silent
from understudy.schema import Recoding
from understudy.release.partial import PartialWriter

class Chooser(Independent):
    name = "chooser"

    def plan(self, domain):
        return {}

    def fit(self, table, *, rho, progress=silent):
        pairs = [("a", "b"), ("a", "c"), ("b", "c")]
        flat = {pair: np.ones(table.domain.cells(pair)) for pair in pairs}
        first = table.select(pairs, against=flat, rho=rho / 4).clique
        scores = table.dependence([pair for pair in pairs if pair != first], rho=rho / 4)
        ones = table.measure([(column,) for column in table.domain], rho=rho / 4)
        best = max(scores, key=scores.get)
        table.select([first, best], against=flat, rho=rho / 4)
        return self.finish(table.domain, ones, recoding=Recoding.identity(), total=None, progress=progress)

MECHANISMS["chooser"] = Chooser

def dies(owner, name, times=1, *, before=False):
    original, calls = getattr(owner, name), []
    def wrapped(*args, **kwargs):
        calls.append(1)
        if before and len(calls) == times:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if len(calls) == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, wrapped)

PLACES = {
    "claimed": lambda name: dies(folder.Folder, "opened", before=True),
    "opened": lambda name: dies(folder.Folder, "opened"),
    "prepared": lambda name: dies(stages, "prepared_run"),
    "read": lambda name: dies(road, "open_source"),
    "begun": lambda name: dies(PartialWriter, "__init__", before=True),
    "partial": lambda name: dies(PartialWriter, "__init__"),
    "booked": lambda name: dies(Book, "append"),
    "charged": lambda name: dies(PartialWriter, "charged"),
    "chosen": lambda name: dies(PrivateTable, "select"),
    "chosen twice": lambda name: dies(PrivateTable, "select", 2),
    "scored": lambda name: dies(PrivateTable, "dependence"),
    "paid twice": lambda name: dies(PartialWriter, "charged", 2),
    "measured": lambda name: dies(PartialWriter, "measured"),
    "finished": lambda name: dies(MECHANISMS[name], "finish"),
    "packed": lambda name: dies(artefact, "write_archive", before=True),
    "saved": lambda name: dies(artefact, "write_archive"),
    "rows": lambda name: dies(stages, "write_rows"),
    "all rows": lambda name: dies(stages, "write_rows", 2),
    "report": lambda name: dies(stages, "write_page"),
    "marked": lambda name: dies(folder.Folder, "close"),
    "none": lambda name: None,
}

def run(stage, name, home):
    PLACES[stage](name)
    os.environ["UNDERSTUDY_BOOK"] = f"{home}/book"
    sys.argv = ["understudy", "run", f"{home}/run.yaml", "-o", f"{home}/out", "--quiet"]
    try:
        main()
    except SystemExit as left:
        os._exit(left.code or 0)

for line in sys.stdin:  # each run is a process of its own, started from one that has loaded everything
    child = os.fork()
    if child == 0:
        run(*line.strip().split("\\t"))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ONCE = ["claimed", "opened", "prepared", "read", "begun", "partial", "booked", "charged", "measured", "finished",
        "packed", "saved", "rows", "all rows", "report", "marked"]  # fmt: skip
FREE = ["claimed", "opened", "prepared", "read", "begun", "partial"]


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "run.py"
    script.write_text(RUN)
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n" + "0,1,1\n2,1,0\n1,0,0\n" * 30)
    us.Schema.from_domain({"a": 3, "b": 2, "c": 2}).save(tmp_path / "s.yaml")
    return tmp_path


@pytest.fixture
def start(folder, processes):
    """Run until a stage, and tell how the process ended."""

    def run(stage, mechanism="independent"):
        outputs = "{rows: [csv, parquet], report: public, seed: 1}"
        (folder / "run.yaml").write_text(
            f"data: t.csv\nschema: s.yaml\nbudget: {{rho: 0.5}}\nmechanism: {mechanism}\noutputs: {outputs}\n"
        )
        processes.stdin.write(f"{stage}\t{mechanism}\t{folder}\n")
        processes.stdin.flush()
        return int(processes.stdout.readline())

    return run


def check(folder):
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {".run.lock", "run.json", "stand-in.release", "rows.csv", "rows.parquet", "report.html"}
    assert us.Book(folder / "book").spent("t").runs == 1
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert release.receipt.exact_rho <= release.receipt.budget.rho
    return release


@pytest.mark.parametrize("stage", ONCE)
def test_killed_once_it_finishes_and_pays_once(folder, start, stage):
    assert start(stage) == -signal.SIGKILL
    assert us.Book(folder / "book").spent("t").runs == (0 if stage in FREE else 1)
    assert start("none") == 0
    assert [charge.what for charge in check(folder).receipt.charges] == ["measure"] * 3


def test_killed_again_and_again_it_still_pays_once(folder, start):
    for stage in ("opened", "partial", "booked", "charged", "measured", "measured", "finished", "packed", "rows",
                  "report", "marked"):  # fmt: skip
        assert start(stage) == -signal.SIGKILL, stage
    assert start("none") == 0
    assert [charge.what for charge in check(folder).receipt.charges] == ["measure"] * 3


def test_a_run_of_choices_goes_on_where_it_was_and_keeps_its_answers(folder, start):
    kept = []
    for stage in ("charged", "chosen", "paid twice", "measured", "chosen twice", "packed"):
        assert start(stage, "chooser") == -signal.SIGKILL, stage
        held = read_partial(folder / "out" / "stand-in.release.partial")
        assert [describe(record) for record in held.records][: len(kept)] == kept
        kept = [describe(record) for record in held.records]
    assert start("none", "chooser") == 0
    release = check(folder)
    asked = ["select", "dependence", "measure", "measure", "measure", "select"]
    assert [charge.what for charge in release.receipt.charges] == asked
    assert [kind for kind, *_ in kept].count("answer") == 3
    assert [describe(m) for m in release.measurements] == [d for d in kept if d[0] == "measurement"]
    assert float(release.receipt.exact_rho / release.receipt.budget.rho) > 0.99


def test_without_its_rows_it_finishes_from_what_was_measured(folder, start):
    assert start("measured") == -signal.SIGKILL
    (folder / "t.csv").unlink()
    assert start("none") == 0
    assert len(check(folder).measurements) == 1


def test_an_attempt_that_would_ask_other_questions_finishes_from_what_was_measured(folder, start):
    assert start("measured") == -signal.SIGKILL
    partial = folder / "out" / "stand-in.release.partial"
    lines = partial.read_bytes().split(b"\n")
    charge = json.loads(lines[3])
    charge["charge"]["scale"] *= 1.5
    charge["charge"]["rho"] = str(Fraction(charge["charge"]["rho"]) / 4)
    lines[3] = json.dumps(charge).encode()
    partial.write_bytes(b"\n".join(lines))
    assert start("none") == 0
    assert len(check(folder).measurements) == 1


def describe(record):
    if isinstance(record, Measurement):
        return ("measurement", record.clique, record.values.tolist(), record.sigma)
    return ("charge", record.to_dict()) if hasattr(record, "to_dict") else ("answer", record)
