"""`run` by several processes at the same time: never more sets of answers than reservations, nor than a grant allows.

Every process stops at places of its own mechanism and waits there until the test lets it go on, so what happens in
which order is stated by the test and not left to chance. A process may be given the name of another machine: two
containers that share a folder and a ledger cannot know whether the other one's process is alive.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from contextlib import suppress

import pytest

import understudy as us
from understudy.ledger import Grant
from understudy.mechanism.independent import Independent
from understudy.progress import silent
from understudy.schema import Recoding

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork and sockets that keep messages apart")

RUN = """
import os, platform, socket, sys
from understudy.cli import main
from understudy.ledger import Ledger
from understudy.mechanism import MECHANISMS
from understudy.mechanism.independent import Independent
from understudy.progress import silent
from understudy.schema import Recoding

link, built = socket.socket(fileno=0).makefile("rw"), []

def stop(where):
    link.write(where + "\\n")
    link.flush()
    link.readline()

class Stepping(Independent):
    name = "stepping"

    def plan(self, domain):
        return {}

    def __post_init__(self):
        if not built:
            built.append(True)
            stop("built")

    def fit(self, table, *, rho, progress=silent):
        stop("fit")
        ones = []
        for column in table.domain:
            ones += table.measure([(column,)], rho=rho / len(table.domain))
            stop("answered")
        return self.finish(table.domain, ones, recoding=Recoding.identity(), total=None, progress=progress)

def finish(ledger, handle, body):
    stop("saved")
    original(ledger, handle, body)

MECHANISMS["stepping"] = Stepping
original, Ledger.finish = Ledger.finish, finish
machine = sys.argv[1]
if machine:
    platform.node = lambda: machine
sys.argv = ["understudy", *sys.argv[2:]]
link.write(f"{os.getpid()}\\n")
stop("started")
try:
    main()
except SystemExit as left:
    link.write(f"left {left.code or 0}\\n")
    link.flush()
"""


class Process:
    """A command in a process of its own, on a machine of that name."""

    def __init__(self, forks, *arguments, machine=None):
        ours, theirs = socket.socketpair()
        ours.settimeout(120)
        words = ["program", machine or "", *map(str, arguments), "--quiet"]
        with theirs:
            self._status = forks.start(RUN, words, (theirs.fileno(), 1, 2))
        self._socket, self._link = ours, ours.makefile("rw")
        self.pid = int(self._link.readline())
        self.at = self._link.readline().strip()

    def begin(self):
        """Let the process go on, and do not wait."""
        self._link.write("\n")
        self._link.flush()

    def arrive(self):
        """Wait until the process stops again or has left, and say where."""
        self.at = self._link.readline().strip()
        if self.left:
            self._link.close()
            self._socket.close()
            self._status.close()
        return self.at

    @property
    def left(self):
        return not self.at or self.at.startswith("left")

    def go(self, where=None, times=1):
        """Go on until the process has stopped so many times at a place, or has left."""
        while not self.left and times:
            self.begin()
            self.arrive()
            times -= self.at == where

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        assert self.arrive() == ""


@pytest.fixture
def home(tmp_path):
    rows = [f"{i % 20},{i % 30},{i % 40}" for i in range(240)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *rows, ""]))
    us.Schema.from_domain({"a": 20, "b": 30, "c": 40}).save(tmp_path / "s.yaml")
    (tmp_path / "run.yaml").write_text(
        "data: t.csv\nschema: s.yaml\ndataset: people\nbudget: {epsilon: 2, delta: 1e-6}\nmechanism: stepping\n"
        "outputs: {rows: csv, report: []}\n"
    )
    return tmp_path


@pytest.fixture
def run(home, forks):
    """Start `understudy run` for a folder, on a machine."""
    return lambda folder="out", machine=None: Process(
        forks, "run", home / "run.yaml", "-o", home / folder, machine=machine
    )


def answers(folders):
    """The different sets of answers that releases in these folders hold; one may be the beginning of another."""
    held = []
    for folder in folders:
        with suppress(us.errors.ReleaseError):
            release = us.Release.load(folder / "stand-in.release")
            held.append([(m.clique, m.values.tolist()) for m in release.measurements])
    held.sort(key=len, reverse=True)
    return [one for i, one in enumerate(held) if not any(other[: len(one)] == one for other in held[:i])]


def recorded():
    """The answers on record, by run."""
    found = {}
    for entry in us.Ledger().entries():
        if entry.kind == "answer":
            found.setdefault(entry.run, []).append(entry.payload)
    return found


def check_one_run(home):
    """One reservation, three answers, one release that holds them, and an intact ledger."""
    total, held = us.Ledger().total("people"), recorded()
    assert (total.runs, round(total.epsilon, 6)) == (1, 2)
    assert [len(one) for one in held.values()] == [3]
    assert [len(one) for one in answers([home / "out"])] == [3]
    assert us.Ledger().verify() == []
    assert not [path for path in (home / "out").iterdir() if path.name[0] == "." and not path.name.endswith(".tmp")]


# -- folders of their own: runs of their own --


@pytest.mark.parametrize("where", ["started", "built", "fit"])
@pytest.mark.parametrize("granted", [None, 2, 4])
def test_runs_in_four_folders_never_exceed_a_grant_and_are_each_reserved(home, run, where, granted):
    if granted is not None:
        us.Ledger().grant(Grant("people", epsilon=granted))
    folders = [home / name for name in ("one", "two", "three", "four")]
    processes = [run(folder.name) for folder in folders]
    for process in processes:
        if where != "started":
            process.go(where)
    for process in processes:
        if not process.left:
            process.begin()
    for process in processes:
        if not process.left:
            process.arrive()
            process.go()
    won = [process.at for process in processes].count("left 0")
    assert [process.at for process in processes].count("left 6") == 4 - won
    made, total = answers(folders), us.Ledger().total("people")
    assert len(made) == won == total.runs == len(recorded())
    assert all(len(one) == 3 for one in made)
    assert won == 4 if granted is None else 1 <= won < 4
    if granted is not None:
        (grant,) = us.Ledger().grants("people")
        assert us.Ledger().amount_used(grant) <= granted * (1 + 1e-9)


def test_a_copy_of_an_unfinished_folder_is_a_run_of_its_own(home, run):
    """The copy has nothing of the run: what was answered is in the ledger, under the place that the run belongs to."""
    first = run("one")
    first.go("answered")
    shutil.copytree(home / "one", home / "two")
    copy = run("two")
    copy.go("answered")
    first.go()
    copy.go()
    assert (first.at, copy.at) == ("left 0", "left 0")
    assert us.Ledger().total("people").runs == 2
    assert len(answers([home / "one", home / "two"])) == 2


def test_a_copy_of_an_unfinished_folder_is_refused_where_the_grant_is_spent(home, run):
    us.Ledger().grant(Grant("people", epsilon=2))
    first = run("one")
    first.go("answered")
    shutil.copytree(home / "one", home / "two")
    copy = run("two")
    copy.go()
    assert copy.at == "left 6"
    first.go()
    assert first.at == "left 0"
    assert [len(one) for one in answers([home / "one", home / "two"])] == [3]


def test_a_finished_folder_may_be_copied_and_moved(home, run):
    first = run("one")
    first.go()
    shutil.copytree(home / "one", home / "two")
    (home / "one").rename(home / "three")
    for name in ("two", "three"):
        again = run(name)
        again.go()
        assert again.at == "left 0"
    assert us.Ledger().total("people").runs == 1
    assert [len(one) for one in recorded().values()] == [3]


def test_an_older_copy_put_back_is_given_what_was_answered_since(home, run):
    """A backup of the folder cannot undo what is in the ledger."""
    first = run()
    first.go("answered")
    shutil.copytree(home / "out", home / "backup")
    first.go("answered")
    first.kill()
    held = recorded()
    shutil.rmtree(home / "out")
    (home / "backup").rename(home / "out")
    again = run()
    again.go()
    assert again.at == "left 0"
    (run_id,) = held
    assert recorded()[run_id][:2] == held[run_id]
    check_one_run(home)


# -- one folder, one run --


@pytest.mark.parametrize("where", ["fit", "answered", "saved"])
def test_a_second_process_of_the_same_machine_is_refused_while_the_first_works(home, run, where):
    first = run()
    first.go(where)
    second = run()
    second.go()
    assert second.at == f"left {us.errors.OutputError.exit_code}"
    first.go()
    assert first.at == "left 0"
    check_one_run(home)


ORDERS = {
    "both look, then one after the other": [("one", "built"), ("two", "built"), ("one", None), ("two", None)],
    "both begin, then one after the other": [("one", "fit"), ("two", "fit"), ("one", None), ("two", None)],
    "both look, the second begins first": [("one", "built"), ("two", "fit"), ("one", "fit"), ("two", None),
                                           ("one", None)],
    "answer by answer": [("one", "built"), ("two", "built"), *[("one", "answered"), ("two", "answered")] * 3],
    "the second takes over before the first saved": [("one", "saved"), ("two", None), ("one", None)],
    "both have saved, the first goes on": [("one", "saved"), ("two", "saved"), ("one", None), ("two", None)],
    "both have saved, the second goes on": [("one", "saved"), ("two", "saved"), ("two", None), ("one", None)],
}  # fmt: skip


@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_of_two_machines_one_continues_a_run_and_the_other_stops_before_its_next_answer(home, run, order, answered):
    if answered:  # a run that was killed after its first answer
        before = run(machine="zero")
        before.go("answered")
        before.kill()
    held = recorded()
    processes = {name: run(machine=name) for name in ("one", "two")}
    for name, where in ORDERS[order]:
        processes[name].go(where)
    for process in processes.values():
        process.go()
    ends = sorted(process.at for process in processes.values())
    assert "left 0" in ends
    assert set(ends) <= {
        "left 0",
        f"left {us.errors.OutputError.exit_code}",
        f"left {us.errors.RunInterrupted.exit_code}",
    }
    for one in held:
        assert recorded()[one][:1] == held[one]
    again = run()
    again.go()
    assert again.at == "left 0"
    check_one_run(home)


@pytest.mark.parametrize(("given", "more"), [(1, 1), (2, 1), (0, 3)])
def test_a_machine_that_takes_a_run_over_keeps_it(home, run, given, more):
    """The first is answered `given` times, the second goes on for `more`; then the first wants another answer."""
    first = run(machine="one")
    first.go("answered" if given else "fit", given or 1)
    second = run(machine="two")
    second.go("answered", given + more)
    held = recorded()
    first.go()
    assert first.at in (f"left {us.errors.OutputError.exit_code}", f"left {us.errors.RunInterrupted.exit_code}")
    assert recorded() == held
    second.go()
    assert second.at == "left 0"
    check_one_run(home)


def test_a_run_that_failed_before_its_first_answer_costs_nothing_and_starts_again(home, run):
    (home / "t.csv").rename(home / "later.csv")
    first = run()
    first.go()
    assert first.at not in ("", "left 0")
    assert us.Ledger().total("people").runs == 0
    (home / "later.csv").rename(home / "t.csv")
    again = run()
    again.go()
    assert again.at == "left 0"
    check_one_run(home)


def test_a_machine_that_was_overtaken_before_its_first_answer_leaves_the_other_its_reservation(home, run):
    first = run(machine="one")
    first.go("fit")
    second = run(machine="two")
    second.go("fit")
    first.go()
    assert first.at == f"left {us.errors.OutputError.exit_code}"
    second.go()
    assert second.at == "left 0"
    check_one_run(home)


# -- resume --


def test_resume_and_run_are_the_same_run(home, run, forks):
    first = run()
    first.go("answered")
    first.kill()
    ((run_id, held),) = recorded().items()
    resumed = Process(forks, "resume", run_id[:6])
    resumed.go()
    assert resumed.at == "left 0"
    assert recorded()[run_id][:1] == held
    assert {path.name for path in (home / "out").iterdir()} == {"stand-in.release", "rows.csv"}
    check_one_run(home)


def test_resume_of_a_run_whose_file_was_changed_starts_no_other_run(home, run, forks):
    first = run()
    first.go("answered")
    first.kill()
    ((run_id, held),) = recorded().items()
    file = home / "run.yaml"
    file.write_text(file.read_text().replace("epsilon: 2", "epsilon: 3"))
    refused = Process(forks, "resume", run_id)
    refused.go()
    assert refused.at == f"left {us.errors.SettingError.exit_code}"
    resumed = Process(forks, "resume", run_id, "-o", home / "r.release")
    resumed.go()
    assert resumed.at == "left 0"
    assert us.Ledger().total("people").runs == 1
    assert recorded()[run_id][:1] == held
    assert len(us.Release.load(home / "r.release").measurements) == 3


def test_resume_of_a_run_with_quality_of_the_command_line_is_that_run(home, forks):
    first = Process(forks, "run", home / "run.yaml", "-o", home / "out", "--quality", "10%")
    first.go("answered")
    first.kill()
    (run_id,) = recorded()
    resumed = Process(forks, "resume", run_id)
    resumed.go()
    assert resumed.at == "left 0"
    assert us.Ledger().total("people").runs == 1
    assert us.Release.load(home / "out" / "stand-in.release").quality is not None


class Direct(Independent):
    """Asks what the server's mechanism asks, without stopping."""

    name = "stepping"

    def plan(self, domain):
        return {}

    def fit(self, table, *, rho, progress=silent):
        ones = [one for column in table.domain for one in table.measure([(column,)], rho=rho / len(table.domain))]
        return self.finish(table.domain, ones, recoding=Recoding.identity(), total=None, progress=progress)


def test_a_release_made_again_elsewhere_leaves_the_folder_as_it_is(home, run, forks, monkeypatch):
    monkeypatch.setitem(us.MECHANISMS, "stepping", Direct)
    first = run()
    first.go()
    (run_id,) = recorded()
    us.resume(run_id)
    other = Process(forks, "resume", run_id, "-o", home / "r.release")
    other.go()
    assert other.at == "left 0"
    assert (home / "r.release").read_bytes() == (home / "out" / "stand-in.release").read_bytes()
    again = run()
    again.go()
    assert again.at == "left 0"
    check_one_run(home)
