"""Algorithm 5 of "Winning the NIST Contest": which marginals a public table says are worth measuring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.source import Source
from understudy.tabulate import Counts, SparseCounts

_FORCED = 100.0  # added to the weight of forced pairs, in nats: more than any mutual information


def mutual_information(counts: Counts, shape: tuple[int, ...]) -> float:
    """The mutual information of a pair's table, in nats; 0 for an empty one.

    >>> round(mutual_information(np.array([5, 0, 0, 5]), (2, 2)), 4), mutual_information(np.array([1, 1, 1, 1]), (2, 2))
    (0.6931, 0.0)
    """
    if isinstance(counts, SparseCounts):
        rows, columns = np.unravel_index(counts.cells, shape)
        first, second = (np.bincount(codes, counts.counts) for codes in (rows, columns))
        cells = counts.counts
    else:
        table = counts.reshape(shape)
        cells, first, second = counts, table.sum(axis=1), table.sum(axis=0)
    n = float(first.sum())
    if n == 0:
        return 0.0
    information = _x_log_x(cells) - _x_log_x(first) - _x_log_x(second) + n * math.log(n)
    return max(0.0, information / n)


def conditional_error(counts: Counts, shape: tuple[int, ...]) -> float:
    """How badly two pairs that share the first column explain a triple: L1 distance as a part of the rows (line 3).

    The explanation that Private-PGM gives of M_ijk from M_ij and M_ik is M_ij M_ik / M_i, the second and third column
    independent given the first.

    >>> xor = np.array([[[5, 0], [0, 5]], [[0, 5], [5, 0]]]).ravel()
    >>> conditional_error(xor, (2, 2, 2)), conditional_error(np.full(8, 3), (2, 2, 2))
    (1.0, 0.0)
    """
    (i, j, k), cells = _occupied(counts, shape)
    n = cells.sum()
    if n == 0:
        return 0.0
    ij, ik = i * shape[1] + j, i * shape[2] + k
    explained = _sums(ij, cells) * _sums(ik, cells) / _sums(i, cells)
    # Cells that hold no row are explained by what is left of the explanation, which sums to n.
    return float((np.abs(cells - explained).sum() + n - explained.sum()) / n)


def public_cliques(public: Source, *, keep: Sequence[Clique] = (), error: float = 0.1) -> list[Clique]:
    """The pairs and triples that Algorithm 5 selects, without the forced cliques themselves.

    **Privacy.** Reads the public table alone: the result is public, and nothing is charged.

    Args:
        public: the public table, coded by the private table's schema.
        keep: forced cliques; their columns are connected first (line 1).
        error: triples that the tree explains better than this are not added (line 4).
    """
    domain = public.domain
    tree = public_tree(public, keep)
    chosen = [*tree]
    for i, j, k in _triangles(public, tree, error):
        chosen += [domain.canonical((j, k)), domain.canonical((i, j, k))]
    forced = {frozenset(clique) for clique in keep}
    return [clique for clique in dict.fromkeys(chosen) if frozenset(clique) not in forced]


def public_tree(public: Source, keep: Sequence[Clique] = ()) -> list[Clique]:
    """The maximum spanning tree of mutual information (lines 1 and 2), forced pairs first."""
    forced = {frozenset(pair) for clique in keep for pair in combinations(clique, 2)}
    weights = pair_information(public)
    raised = {pair: weight + _FORCED * (frozenset(pair) in forced) for pair, weight in weights.items()}
    return maximum_spanning_tree(raised)


def pair_information(public: Source) -> dict[Clique, float]:
    """Mutual information of every pair of columns with at least two codes."""
    domain = public.domain
    columns = [column for column, size in domain.items() if size > 1]
    pairs = list(combinations(columns, 2))
    return {pair: mutual_information(counts, domain.shape(pair)) for pair, counts in public.counts(pairs)}


def maximum_spanning_tree(weights: Mapping[Clique, float]) -> list[Clique]:
    """Kruskal's tree (a forest where pairs are missing), heaviest pairs first; ties by the order given.

    >>> maximum_spanning_tree({("a", "b"): 1.0, ("b", "c"): 3.0, ("a", "c"): 2.0})
    [('b', 'c'), ('a', 'c')]
    """
    part = {column: column for pair in weights for column in pair}
    tree = []
    for pair in sorted(weights, key=weights.__getitem__, reverse=True):
        kept, gone = part[pair[0]], part[pair[1]]
        if kept != gone:
            part = {column: kept if name == gone else name for column, name in part.items()}
            tree.append(pair)
    return tree


def _triangles(public: Source, tree: Sequence[Clique], error: float) -> Iterable[Clique]:
    """Lines 3 and 4: around each column a tree of its neighbours whose triples are explained worst, column first."""
    neighbours: dict[str, list[str]] = {column: [] for column in public.domain}
    for a, b in tree:
        neighbours[a].append(b)
        neighbours[b].append(a)
    triples = [(i, *pair) for i, others in neighbours.items() for pair in combinations(others, 2)]
    errors: dict[str, dict[Clique, float]] = {column: {} for column in public.domain}
    for triple, counts in public.counts(triples):
        found = conditional_error(counts, public.domain.shape(triple))
        if found >= error:
            errors[triple[0]][triple[1:]] = found
    for i, weights in errors.items():
        yield from ((i, *pair) for pair in maximum_spanning_tree(weights))


def within(domain: Domain, cliques: Iterable[Clique], max_cells: int) -> list[Clique]:
    """Those cliques that a model can afford (line 5): tables of fewer than `max_cells` cells.

    A pair that closes a triangle goes with its triple, whether or not it is small itself: without the triple's table
    the model would still have to hold the triangle.

    >>> within(Domain({"a": 9, "b": 9, "c": 9}), [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")], 100)
    [('a', 'b'), ('a', 'c')]
    """
    cliques = list(cliques)
    closing = {clique: cliques[place - 1] for place, clique in enumerate(cliques) if place and len(clique) == 3}
    dropped = {clique for clique in cliques if domain.cells(clique) >= max_cells}
    dropped |= {pair for triple, pair in closing.items() if triple in dropped and set(pair) < set(triple)}
    return [clique for clique in cliques if clique not in dropped]


def _occupied(counts: Counts, shape: tuple[int, ...]) -> tuple[tuple[NDArray[np.intp], ...], NDArray[np.float64]]:
    """The codes of the cells that hold rows, and how many they hold."""
    if isinstance(counts, SparseCounts):
        where, values = counts.cells, counts.counts
    else:
        where = np.flatnonzero(counts)
        values = counts[where]
    return np.unravel_index(where, shape), values.astype(np.float64)


def _x_log_x(counts: NDArray[Any]) -> float:
    """The sum of x log x."""
    positive = counts[counts > 0].astype(np.float64)
    return float(positive @ np.log(positive))


def _sums(keys: NDArray[np.intp], cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each cell the sum of the cells with its key."""
    _, place = np.unique(keys, return_inverse=True)
    return np.bincount(place, cells)[place].astype(np.float64)
