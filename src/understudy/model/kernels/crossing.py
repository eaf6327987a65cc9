"""The compiled loops of `CROSS` steps: a large clique as matrices of rows and columns (see `model/sweep/crossing.py`).

A step's tables are sorted: inputs with rows, with columns, with both, then outputs likewise; `bounds` holds the five
ends. `plain` holds how many rows, columns and matrices in a turn there are, and both sizes padded to multiples of 4.
Each table has its list of offsets within the matrix, or lies there in one piece. `s` is a `Schedule`, whose arrays are
named in `arguments.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FAST = {"reassoc", "contract", "nsz", "arcp"}  # without "nnan" and "ninf": an overflow must stay visible
_CONTIGUOUS = np.uint64(2**64 - 1)


@njit(inline="always")
def advance(index: Any, sizes: Any, jumps: Any, places: Any, tables: int) -> None:
    """Turn the odometer of the outer axes by one and move every table with it."""
    d = sizes.size - 1
    while d >= 0:
        index[d] += 1
        if index[d] < sizes[d]:
            for t in range(tables):
                places[t] += jumps[d * tables + t]
            break
        index[d] = 0
        d -= 1


@njit(inline="always")
def _product(W: Any, out: Any, places: Any, lists: Any, gather: Any, first: Any, last: Any) -> None:
    """The product of tables `first .. last-1`, each along its own list of offsets."""
    for j in range(out.size):
        out[j] = 1.0
    for t in range(first, last):
        a, steps = places[t], lists[t]
        if steps == _CONTIGUOUS:
            for j in range(np.uint64(out.size)):
                out[j] *= W[a + j]
        else:
            for j in range(np.uint64(out.size)):
                out[j] *= W[a + gather[steps + j]]


@njit(inline="always")
def _add(W: Any, values: Any, places: Any, lists: Any, gather: Any, first: Any, last: Any) -> None:
    """Add values to tables `first .. last-1`, along their lists of offsets."""
    for t in range(first, last):
        a, steps = places[t], lists[t]
        if steps == _CONTIGUOUS:
            for j in range(np.uint64(values.size)):
                W[a + j] += values[j]
        else:
            for j in range(np.uint64(values.size)):
                W[a + gather[steps + j]] += values[j]


@njit(inline="always")
def _times(vector: Any, matrix: Any, out: Any) -> None:
    """`out = vector @ matrix`, four rows at a time."""
    n = out.size
    for j in range(n):
        out[j] = 0.0
    for i in range(0, vector.size, 4):
        v0, v1, v2, v3 = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        m0, m1 = matrix[i * n : (i + 1) * n], matrix[(i + 1) * n : (i + 2) * n]
        m2, m3 = matrix[(i + 2) * n : (i + 3) * n], matrix[(i + 3) * n : (i + 4) * n]
        for j in range(n):
            out[j] += v0 * m0[j] + v1 * m1[j] + v2 * m2[j] + v3 * m3[j]


@njit(inline="always")
def _add_products(out: Any, a: Any, b: Any, x: int, y: int) -> None:
    """`out += a.T @ b` for four rows `a`, `b` each."""
    b0, b1, b2, b3 = b[:y], b[y : 2 * y], b[2 * y : 3 * y], b[3 * y : 4 * y]
    for i in range(x):
        v0, v1, v2, v3 = a[i], a[x + i], a[2 * x + i], a[3 * x + i]
        part = out[i * y : (i + 1) * y]
        for j in range(y):
            part[j] += v0 * b0[j] + v1 * b1[j] + v2 * b2[j] + v3 * b3[j]


@njit(inline="always")
def _rearrange(source: Any, out: Any, width: int, height: int, by_width: int, by_height: int) -> None:
    """Copy a matrix to another layout: steps between columns and rows."""
    for i in range(height):
        for j in range(width):
            out[i * by_height + j * by_width] = source[i * width + j]


@njit(cache=True, fastmath=FAST)
def cross(W: Any, s: Any, q: int, row: Any, places: Any, index: Any) -> None:
    """One `CROSS` step. Rows and columns are padded with zeros to a multiple of four."""
    first, tables = s.table_at[q], s.table_at[q + 1] - s.table_at[q]
    sizes = s.axis_size[s.axis_at[q] : s.axis_at[q + 1]]
    jumps = s.jump[s.jump_at[q] : s.jump_at[q + 1]]
    lists, gather, bounds = s.lists[first : first + tables], s.gather, s.bounds[q]
    wide, long, turns, x, y = s.plain[q]
    row[:] = 0.0
    ends = np.cumsum(np.array([0, 4 * x, 4 * y, x, y, x * y, x * y, x * y, wide * long]))
    a, b = row[ends[0] : ends[1]], row[ends[1] : ends[2]]
    along, down = row[ends[2] : ends[3]], row[ends[3] : ends[4]]
    matrix, turned, summed = row[ends[4] : ends[5]], row[ends[5] : ends[6]], row[ends[6] : ends[7]]
    plain = row[ends[7] : ends[8]]
    rows, columns, both = bounds[3] > bounds[2], bounds[4] > bounds[3], tables > bounds[4]
    for t in range(tables):
        places[t] = s.offset[first + t]
    for d in range(sizes.size):
        index[d] = 0
    for _ in range(s.blocks[q]):
        _product(W, plain, places, lists, gather, bounds[1], bounds[2])
        _rearrange(plain, matrix, long, wide, 1, y)
        if rows:
            _rearrange(plain, turned, long, wide, x, 1)
        for turn in range(turns):
            k = turn % 4
            mine, other = a[k * x : (k + 1) * x], b[k * y : (k + 1) * y]
            _product(W, mine[:wide], places, lists, gather, 0, bounds[0])
            _product(W, other[:long], places, lists, gather, bounds[0], bounds[1])
            if rows:
                _times(other, turned, along)
                for i in range(wide):
                    along[i] *= mine[i]
                _add(W, along[:wide], places, lists, gather, bounds[2], bounds[3])
            if columns:
                _times(mine, matrix, down)
                for j in range(long):
                    down[j] *= other[j]
                _add(W, down[:long], places, lists, gather, bounds[3], bounds[4])
            if both and (k == 3 or turn == turns - 1):
                _add_products(summed, a[:], b[:], x, y)
                a[:] = 0.0
            if both and turn == turns - 1:
                for i in range(wide):
                    for j in range(long):
                        plain[i * long + j] = matrix[i * y + j] * summed[i * y + j]
                _add(W, plain, places, lists, gather, bounds[4], tables)
                summed[:] = 0.0
            advance(index, sizes, jumps, places, tables)
