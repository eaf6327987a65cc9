"""Linked tables in memory: rows are attached to units and limited once, then counted through flat virtual tables.

**Only a unit's own rows decide about it.** A row is attached by the unit's key and, below the first level, by the key
of its parent within that unit; siblings are ordered and cut by their own values and a keyed hash of them; every row of
a unit in a virtual table has the weight ``floor(2520 / rows of the unit there)``. So adding or removing a unit changes
the weighted counts of one virtual table by at most 2520 in L1, whatever its rows are (docs/proofs/linked.md).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import InputError, SchemaError, SettingError
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import smallest_dtype
from understudy.schema.frames import check_names, column_labels, columns_by_meaning, is_as_written
from understudy.schema.linked import (
    UNITS_PER_ROW,
    Link,
    LinkedSchema,
    VirtualColumn,
    VirtualTable,
    gap_codes,
    order_values,
)
from understudy.source.place import CSV, PARQUET, add_table, source_kind
from understudy.source.protocol import Source, SourceBase
from understudy.source.read import collect_table
from understudy.source.unit import KEY_BYTES, new_key, unit_text
from understudy.tabulate import Counts, SparseCounts, check_cliques, marginals

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """The rows of a table that are used, siblings together and in their order.

    Attributes:
        codes: one array by coded column, `#child` and `#` included once they are known.
        units: the number of each row's unit.
        parents: the place of each row's parent in the parent table; for the root the row's own place.
        numbers: the place of each row among its siblings, from 0.
        keys: the canonical text of each row's own key, where children refer to it.
    """

    codes: dict[str, Array]
    units: NDArray[np.int64]
    parents: NDArray[np.int64]
    numbers: NDArray[np.int64]
    keys: Any = field(default=None)


class LinkedRows:
    """The rows of linked tables, attached, ordered and limited.

    Args:
        frames: a pandas, polars or pyarrow table for each table of the schema.
        schema: what is public about the tables.
        key: the key of the hash that decides between rows, 32 bytes; drawn for this run by default, and never saved.

    **Privacy.** Holds exact codes; its text form reveals neither rows nor their number. Which rows of a unit are used,
    and in which order, depends on the rows of that unit and on the key alone. Contents of rows never raise.

    Raises:
        InputError, SchemaError: for a table that is missing, unknown or no frame, or a missing column.
    """

    def __init__(self, frames: Mapping[str, Any], schema: LinkedSchema, *, key: bytes | None = None) -> None:
        check_tables(frames, schema)
        key = new_key() if key is None else key
        if len(key) != KEY_BYTES:
            raise InputError(f"the key of the hash has {KEY_BYTES} bytes")
        self._schema, self._names = schema, pa.array([], pa.large_string())
        self._rows: dict[str, _Rows] = {}
        # one reading of keys for all tables: a frame's reader may have merged large ones because of other rows
        self._exact = all(map(is_as_written, frames.values()))
        for name in schema.tables:
            self._rows[name] = self._read(name, frames[name], key)
        for name, link in schema.links.items():  # after the caps: a number of children never exceeds its cap
            parents = len(self._rows[link.parent].units)
            counts = np.bincount(self._rows[name].parents, minlength=parents)
            self._rows[link.parent].codes[f"#{name}"] = counts.astype(smallest_dtype(link.max_children + 1))

    def __repr__(self) -> str:
        return f"<LinkedRows of {len(self._rows)} tables>"

    def __reduce__(self) -> str:
        raise InputError("linked rows are private and cannot be written or copied; keep the release instead")

    def source(self, virtual: VirtualTable) -> LinkedSource:
        """Return a virtual table as a `Source`."""
        table = self._rows[virtual.table]
        used = np.arange(len(table.units))
        if virtual.kind != "root":
            used = used[(table.numbers == 0) == (virtual.kind == "first")]
        codes = {column.name: self._column(column, virtual, used) for column in virtual.columns}
        return LinkedSource(virtual, codes, table.units[used])

    def table_codes(self) -> dict[str, tuple[dict[str, Array], NDArray[np.int64], NDArray[np.int64]]]:
        """Return the codes, parents and sibling numbers of each table, for evaluation by the custodian.

        **Privacy.** As private as the rows.
        """
        return {name: (one.codes, one.parents, one.numbers) for name, one in self._rows.items()}

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, name: str, frame: Any, key: bytes) -> _Rows:
        schema, link = self._schema.tables[name], self._schema.links.get(name)
        encoded = schema.encode(frame)
        keep = np.asarray(encoded.keep, np.bool_)
        labels = {str(label): label for label in column_labels(frame)}

        def texts(column: str) -> Any:
            found = unit_text(nw.from_native(frame[labels[column]], series_only=True), exact=self._exact)
            found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
            return found.cast(pa.large_string())

        own = self._schema.keys[name]
        needed = link is None or bool(self._schema.children(name))
        keys: Any = texts(own) if own is not None and needed else None
        if link is None:
            self._names = pc.unique(keys.filter(keep).drop_null())
            parents = units = _find(keys, self._names)
        else:
            units, parents = self._attach(link, texts)
        keep = keep & (parents >= 0) & (units >= 0)
        if keys is not None:
            keep &= np.asarray(keys.is_valid())
        place = np.flatnonzero(keep)
        rows = _Rows(
            {part: codes[place] for part, codes in encoded.codes.items()},
            units[place],
            parents[place],
            np.zeros(len(place), np.int64),
            None if keys is None else keys.take(pa.array(place)),
        )
        values = self._order_values(name, link, frame, place)
        return self._limit(name, link, rows, values, key)

    def _attach(self, link: Link, texts: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the unit and the parent of each row; -1 for rows without one."""
        above = self._rows[link.parent]
        if link.parent == self._schema.root:
            units = _find(texts(link.unit_column), self._names)
            places = np.full(len(self._names) + 1, -1, np.int64)
            places[above.units] = np.arange(len(above.units))
            return units, places[units]
        distinct = pc.unique(above.keys)
        theirs, mine = _find(above.keys, distinct), _find(texts(link.parent_column), distinct)
        if link.unit_column is None:  # the schema declares that the parent's keys are unique over all units
            parents = _match(mine, theirs, valid=mine >= 0)
            units = np.where(parents >= 0, above.units[np.maximum(parents, 0)] if len(above.units) else -1, -1)
            return units, parents
        units, many = _find(texts(link.unit_column), self._names), max(len(distinct), 1)
        pairs = above.units * many + theirs
        return units, _match(units * many + mine, pairs, valid=(units >= 0) & (mine >= 0))

    def _order_values(self, name: str, link: Link | None, frame: Any, place: NDArray[np.int64]) -> list[Array]:
        """Return what siblings are sorted by, most important first."""
        schema, found = self._schema.tables[name], list[Array]()
        order = () if link is None else tuple(zip(link.order, link.descending, strict=True))
        cells, _ = columns_by_meaning(frame, [column for column, _ in order], schema.dialect)
        for column, down in order:
            found += [value[place] for value in order_values(schema, column, cells[column], down=down)]
        return found

    def _limit(self, name: str, link: Link | None, rows: _Rows, values: Sequence[Array], key: bytes) -> _Rows:
        """Remove duplicates, sort siblings, and keep those within the cap."""

        def hashes(groups: NDArray[np.int64], *, keyed: bool) -> NDArray[np.uint64]:
            return self._hash(name, link, rows, values, groups, key, keyed=keyed)

        with_key = bool(rows.keys is not None)
        if link is None or with_key:  # one row for each key of a unit
            groups = rows.units if link is None else _pair_numbers(rows.units, _codes_of(rows.keys))
            rows, values = _take(rows, values, _find_smallest(groups, hashes(groups, keyed=False)))
        if link is None:
            return rows if (np.diff(rows.units) > 0).all() else _take(rows, [], np.argsort(rows.units))[0]
        if link.strict:
            groups = _pair_numbers(rows.parents, rows.codes[link.order[0]])
            rows, values = _take(rows, values, _find_smallest(groups, hashes(groups, keyed=with_key)))
        groups = rows.parents if not values else _pair_numbers(rows.parents, *values)
        place = np.lexsort((hashes(groups, keyed=with_key), *reversed(values), rows.parents))
        rows, _ = _take(rows, [], place)
        starts = np.flatnonzero(np.diff(rows.parents, prepend=-1))
        sizes = np.diff(starts, append=len(rows.parents))
        numbers = np.arange(len(rows.parents)) - np.repeat(starts, sizes)
        left_out = np.maximum(np.repeat(sizes, sizes) - link.max_children, 0) if link.keep == "last" else 0
        numbers = numbers - left_out
        rows, _ = _take(rows, [], inside := np.flatnonzero((numbers >= 0) & (numbers < link.max_children)))
        return _Rows(rows.codes, rows.units, rows.parents, numbers[inside], rows.keys)

    def _hash(
        self,
        name: str,
        link: Link | None,
        rows: _Rows,
        values: Sequence[Array],
        groups: NDArray[np.int64],
        key: bytes,
        *,
        keyed: bool,
    ) -> NDArray[np.uint64]:
        """Return the keyed hash of each row that shares its group with another row, and 0 for all others.

        The text is ``key|root|table|[parent|]own key or codes|ordinal`` in UTF-8; the first 64 bits of its SHA-256 are
        compared. The ordinal numbers rows of a group with equal texts before it, in the order of siblings.
        """
        out = np.zeros(len(groups), np.uint64)
        crowded = np.flatnonzero((np.bincount(groups) > 1)[groups]) if len(groups) else np.zeros(0, np.int64)
        if not len(crowded):
            return out
        crowded = crowded[np.lexsort((*(value[crowded] for value in reversed(values)), groups[crowded]))]
        units = self._names.take(pa.array(rows.units[crowded])).to_pylist()
        texts = list(_own_texts(rows, crowded, keyed=keyed))
        if link is not None and link.parent != self._schema.root:
            above = self._rows[link.parent].keys.take(pa.array(rows.parents[crowded])).to_pylist()
            texts = [f"{parent}|{text}" for parent, text in zip(above, texts, strict=True)]
        mine = groups[crowded]
        starts = np.flatnonzero(np.diff(mine, prepend=-1)).tolist()
        found: list[int] = []
        for start, end in pairwise([*starts, len(mine)]):
            head, ordinals = hashlib.sha256(f"{key.hex()}|{units[start]}|{name}|".encode()), dict[str, int]()
            for text in texts[start:end]:
                ordinals[text] = ordinal = ordinals.get(text, 0) + 1
                one = head.copy()
                one.update(f"{text}|{ordinal}".encode())
                found.append(int.from_bytes(one.digest()[:8], "big"))
        out[crowded] = np.array(found, np.uint64)
        return out

    # -- virtual tables ------------------------------------------------------------------------------------------

    def _column(self, column: VirtualColumn, virtual: VirtualTable, used: NDArray[np.int64]) -> Array:
        """Return the codes of a column of a virtual table, for its rows `used`."""
        table, place = self._rows[virtual.table], used
        if column.role == "first":
            place = used - table.numbers[used]
        elif column.role == "prev":
            place = used - 1
        current = virtual.table
        while current != column.table:
            place = self._rows[current].parents[place]
            current = self._schema.links[current].parent
        rows, size = self._rows[current], virtual.schema.domain[column.name]
        if column.part == "#" and column.groups is not None:
            codes: Array = column.groups[np.minimum(rows.numbers[place], len(column.groups) - 1)]
        elif column.gap:
            declared = self._schema.tables[current].column(column.part)
            assert isinstance(declared, AxisColumn)  # noqa: S101 - only these have gaps
            codes = code_gaps(
                rows.codes[column.part][place], rows.codes[column.part][place - 1], declared.ordinary, declared.size
            )
        else:
            codes = rows.codes[column.part][place]
            codes = codes if column.groups is None else column.groups[codes]
        return codes.astype(smallest_dtype(size))


def code_gaps(codes: Array, before: Array, ordinary: int, size: int) -> NDArray[np.int64]:
    """Return the code of the distance of each code from the one before; the last code where one of them is missing."""
    edges = gap_codes(size)
    codes, before = codes.astype(np.int64), before.astype(np.int64)
    found = np.searchsorted(edges[:-1], np.maximum(codes - before, 0), side="right") - 1
    return np.where((codes < ordinary) & (before < ordinary), found, len(edges) - 1)


class LinkedSource(SourceBase):
    """A virtual table as a `Source`: counts are sums of weights, in parts of 1/2520 of a unit (for the root: units).

    **Privacy.** A unit with m rows gives each floor(2520 / m): one unit changes each marginal by at most 2520 in L1.
    """

    __slots__ = ("__parts", "table")

    def __init__(self, virtual: VirtualTable, codes: dict[str, Array], units: NDArray[np.int64]) -> None:
        super().__init__(virtual.schema)
        self.table = virtual.name
        weights = weights_of(units) if virtual.kind != "root" else np.ones(len(units), np.int64)
        self.__parts: list[tuple[int, dict[str, Array]]] = []
        for weight in np.unique(weights).tolist() or [1]:
            rows = np.flatnonzero(weights == weight)
            self.__parts.append((weight, {name: column[rows] for name, column in codes.items()}))

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact weighted counts of each clique's cells, in the order requested."""
        wanted = check_cliques(cliques, self.domain)
        return self._counts(wanted)

    def _counts(self, cliques: list[Clique]) -> Iterator[tuple[Clique, Counts]]:
        weights = [weight for weight, _ in self.__parts]
        parts = [marginals(codes, self.domain, cliques) for _, codes in self.__parts]
        for found in zip(*parts, strict=True):
            yield found[0][0], _weighted_sum(weights, [counts for _, counts in found])


def weights_of(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the weight of each row: its unit's 2520 parts divided by the number of the unit's rows, rounded down."""
    if not len(units):
        return np.zeros(0, np.int64)
    return (UNITS_PER_ROW // np.maximum(np.bincount(units), 1))[units]


def _weighted_sum(weights: Sequence[int], counts: Sequence[Counts]) -> Counts:
    if not isinstance(counts[0], SparseCounts):
        total = np.zeros(len(counts[0]), np.int64)
        for weight, one in zip(weights, counts, strict=True):
            assert not isinstance(one, SparseCounts)  # noqa: S101 - depends on the domain alone
            total += weight * one
        return total
    sparse = [one for one in counts if isinstance(one, SparseCounts)]
    cells = np.concatenate([one.cells for one in sparse])
    values = np.concatenate([weight * one.counts for weight, one in zip(weights, sparse, strict=True)])
    distinct, place = np.unique(cells, return_inverse=True)
    summed = np.bincount(place, values, minlength=len(distinct)).astype(np.int64)
    return SparseCounts(distinct, summed, counts[0].size)


def check_tables(frames: Any, schema: LinkedSchema) -> None:
    """Check that there is a frame for each table, with its columns; reads no row.

    Raises:
        InputError, SchemaError: naming the table and the column.
    """
    if not isinstance(frames, Mapping):
        raise InputError("linked tables are given by name, such as {'patients': frame, 'visits': frame}")
    for name in schema.tables:
        if name not in frames:
            raise InputError(f"table {name!r} is missing; give one for each of {', '.join(schema.tables)}")
    if unknown := [str(name) for name in frames if name not in schema.tables]:
        raise InputError(f"table {unknown[0]!r} is not in the schema; its tables are {', '.join(schema.tables)}")
    for name, one in schema.tables.items():
        _check_columns(name, [str(label) for label in column_labels(frames[name])], one)


def _check_columns(name: str, columns: list[str], schema: Schema) -> None:
    try:
        check_names(columns, schema.needs)
    except SchemaError as error:
        raise SchemaError(f"table {name!r}: {error}") from None


# -- Where the tables are --------------------------------------------------------------------------------------------


_ENDINGS = (*PARQUET, *CSV)


def find_tables(data: Any, schema: LinkedSchema) -> dict[str, Any]:
    """Return where each table is.

    Args:
        data: frames, paths and URLs by name; or a folder with a file for each table; or the URL of a PostgreSQL
            database, whose tables have the names of the schema's.
        schema: the tables.

    Raises:
        InputError: naming the table that is missing.
    """
    if isinstance(data, Mapping):
        missing = [name for name in schema.tables if name not in data]
        if missing:
            raise InputError(f"table {missing[0]!r} is missing; give one for each of {', '.join(schema.tables)}")
        if unknown := [str(name) for name in data if name not in schema.tables]:
            raise InputError(f"table {unknown[0]!r} is not in the schema; its tables are {', '.join(schema.tables)}")
        return {name: data[name] for name in schema.tables}
    if isinstance(data, str) and source_kind(data) in ("postgresql", "duckdb"):
        return {name: add_table(data, name) for name in schema.tables}
    if not isinstance(data, str | os.PathLike) or not Path(data).is_dir():
        raise InputError(
            "linked tables are given by name, such as {'patients': frame, 'visits': frame}, as a folder with one "
            "file for each table, or as the URL of a database"
        )
    return {name: _find_file(Path(data), name, schema.paths.get(name)) for name in schema.tables}


def _find_file(folder: Path, name: str, declared: str | None) -> str:
    named = [declared] if declared is not None else [f"{name}{ending}" for ending in _ENDINGS]
    found = [folder / one for one in named if (folder / one).exists()]
    if len(found) != 1:
        what = f"{named[0]} or " if declared else ""
        raise InputError(f"{folder}: give one file for table {name!r}, {what}such as {name}.csv or {name}.parquet")
    return str(found[0])


def check_places(tables: Mapping[str, Any]) -> None:
    """Check that all tables are in one place where linked rows can be counted; reads no row.

    Raises:
        SettingError, InputError: naming the table.
    """
    homes = {name: source_kind(one) for name, one in tables.items()}
    for name, home in homes.items():
        if home == "ibis":
            raise SettingError(
                f"table {name!r}: linked tables cannot be Ibis tables; give PostgreSQL's URL, Spark's table, or files"
            )
        if home == "file" and not Path(tables[name]).exists():
            raise InputError(f"table {name!r}: {tables[name]}: no such file; check the path")
    for engine, words in (("postgresql", "PostgreSQL"), ("spark", "Spark")):
        if engine in homes.values() and set(homes.values()) != {engine}:
            other = next(name for name, home in homes.items() if home != engine)
            raise SettingError(
                f"table {other!r}: some of the linked tables are in {words}, which rows must not leave; put all of "
                "them there, or export all to files"
            )


@dataclass(frozen=True, repr=False)
class OpenTables:
    """Linked tables that were opened.

    Attributes:
        rows: encodes and limits the rows by a schema, where they are.
        each: the frame or address of each table by itself.
    """

    rows: Callable[[LinkedSchema], LinkedTables]
    each: Mapping[str, Any]


@contextmanager
def open_tables(tables: Mapping[str, Any], schema: LinkedSchema, *, key: bytes | None = None) -> Iterator[OpenTables]:
    """Open linked tables and check their columns.

    Raises:
        InputError, SchemaError: naming the table and what is wrong.
    """
    home = source_kind(next(iter(tables.values())))
    if home not in ("postgresql", "spark"):
        frames = read_tables(tables, schema)
        yield OpenTables(lambda complete: LinkedRows(frames, complete, key=key), frames)
        return
    from understudy.source.linked_engine import LinkedEngine, LinkedSession
    from understudy.source.postgres import PostgresTables
    from understudy.source.spark import SparkTables

    session: LinkedSession
    session = PostgresTables(tables) if home == "postgresql" else SparkTables(tables, schema.tables)
    try:
        for name, one in schema.tables.items():
            _check_columns(name, [column for column, _ in session.tables[name].cells], one)
        yield OpenTables(lambda complete: LinkedEngine(session, complete, key=key), tables)
    finally:
        session.close()


class LinkedTables(Protocol):
    """Linked tables whose virtual tables can be counted."""

    def source(self, virtual: VirtualTable) -> Source:
        """Return a virtual table as a `Source`."""
        ...


def read_tables(tables: Mapping[str, Any], schema: LinkedSchema) -> dict[str, Any]:
    """Read all tables into memory and check their columns.

    Raises:
        InputError, SchemaError: naming the table and what is wrong.
    """
    frames = {name: collect_table(tables[name], schema.tables[name]) for name in schema.tables}
    check_tables(frames, schema)
    return frames


# -- Small pieces on arrays ----------------------------------------------------------------------------------------


def _find(texts: Any, names: Any) -> NDArray[np.int64]:
    """Return the place of each text among distinct names; -1 for nulls and unknown ones."""
    return np.asarray(pc.fill_null(pc.index_in(texts, value_set=names, skip_nulls=True), -1), np.int64)


def _match(wanted: NDArray[np.int64], keys: NDArray[np.int64], *, valid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the place of each wanted number among keys; -1 where there is none."""
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted)
    found = valid & (place < len(keys))
    found[found] = keys[order[place[found]]] == wanted[found]
    out = np.full(len(wanted), -1, np.int64)
    out[found] = order[place[found]]
    return out


def _codes_of(texts: Any) -> NDArray[np.int64]:
    return np.asarray(pc.dictionary_encode(texts).indices, np.int64)


def _pair_numbers(first: Array, *rest: Array) -> NDArray[np.int64]:
    """Return a number for each distinct combination."""
    numbers = np.asarray(first, np.int64)
    for other in rest:
        _, place = np.unique(other, return_inverse=True)
        _, numbers = np.unique(numbers * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    return numbers


def _take(rows: _Rows, values: Sequence[Array], place: NDArray[np.int64]) -> tuple[_Rows, list[Array]]:
    kept = _Rows(
        {name: codes[place] for name, codes in rows.codes.items()},
        rows.units[place],
        rows.parents[place],
        rows.numbers[place],
        None if rows.keys is None else rows.keys.take(pa.array(place)),
    )
    return kept, [value[place] for value in values]


def _find_smallest(groups: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the place of the row with the smallest hash of each group, in ascending order."""
    order = np.lexsort((hashes, groups))
    first = np.diff(groups[order], prepend=-1) != 0
    return np.sort(order[first])


def _own_texts(rows: _Rows, place: NDArray[np.int64], *, keyed: bool) -> Iterator[str]:
    """Return the own key of each row, or its codes."""
    if keyed:
        return iter(rows.keys.take(pa.array(place)).to_pylist())
    columns = (codes[place].tolist() for codes in rows.codes.values())
    return (",".join(map(str, row)) for row in zip(*columns, strict=True))
