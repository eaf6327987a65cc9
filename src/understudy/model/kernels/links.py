"""The compiled loop of Newton's method for the tables of a tree (`model/tree/newton.py`)."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True)
def add_products(rows: Any, columns: Any, values: Any, vector: Any, out: Any) -> None:
    """Add to `out` a symmetric matrix, without its diagonal, times a vector; each pair of entries is given once."""
    for k in range(values.size):
        i, j = rows[k], columns[k]
        out[i] += values[k] * vector[j]
        out[j] += values[k] * vector[i]
