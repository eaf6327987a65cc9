"""Random bits of the operating system that are the same each time a test is run.

`tests/conftest.py` calls `install` in the process that runs the tests. It also puts this folder on PYTHONPATH, so that
every Python process that a test starts imports this file before anything else (see the documentation of `site`). The
package knows nothing of it: there is no setting, variable or argument by which its noise could be seeded.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
from collections import Counter

LABEL = "UNDERSTUDY_TESTS_LABEL"
"""The environment variable with the name of the test that runs; without it nothing is replaced."""
STARTED = "UNDERSTUDY_TESTS_STARTED"
"""The environment variable with the path of a folder, in which a file has one byte for each process of its label."""

_system = os.urandom
_lock = threading.Lock()


class Sequence:
    """Random bits of one label: a hash of the label, of the calling module and of how often it has called.

    With the label None, the bits are the system's own. Modules are told apart because some draw bits when they are
    imported, and which test is the first to import them depends on the order of the tests.
    """

    def __init__(self, label: str | None = None) -> None:
        self.label = label
        self.calls: Counter[str] = Counter()
        self.forks = 0


current = Sequence()


def urandom(size: int, /) -> bytes:
    """Bytes of the current sequence, in place of `os.urandom`."""
    if current.label is None:
        return _system(size)
    module = sys._getframe(1).f_globals.get("__name__", "")
    with _lock:
        current.calls[module] += 1
        return hashlib.shake_256(f"{current.label}\0{module}\0{current.calls[module]}".encode()).digest(size)


def install() -> None:
    """Replace `os.urandom`, and the name by which `random`, `secrets` and numpy call it."""
    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_count_fork, after_in_child=_start_child)


def _count_fork() -> None:
    current.forks += 1


def _start_child() -> None:
    """A child repeats neither the bits of its parent nor those of another child."""
    if current.label is not None:
        current.label = f"{current.label}\0fork {current.forks}"
        current.calls.clear()


def _count_process(label: str, folder: str) -> int:
    """How many processes of the label have started, this one included."""
    path = os.path.join(folder, hashlib.sha256(label.encode()).hexdigest())  # noqa: PTH118 - pathlib loads slowly
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR)
    finally:
        os.close(file)


def start_process() -> None:
    """Begin the sequence of a process that a test has started."""
    label = os.environ.get(LABEL)
    current.label = label and f"{label}\0process {_count_process(label, os.environ[STARTED])}"
    current.calls.clear()


if __name__ == "sitecustomize" and LABEL in os.environ:
    install()
    start_process()
