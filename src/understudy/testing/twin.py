"""The twin: what the gate answered on one table is replayed over another; everything else must come out the same.

Charging, reading, scoring and drawing still run on the second table, with other rows, another number of rows and other
values. Whatever then differs in files, messages or names was computed from rows without being paid for.
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
from understudy.testing.expect import expect

_BROKEN = b"broken off by "


@contextmanager
def recording() -> Iterator[list[Any]]:
    """A list that fills with every answer that leaves the gate within the block."""
    answers: list[Any] = []
    original: Any = PrivateTable._released

    def released(table: PrivateTable, answer: Any) -> Any:
        given = original(table, answer)
        answers.append(copy(given))  # whoever gets a list of measurements may add to it
        return given

    with patch.object(PrivateTable, "_released", released):
        yield answers


@contextmanager
def replaying(answers: list[Any]) -> Iterator[None]:
    """Within the block the gate gives these answers, in this order, instead of its own.

    Raises:
        AssertionError: when more, or fewer, answers were asked for.
    """
    left = list(answers)
    original: Any = PrivateTable._released

    def released(table: PrivateTable, answer: Any) -> Any:
        expect(left, "on the second table the gate was asked more than on the first")
        expect(
            _kind(left[0]) == _kind(answer), "on the second table the gate was asked something else than on the first"
        )
        return original(table, copy(left.pop(0)))

    with patch.object(PrivateTable, "_released", released):
        yield
    expect(not left, "on the second table the gate was asked less than on the first")


def outcome(run: Callable[[Path], object], folder: Path) -> dict[str, bytes]:
    """Everything that a run leaves behind in a fresh `folder`: files by name, what it printed, and how it ended."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    out, err = TextIOWrapper(BytesIO(), "utf-8"), TextIOWrapper(BytesIO(), "utf-8")
    ending = "done"
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run(folder)
        except (UnderstudyError, SystemExit, KeyboardInterrupt) as error:  # how it ends is part of what it tells
            ending = told(error)
        except BaseException as error:
            ending = _BROKEN.decode() + told(error)
    left = {"stdout": _bytes(out), "stderr": _bytes(err), "ending": ending.encode()}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return left | {path.relative_to(folder).as_posix(): _timeless(path.read_bytes()) for path in files}


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
        AssertionError: naming the file or stream that differs; or when the first run broke off with an error that is
            none of ours, so that nothing would be proven.
    """
    with recording() as answers:
        mine = outcome(lambda place: run(first, place), folder)
    expect(not mine["ending"].startswith(_BROKEN), f"the first run broke off: {mine['ending'].decode()}")
    with replaying(answers):
        theirs = outcome(lambda place: run(second, place), folder)
    expect(list(mine) == list(theirs), f"other files were left: {set(mine) ^ set(theirs)}")
    for name, content in mine.items():
        expect(content == theirs[name], f"{name} depends on rows in a way that was not paid for")
    return mine


def told(error: BaseException) -> str:
    """Everything that an error tells, or lets be found: type, text, notes, causes and contexts, suppressed or not."""
    chain = [error.__cause__, error.__context__] if error.__cause__ or error.__context__ else []
    words = [type(error).__name__, str(error), repr(error.args), *getattr(error, "__notes__", [])]
    return "\n".join([*words, *(told(link) for link in chain if link is not None)])


def _kind(answer: Any) -> Any:
    """Which question an answer is to, as far as the answer tells: its type, and the cliques that were measured."""
    return [measurement.clique for measurement in answer] if isinstance(answer, list) else type(answer)


def _bytes(stream: TextIOWrapper) -> bytes:
    stream.flush()
    buffer = stream.buffer
    return buffer.getvalue() if isinstance(buffer, BytesIO) else b""


def _timeless(content: bytes) -> bytes:
    """An entry of the ledger tells the time of a run to its custodian; that is not a fact about rows."""
    return re.sub(rb'"time": "[^"]*"', b'"time": ""', content)
