"""DuckDB, embedded: queries over files, and DuckDB's own databases and relations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from understudy.errors import InputError
from understudy.schema import Schema
from understudy.schema.frames import check_names, mark_as_written
from understudy.schema.text import is_text_type
from understudy.source.errors import explain_errors, import_engine
from understudy.source.place import PARQUET, parse_url, strip_query
from understudy.source.temp import PrivateFolder

STEP_ROWS = 1 << 17
_MEMORY = "2GB"
_LONGEST = 1 << 28


def connect(folder: PrivateFolder, file: Path | None = None) -> Any:
    """Connect to an engine that spills into `folder` only, uses no network and sees no Python variable.

    Raises:
        SettingError: if DuckDB is not installed.
        InputError: if `file` is not a DuckDB database.
    """
    duckdb = import_engine("duckdb")
    settings = {
        "temp_directory": str(folder.path),
        "memory_limit": _MEMORY,
        "preserve_insertion_order": "false",
        "autoinstall_known_extensions": "false",
    }
    with explain_errors(f"{file or 'DuckDB'}: cannot be opened; is it a DuckDB database that no other program holds?"):
        made = duckdb.connect(str(file) if file else ":memory:", read_only=file is not None, config=settings)
        made.execute("set python_enable_replacements = false; set TimeZone = 'UTC'")
    return made


def query_batches(files: list[Path], place: str, schema: Schema, folder: PrivateFolder, query: str) -> Iterator[Any]:
    """Return the rows of a query in which all files together are the table ``data``.

    Args:
        files: the files.
        place: the user's name for them.
        schema: what is public about the columns.
        folder: where the engine may spill.
        query: a SELECT statement.

    Raises:
        InputError: if a file or the query cannot be used.
        SchemaError: if the columns do not fit the schema.
    """
    connection = connect(folder)
    with explain_errors(f"{place}: damaged, cut short, or files of different columns; copy or export them again"):
        rows = _read_files(connection, files, schema)
        rows.create_view("data")
    otherwise = "the query cannot be used; try it in DuckDB, with the files as its table `data`"
    batches = _query_batches(connection, query, schema, place, otherwise)
    if os.fspath(files[0]).lower().endswith(PARQUET):
        return batches
    return map(mark_as_written, batches)  # cells of CSV are text here: no reader guessed types


def database_batches(url: str, schema: Schema, folder: PrivateFolder, query: str | None) -> Iterator[Any]:
    """Return the rows of a table, view or query of a DuckDB database: ``duckdb:///path/shop.duckdb?table=people``.

    Raises:
        InputError: if the database, the table or the query cannot be used.
        SchemaError: if the columns do not fit the schema.
    """
    file, rows = _locate_database(url, query)
    otherwise = "the query cannot be used; try it in DuckDB" if query else _explain_table(rows)
    return _query_batches(connect(folder, file), rows, schema, str(file), otherwise)


def database_columns(url: str, folder: PrivateFolder) -> dict[str, Any]:
    """Return the columns of a table or view of a DuckDB database, with their arrow types.

    Raises:
        InputError: if the database or the table cannot be used.
    """
    file, rows = _locate_database(url, None)
    with connect(folder, file) as connection, explain_errors(f"{file}: {_explain_table(rows)}"):
        return {field.name: field.type for field in connection.sql(f"{rows} limit 0").to_arrow_table().schema}


def _locate_database(url: str, query: str | None) -> tuple[Path, str]:
    place = parse_url(url, query=query is not None)
    parts = urlsplit(place.address)
    file = Path(unquote(parts.netloc + parts.path))
    if not file.is_file():
        raise InputError(
            f"{file}: no such DuckDB database; write duckdb:///path/to/file.duckdb?table=NAME, or "
            "duckdb://file.duckdb?table=NAME for one in this folder"
        )
    return file, query or f"from {'.'.join(map(quote_name, (place.table or '').split('.')))}"


def _explain_table(rows: str) -> str:
    return f"{rows.removeprefix('from ')} cannot be read; is it a table or view of this database?"


def relation_batches(
    relation: Any,
    schema: Schema,
    otherwise: str = "the relation's rows cannot be read; is its connection still open?",
) -> Iterator[Any]:
    """Return the rows of a relation, of the user's own DuckDB connection or of ours.

    Raises:
        InputError: with the message `otherwise`, when its rows cannot be read.
        SchemaError: if its columns do not fit the schema.
    """
    check_names(relation.columns, schema.needs)
    column = import_engine("duckdb").ColumnExpression
    with explain_errors(otherwise):
        yield from relation.select(*map(column, schema.needs)).to_arrow_reader(STEP_ROWS)


def quote_name(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _read_files(connection: Any, files: list[Path], schema: Schema) -> Any:
    names = [os.fspath(file) for file in files]
    if names[0].lower().endswith(PARQUET):
        _check_types(files)
        return connection.read_parquet(names, union_by_name=True)
    dialect = schema.dialect
    return connection.read_csv(
        names,
        header=dialect.header,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        escapechar=dialect.quote,
        encoding=dialect.encoding,
        all_varchar=True,
        comment="",  # by default DuckDB guesses from all rows whether those that begin with "#" are comments
        skiprows=0,
        strict_mode=True,
        union_by_name=True,  # by position, a file with another column order would have other units
        max_line_size=_LONGEST,  # a long cell is valid
        buffer_size=_LONGEST,  # the default is sixteen times as much
        na_values="\x01",  # the schema interprets empty cells
    )


def _check_types(files: list[Path]) -> None:
    """Refuse files whose columns differ in type: DuckDB would convert all of them to the most general type.

    **Privacy.** One cell that makes a file's column text would change how cells and units in other files are written.

    Raises:
        InputError: naming the position of the first such column, not its name, which may be private.
    """
    types: dict[str, str] = {}
    for file in files:
        for place, column in enumerate(pq.read_schema(file), 1):
            kind = _type_family(column.type)
            if kind is not None and types.setdefault(column.name, kind) != kind:
                raise InputError(
                    f"{file}: column {place} has another type than in the files before it; write all of "
                    "them with one type, or give the files without a query"
                )


def _type_family(kind: Any) -> str | None:
    """Return the types that DuckDB writes as the same text: integers of any width, text of any kind; None for nulls."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return None
    return "integer" if pa.types.is_integer(kind) else "string" if is_text_type(kind) else str(kind)


def _query_batches(connection: Any, query: str, schema: Schema, place: str, otherwise: str) -> Iterator[Any]:
    with explain_errors(f"{place}: {otherwise}"):
        found = connection.sql(strip_query(query))
        _ = found.columns
    message = f"{place}: its rows cannot be read; a file may be damaged, or its disk full"
    yield from relation_batches(found, schema, message)
    connection.close()
