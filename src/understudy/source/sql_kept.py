"""Rows that may be others the next time they are asked for, written down once: for tables that are coded repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from understudy.errors import InputError
from understudy.schema import Schema
from understudy.source.sql_errors import our_words
from understudy.source.sql_temp import PrivateFolder

Read: TypeAlias = Callable[[Schema, PrivateFolder], Iterator[Any]]
"""Arrow batches with the columns that a schema needs, read from their source."""

_FAILED = "the rows could not be kept while they are coded; is the disk of the private directory (--temp-dir) full?"


def read_once(read: Read, schema: Schema) -> Read:
    """The same rows at every call, whatever happens to the table or to what a query gives.

    With everything declared there is one coding, and rows pass by. Where facts are bought the table is coded again and
    again: the columns that any coding needs are then written to the private directory first, and the table is let go.

    **Privacy.** As private as the rows, in a directory of mode 0700 that is removed with the source.

    Args:
        read: reads the table.
        schema: names every column that any coding needs.

    Raises:
        InputError: at a second coding, where the schema left nothing to be bought.
    """
    kept: list[Path] = []
    passed: list[bool] = []

    def same_rows(coding: Schema, folder: PrivateFolder) -> Iterator[Any]:
        if not schema.open:
            if passed:
                raise InputError("a table that may have changed since it was read is not read again; open it anew")
            passed.append(True)
            return read(coding, folder)
        if not kept:
            place = folder.path / "rows.arrow"
            _write(read(schema, folder), place)
            kept.append(place)
        return _batches(kept[0])

    return same_rows


def _write(batches: Iterator[Any], place: Path) -> None:
    import pyarrow as pa

    with our_words(_FAILED), pa.OSFile(str(place), "wb") as file:
        writer = None
        for batch in batches:
            writer = writer or pa.ipc.new_stream(file, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()


def _batches(place: Path) -> Iterator[Any]:
    import pyarrow as pa

    if place.stat().st_size == 0:  # a table without rows has no batch
        return
    with our_words(_FAILED), pa.OSFile(str(place), "rb") as file:
        yield from pa.ipc.open_stream(file)
