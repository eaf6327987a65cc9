"""Exact marginals of coded arrays: many cliques in one pass, dense for small tables and sparse for large ones.

**Privacy.** The counts are exact and therefore private. This module only counts; the gate decides what may leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import SchemaError

DENSE_CELLS = 1 << 22
"""Tables of up to this many cells are dense (32 MiB of int64), larger ones sparse; the rows have no influence."""

_LARGEST = np.iinfo(np.int64).max
_GROUP_CELLS = 1 << 24  # a group's accumulators: 64 MiB of int32
_BLOCK_CODES = 1 << 20  # a block's codes: 4 MiB of uint32, so that it stays in a processor's cache
_BLOCK_ROWS = 1 << 16
_SPAN_ROWS = 1 << 30  # rows that an int32 accumulator can hold for certain
_COMPILED_FROM = 1 << 21  # rows x cliques; below it, importing numba costs more than the compiled loop saves


@dataclass(frozen=True, eq=False, repr=False)
class SparseCounts:
    """The cells of a large table that hold at least one row.

    Attributes:
        cells: flat indices in C order of the clique as requested, strictly increasing.
        counts: the number of rows in each of these cells, positive.
        size: number of cells of the whole table.

    **Privacy.** Which cells occur is as private as the counts; `repr` shows only the size.
    """

    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    size: int

    def __repr__(self) -> str:
        return f"SparseCounts(size={self.size})"

    def dense(self) -> NDArray[np.int64]:
        """Return the whole table, flat; the caller has checked that `size` cells fit in memory."""
        table = np.zeros(self.size, np.int64)
        table[self.cells] = self.counts
        return table


Counts: TypeAlias = NDArray[np.int64] | SparseCounts
"""A marginal: dense and flat in C order of the clique as requested, or sparse."""


def to_dense(counts: Counts) -> NDArray[np.int64]:
    """Return the whole table, flat; the caller has checked that it fits in memory."""
    return counts.dense() if isinstance(counts, SparseCounts) else counts


def marginals(
    codes: Mapping[str, NDArray[Any]],
    domain: Domain,
    cliques: Iterable[Clique],
    *,
    dense_cells: int = DENSE_CELLS,
) -> Iterator[tuple[Clique, Counts]]:
    """Count the cells of each clique, in the given order; ``()`` counts the rows.

    Everything is checked before the first row is counted. Memory: the coded columns, one group of tables (64 MiB, or
    the largest dense table), and for a sparse table eight bytes a row.

    Args:
        codes: one array of uint8, uint16 or uint32 per column, all of one length, codes ``0 .. size-1``.
        domain: the columns' sizes.
        cliques: what to count; a repeated clique is counted again.
        dense_cells: tables of more cells than this are returned as `SparseCounts`; at most `DENSE_CELLS`.

    **Privacy.** Exact counts. Whether a table is dense depends on the domain, never on the rows.

    Raises:
        SchemaError: for an unknown column, codes that do not fit the domain, or a table too large to index.

    >>> codes = {"a": np.array([0, 1, 1], np.uint8), "b": np.array([2, 0, 0], np.uint8)}
    >>> [table.tolist() for _, table in marginals(codes, Domain({"a": 2, "b": 3}), [("a",), ("a", "b"), ()])]
    [[1, 2], [0, 0, 1, 2, 0, 0], [3]]
    """
    requested = check_cliques(cliques, domain)
    cells = {clique: domain.cells(clique) for clique in requested}
    rows = _check_codes(codes, domain, {column for clique in cells for column in clique})
    limit = min(dense_cells, DENSE_CELLS)
    return _count(
        codes, domain, requested, {clique for clique, size in cells.items() if clique and size <= limit}, rows
    )


def check_cliques(cliques: Iterable[Clique], domain: Domain) -> list[Clique]:
    """Return the cliques if all of them can be counted.

    Raises:
        SchemaError: for an unknown column or a table too large to index.
    """
    requested = [domain.check(clique) for clique in cliques]
    for clique in requested:
        if domain.cells(clique) > _LARGEST:
            raise SchemaError(f"clique {clique}: its marginal has more than 2**63 cells; use fewer columns")
    return requested


def _check_codes(codes: Mapping[str, NDArray[Any]], domain: Domain, used: set[str]) -> int:
    """Check that no code can point outside a table; returns the number of rows."""
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


def _count(
    codes: Mapping[str, NDArray[Any]], domain: Domain, requested: list[Clique], dense: set[Clique], rows: int
) -> Iterator[tuple[Clique, Counts]]:
    rank = {column: position for position, column in enumerate(domain)}
    for group in group_cliques(requested, lambda c: domain.cells(c) if c in dense else 0, most_cells=_GROUP_CELLS):
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
                yield clique, _reorder(tables[canonical[clique]], canonical[clique], clique, domain)
            else:
                yield clique, np.bincount(_flat_index(codes, domain, clique), minlength=domain.cells(clique))


def group_cliques(
    cliques: Iterable[Clique], cells: Callable[[Clique], int], *, most_cells: int, most: int = sys.maxsize
) -> Iterator[list[Clique]]:
    """Group consecutive cliques to be counted together: at most `most` cliques and `most_cells` cells in a group."""
    group: list[Clique] = []
    total = 0
    for clique in cliques:
        size = cells(clique)
        if group and (len(group) == most or total + size > most_cells):
            yield group
            group, total = [], 0
        group.append(clique)
        total += size
    if group:
        yield group


def _worth_compiling(work: int) -> bool:
    """Return whether the compiled loop saves more time than importing numba takes, if numba was not needed before."""
    return work >= _COMPILED_FROM or compile_count_block.cache_info().currsize > 0


def _reorder(table: NDArray[Any], canonical: Clique, clique: Clique, domain: Domain) -> NDArray[np.int64]:
    """Copy a table with its axes in the order of the clique; a view would keep the memory of the whole group alive."""
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
    """Count cliques in the domain's order into windows of one accumulator; cliques with the same head are adjacent."""
    count_block = compile_count_block()
    columns = domain.canonical({column for clique in cliques for column in clique})
    sizes = np.array(domain.shape(columns), np.int64)
    heads, head_starts, lasts, last_starts = _plan(cliques, {column: line for line, column in enumerate(columns)})
    cells = np.array([domain.cells(clique) for clique in cliques], np.int64)
    ends = np.cumsum(cells)
    offsets = ends - cells
    total: NDArray[Any] = np.zeros(int(ends[-1]), np.int32 if rows <= _SPAN_ROWS else np.int64)
    step = max(256, min(_BLOCK_ROWS, rows, _BLOCK_CODES // len(columns)))
    block, code = np.empty((len(columns), step), np.uint32), np.empty(step, np.uint32)
    for span in range(0, rows, _SPAN_ROWS):
        out = total if total.dtype == np.int32 else np.zeros(len(total), np.int32)
        for start in range(span, min(rows, span + _SPAN_ROWS), step):
            stop = min(start + step, rows, span + _SPAN_ROWS)
            for line, column in enumerate(columns):
                block[line, : stop - start] = codes[column][start:stop]
            count_block(block, stop - start, sizes, heads, head_starts, lasts, last_starts, offsets, out, code)
        if out is not total:
            total += out
    return {
        clique: total[offset:end] for clique, offset, end in zip(cliques, offsets.tolist(), ends.tolist(), strict=True)
    }


def _plan(cliques: Sequence[Clique], line: Mapping[str, int]) -> list[NDArray[np.int64]]:
    """Return the arguments `heads`, `head_starts`, `lasts` and `last_starts` of `_count_block`."""
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


# The compiled loop: one function for every clique, so nothing is compiled per request.


@cache
def compile_count_block() -> Callable[..., None]:
    """Return `_count_block` as compiled by numba, which takes most of a second to import.

    The explicit signature compiles the loop once on a machine; later processes read it from numba's cache.
    """
    import numba

    signature = (
        "void(uint32[:,::1], int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
        "int32[::1], uint32[::1])"
    )
    options: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False, "no_cfunc_wrapper": True}
    return cast(Callable[..., None], numba.njit([signature], **options)(_count_block))


def _count_block(
    block: NDArray[np.uint32],
    rows: int,
    sizes: NDArray[np.int64],
    heads: NDArray[np.int64],
    head_starts: NDArray[np.int64],
    lasts: NDArray[np.int64],
    last_starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.int32],
    code: NDArray[np.uint32],
) -> None:
    """Add one block of rows to the tables of many cliques.

    A clique is a *head* (all columns but the last) and a *last* column. Cliques with the same head share its flat
    index, and four of them are counted in one loop: four independent tables keep the processor from waiting on
    the previous addition to the same cell.

    The caller guarantees that every code is below its column's size and every table below 2**31 cells: the indices
    are 32 bits wide and no bounds are checked here.

    Args:
        block: codes, one line per column.
        rows: how many entries of each line are filled.
        sizes: the number of codes of each line's column.
        heads: lines of `block` forming the heads, one head after another.
        head_starts: where each head begins in `heads`; one more entry than heads.
        lasts: the last column of each clique, grouped by head.
        last_starts: where each head's cliques begin in `lasts`; one more entry than heads.
        offsets: where each clique's table begins in `out`.
        out: all tables, one after another; added to.
        code: room for the heads' flat indices, at least `rows` long (making arrays is slow to compile).
    """
    for h in range(head_starts.size - 1):
        for i in range(rows):
            code[i] = np.uint32(0)
        for j in range(head_starts[h], head_starts[h + 1]):
            column, size = block[heads[j]], np.uint32(sizes[heads[j]])
            for i in range(rows):
                code[i] = code[i] * size + column[i]
        q, end = last_starts[h], last_starts[h + 1]
        while q + 4 <= end:
            a, b, c, d = block[lasts[q]], block[lasts[q + 1]], block[lasts[q + 2]], block[lasts[q + 3]]
            size_a, size_b = np.uint32(sizes[lasts[q]]), np.uint32(sizes[lasts[q + 1]])
            size_c, size_d = np.uint32(sizes[lasts[q + 2]]), np.uint32(sizes[lasts[q + 3]])
            out_a, out_b = out[offsets[q] :], out[offsets[q + 1] :]
            out_c, out_d = out[offsets[q + 2] :], out[offsets[q + 3] :]
            for i in range(rows):
                x = code[i]
                out_a[np.uint32(x * size_a + a[i])] += 1
                out_b[np.uint32(x * size_b + b[i])] += 1
                out_c[np.uint32(x * size_c + c[i])] += 1
                out_d[np.uint32(x * size_d + d[i])] += 1
            q += 4
        while q < end:
            a, size_a, out_a = block[lasts[q]], np.uint32(sizes[lasts[q]]), out[offsets[q] :]
            for i in range(rows):
                out_a[np.uint32(code[i] * size_a + a[i])] += 1
            q += 1
