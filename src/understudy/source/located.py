"""Private rows in engines: one snapshot of a table, coded as often as needed; only counts come out of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from os import fspath
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from understudy.arguments import as_path
from understudy.errors import InputError, OutputError, SettingError
from understudy.schema import Schema
from understudy.source.duckdb import database_batches, database_columns, query_batches, relation_batches
from understudy.source.errors import engine, our_words
from understudy.source.place import CSV, Home, files_of, home_of, name_of
from understudy.source.postgres import PostgresSnapshot
from understudy.source.protocol import Source
from understudy.source.read import csv_batches, open_source, parquet_batches, read_table
from understudy.source.spark import SparkSnapshot
from understudy.source.stream import Read, StreamedSource, read_once
from understudy.source.temp import Place, PrivateFolder
from understudy.source.unit import new_key


class Located:
    """A table that does not fit in memory or lives elsewhere; opened once, however often it is coded.

    Args:
        data: a folder, pattern, URL or table object.
        query: a SELECT statement to read instead of a table.
        temp_dir: where engines may put files while they work.

    **Privacy.** Its text form tells nothing: an address may hold a password.
    """

    def __init__(self, data: Any, query: str | None = None, temp_dir: Place = None) -> None:
        self._data, self._query, self._temp_dir = data, query, temp_dir
        self._snapshot: Snapshot | None = None
        self.name = name_of(data)

    def coded(self, schema: Schema, *, key: bytes | None = None) -> Source:
        """The rows coded by a schema; the first one names every column that any later one reads.

        Raises:
            InputError: when the table cannot be used, saying why and what to do.
        """
        return self.fixed(schema).coded(schema, key=key)

    def fixed(self, schema: Schema) -> Snapshot:
        """The rows at the moment when this, or `coded`, was first called; `schema` names every column ever read.

        Raises:
            InputError: when the table cannot be used, saying why and what to do.
        """
        if self._snapshot is None:
            self._snapshot = open_snapshot(self._data, schema, query=self._query, temp_dir=self._temp_dir)
        return self._snapshot

    @property
    def home(self) -> Home:
        """What kind of place it is."""
        return home_of(self._data, query=self._query is not None)

    @property
    def files(self) -> list[Path]:
        """The files that it is made of; none for a database."""
        return files_of(fspath(self._data)) if self.home == "files" else []

    def is_given_as(self, other: Any) -> bool:
        """Whether something else is the object, or the same text, that this table was given as."""
        return other is self._data or (isinstance(other, str) and isinstance(self._data, str) and other == self._data)

    def close(self) -> None:
        """Let go of connections and remove everything that was put on disk."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def __repr__(self) -> str:
        return f"<{self.name}>"


@contextmanager
def located(data: Any, query: str | None = None, temp_dir: Place = None) -> Iterator[Any]:
    """The data itself where it is a frame or a single file, else a `Located` table, closed at the end.

    Raises:
        SettingError: for a query beside a frame, or one that is no text.
        InputError: when there is no such file.
        OutputError: when there is no such folder to work in.
    """
    temp_dir = None if temp_dir is None else as_path("temp_dir", temp_dir)
    if temp_dir is not None and not temp_dir.is_dir():
        raise OutputError(f"{temp_dir}: there is no such folder to work in; make it, or give another (--temp-dir)")
    if query is not None and not isinstance(query, str):
        raise SettingError("query: give a SELECT statement as text")
    home = home_of(data, query=query is not None)
    if home == "frame" and query is not None:
        raise SettingError("a query reads files or a database; for a frame, make it before you pass it")
    if home == "file" and not Path(data).exists():
        raise InputError(f"{data}: there is no such file; check the path")
    if home in ("frame", "file"):
        yield data
        return
    table = Located(data, query, temp_dir)
    try:
        yield table
    finally:
        table.close()


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
        read = _of_files(fspath(data), query)
        return _Batches(read if query is None else read_once(read, schema), temp_dir)
    if home == "duckdb":
        read = lambda coding, folder: database_batches(data, coding, folder, query)  # noqa: E731
        return _Batches(read_once(read, schema), temp_dir)
    if home == "postgresql":
        return PostgresSnapshot.of_url(data, query)
    if home == "spark":
        return SparkSnapshot(data, schema)
    if home == "ibis":
        return _of_ibis(data, schema, temp_dir)
    if home == "relation":
        return _Batches(read_once(lambda coding, folder: relation_batches(data, coding), schema), temp_dir)
    raise InputError("the table must be a frame, a path, a database's URL, or a table of Spark, Ibis or DuckDB")


class _Batches:
    """Files and relations of the embedded engine: every coding reads the same rows, or is refused."""

    def __init__(self, read: Read, temp_dir: Place) -> None:
        self._read = read
        self._folder = PrivateFolder(temp_dir)

    def coded(self, schema: Schema, *, key: bytes | None = None) -> StreamedSource:
        return StreamedSource(self._read(schema, self._folder), schema, self._folder, key=key)

    def close(self) -> None:
        self._folder.close()


def _of_ibis(table: Any, schema: Schema, temp_dir: Place) -> Snapshot:
    """An Ibis table in its own engine: Ibis writes the query, and the engine's own way takes over."""
    ibis = engine("ibis")
    with our_words("the Ibis table cannot be read; is its connection still open?"):
        backend = table.get_backend()
        query = str(ibis.to_sql(table))
        if backend.name == "pyspark":
            return SparkSnapshot(backend._session.sql(query), schema)
        if backend.name == "postgres":
            info = backend.con.info
            return PostgresSnapshot(
                engine("psycopg.conninfo").make_conninfo(info.dsn, password=info.password), f"({query})"
            )
        if backend.name == "duckdb":
            read = lambda coding, folder: relation_batches(backend.con.sql(query), coding)  # noqa: E731
            return _Batches(read_once(read, schema), temp_dir)
    raise InputError(
        "Ibis tables are read from DuckDB, PostgreSQL and Spark; export this one to Parquet and give the folder"
    )


def _of_files(data: str, query: str | None) -> Read:
    files = files_of(data)
    state = _state(files)
    read: Read
    if query is None:
        batches = csv_batches if files[0].name.lower().endswith(CSV) else parquet_batches
        read = lambda coding, folder: batches(files, coding)  # noqa: E731
    else:
        read = lambda coding, folder: query_batches(files, data, coding, folder, query)  # noqa: E731

    def same_rows(coding: Schema, folder: PrivateFolder) -> Iterator[Any]:
        yield from read(coding, folder)
        if _state(files) != state:
            raise InputError(f"{data}: a file was changed while it was read; run again when nothing writes there")

    return same_rows


def _state(files: list[Path]) -> list[tuple[int, int]]:
    with our_words("a file was removed while it was read; run again when nothing writes there"):
        return [((found := file.stat()).st_size, found.st_mtime_ns) for file in files]


# ----------------------------------------------------------------------------------------------------
# The same private rows in one coding after another, for what is bought before the domain is known.


Opener: TypeAlias = Callable[[Schema], Source]
"""Gives the same rows coded by any schema of the same units."""


def opener(data: Any, schema: Schema) -> Opener:
    """A way to open a table again and again; a file is read once, and one bounding key serves all codings.

    Args:
        data: what `open_source` takes.
        schema: names every column that any of the codings reads.

    Raises:
        InputError: when the file cannot be used, saying why and what to do.
        SchemaError: when a file's columns do not fit the schema; those of other tables are looked at when it is coded.
    """
    key = new_key()
    if isinstance(data, Located):
        snapshot = data.fixed(schema)
        return lambda coding: snapshot.coded(coding, key=key)
    table = read_table(data, schema) if isinstance(data, str | os.PathLike) and Path(data).is_file() else data
    return lambda coding: open_source(table, coding, key=key)


# ----------------------------------------------------------------------------------------------------
# The columns of a table that lives in an engine, with their types: structure alone, for a first schema.


_TEXT = ("text", "varchar", "bpchar", "name", "citext", "uuid")


def column_types(data: str) -> dict[str, Any]:
    """Names with arrow types; null for a type that no column kind can hold. Reads no row.

    Args:
        data: a database's URL, or a folder or pattern of Parquet files.

    Raises:
        InputError: when there is no such table, or its files are CSV, which has no types.
    """
    home = home_of(data)
    if home == "postgresql":
        with closing(PostgresSnapshot.of_url(data, None)) as snapshot:
            return {name: _kind(cell) for name, cell in snapshot.cells}
    if home == "duckdb":
        with closing(PrivateFolder()) as folder:
            return database_columns(data, folder)
    file = files_of(data)[0]
    if file.name.lower().endswith(CSV):
        raise InputError(f"{data}: CSV files have no types; draft the schema from one of the files")
    import pyarrow.parquet as pq

    with our_words(f"{file}: cannot be read as Parquet; check the path, or export the file again"):
        return {field.name: field.type for field in pq.read_schema(file)}


def _kind(cell: Any) -> Any:
    import pyarrow as pa

    if cell.kind is not None:
        return cell.kind
    named = {"numeric": pa.float64(), "interval": pa.duration("us"), **dict.fromkeys(_TEXT, pa.string())}
    return named.get(cell.own, pa.null())
