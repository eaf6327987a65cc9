"""The same schedules in the log domain: slower by an order of magnitude, and safe from underflow.

Imported only when the linear domain has failed. Every output cell is a log-sum-exp, made in two sweeps: its largest
term first, then the sum relative to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from understudy.model.kernels import NORMALISE, RATIO, advance


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


@njit(cache=True)
def _place(s: Any, bounds: Any, lists: Any, places: Any, t: int, j: int) -> Any:
    """Where cell `j` of the current block lies in table `t`."""
    if t < bounds[0] or bounds[2] <= t < bounds[3]:
        return places[t]
    if t < bounds[1] or bounds[3] <= t < bounds[4]:
        return places[t] + np.uint64(j)
    return places[t] + s.gather[lists[t] + np.uint64(j)]


@njit(cache=True)
def _sweep(W: Any, top: Any, s: Any, q: int, places: Any, index: Any, summing: bool) -> None:
    first, tables = s.table_at[q], s.table_at[q + 1] - s.table_at[q]
    sizes = s.axis_size[s.axis_at[q] : s.axis_at[q + 1]]
    jumps = s.jump[s.jump_at[q] : s.jump_at[q + 1]]
    lists, bounds = s.lists[first : first + tables], s.bounds[q]
    for t in range(tables):
        places[t] = s.offset[first + t]
    for d in range(sizes.size):
        index[d] = 0
    for _ in range(s.blocks[q]):
        for j in range(s.length[q]):
            value = 0.0
            for t in range(bounds[2]):
                value += W[_place(s, bounds, lists, places, t, j)]
            if value == -np.inf:
                continue
            for t in range(bounds[2], tables):
                o = _place(s, bounds, lists, places, t, j)
                if summing:
                    W[o] += np.exp(value - top[o])
                else:
                    top[o] = max(top[o], value)
        advance(index, sizes, jumps, places, tables)


@njit(cache=True)
def run_log(W: Any, top: Any, s: Any, first: int, last: int, sums: Any, places: Any, index: Any) -> None:
    """Run steps `first .. last-1` on logarithms; `top` is scratch as long as `W`; `sums` keeps logarithms."""
    for q in range(first, last):
        start, n = s.plain[q, 0], s.plain[q, 1]
        if s.kind[q] == NORMALISE:
            sums[q] = _log_sum(W[start : start + n])
            if sums[q] > -np.inf:
                for j in range(n):
                    W[start + j] -= sums[q]
        elif s.kind[q] == RATIO:
            up, down, shift = s.plain[q, 2], s.plain[q, 3], sums[s.plain[q, 4]]
            for j in range(n):
                possible = W[up + j] > -np.inf
                W[start + j] = W[down + j] - W[up + j] - shift if possible else -np.inf
        else:
            outputs = range(s.table_at[q] + s.bounds[q, 2], s.table_at[q + 1])
            for t in outputs:
                for o in range(np.int64(s.offset[t]), np.int64(s.offset[t]) + s.cells[t]):
                    W[o] = 0.0
                    top[o] = -np.inf
            _sweep(W, top, s, q, places, index, False)
            _sweep(W, top, s, q, places, index, True)
            for t in outputs:
                for o in range(np.int64(s.offset[t]), np.int64(s.offset[t]) + s.cells[t]):
                    W[o] = top[o] + np.log(W[o]) if W[o] > 0.0 else -np.inf
