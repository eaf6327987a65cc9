"""The compiled loop of sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from understudy.model.kernels.random import uniform


@njit(cache=True)
def _fill(weights: Any, total: float, rounding: bool, state: Any, values: Any) -> None:
    """Values for the rows of one group: rounded counts in random order (Algorithm 7), or independent draws."""
    n, last = values.size, 0
    for v in range(weights.size):
        if weights[v] > 0.0:
            last = v
    if not rounding:
        for i in range(n):
            left = uniform(state) * total
            v = 0
            while v < last and (left >= weights[v] or weights[v] == 0.0):
                left -= weights[v]
                v += 1
            values[i] = v
        return
    # Systematic rounding: each count is its expectation rounded up or down, and right on average.
    offset, reached, done = uniform(state), 0.0, 0
    for v in range(last + 1):
        reached += weights[v] * (n / total)
        until = n if v == last else min(n, int(reached + offset))
        for i in range(done, until):
            values[i] = v
        done = max(done, until)
    for i in range(n - 1, 0, -1):
        k = int(uniform(state) * (i + 1))
        values[i], values[k] = values[k], values[i]


@njit(cache=True)
def deal(groups: Any, weights: Any, seed: Any, rounding: bool, out: Any) -> None:
    """A value for each row, drawn by the weights of the row's group; uniform in a group without weight."""
    state = np.full(1, seed, np.uint64)
    starts = np.zeros(weights.shape[0] + 1, np.int64)
    for i in range(groups.size):
        starts[groups[i] + 1] += 1
    for g in range(weights.shape[0]):
        starts[g + 1] += starts[g]
    values = np.empty(groups.size, np.int32)
    even = np.ones(weights.shape[1])
    for g in range(weights.shape[0]):
        if starts[g + 1] > starts[g]:
            total = weights[g].sum()
            if total > 0.0:
                _fill(weights[g], total, rounding, state, values[starts[g] : starts[g + 1]])
            else:
                _fill(even, float(even.size), rounding, state, values[starts[g] : starts[g + 1]])
    for i in range(groups.size):
        out[i] = values[starts[groups[i]]]
        starts[groups[i]] += 1
