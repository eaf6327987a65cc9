"""How Spark writes what engines write differently."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from understudy.source.sql.grammar import Cell

_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"


class SparkGrammar:
    """How Spark writes it. Nothing depends on the session's time zone, collation or ANSI setting."""

    words = "string"

    def ordered(self, cell: Cell) -> str:
        """Days and microseconds for times, so that no literal is read in the session's zone."""
        name = str(cell.kind)
        if name in ("int64", "double"):
            return f"cast({cell.sql} as {'bigint' if name == 'int64' else 'double'})"
        if name.startswith("date"):
            return f"unix_date({cell.sql})"
        if name.startswith("timestamp"):
            return f"unix_micros({cell.sql})" if cell.kind.tz else f"timestampdiff(microsecond, {_EPOCH}, {cell.sql})"
        return cell.sql

    def literal(self, start: float, kind: Any) -> str:
        """A constant; Spark folds the cast."""
        name = str(kind)
        if name == "double":
            return f"cast('{start!r}' as double)"
        if name.startswith("decimal"):
            return f"cast('{Decimal(int(start)).scaleb(-kind.scale):f}' as decimal({kind.precision}, {kind.scale}))"
        return f"cast('{int(start)}' as bigint)"

    def is_null(self, cell: Cell) -> str:
        """Null, or NaN where the type has it."""
        return f"({cell.sql} is null or isnan({cell.sql}))" if str(cell.kind) == "double" else f"{cell.sql} is null"

    def text(self, cell: Cell) -> str:
        """The text that arrow would write, compared byte by byte.

        **Privacy.** Spark holds whatever bytes a file calls text. Those that are none have one mark here as in Python:
        else two texts that Spark tells apart would come back as one, and a join would count rows twice.
        """
        plain = f"cast({self.ordered(cell) if str(cell.kind) == 'double' else cell.sql} as string)"
        if str(cell.kind).startswith("timestamp"):
            zone = " || 'Z'" if cell.kind.tz else ""
            plain = f"{_moment(cell)}{zone}"
        elif cell.own == "binary":
            plain = f"lower(hex({cell.sql}))"
        elif cell.own == "decimal" and cell.kind is None:
            plain = _short(plain)
        elif cell.own == "daytimeinterval":
            plain = _seconds(cell.sql)
        elif cell.kind is None:
            plain = f"make_valid_utf8({plain})"
        return f"collate(case when {self.is_null(cell)} then null else {plain} end, 'UTF8_BINARY')"

    def unit(self, cell: Cell) -> str:
        """Canonical text by type; blanks around text are dropped, and nothing left is no unit."""
        text, x = self.text(cell), self.ordered(cell)
        if str(cell.kind) == "double":
            whole = f"{x} = rint({x}) and abs({x}) < 9007199254740992"  # floor makes a bigint, which may overflow
            named = f"case {text} when 'Infinity' then 'inf' when '-Infinity' then '-inf' else {text} end"
            digits = f"cast(try_cast({x} as bigint) as string)"
            text = f"case when isnan({x}) then null when {whole} then {digits} else {named} end"
        elif cell.own == "decimal":
            text = _short(text)
        elif str(cell.kind).startswith("timestamp"):
            text = f"regexp_replace(regexp_replace({text}, '([.]000000)?Z?$', ''), ' 00:00:00$', '')"
            text = f"replace({text}, ' ', 'T')"
        elif str(cell.kind) == "bool":
            text = f"cast(cast({x} as int) as string)"
        return f"nullif(trim(both ' ' from {text}), '')"

    def matches(self, text: str, pattern: str) -> str:
        """By Java's regular expressions."""
        return f"{text} rlike '{pattern}'"

    def sha256(self, text: str) -> str:
        """Spark's digests are lowercase hexadecimal text."""
        return f"sha2({text}, 256)"

    def counting(self, cells: Sequence[str], table: str) -> str:
        """By `stack`: one scan; every executor counts its own part before anything is exchanged."""
        listed = ", ".join(f"{place}, {cell}" for place, cell in enumerate(cells))
        stacked = f"select stack({len(cells)}, {listed}) as (clique, cell) from {table}"  # noqa: S608
        return f"select clique, cell, count(*) as n from ({stacked}) group by clique, cell"  # noqa: S608


def _short(text: str) -> str:
    """A decimal without zeros at its end."""
    return f"case when instr({text}, '.') > 0 then regexp_replace({text}, '[.]?0+$', '') else {text} end"


def _seconds(x: str) -> str:
    """A length of time in seconds, as arrow's are read; in decimals, which hold the longest."""
    x = f"cast({x} as interval day to second)"  # one of hours alone has no days to ask for
    days, hours, minutes = (f"cast(extract({unit} from {x}) as decimal(20, 0))" for unit in ("day", "hour", "minute"))
    seconds = f"{days} * 86400 + {hours} * 3600 + {minutes} * 60 + extract(second from {x})"
    return _short(f"cast({seconds} as string)")


def _moment(cell: Cell) -> str:
    """A moment with six digits of a second, in UTC where it has a zone.

    Not by `date_format` or `to_utc_timestamp`: they go through the session's zone, in which an hour of spring does not
    exist, and overflow at the far ends of time.
    """
    plain = f"timestampadd(microsecond, unix_micros({cell.sql}), {_EPOCH})" if cell.kind.tz else cell.sql
    text = f"cast({plain} as string)"
    return f"(split_part({text}, '.', 1) || '.' || rpad(split_part({text}, '.', 2), 6, '0'))"
