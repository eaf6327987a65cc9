"""`run` killed at every stage, in a process of its own: started again it finishes, pays once, and redraws no answer."""

from __future__ import annotations

import signal

import pytest

import understudy as us

RUN = """
import os, signal, sys
import numpy as np
import understudy.files
import understudy.release.archive as archive
import understudy.release.release as artefact
import understudy.sink.files as write
import understudy.report.page
import understudy.run.folder as folder
from understudy.cli import main
from understudy.gate import PrivateTable
from understudy.ledger import Ledger
from understudy.ledger.ledger import _Log
from understudy.mechanism import MECHANISMS
from understudy.mechanism.independent import Independent
from understudy.progress import silent
from understudy.run import pipeline
from understudy.schema import Recoding

PAIRS = [("a", "b"), ("a", "c"), ("b", "c")]

class Chooser(Independent):
    name = "chooser"

    def plan(self, domain):
        return {}

    def fit(self, table, *, rho, progress=silent):
        flat = {pair: np.ones(table.domain.cells(pair)) for pair in PAIRS}
        first = table.select(PAIRS, against=flat, rho=rho / 4).clique
        scores = table.dependence([pair for pair in PAIRS if pair != first], rho=rho / 4)
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

def asks_other_questions(name):
    original = Chooser.fit
    def fit(self, table, *, rho, progress=silent):  # as another version may
        table.select(PAIRS, against={pair: np.ones(table.domain.cells(pair)) for pair in PAIRS}, rho=rho / 4)
        return original(self, table, rho=rho / 2, progress=progress)
    Chooser.fit = fit

PLACES = {
    "looked": lambda name: dies(folder._Folder, "_find_run"),
    "checked": lambda name: dies(folder._Folder, "_check"),
    "resolved": lambda name: dies(pipeline, "resolve"),
    "before reserving": lambda name: dies(Ledger, "reserve", before=True),
    "while reserving": lambda name: dies(_Log, "add", 3),
    "reserved": lambda name: dies(Ledger, "reserve"),
    "read": lambda name: dies(pipeline, "open_source"),
    "counted": lambda name: dies(PrivateTable, "_new_answer"),
    "before recording": lambda name: dies(Ledger, "record", before=True),
    "while recording": lambda name: dies(_Log, "add", 4),
    "recorded": lambda name: dies(Ledger, "record"),
    "recorded twice": lambda name: dies(Ledger, "record", 2),
    "recorded three times": lambda name: dies(Ledger, "record", 3),
    "counted twice": lambda name: dies(PrivateTable, "_new_answer", 2),
    "fitted": lambda name: dies(MECHANISMS[name], "finish"),
    "before saving": lambda name: dies(artefact, "write_archive", before=True),
    "while saving": lambda name: dies(archive.os, "fsync", before=True),
    "saved": lambda name: dies(artefact, "write_archive"),
    "before finishing": lambda name: dies(Ledger, "finish", before=True),
    "finished": lambda name: dies(Ledger, "finish"),
    "published": lambda name: dies(pipeline, "publish"),
    "while writing rows": lambda name: dies(write._Csv, "write"),
    "rows": lambda name: dies(write, "write_rows"),
    "all rows": lambda name: dies(write, "write_rows", 2),
    "report": lambda name: dies(understudy.files, "write_text"),
    "none": lambda name: None,
    "other questions": asks_other_questions,
}

stage, name, home = sys.argv[1:]
PLACES[stage](name)
os.environ["UNDERSTUDY_LEDGER"] = f"{home}/ledger.db"
sys.argv = ["understudy", "run", f"{home}/run.yaml", "-o", f"{home}/out", "--quiet"]
main()
"""
FREE = ["looked", "checked", "resolved", "before reserving", "while reserving"]
RESERVED = ["reserved", "read", "counted", "before recording", "while recording"]
ANSWERED = ["recorded", "fitted", "before saving", "while saving", "saved", "before finishing"]
FINISHED = ["finished", "published", "while writing rows", "rows", "all rows", "report"]
MADE = {"stand-in.release", "rows.csv", "rows.parquet", "report.html"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n" + "0,1,1\n2,1,0\n1,0,0\n" * 30)
    us.Schema.from_domain({"a": 3, "b": 2, "c": 2}).save(tmp_path / "s.yaml")
    return tmp_path


@pytest.fixture
def start(folder, fork):
    """Run until a stage, and say how the process ended; whatever the stage, nothing half-made has a name."""

    def run(stage, mechanism="independent"):
        outputs = "{rows: [csv, parquet], report: public, seed: 1}"
        (folder / "run.yaml").write_text(
            f"data: t.csv\nschema: s.yaml\nbudget: {{rho: 0.5}}\nmechanism: {mechanism}\noutputs: {outputs}\n"
        )
        code = fork(RUN, stage, mechanism, folder).returncode
        if (folder / "out" / "stand-in.release").exists():
            us.Release.load(folder / "out" / "stand-in.release")
        if (folder / "out" / "rows.csv").exists():
            assert len((folder / "out" / "rows.csv").read_text().splitlines()) > 1
        return code

    return run


def ledger(folder):
    return us.Ledger(folder / "ledger.db")


def recorded(folder):
    """The questions and answers on record, in order."""
    return [(entry.body, entry.payload) for entry in ledger(folder).entries() if entry.kind == "answer"]


def check(folder):
    """Everything is there, and the run was paid once: its release, read and checked."""
    names = {path.name for path in (folder / "out").iterdir()}
    assert {name for name in names if not (name[0] == "." and name.endswith(".tmp"))} == MADE
    total = ledger(folder).total("t")
    assert (total.runs, total.rho) == (1, 0.5)
    (run,) = ledger(folder).reservations()
    assert run.state == "finished"
    assert ledger(folder).verify() == []
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert release.receipt.exact_rho <= release.receipt.budget.rho
    paid = [charge for body, _ in recorded(folder) for charge in body["charges"]]
    assert [charge.to_dict() for charge in release.receipt.charges] == paid
    return release


@pytest.mark.parametrize("stage", [*FREE, *RESERVED, *ANSWERED, *FINISHED])
def test_killed_once_it_finishes_and_pays_once(folder, start, stage):
    assert start(stage) == -signal.SIGKILL
    assert ledger(folder).total("t").runs == (0 if stage in FREE else 1)
    before = recorded(folder)
    assert len(before) == (stage in (*ANSWERED, *FINISHED))
    assert (folder / "out" / "stand-in.release").exists() == (stage in FINISHED[1:])
    assert start("none") == 0
    assert recorded(folder)[: len(before)] == before
    assert [charge.what for charge in check(folder).receipt.charges] == ["measure"] * 3
    made = {path: path.stat().st_mtime_ns for path in (folder / "out").iterdir()}
    assert start("none") == 0
    assert made == {path: path.stat().st_mtime_ns for path in (folder / "out").iterdir()}


def test_killed_again_and_again_it_still_pays_once(folder, start):
    for stage in ("checked", "while reserving", "reserved", "before recording", "recorded", "fitted", "while saving",
                  "saved", "finished", "while writing rows", "rows", "report"):  # fmt: skip
        assert start(stage) == -signal.SIGKILL, stage
    assert start("none") == 0
    assert [charge.what for charge in check(folder).receipt.charges] == ["measure"] * 3
    assert len(recorded(folder)) == 1


def test_a_run_of_choices_continues_where_it_was_and_keeps_its_answers(folder, start):
    kept = []
    for stage, held in (("recorded", 1), ("counted", 1), ("recorded", 2), ("recorded", 3), ("before recording", 3),
                        ("recorded", 4), ("saved", 4)):  # fmt: skip
        assert start(stage, "chooser") == -signal.SIGKILL, stage
        assert recorded(folder)[: len(kept)] == kept
        kept = recorded(folder)
        assert len(kept) == held
    assert start("none", "chooser") == 0
    release = check(folder)
    assert recorded(folder) == kept
    asked = ["select", "dependence", "measure", "measure", "measure", "select"]
    assert [charge.what for charge in release.receipt.charges] == asked
    assert float(release.receipt.exact_rho / release.receipt.budget.rho) > 0.99


def test_killed_and_left_alone_it_gives_the_same_release(folder, start):
    """What was recorded decides about the release, however often the run was started."""
    assert start("none", "chooser") == 0
    first = (folder / "out" / "stand-in.release").read_bytes()
    (folder / "out" / "stand-in.release").unlink()
    assert start("none", "chooser") == 0
    assert (folder / "out" / "stand-in.release").read_bytes() == first
    assert len(recorded(folder)) == 4


def test_without_its_rows_it_finishes_from_what_was_measured(folder, start):
    assert start("recorded three times", "chooser") == -signal.SIGKILL
    held = recorded(folder)
    (folder / "t.csv").unlink()
    assert start("none", "chooser") == 0
    assert recorded(folder) == held
    assert [m.clique for m in check(folder).measurements] == [("a",), ("b",), ("c",)]


def test_without_its_rows_and_a_measurement_it_says_so_and_waits(folder, start):
    assert start("recorded twice", "chooser") == -signal.SIGKILL
    held, rows = recorded(folder), (folder / "t.csv").read_text()
    (folder / "t.csv").unlink()
    assert start("none", "chooser") == us.errors.RunInterrupted.exit_code
    assert recorded(folder) == held
    (folder / "t.csv").write_text(rows)
    assert start("none", "chooser") == 0
    assert recorded(folder)[: len(held)] == held
    check(folder)


def test_an_attempt_that_would_ask_other_questions_finishes_from_what_was_measured(folder, start):
    assert start("recorded three times", "chooser") == -signal.SIGKILL
    held = recorded(folder)
    assert start("other questions", "chooser") == 0
    assert recorded(folder) == held
    assert [m.clique for m in check(folder).measurements] == [("a",), ("b",), ("c",)]
