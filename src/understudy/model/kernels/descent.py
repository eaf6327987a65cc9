"""Compiled loops of the descent, and of Newton's method for trees (`add_products`).

The loops go through the answers in chunks and write out the weights of each chunk. There is one weight for a table
(`Weights` in `arguments.py`), so no vector of weights is ever stored, and a chunk stays in the first-level cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from understudy.model.kernels import compiled
from understudy.model.kernels.arguments import CHUNK, FACTORS, OCTAVE

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # without "nnan" and "ninf": an overflow must stay visible
_TOP = 127.0
_FIRST: Any = np.int64(0)  # the first table; a literal 0 would have `_weigh` compiled for it alone, too


@compiled(inner=True, forceinline=True, fastmath=_FAST)
def _weigh(out: Any, weights: Any, start: int, size: int, table: int) -> Any:
    """Write a chunk's weights to `out`; returns the table in which the next chunk begins, and the chunk's length."""
    length = min(CHUNK, size - start)
    i = 0
    while i < length:
        end = min(length, weights.ends[table] - start)
        for j in range(i, end):
            out[j] = weights.each[table]
        i = end
        if i < length:
            table += 1
    if weights.factors.size:
        factors = weights.factors[start : start + length]
        for j in range(length):
            out[j] *= FACTORS[factors[j]]
    return table, length


@compiled(fastmath=_FAST)
def half_squares(weights: Any, answers: Any, targets: Any) -> Any:
    """Return half the weighted sum of squared residuals. Without targets the answers are the residual."""
    total, table, w = 0.0, _FIRST, weights.scratch
    for start in range(0, answers.size, CHUNK):
        table, length = _weigh(w, weights, start, answers.size, table)
        for i in range(length):
            r = answers[start + i] if targets is None else answers[start + i] - targets[start + i]
            total += w[i] * r * r
    return 0.5 * total


@compiled(fastmath=_FAST)
def extremes(weights: Any, answers: Any, targets: Any, total: float) -> Any:
    """Return the largest weight times variance that the targets imply, and the largest weighted residual."""
    stiffest, furthest, table, w = 0.0, 0.0, _FIRST, weights.scratch
    for start in range(0, answers.size, CHUNK):
        table, length = _weigh(w, weights, start, answers.size, table)
        for i in range(length):
            count = min(max(targets[start + i], 0.0), total)
            stiffest = max(stiffest, w[i] * count * (1.0 - count / total))
            furthest = max(furthest, w[i] * abs(answers[start + i] - targets[start + i]))
    return stiffest, furthest


@compiled(fastmath=_FAST)
def parabola(weights: Any, answers: Any, targets: Any, others: Any) -> Any:
    """Return slope and bend of the loss on the line from these answers to others."""
    slope, bend, table, w = 0.0, 0.0, _FIRST, weights.scratch
    for start in range(0, answers.size, CHUNK):
        table, length = _weigh(w, weights, start, answers.size, table)
        for i in range(start, start + length):
            away = others[i] - answers[i]
            slope += w[i - start] * (answers[i] - targets[i]) * away
            bend += w[i - start] * away * away
    return slope, bend


@compiled(fastmath=_FAST)
def soften(weights: Any, answers: Any, targets: Any, cap: float, factors: Any) -> None:
    """Compute codes of factors that keep count times weight below a cap."""
    table, w = _FIRST, weights.scratch
    for start in range(0, answers.size, CHUNK):
        table, length = _weigh(w, weights, start, answers.size, table)
        for i in range(length):
            count = max(answers[start + i], targets[start + i], 0.0)
            factors[start + i] = np.uint8(min(255.0, np.rint(OCTAVE * np.log2(1.0 + w[i] * count / cap))))


@compiled(fastmath=_FAST)
def descend(
    x: Any, beyond: Any, weights: Any, answers: Any, targets: Any, step: float, along: float, over: float
) -> None:
    """Move `x` by one accelerated step: a plain step, and momenta along the previous steps and over this one."""
    table, w = _FIRST, weights.scratch
    for start in range(0, x.size, CHUNK):
        table, length = _weigh(w, weights, start, x.size, table)
        for i in range(start, start + length):
            down = step * w[i - start] * (answers[i] - targets[i])
            further = along * (beyond[i] - down) - over * down
            x[i] += further - down
            beyond[i] = further


@compiled(fastmath=_FAST)
def parts(rows: Any, vector: Any, out: Any) -> None:
    """Compute `rows @ vector`."""
    for k in range(out.size):
        row, total = rows[k], 0.0
        for i in range(vector.size):
            total += row[i] * vector[i]
        out[k] = total


@compiled(fastmath=_FAST)
def subtract(rows: Any, coefficients: Any, vector: Any) -> None:
    """Subtract a linear combination of rows from a vector."""
    for k in range(coefficients.size):
        row, much = rows[k], coefficients[k]
        for i in range(vector.size):
            vector[i] -= much * row[i]


@compiled(fastmath=_FAST)
def store(basis: Any, row: int, weights: Any, vector: Any, size: float) -> float:
    """Divide a vector by its size and store it as a row of the basis; returns its largest change of a potential.

    Cells without weight become 0: they would only make the codes coarser.
    """
    largest, part, table, w = 0.0, 1.0 / size, _FIRST, weights.scratch
    for start in range(0, vector.size, CHUNK):
        table, length = _weigh(w, weights, start, vector.size, table)
        v, codes, top = vector[start : start + length], basis.codes[row, start : start + length], 0.0
        for i in range(length):
            top = max(top, abs(v[i]) if w[i] != 0.0 else 0.0)
        finer = _TOP / top if top > 0.0 else 0.0
        basis.scales[row, start // CHUNK] = part * top / _TOP
        for i in range(length):
            codes[i] = np.int8(np.rint(v[i] * finer)) if w[i] != 0.0 else 0
            largest = max(largest, part * abs(w[i] * v[i]))
    return largest


@compiled(fastmath=_FAST)
def shift(weights: Any, basis: Any, row: int, epsilon: float, x: Any) -> None:
    """Move the unknowns by `epsilon` along a row of the basis."""
    table, w = _FIRST, weights.scratch
    for start in range(0, x.size, CHUNK):
        table, length = _weigh(w, weights, start, x.size, table)
        codes, much = basis.codes[row, start : start + length], epsilon * basis.scales[row, start // CHUNK]
        for i in range(length):
            x[start + i] += much * w[i] * codes[i]


@compiled(fastmath=_FAST)
def change(found: Any, answers: Any, epsilon: float) -> None:
    """Overwrite the answers at a shifted point by the finite difference `(found - answers) / epsilon`."""
    for i in range(found.size):
        found[i] = (found[i] - answers[i]) / epsilon


@compiled(fastmath=_FAST)
def part_along(basis: Any, row: int, weights: Any, vector: Any) -> float:
    """Return the inner product, by the weights, of a vector and a row of the basis."""
    total, table, w = 0.0, _FIRST, weights.scratch
    for start in range(0, vector.size, CHUNK):
        table, length = _weigh(w, weights, start, vector.size, table)
        v, codes, some = vector[start : start + length], basis.codes[row, start : start + length], 0.0
        for i in range(length):
            some += w[i] * v[i] * codes[i]
        total += some * basis.scales[row, start // CHUNK]
    return total


@compiled(fastmath=_FAST)
def take_off(basis: Any, row: int, much: float, vector: Any) -> None:
    """Subtract a multiple of a row of the basis from a vector."""
    for start in range(0, vector.size, CHUNK):
        v, scale = vector[start : start + CHUNK], much * basis.scales[row, start // CHUNK]
        codes = basis.codes[row, start : start + CHUNK]
        for i in range(v.size):
            v[i] -= scale * codes[i]


@compiled()
def add_products(rows: Any, columns: Any, values: Any, vector: Any, out: Any) -> None:
    """Add to `out` a symmetric matrix, without its diagonal, times a vector; each pair of entries is given once."""
    for k in range(values.size):
        i, j = rows[k], columns[k]
        out[i] += values[k] * vector[j]
        out[j] += values[k] * vector[i]
