"""Rows that may be others the next time they are asked for, written down once: for tables that are coded repeatedly."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from understudy.errors import InputError
from understudy.schema import Schema
from understudy.source.sql.errors import our_words
from understudy.source.sql.temp import PrivateFolder

Read: TypeAlias = Callable[[Schema, PrivateFolder], Iterator[Any]]
"""Arrow batches with the columns that a schema needs, read from their source."""

_FAILED = "the rows could not be kept while they are coded; is the disk of the private directory (--temp-dir) full?"


def read_once(read: Read, schema: Schema) -> Read:
    """The same rows at every call, whatever happens to the table or to what a query gives.

    With everything declared there is one coding, and rows pass by. Where facts are bought the table is coded again and
    again: the columns that any coding needs are then written to the private directory first, and the table is let go.

    **Privacy.** As private as the rows; in a file without a name.

    Args:
        read: reads the table.
        schema: names every column that any coding needs.

    Raises:
        InputError: at a second coding, where the schema left nothing to be bought.
    """
    kept: list[_Rows] = []
    passed: list[bool] = []

    def same_rows(coding: Schema, folder: PrivateFolder) -> Iterator[Any]:
        if not schema.open:
            if passed:
                raise InputError("a table that may have changed since it was read is not read again; open it anew")
            passed.append(True)
            return read(coding, folder)
        if not kept:
            kept.append(_Rows(read(schema, folder), folder.path))
        return kept[0].batches()

    return same_rows


class _Rows:
    """Batches in a file without a name: its space is given back when the process ends, however it ends."""

    def __init__(self, batches: Iterator[Any], folder: Path) -> None:
        import pyarrow as pa

        with our_words(_FAILED):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            self._finish = weakref.finalize(self, self._file.close)
            writer = None
            for batch in batches:
                writer = writer or pa.ipc.new_stream(self._file, batch.schema)
                writer.write_batch(batch)
            if writer is not None:
                writer.close()

    def batches(self) -> Iterator[Any]:
        import pyarrow as pa

        if not self._file.seek(0, os.SEEK_END):  # a table without rows has no batch
            return
        with our_words(_FAILED):
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
