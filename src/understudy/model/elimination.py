"""Compiled search for a good elimination order. Imported on first use, because numba is slow to import."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_FILL, _WEIGHTED_FILL, _WEIGHT = 0, 1, 2


@njit(cache=True)
def _random(state: NDArray[np.uint64]) -> float:
    """A uniform number in [0, 1) from a SplitMix64 state: the search must be repeatable on every machine."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def _score(graph: NDArray[np.uint8], sizes: NDArray[np.float64], v: int, method: int, near: NDArray[np.int64]) -> Any:
    """How bad it would be to eliminate `v` next: added edges, added edges by size, or the cells of its clique."""
    count = 0
    cells = sizes[v]
    for u in range(graph.shape[0]):
        if graph[v, u]:
            near[count] = u
            count += 1
            cells *= sizes[u]
    if method == _WEIGHT:
        return cells
    total = 0.0
    for i in range(count):
        for k in range(i + 1, count):
            if not graph[near[i], near[k]]:
                total += 1.0 if method == _FILL else sizes[near[i]] * sizes[near[k]]
    return total


@njit(cache=True)
def _remove(graph: NDArray[np.uint8], v: int, clique: NDArray[np.uint8], touched: NDArray[np.uint8]) -> None:
    """Eliminate `v`: write its neighbours to `clique`, join them, and mark whose score may have changed."""
    n = graph.shape[0]
    for u in range(n):
        clique[u] = graph[v, u]
    for u in range(n):
        if clique[u]:
            touched[u] = 1
            for k in range(n):
                if clique[k] and k != u and not graph[u, k]:
                    graph[u, k] = 1
                    for z in range(n):
                        if graph[u, z] and graph[k, z]:
                            touched[z] = 1
            graph[u, v] = 0
            graph[v, u] = 0


@njit(cache=True)
def _run(
    graph: NDArray[np.uint8],
    sizes: NDArray[np.float64],
    order: NDArray[np.int64],
    cliques: NDArray[np.uint8],
    start: int,
    method: int,
    jitter: float,
    state: NDArray[np.uint64],
    only_simplicial: bool,
) -> Any:
    """Greedy elimination from position `start` of `order`; returns the position it reached."""
    n = graph.shape[0]
    near = np.empty(n, np.int64)
    done = np.zeros(n, np.uint8)
    for i in range(start):
        done[order[i]] = 1
    touched = np.ones(n, np.uint8)
    score = np.empty(n, np.float64)
    for position in range(start, n):
        best = -1
        for v in range(n):
            if done[v]:
                continue
            if touched[v]:
                score[v] = _score(graph, sizes, v, method, near)
                if jitter > 0.0:
                    score[v] = score[v] * (1.0 + jitter * _random(state)) + 1e-9 * _random(state)
                touched[v] = 0
            if best < 0 or score[v] < score[best]:
                best = v
        if only_simplicial and score[best] > 0.0:
            return position
        _remove(graph, best, cliques[best], touched)
        order[position] = best
        done[best] = 1
    return n


@njit(cache=True)
def _cells(
    sizes: NDArray[np.float64], order: NDArray[np.int64], cliques: NDArray[np.uint8], kept: NDArray[np.uint8]
) -> float:
    """Cells of the maximal elimination cliques, which are marked in `kept`.

    The clique of `v` lies inside an earlier one exactly when some `u` whose first later neighbour is `v` has one
    neighbour more than `v` has.
    """
    n = sizes.size
    place = np.empty(n, np.int64)
    degree = np.zeros(n, np.int64)
    for i in range(n):
        place[order[i]] = i
        kept[i] = 1
        for u in range(n):
            degree[i] += cliques[i, u]
    for u in range(n):
        first = -1
        for v in range(n):
            if cliques[u, v] and (first < 0 or place[v] < place[first]):
                first = v
        if first >= 0 and degree[u] == degree[first] + 1:
            kept[first] = 0
    total = 0.0
    for v in range(n):
        if kept[v]:
            cells = sizes[v]
            for u in range(n):
                if cliques[v, u]:
                    cells *= sizes[u]
            total += cells
    return total


@njit(cache=True)
def search(
    graph: NDArray[np.uint8],
    sizes: NDArray[np.float64],
    restarts: int,
    best_order: NDArray[np.int64],
    best_cliques: NDArray[np.uint8],
    best_kept: NDArray[np.uint8],
) -> float:
    """The smallest tree of three heuristics and `restarts` randomised ones: its cells; the rest in the arguments.

    A vertex whose neighbours are joined already costs nothing to eliminate, so those go first and every heuristic
    works on what remains: the part of the graph with loops.
    """
    n = graph.shape[0]
    state = np.full(1, np.uint64(12345))
    core = graph.copy()
    order, cliques, kept = np.empty(n, np.int64), np.zeros((n, n), np.uint8), np.empty(n, np.uint8)
    start = _run(core, sizes, order, cliques, 0, _FILL, 0.0, state, True)
    if start == n:
        best_order[:] = order
        best_cliques[:] = cliques
        return _cells(sizes, order, cliques, best_kept)
    best = np.inf
    for attempt in range(3 + restarts):
        work = core.copy()
        if attempt < 3:
            _run(work, sizes, order, cliques, start, attempt, 0.0, state, False)
        else:
            _run(work, sizes, order, cliques, start, 1 + attempt % 2, 0.3, state, False)
        cells = _cells(sizes, order, cliques, kept)
        if cells < best or attempt == 0:
            best = cells
            best_order[:] = order
            best_cliques[:] = cliques
            best_kept[:] = kept
    return best


@njit(cache=True)
def cells_with(
    graph: NDArray[np.uint8],
    sizes: NDArray[np.float64],
    restarts: int,
    base: float,
    starts: NDArray[np.int64],
    members: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """The tree's cells after joining each candidate, whose columns are `members[starts[i]:starts[i + 1]]`."""
    n = graph.shape[0]
    order, cliques, kept = np.empty(n, np.int64), np.zeros((n, n), np.uint8), np.empty(n, np.uint8)
    for c in range(out.size):
        joined = graph.copy()
        changed = False
        for i in range(starts[c], starts[c + 1]):
            for k in range(starts[c], starts[c + 1]):
                u, v = members[i], members[k]
                if u != v and not joined[u, v]:
                    joined[u, v] = 1
                    changed = True
        out[c] = search(joined, sizes, restarts, order, cliques, kept) if changed else base
