"""Rows and pages as files: written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy.errors import OutputError
from understudy.schema import Dialect


def write_rows(table: Any, path: Path, dialect: Dialect) -> None:
    """Write an arrow table as CSV or Parquet by the file's ending, completely or not at all.

    Raises:
        OutputError: when the file cannot be written.
    """
    with _draft(path) as draft:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, draft)
        else:
            with draft.open("wb") as file:
                write_csv(table, file, dialect)


def write_csv(table: Any, file: Any, dialect: Dialect) -> None:
    """Write an arrow table as text, in UTF-8, with the header and separator of the table's own files."""
    from pyarrow import csv

    csv.write_csv(table, file, csv.WriteOptions(include_header=dialect.header, delimiter=dialect.delimiter))


def write_page(page: str, path: Path) -> None:
    """Write a page completely or not at all.

    Raises:
        OutputError: when it cannot be written.
    """
    with _draft(path) as draft:
        draft.write_text(page, encoding="utf-8", newline="\n")


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path} could not be written ({error.strerror or 'input/output error'})") from None
    finally:
        draft.unlink(missing_ok=True)
