"""Private rows in engines: one snapshot of a table, coded as often as needed; only counts come out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import fspath
from typing import Any, Protocol

from understudy.errors import InputError, SettingError
from understudy.schema import Schema
from understudy.source.protocol import Source
from understudy.source.read import csv_batches
from understudy.source.sql_duckdb import database_batches, file_batches, relation_batches
from understudy.source.sql_place import CSV, files_of, home_of
from understudy.source.sql_stream import StreamedSource
from understudy.source.sql_temp import Place, PrivateFolder


class Snapshot(Protocol):
    """The rows of a table at one moment.

    **Guarantees.** Every source that it gives is about the same rows, whatever happens to the table meanwhile.
    """

    def coded(self, schema: Schema, *, key: bytes | None = None) -> Source:
        """The rows coded by a schema and bounded, ready to be counted."""
        ...

    def close(self) -> None:
        """Let go of connections and remove everything that was put on disk."""
        ...


def open_snapshot(data: Any, schema: Schema, *, query: str | None = None, temp_dir: Place = None) -> Snapshot:
    """The rows of files, a database, or an engine's table object, fixed at this moment.

    Args:
        data: what `open_source` takes, except frames and single files.
        schema: names every column that will be read.
        query: a SELECT statement to read instead of a table.
        temp_dir: where engines may put files while they work.

    Raises:
        InputError: when the table cannot be used, saying why and what to do.
        SettingError: when an engine is not installed, naming the extra to install.
    """
    home = home_of(data, query=query is not None)
    if home in ("spark", "ibis", "relation") and query is not None:
        raise SettingError("a query reads files or a database; a table object is a query already")
    if home == "files":
        return _Batches(_of_files(fspath(data), query), temp_dir)
    if home == "duckdb":
        return _Batches(lambda coding, folder: database_batches(data, coding, folder, query), temp_dir)
    if home == "relation":
        return _Batches(lambda coding, folder: relation_batches(data, coding), temp_dir)
    raise InputError("the table must be a frame, a path, a database's URL, or a table of Spark, Ibis or DuckDB")


class _Batches:
    """Files and relations of the embedded engine: what is read is fixed when the snapshot is made."""

    def __init__(self, read: Callable[[Schema, PrivateFolder], Iterator[Any]], temp_dir: Place) -> None:
        self._read = read
        self._folder = PrivateFolder(temp_dir)

    def coded(self, schema: Schema, *, key: bytes | None = None) -> StreamedSource:
        return StreamedSource(self._read(schema, self._folder), schema, self._folder, key=key)

    def close(self) -> None:
        self._folder.close()


def _of_files(data: str, query: str | None) -> Callable[[Schema, PrivateFolder], Iterator[Any]]:
    files = files_of(data)
    if query is None and files[0].name.lower().endswith(CSV):
        return lambda coding, folder: csv_batches(files, coding)
    return lambda coding, folder: file_batches(files, data, coding, folder, query)
