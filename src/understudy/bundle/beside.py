"""A Stata or SPSS file written by a process of its own, beside this one: each keeps a core busy for long.

Not through `multiprocessing`: it would start a caller's own script again, and a script may spend budget.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy.bundle.office import write_office
from understudy.release import Release

WORTH = 200_000
"""Rows from which on starting a process takes less time than it saves."""


@contextmanager
def written_beside(table: Any, path: Path, release: Release) -> Iterator[None]:
    """Write a typed table to a Stata or SPSS file while the body runs; complete when the body is left.

    Where the process cannot be started or fails, the file is written here instead, with errors in our own words.

    **Privacy.** Synthetic rows and the release alone go to the process, through files beside the output.
    """
    rows, model = path.with_suffix(".arrow"), path.with_suffix(".release")
    try:
        _hand_over(table, rows)
        release.save(model)
        child = _started(rows, model, path)
        try:
            yield
            done = child is not None and child.wait() == 0
        finally:
            if child is not None:
                child.kill()
                child.wait()
    finally:
        rows.unlink(missing_ok=True)
        model.unlink(missing_ok=True)
    if not done:
        write_office(table, path, release)


def _hand_over(table: Any, path: Path) -> None:
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _started(rows: Path, model: Path, path: Path) -> subprocess.Popen[bytes] | None:
    command = [sys.executable, "-P", "-m", "understudy.bundle.beside", str(rows), str(model), str(path)]
    quiet = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    except (OSError, TypeError, ValueError):  # no interpreter of its own, as inside another program
        return None


def main() -> None:
    """Write the file that the parent asked for."""
    import pyarrow as pa

    rows, model, path = (Path(argument) for argument in sys.argv[1:])
    with pa.memory_map(str(rows)) as file:
        write_office(pa.ipc.open_file(file).read_all(), path, Release.load(model))


if __name__ == "__main__":
    main()
