"""The compiled loops of the descent. Imported on first use, because numba is slow to import.

A basis has one row for each answer and one column for each stiff direction: all directions in one pass, in one order
of summation.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # without "nnan" and "ninf": an overflow must stay visible


@njit(cache=True, fastmath=_FAST)
def half_squares(weights: Any, answers: Any, targets: Any) -> Any:
    """Half the weighted sum of squared residuals."""
    total = 0.0
    for i in range(weights.size):
        r = answers[i] - targets[i]
        total += weights[i] * r * r
    return 0.5 * total


@njit(cache=True, fastmath=_FAST)
def parts(basis: Any, weights: Any, answers: Any, targets: Any, out: Any) -> None:
    """The residual's part along each direction of the basis, in the inner product of the weights."""
    out[:] = 0.0
    for i in range(weights.size):
        r = weights[i] * (answers[i] - targets[i])
        if r != 0.0:
            row = basis[i]
            for k in range(out.size):
                out[k] += r * row[k]


@njit(cache=True, fastmath=_FAST)
def descend(
    x: Any,
    kept: Any,
    answers: Any,
    targets: Any,
    weights: Any,
    step: float,
    basis: Any,
    less: Any,
    momenta: Any,
    out: Any,
) -> None:
    """One accelerated step: `kept` becomes the plain step from `x`, `out` goes beyond it by the two momenta.

    The residual is taken without `less` of each direction of the basis.
    """
    along, beyond = momenta
    for i in range(x.size):
        moved = x[i]
        if weights[i] != 0.0:
            r = answers[i] - targets[i]
            row = basis[i]
            for k in range(less.size):
                r -= row[k] * less[k]
            moved -= step * weights[i] * r
        out[i] = moved + along * (moved - kept[i]) + beyond * (moved - x[i])
        kept[i] = moved


@njit(cache=True, fastmath=_FAST)
def subtract(basis: Any, coefficients: Any, vector: Any) -> None:
    """Take a combination of the basis away from a vector."""
    for i in range(vector.size):
        row, total = basis[i], 0.0
        for k in range(coefficients.size):
            total += row[k] * coefficients[k]
        vector[i] -= total


@njit(cache=True, fastmath=_FAST)
def rotate(flat: Any, width: int, rotation: Any, row: Any) -> None:
    """Replace a basis, row after row in `flat`, by `basis @ rotation`, in the same place: rows become shorter."""
    narrow = rotation.shape[1]
    for i in range(flat.size // width):
        for m in range(width):
            row[m] = flat[i * width + m]
        for k in range(narrow):
            total = 0.0
            for m in range(width):
                total += row[m] * rotation[m, k]
            flat[i * narrow + k] = total
