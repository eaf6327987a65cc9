"""The compiled loops of the descent.

A basis has one row of 16-bit codes for each stiff direction, and for each chunk of a row the scale of its codes. All
passes go through the cells in chunks that stay in the processor's nearest memory while every direction visits them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from understudy.model.kernels.arguments import CHUNK

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # without "nnan" and "ninf": an overflow must stay visible
_TOP = 32767.0


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
    residual = np.empty(CHUNK)
    out[:] = 0.0
    squares = 0.0
    for start in range(0, weights.size, CHUNK):
        w, a = weights[start : start + CHUNK], answers[start : start + CHUNK]
        for i in range(w.size):
            r = a[i] if targets is None else a[i] - targets[start + i]
            residual[i] = w[i] * r
            squares += residual[i] * r
        for k in range(out.size):
            codes, total = basis.codes[k, start : start + CHUNK], 0.0
            for i in range(w.size):
                total += codes[i] * residual[i]
            out[k] += total * basis.scales[k, start // CHUNK]
    return 0.5 * squares


@njit(inline="always")
def _residuals(residual: Any, answers: Any, targets: Any, basis: Any, less: Any, start: int) -> Any:
    """A chunk of residuals without `less` of each direction; returns the chunk's length."""
    a, y = answers[start : start + CHUNK], targets[start : start + CHUNK]
    for i in range(a.size):
        residual[i] = a[i] - y[i]
    for k in range(less.size):
        codes, much = basis.codes[k, start : start + CHUNK], less[k] * basis.scales[k, start // CHUNK]
        for i in range(a.size):
            residual[i] -= much * codes[i]
    return a.size


@njit(cache=True, fastmath=_FAST)
def descend(
    x: Any, kept: Any, answers: Any, targets: Any, weights: Any, step: float, basis: Any, less: Any, momenta: Any
) -> None:
    """One accelerated step: `kept` becomes the plain step from `x`, and `x` goes beyond it by the two momenta.

    The residual is taken without `less` of each direction of the basis.
    """
    along, beyond = momenta
    residual = np.empty(CHUNK)
    for start in range(0, x.size, CHUNK):
        length = _residuals(residual, answers, targets, basis, less, start)
        at, old, w = x[start : start + length], kept[start : start + length], weights[start : start + length]
        for i in range(length):
            moved = at[i] - step * w[i] * residual[i]
            at[i] = moved + along * (moved - old[i]) + beyond * (moved - at[i])
            old[i] = moved


@njit(cache=True, fastmath=_FAST)
def go_back(x: Any, kept: Any, answers: Any, targets: Any, weights: Any, step: float, basis: Any, less: Any) -> None:
    """Undo a step: `x` and `kept` become what `x` was, which the plain step and the residual tell."""
    residual = np.empty(CHUNK)
    for start in range(0, x.size, CHUNK):
        length = _residuals(residual, answers, targets, basis, less, start)
        at, old, w = x[start : start + length], kept[start : start + length], weights[start : start + length]
        for i in range(length):
            at[i] = old[i] = old[i] + step * w[i] * residual[i]


@njit(cache=True, fastmath=_FAST)
def subtract(basis: Any, coefficients: Any, vector: Any) -> None:
    """Take a combination of the basis away from a vector."""
    for start in range(0, vector.size, CHUNK):
        v = vector[start : start + CHUNK]
        for k in range(coefficients.size):
            codes, much = basis.codes[k, start : start + CHUNK], coefficients[k] * basis.scales[k, start // CHUNK]
            for i in range(v.size):
                v[i] -= much * codes[i]


@njit(inline="always")
def _encode(values: Any, basis: Any, row: int, start: int) -> None:
    """Write a chunk of a row."""
    top, codes = 0.0, basis.codes[row, start : start + CHUNK]
    for i in range(codes.size):
        top = max(top, abs(values[i]))
    basis.scales[row, start // CHUNK] = top / _TOP
    finer = _TOP / top if top > 0.0 else 0.0
    for i in range(codes.size):
        codes[i] = np.int16(np.rint(values[i] * finer))


@njit(cache=True, fastmath=_FAST)
def store(basis: Any, row: int, weights: Any, vector: Any, size: float) -> float:
    """Divide a vector by its size and make it a row of the basis; returns its largest change of a potential.

    Cells that have no weight become 0: they would only coarsen the codes.
    """
    largest, part = 0.0, 1.0 / size
    for start in range(0, vector.size, CHUNK):
        v, w = vector[start : start + CHUNK], weights[start : start + CHUNK]
        for i in range(v.size):
            v[i] = part * v[i] if w[i] != 0.0 else 0.0
            largest = max(largest, abs(w[i] * v[i]))
        _encode(v, basis, row, start)
    return largest


@njit(cache=True, fastmath=_FAST)
def probe(x: Any, weights: Any, vector: Any, epsilon: float, out: Any) -> None:
    """Unknowns a little away from `x` along a vector."""
    for i in range(x.size):
        out[i] = x[i] + epsilon * weights[i] * vector[i]


@njit(cache=True, fastmath=_FAST)
def change(found: Any, answers: Any, epsilon: float) -> None:
    """What the answers found at a probe tell of the derivative there; written over them."""
    for i in range(found.size):
        found[i] = (found[i] - answers[i]) / epsilon


@njit(cache=True, fastmath=_FAST)
def rotate(basis: Any, rotation: Any) -> None:
    """Replace the first rows of a basis by the combinations that the columns of `rotation` say."""
    rows, cells = basis.codes.shape
    held, mixed = np.empty((rows, CHUNK)), np.empty(CHUNK)
    for start in range(0, cells, CHUNK):
        length = min(CHUNK, cells - start)
        for m in range(rows):
            codes, scale = basis.codes[m, start : start + CHUNK], basis.scales[m, start // CHUNK]
            for i in range(length):
                held[m, i] = scale * codes[i]
        for k in range(rotation.shape[1]):
            mixed[:] = 0.0
            for m in range(rows):
                much = rotation[m, k]
                for i in range(length):
                    mixed[i] += much * held[m, i]
            _encode(mixed, basis, k, start)
