"""Compiled loops of belief propagation, in the linear domain and in the log domain.

A schedule `s` is plain arrays (named in `arguments.py`, made by `model/schedule.py`); these generic loops run any of
them, so no tree structure is ever compiled. Everything lies in one flat workspace `W`. The kinds of steps:

- `FUSE` visits each cell of a tree clique once, multiplies its inputs there and sums the product into its outputs. The
  clique itself is never stored, unless one input has all its columns: then the product may overwrite that input
  (`plain` holds its number, from 1; 0 for none).
- `CROSS` does the same for matrices of rows and columns (see `Crossing` in `model/schedule.py`).
- `NORMALISE` divides a message by its sum, and `RATIO` divides out of a message what its receiver already knows.
- `SPREAD` adds a table to a larger one, and `MOVE` copies a table.

The last axes of a clique form a block of `length` cells. Within it a table is constant, contiguous, or scattered
(reached through a list of offsets); over the outer axes an odometer moves all tables by one addition each. A step's
tables are sorted: constant, contiguous, scattered inputs, then constant, contiguous, scattered outputs; `bounds`
holds the five ends. Places are unsigned (moving back is adding a number that wraps around), because the compiler then
knows that no index counts from the end, and can use vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from understudy.model.kernels import compiled
from understudy.model.kernels.arguments import FUSE, MOVE, NORMALISE, RATIO, SPREAD

FAST = {"reassoc", "contract", "nsz", "arcp"}  # without "nnan" and "ninf": an overflow must stay visible

TINY = 1e-280  # sums below it count as underflow


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _multiply(W: Any, row: Any, length: Any, places: Any, bounds: Any, lists: Any, gather: Any) -> bool:
    """Put the product of a block's inputs into `row`; False if it is zero everywhere."""
    scale = 1.0
    for t in range(bounds[0]):
        scale *= W[places[t]]
    if scale == 0.0:
        return False
    first, end = bounds[0], bounds[1]
    if end == first:
        for j in range(length):
            row[j] = scale
    elif end == first + 1:
        a = places[first]
        for j in range(length):
            row[j] = scale * W[a + j]
    elif end == first + 2:
        a, b = places[first], places[first + 1]
        for j in range(length):
            row[j] = scale * W[a + j] * W[b + j]
    else:
        a, b, c = places[first], places[first + 1], places[first + 2]
        for j in range(length):
            row[j] = scale * W[a + j] * W[b + j] * W[c + j]
        for t in range(first + 3, end):
            a = places[t]
            for j in range(length):
                row[j] *= W[a + j]
    for t in range(end, bounds[2]):
        a, steps = places[t], lists[t]
        for j in range(length):
            row[j] *= W[a + gather[steps + j]]
    return True


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _deposit(W: Any, row: Any, length: Any, places: Any, bounds: Any, lists: Any, gather: Any, tables: int) -> None:
    """Add a block to every output."""
    if bounds[3] > bounds[2]:
        total = 0.0
        for j in range(length):
            total += row[j]
        for t in range(bounds[2], bounds[3]):
            W[places[t]] += total
    t, end = bounds[3], bounds[4]
    while t + 1 < end:
        a, b = places[t], places[t + 1]
        for j in range(length):
            W[a + j] += row[j]
            W[b + j] += row[j]
        t += 2
    if t < end:
        a = places[t]
        for j in range(length):
            W[a + j] += row[j]
    for t in range(bounds[4], tables):
        a, steps = places[t], lists[t]
        for j in range(length):
            W[a + gather[steps + j]] += row[j]


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _spread(W: Any, length: Any, places: Any, bounds: Any, lists: Any, gather: Any) -> None:
    """Add the one input's block to the one output, which is contiguous."""
    a, target = places[0], places[1]
    if bounds[0]:
        value = W[a]
        for j in range(length):
            W[target + j] += value
    elif bounds[1]:
        for j in range(length):
            W[target + j] += W[a + j]
    else:
        steps = lists[0]
        for j in range(length):
            W[target + j] += W[a + gather[steps + j]]


@njit(inline="always")
def _sweep(W: Any, s: Any, q: int, row: Any, places: Any, index: Any) -> None:
    """Run one `FUSE` or `SPREAD` step."""
    first, tables = s.table_at[q], s.table_at[q + 1] - s.table_at[q]
    sizes = s.axis_size[s.axis_at[q] : s.axis_at[q + 1]]
    jumps = s.jump[s.jump_at[q] : s.jump_at[q + 1]]
    lists, gather = s.lists[first : first + tables], s.gather
    bounds, length = s.bounds[q], np.uint64(s.length[q])
    spread, own = s.kind[q] == SPREAD, s.plain[q, 0] - 1
    for t in range(tables):
        places[t] = s.offset[first + t]
    for d in range(sizes.size):
        index[d] = 0
    for _ in range(s.blocks[q]):
        if spread:
            _spread(W, length, places, bounds, lists, gather)
        elif _multiply(W, row, length, places, bounds, lists, gather):
            _deposit(W, row, length, places, bounds, lists, gather, tables)
            if own >= 0:
                a = places[own]
                for j in range(length):
                    W[a + j] = row[j]
        elif own >= 0:
            a = places[own]
            for j in range(length):
                W[a + j] = 0.0
        advance(index, sizes, jumps, places, tables)


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _clear(W: Any, s: Any, q: int) -> None:
    """Set a step's outputs to 0: other tables may have lain there before."""
    for t in range(s.table_at[q] + s.bounds[q, 2], s.table_at[q + 1]):
        a = s.offset[t]
        for j in range(np.uint64(s.cells[t])):
            W[a + j] = 0.0


@compiled(fastmath=FAST)
def run(W: Any, s: Any, first: int, last: int, sums: Any, row: Any, places: Any, index: Any) -> float:
    """Run steps `first .. last-1`, none a `CROSS`; returns the smallest cell of a normalised message, to see underflow.

    Stops at a message that is 0 everywhere, and then returns -1.

    `sums[q]` keeps what step `q` normalised by.
    """
    smallest = 1.0
    for q in range(first, last):
        t = s.table_at[q]
        if s.kind[q] == FUSE or s.kind[q] == SPREAD:
            if s.kind[q] == FUSE:
                _clear(W, s, q)
            _sweep(W, s, q, row, places, index)
            continue
        a, n = s.offset[t], np.uint64(s.cells[t])
        if s.kind[q] == NORMALISE:
            total = 0.0
            for j in range(n):
                total += W[a + j]
            sums[q] = total
            if not total > TINY:
                return -1.0
            for j in range(n):
                W[a + j] /= total
                smallest = min(smallest, W[a + j])
            continue
        b = s.offset[t + 1]
        if s.kind[q] == RATIO:
            scale = sums[s.plain[q, 0]]
            for j in range(n):
                W[a + j] = W[a + j] / (W[b + j] * scale) if W[b + j] > 0.0 else 0.0
        else:
            for j in range(n):
                W[a + j] = W[b + j]
    return smallest


@compiled(fastmath=FAST)
def lower(T: Any, ends: Any) -> float:
    """Subtract from each table `T[ends[i]:ends[i + 1]]` its maximum; returns the sum of the maxima."""
    total = 0.0
    for i in range(ends.size - 1):
        a = T[ends[i] : ends[i + 1]]
        top = a[0]
        for j in range(a.size):
            top = max(top, a[j])
        for j in range(a.size):
            a[j] -= top
        total += top
    return total


@compiled(fastmath={"contract"})
def exponentials(T: Any, powers: Any, bits: Any) -> None:
    """Replace values of at most 0 by their `exp`; below -690 by `exp(-690)`.

    Written out so that the compiler can use vector instructions, which is five times faster than the library's:
    2^k by writing k into the exponent, the rest by a polynomial. Exact to two units in the last place. Of
    fast-math only fused operations, because adding and subtracting the magic number is what rounds to an integer.
    `powers` is scratch for a block of them, and `bits` the same seen as integers.
    """
    magic, n = 6755399441055744.0, np.uint64(T.size)
    block = np.uint64(powers.size)
    start = np.uint64(0)
    while start < n:
        length = min(block, n - start)
        for j in range(length):
            x = T[start + j] if T[start + j] > -690.0 else -690.0
            powers[j] = x * 1.4426950408889634 + magic
        for j in range(length):
            x = T[start + j] if T[start + j] > -690.0 else -690.0
            k = powers[j] - magic
            r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10
            p = 1.6059043836821613e-10 * r + 2.08767569878681e-09
            p = p * r + 2.505210838544172e-08
            p = p * r + 2.7557319223985888e-07
            p = p * r + 2.7557319223985893e-06
            p = p * r + 2.48015873015873e-05
            p = p * r + 0.0001984126984126984
            p = p * r + 0.001388888888888889
            p = p * r + 0.008333333333333333
            p = p * r + 0.041666666666666664
            p = p * r + 0.16666666666666666
            T[start + j] = ((p * r + 0.5) * r + 1.0) * r + 1.0
        for j in range(length):
            bits[j] = (bits[j] << 52) + (1023 << 52)
        for j in range(length):
            T[start + j] *= powers[j]
        start += length


# `CROSS` steps: a large clique as matrices of rows and columns (see `Crossing` in `model/schedule.py`)
#
# A step's tables are sorted: inputs with rows, with columns, with both, then outputs in the same order; `bounds` holds
# the five ends. `plain` holds the number of rows, of columns and of matrices in a turn, and both sizes padded to
# multiples of 4. Each table has a list of offsets within the matrix, or lies there contiguously.

_CONTIGUOUS = np.uint64(2**64 - 1)


@compiled(inner=True, forceinline=True, fastmath=FAST)
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


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _product(W: Any, out: Any, places: Any, lists: Any, gather: Any, first: Any, last: Any) -> None:
    """Multiply tables `first .. last-1`, each along its own list of offsets."""
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


@compiled(inner=True, forceinline=True, fastmath=FAST)
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


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _multiply_matrix(vector: Any, matrix: Any, out: Any) -> None:
    """Compute `out = vector @ matrix`, four rows at a time."""
    n = out.size
    for j in range(n):
        out[j] = 0.0
    for i in range(0, vector.size, 4):
        v0, v1, v2, v3 = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        m0, m1 = matrix[i * n : (i + 1) * n], matrix[(i + 1) * n : (i + 2) * n]
        m2, m3 = matrix[(i + 2) * n : (i + 3) * n], matrix[(i + 3) * n : (i + 4) * n]
        for j in range(n):
            out[j] += v0 * m0[j] + v1 * m1[j] + v2 * m2[j] + v3 * m3[j]


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _add_products(out: Any, a: Any, b: Any, x: int, y: int) -> None:
    """Compute `out += a.T @ b` for four rows `a`, `b` each."""
    b0, b1, b2, b3 = b[:y], b[y : 2 * y], b[2 * y : 3 * y], b[3 * y : 4 * y]
    for i in range(x):
        v0, v1, v2, v3 = a[i], a[x + i], a[2 * x + i], a[3 * x + i]
        part = out[i * y : (i + 1) * y]
        for j in range(y):
            part[j] += v0 * b0[j] + v1 * b1[j] + v2 * b2[j] + v3 * b3[j]


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _rearrange(source: Any, out: Any, width: int, height: int, by_width: int, by_height: int) -> None:
    """Copy a matrix to another layout: steps between columns and rows."""
    for i in range(height):
        for j in range(width):
            out[i * by_height + j * by_width] = source[i * width + j]


@compiled(fastmath=FAST)
def cross(W: Any, s: Any, q: int, row: Any, places: Any, index: Any) -> None:
    """Run one `CROSS` step. Rows and columns are padded with zeros to a multiple of four."""
    first, tables = s.table_at[q], s.table_at[q + 1] - s.table_at[q]
    sizes = s.axis_size[s.axis_at[q] : s.axis_at[q + 1]]
    jumps = s.jump[s.jump_at[q] : s.jump_at[q + 1]]
    lists, gather, bounds = s.lists[first : first + tables], s.gather, s.bounds[q]
    wide, long, turns, x, y = s.plain[q, 0], s.plain[q, 1], s.plain[q, 2], s.plain[q, 3], s.plain[q, 4]
    _clear(W, s, q)
    for j in range(row.size):
        row[j] = 0.0
    a, rest = row[: 4 * x], row[4 * x :]
    b, rest = rest[: 4 * y], rest[4 * y :]
    along, rest = rest[:x], rest[x:]
    down, rest = rest[:y], rest[y:]
    matrix, turned, summed = rest[: x * y], rest[x * y : 2 * x * y], rest[2 * x * y : 3 * x * y]
    plain = rest[3 * x * y : 3 * x * y + wide * long]
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
                _multiply_matrix(other, turned, along)
                for i in range(wide):
                    along[i] *= mine[i]
                _add(W, along[:wide], places, lists, gather, bounds[2], bounds[3])
            if columns:
                _multiply_matrix(mine, matrix, down)
                for j in range(long):
                    down[j] *= other[j]
                _add(W, down[:long], places, lists, gather, bounds[3], bounds[4])
            if both and (k == 3 or turn == turns - 1):
                _add_products(summed, a, b, x, y)
                for i in range(4 * x):
                    a[i] = 0.0
            if both and turn == turns - 1:
                for i in range(wide):
                    for j in range(long):
                        plain[i * long + j] = matrix[i * y + j] * summed[i * y + j]
                _add(W, plain, places, lists, gather, bounds[4], tables)
                for i in range(x * y):
                    summed[i] = 0.0
            advance(index, sizes, jumps, places, tables)


# The log domain: slower by an order of magnitude, and safe from underflow. Used only when the linear domain has failed.
#
# Every output cell is a log-sum-exp, computed in two sweeps: its largest term first, then the sum relative to it. The
# schedule `s` has no `CROSS` steps.


@compiled(inner=True)
def _log_sum(a: Any) -> Any:
    top = -np.inf
    for j in range(a.size):
        top = max(top, a[j])
    if top == -np.inf:
        return top
    total = 0.0
    for j in range(a.size):
        total += np.exp(a[j] - top)
    return top + np.log(total)


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _add_inputs(W: Any, row: Any, length: Any, places: Any, bounds: Any, lists: Any, gather: Any) -> None:
    """Put the sum of a block's inputs into `row`."""
    shift = 0.0
    for t in range(bounds[0]):
        shift += W[places[t]]
    for j in range(length):
        row[j] = shift
    for t in range(bounds[0], bounds[1]):
        a = places[t]
        for j in range(length):
            row[j] += W[a + j]
    for t in range(bounds[1], bounds[2]):
        a, steps = places[t], lists[t]
        for j in range(length):
            row[j] += W[a + gather[steps + j]]


@compiled(inner=True, forceinline=True, fastmath=FAST)
def _log_deposit(W: Any, top: Any, value: float, o: Any, summing: bool) -> None:
    if summing:
        if value > -np.inf:
            W[o] += np.exp(value - top[o])
    else:
        top[o] = max(top[o], value)


@compiled(inner=True)
def _log_sweep(W: Any, top: Any, s: Any, q: int, row: Any, places: Any, index: Any, summing: bool) -> None:
    """Visit every cell of a `FUSE` step: first for the largest terms, then for the sums."""
    first, tables = s.table_at[q], s.table_at[q + 1] - s.table_at[q]
    sizes = s.axis_size[s.axis_at[q] : s.axis_at[q + 1]]
    jumps = s.jump[s.jump_at[q] : s.jump_at[q + 1]]
    lists, bounds, length = s.lists[first : first + tables], s.bounds[q], np.uint64(s.length[q])
    own = s.plain[q, 0] - 1
    for t in range(tables):
        places[t] = s.offset[first + t]
    for d in range(sizes.size):
        index[d] = 0
    for _ in range(s.blocks[q]):
        _add_inputs(W, row, length, places, bounds, lists, s.gather)
        for t in range(bounds[2], tables):
            for j in range(length):
                o = places[t]
                if t >= bounds[4]:
                    o += s.gather[lists[t] + j]
                elif t >= bounds[3]:
                    o += j
                _log_deposit(W, top, row[j], o, summing)
        if summing and own >= 0:
            for j in range(length):
                W[places[own] + j] = row[j]
        advance(index, sizes, jumps, places, tables)


@compiled(inner=True)
def _log_fuse(W: Any, top: Any, s: Any, q: int, row: Any, places: Any, index: Any) -> None:
    for t in range(s.table_at[q] + s.bounds[q, 2], s.table_at[q + 1]):
        for o in range(np.int64(s.offset[t]), np.int64(s.offset[t]) + s.cells[t]):
            W[o] = 0.0
            top[o] = -np.inf
    _log_sweep(W, top, s, q, row, places, index, False)
    _log_sweep(W, top, s, q, row, places, index, True)
    for t in range(s.table_at[q] + s.bounds[q, 2], s.table_at[q + 1]):
        for o in range(np.int64(s.offset[t]), np.int64(s.offset[t]) + s.cells[t]):
            W[o] = top[o] + np.log(W[o]) if W[o] > 0.0 else -np.inf


@compiled()
def run_log(W: Any, top: Any, s: Any, first: int, last: int, sums: Any, row: Any, places: Any, index: Any) -> None:
    """Run steps `first .. last-1` on logarithms; `top` is scratch as long as `W`; `sums` keeps logarithms."""
    for q in range(first, last):
        t = s.table_at[q]
        start, n = np.int64(s.offset[t]), s.cells[t]
        if s.kind[q] == NORMALISE:
            sums[q] = _log_sum(W[start : start + n])
            if sums[q] > -np.inf:
                for j in range(n):
                    W[start + j] -= sums[q]
        elif s.kind[q] == MOVE:
            source = np.int64(s.offset[t + 1])
            for j in range(n):
                W[start + j] = W[source + j]
        elif s.kind[q] == RATIO:
            up, shift = np.int64(s.offset[t + 1]), sums[s.plain[q, 0]]
            for j in range(n):
                possible = W[up + j] > -np.inf
                W[start + j] = W[start + j] - W[up + j] - shift if possible else -np.inf
        else:
            _log_fuse(W, top, s, q, row, places, index)
