"""How PostgreSQL writes what engines write differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from understudy.source.sql.grammar import Cell


class PostgresGrammar:
    """How PostgreSQL writes it.

    Args:
        readable: the function that every text passes which may hold what has no sign in Unicode; none in a database
            that is written in Unicode itself.
    """

    words = "text"

    def __init__(self, readable: str = "") -> None:
        self._readable = readable

    def ordered(self, cell: Cell) -> str:
        """Floating point numbers of both widths in the wider one."""
        return f"{cell.sql}::float8" if str(cell.kind) == "double" else cell.sql

    def literal(self, start: float, kind: Any) -> str:
        """A constant of the column's own type, so that an index or a fast comparison can be used."""
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

    def is_null(self, cell: Cell) -> str:
        """Null, or NaN where the type has it."""
        numeric = cell.own in ("float4", "float8", "numeric")
        return f"({cell.sql} is null or {cell.sql} = 'NaN')" if numeric else f"{cell.sql} is null"

    def text(self, cell: Cell) -> str:
        """The text that arrow would write, compared byte by byte."""
        plain = f"({self.ordered(cell)})::text"
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

    def unit(self, cell: Cell) -> str:
        """Canonical text by type; blanks around text are dropped, and nothing left is no unit."""
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
        """By PostgreSQL's own regular expressions."""
        return f"{text} ~ '{pattern}'"

    def sha256(self, text: str) -> str:
        """Needs PostgreSQL 11."""
        return f"encode(sha256(convert_to({text}, 'UTF8')), 'hex') collate \"C\""

    def counting(self, cells: Sequence[str], table: str) -> str:
        """One hash table after the other: measured to be as fast as GROUPING SETS, and it fits in any `work_mem`."""
        counts = (
            f"select {place} as clique, {cell} as cell, count(*) as n from {table} group by 2"  # noqa: S608
            for place, cell in enumerate(cells)
        )
        return " union all ".join(counts)


def readable(name: str) -> str:
    """A function that gives a text back, or, of one that has no form in Unicode, its bytes as PostgreSQL writes them.

    Single-byte encodings leave some bytes without a sign, and wide ones have signs that Unicode has not; a database
    takes both. One such cell would end every statement that reads it.
    """
    return f"""
      create function {name}(given text) returns text language plpgsql immutable strict as $$
      begin
        if given ~ '^[\\x01-\\x7f]*$' then  -- a block that catches errors takes ten times as long to enter
          return given;
        end if;
        begin
          perform convert_to(given, 'UTF8');
          return given;
        exception when untranslatable_character or character_not_in_repertoire then
          return '\\x' || encode(convert_to(given, getdatabaseencoding()), 'hex');
        end;
      end $$"""


def _utc(cell: Cell) -> str:
    return f"({cell.sql} at time zone 'UTC')" if cell.own == "timestamptz" else cell.sql


def _seconds(x: str) -> str:
    """A length of time in seconds, as arrow's are read; one of months has none, and is written as it is."""
    months = f"extract(year from {x}) = 0 and extract(month from {x}) = 0"
    return f"case when {months} then trim_scale(extract(epoch from {x})::numeric)::text else {x}::text end"


def _float_unit(x: str) -> str:
    """Whole numbers without decimals; beyond 2**53 as PostgreSQL writes them."""
    whole = f"{x} = trunc({x}) and abs({x}) < 9007199254740992"
    named = f"case {x}::text when 'Infinity' then 'inf' when '-Infinity' then '-inf' else {x}::text end"
    return f"case when {whole} then ({x}::bigint)::text else {named} end"


def _moment_unit(x: str) -> str:
    written = f"to_char({x}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
    return f"regexp_replace(regexp_replace({written}, '[.]000000$', ''), 'T00:00:00$', '')"
