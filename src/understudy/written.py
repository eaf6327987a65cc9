"""Rows as files: written completely or not at all."""

from __future__ import annotations

from pathlib import Path

from understudy.progress import Progress, silent
from understudy.release import Release
from understudy.release.write import write_chunks, written_file


def write_rows(release: Release, path: Path, *, seed: int | None = None, progress: Progress = silent) -> None:
    """Write a release's rows as CSV or Parquet by the file's ending, in bounded memory, completely or not at all.

    Raises:
        OutputError: when the file cannot be written.
    """
    count, chunks = release.stream(seed=seed, as_written=path.suffix != ".parquet")
    with written_file(path, release.schema.dialect) as opened:
        write_chunks(chunks, opened, count, progress=progress)
