"""Spark: the columns that are needed are fixed once on the cluster, then encoded and counted there.

A checkpoint prevents Spark from recomputing rows from the table, which may have changed by then: a lost executor ends
the run instead of mixing two states of the table.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa

from understudy.schema import Schema
from understudy.schema.frames import check_names
from understudy.source.engine import CountedCells, EngineColumn, EngineSource, Grammar, Lookup
from understudy.source.errors import explain_errors

_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"


class SparkGrammar:
    """The SQL of Spark. Nothing depends on the session's time zone, collation or ANSI setting."""

    words = "string"

    def comparable(self, cell: EngineColumn) -> str:
        """Write times as days and microseconds, so that no literal depends on the session's zone."""
        name = str(cell.kind)
        if name in ("int64", "double"):
            return f"cast({cell.sql} as {'bigint' if name == 'int64' else 'double'})"
        if name.startswith("date"):
            return f"unix_date({cell.sql})"
        if name.startswith("timestamp"):
            return f"unix_micros({cell.sql})" if cell.kind.tz else f"timestampdiff(microsecond, {_EPOCH}, {cell.sql})"
        return cell.sql

    def literal(self, start: float, kind: Any) -> str:
        """Return a constant; Spark folds the cast."""
        name = str(kind)
        if name == "double":
            return f"cast('{start!r}' as double)"
        if name.startswith("decimal"):
            return f"cast('{Decimal(int(start)).scaleb(-kind.scale):f}' as decimal({kind.precision}, {kind.scale}))"
        return f"cast('{int(start)}' as bigint)"

    def is_null(self, cell: EngineColumn) -> str:
        """Return a test for null, or NaN where the type has it."""
        return f"({cell.sql} is null or isnan({cell.sql}))" if str(cell.kind) == "double" else f"{cell.sql} is null"

    def text(self, cell: EngineColumn) -> str:
        """Return the text that arrow would write, compared byte by byte.

        **Privacy.** Spark accepts any bytes that a file calls text. Invalid bytes get the same mark here as in Python:
        else two texts that Spark distinguishes would come back as one, and a join would count rows twice.
        """
        plain = f"cast({self.comparable(cell) if str(cell.kind) == 'double' else cell.sql} as string)"
        if str(cell.kind).startswith("timestamp"):
            zone = " || 'Z'" if cell.kind.tz else ""
            plain = f"{_moment(cell)}{zone}"
        elif cell.own == "binary":
            plain = f"lower(hex({cell.sql}))"
        elif cell.own == "decimal" and cell.kind is None:
            plain = _strip_zeros(plain)
        elif cell.own == "daytimeinterval":
            plain = _seconds(cell.sql)
        elif cell.kind is None:
            plain = f"make_valid_utf8({plain})"
        return f"collate(case when {self.is_null(cell)} then null else {plain} end, 'UTF8_BINARY')"

    def unit(self, cell: EngineColumn) -> str:
        """Return canonical text by type without surrounding blanks; an empty text is not a unit."""
        text, x = self.text(cell), self.comparable(cell)
        if str(cell.kind) == "double":
            whole = f"{x} = rint({x}) and abs({x}) < 9007199254740992"  # floor returns a bigint, which may overflow
            named = f"case {text} when 'Infinity' then 'inf' when '-Infinity' then '-inf' else {text} end"
            digits = f"cast(try_cast({x} as bigint) as string)"
            text = f"case when isnan({x}) then null when {whole} then {digits} else {named} end"
        elif cell.own == "decimal":
            text = _strip_zeros(text)
        elif str(cell.kind).startswith("timestamp"):
            text = f"regexp_replace(regexp_replace({text}, '([.]000000)?Z?$', ''), ' 00:00:00$', '')"
            text = f"replace({text}, ' ', 'T')"
        elif str(cell.kind) == "bool":
            text = f"cast(cast({x} as int) as string)"
        return f"nullif(trim(both ' ' from {text}), '')"

    def matches(self, text: str, pattern: str) -> str:
        """Return a match of Java's regular expressions."""
        return f"{text} rlike '{pattern}'"

    def sha256(self, text: str) -> str:
        """Return a digest in lowercase hexadecimal."""
        return f"sha2({text}, 256)"

    def counting_statement(self, cells: Sequence[str], table: str, total: str = "count(*)") -> str:
        """Return one scan with `stack`: every executor counts its own part before anything is exchanged."""
        listed = ", ".join(f"{place}, {cell}" for place, cell in enumerate(cells))
        others = "" if total == "count(*)" else "*, "
        stacked = f"select {others}stack({len(cells)}, {listed}) as (clique, cell) from {table}"  # noqa: S608
        return f"select clique, cell, {total} as n from ({stacked}) group by clique, cell"  # noqa: S608


def _strip_zeros(text: str) -> str:
    """Return a decimal without trailing zeros."""
    return f"case when instr({text}, '.') > 0 then regexp_replace({text}, '[.]?0+$', '') else {text} end"


def _seconds(x: str) -> str:
    """Return a duration in seconds, as arrow's are read; as a decimal, which can hold the longest."""
    x = f"cast({x} as interval day to second)"  # an interval of hours has no days
    days, hours, minutes = (f"cast(extract({unit} from {x}) as decimal(20, 0))" for unit in ("day", "hour", "minute"))
    seconds = f"{days} * 86400 + {hours} * 3600 + {minutes} * 60 + extract(second from {x})"
    return _strip_zeros(f"cast({seconds} as string)")


def _moment(cell: EngineColumn) -> str:
    """Return a datetime with six digits of a second, in UTC if it has a zone.

    `date_format` and `to_utc_timestamp` are not used: they depend on the session's zone, in which an hour of spring
    does not exist, and overflow at the far ends of time.
    """
    plain = f"timestampadd(microsecond, unix_micros({cell.sql}), {_EPOCH})" if cell.kind.tz else cell.sql
    text = f"cast({plain} as string)"
    return f"(split_part({text}, '.', 1) || '.' || rpad(split_part({text}, '.', 2), 6, '0'))"


# -- Snapshots and sessions ------------------------------------------------------------------------------------------


_STEP_TEXTS = 50_000
_FAILED = "Spark could not count the table: was an executor lost, or is there no room on its disks?"
_DECIMAL_DIGITS = 18


class SparkSnapshot:
    """A Spark table as it was when this object was created.

    Args:
        frame: a Spark data frame.
        schema: names every column that will be read; no other column is touched.

    Raises:
        SchemaError: if a column is missing, or two have one name.
        InputError: if Spark cannot read the table.
    """

    def __init__(self, frame: Any, schema: Schema) -> None:
        check_names(frame.columns, schema.needs)
        self._spark = frame.sparkSession
        names = {name: f"r{place}" for place, name in enumerate(schema.needs)}
        self._cells = [(name, _cell(frame.schema[name].dataType, short)) for name, short in names.items()]
        with explain_errors("Spark cannot read the table; try `table.count()` in the same session"):
            chosen = frame.select(
                *[frame[f"`{name.replace('`', '``')}`"].alias(short) for name, short in names.items()]
            )
            self._rows = chosen.localCheckpoint(eager=True)
        self._sessions: weakref.WeakSet[_CodingSession] = weakref.WeakSet()

    def source(self, schema: Schema, *, key: bytes | None = None) -> EngineSource:
        """Return the rows encoded by a schema, in temporary views of the session."""
        session = self.session()
        try:
            return EngineSource(session, schema, key=key)
        except BaseException:
            session.close()
            raise

    def session(self) -> _CodingSession:
        """Return the rows with temporary views of their own."""
        session = _CodingSession(self._spark, self._rows, self._cells)
        self._sessions.add(session)
        return session

    def close(self) -> None:
        """Release the checkpoint and all codings of it; Spark removes what is no longer referenced."""
        for session in self._sessions:
            session.close()
        self._rows = None


class _CodingSession:
    """One coding in the user's Spark session."""

    grammar: Grammar = SparkGrammar()
    any_text = True

    def __init__(self, spark: Any, rows: Any, cells: list[tuple[str, EngineColumn]]) -> None:
        self._spark, self.cells = spark, cells
        mark = secrets.token_hex(8)
        views = [f"understudy_{name}_{mark}" for name in ("rows", "lookup", "coded", "bounded", "key")]
        self.rows, self.lookup, self.coded, self.bounded, self._keys = views
        self.key = f"(select key from {self._keys})"  # noqa: S608
        self._finish = weakref.finalize(self, _drop, spark, views)
        self._lookups: list[Any] = []
        rows.createOrReplaceTempView(self.rows)

    def begin(self, columns: dict[str, str], key: bytes) -> None:
        with explain_errors(_FAILED):
            # A view, not a literal: Spark shows plans in its pages and logs, but not the content of a local table.
            self._spark.createDataFrame(pa.table({"key": [key.hex()]})).createOrReplaceTempView(self._keys)
        none = pa.array([], pa.string())
        self.add(Lookup(-1, none, [], none))

    def distinct(self, statement: str) -> Iterator[Any]:
        with explain_errors(_FAILED):
            rows = self._spark.sql(statement).toLocalIterator()
            while texts := [row[0] for row in islice(rows, _STEP_TEXTS)]:
                yield pa.array(texts, pa.string())

    def add(self, lookup: Lookup) -> None:
        rows = len(lookup.texts)
        parts = [pa.array(codes, pa.int32()) for codes in lookup.codes]
        parts += [pa.nulls(rows, pa.int32())] * (2 - len(parts))
        words = pa.nulls(rows, pa.string()) if lookup.words is None else lookup.words
        place = pa.array([lookup.column] * rows, pa.int32())
        columns = {"place": place, "v": lookup.texts, "p0": parts[0], "p1": parts[1], "w": words}
        with explain_errors(_FAILED):
            self._lookups.append(self._spark.createDataFrame(pa.table(columns)))
            together = self._lookups[0]
            for more in self._lookups[1:]:
                together = together.unionAll(more)
            together.createOrReplaceTempView(self.lookup)

    def fill(self, table: str, statement: str) -> None:
        with explain_errors(_FAILED):
            self._spark.sql(statement).localCheckpoint(eager=True).createOrReplaceTempView(table)

    def count(self, statement: str) -> CountedCells:
        with explain_errors(_FAILED):
            found = self._spark.sql(statement).toArrow()
            return tuple(column.to_numpy().astype("int64") for column in found.columns)

    def count_texts(self, statement: str) -> dict[str, int]:
        with explain_errors(_FAILED):
            return {row[0]: row[1] for row in self._spark.sql(statement).collect()}

    def close(self) -> None:
        self._lookups = []
        self._finish()


class SparkTables:
    """Several Spark tables at one moment, for linked tables.

    Args:
        frames: the Spark data frames by name; all of one session.
        schemas: name every column that will be read; no other column is touched.

    Raises:
        SchemaError: if a column is missing, or two have one name.
        InputError: if Spark cannot read a table.
    """

    grammar: Grammar = SparkGrammar()

    def __init__(self, frames: Mapping[str, Any], schemas: Mapping[str, Schema]) -> None:
        self._snapshots = {name: SparkSnapshot(frame, schemas[name]) for name, frame in frames.items()}
        self.tables = {name: one.session() for name, one in self._snapshots.items()}
        self._first, self._mark = next(iter(self.tables.values())), secrets.token_hex(8)
        self._spark = next(iter(frames.values())).sparkSession
        self._views: list[str] = []
        self._finish = weakref.finalize(self, _drop, self._spark, self._views)

    def name(self, table: str) -> str:
        """Return the name of one of our temporary views."""
        return f"understudy_{table}_{self._mark}"

    def begin(self, columns: Mapping[str, Mapping[str, str]], key: bytes) -> None:
        """Write the key where statements find it; Spark's views need no declaration."""
        for session in self.tables.values():
            session.begin({}, key)
        self._views += map(self.name, columns)

    def fill(self, table: str, statement: str) -> None:
        """Fill a view and fix its rows."""
        self._first.fill(table, statement)

    def count(self, statement: str) -> CountedCells:
        """Return the three columns of a counting statement."""
        return self._first.count(statement)

    def close(self) -> None:
        """Drop the views and release the checkpoints."""
        self._finish()
        for session in self.tables.values():
            session.close()
        for snapshot in self._snapshots.values():
            snapshot.close()


def _drop(spark: Any, views: list[str]) -> None:
    for view in views:
        with suppress(Exception):
            spark.catalog.dropTempView(view)


def _cell(kind: Any, name: str) -> EngineColumn:
    own = kind.typeName()
    kinds = {
        **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
        **dict.fromkeys(("float", "double"), pa.float64()),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    arrow = kinds.get(own)
    if own == "decimal" and kind.precision <= _DECIMAL_DIGITS:
        arrow = pa.decimal128(kind.precision, kind.scale)
    return EngineColumn(f"t.{name}", arrow, own)
