"""Tables that stay in their engine: encoded, limited and counted there; only counts leave it.

Numbers and times are encoded by comparisons (`steps`). Text is encoded by a lookup table that the engine joins. It
contains the declared texts, and the other texts of the table, each once, encoded by the schema's own encoder. So
undeclared texts pass through this process, in pieces, and nothing else of a row does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.schema import Schema
from understudy.schema.column import Coded
from understudy.schema.frames import check_names
from understudy.schema.open import Shape, Words
from understudy.schema.text import PLAIN, Dialect, meanings, shorten_moments
from understudy.source.protocol import SourceBase
from understudy.source.steps import CodingSteps, find_steps
from understudy.source.unit import canonical_units, new_key
from understudy.tabulate import DENSE_CELLS, Counts, SparseCounts, check_cliques
from understudy.tabulate import group_cliques as group_by_size


@dataclass(frozen=True)
class EngineColumn:
    """A column of the engine's table.

    Attributes:
        sql: its name as the engine writes it.
        kind: the arrow type in which its cells are compared; None if they are only known by their text.
        own: the engine's name for its type.
    """

    sql: str
    kind: Any
    own: str


class Grammar(Protocol):
    """How one engine writes expressions. Every expression is total: no cell can make it fail.

    Attributes:
        words: the engine's name for the text type.
    """

    words: str

    def comparable(self, cell: EngineColumn) -> str:
        """Return an expression that compares like the cell's arrow type."""
        ...

    def literal(self, start: float, kind: Any) -> str:
        """Return a constant on a type's scale, as `comparable` compares it."""
        ...

    def is_null(self, cell: EngineColumn) -> str:
        """Return a test whether a cell is empty or NaN."""
        ...

    def text(self, cell: EngineColumn) -> str:
        """Return a cell's text as arrow writes it; null for null."""
        ...

    def unit(self, cell: EngineColumn) -> str:
        """Return the canonical text of a unit (see `unit`), null for rows without one.

        Text only without surrounding blanks.
        """
        ...

    def matches(self, text: str, pattern: str) -> str:
        """Return a test whether a text matches a regular expression without backslashes."""
        ...

    def sha256(self, text: str) -> str:
        """Return the digest of a text, in hexadecimal, ordered by its bytes."""
        ...

    def counting_statement(self, cells: Sequence[str], table: str, total: str = "count(*)") -> str:
        """Return a statement that counts the rows of a table by each of these expressions: (which, cell, rows).

        `total` replaces the number of rows by another sum of whole numbers.
        """
        ...


def step_code(grammar: Grammar, cell: EngineColumn, steps: CodingSteps) -> str:
    """Return the code of a typed cell by binary search, with log2(steps) comparisons."""
    x = grammar.comparable(cell)

    def half(low: int, high: int) -> str:
        if high - low == 1:
            return str(steps.codes[low])
        middle = (low + high) // 2
        bound = grammar.literal(steps.starts[middle - 1], cell.kind)
        return f"case when {x} < {bound} then {half(low, middle)} else {half(middle, high)} end"

    return f"case when {grammar.is_null(cell)} then {steps.null} else {half(0, len(steps.codes))} end"


def cell_index(clique: Clique, domain: Domain, names: dict[str, str]) -> str:
    """Return the flat index of a clique's cell, in the order of the clique."""
    index = "cast(0 as bigint)"
    for column in clique:
        index = f"({index} * {domain[column]} + {names[column]})"
    return index


def bounding_statement(
    grammar: Grammar, columns: Sequence[str], texts: Sequence[str], key: str, max_rows: int, table: str
) -> str:
    """Return the rows of a coded table that count: the statement of ``docs/decisions/contribution-bounding.md``.

    Args:
        grammar: the engine's.
        columns: the names of its columns.
        texts: the expression for each of them in the hash.
        key: an expression for the run's key.
        max_rows: the largest number of rows of a unit.
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


# -- Covers: many marginals from few counts --------------------------------------------------------------------------


_COVER_CELLS = 1 << 17
_GROUP_CLIQUES, _GROUP_CELLS = 256, 1 << 23


def group_cliques(asked: list[Clique], domain: Domain) -> Iterator[list[Clique]]:
    """Group cliques that are counted together: enough of them to share covers, few enough to fit in memory."""
    return group_by_size(asked, domain.cells, most_cells=_GROUP_CELLS, most=_GROUP_CLIQUES)


def find_covers(cliques: list[Clique], domain: Domain, most: int = _COVER_CELLS) -> dict[Clique, Clique]:
    """Return a cover for each clique: the clique itself if it is large, else one that it shares with others.

    Reading rows is expensive in an engine; summing a table of some ten thousand cells is not. So cliques are counted
    together if their union is small: all pairs of 16 columns of 18 codes are sums of about 20 tables of four columns.

    Greedy: extend the first remaining clique by the column that includes most of the others, while the table is small.

    >>> domain = Domain({"a": 2, "b": 2, "c": 2, "d": 9999999})
    >>> sorted(set(find_covers([("b", "a"), ("c", "b"), ("a", "c"), ("a", "d")], domain).values()))
    [('a', 'b', 'c'), ('a', 'd')]
    """
    left = dict.fromkeys(domain.canonical(clique) for clique in cliques)
    found: dict[Clique, Clique] = {}
    while left:
        cover = _grow_cover(set(next(iter(left))), list(map(frozenset, left)), domain, most)
        for clique in [clique for clique in left if cover.issuperset(clique)]:
            found[clique] = domain.canonical(cover)
            del left[clique]
    return {clique: found[domain.canonical(clique)] for clique in cliques}


def _grow_cover(cover: set[str], left: list[frozenset[str]], domain: Domain, most: int) -> set[str]:
    while True:
        gains: dict[str, int] = {}
        for clique in left:
            if len(missing := clique - cover) == 1:
                (column,) = missing
                gains[column] = gains.get(column, 0) + 1
        fitting = {column: gain for column, gain in gains.items() if domain.cells(cover) * domain[column] <= most}
        if not fitting:
            return cover
        cover.add(max(fitting, key=lambda column: fitting[column]))


def sum_cover(table: NDArray[np.int64], cover: Clique, clique: Clique, domain: Domain) -> NDArray[np.int64]:
    """Sum a clique's marginal from its cover's table; flat, with axes in the order of the clique."""
    others = tuple(place for place, column in enumerate(cover) if column not in clique)
    inner = table.reshape(domain.shape(cover)).sum(axis=others)
    kept = [column for column in cover if column in clique]
    return np.ascontiguousarray(inner.transpose([kept.index(column) for column in clique])).reshape(-1)


# -- Sessions and the source -----------------------------------------------------------------------------------------


Cells: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
CountedCells: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Lookup:
    """Texts of one column with their codes, for the engine's lookup table.

    **Privacy.** As private as the rows.
    """

    column: int
    texts: Any
    codes: list[NDArray[np.int32]]
    words: Any = None


class Countable(Protocol):
    """An engine that counts."""

    grammar: Grammar

    def count(self, statement: str) -> CountedCells:
        """Return the three columns of a counting statement."""
        ...


class Texts(Protocol):
    """A user's table in an engine, ``rows``, and a table of texts with their codes, ``lookup``.

    `cells` are the columns of the user's table, by name. `any_text` says whether its tables can hold every text; if
    not, a declared text may have a character that no cell can.
    """

    grammar: Grammar
    cells: list[tuple[str, EngineColumn]]
    any_text: bool
    rows: str
    lookup: str
    key: str

    def distinct(self, statement: str) -> Iterator[Any]:
        """Yield texts as arrow arrays, in pieces."""
        ...

    def add(self, lookup: Lookup) -> None:
        """Add texts to the lookup table."""
        ...


class EngineSession(Texts, Countable, Protocol):
    """One engine at work on one snapshot. Its further tables: ``coded``, ``bounded``."""

    coded: str
    bounded: str

    def begin(self, columns: dict[str, str], key: bytes) -> None:
        """Create the tables; `columns` are those of ``coded`` with "code" or "text" as their type."""
        ...

    def fill(self, table: str, statement: str) -> None:
        """Fill ``coded`` or ``bounded`` from a statement; the snapshot is not needed afterwards."""
        ...

    def count_texts(self, statement: str) -> dict[str, int]:
        """Return the number of rows by text."""
        ...

    def close(self) -> None:
        """Drop the tables and release the engine."""
        ...


class CodedTable(SourceBase):
    """A table of codes in an engine as a `Source`.

    Args:
        session: the engine.
        schema: what is public about the columns.
        names: the engine's name of each column of the domain.
        table: the engine's name of the table.
        total: what is summed for a cell: the number of rows, or a sum of whole numbers.
    """

    __slots__ = ("__names", "__session", "__table", "__total")

    def __init__(
        self, session: Countable, schema: Schema, names: dict[str, str], table: str, *, total: str = "count(*)"
    ) -> None:
        super().__init__(schema)
        self.__session, self.__names, self.__table, self.__total = session, names, table, total

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order requested."""
        return self.__answers(check_cliques(cliques, self.domain))

    def __answers(self, asked: list[Clique]) -> Iterator[tuple[Clique, Counts]]:
        for group in group_cliques(asked, self.domain):
            cover_of = find_covers(group, self.domain)
            tables = self.__count(list(dict.fromkeys(cover_of.values())))
            for clique in group:
                cover, table = cover_of[clique], tables[cover_of[clique]]
                if self.domain.cells(clique) > DENSE_CELLS:
                    yield clique, _to_sparse(table, cover, clique, self.domain)
                else:
                    yield clique, sum_cover(_to_dense(table, self.domain.cells(cover)), cover, clique, self.domain)

    def __count(self, cliques: list[Clique]) -> dict[Clique, Cells]:
        cells = [cell_index(clique, self.domain, self.__names) for clique in cliques]
        statement = self.__session.grammar.counting_statement(cells, self.__table, self.__total)
        which, cell, rows = self.__session.count(statement)
        return {clique: (cell[which == place], rows[which == place]) for place, clique in enumerate(cliques)}


class EngineSource(CodedTable):
    """An engine's table as a `Source`.

    Args:
        session: the engine.
        schema: what is public about the columns.
        key: the bounding key, 32 bytes; drawn for this run by default.

    **Privacy.** Its text form reveals neither rows nor their number, and it cannot be pickled or copied.

    Raises:
        SchemaError: for a missing column or two columns of one name, naming them.
        InputError: if the engine refuses.
    """

    __slots__ = ("__coded", "__engine", "__words")

    def __init__(self, session: EngineSession, schema: Schema, *, key: bytes | None = None) -> None:
        names = {column: f"c{place}" for place, column in enumerate(schema.domain)}
        self.__engine = session
        self.__words = {column.name: f"w{place}" for place, column in enumerate(schema.words)}
        self.__coded = _code_table(session, schema, names | self.__words, key or new_key())
        super().__init__(session, schema, names, self.__coded)

    def values(self, column: str) -> dict[str, int]:
        """Return the exact number of rows for each canonical text of a column whose values are discovered."""
        self._check_words(column)
        name = self.__words[column]
        return self.__engine.count_texts(
            f"select {name}, count(*) from {self.__coded} where {name} is not null group by {name}"  # noqa: S608
        )

    def close(self) -> None:
        """Drop all tables from the engine and release it."""
        self.__engine.close()


def _to_dense(table: Cells, size: int) -> NDArray[np.int64]:
    cells, rows = table
    dense = np.zeros(size, np.int64)
    dense[cells] = rows
    return dense


def _to_sparse(table: Cells, cover: Clique, clique: Clique, domain: Domain) -> SparseCounts:
    """Renumber the cells of a large table, which is its own cover, in the order of the requested clique."""
    cells, rows = table
    places = dict(zip(cover, np.unravel_index(cells, domain.shape(cover)), strict=True))
    index = np.ravel_multi_index([places[column] for column in clique], domain.shape(clique))
    order = np.argsort(index)
    return SparseCounts(index[order], rows[order], domain.cells(clique))


def _code_table(session: EngineSession, schema: Schema, names: dict[str, str], key: bytes) -> str:
    """Encode the table inside its engine and return the name of the table to count."""
    check_names([name for name, _ in session.cells], schema.needs)
    cells = dict(session.cells)
    unit = schema.privacy_unit
    kinds = {name: "text" if name[0] == "w" else "code" for name in names.values()}
    session.begin(kinds | ({"unit": "text"} if unit.column is not None else {}), key)
    wanted, joins = [], []
    for place, column in enumerate((*schema.coded, *schema.words)):
        made, join = column_expressions(session, column, cells[column.name], place, schema)
        wanted += [f"{sql} as {names[part]}" for part, sql in made.items()]
        joins += join
    if unit.column is not None:
        sql, join = unit_expression(session, cells[unit.column], len(schema.coded) + len(schema.words))
        wanted.append(f"{sql} as unit")
        joins += join
    kept = [f"{names[c.name]} >= 0" for c in schema.coded] + ["unit is not null"] * (unit.column is not None)
    inner = f"select {', '.join(wanted)} from {session.rows} t {' '.join(joins)}"  # noqa: S608
    where = f" where {' and '.join(kept)}" if kept else ""
    columns = ", ".join([*kinds, *(["unit"] if unit.column is not None else [])])
    session.fill(session.coded, f"select {columns} from ({inner}) coded_rows{where}")  # noqa: S608
    if unit.column is None:
        return session.coded
    texts = [
        f"cast({name} as {session.grammar.words})"
        if kind == "code"
        else f"coalesce({session.grammar.sha256(name)}, '')"
        for name, kind in kinds.items()
    ]
    session.fill(
        session.bounded,
        bounding_statement(session.grammar, list(kinds), texts, session.key, unit.max_rows, session.coded),
    )
    return session.bounded


def column_expressions(
    session: Texts, column: Any, cell: EngineColumn, place: int, schema: Schema
) -> tuple[dict[str, str], list[str]]:
    """Return the expressions of a column's parts, and the join that they need."""
    grammar = session.grammar
    found = (
        find_steps(column, cell.kind, schema.dialect) if isinstance(column, Coded) and cell.kind is not None else None
    )
    if found is not None:
        return {column.name: step_code(grammar, cell, found)}, []
    _fill_lookup(session, column, cell, place, schema)
    table = f"m{place}"
    join = f"left join {session.lookup} {table} on {table}.place = {place} and {table}.v = {grammar.text(cell)}"
    if isinstance(column, Words):
        return {column.name: f"{table}.w"}, [join]
    null = column.null_codes()
    return {part: f"coalesce({table}.p{i}, {null[part]})" for i, part in enumerate(column.parts)}, [join]


def unit_expression(session: Texts, cell: EngineColumn, place: int) -> tuple[str, list[str]]:
    """Return the expression of a row's unit, and the join that it needs: text with another meaning is looked up."""
    plain = session.grammar.unit(cell)
    if cell.kind is not None or cell.own in ("numeric", "decimal", "bytea", "binary"):
        return plain, []
    text = f"select {plain} as v from {session.rows} t"  # noqa: S608
    odd = f"v is not null and not ({session.grammar.matches('v', PLAIN)})"
    for texts in session.distinct(f"select distinct v from ({text}) d where {odd}"):  # noqa: S608
        meant = canonical_units(texts, exact=True)
        changed = pc.fill_null(pc.not_equal(meant, texts), True)
        session.add(Lookup(place, texts.filter(changed), [], pc.fill_null(meant.filter(changed), "")))
    table = f"u{place}"
    join = f"left join {session.lookup} {table} on {table}.place = {place} and {table}.v = {plain}"
    return f"nullif(coalesce({table}.w, {plain}), '')", [join]


def sort_expression(session: Texts, name: str, cell: EngineColumn, place: int, schema: Schema, sort_texts: Any) -> Any:
    """Return an expression that sorts like `sort_texts` of the cells, a function of an arrow array, and its join.

    Every distinct cell is looked up, because engines do not round and parse as the schema does.
    """
    text = f"select {session.grammar.text(cell)} as v from {session.rows} t"  # noqa: S608
    for texts in session.distinct(f"select distinct v from ({text}) d where v is not null"):  # noqa: S608
        cells = _restore_types(texts, cell.kind, schema.dialect)
        session.add(Lookup(place, texts, [], sort_texts(name, cells)))
    table, null = f"s{place}", sort_texts(name, pa.nulls(1, pa.string()))[0].as_py()
    join = f"left join {session.lookup} {table} on {table}.place = {place}"
    return f"coalesce({table}.w, '{null}')", [f"{join} and {table}.v = {session.grammar.text(cell)}"]


def _fill_lookup(session: Texts, column: Any, cell: EngineColumn, place: int, schema: Schema) -> None:
    """Fill the lookup table with every text of a column: the declared ones, then the others of the table."""
    entries = [] if isinstance(column, Shape) or cell.kind is not None else column.table()
    declared = list(dict.fromkeys(str(e.value) for e in entries if isinstance(e.value, str | int)))
    declared = ["true", "false"] if str(cell.kind) == "bool" else declared
    if declared and session.any_text:
        session.add(_encode_texts(column, pa.array(declared, pa.string()), cell, place, schema))
    known = f"select 1 from {session.lookup} m where m.place = {place} and m.v = d.v"  # noqa: S608
    text = f"select {session.grammar.text(cell)} as v from {session.rows} t"  # noqa: S608
    statement = f"select distinct v from ({text}) d where v is not null and not exists ({known})"  # noqa: S608
    for texts in session.distinct(statement):
        session.add(_encode_texts(column, texts, cell, place, schema))


def _encode_texts(column: Any, texts: Any, cell: EngineColumn, place: int, schema: Schema) -> Lookup:
    cells = _restore_types(texts, cell.kind, schema.dialect)
    if isinstance(column, Words):
        return Lookup(place, texts, [], column.texts(cells, schema.dialect).dictionary_decode())
    codes = column.encode(cells, schema.dialect)
    return Lookup(place, texts, [codes[part] for part in column.parts])


def _restore_types(texts: Any, kind: Any, dialect: Dialect) -> Any:
    """Convert texts of numbers and truth values back to their type, whose codes they have.

    Other texts by their meaning.

    Moments stay text: one that arrow cannot hold would change how the others are read.
    """
    if kind is None:
        return meanings(texts, dialect.decimal, dialect.group)
    if pa.types.is_timestamp(kind):
        return shorten_moments(texts)

    read: dict[str, Any] = {"int64": int, "double": float, "bool": lambda text: text == "true"}
    if str(kind) in read or pa.types.is_decimal(kind):
        return pa.array([read.get(str(kind), Decimal)(text) for text in texts.to_pylist()], kind)
    return texts
