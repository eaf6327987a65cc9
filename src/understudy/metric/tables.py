"""Two counted tables side by side, cell by cell, whether they are dense or sparse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.metric.protocol import Counted
from understudy.tabulate import Counts, SparseCounts

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Pair:
    """The cells of one clique that hold a row in either table.

    Attributes:
        clique: the columns.
        cells: flat indices in C order of the clique.
        real: the real counts of these cells.
        synthetic: the synthetic counts of these cells.
    """

    clique: Clique
    cells: NDArray[np.int64]
    real: NDArray[np.float64]
    synthetic: NDArray[np.float64]

    def distance(self) -> float:
        """The L1 distance of the two tables as shares, 0 to 2; an empty table is as far as can be."""
        n, m = self.real.sum(), self.synthetic.sum()
        if not n or not m:
            return 0.0 if n == m else 2.0
        return float(np.abs(self.real / n - self.synthetic / m).sum())


def pairs(real: Counted, synthetic: Counted, cliques: Iterable[Clique]) -> Iterator[Pair]:
    """Both tables' counts of each clique, in the order asked."""
    asked = list(cliques)
    for (clique, one), (_, other) in zip(real.counts(asked), synthetic.counts(asked), strict=True):
        yield Pair(clique, *aligned(one, other))


def aligned(one: Counts, other: Counts) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The cells that either table uses, with both tables' counts."""
    cells = np.union1d(_used(one), _used(other))
    return cells, _at(one, cells), _at(other, cells)


def _used(table: Counts) -> NDArray[np.int64]:
    return table.cells if isinstance(table, SparseCounts) else np.flatnonzero(table)


def _at(table: Counts, cells: NDArray[np.int64]) -> NDArray[np.float64]:
    if not isinstance(table, SparseCounts):
        return table[cells].astype(np.float64)
    found = np.zeros(len(cells))
    found[np.searchsorted(cells, table.cells)] = table.counts
    return found


def some_ways(columns: Iterable[str], way: int, most: int, rng: np.random.Generator) -> tuple[list[Clique], bool]:
    """At most so many sets of `way` columns, drawn without replacement; and whether some were left out."""
    names = list(columns)
    if comb(len(names), way) <= most:
        return list(combinations(names, way)), False
    if comb(len(names), way) <= 200_000:
        every = list(combinations(names, way))
        return [every[place] for place in sorted(rng.choice(len(every), most, replace=False))], True
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:
        drawn.add(tuple(sorted(rng.choice(len(names), way, replace=False).tolist())))
    return [tuple(names[place] for place in places) for places in sorted(drawn)], True


def named(clique: Clique) -> str:
    """A clique in words."""
    return " x ".join(clique)
