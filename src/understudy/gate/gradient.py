"""Sum the clipped gradients of a critic over rows, in whole numbers: the question that DP-SGD asks the gate.

A critic scores a row by one hidden layer of width H: f(x) = v . g(b + W_x1 + ... + W_xd), where W has a line for each
code of each column, x1 ... xd are the lines of the row's codes, and g is the leaky ReLU. With e = v * g'(...) and
a = g(...), the derivative of f by each of the d lines and by b is e, by v it is a, and by everything else 0. Its square
norm is (d + 1) |e|^2 + |a|^2.

**Privacy.** A row's derivative is scaled to a norm of at most `UNIT` if its norm exceeds `clip` (and by the same factor
otherwise), and truncated to whole numbers, which makes no entry larger. Floating point takes part in that, so it proves
nothing: the square norm of the whole numbers is computed again, exactly, and a row whose norm exceeds `UNIT` adds
nothing. So every row adds a vector of whole numbers of L2 norm at most `UNIT`, whatever its codes and the weights are,
and which vector depends on that row alone: rows are computed one by one, in the same order of operations. A unit's k
rows add at most k `UNIT`; replacing them moves the sum by at most 2 k `UNIT`. These are the sensitivities of a query
with negative entries (`accounting/neighbours.py`), at a largest column norm of `UNIT`. All rows are used in every
question, so that discrete Gaussian noise costs exactly D^2 / (2 sigma^2) in zCDP; no sampling of rows is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.measurement import SLOPE, Critic

UNIT = 1 << 12
"""The largest norm of what a row adds to the sum, in whole units."""

_BLOCK = 1 << 14  # rows whose codes are looked up at a time


def sum_gradients(
    critic: Critic,
    clip: float,
    domain: Domain,
    maps: Mapping[str, NDArray[np.int64]],
    rows: Iterable[Mapping[str, NDArray[Any]]],
) -> NDArray[np.int64]:
    """Return the sum of the rows' clipped derivatives in whole units: those of the lines, the bias and the output.

    Args:
        critic: the critic, which was checked.
        clip: the norm above which a derivative is scaled down.
        domain: the columns, after codes were merged.
        maps: the merged code of each declared code, by column; a column without one is not merged.
        rows: coded rows before merging, in pieces.
    """
    starts = np.cumsum([0, *domain.values()])
    places = {c: start + maps.get(c, np.arange(domain[c])) for c, start in zip(domain, starts[:-1], strict=True)}
    sums = np.zeros(critic.lines.shape, np.int64), *(np.zeros(len(critic.bias), np.int64) for _ in range(2))
    add = _compile()
    for piece in rows:
        size = len(next(iter(piece.values()))) if domain else 0
        for start in range(0, size, _BLOCK):
            block = [places[column][piece[column][start : start + _BLOCK]] for column in domain]
            add(np.stack(block, axis=1).astype(np.int32), *critic.arrays, float(clip), *sums)
    return np.concatenate([array.reshape(-1) for array in sums])


def read_gradients(critic: Critic, clip: float, answer: NDArray[np.int64]) -> tuple[NDArray[np.float32], ...]:
    """Return an answer as derivatives by the lines, the bias and the output, in the scale of the critic."""
    ends = np.cumsum([array.size for array in critic.arrays])[:-1]
    parts = zip(np.split(answer, ends), critic.arrays, strict=True)
    return tuple((part * (clip / UNIT)).astype(np.float32).reshape(array.shape) for part, array in parts)


def _add_gradients(
    places: Any, lines: Any, bias: Any, output: Any, clip: Any, by_lines: Any, by_bias: Any, by_output: Any
) -> None:
    """Add the clipped derivatives of rows to the sums; `places` has the lines of each row's codes."""
    width, columns = bias.size, places.shape[1]
    hidden = np.empty(width, np.float32)
    pull, reach = np.empty(width, np.int64), np.empty(width, np.int64)
    for i in range(places.shape[0]):
        for k in range(width):
            hidden[k] = bias[k]
        for j in range(columns):
            line = places[i, j]
            for k in range(width):
                hidden[k] += lines[line, k]
        norm = 0.0
        for k in range(width):
            slope = 1.0 if hidden[k] > 0 else SLOPE
            norm += (columns + 1) * (slope * output[k]) ** 2 + (slope * hidden[k]) ** 2
        scale = UNIT / max(np.sqrt(norm), clip)
        exact = 0
        for k in range(width):
            slope = 1.0 if hidden[k] > 0 else SLOPE
            pull[k] = int(slope * output[k] * scale)  # truncated towards zero
            reach[k] = int(slope * hidden[k] * scale)
            exact += (columns + 1) * pull[k] * pull[k] + reach[k] * reach[k]
        if exact > UNIT * UNIT:
            continue
        for j in range(columns):
            line = places[i, j]
            for k in range(width):
                by_lines[line, k] += pull[k]
        for k in range(width):
            by_bias[k] += pull[k]
            by_output[k] += reach[k]


@cache
def _compile() -> Callable[..., None]:
    """Return `_add_gradients` as compiled by numba, without liberties in the order of operations."""
    import numba

    return cast(Callable[..., None], numba.njit(cache=True, nogil=True)(_add_gradients))
