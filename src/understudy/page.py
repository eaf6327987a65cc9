"""Files written completely or not at all, for their owner alone where they show rows. The one place that does it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from understudy.errors import OutputError

OWNER = 0o600
"""The mode of a file that its owner alone may read and write."""


def named(path: Path) -> Path:
    """The path of a file.

    Raises:
        OutputError: for what names none, such as "." and "/".
    """
    if not path.name:
        raise OutputError(f"{path} is a folder; give the name of a file")
    return path


def reason(error: OSError) -> str:
    """Why the system refused, in its own words and nobody else's: a library's may quote its insides.

    >>> import errno
    >>> reason(OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"))
    'No space left on device'
    """
    return os.strerror(error.errno) if error.errno else "input/output error"


def draft_of(path: Path) -> Path:
    """A name beside a file, for what becomes that file: hidden, with our process id and a part nobody can guess."""
    return path.with_name(f"{_draft_prefix(path)}{os.getpid()}.{secrets.token_hex(8)}.tmp")


def remove_stale_drafts(path: Path) -> None:
    """Remove what processes that are no more left of a file they were writing."""
    import psutil

    prefix = _draft_prefix(path)
    with suppress(OSError):
        for draft in path.parent.iterdir():
            if draft.name.startswith(prefix) and draft.name.endswith(".tmp"):
                owner = draft.name.removeprefix(prefix).partition(".")[0]
                if owner.isdecimal() and int(owner) != os.getpid() and not psutil.pid_exists(int(owner)):
                    draft.unlink()


def _draft_prefix(path: Path) -> str:
    return f".{path.name[:48]}."  # a long name has no room for more


@contextmanager
def written(path: Path, *, private: bool = False, lasting: bool = True) -> Iterator[BinaryIO]:
    """A file, open for reading and writing, that gets its name when the block ends without an error.

    Until then it has a hidden name beside the other one. That name is new and unpredictable, and never one that a link
    has: what others put into the folder is neither followed nor written over. An error removes the file.

    Args:
        path: the file's name; a file of that name is replaced in the end.
        private: let its owner alone read it, from its first byte on.
        lasting: wait until the disk has it, so that even a power failure leaves the whole file or the one before.

    Raises:
        OSError: when it cannot be written.
    """
    draft = draft_of(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(draft, flags, OWNER if private else 0o666)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()


def write_page(page: str, path: Path, *, private: bool = False) -> None:
    """Write a page completely or not at all.

    **Privacy.** A `private` page, made from the rows without noise, can be read by its owner alone, from its first byte
    on and also where it replaces one that everybody could read.

    Raises:
        OutputError: when it cannot be written.
    """
    try:
        with written(named(path), private=private) as file:
            file.write(page.encode())
    except OSError as error:
        words = f"{path} could not be written ({reason(error)}); check that the folder exists and is yours to write to"
        raise OutputError(words) from None


def check_space(folder: Path, needed_bytes: int) -> None:
    """Make sure that the folder's disk has room.

    Raises:
        OutputError: naming the folder and how much is needed.
    """
    free = shutil.disk_usage(folder).free
    wanted = needed_bytes + (1 << 20)
    if free < wanted:
        raise OutputError(
            f"{folder} has {free >> 20} MiB free and up to {-(-wanted // (1 << 20))} MiB may be needed; make room"
        )
