"""The schedule of belief propagation on a junction tree: the order of the steps, and where tables lie in memory.

`make_steps` turns a junction tree into a `Schedule` of plain arrays, which the compiled loops of
`kernels/propagation.py` run. Three decisions keep the steps fast and the workspace small: tables of a large clique are
multiplied in groups (`group_tables`), large cliques are visited as matrices where that is cheaper (`find_crossing`),
and tables that are never needed at the same time share their place (`Layout`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.model.junction_tree import JunctionTree
from understudy.model.kernels.arguments import CROSS, FUSE, MOVE, NORMALISE, RATIO, SPREAD, Schedule

TablePlace: TypeAlias = tuple[int, Clique]
"""A table of the workspace: its start, and its columns in the engine's order."""


# The steps of belief propagation


@dataclass(frozen=True)
class Arrangement:
    """The order of the tables in a vector of potentials or marginals: maximal ones, then those contained in them.

    Attributes:
        tables: their cliques, in the engine's column order.
        starts: where each table begins; one entry more than there are tables.
        factors: number of maximal tables.
        hosts: for each contained table, the smallest table that contains it.
        room: where the marginals begin in the workspace: behind the exponentiated potentials of the maximal tables if
            these are needed afterwards, otherwise in their place.
    """

    tables: tuple[Clique, ...]
    starts: NDArray[np.int64]
    factors: int
    hosts: dict[int, int]
    room: int

    @classmethod
    def of(cls, tree: JunctionTree, cliques: set[Clique], *, keep_potentials: bool) -> Arrangement:
        """Arrange cliques, larger tables first so that hosts come before the tables they contain.

        With `keep_potentials` the marginals lie behind the potentials, otherwise they overwrite them.
        """
        cells = tree.domain.cells
        by_size = sorted(cliques, key=lambda c: (-cells(c), len(c), c))
        sets = [frozenset(clique) for clique in by_size]
        hosts = [[k for k, other in enumerate(sets) if mine < other] for mine in sets]
        maximal = [i for i, above in enumerate(hosts) if not above]
        contained = [i for i, above in enumerate(hosts) if above]
        order = maximal + contained
        place = {i: k for k, i in enumerate(order)}
        tables = tuple(by_size[i] for i in order)
        starts = np.cumsum([0, *(cells(clique) for clique in tables)], dtype=np.int64)
        holders = {place[i]: place[max(hosts[i])] for i in contained}
        return cls(tables, starts, len(maximal), holders, int(starts[len(maximal)]) if keep_potentials else 0)

    @property
    def maximal(self) -> int:
        """Number of cells of the maximal tables."""
        return int(self.starts[self.factors])

    def table(self, number: int) -> TablePlace:
        """Return a table's place in a vector of potentials; for a maximal table also its place in the workspace."""
        return int(self.starts[number]), self.tables[number]

    def marginal(self, number: int) -> TablePlace:
        """Return a table of marginals in the workspace."""
        return self.room + int(self.starts[number]), self.tables[number]


class PropagationSteps(NamedTuple):
    """A schedule with the facts that `Propagation` needs about it.

    Attributes:
        schedule: first the steps that fold potentials, in a vector of potentials; then all others, in the workspace.
        folding: number of folding steps.
        normalisers: the steps whose sums make up the partition function.
        inputs: for each tree clique the tables whose product is its belief, after the last step.
        end: length of the workspace.
    """

    schedule: Schedule
    folding: int
    normalisers: NDArray[np.int64]
    inputs: list[list[TablePlace]]
    end: int


def make_steps(tree: JunctionTree, arranged: Arrangement, *, crossing: bool) -> PropagationSteps:
    """Make the steps: fold potentials, send messages to the root and back, sum out contained tables.

    Args:
        tree: the junction tree.
        arranged: which marginals are wanted, and whether the inputs are kept; if not, other tables overwrite them.
        crossing: whether large cliques may be visited as matrices.
    """
    builder = ScheduleBuilder(tree.domain, crossing)
    for table, host in reversed(arranged.hosts.items()):
        builder.spread(arranged.table(table), arranged.table(host))
    folding = len(builder.kind)
    homes = [tree.home(clique) for clique in arranged.tables[: arranged.factors]]
    mine = [[t for t, home in enumerate(homes) if home == i] for i in range(len(tree.cliques))]
    for start, columns in map(arranged.table, range(arranged.factors)):
        builder.layout.add_given(start, tree.domain.cells(columns))
    up = [builder.new(tree.separator(i)) for i in range(len(tree.cliques))]
    down = [builder.new(tree.separator(i)) for i in range(len(tree.cliques))]
    children = [tree.children(i) for i in range(len(tree.cliques))]
    inputs = [[*map(arranged.table, mine[i]), *(up[child] for child in children[i])] for i in range(len(tree.cliques))]
    normalised: dict[int, int] = {}
    for i in range(len(tree.cliques) - 1, -1, -1):
        inputs[i] = _group_inputs(builder, tree.cliques[i], inputs[i])
        if i:
            builder.fuse(tree.cliques[i], inputs[i], [up[i]])
            normalised[i] = builder.normalise(up[i])
    for i, clique in enumerate(tree.cliques):
        if i:
            builder.ratio(down[i], up[i], normalised[i])
            inputs[i].append(down[i])
        below = [down[child] for child in children[i]]
        if arranged.room:
            _sum_out(builder, clique, inputs[i], [*map(arranged.marginal, mine[i]), *below])
        else:
            _sum_in_place(builder, clique, inputs[i], [*map(arranged.table, mine[i])], below)
    for host in sorted(set(arranged.hosts.values())):
        inside = [arranged.marginal(table) for table, holder in arranged.hosts.items() if holder == host]
        _sum_out(builder, arranged.tables[host], [arranged.marginal(host)], inside)
    wanted = [arranged.marginal(table) for table in range(len(arranged.tables))]
    for start, _ in [*wanted, *(table for several in inputs if arranged.room for table in several)]:
        builder.layout.keep(start)
    places, end = builder.layout.decide_places()
    placed = [[(places[start], columns) for start, columns in several] for several in inputs]
    return PropagationSteps(builder.build(places), folding, np.array(list(normalised.values()), np.int64), placed, end)


def _group_inputs(builder: ScheduleBuilder, clique: Clique, inputs: list[TablePlace]) -> list[TablePlace]:
    """Multiply groups of inputs on smaller cliques first; returns fewer inputs with the same product."""
    groups, found = group_tables(builder.domain, clique, inputs)
    for smaller, members in groups:
        product = builder.new(smaller)
        builder.fuse(smaller, _group_inputs(builder, smaller, members), [product])
        found.append(product)
    return found


def _sum_in_place(
    builder: ScheduleBuilder, clique: Clique, inputs: list[TablePlace], mine: list[TablePlace], others: list[TablePlace]
) -> None:
    """Sum a clique's product into `others`, and into its own tables, which it overwrites."""
    own = next((table for table in mine if table[1] == clique), None)
    sums = [(table, builder.new(table[1])) for table in mine if table is not own]
    _sum_out(builder, clique, inputs, [*(new for _, new in sums), *others], own)
    for table, new in sums:
        builder.move(table, new)


def _sum_out(
    builder: ScheduleBuilder,
    clique: Clique,
    inputs: list[TablePlace],
    outputs: list[TablePlace],
    own: TablePlace | None = None,
) -> None:
    """Sum a clique's product into many outputs, groups of them by way of a smaller clique."""
    if not outputs and own is None:
        return
    groups, direct = group_tables(builder.domain, clique, outputs)
    sums = [(builder.new(smaller), members) for smaller, members in groups]
    builder.fuse(clique, inputs, [*direct, *(table for table, _ in sums)], own)
    for table, members in sums:
        _sum_out(builder, table[1], [table], members)


# Groups of tables that are multiplied or summed on a smaller clique

_LARGE = 4096  # cells of a clique from which grouping and crossing can pay
_SMALLER = 5  # a group's clique must have at most a fifth of the cells


def group_tables(
    domain: Domain, clique: Clique, tables: Sequence[TablePlace]
) -> tuple[list[tuple[Clique, list[TablePlace]]], list[TablePlace]]:
    """Group tables that lack a long column, each group with the smaller clique of its columns.

    The time of a step is cells times tables. Tables that lack a long column can be multiplied first on the clique
    without that column (or, as outputs, be summed from it afterwards), at a fraction of the cost.

    Returns:
        The groups, and the tables that are in no group.
    """
    groups: list[tuple[Clique, list[TablePlace]]] = []
    rest = list(tables)
    if domain.cells(clique) >= _LARGE:
        for column in sorted(clique, key=lambda c: -domain[c]):
            members = [table for table in rest if column not in table[1]]
            columns = {c for _, mine in members for c in mine}
            smaller = tuple(c for c in clique if c in columns)
            if len(members) > 1 and _SMALLER * domain.cells(smaller) <= domain.cells(clique):
                groups.append((smaller, members))
                rest = [table for table in rest if column in table[1]]
    return groups, rest


# Memory: where tables lie in the workspace

_EVER = 2**62


@dataclass
class Layout:
    """Places of tables in the workspace. Tables that are never needed at the same step may share a place.

    A table is known by a number: its place if that is given, or a negative number while the place is not decided.
    """

    _stays: dict[int, _Stay] = field(default_factory=dict)

    def add_given(self, number: int, cells: int) -> None:
        """Add a table that exists before the first step."""
        self._stays[number] = _Stay(cells, -1, -1, number)

    def new(self, cells: int) -> int:
        """Add a table whose place is not decided; returns its number."""
        number = -len(self._stays) - 1
        self._stays[number] = _Stay(cells, _EVER, -1, None)
        return number

    def use(self, number: int, cells: int, step: int) -> None:
        """Note that a step reads or writes a table; steps come in order."""
        stay = self._stays.setdefault(number, _Stay(cells, step, step, number))
        stay.first, stay.last = min(stay.first, step), max(stay.last, step)

    def keep(self, number: int) -> None:
        """Note that a table is needed after the last step."""
        self._stays[number].last = _EVER

    def decide_places(self) -> tuple[dict[int, int], int]:
        """Decide all places, the largest table first, each as low as possible; returns places and end of the workspace.

        **Guarantees.** Tables that are needed at the same step do not overlap, unless their given places do.
        """
        stays = sorted(self._stays.values(), key=lambda stay: (stay.start is None, -stay.cells))
        taken = np.empty((len(stays), 4), np.int64)
        for count, stay in enumerate(stays):
            if stay.start is None:
                first, last, starts, ends = taken[:count].T
                overlapping = (first <= stay.last) & (last >= stay.first)
                stay.start = _lowest_place(starts[overlapping], ends[overlapping], stay.cells)
            taken[count] = stay.first, stay.last, stay.start, stay.start + stay.cells
        places = {number: stay.start or 0 for number, stay in self._stays.items()}
        return places, int(taken[:, 3].max(initial=0))


@dataclass
class _Stay:
    """The first and last step that need a table, both included, and its place (None while not decided)."""

    cells: int
    first: int
    last: int
    start: int | None


def _lowest_place(starts: NDArray[np.int64], ends: NDArray[np.int64], cells: int) -> int:
    """Return the lowest place for this many cells that overlaps no interval."""
    order = np.argsort(starts)
    reached = np.maximum.accumulate(np.concatenate([[0], ends[order]]))
    room = np.concatenate([starts[order], [_EVER]]) - reached
    return int(reached[np.argmax(room >= cells)])


# Crossings: large cliques as matrices of rows and columns

_LARGEST_MATRIX = 4096
_VISIT, _MULTIPLY, _MOVE, _TURN = 0.9, 0.4, 1.0, 12.0  # nanoseconds for: a cell of a table, a product, a copy, a block
_WORTH = 0.75  # the largest part of the cost cell by cell for which a crossing is used
_LEAST_SAVING = 300_000.0  # nanoseconds of a visit: compiling the loop for crossings would take longer than less saves


@dataclass(frozen=True)
class Crossing:
    """How to visit a large clique as matrices: for each value of `outer`, then `inner`, one of `rows` times `columns`.

    Most large cliques come from filling in: no table has all of their columns. Then some columns X and Y can be found
    so that few tables have columns of both, and these have few others. Cell (x, y) of a block is
    `a[x] * C[x, y] * b[y]`, with `C` the same for many blocks, and sums over the block are products of a matrix and a
    vector: one multiplication for each cell and output instead of one for each table, without scattered access.

    Attributes:
        outer: the columns of the tables that have both rows and columns.
        inner: all others.
        rows: the columns X.
        columns: the columns Y.
    """

    outer: Clique
    inner: Clique
    rows: Clique
    columns: Clique


def find_crossing(
    domain: Domain, clique: Clique, inputs: Sequence[TablePlace], outputs: Sequence[TablePlace]
) -> Crossing | None:
    """Find the cheapest way to visit the clique as matrices; None if cell by cell is as good."""
    if domain.cells(clique) < _LARGE or len(clique) < 3:
        return None
    bit = {column: 1 << i for i, column in enumerate(clique)}
    sets = [tuple(sum(bit[column] for column in columns) for _, columns in tables) for tables in (inputs, outputs)]
    found = _find_crossing_bits(domain.shape(clique), *sets)
    return None if found is None else Crossing(*(tuple(c for c in clique if bit[c] & part) for part in found))


@lru_cache(4096)  # rounds of a mechanism meet the same cliques again and again
def _find_crossing_bits(
    sizes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> tuple[int, ...] | None:
    costs = _CrossingCosts(sizes, inputs, outputs)
    pairs = [(1 << i, 1 << j) for i, j in combinations(range(len(sizes)), 2)]
    lowest, best = min((costs.crossing_time(*pair), pair) for pair in pairs)
    while extend := [(costs.crossing_time(*pair), pair) for pair in costs.extend(*best)]:
        cost, pair = min(extend)
        if cost >= lowest:
            break
        lowest, best = cost, pair
    if lowest > min(_WORTH * costs.visiting_time, costs.visiting_time - _LEAST_SAVING):
        return None
    outer = costs.outer(*best)
    return outer, (1 << len(sizes)) - 1 & ~(outer | best[0] | best[1]), *best


class _CrossingCosts:
    """Estimated times in nanoseconds; sets of columns are bits."""

    def __init__(self, sizes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        self.sizes, self.outputs, self.tables = sizes, outputs, (*inputs, *outputs)
        self.cells = math.prod(sizes)
        self.visiting_time = _VISIT * self.cells * len(self.tables)
        self._known: dict[int, int] = {}

    def of(self, columns: int) -> int:
        if columns not in self._known:
            self._known[columns] = math.prod(size for i, size in enumerate(self.sizes) if columns >> i & 1)
        return self._known[columns]

    def outer(self, rows: int, columns: int) -> int:
        """Return the other columns of the tables that have both rows and columns."""
        found = 0
        for table in self.tables:
            if table & rows and table & columns:
                found |= table
        return found & ~(rows | columns)

    def extend(self, rows: int, columns: int) -> list[tuple[int, int]]:
        free = [1 << i for i in range(len(self.sizes)) if not (rows | columns) >> i & 1]
        return [pair for bit in free for pair in ((rows | bit, columns), (rows, columns | bit))]

    def crossing_time(self, rows: int, columns: int) -> float:
        x, y = self.of(rows), self.of(columns)
        if x * y > _LARGEST_MATRIX:
            return math.inf
        blocks = self.cells / (x * y)
        both = sum(1 for table in self.tables if table & rows and table & columns)
        down = sum(1 for table in self.tables if table & columns and not table & rows)
        along = len(self.tables) - both - down
        products = len({(bool(table & rows), bool(table & columns)) for table in self.outputs} - {(False, False)})
        matrices = self.of(self.outer(rows, columns)) * x * y * (both + 2)
        return _MULTIPLY * products * self.cells + _MOVE * (blocks * (along * x + down * y) + matrices) + _TURN * blocks


# Building the arrays of a schedule

_BLOCK, _LARGEST_BLOCK = 32, 1024  # cells of an inner block
_LONGEST_AXIS = 4096  # of merged columns: a block then stays in the processor's first-level cache
_CONTIGUOUS = -1  # instead of the place of a list of offsets


@dataclass
class ScheduleBuilder:
    """Collects steps one by one; places of tables are decided when the schedule is built.

    Attributes:
        domain: the sizes of the columns.
        crossing: whether large cliques may be visited as matrices, which the log domain does not support.
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

    def new(self, columns: Clique) -> TablePlace:
        """Add a table that has no place yet."""
        return self.layout.new(self.domain.cells(columns)), columns

    def fuse(
        self, clique: Clique, inputs: Sequence[TablePlace], outputs: Sequence[TablePlace], own: TablePlace | None = None
    ) -> None:
        """Add a step: over the cells of `clique`, sum the product of the inputs into every output.

        The product itself overwrites `own`, an input that has all columns of the clique.
        """
        self._use(*inputs, *outputs)
        crossing = find_crossing(self.domain, clique, inputs, outputs) if self.crossing and own is None else None
        if crossing is None:
            self._sweep(FUSE, clique, inputs, outputs, own)
        else:
            self._cross(crossing, inputs, outputs)

    def spread(self, source: TablePlace, target: TablePlace) -> None:
        """Add a step: add a table to a larger one that contains its columns; both have given places."""
        self._sweep(SPREAD, target[1], [source], [target])

    def normalise(self, table: TablePlace) -> int:
        """Add a step: divide a table by its sum; returns the step's number, under which the sum is kept."""
        self._add_step(NORMALISE, [table])
        return len(self.kind) - 1

    def ratio(self, down: TablePlace, up: TablePlace, normalised: int) -> None:
        """Add a step: divide a downward message by the upward one times the sum of step `normalised`; 0/0 is 0."""
        self._add_step(RATIO, [down, up], normalised)

    def move(self, target: TablePlace, source: TablePlace) -> None:
        """Add a step: copy a table over another."""
        self._add_step(MOVE, [target, source])

    def build(self, places: Mapping[int, int]) -> Schedule:
        """Return the arrays, with every table in its place."""
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

    def _use(self, *tables: TablePlace) -> None:
        for start, columns in tables:
            self.layout.use(start, self.domain.cells(columns), len(self.kind))

    def _add_step(self, kind: int, tables: Sequence[TablePlace], number: int = 0) -> None:
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
        inputs: Sequence[TablePlace],
        outputs: Sequence[TablePlace],
        own: TablePlace | None = None,
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

    def _cross(self, crossing: Crossing, inputs: Sequence[TablePlace], outputs: Sequence[TablePlace]) -> None:
        """Add the step of `fuse` as matrices of rows and columns."""
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
        """Return the sizes of these columns and each table's strides along them, axes merged where possible."""
        shape = list(self.domain.shape(columns))
        strides = [_strides(self.domain, mine, columns) for mine in tables]
        _merge_axes(shape, strides)
        return shape, strides

    def _list(self, block: tuple[int, ...], strides: list[int]) -> int:
        """Return the place of the list of a scattered table's offsets within a block; adds a new list if needed."""
        key = (block, tuple(strides))
        if key not in self._lists:
            self._lists[key] = len(self.gather)
            steps = np.zeros(block, np.int64)
            for axis, (size, stride) in enumerate(zip(block, strides, strict=True)):
                steps += (np.arange(size) * stride).reshape([-1 if k == axis else 1 for k in range(len(block))])
            self.gather.extend(steps.ravel().tolist())
        return self._lists[key]


def make_scratch(schedule: Schedule) -> tuple[NDArray[np.float64], NDArray[np.uint64], NDArray[np.int64]]:
    """Make the loops' scratch arrays: a block of cells, a place for each table, the odometer."""
    return (
        np.empty(int(schedule.length.max(initial=1))),
        np.empty(int(np.diff(schedule.table_at).max(initial=1)), np.uint64),
        np.empty(int(np.diff(schedule.axis_at).max(initial=1)), np.int64),
    )


def _starts(lists: Sequence[Sequence[Any]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, lists)], dtype=np.int64)


def _strides(domain: Domain, columns: Clique, clique: Clique) -> list[int]:
    """Return a table's strides along the axes of the clique; 0 along axes it lacks."""
    found: dict[str, int] = {}
    step = 1
    for column in reversed(columns):
        found[column] = step
        step *= domain[column]
    return [found.get(column, 0) for column in clique]


def _merge_axes(shape: list[int], strides: list[list[int]]) -> None:
    """Merge neighbouring axes that every table either has contiguously or lacks."""
    for d in range(len(shape) - 1, 0, -1):
        joined = shape[d - 1] * shape[d] <= _LONGEST_AXIS
        if joined and all(stride[d - 1] == stride[d] * shape[d] for stride in strides):
            shape[d - 1 : d + 1] = [shape[d - 1] * shape[d]]
            for stride in strides:
                del stride[d - 1]


def _block_axes(shape: list[int]) -> int:
    """Return how many of the last axes form the inner block, so that short axes do not make short loops."""
    count, length = (1, shape[-1]) if shape else (0, 1)
    while count < len(shape) and length < _BLOCK and length * shape[-count - 1] <= _LARGEST_BLOCK:
        length *= shape[-count - 1]
        count += 1
    return count


def _pattern(block: tuple[int, ...], strides: list[int]) -> int:
    """Classify a table within a block: 0 constant, 1 contiguous, 2 scattered."""
    if not any(strides):
        return 0
    contiguous = [math.prod(block[d + 1 :]) for d in range(len(block))]
    return 1 if strides == contiguous else 2


def _jumps(sizes: list[int], strides: list[list[int]]) -> list[int]:
    """Return what one step of each outer axis adds to each table's place, with the faster axes reset to 0."""
    out: list[int] = []
    for d in range(len(sizes)):
        for stride in strides:
            back = sum(stride[k] * (sizes[k] - 1) for k in range(d + 1, len(sizes)))
            out.append(stride[d] - back)
    return out
