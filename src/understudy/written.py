"""Rows and pages as files: written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from understudy.errors import OutputError
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


def write_page(page: str, path: Path, *, private: bool = False) -> None:
    """Write a page completely or not at all.

    **Privacy.** A `private` page, made from the rows without noise, can be read by its owner alone.

    Raises:
        OutputError: when it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.touch(mode=0o600 if private else 0o666)
        draft.write_text(page, encoding="utf-8", newline="\n")
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path} could not be written ({error.strerror or 'input/output error'})") from None
    finally:
        draft.unlink(missing_ok=True)
