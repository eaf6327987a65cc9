"""Compiled loops that make rows: random numbers, sampling, and gradual updates.

The random numbers are fast, seeded by the caller, and the same on every machine. They are never used for privacy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.model.kernels import compiled


@compiled(inner=True, forceinline=True)
def uniform(state: Any) -> float:
    """Draw a number in [0, 1) by SplitMix64; advances the state."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


# Sampling


@compiled(inner=True)
def _fill(weights: Any, total: float, rounding: bool, state: Any, values: Any) -> None:
    """Draw values for the rows of one group: rounded counts in random order (Algorithm 7), or independent draws."""
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
    # Systematic rounding: each count is its expectation rounded up or down, and unbiased.
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


def draw_values(
    groups: NDArray[np.int64], weights: NDArray[np.float64], rng: np.random.Generator, *, rounding: bool = True
) -> NDArray[np.int32]:
    """Draw a value for each row by the weights of the row's group; uniform in a group without weight."""
    state = rng.integers(0, 2**64, 1, dtype=np.uint64)
    starts, even = np.zeros(weights.shape[0] + 1, np.int64), np.ones(weights.shape[1])
    values, out = np.empty(groups.size, np.int32), np.empty(groups.size, np.int32)
    _draw_values(groups, weights, state, rounding, starts, values, even, out)
    return out


@compiled()
def _draw_values(
    groups: Any, weights: Any, state: Any, rounding: bool, starts: Any, values: Any, even: Any, out: Any
) -> None:
    for i in range(groups.size):
        starts[groups[i] + 1] += 1
    for g in range(weights.shape[0]):
        starts[g + 1] += starts[g]
    for g in range(weights.shape[0]):
        if starts[g + 1] > starts[g]:
            total = 0.0
            for v in range(even.size):
                total += weights[g, v]
            shares = weights[g] if total > 0.0 else even
            _fill(
                shares, total if total > 0.0 else float(even.size), rounding, state, values[starts[g] : starts[g + 1]]
            )
    for i in range(groups.size):
        out[i] = values[starts[groups[i]]]
        starts[groups[i]] += 1


# Gradual updates


@compiled()
def count_rows(cells: Any, have: Any) -> None:
    """Count the rows of each cell."""
    for c in range(have.size):
        have[c] = 0
    for i in range(cells.size):
        have[cells[i]] += 1


@compiled(inner=True)
def _find_shrink_factor(have: Any, target: Any, wanted: float) -> float:
    """Find beta such that cells with too many rows give up `wanted` rows: the sum of min(excess, beta * have)."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        given = 0.0
        for c in range(have.size):
            if have[c] > target[c]:
                given += min(have[c] - target[c], middle * have[c])
        if given < wanted:
            low = middle
        else:
            high = middle
    return high


@compiled()
def plan_changes(
    have: Any,
    target: Any,
    alpha: float,
    share: float,
    nearest: bool,
    state: Any,
    removed: Any,
    copied: Any,
    written: Any,
) -> None:
    """Compute how many rows each cell gives up, gets as copies of its rows, and gets by writing its values.

    Cells with too few rows grow by at most a factor 1 + alpha, an empty one by alpha times its target; a `share` of
    the growth is copied. Amounts are rounded up or down at random without bias, so that cells that want a fraction of a
    row get it over the rounds; or to the `nearest` number.
    """
    wanted = 0.0
    for c in range(have.size):
        removed[c] = copied[c] = written[c] = 0
        if have[c] < target[c]:
            grow = alpha * target[c] if have[c] == 0 else min(target[c] - have[c], alpha * have[c])
            rows = int(grow + (0.5 if nearest else uniform(state)))
            if have[c] > 0:
                copied[c] = min(int(share * rows + (0.5 if nearest else uniform(state))), have[c], rows)
            written[c] = rows - copied[c]
            wanted += rows
    beta = _find_shrink_factor(have, target, wanted)
    for c in range(have.size):
        if have[c] > target[c]:
            excess = min(have[c] - target[c], beta * have[c])
            removed[c] = min(int(excess + (0.5 if nearest else uniform(state))), have[c])


@compiled()
def pick_rows(cells: Any, left: Any, want: Any, removed: Any, state: Any, freed: Any, models: Any) -> Any:
    """Pick the rows to overwrite and the rows to copy, both in random order, without replacement within each cell.

    One pass of selection sampling: a row is taken with probability (still wanted) / (still to come) of its cell, so
    every subset of a cell's rows is equally likely for any order of the rows. `left` and `want` are the rows that each
    cell has and wants taken; both are used up.
    """
    taken, found = 0, 0
    for i in range(cells.size):
        c = cells[i]
        if want[c] > 0:
            if uniform(state) * left[c] < want[c]:
                want[c] -= 1
                if removed[c] > 0:
                    freed[taken] = i
                    taken += 1
                else:
                    models[found] = i
                    found += 1
            left[c] -= 1
    for i in range(taken - 1, 0, -1):
        k = int(uniform(state) * (i + 1))
        freed[i], freed[k] = freed[k], freed[i]
    for i in range(found - 1, 0, -1):
        k = int(uniform(state) * (i + 1))
        models[i], models[k] = models[k], models[i]
    return taken, found


@compiled()
def shuffle_values(values: Any, state: Any) -> None:
    """Shuffle values in place."""
    for i in range(values.size - 1, 0, -1):
        k = int(uniform(state) * (i + 1))
        values[i], values[k] = values[k], values[i]
