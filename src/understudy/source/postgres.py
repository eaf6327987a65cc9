"""PostgreSQL: one snapshot for the whole run, temporary tables for codes; only counts leave the database.

A first connection opens a read-only transaction, exports its snapshot and holds it. Each coding has its own connection:
temporary tables are created there, then a read-only transaction imports the same snapshot and fills them.
"""

from __future__ import annotations

import re
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from understudy.errors import InputError
from understudy.schema import Schema
from understudy.source.duckdb import quote_name
from understudy.source.engine import CountedCells, EngineColumn, EngineSource, Grammar, Lookup
from understudy.source.errors import explain_errors, import_engine
from understudy.source.place import parse_url, strip_query


class PostgresGrammar:
    """The SQL of PostgreSQL.

    Args:
        readable: the function applied to texts that may have no form in Unicode; empty for a Unicode database.
    """

    words = "text"

    def __init__(self, readable: str = "") -> None:
        self._readable = readable

    def comparable(self, cell: EngineColumn) -> str:
        """Return the cell as it is compared: floating point numbers of both widths in the wider one."""
        return f"{cell.sql}::float8" if str(cell.kind) == "double" else cell.sql

    def literal(self, start: float, kind: Any) -> str:
        """Return a constant of the column's own type, so that indexes and fast comparisons can be used."""
        name = str(kind)
        if name == "double":
            return f"'{start!r}'::float8"
        if name.startswith("decimal"):
            return f"'{int(start)}e-{kind.scale}'::numeric"
        if name.startswith("date"):
            return f"date '{np.datetime64(int(start), 'D')}'"
        if name.startswith("timestamp"):
            moment = str(np.datetime64(int(start), "us")).replace("T", " ")
            return f"timestamptz '{moment}+00'" if kind.tz else f"timestamp '{moment}'"
        return f"'{int(start)}'::bigint"

    def is_null(self, cell: EngineColumn) -> str:
        """Return a test for null, or NaN where the type has it."""
        numeric = cell.own in ("float4", "float8", "numeric")
        return f"({cell.sql} is null or {cell.sql} = 'NaN')" if numeric else f"{cell.sql} is null"

    def text(self, cell: EngineColumn) -> str:
        """Return the text that arrow would write, compared byte by byte."""
        plain = f"({self.comparable(cell)})::text"
        if cell.own in ("timestamp", "timestamptz"):
            zone = "Z" if cell.own == "timestamptz" else ""
            plain = f"to_char({_utc(cell)}, 'YYYY-MM-DD HH24:MI:SS.US{zone}')"
        elif cell.own == "time":
            plain = f"regexp_replace(to_char({cell.sql}, 'HH24:MI:SS.US'), '[.]000000$', '')"
        elif cell.own == "numeric" and cell.kind is None:
            plain = f"trim_scale({cell.sql})::text"
        elif cell.own == "interval":
            plain = _seconds(cell.sql)
        elif cell.kind is None:
            plain = f"{self._readable}({plain})"
        return f'(case when {self.is_null(cell)} then null else {plain} end) collate "C"'

    def unit(self, cell: EngineColumn) -> str:
        """Return canonical text by type without surrounding blanks; an empty text is not a unit."""
        x, null = cell.sql, self.is_null(cell)
        written = {
            "float4": _float_unit(f"({x}::float8)"),
            "float8": _float_unit(x),
            "numeric": f"case when {x}::text like '%nfinity' then lower({x}::text) else trim_scale({x})::text end",
            "bytea": f"encode({x}, 'hex')",
            "bool": f"({x}::int)::text",
            "timestamp": _moment_unit(_utc(cell)),
            "timestamptz": _moment_unit(_utc(cell)),
        }.get(cell.own, f"{self._readable}({x}::text)")
        return f"nullif(btrim(case when {null} then null else {written} end, ' '), '') collate \"C\""

    def matches(self, text: str, pattern: str) -> str:
        """Return a match of PostgreSQL's regular expressions."""
        return f"{text} ~ '{pattern}'"

    def sha256(self, text: str) -> str:
        """Return a digest in lowercase hexadecimal; needs PostgreSQL 11."""
        return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex') collate \"C\""

    def counting_statement(self, cells: Sequence[str], table: str, total: str = "count(*)") -> str:
        """Return one count after the other: measured to be as fast as GROUPING SETS, and each fits in `work_mem`."""
        counts = (
            f"select {place} as clique, {cell} as cell, {total} as n from {table} group by 2"  # noqa: S608
            for place, cell in enumerate(cells)
        )
        return " union all ".join(counts)


def readable_function(name: str) -> str:
    """Return a function that passes text through, or returns the bytes of a text that has no form in Unicode.

    Single-byte encodings have undefined bytes, and some wide encodings have characters that Unicode lacks; a database
    accepts both. One such cell would end every statement that reads it.
    """
    return f"""
      create function {name}(given text) returns text language plpgsql immutable strict as $$
      begin
        if given ~ '^[\\x01-\\x7f]*$' then  -- a block that catches errors is ten times slower
          return given;
        end if;
        begin
          perform convert_to(given, 'UTF8');
          return given;
        exception when untranslatable_character or character_not_in_repertoire then
          return '\\x' || encode(convert_to(given, getdatabaseencoding()), 'hex');
        end;
      end $$"""


def _utc(cell: EngineColumn) -> str:
    return f"({cell.sql} at time zone 'UTC')" if cell.own == "timestamptz" else cell.sql


def _seconds(x: str) -> str:
    """Return a duration in seconds, as arrow's are read.

    A duration with months has no fixed length and is written as it is.
    """
    months = f"extract(year from {x}) = 0 and extract(month from {x}) = 0"
    return f"case when {months} then trim_scale(extract(epoch from {x})::numeric)::text else {x}::text end"


def _float_unit(x: str) -> str:
    """Return whole numbers without decimals; beyond 2**53 as PostgreSQL writes them."""
    whole = f"{x} = trunc({x}) and abs({x}) < 9007199254740992"
    named = f"case {x}::text when 'Infinity' then 'inf' when '-Infinity' then '-inf' else {x}::text end"
    return f"case when {whole} then ({x}::bigint)::text else {named} end"


def _moment_unit(x: str) -> str:
    written = f"to_char({x}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
    return f"regexp_replace(regexp_replace({written}, '[.]000000$', ''), 'T00:00:00$', '')"


# -- Snapshots and sessions ------------------------------------------------------------------------------------------


_STEP_TEXTS = 50_000
_FAILED = "the database could not be counted: did it stop, or run out of room for temporary tables?"
_TEMP = "the database refuses a temporary table; ask for `GRANT TEMPORARY ON DATABASE`, or connect to a primary server"


class PostgresSnapshot:
    """A table, view or query of a PostgreSQL database, as it was when this object was created.

    Args:
        address: the address to connect to; missing parts (user, password, host) come from the environment,
            ``~/.pgpass`` or a service file, as for every PostgreSQL program.
        rows: the rows as an SQL expression in parentheses.

    **Privacy.** The address is never shown, and the engine's messages are replaced.

    Raises:
        InputError: if there is no such database or table.
        SettingError: if the driver is not installed.
    """

    def __init__(self, address: str, rows: str) -> None:
        self._address, self._rows = address, rows
        self._holder = _connect(address)
        self._finish = weakref.finalize(self, _disconnect, self._holder)
        self._sessions: weakref.WeakSet[_PostgresSession] = weakref.WeakSet()
        with explain_errors(_FAILED):
            _begin_snapshot(self._holder)
            self._id = self._holder.execute("select pg_export_snapshot()").fetchone()[0]
        with explain_errors("the database has no such table, or the query is wrong; try it with psql"):
            self.cells = _read_cells(self._holder, self._rows)

    def fetch(self, names: Sequence[str]) -> pa.Table:
        """Fetch rows as text, into memory.

        **Privacy.** Rows leave the database: for drafts and evaluation, never for synthesis.
        """
        listed = ", ".join(f"{quote_name(name)}::text" for name in names)
        with explain_errors(_FAILED):
            rows = self._holder.execute(f"select {listed} from {self._rows} as read").fetchall()  # noqa: S608
        return pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(names)})

    @classmethod
    def of_url(cls, url: str, query: str | None) -> PostgresSnapshot:
        """Open the table that a URL names (``postgresql://host/db?table=people``), or a query.

        Raises:
            InputError: if there is no such database or table.
            SettingError: if the URL does not say what to read.
        """
        place = parse_url(url, query=query is not None)
        if query is not None:
            return cls(place.address, f"({strip_query(query)}\n)")
        return cls(place.address, f"(select * from {'.'.join(map(quote_name, (place.table or '').split('.')))})")  # noqa: S608

    def source(self, schema: Schema, *, key: bytes | None = None) -> EngineSource:
        """Return the rows encoded by a schema, in temporary tables of their own session."""
        session = _PostgresSession(_connect(self._address), self._id, self._rows, self.cells, self)
        self._sessions.add(session)
        try:
            return EngineSource(session, schema, key=key)
        except BaseException:
            session.drop()
            raise

    def close(self) -> None:
        """Release the snapshot, and all codings of it."""
        for session in self._sessions:
            session.drop()
        self._finish()


class _PostgresSession:
    """One coding in one connection."""

    def __init__(
        self, connection: Any, snapshot: str | None, rows: str, cells: list[tuple[str, EngineColumn]], owner: Any
    ) -> None:
        self._connection, self._snapshot, self._owner = connection, snapshot, owner
        self.rows, self.cells = rows, cells
        self.drop = weakref.finalize(self, _disconnect, connection)
        mark = secrets.token_hex(4)
        self.lookup, self.coded, self.bounded, self._keys = (
            f"pg_temp.understudy_{name}_{mark}" for name in ("lookup", "coded", "bounded", "key")
        )
        self.key = f"(select key from {self._keys})"  # noqa: S608
        encoding = connection.info.parameter_status("server_encoding")
        self.any_text = encoding == "UTF8"
        self._readable = "" if encoding in _READABLE else f"pg_temp.understudy_readable_{mark}"
        self.grammar: Grammar = PostgresGrammar(self._readable)

    def begin(self, columns: dict[str, str], key: bytes) -> None:
        types = {name: "integer" if kind == "code" else _WORDS for name, kind in columns.items()}
        unbounded = {name: kind for name, kind in types.items() if name != "unit"}
        self.create({self.coded: types, self.bounded: unbounded})
        self.start(key)

    def create(self, tables: Mapping[str, Mapping[str, str]]) -> None:
        """Create the lookup table and others, before the snapshot: it is read-only."""
        own = {
            self.lookup: {"place": "integer", "v": _WORDS, "p0": "integer", "p1": "integer", "w": _WORDS},
            self._keys: {"key": _WORDS},
        }
        with explain_errors(_TEMP):
            for table, kinds in (own | dict(tables)).items():
                listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
                self._connection.execute(f"create temp table {table.removeprefix('pg_temp.')} ({listed})")
            if self._readable:
                self._connection.execute(readable_function(self._readable))

    def start(self, key: bytes, *, begin: bool = True) -> None:
        """Begin the snapshot, and write the key where statements find it."""
        with explain_errors(_FAILED):
            if begin:
                _begin_snapshot(self._connection, self._snapshot)
            # Copied, not a parameter: copied data does not appear in statement logs.
            with self._connection.cursor().copy(f"copy {self._keys} from stdin") as copy:
                copy.write_row((key.hex(),))

    def distinct(self, statement: str) -> Iterator[Any]:
        with explain_errors(_FAILED), self._connection.cursor("understudy_texts") as cursor:
            cursor.execute(statement)
            while texts := cursor.fetchmany(_STEP_TEXTS):
                yield pa.array([text for (text,) in texts], pa.string())

    def add(self, lookup: Lookup) -> None:
        parts = [codes.tolist() for codes in lookup.codes] + [[None] * len(lookup.texts)] * (2 - len(lookup.codes))
        words = [None] * len(lookup.texts) if lookup.words is None else lookup.words.to_pylist()
        copying = f"copy {self.lookup} (place, v, p0, p1, w) from stdin"
        with explain_errors(_FAILED), self._connection.cursor().copy(copying) as copy:
            for row in zip(lookup.texts.to_pylist(), *parts, words, strict=True):
                copy.write_row((lookup.column, *row))

    def fill(self, table: str, statement: str) -> None:
        with explain_errors(_FAILED):
            self._connection.execute(f"analyze {self.lookup if table == self.coded else self.coded}")
            self._connection.execute(f"insert into {table} {statement}")

    def count(self, statement: str) -> CountedCells:
        with explain_errors(_FAILED):
            with self._connection.cursor().copy(f"copy ({statement}) to stdout (format csv)") as copy:
                text = b"".join(copy)
            found = (
                np.zeros((0, 3), np.int64)
                if not text
                else np.fromstring(text.strip().replace(b"\n", b","), np.int64, sep=",").reshape(-1, 3)
            )
        return found[:, 0], found[:, 1], found[:, 2]

    def count_texts(self, statement: str) -> dict[str, int]:
        with explain_errors(_FAILED):
            return dict(self._connection.execute(statement).fetchall())

    def close(self) -> None:
        self.drop()
        self._owner.close()


class PostgresTables:
    """Several tables of one PostgreSQL database at one moment, in one session, for linked tables.

    Args:
        urls: the URL of each table; all of one database.

    **Privacy.** The address is never shown, and the engine's messages are replaced.

    Raises:
        InputError: if there is no such database or table, or the tables are in different databases.
        SettingError: if the driver is not installed, or a URL names no table.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        places = {name: parse_url(url, query=False) for name, url in urls.items()}
        if len({place.address for place in places.values()}) > 1:
            raise InputError("linked tables in PostgreSQL must be in one database; give the same address for all")
        self._connection = _connect(next(iter(places.values())).address)
        self.close = weakref.finalize(self, _disconnect, self._connection)
        self.tables: dict[str, _PostgresSession] = {}
        for name, place in places.items():
            rows = f"(select * from {'.'.join(map(quote_name, (place.table or '').split('.')))})"  # noqa: S608
            with explain_errors(f"table {name!r}: the database has no such table; try it with psql"):
                cells = _read_cells(self._connection, rows)
            self.tables[name] = _PostgresSession(self._connection, None, rows, cells, None)
        self._first = next(iter(self.tables.values()))
        self.grammar, self._mark = self._first.grammar, secrets.token_hex(4)

    def name(self, table: str) -> str:
        """Return the name of one of our temporary tables."""
        return f"pg_temp.understudy_{table}_{self._mark}"

    def begin(self, columns: Mapping[str, Mapping[str, str]], key: bytes) -> None:
        """Create the temporary tables, then begin the snapshot, which is read-only."""
        types = {"code": "integer", "text": _WORDS, "weight": "bigint"}
        for session in self.tables.values():
            session.create({})
        for table, kinds in columns.items():
            named = {name: types[kind] for name, kind in kinds.items()}
            listed = ", ".join(f"{name} {kind}" for name, kind in named.items())
            with explain_errors(_TEMP):
                self._connection.execute(f"create temp table {self.name(table).removeprefix('pg_temp.')} ({listed})")
        for number, session in enumerate(self.tables.values()):
            session.start(key, begin=number == 0)

    def fill(self, table: str, statement: str) -> None:
        """Fill a table; the planner learns its size."""
        with explain_errors(_FAILED):
            self._connection.execute(f"insert into {table} {statement}")
            self._connection.execute(f"analyze {table}")

    def count(self, statement: str) -> CountedCells:
        """Return the three columns of a counting statement."""
        return self._first.count(statement)


_WORDS = 'text collate "C"'
_DECIMAL_DIGITS = 18
_READABLE = ("UTF8", "LATIN1", "LATIN9")
"""Common encodings in which every text has a form in Unicode."""


def _disconnect(connection: Any) -> None:
    with suppress(Exception):
        connection.close()


_REFUSALS = {
    r"password|authentication|role .* does not exist|no pg_hba": "the database refuses the login; check user and "
    "password (they come from the URL, PGUSER, PGPASSWORD, ~/.pgpass or a service file)",
    r"database .* does not exist": "the server answers, but has no such database; check the name after the host "
    "(or PGDATABASE)",
    r"translate host name|resolve|not known|name resolution": "there is no server of that name; check the host "
    "(or PGHOST)",
    r"refused|timed? ?out|unreachable|no route|no such file": "no database server answers there; check host and port "
    "(or PGHOST, PGPORT), and that the server is running",
}
"""What is wrong with a connection, by words of the driver's message, which names the user and is not shown."""


def explain_refusal(message: str) -> str:
    """Say which part of an address to check, from the driver's message about a failed connection.

    >>> explain_refusal('FATAL: password authentication failed for user "ann"')[:30]
    'the database refuses the login'
    """
    for words, meaning in _REFUSALS.items():
        if re.search(words, message, re.IGNORECASE):
            return meaning
    return (
        "the database cannot be reached or refuses the login; check host, port, database, user and password (they come "
        "from the URL, PGHOST, PGUSER, PGPASSWORD, ~/.pgpass or a service file)"
    )


def _connect(address: str) -> Any:
    """Connect in autocommit mode: transactions are begun explicitly."""
    psycopg = import_engine("psycopg")
    try:
        made = psycopg.connect(address, autocommit=True, application_name="understudy", client_encoding="utf8")
    except psycopg.Error as error:
        raise InputError(explain_refusal(str(error))) from None
    if made.info.parameter_status("server_encoding") == "SQL_ASCII":
        made.close()
        raise InputError(
            "the database's encoding is SQL_ASCII, which does not define characters; copy the data to a UTF8 database"
        )
    with explain_errors(_FAILED):
        made.execute("set timezone = 'UTC'; set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'")
        made.execute("set extra_float_digits = 1")
    return made


def _begin_snapshot(connection: Any, snapshot: str | None = None) -> None:
    connection.execute("begin isolation level repeatable read read only")
    if snapshot is not None:
        connection.execute(f"set transaction snapshot '{snapshot}'")


def _read_cells(connection: Any, rows: str) -> list[tuple[str, EngineColumn]]:
    found = connection.execute(f"select * from {rows} t limit 0").description  # noqa: S608
    names = dict(connection.execute("select oid, typname from pg_type").fetchall())
    return [(column.name, _cell(column, names.get(column.type_code, ""))) for column in found]


def _cell(column: Any, own: str) -> EngineColumn:
    kinds = {
        **dict.fromkeys(("int2", "int4", "int8"), pa.int64()),
        **dict.fromkeys(("float4", "float8"), pa.float64()),
        "bool": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
    }
    kind = kinds.get(own)
    if own == "numeric" and column.precision and column.precision <= _DECIMAL_DIGITS and column.scale >= 0:
        kind = pa.decimal128(column.precision, column.scale)
    return EngineColumn(f"t.{quote_name(column.name)}", kind, own)
