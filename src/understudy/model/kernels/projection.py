"""Compiled loops of projections: sums, matrix products, and the best order of products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from understudy.model.kernels import compiled

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_COLUMNS = 512  # of the right-hand matrix at a time, so that it stays in the cache while the rows pass by


@compiled(fastmath=_FAST)
def sums(T: Any, W: Any, steps: Any) -> None:
    """Sum out one axis a step: `(source, target, outer, size, inner)`, places in `W`; a source of -1 is all of `T`."""
    for q in range(steps.shape[0]):
        source, outer, size, inner = steps[q, 0], steps[q, 2], steps[q, 3], np.uint64(steps[q, 4])
        S = T if source < 0 else W[source : source + outer * size * steps[q, 4]]
        D = W[steps[q, 1] : steps[q, 1] + outer * steps[q, 4]]
        a, d = np.uint64(0), np.uint64(0)
        for _ in range(outer):
            if inner == 1:
                total = 0.0
                for k in range(np.uint64(size)):
                    total += S[a + k]
                D[d] = total
                a += np.uint64(size)
            else:
                for j in range(inner):
                    D[d + j] = S[a + j]
                a += inner
                for _ in range(1, size):
                    for j in range(inner):
                        D[d + j] += S[a + j]
                    a += inner
            d += inner


@njit(inline="always")
def _row(A: Any, B: Any, out: Any, a: Any, b: Any, o: Any, inner: Any, stride: Any, width: Any) -> None:
    """Compute a part of one row of the product: of `inner` rows of the right-hand matrix, four at a time."""
    one, k = np.uint64(1), np.uint64(4)
    if inner >= k:
        a0, a1, a2, a3 = A[a], A[a + one], A[a + one + one], A[a + one + one + one]
        b1, b2, b3 = b + stride, b + stride + stride, b + stride + stride + stride
        for j in range(width):
            out[o + j] = a0 * B[b + j] + a1 * B[b1 + j] + a2 * B[b2 + j] + a3 * B[b3 + j]
    else:
        a0, k = A[a], one
        for j in range(width):
            out[o + j] = a0 * B[b + j]
    while k + np.uint64(4) <= inner:
        at = a + k
        a0, a1, a2, a3 = A[at], A[at + one], A[at + one + one], A[at + one + one + one]
        b0 = b + k * stride
        b1, b2, b3 = b0 + stride, b0 + stride + stride, b0 + stride + stride + stride
        for j in range(width):
            out[o + j] += a0 * B[b0 + j] + a1 * B[b1 + j] + a2 * B[b2 + j] + a3 * B[b3 + j]
        k += np.uint64(4)
    while k < inner:
        a0, b0 = A[a + k], b + k * stride
        for j in range(width):
            out[o + j] += a0 * B[b0 + j]
        k += one


@compiled(fastmath=_FAST)
def products(A: Any, B: Any, out: Any, batch: int, rows: int, inner: int, cols: int) -> None:
    """Compute a batch of matrix products, all flat, on one thread, so that the sums are always the same.

    Places are unsigned and matrices flat because the compiler then uses vector instructions (see `propagation.py`).
    """
    depth, stride, block = np.uint64(inner), np.uint64(cols), np.uint64(_COLUMNS)
    for n in range(batch):
        if cols == 1:
            for i in range(n * rows, (n + 1) * rows):
                total, a, b = 0.0, np.uint64(i * inner), np.uint64(n * inner)
                for k in range(depth):
                    total += A[a + k] * B[b + k]
                out[i] = total
            continue
        start = np.uint64(0)
        while start < stride:
            width = min(block, stride - start)
            for i in range(n * rows, (n + 1) * rows):
                a, b, o = np.uint64(i * inner), np.uint64(n * inner * cols) + start, np.uint64(i * cols) + start
                _row(A, B, out, a, b, o, depth, stride, width)
            start += block


@compiled(inner=True)
def _cells(mask: int, sizes: Any) -> float:
    cells, i = 1.0, 0
    while mask:
        if mask & 1:
            cells *= sizes[i]
        mask >>= 1
        i += 1
    return cells


@compiled()
def best_order(masks: Any, sizes: Any, wanted: int, kept: Any, costs: Any, splits: Any) -> None:
    """Find, for every set of tables (as bits), the two parts whose product gives it with the least work.

    Args:
        masks: the columns of each table, as bits.
        sizes: of the columns.
        wanted: the columns that the end result keeps.
        kept: room for the columns that the product of each set keeps.
        costs: room for the multiplications that each set needs.
        splits: where to write one of the two parts, for each set.
    """
    n = masks.size
    for s in range(1, 1 << n):
        inside, outside = 0, wanted
        for i in range(n):
            if s >> i & 1:
                inside |= masks[i]
            else:
                outside |= masks[i]
        splits[s] = 0
        if s & (s - 1) == 0:
            kept[s], costs[s] = inside, 0.0
            continue
        kept[s], costs[s] = inside & outside, np.inf
        part = (s - 1) & s
        while part > s ^ part:
            cost = costs[part] + costs[s ^ part]
            if cost < costs[s]:
                cost += _cells(kept[part] | kept[s ^ part], sizes)
                if cost < costs[s]:
                    costs[s], splits[s] = cost, part
            part = (part - 1) & s
