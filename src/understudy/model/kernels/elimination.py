"""Compiled search for a good elimination order.

A graph has a row of 64-bit words for each vertex and a bit for each neighbour, so sets of neighbours are compared one
word at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from understudy.model.kernels import compiled
from understudy.model.kernels.rows import uniform

_FILL, _WEIGHTED_FILL, _WEIGHT = 0, 1, 2
_ONE, _WORD = np.uint64(1), 64


@compiled(inner=True)
def _count(x: Any) -> Any:
    """Number of set bits of a word."""
    x = x - ((x >> _ONE) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled(inner=True)
def _lowest(x: Any) -> Any:
    """Position of the lowest set bit of a word."""
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
def _remove(graph: Any, v: int, clique: Any, touched: Any) -> None:
    """Eliminate `v`: write its neighbours to `clique`, join them, and mark whose score may have changed."""
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
def _run(
    graph: Any, sizes: Any, order: Any, cliques: Any, start: Any, method: int, jitter: float, state: Any, scratch: Any
) -> Any:
    """Greedy elimination from position `start` of `order`; returns the position it reached.

    With method -1 it eliminates only vertices that add no edge.
    """
    n = graph.shape[0]
    touched, rest, place, score = scratch
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
            return position
        _remove(graph, best, cliques[best], touched)
        order[position] = best
        count -= 1
        for i in range(at, count):
            rest[i] = rest[i + 1]
    return n


@compiled(inner=True)
def _cells(sizes: Any, order: Any, cliques: Any, kept: Any, place: Any, degree: Any) -> Any:
    """Cells of the maximal elimination cliques, which are marked in `kept`.

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


@compiled(inner=True)
def _copy(source: Any, target: Any) -> None:
    """Copy a matrix. A loop, because numba takes seconds to compile an assignment of slices."""
    for i in range(source.shape[0]):
        for q in range(source.shape[1]):
            target[i, q] = source[i, q]


@njit(inline="always")
def _search(
    core: Any, sizes: Any, restarts: int, enough: float, state: Any, boards: Any, lists: Any, scratch: Any
) -> Any:
    """Return the smallest tree of three heuristics and randomised restarts: its cells; its cliques in the boards.

    The search ends at the first tree of at most `enough` cells.

    A vertex whose neighbours are joined already costs nothing to eliminate, so those go first (attempt -1) and every
    heuristic works on what remains: the part of the graph with loops.
    """
    work, cliques, best_cliques = boards
    order, kept, best_kept, place, degree = lists
    state[0] = np.uint64(12345)
    best, start = np.inf, np.int64(0)  # a literal 0 would have `_run` compiled for it alone, too
    for attempt in range(-1, 3 + restarts):
        board = core if attempt < 0 else work
        if attempt >= 0:
            _copy(core, work)
        method, jitter = (attempt, 0.0) if attempt < 3 else (1 + attempt % 2, 0.3)
        reached = _run(board, sizes, order, cliques, start, method, jitter, state, scratch)
        if attempt < 0:
            start = reached
            continue
        cells = _cells(sizes, order, cliques, kept, place, degree)
        if cells < best or attempt == 0:
            best = cells
            _copy(cliques, best_cliques)
            for v in range(kept.size):
                best_kept[v] = kept[v]
        if start == sizes.size or best <= enough:
            break
    return best


@compiled()
def cells_with(
    graph: Any,
    sizes: Any,
    restarts: int,
    base: float,
    enough: float,
    starts: Any,
    members: Any,
    out: Any,
    core: Any,
    state: Any,
    boards: Any,
    lists: Any,
    scratch: Any,
) -> None:
    """The tree's cells after joining each candidate, whose columns are `members[starts[i]:starts[i + 1]]`.

    A candidate that adds no edge gets `base`, unless that is negative. The search ends at a tree of at most `enough`
    cells. The cliques of the last tree remain in `boards[2]`, marked by `lists[2]`. The last five arguments are scratch
    arrays (see `make_scratch`).
    """
    for c in range(out.size):
        _copy(graph, core)
        changed = base < 0.0
        for i in range(starts[c], starts[c + 1]):
            for k in range(starts[c], starts[c + 1]):
                u, v = members[i], members[k]
                if u != v and not core[u, v // _WORD] & _bit(v):
                    core[u, v // _WORD] |= _bit(v)
                    changed = True
        out[c] = _search(core, sizes, restarts, enough, state, boards, lists, scratch) if changed else base


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


def make_scratch(n: int) -> tuple[Any, ...]:
    """Make the scratch arrays of `cells_with`; allocating them in compiled code would be slow to compile."""
    words = -(-n // _WORD)
    core, *boards = np.zeros((4, n, words), np.uint64)
    order, place, degree, rest, places = np.empty((5, n), np.int64)
    kept, best_kept = np.empty((2, n), np.uint8)
    lists = (order, kept, best_kept, place, degree)
    return core, np.zeros(1, np.uint64), tuple(boards), lists, (np.zeros(words, np.uint64), rest, places, np.empty(n))
