"""The twin: the gate's answers on one table are replayed for another table, and everything else must be equal.

Charging, reading, scoring and drawing still run on the second table, which has other rows, another number of rows and
other values. If a file, message or name then differs, it was computed from rows without a charge.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import copy
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

from understudy.errors import UnderstudyError
from understudy.gate import PrivateTable
from understudy.testing import expect

_FAILED = b"failed with "


@contextmanager
def record_answers() -> Iterator[list[Any]]:
    """Record every answer that leaves the gate within the block in the list that is yielded."""
    answers: list[Any] = []
    original: Any = PrivateTable._released

    def released(table: PrivateTable, answer: Any) -> Any:
        given = original(table, answer)
        answers.append(copy(given))  # whoever gets a list of measurements may add to it
        return given

    with patch.object(PrivateTable, "_released", released):
        yield answers


@contextmanager
def replay_answers(answers: list[Any]) -> Iterator[None]:
    """Make the gate give these answers within the block, in this order, instead of its own.

    Raises:
        AssertionError: when the gate is called more or fewer times than there are answers.
    """
    left = list(answers)
    original: Any = PrivateTable._released

    def released(table: PrivateTable, answer: Any) -> Any:
        expect(left, "the gate was called more often on the second table than on the first")
        return original(table, copy(left.pop(0)))

    with patch.object(PrivateTable, "_released", released):
        yield
    expect(not left, "the gate was called less often on the second table than on the first")


def collect_outcome(run: Callable[[Path], object], folder: Path) -> dict[str, bytes]:
    """Run in a fresh folder and collect what is left: files by name, what was printed, and how the run ended."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    out, err = TextIOWrapper(BytesIO(), "utf-8"), TextIOWrapper(BytesIO(), "utf-8")
    ending = "done"
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run(folder)
        except (UnderstudyError, SystemExit, KeyboardInterrupt) as error:  # how a run ends is part of its outcome
            ending = describe_error(error)
        except BaseException as error:
            ending = _FAILED.decode() + describe_error(error)
    left = {"stdout": _written(out), "stderr": _written(err), "ending": ending.encode()}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return left | {path.relative_to(folder).as_posix(): _remove_times(path.read_bytes()) for path in files}


def check_twins(run: Callable[[Any, Path], object], first: Any, second: Any, folder: Path) -> dict[str, bytes]:
    """Run on the first table, then on the second with the first one's answers, and compare everything left behind.

    Args:
        run: called with a table and the folder for everything it writes.
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
    """Everything that an error shows or holds: type, text, notes, causes and contexts, suppressed or not."""
    chain = [error.__cause__, error.__context__] if error.__cause__ or error.__context__ else []
    words = [type(error).__name__, str(error), repr(error.args), *getattr(error, "__notes__", [])]
    return "\n".join([*words, *(describe_error(link) for link in chain if link is not None)])


def _written(stream: TextIOWrapper) -> bytes:
    stream.flush()
    buffer = stream.buffer
    return buffer.getvalue() if isinstance(buffer, BytesIO) else b""


def _remove_times(content: bytes) -> bytes:
    """Blank the times of runs, which the ledger keeps for the custodian: they say nothing about rows."""
    return re.sub(rb'"time": "[^"]*"', b'"time": ""', content)
