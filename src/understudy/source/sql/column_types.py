"""The columns of a table that lives in an engine, with their types: structure alone, for a first schema."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from understudy.errors import InputError
from understudy.source.sql.duckdb import database_columns
from understudy.source.sql.errors import our_words
from understudy.source.sql.place import CSV, files_of, home_of
from understudy.source.sql.postgres import PostgresSnapshot
from understudy.source.sql.temp import PrivateFolder

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
