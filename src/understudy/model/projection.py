"""Many marginals of one calibrated tree, sharing the work between them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.model.propagate import Propagation

Vector: TypeAlias = NDArray[np.float64]
_BUNDLE = 2048  # queries across cliques are answered together while their joint table has at most this many cells
_KEPT = 2**23  # cells of intermediate tables that outlive a call


class Projector:
    """Marginals, adding up to 1, of the distribution that a propagation was last called with.

    A query inside one tree clique is a sum of that clique's table. Any other one is a product of conditional tables
    over the smallest subtree that has all its columns, each first reduced to the columns that matter, multiplied in
    the order that keeps the tables between small. Sums and products are remembered, so that queries share them.
    """

    def __init__(self, propagation: Propagation) -> None:
        self._propagation = propagation
        self._tree = tree = propagation.tree
        self._domain = tree.domain
        self._children = [tree.children(i) for i in range(len(tree.cliques))]
        self._separators = [frozenset(tree.separator(i)) for i in range(len(tree.cliques))]
        self._sets = [frozenset(clique) for clique in tree.cliques]
        self._below = list(self._sets)
        for i in range(len(tree.cliques) - 1, 0, -1):
            self._below[tree.parents[i]] = self._below[tree.parents[i]] | self._below[i]
        self._place = {column: i for i, column in enumerate(propagation.engine_order(self._domain))}
        self._sums: list[dict[Clique, Vector]] = [{} for _ in tree.cliques]
        self._operands: dict[Hashable, _Operand] = {}

    def many(self, queries: Iterable[Clique]) -> dict[Clique, Vector]:
        """The table of each clique, which must be given in the engine's column order."""
        found: dict[Clique, Vector] = {}
        across: list[Clique] = []
        for query in dict.fromkeys(queries):
            home = self._home(query)
            if home is None:
                across.append(query)
            else:
                found[query] = self.reduced(home, query)
        for bundle, members in self._bundles(sorted(across, key=lambda q: [self._place[c] for c in q])):
            joint = {bundle: self._contract(bundle)}
            for query in members:
                found[query] = self._summed(joint, bundle, query)
        self._forget()
        return found

    def reduced(self, position: int, columns: Clique) -> Vector:
        """The marginal of some columns of one tree clique."""
        clique, tables = self._tree.cliques[position], self._sums[position]
        if clique not in tables:
            tables[clique] = self._propagation.belief(position)
        return self._summed(tables, clique, columns)

    def _forget(self) -> None:
        """Keep small tables for later calls, not large ones."""
        kept = sum(table.size for tables in self._sums for table in tables.values())
        if kept + sum(operand.table.size for operand in self._operands.values()) > _KEPT:
            self._sums = [{} for _ in self._sums]
            self._operands = {}

    def _home(self, query: Clique) -> int | None:
        wanted = frozenset(query)
        fitting = [i for i, mine in enumerate(self._sets) if wanted <= mine]
        return min(fitting, key=lambda i: self._domain.cells(self._tree.cliques[i]), default=None)

    def _summed(self, tables: dict[Clique, Vector], clique: Clique, columns: Clique) -> Vector:
        """Sum a clique's table down to some columns, the largest first, remembering the steps between.

        Dropping the largest first makes the first step the greatest saving, and lets other sums start from it.
        """
        if columns in tables:
            return tables[columns]
        missing = next(column for column in clique if column not in columns)
        larger = tuple(column for column in clique if column in columns or column == missing)
        table = self._summed(tables, clique, larger)
        axis = larger.index(missing)
        outer, inner = math.prod(table.shape[:axis]), math.prod(table.shape[axis + 1 :])
        flat = np.add.reduce(table.reshape(outer, table.shape[axis], inner), axis=1)
        tables[columns] = flat.reshape(table.shape[:axis] + table.shape[axis + 1 :])
        return tables[columns]

    def _bundles(self, queries: list[Clique]) -> list[tuple[Clique, list[Clique]]]:
        """Queries grouped under a joint clique of few cells; neighbours in the list have most in common."""
        groups: list[tuple[frozenset[str], list[Clique]]] = []
        for query in queries:
            wanted = frozenset(query)
            for columns, members in groups:
                if wanted <= columns:
                    members.append(query)
                    break
            else:
                union = groups[-1][0] | wanted if groups else wanted
                if groups and self._domain.cells(union) <= _BUNDLE:
                    groups[-1] = (union, [*groups[-1][1], query])
                else:
                    groups.append((wanted, [query]))
        return [(self._sorted(columns), members) for columns, members in groups]

    def _sorted(self, columns: Iterable[str]) -> Clique:
        return tuple(sorted(columns, key=self._place.__getitem__))

    def _contract(self, query: Clique) -> Vector:
        """A marginal whose columns lie in several tree cliques: the product of conditionals, summed greedily."""
        wanted, top = frozenset(query), 0
        while deeper := [k for k in self._children[top] if wanted <= self._below[k]]:
            top = deeper[0]
        operands: list[_Operand] = []
        self._gather(top, wanted, True, operands)
        while len(operands) > 1:
            i, k, columns = self._cheapest(operands, wanted)
            second, first = operands.pop(k), operands.pop(i)
            operands.append(self._product(first, second, columns))
        have = operands[0].columns
        return operands[0].table.transpose([have.index(column) for column in query])

    def _gather(self, position: int, wanted: frozenset[str], top: bool, out: list[_Operand]) -> None:
        """The conditional tables of a clique and of those below it that know of wanted columns."""
        mine = self._sets[position]
        needed = (wanted & mine) | (frozenset() if top else self._separators[position])
        for child in self._children[position]:
            if (wanted & self._below[child]) - mine:
                self._gather(child, wanted, False, out)
                needed |= self._separators[child]
        columns = self._sorted(needed)
        key = (position, columns, top)
        if key not in self._operands:
            table = self.reduced(position, columns)
            if not top:
                given = self.reduced(position, self._sorted(self._separators[position]))
                given = given.reshape([self._domain[c] if c in self._separators[position] else 1 for c in columns])
                table = np.divide(table, given, out=np.zeros_like(table), where=given > 0.0)
            self._operands[key] = _Operand(key, columns, table)
        out.append(self._operands[key])

    def _cheapest(self, operands: list[_Operand], wanted: frozenset[str]) -> tuple[int, int, Clique]:
        """Which two tables to multiply next: those whose product grows least; and the columns it keeps."""
        best: tuple[float, int, int, frozenset[str]] | None = None
        for k in range(1, len(operands)):
            for i in range(k):
                a, b = operands[i], operands[k]
                others = [operand.columns for n, operand in enumerate(operands) if n not in (i, k)]
                columns = frozenset(a.columns + b.columns) & wanted.union(*others)
                growth = self._domain.cells(columns) - a.table.size - b.table.size
                if best is None or growth < best[0]:
                    best = growth, i, k, columns
        assert best is not None  # noqa: S101 - callers have at least two operands
        return best[1], best[2], self._sorted(best[3])

    def _product(self, first: _Operand, second: _Operand, columns: Clique) -> _Operand:
        key = (first.key, second.key, columns)
        if key not in self._operands:
            table = _product_sum(self._domain, first, second, columns)
            self._operands[key] = _Operand(key, columns, table)
        return self._operands[key]


class _Operand(NamedTuple):
    """A table with its columns, under a key that says how it was made."""

    key: Hashable
    columns: Clique
    table: Vector


def _product_sum(domain: Domain, a: _Operand, b: _Operand, out: Clique) -> Vector:
    """Multiply two tables and sum out the shared columns that are not wanted: a batch of matrix products."""
    from understudy.model.kernels import products

    if a.table.size > b.table.size:  # the longer rows belong to the right-hand matrix: they are the inner loop
        a, b = b, a
    shared = [c for c in a.columns if c in b.columns]
    batch, inner = [c for c in shared if c in out], [c for c in shared if c not in out]
    rows, cols = [c for c in a.columns if c not in shared], [c for c in b.columns if c not in shared]

    def matrices(operand: _Operand, *groups: list[str]) -> Vector:
        axes = [operand.columns.index(c) for group in groups for c in group]
        turned = operand.table.transpose(axes).reshape([domain.cells(group) for group in groups])
        return np.ascontiguousarray(turned)

    product = np.zeros([domain.cells(group) for group in (batch, rows, cols)])
    products(matrices(a, batch, rows, inner), matrices(b, batch, inner, cols), product)
    have = (*batch, *rows, *cols)
    return product.reshape(domain.shape(have)).transpose([have.index(c) for c in out])
