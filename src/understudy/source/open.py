"""Open private rows, wherever they live: frames, files, folders, databases and table objects of engines.

A table outside of memory is a `StoredTable`: one snapshot of it is encoded as often as needed, and only counts leave
it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from os import fspath
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from understudy.arguments import as_path
from understudy.errors import InputError, MergedValues, OutputError, SettingError
from understudy.schema import Schema
from understudy.schema.frames import is_as_written
from understudy.source.duckdb import database_batches, database_columns, query_batches, relation_batches
from understudy.source.errors import explain_errors, import_engine
from understudy.source.memory import MemorySource
from understudy.source.place import CSV, SourceKind, list_files, source_kind, table_name
from understudy.source.postgres import PostgresSnapshot
from understudy.source.protocol import Source
from understudy.source.read import csv_batches, parquet_batches, read_table
from understudy.source.spark import SparkSnapshot
from understudy.source.stream import ReadBatches, StreamedSource, read_once
from understudy.source.temp import PrivateFolder, TempDir
from understudy.source.unit import new_key


def open_source(
    data: Any, schema: Schema, *, key: bytes | None = None, query: str | None = None, temp_dir: TempDir = None
) -> Source:
    """Open the private rows of a table, wherever it lives, as a `Source` that can be counted.

    Args:
        data: a pandas, polars or pyarrow frame; the path of a CSV or Parquet file, of a folder of them, or a pattern
            (``data/*.parquet``); a database's URL (``postgresql://host/db?table=people``); or a table of Spark, Ibis
            or DuckDB.
        schema: what is public about the columns.
        key: the bounding key; drawn for this run by default, and never saved.
        query: a SELECT statement to read instead of a table; files are its table ``data``.
        temp_dir: where engines may write temporary files; by default the system's directory for them.

    Raises:
        InputError: if the table cannot be used, saying why and what to do.
        SchemaError: if its columns do not fit the schema.
    """
    if isinstance(data, StoredTable):
        _warn_merged(schema, data.files)
        return data.source(schema, key=key)
    home = source_kind(data, query=query is not None)
    if home in ("frame", "file"):
        table = data if home == "frame" else read_table(data, schema)
        if not is_as_written(table):
            _warn_merged(schema)
        return MemorySource(table, schema, key=key)
    located = StoredTable(data, query, temp_dir)
    _warn_merged(schema, located.files)
    return located.source(schema, key=key)


def _warn_merged(schema: Schema, files: Iterable[Path] = ()) -> None:
    """Warn about declared values that a frame, or a table with types, does not distinguish; by the schema alone.

    **Privacy.** Reads neither rows nor column types, which may depend on rows.
    """
    if any(file.name.lower().endswith(CSV) for file in files):
        return
    remedy = "give the CSV file itself"
    for column in schema.coded:
        if merged := column.ambiguous_texts():
            some = ", ".join(map(repr, merged[:4]))
            warnings.warn(
                f"column {column.name!r}: some of {some} mean the same, or an empty cell, to readers that guess types, "
                f"and count as one here; {remedy} to distinguish them",
                MergedValues,
                stacklevel=2,
            )
    for words in schema.words:
        if not words.numeric:
            warnings.warn(
                f"column {words.name!r}: values are read by their meaning (007 as 7, true as 1); {remedy} to "
                "keep them as written",
                MergedValues,
                stacklevel=2,
            )


class StoredTable:
    """A table that does not fit in memory or lives elsewhere; opened once, however often it is encoded.

    Args:
        data: a folder, pattern, URL or table object.
        query: a SELECT statement to read instead of a table.
        temp_dir: where engines may write temporary files.

    **Privacy.** Its text form reveals only a name: an address may hold a password.
    """

    def __init__(self, data: Any, query: str | None = None, temp_dir: TempDir = None) -> None:
        self._data, self._query, self._temp_dir = data, query, temp_dir
        self._snapshot: Snapshot | None = None
        self.name = table_name(data)

    def source(self, schema: Schema, *, key: bytes | None = None) -> Source:
        """Return the rows encoded by a schema; the first schema names every column that any later one reads.

        Raises:
            InputError: if the table cannot be used, saying why and what to do.
        """
        return self.snapshot(schema).source(schema, key=key)

    def snapshot(self, schema: Schema) -> Snapshot:
        """Return the rows at the moment when this, or `source`, was first called.

        `schema` names every column ever read.

        Raises:
            InputError: if the table cannot be used, saying why and what to do.
        """
        if self._snapshot is None:
            self._snapshot = open_snapshot(self._data, schema, query=self._query, temp_dir=self._temp_dir)
        return self._snapshot

    @property
    def kind(self) -> SourceKind:
        """The kind of place where it lives."""
        return source_kind(self._data, query=self._query is not None)

    @property
    def files(self) -> list[Path]:
        """The files of the table; none for a database."""
        return list_files(fspath(self._data)) if self.kind == "files" else []

    def close(self) -> None:
        """Close connections and remove everything that was written to disk."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def __repr__(self) -> str:
        return f"<{self.name}>"


@contextmanager
def open_table(data: Any, query: str | None = None, temp_dir: TempDir = None) -> Iterator[Any]:
    """Yield the data itself if it is a frame or a single file, else a `StoredTable`, closed at the end.

    Raises:
        SettingError: for a query together with a frame, or a query that is not text.
        InputError: if there is no such file.
        OutputError: if there is no such folder for temporary files.
    """
    temp_dir = None if temp_dir is None else as_path("temp_dir", temp_dir)
    if temp_dir is not None and not temp_dir.is_dir():
        raise OutputError(
            f"{temp_dir}: the folder for temporary files does not exist; create it, or give another (--temp-dir)"
        )
    if query is not None and not isinstance(query, str):
        raise SettingError("query: give a SELECT statement as text")
    home = source_kind(data, query=query is not None)
    if home == "file" and not Path(data).exists():
        raise InputError(f"{data}: no such file; check the path")
    if home in ("frame", "file"):
        yield data
        return
    table = StoredTable(data, query, temp_dir)
    try:
        yield table
    finally:
        table.close()


class Snapshot(Protocol):
    """The rows of a table at one moment.

    **Guarantees.** All of its sources are about the same rows, whatever happens to the table meanwhile.
    """

    def source(self, schema: Schema, *, key: bytes | None = None) -> Source:
        """Return the rows encoded by a schema and limited, ready to be counted."""
        ...

    def close(self) -> None:
        """Close connections and remove everything that was written to disk."""
        ...


def open_snapshot(data: Any, schema: Schema, *, query: str | None = None, temp_dir: TempDir = None) -> Snapshot:
    """Take a snapshot of the rows of files, a database, or an engine's table object.

    Args:
        data: what `open_source` takes, except frames and single files.
        schema: names every column that will be read.
        query: a SELECT statement to read instead of a table.
        temp_dir: where engines may write temporary files.

    Raises:
        InputError: if the table cannot be used, saying why and what to do.
        SettingError: if an engine is not installed, naming the extra to install.
    """
    home = source_kind(data, query=query is not None)
    if home == "files":
        read = _file_reader(fspath(data), query)
        return _BatchSnapshot(read if query is None else read_once(read, schema), temp_dir)
    if home == "duckdb":
        read = lambda coding, folder: database_batches(data, coding, folder, query)  # noqa: E731
        return _BatchSnapshot(read_once(read, schema), temp_dir)
    if home == "postgresql":
        return PostgresSnapshot.of_url(data, query)
    if home == "spark":
        return SparkSnapshot(data, schema)
    if home == "ibis":
        return _open_ibis(data, schema, temp_dir)
    if home == "relation":
        return _BatchSnapshot(read_once(lambda coding, folder: relation_batches(data, coding), schema), temp_dir)
    raise InputError("the table must be a frame, a path, a database's URL, or a table of Spark, Ibis or DuckDB")


class _BatchSnapshot:
    """Files and DuckDB relations: every coding reads the same rows, or is refused."""

    def __init__(self, read: ReadBatches, temp_dir: TempDir) -> None:
        self._read = read
        self._folder = PrivateFolder(temp_dir)

    def source(self, schema: Schema, *, key: bytes | None = None) -> StreamedSource:
        return StreamedSource(self._read(schema, self._folder), schema, self._folder, key=key)

    def close(self) -> None:
        self._folder.close()


def _open_ibis(table: Any, schema: Schema, temp_dir: TempDir) -> Snapshot:
    """Open an Ibis table in its own engine: Ibis writes the query for that engine."""
    ibis = import_engine("ibis")
    with explain_errors("the Ibis table cannot be read; is its connection still open?"):
        backend = table.get_backend()
        query = str(ibis.to_sql(table))
        if backend.name == "pyspark":
            return SparkSnapshot(backend._session.sql(query), schema)
        if backend.name == "postgres":
            info = backend.con.info
            return PostgresSnapshot(
                import_engine("psycopg.conninfo").make_conninfo(info.dsn, password=info.password), f"({query})"
            )
        if backend.name == "duckdb":
            read = lambda coding, folder: relation_batches(backend.con.sql(query), coding)  # noqa: E731
            return _BatchSnapshot(read_once(read, schema), temp_dir)
    raise InputError(
        "Ibis tables are read from DuckDB, PostgreSQL and Spark; export this one to Parquet and give the folder"
    )


def _file_reader(data: str, query: str | None) -> ReadBatches:
    files = list_files(data)
    state = _file_state(files)
    read: ReadBatches
    if query is None:
        batches = csv_batches if files[0].name.lower().endswith(CSV) else parquet_batches
        read = lambda coding, folder: batches(files, coding)  # noqa: E731
    else:
        read = lambda coding, folder: query_batches(files, data, coding, folder, query)  # noqa: E731

    def same_rows(coding: Schema, folder: PrivateFolder) -> Iterator[Any]:
        yield from read(coding, folder)
        if _file_state(files) != state:
            raise InputError(f"{data}: a file was changed while it was read; run again when nothing writes there")

    return same_rows


def _file_state(files: list[Path]) -> list[tuple[int, int]]:
    with explain_errors("a file was removed while it was read; run again when nothing writes there"):
        return [((found := file.stat()).st_size, found.st_mtime_ns) for file in files]


# -- The same rows under several schemas, for discovery --------------------------------------------------------------


Opener: TypeAlias = Callable[[Schema], Source]
"""A function that opens the same rows under any schema with the same units."""


def make_opener(data: Any, schema: Schema) -> Opener:
    """Return a function that opens the same rows under any schema.

    A file is read once, and all codings share one bounding key.

    Args:
        data: what `open_source` takes.
        schema: names every column that any of the codings reads.

    Raises:
        InputError: if the file cannot be used, saying why and what to do.
        SchemaError: if a file's columns do not fit the schema; those of other tables are checked when they are encoded.
    """
    key = new_key()
    if isinstance(data, StoredTable):
        snapshot = data.snapshot(schema)
        return lambda coding: snapshot.source(coding, key=key)
    table = read_table(data, schema) if isinstance(data, str | os.PathLike) and Path(data).is_file() else data
    return lambda coding: open_source(table, coding, key=key)


# -- Column types of a table in an engine, for a first schema --------------------------------------------------------


_TEXT = ("text", "varchar", "bpchar", "name", "citext", "uuid")


def read_column_types(data: str) -> dict[str, Any]:
    """Return the column names of a table with their arrow types, null for types that no column can hold. Reads no row.

    Args:
        data: a database's URL, a Parquet file, or a folder or pattern of Parquet files.

    Raises:
        InputError: if there is no such table, or its files are CSV, which has no types.
    """
    home = source_kind(data)
    if home == "postgresql":
        with closing(PostgresSnapshot.of_url(data, None)) as snapshot:
            return {name: _arrow_type(cell) for name, cell in snapshot.cells}
    if home == "duckdb":
        with closing(PrivateFolder()) as folder:
            return database_columns(data, folder)
    file = Path(data) if home == "file" else list_files(data)[0]
    if file.name.lower().endswith(CSV):
        raise InputError(f"{data}: CSV files have no types; draft the schema from one of the files")

    with explain_errors(f"{file}: cannot be read as Parquet; check the path, or export the file again"):
        return {field.name: field.type for field in pq.read_schema(file)}


def _arrow_type(cell: Any) -> Any:
    if cell.kind is not None:
        return cell.kind
    named = {"numeric": pa.float64(), "interval": pa.duration("us"), **dict.fromkeys(_TEXT, pa.string())}
    return named.get(cell.own, pa.null())
