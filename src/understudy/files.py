"""Atomic file writing: a file appears complete or not at all, readable by its owner alone where it shows rows.

All files that the package writes as a whole go through `write_atomically` or `write_text`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from understudy.errors import OutputError

OWNER_ONLY = 0o600
"""The mode of a file that only its owner may read and write."""
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""How `os.open` makes a new file of bytes: it follows no link, and Windows does not change the ends of lines."""


@contextmanager
def write_atomically(path: Path, *, private: bool = False, lasting: bool = True) -> Iterator[BinaryIO]:
    """Open a new file for reading and writing that gets its name when the block ends without an error.

    Until then it is a hidden draft in the same folder. The draft's name is new and unpredictable and is never that of
    an existing file or link, so nothing that others put into the folder is followed or overwritten. An error removes
    the draft; the draft of a process that was killed is removed when the same file is written again.

    Args:
        path: name of the file; an existing file of that name is replaced at the end.
        private: make the file readable by its owner alone, from its first byte on.
        lasting: wait until the disk has the file, so that even a power failure leaves the whole new or old file.

    Raises:
        OSError: if the file cannot be written.
    """
    remove_stale_drafts(path)
    draft = draft_path(path)
    handle = os.open(draft, NEW_FILE, OWNER_ONLY if private else 0o666)
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


def write_text(text: str, path: Path, *, private: bool = False) -> None:
    """Write a text file in UTF-8, complete or not at all.

    **Privacy.** A `private` file, made from the rows without noise, is readable by its owner alone from its first byte
    on, also where it replaces a file that everybody could read.

    Raises:
        OutputError: if the file cannot be written.
    """
    try:
        with write_atomically(check_file_name(path), private=private) as file:
            file.write(text.encode())
    except OSError as error:
        raise could_not_write(path, error) from None


def draft_path(path: Path) -> Path:
    """Return a new hidden name in the folder of `path`: it holds our process id and a part that nobody can guess."""
    return path.with_name(f"{_draft_prefix(path)}{os.getpid()}.{secrets.token_hex(8)}.tmp")


def remove_stale_drafts(path: Path) -> None:
    """Remove the drafts of a file that processes left behind when they were killed."""
    drafts = re.compile(re.escape(_draft_prefix(path)) + r"(\d{1,9})\.[0-9a-f]{16}\.tmp")
    with suppress(OSError):
        for file in path.parent.iterdir():
            if (draft := drafts.fullmatch(file.name)) is not None:
                import psutil

                if not psutil.pid_exists(int(draft[1])):
                    file.unlink()


def _draft_prefix(path: Path) -> str:
    return f".{path.name[:48]}."  # a file name has at most 255 bytes


def staged_path(output: Path, label: str) -> Path:
    """Return the hidden path of a complete file until `publish` gives it its name."""
    return output.with_name(f".{output.name}.{label}")


def publish(staged: Path, output: Path) -> None:
    """Give a complete file its name; an existing file is never overwritten.

    Raises:
        OutputError: if a file of that name exists.
    """
    try:
        if output.exists():
            raise FileExistsError
        staged.rename(output)
    except OSError:
        raise OutputError(
            f"{output} was created in the meantime; the release was kept as {staged}: rename it"
        ) from None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file_name(path: Path) -> Path:
    """Return the path if it names a file.

    Raises:
        OutputError: for a path without a file name, such as "." and "/".
    """
    if not path.name:
        raise OutputError(f"{path} is a folder; give the name of a file")
    return path


FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the operating system's errors for a full disk."""


def check_space(folder: Path, needed_bytes: int) -> None:
    """Check that the folder's disk has room for this many bytes.

    Raises:
        OutputError: naming the folder and how much is needed.
    """
    free = shutil.disk_usage(folder).free
    wanted = needed_bytes + (1 << 20)
    if free < wanted:
        raise OutputError(
            f"{folder} has {free >> 20} MiB free and up to {-(-wanted // (1 << 20))} MiB may be needed; make room"
        )


def could_not_write(what: object, error: OSError) -> OutputError:
    """Return the error of an output that could not be written, with the remedy.

    >>> import errno
    >>> print(could_not_write("rows.csv", OSError(errno.ENOSPC, "full")))
    rows.csv could not be written (No space left on device); make room there, or choose another place
    """
    is_full = error.errno in FULL_DISK
    remedy = "check that the folder exists and is yours to write to"
    remedy = "make room there, or choose another place" if is_full else remedy
    return OutputError(f"{what} could not be written ({describe_os_error(error)}); {remedy}")


def describe_os_error(error: OSError) -> str:
    """Describe an OSError in the operating system's words; a library's own message may quote private values.

    >>> import errno
    >>> describe_os_error(OSError(errno.ENOSPC, "Error writing bytes to file. [errno 28] No space left on device"))
    'No space left on device'
    """
    return os.strerror(error.errno) if error.errno else "input/output error"
