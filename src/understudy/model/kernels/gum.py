"""The compiled loops of the gradual update method."""

from __future__ import annotations

from typing import Any

from numba import njit

from understudy.model.kernels.random import uniform


@njit(cache=True)
def _shed(have: Any, target: Any, wanted: float) -> float:
    """The beta for which the cells with too many rows give up `wanted` in all: sum of min(excess, beta have)."""
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


@njit(cache=True)
def plan(
    have: Any, target: Any, alpha: float, share: float, state: Any, removed: Any, copied: Any, written: Any
) -> None:
    """How many rows each cell gives up, gets as copies of rows it has, and gets by writing its values into rows.

    Cells with too few rows grow by at most a factor 1 + alpha, an empty one by alpha times its target; a `share` of
    what a cell grows by is copied. Amounts are rounded up or down at random, right on average, so that cells that want
    a fraction of a row get their due over the rounds.
    """
    wanted = 0.0
    for c in range(have.size):
        removed[c] = copied[c] = written[c] = 0
        if have[c] < target[c]:
            grow = alpha * target[c] if have[c] == 0 else min(target[c] - have[c], alpha * have[c])
            rows = int(grow + uniform(state))
            if have[c] > 0:
                copied[c] = min(int(share * rows + uniform(state)), have[c], rows)
            written[c] = rows - copied[c]
            wanted += rows
    beta = _shed(have, target, wanted)
    for c in range(have.size):
        if have[c] > target[c]:
            removed[c] = min(int(min(have[c] - target[c], beta * have[c]) + uniform(state)), have[c])


@njit(cache=True)
def pick(cells: Any, have: Any, removed: Any, copied: Any, state: Any, freed: Any, models: Any) -> Any:
    """The rows to overwrite, in random order, and the rows to copy, cell after cell drawn without replacement.

    One pass of selection sampling: a row is taken with probability (still wanted) / (still to come) of its cell, so
    every subset of a cell's rows is equally likely whatever the order of the rows.
    """
    left = have.copy()
    want = removed + copied
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


@njit(cache=True)
def shuffle(values: Any, state: Any) -> None:
    """A random order, in place."""
    for i in range(values.size - 1, 0, -1):
        k = int(uniform(state) * (i + 1))
        values[i], values[k] = values[k], values[i]
