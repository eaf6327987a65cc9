"""A private directory for everything that an engine or a source writes to disk while it works."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias

from understudy.errors import OutputError

TempDir: TypeAlias = str | PathLike[str] | None

PREFIX = "understudy-private-"
_LOCK = "in-use"
_YOUNG_SECONDS = 3600.0


class PrivateFolder:
    """A directory that only this user can enter.

    Removed when it is closed, when the process ends, or at the next start.

    The directory holds a locked file while its process lives. A later run in the same place removes every directory of
    the same user whose lock is free: it belonged to a killed process.

    Args:
        base: where to create it; by default the system's directory for temporary files.

    **Privacy.** Mode 0700. Its name reveals nothing about the table.

    Raises:
        OutputError: if it cannot be created there.
    """

    def __init__(self, base: TempDir = None) -> None:
        place = Path(tempfile.gettempdir() if base is None else base)
        remove_stale(place)
        try:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            self._lock = _open_locked(self.path / _LOCK)
        except OSError:
            raise OutputError(
                f"{place}: a private folder cannot be created there; give another with --temp-dir"
            ) from None
        self._finish = weakref.finalize(self, _remove, self.path, self._lock)

    def close(self) -> None:
        """Remove the directory and all that is in it."""
        self._finish()

    def __repr__(self) -> str:
        return "<PrivateFolder>"


def remove_stale(place: Path) -> None:
    """Remove directories that killed runs of this user left in `place`, as far as possible."""
    with suppress(OSError):
        for path in place.glob(f"{PREFIX}*"):
            if _is_stale(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_stale(path: Path) -> bool:
    """Return whether a directory is ours and its process has ended; a new directory may not have its lock yet."""
    try:
        found = path.lstat()
        if not path.is_dir() or path.is_symlink() or (hasattr(os, "geteuid") and found.st_uid != os.geteuid()):
            return False
        if not (path / _LOCK).exists():
            return time.time() - found.st_mtime > _YOUNG_SECONDS
        _open_locked(path / _LOCK).close()
    except OSError:
        return False
    return True


def _open_locked(path: Path) -> IO[bytes]:
    """Open the file and lock it.

    Raises:
        OSError: if another process holds the lock.
    """
    file = path.open("ab")
    try:
        _lock(file)
    except OSError:
        file.close()
        raise
    return file


def _lock(file: IO[bytes]) -> None:
    try:
        import fcntl
    except ImportError:  # Windows does not remove open files, so the directory of a living run stays
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(path: Path, lock: Any) -> None:
    lock.close()
    shutil.rmtree(path, ignore_errors=True)
