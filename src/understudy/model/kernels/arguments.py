"""Named tuples of arrays that compiled loops take as arguments. These classes must not be moved or renamed.

Numba caches compiled loops on disk under the names of their argument classes. If a class were moved or renamed, numba
could not read the cache of an earlier version, and a run would fail.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

FUSE, NORMALISE, RATIO, SPREAD, CROSS, MOVE = 0, 1, 2, 3, 4, 5
CHUNK = 256
OCTAVE = 8  # codes of factors from one power of two to the next
FACTORS = 2.0 ** (-np.arange(256) / OCTAVE)
NO_FACTORS = np.empty(0, np.uint8)


class Schedule(NamedTuple):
    """Steps of belief propagation as arrays, see `propagation.py`. Ragged lists are one array and its starts."""

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
    """1/variance of the answers: one number for each table, times a factor for each answer if softened (`FACTORS`).

    `scratch` is where the loops write the weights of a `CHUNK`, so two threads cannot use the same `Weights`.
    """

    ends: NDArray[np.int64]
    each: NDArray[np.float64]
    factors: NDArray[np.uint8]
    scratch: NDArray[np.float64]

    @classmethod
    def of(cls, ends: NDArray[np.int64], each: NDArray[np.float64], factors: NDArray[np.uint8] = NO_FACTORS) -> Self:
        """Return the weights of tables that end at these places."""
        return cls(ends, each, factors, np.empty(CHUNK))

    def soften(self, factors: NDArray[np.uint8]) -> Weights:
        """Return the weights times a factor for each answer, given by its code."""
        return self._replace(factors=factors)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights of some answers."""
        found: NDArray[np.float64] = self.each[np.searchsorted(self.ends, places, side="right")]
        return found * FACTORS[self.factors[places]] if self.factors.size else found


class Basis(NamedTuple):
    """Vectors in a quarter of the memory of single precision: 8-bit codes, and a scale for each `CHUNK` of a row."""

    codes: NDArray[np.int8]
    scales: NDArray[np.float64]

    @classmethod
    def empty(cls, rows: int, cells: int) -> Self:
        """Return an uninitialised basis."""
        return cls(np.empty((rows, cells), np.int8), np.empty((rows, -(-cells // CHUNK))))


class Directions(NamedTuple):
    """Sparse vectors with the same non-zero places: the places, and the values with one row for each vector."""

    places: NDArray[np.int64]
    rows: NDArray[np.float64]
