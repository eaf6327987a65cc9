"""Exact counts of coded arrays: many marginals a pass, dense where the table is small, sparse where it is not.

**Privacy.** Counts are exact, hence private. This module only counts; who may ask is decided by `source` and `privacy`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import SchemaError

DENSE_CELLS = 1 << 22
"""Tables of up to this many cells are dense (32 MiB of int64); larger ones are sparse. A fact of the domain alone."""

_LARGEST = np.iinfo(np.int64).max
_GROUP_CELLS = 1 << 24  # a group's accumulators: 64 MiB of int32
_BLOCK_CODES = 1 << 20  # a block's codes: 4 MiB of uint32, so that it stays in a processor's cache
_BLOCK_ROWS = 1 << 16
_SPAN_ROWS = 1 << 30  # rows that an int32 accumulator can hold for certain
_COMPILED_FROM = 1 << 21  # rows x cliques; below it, importing the compiled loop costs more than it saves


@dataclass(frozen=True, eq=False, repr=False)
class SparseCounts:
    """The cells of a large table that hold at least one row.

    Attributes:
        cells: flat indices in C order of the clique as asked, strictly increasing.
        counts: the number of rows of each, positive.
        size: how many cells the whole table has.

    **Privacy.** Which cells occur is as private as the counts; the text form tells the size alone.
    """

    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    size: int

    def __repr__(self) -> str:
        return f"SparseCounts(size={self.size})"

    def dense(self) -> NDArray[np.int64]:
        """The whole table, flat; the caller has checked that `size` fits in memory."""
        table = np.zeros(self.size, np.int64)
        table[self.cells] = self.counts
        return table


Counts: TypeAlias = NDArray[np.int64] | SparseCounts
"""A marginal: dense and flat in C order of the clique as asked, or sparse."""


def marginals(
    codes: Mapping[str, NDArray[Any]],
    domain: Domain,
    cliques: Iterable[Clique],
    *,
    dense_cells: int = DENSE_CELLS,
) -> Iterator[tuple[Clique, Counts]]:
    """Count the cells of each clique, in the order asked; ``()`` counts the rows.

    Everything is checked before the first row is counted. Memory: the coded columns, one group of tables (64 MiB, or
    the largest dense table), and for a sparse table eight bytes a row.

    Args:
        codes: one array of uint8, uint16 or uint32 per column, all of one length, codes ``0 .. size-1``.
        domain: the columns' sizes.
        cliques: what to count; repeats are answered again.
        dense_cells: tables of more cells than this are answered as `SparseCounts`; at most `DENSE_CELLS`.

    **Privacy.** Exact counts. Whether an answer is dense depends on the domain, never on the rows.

    Raises:
        SchemaError: for an unknown column, codes that do not fit the domain, or a table too large to index.

    >>> codes = {"a": np.array([0, 1, 1], np.uint8), "b": np.array([2, 0, 0], np.uint8)}
    >>> [table.tolist() for _, table in marginals(codes, Domain({"a": 2, "b": 3}), [("a",), ("a", "b"), ()])]
    [[1, 2], [0, 0, 1, 2, 0, 0], [3]]
    """
    asked = [domain.check(clique) for clique in cliques]
    cells = {clique: domain.cells(clique) for clique in asked}
    for clique, size in cells.items():
        if size > _LARGEST:
            raise SchemaError(f"clique {clique}: its table has more than 2**63 cells; ask for fewer columns at once")
    rows = _check_codes(codes, domain, {column for clique in cells for column in clique})
    limit = min(dense_cells, DENSE_CELLS)
    return _answer(codes, domain, asked, {clique for clique, size in cells.items() if clique and size <= limit}, rows)


def _check_codes(codes: Mapping[str, NDArray[Any]], domain: Domain, used: set[str]) -> int:
    """The number of rows, after making sure that no code can point outside a table."""
    if not codes:
        raise SchemaError("there are no columns to count; name at least one column in the schema")
    rows = len(next(iter(codes.values())))
    for column in used:
        array = codes.get(column)
        if array is None:
            raise SchemaError(f"column {column!r} has no codes; encode the table with the schema of this domain")
        if array.dtype not in (np.uint8, np.uint16, np.uint32) or array.shape != (rows,):
            raise SchemaError(f"column {column!r}: codes must be flat uint8, uint16 or uint32 arrays of one length")
        if rows and int(array.max()) >= domain[column]:
            raise SchemaError(f"column {column!r} has a code outside 0..{domain[column] - 1}; encode with its schema")
    return rows


def _answer(
    codes: Mapping[str, NDArray[Any]], domain: Domain, asked: list[Clique], dense: set[Clique], rows: int
) -> Iterator[tuple[Clique, Counts]]:
    rank = {column: position for position, column in enumerate(domain)}
    for group in consecutive(asked, lambda c: domain.cells(c) if c in dense else 0, most_cells=_GROUP_CELLS):
        canonical = {clique: tuple(sorted(clique, key=rank.__getitem__)) for clique in group if clique in dense}
        tables: dict[Clique, NDArray[Any]] = {}
        if canonical and _worth_compiling(rows * len(canonical)):
            heads_adjacent = sorted(set(canonical.values()), key=lambda clique: (clique[:-1], clique[-1:]))
            tables = _count_compiled(codes, domain, heads_adjacent, rows)
        for clique in group:
            if not clique:
                yield clique, np.array([rows], np.int64)
            elif clique not in dense:
                yield clique, _count_sparse(codes, domain, clique)
            elif tables:
                yield clique, _reordered(tables[canonical[clique]], canonical[clique], clique, domain)
            else:
                yield clique, np.bincount(_flat_index(codes, domain, clique), minlength=domain.cells(clique))


def consecutive(
    asked: Iterable[Clique], cells: Callable[[Clique], int], *, most_cells: int, most: int = sys.maxsize
) -> Iterator[list[Clique]]:
    """Consecutive cliques that are answered together: at most so many, and so few cells that they fit in memory."""
    group: list[Clique] = []
    total = 0
    for clique in asked:
        size = cells(clique)
        if group and (len(group) == most or total + size > most_cells):
            yield group
            group, total = [], 0
        group.append(clique)
        total += size
    if group:
        yield group


def _worth_compiling(work: int) -> bool:
    """Whether to take the compiled loop: what it saves must pay for its import, unless that is already paid."""
    return work >= _COMPILED_FROM or "understudy._tabulate_kernels" in sys.modules


def _reordered(table: NDArray[Any], canonical: Clique, clique: Clique, domain: Domain) -> NDArray[np.int64]:
    """A copy with its axes as asked: a view would keep the whole group's memory alive."""
    if clique != canonical:
        table = table.reshape(domain.shape(canonical)).transpose([canonical.index(column) for column in clique])
    return table.astype(np.int64, order="C").reshape(-1)


def _count_sparse(codes: Mapping[str, NDArray[Any]], domain: Domain, clique: Clique) -> SparseCounts:
    flat = _flat_index(codes, domain, clique)
    flat.sort()
    starts = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]]) if len(flat) else np.zeros(0, np.int64)
    return SparseCounts(flat[starts], np.diff(starts, append=len(flat)).astype(np.int64), domain.cells(clique))


def _flat_index(codes: Mapping[str, NDArray[Any]], domain: Domain, clique: Clique) -> NDArray[np.int64]:
    flat = codes[clique[0]].astype(np.int64)
    for column in clique[1:]:
        flat *= domain[column]
        flat += codes[column]
    return flat


def _count_compiled(
    codes: Mapping[str, NDArray[Any]], domain: Domain, cliques: Sequence[Clique], rows: int
) -> dict[Clique, NDArray[Any]]:
    """The tables of cliques in the domain's order, as windows on one accumulator; cliques of one head are adjacent."""
    from understudy._tabulate_kernels import count_block

    columns = domain.canonical({column for clique in cliques for column in clique})
    sizes = np.array(domain.shape(columns), np.int64)
    heads, head_starts, lasts, last_starts = _plan(cliques, {column: line for line, column in enumerate(columns)})
    cells = np.array([domain.cells(clique) for clique in cliques], np.int64)
    ends = np.cumsum(cells)
    offsets = ends - cells
    total: NDArray[Any] = np.zeros(int(ends[-1]), np.int32 if rows <= _SPAN_ROWS else np.int64)
    step = max(256, min(_BLOCK_ROWS, rows, _BLOCK_CODES // len(columns)))
    block = np.empty((len(columns), step), np.uint32)
    for span in range(0, rows, _SPAN_ROWS):
        out = total if total.dtype == np.int32 else np.zeros(len(total), np.int32)
        for start in range(span, min(rows, span + _SPAN_ROWS), step):
            stop = min(start + step, rows, span + _SPAN_ROWS)
            for line, column in enumerate(columns):
                block[line, : stop - start] = codes[column][start:stop]
            count_block(block, stop - start, sizes, heads, head_starts, lasts, last_starts, offsets, out)
        if out is not total:
            total += out
    return {
        clique: total[offset:end] for clique, offset, end in zip(cliques, offsets.tolist(), ends.tolist(), strict=True)
    }


def _plan(cliques: Sequence[Clique], line: Mapping[str, int]) -> list[NDArray[np.int64]]:
    """Heads, where each begins, last columns, where each head's begin."""
    heads: list[int] = []
    head_starts, last_starts = [0], list[int]()
    previous: Clique | None = None
    for position, clique in enumerate(cliques):
        if clique[:-1] != previous:
            previous = clique[:-1]
            heads += [line[column] for column in previous]
            head_starts.append(len(heads))
            last_starts.append(position)
    last_starts.append(len(cliques))
    lasts = [line[clique[-1]] for clique in cliques]
    return [np.array(part, np.int64) for part in (heads, head_starts, lasts, last_starts)]
