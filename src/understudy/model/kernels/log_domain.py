"""The same schedules in the log domain: slower by an order of magnitude, and safe from underflow.

Imported only when the linear domain has failed. Every output cell is a log-sum-exp, made in two sweeps: its largest
term first, then the sum relative to it. The schedule `s` is one without `CROSS`
steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from understudy.model.kernels.arguments import MOVE, NORMALISE, RATIO
from understudy.model.kernels.crossing import advance


@njit(cache=True)
def _log_sum(a: Any) -> Any:
    top = -np.inf
    for j in range(a.size):
        top = max(top, a[j])
    if top == -np.inf:
        return top
    total = 0.0
    for j in range(a.size):
        total += np.exp(a[j] - top)
    return top + np.log(total)


@njit(inline="always")
def _add_up(W: Any, row: Any, length: Any, places: Any, bounds: Any, lists: Any, gather: Any) -> None:
    """Put the sum of a block's inputs into `row`."""
    shift = 0.0
    for t in range(bounds[0]):
        shift += W[places[t]]
    for j in range(length):
        row[j] = shift
    for t in range(bounds[0], bounds[1]):
        a = places[t]
        for j in range(length):
            row[j] += W[a + j]
    for t in range(bounds[1], bounds[2]):
        a, steps = places[t], lists[t]
        for j in range(length):
            row[j] += W[a + gather[steps + j]]


@njit(inline="always")
def _deposit(W: Any, top: Any, value: float, o: Any, summing: bool) -> None:
    if summing:
        if value > -np.inf:
            W[o] += np.exp(value - top[o])
    else:
        top[o] = max(top[o], value)


@njit(cache=True)
def _sweep(W: Any, top: Any, s: Any, q: int, row: Any, places: Any, index: Any, summing: bool) -> None:
    """Visit every cell of a `FUSE` step: first for the largest terms, then for the sums."""
    first, tables = s.table_at[q], s.table_at[q + 1] - s.table_at[q]
    sizes = s.axis_size[s.axis_at[q] : s.axis_at[q + 1]]
    jumps = s.jump[s.jump_at[q] : s.jump_at[q + 1]]
    lists, bounds, length = s.lists[first : first + tables], s.bounds[q], np.uint64(s.length[q])
    own = s.plain[q, 0] - 1
    for t in range(tables):
        places[t] = s.offset[first + t]
    for d in range(sizes.size):
        index[d] = 0
    for _ in range(s.blocks[q]):
        _add_up(W, row, length, places, bounds, lists, s.gather)
        for t in range(bounds[2], tables):
            for j in range(length):
                o = places[t]
                if t >= bounds[4]:
                    o += s.gather[lists[t] + j]
                elif t >= bounds[3]:
                    o += j
                _deposit(W, top, row[j], o, summing)
        if summing and own >= 0:
            for j in range(length):
                W[places[own] + j] = row[j]
        advance(index, sizes, jumps, places, tables)


@njit(cache=True)
def _fuse(W: Any, top: Any, s: Any, q: int, row: Any, places: Any, index: Any) -> None:
    for t in range(s.table_at[q] + s.bounds[q, 2], s.table_at[q + 1]):
        for o in range(np.int64(s.offset[t]), np.int64(s.offset[t]) + s.cells[t]):
            W[o] = 0.0
            top[o] = -np.inf
    _sweep(W, top, s, q, row, places, index, False)
    _sweep(W, top, s, q, row, places, index, True)
    for t in range(s.table_at[q] + s.bounds[q, 2], s.table_at[q + 1]):
        for o in range(np.int64(s.offset[t]), np.int64(s.offset[t]) + s.cells[t]):
            W[o] = top[o] + np.log(W[o]) if W[o] > 0.0 else -np.inf


@njit(cache=True)
def run_log(W: Any, top: Any, s: Any, first: int, last: int, sums: Any, row: Any, places: Any, index: Any) -> None:
    """Run steps `first .. last-1` on logarithms; `top` is scratch as long as `W`; `sums` keeps logarithms."""
    for q in range(first, last):
        t = s.table_at[q]
        start, n = np.int64(s.offset[t]), s.cells[t]
        if s.kind[q] == NORMALISE:
            sums[q] = _log_sum(W[start : start + n])
            if sums[q] > -np.inf:
                for j in range(n):
                    W[start + j] -= sums[q]
        elif s.kind[q] == MOVE:
            source = np.int64(s.offset[t + 1])
            W[start : start + n] = W[source : source + n]
        elif s.kind[q] == RATIO:
            up, shift = np.int64(s.offset[t + 1]), sums[s.plain[q, 0]]
            for j in range(n):
                possible = W[up + j] > -np.inf
                W[start + j] = W[start + j] - W[up + j] - shift if possible else -np.inf
        else:
            _fuse(W, top, s, q, row, places, index)
