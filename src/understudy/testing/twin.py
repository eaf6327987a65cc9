"""The twin: the gate's answers on one table are replayed for another table, and everything else must be equal.

Charging, reading, scoring and drawing still run on the second table, which has other rows, another number of rows and
other values. If a file, message or name then differs, it was computed from rows without a charge.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from copy import copy
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

from understudy.errors import UnderstudyError
from understudy.gate import PrivateTable
from understudy.testing import expect
from understudy.yaml_json import read_json

_FAILED = b"failed with "
_LEDGER = "ledger.db"
_CHANCE = ("time", "run", "leaf")
"""Columns of the ledger's entries that differ from run to run and say nothing about rows."""


@contextmanager
def record_answers() -> Iterator[list[Any]]:
    """Record every answer that leaves the gate within the block in the list that is yielded."""
    answers: list[Any] = []
    original: Any = PrivateTable._new_answer

    def record(table: PrivateTable, answer: Any) -> Any:
        given = original(table, answer)
        answers.append(copy(given))  # a mechanism may add to the list that it gets
        return given

    with patch.object(PrivateTable, "_new_answer", record):
        yield answers


@contextmanager
def replay_answers(answers: list[Any]) -> Iterator[None]:
    """Make the gate give these answers within the block, in this order, instead of its own.

    Raises:
        AssertionError: if the gate is called more or fewer times than there are answers.
    """
    left = list(answers)
    original: Any = PrivateTable._new_answer

    def replay(table: PrivateTable, answer: Any) -> Any:
        expect(left, "the gate was called more often on the second table than on the first")
        same = _question(left[0]) == _question(answer)
        expect(same, "the gate was asked something else on the second table than on the first")
        return original(table, copy(left.pop(0)))

    with patch.object(PrivateTable, "_new_answer", replay):
        yield
    expect(not left, "the gate was called less often on the second table than on the first")


def collect_outcome(run: Callable[[Path], object], folder: Path) -> dict[str, bytes]:
    """Return what a run leaves behind in a fresh `folder`: files by name, what it printed, and how it ended.

    The ledger is in the folder too, as `ledger.db`: what its tables say, answers unpacked, without times. Identifiers
    of runs are numbered wherever they occur.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    out, err = TextIOWrapper(BytesIO(), "utf-8"), TextIOWrapper(BytesIO(), "utf-8")
    ending = "done"
    with patch.dict(os.environ, UNDERSTUDY_LEDGER=str(folder / _LEDGER)), redirect_stdout(out), redirect_stderr(err):
        try:
            run(folder)
        except (UnderstudyError, SystemExit, KeyboardInterrupt) as error:  # how a run ends is part of its outcome
            ending = describe_error(error)
        except BaseException as error:
            ending = _FAILED.decode() + describe_error(error)
    left = {"stdout": _read_stream(out), "stderr": _read_stream(err), "ending": ending.encode()}
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(_LEDGER))
    left |= {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    runs: list[str] = []
    if (folder / _LEDGER).exists():
        left[_LEDGER], runs = _read_ledger(folder / _LEDGER)
    for i, name in enumerate(runs):
        left = {
            file.replace(name, f"run-{i}"): content.replace(name.encode(), b"run-%d" % i)
            for file, content in left.items()
        }
    return left


def check_twins(run: Callable[[Any, Path], object], first: Any, second: Any, folder: Path) -> dict[str, bytes]:
    """Run on the first table, then on the second with the first one's answers, and compare everything left behind.

    Args:
        run: called with a table and the folder for everything it writes; the ledger is there by default.
        first: the table whose answers are recorded.
        second: another table of the same structure.
        folder: used for both runs, one after the other, so that paths are the same.

    Returns:
        What the runs left behind.

    Raises:
        AssertionError: naming the file or stream that differs; or when the first run ended with an error that is not
            one of ours, so that the comparison would prove nothing.
    """
    with record_answers() as answers:
        mine = collect_outcome(lambda place: run(first, place), folder)
    expect(not mine["ending"].startswith(_FAILED), f"the first run failed: {mine['ending'].decode()}")
    with replay_answers(answers):
        theirs = collect_outcome(lambda place: run(second, place), folder)
    expect(list(mine) == list(theirs), f"other files were left: {set(mine) ^ set(theirs)}")
    for name, content in mine.items():
        expect(content == theirs[name], f"{name} depends on rows without a charge")
    return mine


def describe_error(error: BaseException) -> str:
    """Return all that an error shows or holds: type, text, notes, causes and contexts, suppressed or not."""
    chain = [error.__cause__, error.__context__] if error.__cause__ or error.__context__ else []
    words = [type(error).__name__, str(error), repr(error.args), *getattr(error, "__notes__", [])]
    return "\n".join([*words, *(describe_error(link) for link in chain if link is not None)])


def _question(answer: Any) -> Any:
    """Describe the question of an answer, as far as the answer shows: its type, and the measured cliques."""
    return [measurement.clique for measurement in answer] if isinstance(answer, list) else type(answer)


def _read_stream(stream: TextIOWrapper) -> bytes:
    stream.flush()
    buffer = stream.buffer
    return buffer.getvalue() if isinstance(buffer, BytesIO) else b""


def _read_ledger(path: Path) -> tuple[bytes, list[str]]:
    """Read every row of every table of a ledger as text, with unpacked answers, and the ids of its runs in order.

    The process that worked on a run and the ledger's random name are no facts about rows either.
    """
    lines, runs = [], []
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        tables = database.execute("select name from sqlite_master where type = 'table' order by name").fetchall()
        for (table,) in tables:
            for row in map(dict, database.execute(f'select * from "{table}" order by 1')):  # noqa: S608 - its own name
                if table == "understudy_entries":
                    runs += [row["run"]] if row["kind"] == "reserve" else []
                    body = read_json(row["body"])
                    row["body"] = {"host": body["host"]} if row["kind"] == "attempt" else body
                payload = row.pop("payload", None)
                if row.get("name") != "origin":
                    kept = {name: value for name, value in row.items() if name not in _CHANCE}
                    lines.append(f"{table} {json.dumps(kept, ensure_ascii=False, default=str)}".encode())
                    lines += [zlib.decompress(payload)] if payload else []
    return b"\n".join(lines), runs
