"""The compiled loops of the descent. Imported on first use, because numba is slow to import.

A basis has one row for each stiff direction. All passes go through the cells in chunks that stay in the processor's
nearest memory while every direction visits them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # without "nnan" and "ninf": an overflow must stay visible
_CHUNK = 1024


@njit(cache=True, fastmath=_FAST)
def half_squares(weights: Any, answers: Any, targets: Any) -> Any:
    """Half the weighted sum of squared residuals. Without targets the answers are the residual."""
    total = 0.0
    for i in range(weights.size):
        r = answers[i] if targets is None else answers[i] - targets[i]
        total += weights[i] * r * r
    return 0.5 * total


@njit(cache=True, fastmath=_FAST)
def extremes(weights: Any, answers: Any, targets: Any, total: float) -> Any:
    """The largest weight times variance that the targets imply, and the largest weighted residual."""
    stiffest, furthest = 0.0, 0.0
    for i in range(weights.size):
        count = min(max(targets[i], 0.0), total)
        stiffest = max(stiffest, weights[i] * count * (1.0 - count / total))
        furthest = max(furthest, weights[i] * abs(answers[i] - targets[i]))
    return stiffest, furthest


@njit(cache=True, fastmath=_FAST)
def parabola(weights: Any, answers: Any, targets: Any, others: Any) -> Any:
    """Slope and bend of the loss on the line from these answers to others."""
    slope, bend = 0.0, 0.0
    for i in range(weights.size):
        away = others[i] - answers[i]
        slope += weights[i] * (answers[i] - targets[i]) * away
        bend += weights[i] * away * away
    return slope, bend


@njit(cache=True, fastmath=_FAST)
def parts(basis: Any, weights: Any, answers: Any, targets: Any, out: Any) -> Any:
    """The residual's part along each direction of the basis, in the inner product of the weights.

    Returns half the weighted sum of squared residuals. Without targets the answers are the residual.
    """
    residual = np.empty(_CHUNK)
    out[:] = 0.0
    squares = 0.0
    for start in range(0, weights.size, _CHUNK):
        w, a = weights[start : start + _CHUNK], answers[start : start + _CHUNK]
        for i in range(w.size):
            r = a[i] if targets is None else a[i] - targets[start + i]
            residual[i] = w[i] * r
            squares += residual[i] * r
        for k in range(out.size):
            direction, total = basis[k, start : start + _CHUNK], 0.0
            for i in range(w.size):
                total += direction[i] * residual[i]
            out[k] += total
    return 0.5 * squares


@njit(inline="always")
def _residuals(residual: Any, answers: Any, targets: Any, basis: Any, less: Any, start: int) -> Any:
    """A chunk of residuals without `less` of each direction; returns the chunk's length."""
    a, y = answers[start : start + _CHUNK], targets[start : start + _CHUNK]
    for i in range(a.size):
        residual[i] = a[i] - y[i]
    for k in range(less.size):
        direction, much = basis[k, start : start + _CHUNK], less[k]
        for i in range(a.size):
            residual[i] -= much * direction[i]
    return a.size


@njit(cache=True, fastmath=_FAST)
def descend(
    x: Any, kept: Any, answers: Any, targets: Any, weights: Any, step: float, basis: Any, less: Any, momenta: Any
) -> None:
    """One accelerated step: `kept` becomes the plain step from `x`, and `x` goes beyond it by the two momenta.

    The residual is taken without `less` of each direction of the basis.
    """
    along, beyond = momenta
    residual = np.empty(_CHUNK)
    for start in range(0, x.size, _CHUNK):
        length = _residuals(residual, answers, targets, basis, less, start)
        at, old, w = x[start : start + length], kept[start : start + length], weights[start : start + length]
        for i in range(length):
            moved = at[i] - step * w[i] * residual[i]
            at[i] = moved + along * (moved - old[i]) + beyond * (moved - at[i])
            old[i] = moved


@njit(cache=True, fastmath=_FAST)
def go_back(x: Any, kept: Any, answers: Any, targets: Any, weights: Any, step: float, basis: Any, less: Any) -> None:
    """Undo a step: `x` and `kept` become what `x` was, which the plain step and the residual tell."""
    residual = np.empty(_CHUNK)
    for start in range(0, x.size, _CHUNK):
        length = _residuals(residual, answers, targets, basis, less, start)
        at, old, w = x[start : start + length], kept[start : start + length], weights[start : start + length]
        for i in range(length):
            at[i] = old[i] = old[i] + step * w[i] * residual[i]


@njit(cache=True, fastmath=_FAST)
def subtract(basis: Any, coefficients: Any, vector: Any) -> None:
    """Take a combination of the basis away from a vector."""
    for start in range(0, vector.size, _CHUNK):
        v = vector[start : start + _CHUNK]
        for k in range(coefficients.size):
            direction, much = basis[k, start : start + _CHUNK], coefficients[k]
            for i in range(v.size):
                v[i] -= much * direction[i]


@njit(cache=True, fastmath=_FAST)
def rotate(basis: Any, rotation: Any) -> None:
    """Replace the first rows of a basis by the combinations that the columns of `rotation` say."""
    held = np.empty((basis.shape[0], _CHUNK))
    for start in range(0, basis.shape[1], _CHUNK):
        block = basis[:, start : start + _CHUNK]
        for m in range(block.shape[0]):
            for i in range(block.shape[1]):
                held[m, i] = block[m, i]
        for k in range(rotation.shape[1]):
            row = block[k]
            row[:] = 0.0
            for m in range(block.shape[0]):
                much = rotation[m, k]
                for i in range(row.size):
                    row[i] += much * held[m, i]
