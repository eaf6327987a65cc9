"""How many answers an unfinished run was given: a number beside the book, by which an older copy of a record is known.

The record is written before anyone gets an answer, but it lies in the run's folder, and a folder can be copied while
the run works. The copy holds fewer answers than were given; if it went on, the others would be given again, with fresh
noise, for one price.

**Privacy.** The number is that of questions asked, which charges tell anyway; nothing computed from rows.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from understudy.errors import OutputError

_DIGITS = 20


class Answered:
    """The number of answers that one run was given.

    Args:
        folder: the book's folder.
        run: the run's mark.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / f"{hashlib.sha256(run.encode()).hexdigest()[:32]}.answered"

    @property
    def number(self) -> int:
        """How many; 0 where nothing is known of the run.

        Raises:
            OutputError: when it cannot be read.
        """
        try:
            return int(self._path.read_bytes())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            raise OutputError(f"{self._path} cannot be read; nothing was asked") from None

    def rise_to(self, number: int) -> None:
        """Write down, durably, that so many answers are given, before the last of them is.

        Always as many bytes in the same place, so that a disk that fills up later, or a crash, leaves a whole number.

        Raises:
            OutputError: when it cannot be written; the answer was given to nobody.
        """
        try:
            with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0) as file:
                file.write(str(number).zfill(_DIGITS).encode())
                os.fsync(file.fileno())
        except OSError:
            raise OutputError(f"{self._path} cannot be written; the run stops before it gets an answer") from None

    def forget(self) -> None:
        """Remove the number: the book says that the run is finished."""
        self._path.unlink(missing_ok=True)
