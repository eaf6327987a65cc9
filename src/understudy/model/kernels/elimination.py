"""Compiled search for a good elimination order.

A graph has a row of 64-bit words for each vertex and a bit for each neighbour, so sets of neighbours are compared one
word at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.model.kernels import compiled
from understudy.model.kernels.rows import uniform

_FILL, _WEIGHTED_FILL, _WEIGHT = 0, 1, 2
_ONE, _WORD = np.uint64(1), 64


@compiled(inner=True)
def _count(x: Any) -> Any:
    """Return the number of set bits of a word."""
    x = x - ((x >> _ONE) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled(inner=True)
def _lowest(x: Any) -> Any:
    """Return the position of the lowest set bit of a word."""
    return _count((x & (~x + _ONE)) - _ONE)


@compiled(inner=True)
def _bit(v: int) -> Any:
    return _ONE << np.uint64(v % _WORD)


@compiled(inner=True)
def _clique_cells(sizes: Any, v: int, row: Any) -> Any:
    cells = sizes[v]
    for q in range(row.size):
        rest = row[q]
        while rest:
            cells *= sizes[_WORD * q + _lowest(rest)]
            rest &= rest - _ONE
    return cells


@compiled(inner=True)
def _score(graph: Any, sizes: Any, v: int, method: int) -> Any:
    """Score the elimination of `v`, lower is better: added edges, added edges by size, or cells of its clique."""
    mine = graph[v]
    if method == _WEIGHT:
        return _clique_cells(sizes, v, mine)
    total = 0.0
    for p in range(mine.size):
        left = mine[p]
        while left:
            u = _WORD * p + _lowest(left)
            left &= left - _ONE  # from here on the neighbours after u
            for q in range(p, mine.size):
                missing = (left if q == p else mine[q]) & ~graph[u, q]
                if method == _FILL:
                    total += _count(missing)
                    continue
                while missing:
                    total += sizes[u] * sizes[_WORD * q + _lowest(missing)]
                    missing &= missing - _ONE
    return total


@compiled(inner=True)
def _remove(graph: Any, v: int, cliques: Any, touched: Any) -> None:
    """Eliminate `v`: write its neighbours to its clique, join them, and mark whose score may have changed."""
    clique = cliques[v]
    words = clique.size
    for q in range(words):
        clique[q] = graph[v, q]
        touched[q] |= clique[q]
        graph[v, q] = np.uint64(0)
    for p in range(words):
        left = clique[p]
        while left:
            u = _WORD * p + _lowest(left)
            left &= left - _ONE
            for q in range(words):
                missing = clique[q] & ~graph[u, q]
                if q == p:
                    missing &= ~_bit(u)
                while missing:
                    k = _WORD * q + _lowest(missing)
                    graph[u, q] |= _bit(k)
                    missing &= missing - _ONE
                    for z in range(words):
                        touched[z] |= graph[u, z] & graph[k, z]
            graph[u, v // _WORD] &= ~_bit(v)


@compiled(inner=True)
def _cells(sizes: Any, order: Any, cliques: Any, kept: Any, place: Any, degree: Any) -> Any:
    """Return cells of the maximal elimination cliques, which are marked in `kept`.

    The clique of `v` lies inside an earlier one exactly when some `u` whose first later neighbour is `v` has one
    neighbour more than `v` has.
    """
    n = sizes.size
    for i in range(n):
        place[order[i]] = i
        kept[i] = 1
        degree[i] = 0
        for q in range(cliques.shape[1]):
            degree[i] += _count(cliques[i, q])
    for u in range(n):
        first = -1
        for q in range(cliques.shape[1]):
            rest = cliques[u, q]
            while rest:
                v = _WORD * q + _lowest(rest)
                rest &= rest - _ONE
                if first < 0 or place[v] < place[first]:
                    first = v
        if first >= 0 and degree[u] == degree[first] + 1:
            kept[first] = 0
    total = 0.0
    for v in range(n):
        if kept[v]:
            total += _clique_cells(sizes, v, cliques[v])
    return total


@compiled()
def eliminate(
    graph: Any,
    sizes: Any,
    order: Any,
    cliques: Any,
    kept: Any,
    start: int,
    method: int,
    jitter: float,
    state: Any,
    touched: Any,
    rest: Any,
    place: Any,
    score: Any,
) -> float:
    """Eliminate the columns greedily, from position `start` of `order`; returns the cells of the tree.

    With method -1 only vertices that add no edge are eliminated, and the position that was reached is returned. The
    last four arguments are scratch arrays.
    """
    n = graph.shape[0]
    for q in range(touched.size):
        touched[q] = ~np.uint64(0)
    for v in range(n):
        place[v] = n
    for i in range(start):
        place[order[i]] = i
    count = 0
    for v in range(n):
        if place[v] == n:
            rest[count] = v
            count += 1
    for position in range(start, n):
        at = -1
        for i in range(count):
            v = rest[i]
            if touched[v // _WORD] & _bit(v):
                score[v] = _score(graph, sizes, v, max(method, 0))
                if jitter > 0.0:
                    score[v] = score[v] * (1.0 + jitter * uniform(state)) + 1e-9 * uniform(state)
                touched[v // _WORD] &= ~_bit(v)
            if at < 0 or score[v] < score[rest[at]]:
                at = i
                if score[v] == 0.0:  # nothing is better, and later scores need not be known yet
                    break
        best = rest[at]
        if method < 0 and score[best] > 0.0:
            return float(position)
        _remove(graph, best, cliques, touched)
        order[position] = best
        count -= 1
        for i in range(at, count):
            rest[i] = rest[i + 1]
    return float(n) if method < 0 else _cells(sizes, order, cliques, kept, place, rest)


def cells_with(
    graph: NDArray[np.uint64],
    sizes: NDArray[np.float64],
    restarts: int,
    base: float,
    enough: float,
    members: Sequence[Sequence[int]],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the tree's cells after joining each candidate, and the cliques of the last tree.

    A clique is a row that marks its columns.

    A candidate that adds no edge gets `base`, unless that is negative. A search ends at a tree of at most `enough`
    cells.
    """
    search = _Search(sizes, restarts, enough, graph.shape)
    out, core = np.full(len(members), base), np.empty_like(graph)
    for c, member in enumerate(members):
        core[:] = graph
        for v in member:
            core[member, v // _WORD] |= _ONE << np.uint64(v % _WORD)
        for v in member:
            core[v, v // _WORD] &= ~(_ONE << np.uint64(v % _WORD))
        if base < 0.0 or not np.array_equal(core, graph):
            out[c] = search.smallest(core)
    cliques = unpack_bits(search.cliques)
    np.fill_diagonal(cliques, True)
    return out, cliques[search.kept.astype(bool)]


class _Search:
    """Searches for the smallest tree by three heuristics and randomised restarts, in the same arrays each time.

    The loop over them is not compiled: it would take as long to compile as what it calls.

    Attributes:
        cliques: by column, its neighbours when it was eliminated, in the smallest tree of the last search.
        kept: by column, whether that clique is maximal.
    """

    def __init__(self, sizes: NDArray[np.float64], restarts: int, enough: float, shape: tuple[int, ...]) -> None:
        n, words = shape
        self.sizes, self.enough = sizes, enough
        self.tries = [(0, 0.0), (1, 0.0), (2, 0.0), *((1 + i % 2, 0.3) for i in range(3, 3 + restarts))]
        self.board, self.found, self.cliques = np.zeros((3, n, words), np.uint64)
        self.kept, self.found_kept = np.empty((2, n), np.uint8)
        self.state = np.empty(1, np.uint64)
        order, rest, place = np.empty((3, n), np.int64)
        self.order, self.scratch = order, (self.state, np.zeros(words, np.uint64), rest, place, np.empty(n))

    def smallest(self, core: NDArray[np.uint64]) -> float:
        """Return the cells of the smallest tree found; `core` is changed.

        A vertex whose neighbours are joined already costs nothing to eliminate, so those go first (method -1) and every
        heuristic works on what remains: the part of the graph with loops.
        """
        self.state[0] = 12345
        start, best = int(self._eliminate(core, 0, -1, 0.0)), math.inf
        for attempt, (method, jitter) in enumerate(self.tries):
            self.board[:] = core
            cells = self._eliminate(self.board, start, method, jitter)
            if attempt == 0 or cells < best:
                best = cells
                self.cliques[:], self.kept[:] = self.found, self.found_kept
            if start == len(core) or best <= self.enough:
                break
        return best

    def _eliminate(self, board: NDArray[np.uint64], start: int, method: int, jitter: float) -> float:
        places = (self.order, self.found, self.found_kept)
        return float(eliminate(board, self.sizes, *places, start, method, jitter, *self.scratch))


def pack_bits(graph: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Pack a matrix of zeros and ones into rows of words."""
    rows = np.zeros((len(graph), 8 * -(-len(graph) // _WORD)), np.uint8)
    bits = np.packbits(graph, axis=1, bitorder="little")
    rows[:, : bits.shape[1]] = bits
    return rows.view("<u8").astype(np.uint64)


def unpack_bits(rows: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Unpack the rows of words that `pack_bits` made."""
    bits = np.unpackbits(rows.astype("<u8").view(np.uint8), axis=1, count=len(rows), bitorder="little")
    return bits.astype(np.bool_)
