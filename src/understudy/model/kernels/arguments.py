"""The bundles of arrays that loops take. Here and not beside their makers, because they must stay where they are.

Compiled loops are kept on disk under the names of their arguments' classes. Were one of these moved or renamed, loops
that an earlier version kept could not even be looked up, and a run would end in the middle.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

FUSE, NORMALISE, RATIO, SPREAD, CROSS = 0, 1, 2, 3, 4
CHUNK = 256


class Schedule(NamedTuple):
    """Steps as arrays, see `propagation.py`. Ragged lists are one array with the starts beside it."""

    kind: NDArray[np.int64]
    blocks: NDArray[np.int64]
    length: NDArray[np.int64]
    bounds: NDArray[np.int64]
    table_at: NDArray[np.int64]
    offset: NDArray[np.uint64]
    lists: NDArray[np.uint64]
    cells: NDArray[np.int64]
    axis_at: NDArray[np.int64]
    axis_size: NDArray[np.int64]
    jump_at: NDArray[np.int64]
    jump: NDArray[np.uint64]
    gather: NDArray[np.uint64]
    plain: NDArray[np.int64]


class Basis(NamedTuple):
    """Directions in half the memory of single precision: rows of codes, and a scale for each `CHUNK` of a row.

    Much coarser codes would shift the minimum: what they round away is no direction that the model can follow.
    """

    codes: NDArray[np.int16]
    scales: NDArray[np.float64]

    @classmethod
    def empty(cls, rows: int, cells: int) -> Self:
        """Room for directions."""
        return cls(np.empty((rows, cells), np.int16), np.empty((rows, -(-cells // CHUNK))))

    def first(self, rows: int) -> Basis:
        """The first rows, or all there are; in the same memory."""
        return Basis(self.codes[:rows], self.scales[:rows])
