"""Synthetic rows written to PostgreSQL: a typed table, filled by COPY in one transaction.

**Privacy.** Rows are synthetic. The address may hold a password: neither it nor the server's messages are quoted.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from understudy.errors import OutputError, SettingError
from understudy.sink.files import OpenSink, replace_errors
from understudy.source.errors import import_engine
from understudy.source.place import add_table, parse_url


@contextmanager
def open_table(url: str, *, force: bool = False) -> Iterator[OpenSink]:
    """Open a new table of a PostgreSQL database that becomes visible to others once all rows are in it.

    Args:
        url: ``postgresql://host/db?table=people``; user and password come from the environment, ``~/.pgpass`` or a
            service file where they are left out.
        force: replace a table of that name.

    Raises:
        OutputError: if the table already exists, or cannot be written.
        SettingError: if the driver is not installed, or the URL names no table.
    """
    try:
        place = parse_url(url, query=False)
    except SettingError:
        raise SettingError("the table's name is missing: add ?table=NAME at the end of the URL") from None
    name = place.table or ""
    psycopg = import_engine("psycopg")
    with _connect(psycopg, place.address, name) as connection:
        _refuse_existing(connection, psycopg, name, force=force)
        yield lambda columns: _PostgresTable(connection, psycopg, name, columns, force=force)


def write_linked_tables(
    tables: Mapping[str, Any], constraints: Mapping[str, Sequence[str]], url: str, *, force: bool = False
) -> None:
    """Write tables with their keys to a PostgreSQL database, in one transaction.

    Args:
        tables: an arrow table for each new table of the database, parents before children.
        constraints: the SQL constraints of each.
        url: ``postgresql://host/db``.
        force: replace tables of these names.

    Raises:
        OutputError: if a table already exists, or cannot be written.
        SettingError: if the driver is not installed.
    """
    psycopg = import_engine("psycopg")
    place = parse_url(add_table(url, next(iter(tables))), query=False)
    with _connect(psycopg, place.address, ", ".join(tables)) as connection:
        for name in reversed(list(tables)):
            _refuse_existing(connection, psycopg, name, force=force)
        if force:
            listed = psycopg.sql.SQL(", ").join(_identifier(psycopg.sql, name) for name in tables)
            with replace_errors("the old tables could not be removed; does another table refer to them?"):
                connection.execute(psycopg.sql.SQL("drop table if exists {}").format(listed))
        for name, table in tables.items():
            sink = _PostgresTable(connection, psycopg, name, table.schema, force=False, constraints=constraints[name])
            sink.write(table)


@contextmanager
def _connect(psycopg: Any, address: str, name: str) -> Iterator[Any]:
    """Connect to a database, and commit what was written at the end."""
    with replace_errors("the database cannot be reached or refuses the login; check host, database, user and password"):
        connection = psycopg.connect(address, application_name="understudy", client_encoding="utf8")
    try:
        yield connection
        with replace_errors(f"table {name} could not be written; did the server stop, or run out of room?"):
            connection.commit()
    finally:
        with suppress(Exception):
            connection.close()  # without a commit nothing of it stays


def describe_table(url: str) -> str:
    """Describe the address without secrets: database and table."""
    parts = urlsplit(url)
    return f"{parts.path.lstrip('/') or 'the database'}, table {dict(parse_qsl(parts.query)).get('table', '')}"


class _PostgresTable:
    def __init__(
        self, connection: Any, psycopg: Any, name: str, columns: Any, *, force: bool, constraints: Sequence[str] = ()
    ) -> None:
        self._connection, self._name = connection, name
        sql = psycopg.sql
        table = _identifier(sql, name)
        fields = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_postgres_type(field.type)))
            for field in columns
        ]
        fields += [sql.SQL(one) for one in constraints]
        with replace_errors(f"table {name} could not be made; may this user create tables there?"):
            if force:
                connection.execute(sql.SQL("drop table if exists {}").format(table))
            connection.execute(sql.SQL("create table {} ({})").format(table, sql.SQL(", ").join(fields)))
        self._copy = sql.SQL("copy {} from stdin (format csv)").format(table)

    def write(self, table: Any) -> None:
        from pyarrow import csv

        text = io.BytesIO()
        csv.write_csv(_to_csv_types(table), text, csv.WriteOptions(include_header=False))
        with (
            replace_errors(f"table {self._name} could not be filled; did the server stop, or run out of room?"),
            self._connection.cursor().copy(self._copy) as copy,
        ):
            copy.write(text.getbuffer())

    def close(self) -> None:
        """Do nothing, because `open_table` commits."""


def _refuse_existing(connection: Any, psycopg: Any, name: str, *, force: bool) -> None:
    words = f"the name {name!r} cannot be looked up; write it as NAME or SCHEMA.NAME"
    with replace_errors(words):
        quoted = _identifier(psycopg.sql, name).as_string(connection)
        taken = connection.execute("select to_regclass(%s)", (quoted,)).fetchone()[0]
    if taken is not None and not force:
        raise OutputError(f"table {name} already exists; choose another name or add --force")


def _identifier(sql: Any, name: str) -> Any:
    return sql.Identifier(*name.split("."))


def _postgres_type(kind: Any) -> str:
    import pyarrow as pa

    names = {
        **dict.fromkeys((pa.int8(), pa.int16(), pa.uint8()), "smallint"),
        **dict.fromkeys((pa.int32(), pa.uint16()), "integer"),
        **dict.fromkeys((pa.int64(), pa.uint32()), "bigint"),
        pa.uint64(): "numeric(20)",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.bool_(): "boolean",
        pa.date32(): "date",
        pa.time64("us"): "time",
    }
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    return "interval" if pa.types.is_duration(kind) else names.get(kind, "text")


def _to_csv_types(table: Any) -> Any:
    """Convert columns to types that CSV can write: durations to text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, field in enumerate(table.schema):
        if pa.types.is_duration(field.type):
            length = table[index].cast(pa.duration("us")).cast(pa.int64()).cast(pa.string())
            table = table.set_column(index, field.name, pc.binary_join_element_wise(length, "microseconds", " "))
        elif pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table[index].cast(field.type.value_type))
    return table
