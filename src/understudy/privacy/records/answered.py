"""How many answers an unfinished run was given: a number beside the book, by which an older copy of a record is known.

The record is written before anyone gets an answer, but it lies in the run's folder, and a folder can be copied while
the run works. The copy holds fewer answers than were given; if it went on, the others would be given again, with fresh
noise, for one price.

**Privacy.** The number is that of questions asked, which charges tell anyway; nothing computed from rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from io import FileIO
from pathlib import Path

from understudy.errors import OutputError

_DIGITS = 20


class Answered:
    """The number of answers that one run was given.

    Args:
        folder: the book's folder.
        run: the run's mark.
        turn: what is entered while the number rises; it raises where that is another attempt's to do.
    """

    def __init__(self, folder: Path, run: str, turn: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._turn = turn
        self._path = folder / f"{hashlib.sha256(run.encode()).hexdigest()[:32]}.answered"
        self._file: FileIO | None = None

    @property
    def number(self) -> int:
        """How many; 0 where nothing is known of the run.

        Raises:
            OutputError: when it cannot be read.
        """
        try:
            return int(self._path.read_bytes() or b"0")  # empty: killed before the first answer
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            words = f"{self._path} cannot be read; delete it where the run's folder is no copy. Nothing was asked"
            raise OutputError(words) from None

    def rise_to(self, number: int) -> Callable[[], None]:
        """What writes down that so many answers are given; to be called right before the last of them is on record.

        The call raises OutputError where as many answers were given before, by whatever process: one price is for one
        answer.

        A process that is killed in between leaves a record that counts as an older copy. So the writing is the last
        thing that the call does. It is always as many bytes in the same place: a disk that fills up later leaves a
        whole number.

        Raises:
            OutputError: when it cannot be written; the answer was given to nobody.
        """
        with self._told():
            self._file = self._file or FileIO(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        return partial(self._write, self._file, number)

    def settle(self) -> None:
        """Make the number durable, before anyone gets the answer.

        Raises:
            OutputError: when that fails; the answer was given to nobody.
        """
        if self._file is not None:
            with self._told():
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, file: FileIO, number: int) -> None:
        with self._turn(), self._told():
            file.seek(0)
            if int(file.read(_DIGITS) or b"0") >= number:
                raise OutputError(
                    "another process was given the answer that this run asks for; this one stops before its next answer"
                )
            file.seek(0)
            file.write(str(number).zfill(_DIGITS).encode())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):
            raise OutputError(f"{self._path} cannot be written; the run stops before it gets an answer") from None

    def forget(self) -> None:
        """Remove the number: the book says that the run is finished."""
        self._path.unlink(missing_ok=True)
