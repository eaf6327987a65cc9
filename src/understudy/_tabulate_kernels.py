"""The compiled loop behind `tabulate`: one function for every clique, so nothing is compiled per request.

numba costs most of a second to import; `tabulate` imports this module only when the work is worth it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

_F = TypeVar("_F", bound=Callable[..., Any])

# An explicit signature compiles once, when the module is first imported on a machine, and is read from the cache after.
_SIGNATURE = (
    "void(uint32[:,::1], int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int32[::1])"
)


def _compiled(function: _F) -> _F:
    return cast(_F, numba.njit([_SIGNATURE], cache=True, nogil=True)(function))


@_compiled
def count_block(
    block: NDArray[np.uint32],
    rows: int,
    sizes: NDArray[np.int64],
    heads: NDArray[np.int64],
    head_starts: NDArray[np.int64],
    lasts: NDArray[np.int64],
    last_starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Add one block of rows to the tables of many cliques.

    A clique is a *head* (all columns but the last) and a *last* column. Cliques with the same head share its flat
    index, and four of them are counted in one loop: four independent tables keep the processor from waiting on
    the previous addition to the same cell.

    The caller guarantees that every code is below its column's size and every table below 2**31 cells: the indices
    are 32 bits wide and no bounds are checked here.

    Args:
        block: codes, one line per column.
        rows: how many entries of each line are filled.
        sizes: the number of codes of each line's column.
        heads: lines of `block` forming the heads, one head after another.
        head_starts: where each head begins in `heads`; one more entry than heads.
        lasts: the last column of each clique, grouped by head.
        last_starts: where each head's cliques begin in `lasts`; one more entry than heads.
        offsets: where each clique's table begins in `out`.
        out: all tables, one after another; added to.
    """
    code = np.empty(rows, np.uint32)
    for h in range(head_starts.size - 1):
        code[:] = np.uint32(0)
        for j in range(head_starts[h], head_starts[h + 1]):
            column, size = block[heads[j]], np.uint32(sizes[heads[j]])
            for i in range(rows):
                code[i] = code[i] * size + column[i]
        q, end = last_starts[h], last_starts[h + 1]
        while q + 4 <= end:
            a, b, c, d = block[lasts[q]], block[lasts[q + 1]], block[lasts[q + 2]], block[lasts[q + 3]]
            size_a, size_b = np.uint32(sizes[lasts[q]]), np.uint32(sizes[lasts[q + 1]])
            size_c, size_d = np.uint32(sizes[lasts[q + 2]]), np.uint32(sizes[lasts[q + 3]])
            out_a, out_b = out[offsets[q] :], out[offsets[q + 1] :]
            out_c, out_d = out[offsets[q + 2] :], out[offsets[q + 3] :]
            for i in range(rows):
                x = code[i]
                out_a[np.uint32(x * size_a + a[i])] += 1
                out_b[np.uint32(x * size_b + b[i])] += 1
                out_c[np.uint32(x * size_c + c[i])] += 1
                out_d[np.uint32(x * size_d + d[i])] += 1
            q += 4
        while q < end:
            a, size_a, out_a = block[lasts[q]], np.uint32(sizes[lasts[q]]), out[offsets[q] :]
            for i in range(rows):
                out_a[np.uint32(code[i] * size_a + a[i])] += 1
            q += 1
