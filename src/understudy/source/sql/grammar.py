"""The few things that engines write differently, and the statements that all of them run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from understudy.domain import Clique, Domain
from understudy.source.sql.pieces import Steps


@dataclass(frozen=True)
class Cell:
    """A column of the engine's table.

    Attributes:
        sql: its name as the engine writes it.
        kind: the arrow type that its cells are compared in; None where they are only known by their text.
        own: the engine's name for its type.
    """

    sql: str
    kind: Any
    own: str


class Grammar(Protocol):
    """How one engine writes it. Every expression is total: no cell can make it fail.

    Attributes:
        words: the engine's name for the type of text.
    """

    words: str

    def ordered(self, cell: Cell) -> str:
        """A cell as something that compares as its arrow type does."""
        ...

    def literal(self, start: float, kind: Any) -> str:
        """A place on a type's scale, as `ordered` compares it."""
        ...

    def is_null(self, cell: Cell) -> str:
        """Whether a cell is empty or not a number."""
        ...

    def text(self, cell: Cell) -> str:
        """A cell's text as arrow writes it; null where the cell is."""
        ...

    def unit(self, cell: Cell) -> str:
        """The canonical text of a unit (see `unit`), null where a row has none; text but for blanks as it is."""
        ...

    def matches(self, text: str, pattern: str) -> str:
        """Whether a text matches a regular expression without a backslash."""
        ...

    def sha256(self, text: str) -> str:
        """The digest of a text, in hexadecimal, in an order that compares bytes."""
        ...

    def counting(self, cells: Sequence[str], table: str) -> str:
        """A statement that counts the rows of a table by each of these expressions: (which, cell, rows)."""
        ...


def step_code(grammar: Grammar, cell: Cell, steps: Steps) -> str:
    """The code of a typed cell: a search by halves, so a cell is compared log2(steps) times."""
    x = grammar.ordered(cell)

    def half(low: int, high: int) -> str:
        if high - low == 1:
            return str(steps.codes[low])
        middle = (low + high) // 2
        bound = grammar.literal(steps.starts[middle - 1], cell.kind)
        return f"case when {x} < {bound} then {half(low, middle)} else {half(middle, high)} end"

    return f"case when {grammar.is_null(cell)} then {steps.null} else {half(0, len(steps.codes))} end"


def cell_index(clique: Clique, domain: Domain, names: dict[str, str]) -> str:
    """The flat index of a clique's cell, in the order of the clique."""
    index = "cast(0 as bigint)"
    for column in clique:
        index = f"({index} * {domain[column]} + {names[column]})"
    return index


def bounding(
    grammar: Grammar, columns: Sequence[str], texts: Sequence[str], key: str, max_rows: int, table: str
) -> str:
    """The rows of a coded table that count: the statement of ``docs/decisions/contribution-bounding.md``.

    Args:
        grammar: the engine's.
        columns: the names of its columns.
        texts: what stands for each of them in the hash.
        key: an expression for the run's key.
        max_rows: how many rows of a unit are kept.
        table: the coded table, with the unit's text in ``unit``.
    """
    listed = ", ".join(columns)
    codes = " || ',' || ".join(texts)
    digest = grammar.sha256(f"{key} || '|' || unit || '|' || codes || '|' || cast(ordinal as {grammar.words})")
    return f"""
      select {listed} from (
        select *, row_number() over (
          partition by unit order by case when rows_of_unit > {max_rows} then {digest} end) as place
        from (
          select *, {codes} as codes, count(*) over (partition by unit) as rows_of_unit,
            row_number() over (partition by unit, {listed} order by unit) as ordinal
          from {table}
        ) numbered
      ) ranked where place <= {max_rows}"""  # noqa: S608 - names and numbers are ours
