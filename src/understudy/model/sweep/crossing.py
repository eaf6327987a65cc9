"""When to visit a large clique as matrices, rows times columns, instead of cell by cell.

Most large cliques come from filling in: no table has all of their columns. Then some columns X and Y can be found so
that few tables have columns of both, and these have few others. Cell (x, y) of a block is `a[x] * C[x, y] * b[y]`, with
`C` the same for many blocks, and sums over the block are products of a matrix and a vector: one multiplication a cell
and output instead of one for each table, without a single scattered access.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

from understudy.domain import Clique, Domain

Table: TypeAlias = tuple[int, Clique]
"""Where a table starts in the workspace, and its columns in the engine's order."""

_LARGE = 4096  # cells from which it is worth a thought
_LARGEST_MATRIX = 4096
_VISIT, _MULTIPLY, _MOVE, _TURN = 0.9, 0.4, 1.0, 12.0  # nanoseconds: a cell and table, a product, a copy, a block
_WORTH = 0.75


@dataclass(frozen=True)
class Crossing:
    """How a clique is visited: for each value of `outer`, then of `inner`, a matrix of `rows` times `columns`.

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


def crossing_of(domain: Domain, clique: Clique, inputs: Sequence[Table], outputs: Sequence[Table]) -> Crossing | None:
    """The cheapest way to visit the clique as matrices; None where cell by cell is as good."""
    if domain.cells(clique) < _LARGE or len(clique) < 3:
        return None
    bit = {column: 1 << i for i, column in enumerate(clique)}
    sets = [tuple(sum(bit[column] for column in columns) for _, columns in tables) for tables in (inputs, outputs)]
    found = _best(domain.shape(clique), *sets)
    return None if found is None else Crossing(*(tuple(c for c in clique if bit[c] & part) for part in found))


@lru_cache(4096)  # rounds of a mechanism meet the same cliques again and again
def _best(sizes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, ...] | None:
    costs = _Costs(sizes, inputs, outputs)
    pairs = [(1 << i, 1 << j) for i, j in combinations(range(len(sizes)), 2)]
    lowest, best = min((costs.crossed(*pair), pair) for pair in pairs)
    while grown := [(costs.crossed(*pair), pair) for pair in costs.grown(*best)]:
        cost, pair = min(grown)
        if cost >= lowest:
            break
        lowest, best = cost, pair
    if lowest > _WORTH * costs.visited:
        return None
    outer = costs.outer(*best)
    return outer, (1 << len(sizes)) - 1 & ~(outer | best[0] | best[1]), *best


class _Costs:
    """Nanoseconds by a rough count; sets of columns are bits."""

    def __init__(self, sizes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        self.sizes, self.outputs, self.tables = sizes, outputs, (*inputs, *outputs)
        self.cells = math.prod(sizes)
        self.visited = _VISIT * self.cells * len(self.tables)
        self._known: dict[int, int] = {}

    def of(self, columns: int) -> int:
        if columns not in self._known:
            self._known[columns] = math.prod(size for i, size in enumerate(self.sizes) if columns >> i & 1)
        return self._known[columns]

    def outer(self, rows: int, columns: int) -> int:
        """The other columns of the tables that have both."""
        found = 0
        for table in self.tables:
            if table & rows and table & columns:
                found |= table
        return found & ~(rows | columns)

    def grown(self, rows: int, columns: int) -> list[tuple[int, int]]:
        free = [1 << i for i in range(len(self.sizes)) if not (rows | columns) >> i & 1]
        return [pair for bit in free for pair in ((rows | bit, columns), (rows, columns | bit))]

    def crossed(self, rows: int, columns: int) -> float:
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
