"""Spark: the columns that are needed are fixed once on the cluster, coded there, and counted there.

A checkpoint cuts what Spark would otherwise compute again from the table, which may have changed by then: a lost
executor ends the run instead of mixing two states of the table.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from understudy.schema import Schema
from understudy.source.memory import check_names
from understudy.source.sql.engine import Counted, EngineSource, Lookup
from understudy.source.sql.errors import our_words
from understudy.source.sql.grammar import Cell, Grammar
from understudy.source.sql.spark_grammar import SparkGrammar

_STEP_TEXTS = 50_000
_FAILED = "Spark could not count the table: was an executor lost, or is there no room on its disks?"
_DECIMAL_DIGITS = 18


class SparkSnapshot:
    """A Spark table as it was when this was made.

    Args:
        frame: a Spark data frame.
        schema: names every column that will be read; no other is touched.

    Raises:
        SchemaError: when a column is missing, or two have one name.
        InputError: when Spark cannot read the table, in our words.
    """

    def __init__(self, frame: Any, schema: Schema) -> None:
        check_names(frame.columns, schema)
        self._spark = frame.sparkSession
        names = {name: f"r{place}" for place, name in enumerate(schema.needs)}
        self._cells = [(name, _cell(frame.schema[name].dataType, short)) for name, short in names.items()]
        with our_words("Spark cannot read the table; try `table.count()` in the same session"):
            chosen = frame.select(
                *[frame[f"`{name.replace('`', '``')}`"].alias(short) for name, short in names.items()]
            )
            self._rows = chosen.localCheckpoint(eager=True)
        self._sessions: weakref.WeakSet[_Session] = weakref.WeakSet()

    def coded(self, schema: Schema, *, key: bytes | None = None) -> EngineSource:
        """The rows coded by a schema, in temporary views of the session."""
        session = _Session(self._spark, self._rows, self._cells)
        self._sessions.add(session)
        try:
            return EngineSource(session, schema, key=key)
        except BaseException:
            session.close()
            raise

    def close(self) -> None:
        """Let the checkpoint go, and all that was coded from it; Spark removes what nothing refers to any more."""
        for session in self._sessions:
            session.close()
        self._rows = None


class _Session:
    """One coding in the user's Spark session."""

    grammar: Grammar = SparkGrammar()
    any_text = True

    def __init__(self, spark: Any, rows: Any, cells: list[tuple[str, Cell]]) -> None:
        self._spark, self._cells = spark, cells
        mark = secrets.token_hex(8)
        views = [f"understudy_{name}_{mark}" for name in ("rows", "lookup", "coded", "bounded", "key")]
        self.rows, self.lookup, self.coded, self.bounded, self._keys = views
        self.key = f"(select key from {self._keys})"  # noqa: S608
        self._finish = weakref.finalize(self, _drop, spark, views)
        self._lookups: list[Any] = []
        rows.createOrReplaceTempView(self.rows)

    def cells(self) -> list[tuple[str, Cell]]:
        return self._cells

    def begin(self, columns: dict[str, str], key: bytes) -> None:
        import pyarrow as pa

        with our_words(_FAILED):
            # A view, not a literal: a plan is shown in Spark's pages and logs, the content of a local table is not.
            self._spark.createDataFrame(pa.table({"key": [key.hex()]})).createOrReplaceTempView(self._keys)
        none = pa.array([], pa.string())
        self.add(Lookup(-1, none, [], none))

    def distinct(self, statement: str) -> Iterator[Any]:
        import pyarrow as pa

        with our_words(_FAILED):
            rows = self._spark.sql(statement).toLocalIterator()
            while texts := [row[0] for row in islice(rows, _STEP_TEXTS)]:
                yield pa.array(texts, pa.string())

    def add(self, lookup: Lookup) -> None:
        import pyarrow as pa

        rows = len(lookup.texts)
        parts = [pa.array(codes, pa.int32()) for codes in lookup.codes]
        parts += [pa.nulls(rows, pa.int32())] * (2 - len(parts))
        words = pa.nulls(rows, pa.string()) if lookup.words is None else lookup.words
        place = pa.array([lookup.column] * rows, pa.int32())
        columns = {"place": place, "v": lookup.texts, "p0": parts[0], "p1": parts[1], "w": words}
        with our_words(_FAILED):
            self._lookups.append(self._spark.createDataFrame(pa.table(columns)))
            together = self._lookups[0]
            for more in self._lookups[1:]:
                together = together.unionAll(more)
            together.createOrReplaceTempView(self.lookup)

    def fill(self, table: str, statement: str) -> None:
        with our_words(_FAILED):
            self._spark.sql(statement).localCheckpoint(eager=True).createOrReplaceTempView(table)

    def counted(self, statement: str) -> Counted:
        with our_words(_FAILED):
            found = self._spark.sql(statement).toArrow()
            return tuple(column.to_numpy().astype("int64") for column in found.columns)

    def texts(self, statement: str) -> dict[str, int]:
        with our_words(_FAILED):
            return {row[0]: row[1] for row in self._spark.sql(statement).collect()}

    def close(self) -> None:
        self._lookups = []
        self._finish()


def _drop(spark: Any, views: list[str]) -> None:
    for view in views:
        with suppress(Exception):
            spark.catalog.dropTempView(view)


def _cell(kind: Any, name: str) -> Cell:
    import pyarrow as pa

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
    return Cell(f"t.{name}", arrow, own)
