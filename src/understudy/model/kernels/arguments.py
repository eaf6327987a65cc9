"""The bundles of arrays that loops take. Here and not beside their makers, because they must stay where they are.

Compiled loops are kept on disk under the names of their arguments' classes. Were one of these moved or renamed, loops
that an earlier version kept could not even be looked up, and a run would end in the middle.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

FUSE, NORMALISE, RATIO, SPREAD, CROSS, MOVE = 0, 1, 2, 3, 4, 5
CHUNK = 256
OCTAVE = 8  # codes of factors from one power of two to the next
FACTORS = 2.0 ** (-np.arange(256) / OCTAVE)


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


class Weights(NamedTuple):
    """1/variance of every answer: the same for all of a table, unless softened by a factor for each: see `FACTORS`."""

    ends: NDArray[np.int64]
    each: NDArray[np.float64]
    factors: NDArray[np.uint8]

    def softened(self, factors: NDArray[np.uint8]) -> Weights:
        """The same weights times a factor for each answer, given by its code."""
        return self._replace(factors=factors)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The weights of some answers."""
        found: NDArray[np.float64] = self.each[np.searchsorted(self.ends, places, side="right")]
        return found * FACTORS[self.factors[places]] if self.factors.size else found


class Basis(NamedTuple):
    """Vectors in a quarter of the memory of single precision: rows of codes, and a scale for each `CHUNK` of a row."""

    codes: NDArray[np.int8]
    scales: NDArray[np.float64]

    @classmethod
    def empty(cls, rows: int, cells: int) -> Self:
        """Room for vectors."""
        return cls(np.empty((rows, cells), np.int8), np.empty((rows, -(-cells // CHUNK))))


class Directions(NamedTuple):
    """Vectors that are 0 but for some places, the same of all: their values there, one row for each."""

    places: NDArray[np.int64]
    rows: NDArray[np.float64]
