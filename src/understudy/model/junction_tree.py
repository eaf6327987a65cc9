"""Junction trees: the tables that exact inference needs for a set of cliques, and their size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import SettingError

_RESTARTS = 20  # randomised searches after the three heuristics
_MIB = 8 / 2**20  # of one cell


@dataclass(frozen=True)
class JunctionTree:
    """A tree of cliques that contains every given clique and has the running intersection property.

    Columns are ordered by size, the largest last, because the last axis of a table is the fastest. Columns with a
    single code carry no information and appear in no clique. Unconnected parts are joined by empty separators, so that
    there is always one tree.

    Attributes:
        domain: all columns.
        cliques: the maximal cliques; the first is the root, and a parent comes before its children.
        parents: for each clique the position of its parent; -1 for the root.

    >>> tree = JunctionTree.of(Domain({"a": 2, "b": 3, "c": 4}), [("a", "b"), ("b", "c")])
    >>> tree.cliques, tree.separator(1)
    ((('b', 'c'), ('a', 'b')), ('b',))
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]
    _graph: NDArray[np.uint8]

    @classmethod
    def of(cls, domain: Domain, cliques: Iterable[Clique], *, limit_mib: float | None = None) -> JunctionTree:
        """Build the smallest tree found by three elimination heuristics and randomised restarts; deterministic.

        Args:
            domain: all columns; a column in no clique stands alone, the columns of a rule lie in one clique.
            cliques: sets of columns that must lie in one tree clique.
            limit_mib: refuse a larger tree.

        Raises:
            SchemaError: if a column is unknown or repeated.
            SettingError: if the tree is larger than the limit.
        """
        columns = sort_columns(domain)
        graph = _graph_of(domain, columns, [*cliques, *(rule.clique for rule in domain.rules)])
        found = _search(graph, _sizes(domain, columns), [[]], -1.0)[1]
        tree = cls(
            domain, *_join_cliques(domain, [tuple(columns[i] for i in np.flatnonzero(row)) for row in found]), graph
        )
        if limit_mib is not None and tree.size_mib > limit_mib:
            raise SettingError(
                f"the junction tree of these cliques needs {tree.size_mib:.3g} MiB, the limit is {limit_mib:.3g} MiB; "
                "measure fewer or smaller cliques, or raise the limit"
            )
        return tree

    @property
    def cells(self) -> int:
        """Number of cells of all tree cliques; a Python int, so it never overflows."""
        return sum(self.domain.cells(clique) for clique in self.cliques)

    @property
    def size_mib(self) -> float:
        """Memory of the tables of all tree cliques, at eight bytes a cell."""
        return self.cells * _MIB

    def separator(self, position: int) -> Clique:
        """Return the columns that a clique shares with its parent; none for the root."""
        parent = self.parents[position]
        if parent < 0:
            return ()
        return tuple(column for column in self.cliques[position] if column in set(self.cliques[parent]))

    def children(self, position: int) -> list[int]:
        """Return the positions of a clique's children."""
        return [child for child, parent in enumerate(self.parents) if parent == position]

    def home(self, clique: Iterable[str]) -> int | None:
        """Return the position of the smallest tree clique with these columns, or None; single codes do not count."""
        wanted = {column for column in clique if self.domain[column] > 1}
        fitting = [i for i, mine in enumerate(self.cliques) if wanted <= set(mine)]
        return min(fitting, key=lambda i: self.domain.cells(self.cliques[i]), default=None)

    def size_mib_with(self, candidates: Sequence[Clique], *, enough_mib: float = 0.0) -> NDArray[np.float64]:
        """Compute the size of the tree with each candidate added to its cliques, one at a time.

        This is the same search as in `of`, so the sizes are those of the built trees; but a tree of at most
        `enough_mib` may turn out smaller, because the search ends early there.
        """
        columns = sort_columns(self.domain)
        place = {column: i for i, column in enumerate(columns)}
        members = [[place[c] for c in self.domain.check(clique) if c in place] for clique in candidates]
        graph = self._graph.tolist()
        added = [_added_edges(graph, member) for member in members]
        different = dict(zip(added, members, strict=True))
        sizes_of = _sizes(self.domain, columns)
        cells, _ = _search(self._graph, sizes_of, list(different.values()), float(self.cells), enough_mib / _MIB)
        sizes = dict(zip(different, cells.tolist(), strict=True))
        return np.array([sizes[edges] for edges in added]) * _MIB


def limit_cliques(
    domain: Domain, weights: Mapping[Clique, float], measured: Iterable[Clique], limit_mib: float
) -> dict[Clique, float]:
    """Return the candidates whose junction tree, together with the measured cliques, stays within the limit.

    Candidates that do not enlarge the tree are always included. If none fits, the smallest are returned, so that there
    is something to choose from. In a small domain all candidates fit without a search: a tree has at most as many
    cliques as there are columns, none larger than all columns together.
    """
    if len(domain) * domain.cells() * 8 / 2**20 <= limit_mib:
        return dict(weights)
    tree = JunctionTree.of(domain, measured)
    enough = max(limit_mib, tree.size_mib)
    sizes = tree.size_mib_with(list(weights), enough_mib=enough)
    small = sizes <= max(enough, sizes.min())
    return {clique: weight for (clique, weight), fits in zip(weights.items(), small, strict=True) if fits}


def sort_columns(domain: Domain) -> Clique:
    """Return the columns with more than one code, smallest first: the axis order of all tables in the engine."""
    return tuple(sorted((column for column in domain if domain[column] > 1), key=lambda column: domain[column]))


def _sizes(domain: Domain, columns: Clique) -> NDArray[np.float64]:
    return np.array(domain.shape(columns), np.float64)


def _graph_of(domain: Domain, columns: Clique, cliques: Iterable[Clique]) -> NDArray[np.uint8]:
    place = {column: i for i, column in enumerate(columns)}
    graph = np.zeros((len(columns), len(columns)), np.uint8)
    members = ([place[column] for column in domain.check(clique) if column in place] for clique in cliques)
    edges = {i * len(columns) + k for mine in members for i in mine for k in mine if i != k}
    graph.reshape(-1)[list(edges)] = 1
    return graph


def _added_edges(graph: list[list[int]], members: list[int]) -> frozenset[tuple[int, int]]:
    """Return the edges that joining these columns adds; candidates that add the same edges give the same tree."""
    return frozenset([(i, k) for i in members for k in members if i < k and not graph[i][k]])


def _search(
    graph: NDArray[np.uint8], sizes: NDArray[np.float64], members: list[list[int]], base: float, enough: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the cells of the tree with each candidate, and the last tree's cliques as rows of column membership."""
    from understudy.model.kernels.elimination import cells_with, pack_bits

    if len(graph) == 0:
        return np.ones(len(members)), np.zeros((1, 0), bool)
    return cells_with(pack_bits(graph), sizes, _RESTARTS, base, enough, members)


def _join_cliques(domain: Domain, cliques: list[Clique]) -> tuple[tuple[Clique, ...], tuple[int, ...]]:
    """Join cliques to a tree by largest separators, which gives running intersection; the largest is the root."""
    sets = [frozenset(clique) for clique in cliques]
    waiting = sorted(range(len(cliques)), key=lambda i: (-domain.cells(cliques[i]), cliques[i]))
    root, *waiting = waiting
    order, parents = [root], [-1]
    nearest = dict.fromkeys(waiting, 0)
    while waiting:
        best = max(waiting, key=lambda i: len(sets[i] & sets[order[nearest[i]]]))
        waiting.remove(best)
        parents.append(nearest.pop(best))
        order.append(best)
        newest = len(order) - 1
        for i in waiting:
            if len(sets[i] & sets[best]) > len(sets[i] & sets[order[nearest[i]]]):
                nearest[i] = newest
    return tuple(cliques[i] for i in order), tuple(parents)
