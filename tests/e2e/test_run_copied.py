"""`run` in copies of one folder, by processes at the same time: never more sets of answers than were paid for.

Every process stops at places of its own mechanism and waits there until the test lets it go on, so what happens in
which order is stated by the test and not left to chance.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

import understudy as us

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork and sockets that keep messages apart")

SERVER = """
import json, os, signal, socket, sys
from dataclasses import dataclass
import pandas
import understudy.journey.stages
from understudy import _tabulate_kernels
from understudy.cli import main
from understudy.mechanism import MECHANISMS
from understudy.mechanism.independent import Independent
from understudy.progress import silent
from understudy.schema import Recoding

link, built = None, []

def stop(where):
    link.write(where + "\\n")
    link.flush()
    link.readline()

@dataclass(frozen=True, kw_only=True)
class Stepping(Independent):
    name, plan = "stepping", None

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

MECHANISMS["stepping"] = Stepping
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
orders = socket.socket(fileno=int(sys.argv[1]))
while True:  # each run is a process of its own, started from one that has loaded everything
    order, handles, *_ = socket.recv_fds(orders, 1 << 16, 1)
    if not order:
        break
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        link = socket.socket(fileno=handles[0]).makefile("rw")
        told = json.loads(order)
        os.environ["UNDERSTUDY_BOOK"] = told["book"]
        sys.argv = ["understudy", *told["arguments"]]
        link.write(f"{os.getpid()}\\n")
        stop("started")
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
        link.write(f"left {code}\\n")
        link.flush()
        os._exit(0)
    os.close(handles[0])
"""


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "server.py"
    script.write_text(SERVER)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(script), str(theirs.fileno())]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as server:
        theirs.close()
        yield ours
        ours.close()
        server.wait(60)


class Process:
    """`understudy run` in a folder that lies at `place` while the process runs, and under its own name while it waits.

    So each of two processes sees its own folder at one path, as in two containers. Where both are the same path,
    nothing is moved.
    """

    def __init__(self, orders, folder, place):
        self.folder, self.place = folder, place
        ours, theirs = socket.socketpair()
        ours.settimeout(120)
        arguments = ["run", str(folder.parent / "run.yaml"), "-o", str(place), "--quiet"]
        order = {"arguments": arguments, "book": os.environ["UNDERSTUDY_BOOK"]}
        socket.send_fds(orders, [json.dumps(order).encode()], [theirs.fileno()])
        theirs.close()
        self._socket, self._link = ours, ours.makefile("rw")
        self.pid = int(self._link.readline())
        self.at = self._link.readline().strip()

    def begin(self):
        """Let the process go on, and do not wait."""
        self._link.write("\n")
        self._link.flush()

    def arrive(self):
        """Wait until the process stops again or has left, and tell where."""
        self.at = self._link.readline().strip()
        if self.left:
            self._link.close()
            self._socket.close()
        return self.at

    @property
    def left(self):
        return not self.at or self.at.startswith("left")

    def step(self):
        if self.folder != self.place:
            self.folder.rename(self.place)
        self.begin()
        self.arrive()
        if self.folder != self.place:
            self.place.rename(self.folder)

    def go(self, where=None, times=1):
        """Go on until the process has stopped so many times at a place, or has left."""
        while not self.left and times:
            self.step()
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
def in_record(call):
    """What is on record about the dataset: how many runs, and their epsilon in all."""

    def read():
        code, out, _ = call("book", "people", "--json")
        page = json.loads(out)
        assert code == 0
        return page["runs"], page["epsilon"] or 0.0

    return read


def answers(folders):
    """The different sets of answers that releases in these folders tell; one may be the beginning of another."""
    told = []
    for folder in folders:
        with suppress(us.errors.ReleaseError):
            release = us.Release.load(folder / "stand-in.release")
            told.append([(m.clique, m.values.tolist()) for m in release.measurements])
    told.sort(key=len, reverse=True)
    return [one for i, one in enumerate(told) if not any(other[: len(one)] == one for other in told[:i])]


@pytest.mark.parametrize(("where", "limit"), [("built", True), ("fit", False)])
def test_copies_of_a_folder_that_nothing_was_paid_for_are_not_four_runs_for_one_price(
    home, orders, in_record, call, where, limit
):
    if limit:
        assert call("book", "people", "--limit-epsilon", "2")[0] == 0
    folders = [home / name for name in ("one", "two", "three", "four")]
    (home / "t.csv").rename(home / "later.csv")
    first = Process(orders, folders[0], folders[0])
    first.go()
    assert first.at not in ("", "left 0")
    for folder in folders[1:]:
        shutil.copytree(folders[0], folder)
    (home / "later.csv").rename(home / "t.csv")
    assert in_record() == (0, 0.0)

    processes = [Process(orders, folder, folder) for folder in folders]
    for process in processes:
        process.go(where)
    for process in processes:
        process.begin()
    for process in processes:
        process.arrive()
        process.go()

    made = answers(folders)
    runs, epsilon = in_record()
    assert 1 <= len(made) <= runs
    assert all(len(one) == 3 for one in made)
    assert not limit or epsilon <= 2


@pytest.fixture
def pair(home, orders):
    """Start a process of its own in each of two folders, which both lie at the same path for it."""

    def start(name):
        return Process(orders, home / name, home / "out")

    return start


@pytest.fixture
def interrupted(home, pair):
    """A run that was killed after its first answer, and a copy of its folder."""
    (home / "one").mkdir()
    run = pair("one")
    run.step()
    run.go("answered")
    run.folder.rename(run.place)
    run.kill()
    run.place.rename(run.folder)
    shutil.copytree(home / "one", home / "two")


def check(home, pair, in_record):
    """Who starts again what did not finish gets no second set of answers either."""
    for name in ("one", "two"):
        again = pair(name)
        again.go()
    made = answers([home / "one", home / "two"])
    assert [len(one) for one in made] == [3]
    runs, epsilon = in_record()
    assert (runs, round(epsilon, 6)) == (1, 2)


ORDERS = {
    "both look, then one after the other": [("one", "built"), ("two", "built"), ("one", None), ("two", None)],
    "both begin, then one after the other": [("one", "fit"), ("two", "fit"), ("one", None), ("two", None)],
    "both look, the second begins first": [("one", "built"), ("two", "fit"), ("one", "fit"), ("two", None),
                                           ("one", None)],
    "answer by answer": [("one", "built"), ("two", "built"), *[("one", "answered"), ("two", "answered")] * 3],
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_two_copies_of_an_interrupted_run_are_not_both_gone_on_with(home, pair, interrupted, in_record, order):
    processes = {name: pair(name) for name in ("one", "two")}
    for name, where in ORDERS[order]:
        processes[name].go(where)
    for process in processes.values():
        process.go()
    assert "left 0" in [process.at for process in processes.values()]
    check(home, pair, in_record)


@pytest.mark.parametrize(("given", "before"), [(1, 1), (2, 3)])
def test_a_copy_made_while_a_run_works_and_the_run_itself_do_not_both_go_on(home, pair, in_record, given, before):
    """The copy goes on for so many answers before the run that was copied does."""
    (home / "one").mkdir()
    run = pair("one")
    run.go("answered", given)
    shutil.copytree(home / "one", home / "two")
    copy = pair("two")
    copy.go("answered", given + before)
    run.go()
    copy.go()
    assert "left 0" in (run.at, copy.at)
    check(home, pair, in_record)


def test_a_copy_made_before_a_run_asked_anything_is_not_a_second_run_for_one_price(home, pair, in_record):
    (home / "one").mkdir()
    run = pair("one")
    run.go("fit")
    shutil.copytree(home / "one", home / "two")
    copy = pair("two")
    copy.go("fit")
    copy.go("answered")
    run.go()
    copy.go()
    assert copy.at == "left 0"
    check(home, pair, in_record)
