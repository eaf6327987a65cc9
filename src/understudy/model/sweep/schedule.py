"""Turning a junction tree into plain arrays that the compiled loops can run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.model.kernels.arguments import CROSS, FUSE, MOVE, NORMALISE, RATIO, SPREAD, Schedule
from understudy.model.sweep.crossing import Crossing, Table, crossing_of
from understudy.model.sweep.layout import Layout

_BLOCK, _LARGEST_BLOCK = 32, 1024
_LONGEST_AXIS = 4096  # of several columns: a block of it stays in the processor's nearest memory
_CONTIGUOUS = -1  # in place of a list of offsets


@dataclass
class ScheduleBuilder:
    """Collects steps one by one. Tables may lack a place until the schedule is built.

    Attributes:
        domain: the sizes of columns.
        crossing: whether large cliques may be visited as matrices; the log domain cannot.
        layout: which steps need which table.
    """

    domain: Domain
    crossing: bool
    layout: Layout = field(default_factory=Layout)
    kind: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    bounds: list[tuple[int, ...]] = field(default_factory=list)
    tables: list[list[tuple[int, int, int]]] = field(default_factory=list)
    axes: list[list[int]] = field(default_factory=list)
    jumps: list[list[int]] = field(default_factory=list)
    gather: list[int] = field(default_factory=list)
    plain: list[tuple[int, ...]] = field(default_factory=list)
    _lists: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(default_factory=dict)

    def new(self, columns: Clique) -> Table:
        """A table that has no place yet."""
        return self.layout.new(self.domain.cells(columns)), columns

    def fuse(self, clique: Clique, inputs: Sequence[Table], outputs: Sequence[Table], own: Table | None = None) -> None:
        """Over the cells of `clique`: make every output the sum of the product of the inputs.

        The product itself takes the place of `own`, an input that has all columns of the clique.
        """
        self._use(*inputs, *outputs)
        crossing = crossing_of(self.domain, clique, inputs, outputs) if self.crossing and own is None else None
        if crossing is None:
            self._sweep(FUSE, clique, inputs, outputs, own)
        else:
            self._cross(crossing, inputs, outputs)

    def spread(self, source: Table, target: Table) -> None:
        """Add a table to a larger one that contains its columns; both lie outside the layout."""
        self._sweep(SPREAD, target[1], [source], [target])

    def normalise(self, table: Table) -> int:
        """Make a table add up to one; returns the step, whose sum is kept."""
        self._plain(NORMALISE, [table])
        return len(self.kind) - 1

    def ratio(self, down: Table, up: Table, normalised: int) -> None:
        """Divide a downward table by the upward one, undoing what step `normalised` divided that by; 0/0 is 0."""
        self._plain(RATIO, [down, up], normalised)

    def move(self, target: Table, source: Table) -> None:
        """Copy a table to a place where another was."""
        self._plain(MOVE, [target, source])

    def build(self, places: Mapping[int, int]) -> Schedule:
        """The arrays, with every table in its place."""
        tables = np.array([table for step in self.tables for table in step], np.int64).reshape(-1, 3)
        tables[:, 0] = [places.get(start, start) for start in tables[:, 0].tolist()]
        return Schedule(
            np.array(self.kind, np.int64),
            np.array(self.blocks, np.int64),
            np.array(self.length, np.int64),
            np.array(self.bounds, np.int64).reshape(-1, 5),
            _starts(self.tables),
            tables[:, 0].astype(np.uint64),
            tables[:, 1].astype(np.uint64),
            tables[:, 2].copy(),
            _starts(self.axes),
            np.array([size for step in self.axes for size in step], np.int64),
            _starts(self.jumps),
            np.array([jump for step in self.jumps for jump in step], np.int64).astype(np.uint64),
            np.array(self.gather, np.uint64),
            np.array(self.plain, np.int64).reshape(-1, 5),
        )

    def _use(self, *tables: Table) -> None:
        for start, columns in tables:
            self.layout.use(start, self.domain.cells(columns), len(self.kind))

    def _plain(self, kind: int, tables: Sequence[Table], number: int = 0) -> None:
        self._use(*tables)
        places = [(start, 0, self.domain.cells(columns)) for start, columns in tables]
        self._append(kind, 0, 0, (0,) * 5, places, [], [], (number, 0, 0, 0, 0))

    def _append(self, *step: Any) -> None:
        columns: tuple[list[Any], ...] = (
            *(self.kind, self.blocks, self.length, self.bounds),
            *(self.tables, self.axes, self.jumps, self.plain),
        )
        for column, value in zip(columns, step, strict=True):
            column.append(value)

    def _sweep(
        self,
        kind: int,
        clique: Clique,
        inputs: Sequence[Table],
        outputs: Sequence[Table],
        own: Table | None = None,
    ) -> None:
        tables = [*inputs, *outputs]
        shape = list(self.domain.shape(clique))
        strides = [_strides(self.domain, columns, clique) for _, columns in tables]
        _merge_axes(shape, strides)
        inner = _block_axes(shape)
        outer = len(shape) - inner
        block = tuple(shape[outer:])
        patterns = [_pattern(block, stride[outer:]) for stride in strides]
        order = sorted(range(len(tables)), key=lambda t: (t >= len(inputs), patterns[t]))
        ranks = [(t >= len(inputs)) * 3 + patterns[t] for t in order]
        bounds = tuple(sum(rank <= limit for rank in ranks) for limit in range(5))
        places = [
            (
                tables[t][0],
                self._list(block, strides[t][outer:]) if patterns[t] == 2 else 0,
                self.domain.cells(tables[t][1]),
            )
            for t in order
        ]
        jumps = _jumps(shape[:outer], [strides[t][:outer] for t in order])
        plain = (0 if own is None else 1 + order.index(inputs.index(own)), 0, 0, 0, 0)
        self._append(kind, math.prod(shape[:outer]), math.prod(block), bounds, places, shape[:outer], jumps, plain)

    def _cross(self, crossing: Crossing, inputs: Sequence[Table], outputs: Sequence[Table]) -> None:
        """As `fuse`, one matrix of rows and columns after the other."""
        rows, columns = set(crossing.rows), set(crossing.columns)
        kinds = [(bool(rows & set(mine)) + 2 * bool(columns & set(mine))) for _, mine in (*inputs, *outputs)]
        ranks = [(k >= len(inputs)) * 3 + max(0, kind - 1) for k, kind in enumerate(kinds)]
        order = sorted(range(len(ranks)), key=lambda k: ranks[k])
        tables = [(*inputs, *outputs)[k] for k in order]
        parts = [
            self._axes([mine for _, mine in tables], part)
            for part in (crossing.outer, crossing.inner, crossing.rows, crossing.columns)
        ]
        (outer, far), (inner, near), (x, along), (y, down) = parts
        places = []
        for k, (start, mine) in enumerate(tables):
            kind = ranks[order[k]] % 3
            shape, stride = ((x, along[k]), (y, down[k]), (x + y, along[k] + down[k]))[kind]
            contiguous = math.prod(shape) > 1 and _pattern(tuple(shape), stride) == 1
            listed = _CONTIGUOUS if contiguous else self._list(tuple(shape), stride)
            places.append((start, listed, self.domain.cells(mine)))
        bounds = tuple(sum(rank <= limit for rank in ranks) for limit in range(5))
        sizes = outer + inner
        jumps = _jumps(sizes, [far[k] + near[k] for k in range(len(tables))])
        wide, long = math.prod(x), math.prod(y)
        x4, y4 = -(-wide // 4) * 4, -(-long // 4) * 4
        scratch = 3 * x4 * y4 + 5 * (x4 + y4) + wide * long
        numbers = (wide, long, math.prod(inner), x4, y4)
        self._append(CROSS, math.prod(outer), scratch, bounds, places, sizes, jumps, numbers)

    def _axes(self, tables: Sequence[Clique], columns: Clique) -> tuple[list[int], list[list[int]]]:
        """The sizes of these columns, and how far each table moves along them, joined where possible."""
        shape = list(self.domain.shape(columns))
        strides = [_strides(self.domain, mine, columns) for mine in tables]
        _merge_axes(shape, strides)
        return shape, strides

    def _list(self, block: tuple[int, ...], strides: list[int]) -> int:
        """Where the offsets of a scattered table within a block are listed."""
        key = (block, tuple(strides))
        if key not in self._lists:
            self._lists[key] = len(self.gather)
            steps = np.zeros(block, np.int64)
            for axis, (size, stride) in enumerate(zip(block, strides, strict=True)):
                steps += (np.arange(size) * stride).reshape([-1 if k == axis else 1 for k in range(len(block))])
            self.gather.extend(steps.ravel().tolist())
        return self._lists[key]


def scratch_of(schedule: Schedule) -> tuple[NDArray[np.float64], NDArray[np.uint64], NDArray[np.int64]]:
    """What the loops need beside the workspace: a block of cells, a place for each table, the odometer."""
    return (
        np.empty(int(schedule.length.max(initial=1))),
        np.empty(int(np.diff(schedule.table_at).max(initial=1)), np.uint64),
        np.empty(int(np.diff(schedule.axis_at).max(initial=1)), np.int64),
    )


def _starts(lists: Sequence[Sequence[Any]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, lists)], dtype=np.int64)


def _strides(domain: Domain, columns: Clique, clique: Clique) -> list[int]:
    """How far a table moves along each axis of the clique; 0 along those it lacks."""
    found: dict[str, int] = {}
    step = 1
    for column in reversed(columns):
        found[column] = step
        step *= domain[column]
    return [found.get(column, 0) for column in clique]


def _merge_axes(shape: list[int], strides: list[list[int]]) -> None:
    """Join neighbouring axes that every table either has contiguously or lacks altogether."""
    for d in range(len(shape) - 1, 0, -1):
        joined = shape[d - 1] * shape[d] <= _LONGEST_AXIS
        if joined and all(stride[d - 1] == stride[d] * shape[d] for stride in strides):
            shape[d - 1 : d + 1] = [shape[d - 1] * shape[d]]
            for stride in strides:
                del stride[d - 1]


def _block_axes(shape: list[int]) -> int:
    """How many of the last axes to take as the inner block, so that short axes do not mean short loops."""
    count, length = (1, shape[-1]) if shape else (0, 1)
    while count < len(shape) and length < _BLOCK and length * shape[-count - 1] <= _LARGEST_BLOCK:
        length *= shape[-count - 1]
        count += 1
    return count


def _pattern(block: tuple[int, ...], strides: list[int]) -> int:
    """0: constant within the block, 1: contiguous, 2: anything else."""
    if not any(strides):
        return 0
    contiguous = [math.prod(block[d + 1 :]) for d in range(len(block))]
    return 1 if strides == contiguous else 2


def _jumps(sizes: list[int], strides: list[list[int]]) -> list[int]:
    """What one turn of outer axis `d` adds to each table's place, the faster axes going back to their start."""
    out: list[int] = []
    for d in range(len(sizes)):
        for stride in strides:
            back = sum(stride[k] * (sizes[k] - 1) for k in range(d + 1, len(sizes)))
            out.append(stride[d] - back)
    return out
