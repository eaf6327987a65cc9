"""The compiled loops of belief propagation.

A schedule `s` is plain arrays (named in `arguments.py`, made by `model/sweep/schedule.py`); these generic loops run any
of them, so no tree structure is ever compiled. Everything lives in one flat workspace `W`. A `FUSE` step visits each
cell of a tree clique once, multiplies its inputs there and sums the product in its outputs, so that the clique itself
is never stored; unless one input has all its columns, whose place the product may take (`plain` tells which, from 1;
0 for none). A `CROSS` step does the same for matrices of rows and columns (see `crossing.py`). `NORMALISE` makes a
message add up to one, `RATIO` takes out of it what its receiver already knows, `SPREAD` adds a table to a larger one,
`MOVE` copies one.

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

from understudy.model.kernels.arguments import CROSS, FUSE, MOVE, NORMALISE, RATIO, SPREAD
from understudy.model.kernels.crossing import FAST, advance, cross

TINY = 1e-280


@njit(inline="always")
def _multiply(W: Any, row: Any, length: Any, places: Any, bounds: Any, lists: Any, gather: Any) -> bool:
    """Put the product of a block's inputs into `row`; False when it is zero everywhere."""
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


@njit(inline="always")
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


@njit(inline="always")
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


@njit(cache=True, fastmath=FAST)
def _sweep(W: Any, s: Any, q: int, row: Any, places: Any, index: Any) -> None:
    """One `FUSE` or `SPREAD` step."""
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


@njit(inline="always")
def _clear(W: Any, s: Any, q: int) -> None:
    """Set a step's outputs to 0: other tables may have lain there before."""
    for t in range(s.table_at[q] + s.bounds[q, 2], s.table_at[q + 1]):
        out = W[s.offset[t] : s.offset[t] + np.uint64(s.cells[t])]
        for j in range(out.size):
            out[j] = 0.0


@njit(cache=True, fastmath=FAST)
def run(W: Any, s: Any, first: int, last: int, sums: Any, row: Any, places: Any, index: Any) -> float:
    """Run steps `first .. last-1`; returns the smallest cell of any normalised message, to notice underflow.

    Stops at a message that is 0 everywhere, and then returns -1.

    `sums[q]` keeps what step `q` normalised by.
    """
    smallest = 1.0
    for q in range(first, last):
        t = s.table_at[q]
        if s.kind[q] == NORMALISE:
            a = W[s.offset[t] : s.offset[t] + np.uint64(s.cells[t])]
            total = 0.0
            for j in range(a.size):
                total += a[j]
            sums[q] = total
            if not total > TINY:
                return -1.0
            for j in range(a.size):
                a[j] /= total
                smallest = min(smallest, a[j])
        elif s.kind[q] == RATIO:
            a = W[s.offset[t] : s.offset[t] + np.uint64(s.cells[t])]
            up, scale = W[s.offset[t + 1] : s.offset[t + 1] + np.uint64(s.cells[t])], sums[s.plain[q, 0]]
            for j in range(a.size):
                a[j] = a[j] / (up[j] * scale) if up[j] > 0.0 else 0.0
        elif s.kind[q] == MOVE:
            a = W[s.offset[t] : s.offset[t] + np.uint64(s.cells[t])]
            a[:] = W[s.offset[t + 1] : s.offset[t + 1] + np.uint64(s.cells[t])]
        elif s.kind[q] == CROSS:
            _clear(W, s, q)
            cross(W, s, q, row, places, index)
        else:
            if s.kind[q] == FUSE:
                _clear(W, s, q)
            _sweep(W, s, q, row, places, index)
    return smallest


@njit(cache=True, fastmath=FAST)
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


@njit(cache=True, fastmath={"contract"})
def exponentials(T: Any, powers: Any, bits: Any) -> None:
    """`exp` of values of at most 0, in their place. Below -690 it stays `exp(-690)`.

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
