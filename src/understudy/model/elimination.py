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
    graph: Any, sizes: Any, order: Any, cliques: Any, start: int, method: int, jitter: float, state: Any, scratch: Any
) -> Any:
    """Greedy elimination from position `start` of `order`; returns the position it reached.

    With method -1 it eliminates only vertices that add no edge.
    """
    n = graph.shape[0]
    done, touched, near, score = scratch
    for v in range(n):
        done[v] = 0
        touched[v] = 1
    for i in range(start):
        done[order[i]] = 1
    for position in range(start, n):
        best = -1
        for v in range(n):
            if done[v]:
                continue
            if touched[v]:
                score[v] = _score(graph, sizes, v, max(method, 0), near)
                if jitter > 0.0:
                    score[v] = score[v] * (1.0 + jitter * _random(state)) + 1e-9 * _random(state)
                touched[v] = 0
            if best < 0 or score[v] < score[best]:
                best = v
        if method < 0 and score[best] > 0.0:
            return position
        _remove(graph, best, cliques[best], touched)
        order[position] = best
        done[best] = 1
    return n


@njit(cache=True)
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
def _copy(source: Any, target: Any) -> None:
    for i in range(source.shape[0]):
        for k in range(source.shape[1]):
            target[i, k] = source[i, k]


@njit(cache=True)
def _search(core: Any, sizes: Any, restarts: int, state: Any, boards: Any, lists: Any, scratch: Any) -> Any:
    """The smallest tree of three heuristics and randomised restarts: its cells; its cliques in the boards.

    A vertex whose neighbours are joined already costs nothing to eliminate, so those go first and every heuristic
    works on what remains: the part of the graph with loops.
    """
    work, cliques, best_cliques = boards
    order, kept, best_kept, place, degree = lists
    n = sizes.size
    state[0] = np.uint64(12345)
    start = _run(core, sizes, order, cliques, 0, -1, 0.0, state, scratch)
    best = np.inf
    for attempt in range(3 + restarts):
        _copy(core, work)
        if attempt < 3:
            _run(work, sizes, order, cliques, start, attempt, 0.0, state, scratch)
        else:
            _run(work, sizes, order, cliques, start, 1 + attempt % 2, 0.3, state, scratch)
        cells = _cells(sizes, order, cliques, kept, place, degree)
        if cells < best or attempt == 0:
            best = cells
            _copy(cliques, best_cliques)
            for v in range(n):
                best_kept[v] = kept[v]
        if start == n:
            break
    return best


@njit(cache=True)
def cells_with(
    graph: Any,
    sizes: Any,
    restarts: int,
    base: float,
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

    A candidate that adds no edge gets `base`, unless that is negative. The cliques of the last tree searched for
    remain in `boards[2]`, marked by `lists[2]`. The last five arguments are scratch (see `scratch_for`).
    """
    for c in range(out.size):
        _copy(graph, core)
        changed = base < 0.0
        for i in range(starts[c], starts[c + 1]):
            for k in range(starts[c], starts[c + 1]):
                u, v = members[i], members[k]
                if u != v and not core[u, v]:
                    core[u, v] = 1
                    changed = True
        out[c] = _search(core, sizes, restarts, state, boards, lists, scratch) if changed else base


def scratch_for(n: int) -> tuple[Any, ...]:
    """Room for `cells_with` to work in, made here because allocating in compiled code is slow to compile."""
    core, *boards = np.zeros((4, n, n), np.uint8)
    order, place, degree, near = np.empty((4, n), np.int64)
    kept, best_kept, done, touched = np.empty((4, n), np.uint8)
    lists = (order, kept, best_kept, place, degree)
    return core, np.zeros(1, np.uint64), tuple(boards), lists, (done, touched, near, np.empty(n))
