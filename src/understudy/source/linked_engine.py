"""Linked tables that stay in PostgreSQL or Spark: attached, limited and counted there; only weighted counts leave.

The statements say what `LinkedRows` does with rows in memory, and give the same counts with the same key:

| table | a row for | columns |
|---|---|---|
| coded | each row of a table | codes; keys of the unit `u`, the parent `p`, and its own `k`; `o0`, ... to sort by |
| kept | each row that is used | codes, `u`, `p`, `k`, and `num`, its number among siblings from 0 |
| full | the same | the numbers of its children as further codes |
| virtual | each row of a virtual table | its codes, and its weight `w` |

Cells of order columns are looked up (`sort_expression`): each distinct value passes through this process once.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.schema.axis import AxisColumn
from understudy.schema.linked import UNITS_PER_ROW, LinkedSchema, VirtualColumn, VirtualTable, gap_codes, order_values
from understudy.source.engine import CodedTable, Countable, Texts, column_expressions, sort_expression, unit_expression
from understudy.source.unit import new_key

_SIGN = 1 << 63


class LinkedSession(Countable, Protocol):
    """One engine at work on one state of several tables."""

    @property
    def tables(self) -> Mapping[str, Texts]:
        """The user's tables by name."""
        ...

    def begin(self, columns: Mapping[str, Mapping[str, str]], key: bytes) -> None:
        """Create our tables; `columns` has the type of each column, "code", "text" or "weight"."""
        ...

    def name(self, table: str) -> str:
        """Return the engine's name of one of our tables."""
        ...

    def fill(self, table: str, statement: str) -> None:
        """Fill one of our tables, by its engine's name, from a statement."""
        ...

    def close(self) -> None:
        """Drop the tables and release the engine."""
        ...


class LinkedEngine:
    """Linked tables in an engine, attached, ordered and limited there.

    Args:
        session: the engine.
        schema: what is public about the tables.
        key: the key of the hash that decides between rows, 32 bytes; drawn for this run by default, and never saved.

    **Privacy.** As `LinkedRows`: which rows of a unit are used depends on that unit's rows and on the key alone.

    Raises:
        InputError: if the engine refuses.
    """

    def __init__(self, session: LinkedSession, schema: LinkedSchema, *, key: bytes | None = None) -> None:
        self._session, self._schema = session, schema
        session.begin(self._columns(), new_key() if key is None else key)
        for name in schema.tables:
            session.fill(self._name("coded", name), self._code(name))
            session.fill(self._name("kept", name), self._keep(name))
        for name in schema.tables:
            session.fill(self._name("full", name), self._count_children(name))
        for virtual in schema.virtual_tables.values():
            session.fill(self._name("virtual", virtual.name), self._view(virtual))

    def __repr__(self) -> str:
        return f"<LinkedEngine of {len(self._schema.tables)} tables>"

    def source(self, virtual: VirtualTable) -> CodedTable:
        """Return a virtual table as a `Source`."""
        names = {column: f"c{place}" for place, column in enumerate(virtual.schema.domain)}
        table = self._name("virtual", virtual.name)
        return CodedTable(self._session, virtual.schema, names, table, total="cast(sum(w) as bigint)")

    # -- tables and their columns --------------------------------------------------------------------------------

    def _name(self, kind: str, table: str) -> str:
        order = list(self._schema.virtual_tables if kind == "virtual" else self._schema.tables)
        return self._session.name(f"{kind}_{order.index(table)}")

    def _columns(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        keys = dict.fromkeys(("u", "p", "k"), "text")
        for place, (name, one) in enumerate(self._schema.tables.items()):
            codes = {f"c{i}": "code" for i in range(len(one.domain))}
            link = self._schema.links.get(name)
            order = {f"o{i}": "text" for i in range(len(link.order) if link else 0)}
            found[f"coded_{place}"] = codes | keys | order
            found[f"kept_{place}"] = codes | keys | {"num": "code"}
            children = {f"c{len(codes) + i}": "code" for i in range(len(self._schema.children(name)))}
            found[f"full_{place}"] = codes | children | keys | {"num": "code"}
        for place, virtual in enumerate(self._schema.virtual_tables.values()):
            found[f"virtual_{place}"] = {f"c{i}": "code" for i in range(len(virtual.columns))} | {"w": "weight"}
        return found

    # -- statements ----------------------------------------------------------------------------------------------

    def _code(self, name: str) -> str:
        """Encode the cells of a table, and write keys and order columns as text."""
        schema, link = self._schema.tables[name], self._schema.links.get(name)
        table = self._session.tables[name]
        cells, wanted, joins = dict(table.cells), list[str](), list[str]()
        parts = {part: f"c{i}" for i, part in enumerate(schema.domain)}
        place = 0
        for column in schema.coded:
            made, join = column_expressions(table, column, cells[column.name], place, schema)
            wanted += [f"{sql} as {parts[part]}" for part, sql in made.items()]
            joins, place = joins + join, place + 1
        own = self._schema.keys[name] if link is None or self._schema.children(name) else None
        keys = {"u": own if link is None else link.unit_column, "k": own}
        keys["p"] = None if link is None or link.parent == self._schema.root else link.parent_column
        for short, key in keys.items():
            sql, join = ("''", []) if key is None else unit_expression(table, cells[key], place)
            wanted, joins, place = [*wanted, f"{sql} as {short}"], joins + join, place + 1
        for i, (column_name, down) in enumerate(zip(link.order, link.descending, strict=True) if link else ()):

            def sort_texts(column: str, some: Any, down: bool = down) -> Any:
                return _sort_texts(order_values(schema, column, some, down=down))

            sql, join = sort_expression(table, column_name, cells[column_name], place, schema, sort_texts)
            wanted, joins, place = [*wanted, f"{sql} as o{i}"], joins + join, place + 1
        kept = [f"{parts[column.name]} >= 0" for column in schema.coded]
        kept += [f"{short} is not null" for short, key in keys.items() if key is not None]
        columns = ", ".join(self._columns()[f"coded_{list(self._schema.tables).index(name)}"])
        inner = f"select {', '.join(wanted)} from {table.rows} t {' '.join(joins)}"  # noqa: S608 - names are ours
        return f"select {columns} from ({inner}) coded_rows where {' and '.join(kept)}"  # noqa: S608

    def _keep(self, name: str) -> str:
        """Attach rows to kept parents, remove duplicates, sort siblings and keep those within the cap."""
        link, codes = self._schema.links.get(name), [f"c{i}" for i in range(len(self._schema.tables[name].domain))]
        order = [f"o{i}" for i in range(len(link.order) if link else 0)]
        columns = [*codes, "u", "p", "k", *order]
        rows = self._attach(name, columns)
        texts = " || ',' || ".join(f"cast({code} as {self._session.grammar.words})" for code in codes) or "''"
        keyed = link is None or bool(self._schema.children(name))
        if keyed:
            rows = self._pick_first(name, rows, columns, ["u"] if link is None else ["u", "k"], texts, order)
        if link is None:
            return f"select {', '.join(codes)}, u, p, k, 0 as num from ({rows}) one_root"  # noqa: S608
        texts = "k" if keyed else texts
        if link.strict:
            code = codes[list(self._schema.tables[name].domain).index(link.order[0])]
            rows = self._pick_first(name, rows, columns, ["u", "p", code], texts, order)
        group = ["u", "p", *order]
        hashed = self._hash(name, rows, columns, group, texts, order)
        numbered = (
            f"select {', '.join(codes)}, u, p, k, cast(row_number() over "  # noqa: S608
            f"(partition by u, p order by {', '.join([*order, 'digest'])}) - 1 as integer) as num, "
            f"cast(count(*) over (partition by u, p) as integer) as siblings from ({hashed}) hashed"
        )
        left_out = f"greatest(siblings - {link.max_children}, 0)" if link.keep == "last" else "0"
        listed = f"{', '.join(codes)}, u, p, k, num - {left_out} as num"
        inside = f"num >= {left_out} and num - {left_out} < {link.max_children}"
        return f"select {listed} from ({numbered}) numbered where {inside}"  # noqa: S608

    def _attach(self, name: str, columns: Sequence[str]) -> str:
        """Return the rows whose parent is kept: by the unit's key, and below the first level by the parent's, too."""
        coded, link = self._name("coded", name), self._schema.links.get(name)
        if link is None:
            return f"select {', '.join(columns)} from {coded}"  # noqa: S608
        listed = [f"a.{column}" for column in columns]
        above, joined = self._name("kept", link.parent), "b.u = a.u"
        if link.parent != self._schema.root:
            joined = "b.k = a.p" if link.unit_column is None else "b.u = a.u and b.k = a.p"
            listed = ["b.u" if one == "a.u" else one for one in listed]
        return f"select {', '.join(listed)} from {coded} a join {above} b on {joined}"  # noqa: S608

    def _hash(
        self, name: str, rows: str, columns: Sequence[str], group: Sequence[str], text: str, order: Sequence[str]
    ) -> str:
        """Return the rows with their keyed hash in `digest`; rows of a group with equal texts are numbered."""
        grammar = self._session.grammar
        partition = ", ".join([*group, "p", text])
        ordinal = f"row_number() over (partition by {partition} order by {', '.join([*order, 'u'])})"
        numbered = f"select {', '.join(columns)}, {ordinal} as ordinal from ({rows}) attached"  # noqa: S608
        key = next(iter(self._session.tables.values())).key
        link = self._schema.links.get(name)
        parent = " p || '|' ||" if link is not None and link.parent != self._schema.root else ""
        whole = f"{key} || '|' || u || '|{name}|' ||{parent} {text} || '|' || cast(ordinal as {grammar.words})"
        return f"select {', '.join(columns)}, {grammar.sha256(whole)} as digest from ({numbered}) with_ordinal"  # noqa: S608

    def _pick_first(
        self, name: str, rows: str, columns: Sequence[str], group: Sequence[str], text: str, order: Sequence[str]
    ) -> str:
        """Return the row with the smallest hash of each group."""
        hashed = self._hash(name, rows, columns, group, text, order)
        place = f"row_number() over (partition by {', '.join(group)} order by digest)"
        ranked = f"select {', '.join(columns)}, {place} as place from ({hashed}) hashed"  # noqa: S608
        return f"select {', '.join(columns)} from ({ranked}) ranked where place = 1"  # noqa: S608

    def _count_children(self, name: str) -> str:
        """Add the numbers of kept children to kept rows."""
        codes = [f"c{i}" for i in range(len(self._schema.tables[name].domain))]
        wanted, joins = [f"a.{code}" for code in codes], list[str]()
        for place, child in enumerate(self._schema.children(name)):
            below, root = self._name("kept", child), name == self._schema.root
            counted = f"select u, p, count(*) as n from {below} group by u, p"  # noqa: S608
            matched = f"n{place}.u = a.u" + ("" if root else f" and n{place}.p = a.k")
            joins.append(f"left join ({counted}) n{place} on {matched}")
            wanted.append(f"cast(coalesce(n{place}.n, 0) as integer) as c{len(codes) + place}")
        return f"select {', '.join(wanted)}, a.u, a.p, a.k, a.num from {self._name('kept', name)} a {' '.join(joins)}"  # noqa: S608

    def _view(self, virtual: VirtualTable) -> str:
        """Return the rows of a virtual table: `lag` and `first_value` find siblings, joins find ancestors."""
        name = virtual.table
        own = [f"c{i}" for i in range(len(self._schema.own_parts(name)))]
        window = "(partition by u, p order by num)"
        siblings = [f"lag({code}) over {window} as b{code}" for code in own]
        siblings += [f"first_value({code}) over {window} as f{code}" for code in own]
        rows = f"select {', '.join(own)}, u, p, k, num, {', '.join(siblings)} from {self._name('full', name)}"  # noqa: S608
        where = {"root": "", "first": " where num = 0", "next": " where num > 0"}[virtual.kind]
        joins, below = "", "t"
        for place, above in enumerate(reversed(self._schema.ancestors(name))):
            joins += f" join {self._name('full', above)} a{place} on a{place}.u = {below}.u"
            joins += "" if above == self._schema.root else f" and a{place}.k = {below}.p"
            below = f"a{place}"
        codes = [f"cast({self._expression(column, virtual)} as integer)" for column in virtual.columns]
        weight = "1" if virtual.kind == "root" else f"floor({UNITS_PER_ROW} / count(*) over (partition by t.u))"
        used = f"select * from ({rows}) siblings{where}"  # noqa: S608
        named = [f"{code} as c{i}" for i, code in enumerate(codes)]
        return f"select {', '.join(named)}, cast({weight} as bigint) as w from ({used}) t{joins}"  # noqa: S608

    def _expression(self, column: VirtualColumn, virtual: VirtualTable) -> str:
        """Return the code of a column of a virtual table."""
        path = [virtual.table, *reversed(self._schema.ancestors(virtual.table))]
        alias = "t" if column.table == virtual.table else f"a{path.index(column.table) - 1}"
        if column.part == "#" and column.groups is not None:
            return _map_codes(f"least({alias}.num, {len(column.groups) - 1})", column.groups)
        code = f"c{list(self._schema.own_parts(column.table)).index(column.part)}"
        if column.gap:
            declared = self._schema.tables[column.table].column(column.part)
            assert isinstance(declared, AxisColumn)  # noqa: S101 - only these have gaps
            return _gap_code(f"{alias}.{code}", f"{alias}.b{code}", declared.ordinary, gap_codes(declared.size))
        place = {"first": "f", "prev": "b"}.get(column.role, "") if alias == "t" else ""
        found = f"{alias}.{place}{code}"
        return found if column.groups is None else _map_codes(found, column.groups)


def _map_codes(code: str, groups: NDArray[np.int64]) -> str:
    """Return the group of a code: codes are compared with the ends of runs of equal groups."""
    ends = [*np.flatnonzero(np.diff(groups)).tolist(), len(groups) - 1]
    cases = " ".join(f"when {code} <= {end} then {groups[end]}" for end in ends)
    return f"case {cases} end"


def _gap_code(code: str, before: str, ordinary: int, edges: NDArray[np.int64]) -> str:
    gap, last = f"greatest({code} - {before}, 0)", len(edges) - 1
    cases = " ".join(f"when {gap} < {edge} then {place}" for place, edge in enumerate(edges[1:-1].tolist()))
    return f"case when {code} >= {ordinary} or {before} >= {ordinary} then {last} {cases} else {last - 1} end"


def _sort_texts(values: Sequence[NDArray[Any]]) -> Any:
    """Return texts that sort, byte by byte, like rows of numbers."""
    columns = [[_sort_number(one) for one in value.tolist()] for value in values]
    return pa.array(["|".join(row) for row in zip(*columns, strict=True)], pa.string())


def _sort_number(value: float) -> str:
    """Return a text of fixed length that sorts like a number.

    >>> sorted([3, -2, 10, 0], key=_sort_number), sorted([0.5, -1.5, 2.25], key=_sort_number)
    ([-2, 0, 3, 10], [-1.5, 0.5, 2.25])
    """
    if isinstance(value, int):
        return f"{value + _SIGN:020d}"
    (bits,) = struct.unpack(">q", struct.pack(">d", value + 0.0))
    return f"{(bits if bits >= 0 else -(bits & (_SIGN - 1))) + _SIGN:020d}"
