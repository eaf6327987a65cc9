"""Schemas of linked tables: a tree of tables that belong to units of one root table, and the tables that are counted.

A data package (Frictionless) lists the tables. The foreign key of each table but the root names its parent, the largest
number of children of one parent row, and the order of siblings. Mechanisms know flat tables only, so linked tables are
counted through flat *virtual tables*:

| virtual table | a row for | columns |
|---|---|---|
| the root's name | each unit | Y: the root's columns, and `#child`, the number of children, for each child table |
| `first(T)` | each parent with children in T | X: those of all ancestors; Y of its first child |
| `next(T)` | each further child | X; `T.#`, its number; `first.` and `prev.` Y of the first and previous sibling; Y |

docs/proofs/linked.md has the sensitivities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from os import PathLike
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.arguments import as_path
from understudy.errors import OutputError, SchemaError
from understudy.files import write_text
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Categorical
from understudy.schema.column import Coded, Column, Identifier
from understudy.schema.file import OURS, FieldError, format_field, parse_content, parse_field, read_schema_text
from understudy.schema.numeric import Numeric
from understudy.schema.open import Open
from understudy.schema.rules import Dependency, Order, Rule
from understudy.schema.schema import PrivacyUnit, Schema
from understudy.yaml_json import dump_text

UNITS_PER_ROW = 2520
"""The weight of a unit in a virtual table, in whole parts that its rows share: divisible by 1 to 10."""

MOST_CHILDREN = UNITS_PER_ROW
"""The largest number of rows of one unit in any table: a unit with more could not give each row a part."""

_SIBLING_CODES = 10  # codes of `first.` and `prev.` columns
_ORDER_CODES = 64  # an order column with more codes is a gap since the previous sibling in `next`
_NUMBERS = 4  # codes of a sibling number: 1, 2, 3, and 4 or more
_LINK_KEYS = {"max_children", "order", "keep", "strict", "unique"}
_PACKAGE_KEYS = {"privacy_unit", "rows"}

Role = Literal["own", "context", "first", "prev"]


@dataclass(frozen=True)
class Link:
    """How the rows of a table belong to the rows of its parent.

    Attributes:
        parent: the parent table.
        unit_column: the column with the root's key; None if only `unique` keys of the parent tell the unit.
        parent_column: the column with the parent's key; for children of the root the same as `unit_column`.
        max_children: the largest number of rows of one parent row that are used.
        order: the columns that order siblings, descending where `descending` says so; without any, a keyed hash.
        descending: for each column of `order`.
        keep: which rows of a parent with too many are used: the first or the last in that order.
        strict: whether no two siblings have equal values of the (single) order column.
    """

    parent: str
    unit_column: str | None
    parent_column: str
    max_children: int
    order: tuple[str, ...] = ()
    descending: tuple[bool, ...] = ()
    keep: Literal["first", "last"] = "first"
    strict: bool = False


@dataclass(frozen=True)
class VirtualColumn:
    """A column of a virtual table.

    Attributes:
        name: its name there.
        table: the table it comes from.
        part: its name among that table's coded columns, `#child` for a number of children, `#` for a sibling number.
        role: "own" (Y), "context" (X), or a column of the "first" or the previous ("prev") sibling.
        groups: the code of each code of the part, if codes are merged; of a sibling number, from 0, the code of each
            number, and the last one for all others.
        gap: whether the code is the distance to the previous sibling instead.
    """

    name: str
    table: str
    part: str
    role: Role
    groups: NDArray[np.int64] | None = field(default=None, compare=False)
    gap: bool = False


@dataclass(frozen=True)
class VirtualTable:
    """A flat table that is counted in place of linked ones.

    Attributes:
        name: the root's name, `first(T)` or `next(T)`.
        kind: which of them.
        table: the table whose columns it describes.
        columns: its columns.
        schema: the same as a schema; rows of this schema are never written.
    """

    name: str
    kind: Literal["root", "first", "next"]
    table: str
    columns: tuple[VirtualColumn, ...]
    schema: Schema

    def list_columns(self, *roles: Role) -> list[str]:
        """List the names of the columns with these roles."""
        return [column.name for column in self.columns if column.role in roles]


@dataclass(frozen=True)
class LinkedSchema:
    """Public facts about linked tables.

    Attributes:
        tables: the schema of each table, the root first and parents before children.
        keys: the primary key of each table; None where a table has none.
        links: how each table but the root belongs to its parent.
        rows: the number of rows of the root, where it is declared public.
        title: what the tables are called.
        paths: where the tables are, as the package says: below the folder of the tables.
    """

    tables: Mapping[str, Schema]
    keys: Mapping[str, str | None]
    links: Mapping[str, Link]
    rows: int | None = None
    title: str | None = None
    paths: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, link in self.links.items():
            _check_link(name, link, self)
        for name in self.tables:
            self._check_rules(name)
        for name, many in self.most_rows.items():
            if many > MOST_CHILDREN:
                raise SchemaError(
                    f"table {name!r}: the caps allow {many} rows of one unit, more than {MOST_CHILDREN}; lower "
                    "`max_children` of this table or of its parents"
                )

    def _check_rules(self, name: str) -> None:
        link = self.links.get(name)
        gap = None if link is None else self.gap_part(name)
        for rule in self.tables[name].rules:
            if isinstance(rule, Dependency) and rule.map is None and rule.level is None:
                raise SchemaError(
                    f"table {name!r}: state the values of {rule.determines!r} that {', '.join(rule.given)} determines, "
                    "by `map` or `level`; with linked tables they are not learned"
                )
            if isinstance(rule, Dependency) and link is not None and link.order and rule.determines == link.order[0]:
                raise SchemaError(
                    f"table {name!r}: a rule determines {rule.determines!r}, which orders siblings; remove one of both"
                )
            if gap in rule.columns:
                raise SchemaError(
                    f"table {name!r}: a rule names {gap!r}, which has more than {_ORDER_CODES} codes and orders "
                    "siblings, so that it is counted as gaps; use fewer bins, or remove the rule"
                )

    def __repr__(self) -> str:
        return f"LinkedSchema({', '.join(self.tables)})"

    @property
    def root(self) -> str:
        """The table whose rows are the units."""
        return next(iter(self.tables))

    def children(self, table: str) -> list[str]:
        """Return the tables whose parent is this one."""
        return [name for name, link in self.links.items() if link.parent == table]

    def ancestors(self, table: str) -> list[str]:
        """Return the parent, its parent and so on, the root first."""
        found: list[str] = []
        while table in self.links:
            table = self.links[table].parent
            found.insert(0, table)
        return found

    @property
    def most_rows(self) -> dict[str, int]:
        """The largest number of rows of one unit that each table keeps: the product of the caps."""
        return {
            name: prod(self.links[one].max_children for one in [*self.ancestors(name), name] if one in self.links)
            for name in self.tables
        }

    @property
    def open(self) -> tuple[Open, ...]:
        """The columns of all tables that still have to be discovered; while there are any, there are no domains."""
        return tuple(column for one in self.tables.values() for column in one.open)

    def with_tables(self, tables: Mapping[str, Schema]) -> LinkedSchema:
        """Return the same with other schemas of these tables."""
        return replace(self, tables={name: tables.get(name, one) for name, one in self.tables.items()})

    def schema_of(self, table: str) -> Schema:
        """Return the schema of one table by itself, with at most as many rows of each unit as the caps allow."""
        unit = self.keys[self.root] if table == self.root else self.links[table].unit_column
        return replace(
            self.tables[table], privacy_unit=PrivacyUnit(unit, self.most_rows[table]), rows=self.rows, rules=()
        )

    def require_reviewed(self) -> None:
        """Raise an error while any column is still a draft.

        Raises:
            SchemaError: naming the columns to review.
        """
        for schema in self.tables.values():
            schema.require_reviewed()

    @property
    def assumptions(self) -> list[str]:
        """What the guarantee takes for granted about keys, beyond what is enforced."""
        return [
            f"values of {self.keys[link.parent]!r} in {link.parent!r} are unique over all units, because {name!r} has "
            "no column with the root's key"
            for name, link in self.links.items()
            if link.unit_column is None
        ]

    def own_parts(self, table: str) -> dict[str, int]:
        """Return the coded columns of a table and its numbers of children, with their sizes."""
        parts: dict[str, int] = dict(self.tables[table].domain)
        return parts | {f"#{child}": self.links[child].max_children + 1 for child in self.children(table)}

    def order_rank(self, table: str) -> NDArray[np.int64] | None:
        """Return the place of each code of the first order column in the order of siblings; None without an order.

        Codes that are no values of the axis (missing ones) come last.
        """
        link = self.links.get(table)
        if link is None or not link.order:
            return None
        column = self.tables[table].column(link.order[0])
        assert isinstance(column, Coded)  # noqa: S101 - checked with the schema
        rank = np.arange(column.size)
        if link.descending[0]:
            ordinary = _count_ordered_codes(column)
            rank[:ordinary] = rank[:ordinary][::-1]
        return rank

    # -- virtual tables ------------------------------------------------------------------------------------------

    @cached_property
    def virtual_tables(self) -> dict[str, VirtualTable]:
        """The flat tables that are counted, in the order in which models are fitted and rows are drawn."""
        found = {self.root: self._make(self.root, "root", self.root, list(self._own_columns(self.root)))}
        for name, link in self.links.items():
            context = [column for one in self.ancestors(name) for column in self._context(one)]
            found[f"first({name})"] = self._make(f"first({name})", "first", name, [*context, *self._own_columns(name)])
            if link.max_children > 1:
                columns = [*context, *self._siblings(name), *self._own_columns(name, further=True)]
                found[f"next({name})"] = self._make(f"next({name})", "next", name, columns)
        return found

    def _own_columns(self, table: str, *, further: bool = False) -> Iterator[VirtualColumn]:
        gap = self.gap_part(table) if further else None
        for part in self.own_parts(table):
            if part == gap:
                yield VirtualColumn(f"gap.{_join(table, part)}", table, part, "own", gap=True)
            else:
                yield VirtualColumn(_join(table, part), table, part, "own")

    def _context(self, table: str) -> Iterator[VirtualColumn]:
        for column in self._own_columns(table):
            yield replace(column, role="context")
        if table != self.root and self.links[table].max_children > 1:
            yield self._sibling_number(table, np.arange(_NUMBERS))

    def _siblings(self, table: str) -> Iterator[VirtualColumn]:
        if self.links[table].max_children > 2:
            yield self._sibling_number(table, np.maximum(np.arange(_NUMBERS) - 1, 0))  # `next` has no first child
        roles: tuple[Role, ...] = ("first", "prev")
        for role in roles if self.links[table].max_children > 2 else roles[1:]:
            for part, size in self.own_parts(table).items():
                groups = self._sibling_groups(table, part, size, exact=role == "prev")
                yield VirtualColumn(f"{role}.{_join(table, part)}", table, part, role, groups)

    def _sibling_number(self, table: str, groups: NDArray[np.int64]) -> VirtualColumn:
        return VirtualColumn(f"{table}.#", table, "#", "context", groups[: self.links[table].max_children])

    def gap_part(self, table: str) -> str | None:
        """Return the order column that `next` codes as the gap since the previous sibling; None if it does not."""
        link = self.links[table]
        if not link.order:
            return None
        column = self.tables[table].column(link.order[0])
        if not isinstance(column, AxisColumn) or len(column.parts) > 1 or link.descending[0]:
            return None
        return column.name if column.ordinary > _ORDER_CODES else None

    def _sibling_groups(self, table: str, part: str, size: int, *, exact: bool) -> NDArray[np.int64] | None:
        """Merge the codes of a sibling's column to about ten: by its levels, else along its axis.

        The previous sibling (`exact`) keeps the codes of the order column, and up to 20 on any axis: fewer made pairs
        of columns worse, and correlations with previous values (benchmarks/linked.md). Noise decides what else merges.
        """
        if size <= _SIBLING_CODES:
            return None
        if part.startswith("#"):
            return np.minimum(np.arange(size), _SIBLING_CODES - 1)
        link, column = self.links[table], self._declared(table, part)
        if exact and link.order and part == link.order[0] and self._keeps_codes(table):
            return None
        if exact and column.name == part and isinstance(column, AxisColumn) and size <= 2 * _SIBLING_CODES:
            return None
        for level in column.generalisations.values() if column.name == part and column.levels else ():
            groups = np.asarray(level.groups, np.int64)
            if groups.max() < 2 * _SIBLING_CODES:
                return groups
        ordinary = _count_ordered_codes(column) if column.name == part else 0
        if not ordinary:
            return None
        extra = size - ordinary
        axis = np.arange(ordinary) * min(_SIBLING_CODES, ordinary) // ordinary
        return np.concatenate([axis, axis.max() + 1 + np.arange(extra)])

    def _declared(self, table: str, part: str) -> Coded:
        return next(one for one in self.tables[table].coded if part in one.parts)

    def _make(
        self, name: str, kind: Literal["root", "first", "next"], table: str, columns: list[VirtualColumn]
    ) -> VirtualTable:
        root_key = self.keys[self.root]
        unit = PrivacyUnit(root_key, 1 if kind == "root" else UNITS_PER_ROW)
        # A heaped amount is one declared column of two parts; the source has codes for both.
        made: dict[str, Column] = {}
        for column in columns:
            declared = self._column(column)
            made.setdefault(declared.name, declared)
        rules: list[Rule] = list(self._order_rules(table)) if kind == "next" else []
        for one in (*self.ancestors(table), table):
            rules += [rule.rename(partial(_join, one)) for rule in self.tables[one].rules]
        title, dialect = f"{name} of {self.title or self.root}", self.tables[table].dialect
        schema = Schema(tuple(made.values()), unit, self.rows, rules=tuple(rules), title=title, dialect=dialect)
        return VirtualTable(name, kind, table, tuple(columns), schema)

    def _order_rules(self, table: str) -> tuple[Order, ...]:
        """Return the rule of `next` that a row follows its previous sibling in the first order column."""
        link = self.links[table]
        if not self._keeps_codes(table):
            return ()
        names = [f"prev.{_join(table, link.order[0])}", _join(table, link.order[0])]
        return (Order(order=tuple(reversed(names) if link.descending[0] else names), strict=link.strict),)

    def _keeps_codes(self, table: str) -> bool:
        """Return whether the previous sibling's first order column is coded like the column, and has an order."""
        link = self.links[table]
        if not link.order or self.gap_part(table) is not None:
            return False
        column = next(one for one in self.tables[table].coded if one.name == link.order[0])
        return _count_ordered_codes(column) > 0 and len(column.parts) == 1 and column.size <= _ORDER_CODES + 2

    def _column(self, column: VirtualColumn) -> Column:
        if column.gap:
            return _code_column(column.name, len(gap_codes(self.own_parts(column.table)[column.part])))
        if column.part == "#" and column.groups is not None:
            return _code_column(column.name, int(column.groups.max()) + 1, axis=True)
        if column.part.startswith("#"):
            size = self.own_parts(column.table)[column.part]
            size = size if column.groups is None else int(column.groups.max()) + 1
            return _code_column(column.name, size, axis=True)
        link = self.links.get(column.table)
        tied = link is not None and link.order and column.part == link.order[0] and self._keeps_codes(column.table)
        if column.role in ("first", "prev") and not (tied and column.role == "prev"):
            size, declared = self.own_parts(column.table)[column.part], self._declared(column.table, column.part)
            plain = declared.name == column.part and isinstance(declared, AxisColumn)
            axis = plain and declared.ordinary == size  # no codes of missing values, which lie on no axis
            size = size if column.groups is None else int(column.groups.max()) + 1
            return _code_column(column.name, size, axis=axis)
        source = self._declared(column.table, column.part)
        return parse_field(format_field(source) | {"name": column.name.removesuffix(column.part) + source.name}, 0)

    # -- files -------------------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | PathLike[str]) -> LinkedSchema:
        """Load the schema of linked tables from a data package in JSON or YAML.

        Raises:
            SchemaError: naming the file, the table and the column of what is wrong.
        """
        file = as_path("schema", path)
        content = parse_content(read_schema_text(file), file)
        try:
            return cls.from_dict(content)
        except SchemaError as error:
            raise SchemaError(f"{file}: {error}") from None

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the data package to a file: JSON or YAML, depending on its ending.

        Raises:
            OutputError: if the file already exists, or cannot be written.
        """
        file = as_path("path", path)
        if file.is_file() and not overwrite:
            raise OutputError(f"{file} already exists; choose another name, or pass overwrite=True")
        drafts = any(column.status == "draft" for one in self.tables.values() for column in one.columns)
        write_text(dump_text(self.to_dict(), Path(file).suffix), file, private=drafts)

    def to_dict(self) -> dict[str, Any]:
        """Return a Frictionless Data Package of plain values, with our keys under ``understudy``."""
        ours: dict[str, Any] = {"privacy_unit": {"table": self.root}}
        ours |= {} if self.rows is None else {"rows": self.rows}
        head = {} if self.title is None else {"title": self.title}
        return head | {"resources": [self._resource(name) for name in self.tables], OURS: ours}

    def _resource(self, name: str) -> dict[str, Any]:
        schema = self.tables[name].to_dict()
        kept = {key: value for key, value in schema.pop(OURS).items() if key in ("dialect", "rules")}
        schema |= {} if self.keys[name] is None else {"primaryKey": self.keys[name]}
        schema |= {OURS: kept} if kept else {}
        if name in self.links:
            schema["foreignKeys"] = [self._foreign_key(self.links[name])]
        path = {"path": self.paths[name]} if name in self.paths else {}
        return {"name": name, **path, "schema": schema}

    def _foreign_key(self, link: Link) -> dict[str, Any]:
        above = self.links.get(link.parent)
        unit = self.keys[self.root] if above is None else above.unit_column
        fields, reference = [link.parent_column], [self.keys[link.parent]]
        if above is not None and link.unit_column is not None:
            fields, reference = [link.unit_column, *fields], [unit, *reference]
        order = [f"-{name}" if down else name for name, down in zip(link.order, link.descending, strict=True)]
        ours: dict[str, Any] = {"max_children": link.max_children}
        ours |= {"order": order} if order else {}
        ours |= {"keep": link.keep} if link.keep != "first" else {}
        ours |= {"strict": True} if link.strict else {}
        ours |= {"unique": True} if link.unit_column is None else {}
        return {"fields": fields, "reference": {"resource": link.parent, "fields": reference}, OURS: ours}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LinkedSchema:
        """Return the schema that a data package declares.

        Raises:
            SchemaError: naming the table, the key and the remedy.
        """
        return _Package(content).schema()


def is_package(content: Any) -> bool:
    """Return whether the content of a schema file is that of several tables."""
    return isinstance(content, Mapping) and "resources" in content


def load_any(path: Any) -> Schema | LinkedSchema:
    """Load the schema of one table or of linked tables.

    Raises:
        SchemaError: naming the file and what is wrong.
    """
    if not isinstance(path, str | PathLike):
        return Schema.load(path)  # says what a schema is
    file = as_path("schema", path)
    content = parse_content(read_schema_text(file), file)
    return LinkedSchema.load(file) if is_package(content) else Schema.load(file)


def order_values(schema: Schema, name: str, cells: Any, *, down: bool) -> list[NDArray[Any]]:
    """Return what cells are sorted by, most important first: exact values where there is an axis, else codes.

    Values that the axis does not have come last.
    """
    column = schema.column(name)
    assert isinstance(column, Coded)  # noqa: S101 - checked with the schema
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    codes = np.asarray(column.encode(cells, schema.dialect)[name], np.int64)
    if not isinstance(column, AxisColumn):
        sortable = len(getattr(column, "values", ())) if column.kind == "ordinal" else column.size
        return [np.where((codes < sortable) & down, -codes, codes)]
    units, ordinary = np.asarray(column.units(cells, schema.dialect)[0]), codes < column.ordinary
    inner = np.where(ordinary, np.clip(units, *column.bounds), 0)
    return [np.where(ordinary, -1, codes), -inner if down else inner]


def gap_codes(size: int) -> NDArray[np.int64]:
    """Return the smallest gap of each gap code, in codes of the column: 0, 1, 2, 3, 5, 9, ...; one more for no gap.

    The last entry stands for rows of which one of the two values is missing.

    >>> gap_codes(10)
    array([ 0,  1,  2,  3,  5,  9, 10])
    """
    edges = [0, 1, 2]
    while edges[-1] < size - 1:
        edges.append(1 + (1 << (len(edges) - 2)))
    return np.array([*(edge for edge in edges if edge < size), size])


def _code_column(name: str, size: int, *, axis: bool = False) -> Numeric:
    """Return a column of codes ``0 .. size-1``; on an axis, rare codes are merged with their neighbours."""
    rest: dict[str, Any] = {"nullable": False, "on_unknown": "drop_row"} | ({} if axis else {"outside": "unknown"})
    return Numeric(name=name, kind="integer", minimum=0, maximum=size - 1, bins=size, **rest)


def _join(table: str, part: str) -> str:
    return part if part.startswith("#") else f"{table}.{part}"


def _count_ordered_codes(column: Coded) -> int:
    """Return how many of a column's first codes lie in order; 0 if they have none."""
    if isinstance(column, AxisColumn):
        return column.ordinary
    return len(column.values) if isinstance(column, Categorical) and column.kind == "ordinal" else 0


def _check_link(name: str, link: Link, schema: LinkedSchema) -> None:
    many = link.max_children
    if isinstance(many, bool) or not isinstance(many, int) or many < 1:
        raise SchemaError(
            f"table {name!r}: `max_children` must be a whole number of at least 1; it limits how many rows of one "
            f"row of {link.parent!r} are used"
        )
    coded = {column.name: column for column in schema.tables[name].coded}
    waiting = [column.name for column in schema.tables[name].open]
    for column in link.order:
        if column in waiting:
            raise SchemaError(f"table {name!r}: {column!r} orders siblings; declare its type, bounds or values")
        if column not in coded:
            raise SchemaError(f"table {name!r}: `order` names {column!r}, which is no synthesised column of it")
    if link.strict and len(link.order) != 1:
        raise SchemaError(f"table {name!r}: `strict` needs exactly one column in `order`")
    if link.strict and link.max_children > coded[link.order[0]].size:
        raise SchemaError(
            f"table {name!r}: {link.order[0]!r} has fewer codes than `max_children`, so that siblings cannot all "
            "differ; lower `max_children`, or use finer bins"
        )


class _Package:
    """Reads a data package: finds the root, the parents and the keys, and refuses anything that is no tree."""

    def __init__(self, content: Any) -> None:
        if not is_package(content) or not isinstance(content["resources"], list) or not content["resources"]:
            raise SchemaError("linked tables are a data package: list them under `resources`")
        self._content = content
        ours = content.get(OURS, {})
        if not isinstance(ours, Mapping):
            raise SchemaError(f"`{OURS}` must be a mapping of keys; correct it")
        if unknown := [key for key in ours if key not in _PACKAGE_KEYS]:
            raise SchemaError(f"`{OURS}`: unknown key `{unknown[0]}`; use {', '.join(sorted(_PACKAGE_KEYS))}")
        self._ours = ours
        self._resources: dict[str, Mapping[str, Any]] = {}
        for index, resource in enumerate(content["resources"]):
            if not isinstance(resource, Mapping) or not isinstance(resource.get("name"), str):
                raise SchemaError(f"resource {index + 1} has no `name`; add it")
            name = resource["name"]
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
                raise SchemaError(f"table {name!r}: a table's name has letters, digits, `_` and `-` only; rename it")
            if name in self._resources:
                raise SchemaError(f"table {name!r} is listed twice; remove or rename one")
            if not isinstance(resource.get("schema"), Mapping):
                raise SchemaError(f"table {name!r}: `schema` is missing; add its fields there")
            _check_form(name, resource["schema"])
            self._resources[name] = resource

    def schema(self) -> LinkedSchema:
        owners = {name: self._owner(name) for name in self._resources}
        order = self._sort(
            {name: None if key is None else key["reference"]["resource"] for name, key in owners.items()}
        )
        root = order[0]
        self._check_root(root)
        keys = {name: self._primary_key(name) for name in order}
        links: dict[str, Link] = {}
        for name in order[1:]:
            links[name] = self._link(name, owners[name] or {}, root, keys, links)
        tables: dict[str, Schema] = {}
        for name in order:
            tables[name] = self._table(name, keys[name], links.get(name))
            if (link := links.get(name)) is not None:
                tables[name] = _copy_patterns(tables[name], link, tables, keys, root)
        title = self._content.get("title")
        paths = {name: self._path(name) for name in order if "path" in self._resources[name]}
        rows = self._ours.get("rows")
        return LinkedSchema(tables, keys, links, rows, None if title is None else str(title), paths)

    def _path(self, name: str) -> str:
        """Return where a table is. The schema becomes part of the release, which must not show folders and users."""
        path = self._resources[name]["path"]
        ways = [] if not isinstance(path, str) else [PurePosixPath(path), PureWindowsPath(path)]
        if not ways or "://" in path or any(way.anchor or ".." in way.parts for way in ways):
            raise SchemaError(
                f"table {name!r}: `path` must be one file below the folder of the tables, such as {name}.csv, because "
                "releases contain it; give tables that are elsewhere by name when you make a release"
            )
        return str(path)

    def _owner(self, name: str) -> Mapping[str, Any] | None:
        """Return the foreign key that leads to the unit; keys to public tables are ordinary columns."""
        found = []
        for key in self._resources[name]["schema"].get("foreignKeys", []):
            reference = key.get("reference")
            if not isinstance(reference, Mapping) or not isinstance(key.get(OURS, {}), Mapping):
                raise SchemaError(f"table {name!r}: a foreign key has no `reference`; add the table and its fields")
            if key.get(OURS, {}).get("public") is True:
                continue
            target = reference.get("resource")
            if not isinstance(target, str) or target not in self._resources:
                raise SchemaError(
                    f"table {name!r}: a foreign key refers to {target!r}, which is not among the tables; add it, or "
                    f"write `{OURS}: {{public: true}}` if that table is public"
                )
            found.append(key)
        if len(found) > 1:
            owners = " and ".join(repr(key["reference"]["resource"]) for key in found[:2])
            raise SchemaError(
                f"table {name!r} belongs to two tables, {owners}: one row could then belong to two units; keep one "
                "foreign key, and make the other an ordinary column"
            )
        return found[0] if found else None

    def _sort(self, parents: Mapping[str, str | None]) -> list[str]:
        roots = [name for name, parent in parents.items() if parent is None]
        if len(roots) > 1:
            raise SchemaError(
                f"{' and '.join(map(repr, roots))} both have no foreign key: linked tables have one root; add the "
                "foreign key of the other table"
            )
        order = list(roots)
        while len(order) < len(parents):
            more = [name for name, parent in parents.items() if name not in order and parent in order]
            if not more:
                stuck = next(name for name in parents if name not in order)
                raise SchemaError(f"table {stuck!r}: its foreign keys form a circle; the tables must form a tree")
            order += more
        return order

    def _check_root(self, root: str) -> None:
        unit = self._ours.get("privacy_unit")
        if unit is None:
            raise SchemaError(f"`privacy_unit` is not stated; write `{OURS}: {{privacy_unit: {{table: {root}}}}}`")
        if not isinstance(unit, Mapping) or set(unit) != {"table"} or unit["table"] not in list(self._resources):
            raise SchemaError("`privacy_unit` of linked tables is `{table: NAME}`, the table of the protected units")
        if unit["table"] != root:
            raise SchemaError(
                f"`privacy_unit` names {unit['table']!r}, but that table belongs to another one; the root is {root!r}"
            )

    def _primary_key(self, name: str) -> str | None:
        key = self._resources[name]["schema"].get("primaryKey")
        key = key[-1] if isinstance(key, list) and key else key
        return key if isinstance(key, str) else None

    def _link(
        self,
        name: str,
        key: Mapping[str, Any],
        root: str,
        keys: Mapping[str, str | None],
        links: Mapping[str, Link],
    ) -> Link:
        ours, parent = key.get(OURS, {}), key["reference"]["resource"]
        if unknown := [one for one in ours if one not in _LINK_KEYS]:
            raise SchemaError(f"table {name!r}: unknown key `{unknown[0]}`; use {', '.join(sorted(_LINK_KEYS))}")
        if "max_children" not in ours:
            raise SchemaError(
                f"table {name!r}: `max_children` is missing; write `{OURS}: {{max_children: 5}}` in its foreign key "
                f"to limit how many rows of one row of {parent!r} are used"
            )
        if keys[parent] is None:
            raise SchemaError(f"table {parent!r} has no `primaryKey`, but {name!r} refers to it; add it")
        fields, target = _as_list(key.get("fields")), _as_list(key["reference"].get("fields"))
        if len(fields) != len(target) or not fields:
            raise SchemaError(f"table {name!r}: the foreign key needs as many `fields` as it refers to")
        pairs = dict(zip(target, fields, strict=True))
        parent_column = pairs.get(str(keys[parent]))
        if parent_column is None:
            raise SchemaError(f"table {name!r}: its foreign key must refer to {keys[parent]!r}, the key of {parent!r}")
        unit_column: str | None = parent_column
        if parent != root:
            above = links[parent].unit_column
            unit_column = pairs.get(above) if above is not None else None
            if unit_column is None and ours.get("unique") is not True:
                raise SchemaError(
                    f"table {name!r}: refer to both {above!r} and {keys[parent]!r} of {parent!r}, so that a row is "
                    f"found by the unit and its parent; without such a column, declare `{OURS}: {{unique: true}}`: "
                    f"the guarantee then assumes that no two units share a value of {keys[parent]!r}"
                )
        order, keep, strict = _as_list(ours.get("order", [])), ours.get("keep", "first"), ours.get("strict", False)
        if keep not in ("first", "last") or not isinstance(strict, bool):
            raise SchemaError(f"table {name!r}: `keep` is first or last, and `strict` is true or false; correct them")
        down = tuple(one.startswith("-") for one in order)
        named = tuple(one.removeprefix("-") for one in order)
        return Link(parent, unit_column, parent_column, ours["max_children"], named, down, keep, strict)

    def _table(self, name: str, key: str | None, link: Link | None) -> Schema:
        """Return the schema of one table; its key columns get fresh keys unless they are declared otherwise."""
        content = dict(self._resources[name]["schema"])
        for standard in ("primaryKey", "foreignKeys"):
            content.pop(standard, None)
        ours = dict(content.get(OURS, {}))
        if wrong := [one for one in ("privacy_unit", "rows") if one in ours]:
            raise SchemaError(f"table {name!r}: `{wrong[0]}` is stated once, for the whole package; move it there")
        linking = [] if link is None else [link.unit_column, link.parent_column]
        found = dict.fromkeys(one for one in (key, *linking) if one is not None)
        names = [one["name"] for one in content["fields"]]
        if missing := [one for one in found if one not in names]:
            raise SchemaError(f"table {name!r}: {missing[0]!r} is a key but not among its `fields`; add it there")
        content["fields"] = [
            {**one, OURS: {"kind": "id", **one.get(OURS, {})}} if one["name"] in found else one
            for one in content["fields"]
        ]
        content[OURS] = ours | {"privacy_unit": "row"}
        try:
            schema = Schema.from_dict(content)
        except FieldError as error:
            raise SchemaError(f"table {name!r}: {error}") from None
        for one in found:
            if not isinstance(schema.column(one), Identifier):
                raise SchemaError(f"table {name!r}: {one!r} is a key, which is never synthesised; declare `kind: id`")
        if schema.open and link is not None and link.unit_column is None:
            raise SchemaError(
                f"table {name!r}: column {schema.open[0].name!r} is left to discovery, which needs a column with the "
                "root's key in this table; add one, or declare the column's type, bounds or values"
            )
        odd = [column.name for column in schema.columns if column.name.startswith("#")]
        if odd:
            raise SchemaError(f"table {name!r}: rename column {odd[0]!r}; `#` begins the names of numbers of children")
        return replace(schema, keys=tuple(found))


def _copy_patterns(
    schema: Schema, link: Link, tables: Mapping[str, Schema], keys: Mapping[str, str | None], root: str
) -> Schema:
    """Return a table's schema with foreign keys that look like the keys they refer to."""
    patterns: dict[str | None, str | None] = {}
    for column, table in ((link.unit_column, root), (link.parent_column, link.parent)):
        key = tables[table].column(str(keys[table]))
        patterns[column] = key.pattern if isinstance(key, Identifier) else None
    columns = (
        one.model_copy(update={"pattern": patterns[one.name]}) if one.name in patterns else one
        for one in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def _check_form(name: str, schema: Mapping[str, Any]) -> None:
    """Refuse the schema of a table whose parts are not of the kind that the package's reader expects."""
    fields, keys = schema.get("fields"), schema.get("foreignKeys", [])
    if not isinstance(fields, list) or not all(
        isinstance(one, Mapping) and isinstance(one.get("name"), str) and isinstance(one.get(OURS, {}), Mapping)
        for one in fields
    ):
        raise SchemaError(
            f"table {name!r}: `fields` must list columns, each a mapping with its `name` as text; correct them"
        )
    if not isinstance(keys, list) or not all(isinstance(one, Mapping) for one in keys):
        raise SchemaError(
            f"table {name!r}: `foreignKeys` must list keys, each a mapping of `fields` and `reference`; correct them"
        )
    if not isinstance(schema.get(OURS, {}), Mapping):
        raise SchemaError(f"table {name!r}: `{OURS}` must be a mapping of keys; correct it")


def _as_list(given: Any) -> list[str]:
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise SchemaError("the `fields` of keys, and `order`, are columns or lists of columns; correct them")
    return found
