"""Linear queries on a table's cells: what a measurement answered when it is not the cells themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_BLOCK = 1 << 22


class Query(Protocol):
    """A linear query on a clique's flattened cells: `query @ cells` answers it and `query.T @ values` is its adjoint.

    numpy arrays are queries, and so are scipy's sparse arrays and linear operators.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """How many answers, how many cells."""
        ...

    @property
    def T(self) -> Any:
        """The adjoint."""
        ...

    def __matmul__(self, cells: Any, /) -> Any:
        """The answers for these cells."""
        ...


@dataclass(frozen=True, eq=False)
class Scaling:
    """Each cell times a factor of its own: the query of a table whose codes were merged."""

    factors: Vector

    @property
    def shape(self) -> tuple[int, int]:
        """As many answers as cells."""
        return len(self.factors), len(self.factors)

    @property
    def T(self) -> Scaling:
        """A scaling is its own adjoint."""
        return self

    def __matmul__(self, cells: Any, /) -> Any:
        """The answers for a vector of cells."""
        return self.factors * cells


@dataclass(frozen=True, eq=False)
class Entries:
    """A sparse matrix by its entries: any query in a form that can be written down.

    >>> query = Entries.of(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]))
    >>> query @ np.array([3.0, 4.0, 5.0]), query.T @ np.array([1.0, 1.0])
    (array([ 7., 10.]), array([1., 1., 2.]))
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Vector
    shape: tuple[int, ...]

    @classmethod
    def of(cls, query: Query) -> Entries:
        """The entries of any query, found by asking it for its columns a block at a time."""
        answers, cells = query.shape
        width = max(1, _BLOCK // max(answers, 1))
        parts = []
        for start in range(0, cells, width):
            stop = min(start + width, cells)
            block = np.asarray(query @ np.eye(cells, stop - start, -start))
            rows, columns = np.nonzero(block)
            parts.append((rows, columns + start, block[rows, columns]))
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls(rows, columns, values, (answers, cells))

    @property
    def T(self) -> Entries:
        """The adjoint."""
        return Entries(self.columns, self.rows, self.values, self.shape[::-1])

    def __matmul__(self, cells: Any, /) -> Any:
        """The answers for a vector of cells."""
        return np.bincount(self.rows, self.values * np.asarray(cells)[self.columns], self.shape[0])


@dataclass(frozen=True, eq=False)
class Reordered:
    """A query on cells in another order: cell i of the new order is cell `places[i]` of the old one."""

    query: Query
    places: NDArray[np.int64]
    adjoint: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The query's own shape."""
        return self.query.shape[::-1] if self.adjoint else self.query.shape

    @property
    def T(self) -> Reordered:
        """The adjoint."""
        return Reordered(self.query, self.places, not self.adjoint)

    def __matmul__(self, vector: Any, /) -> Any:
        """The answers for cells in the new order (adjoint: cells in the new order)."""
        if self.adjoint:
            return np.asarray(self.query.T @ vector)[self.places]
        cells = np.empty(len(self.places))
        cells[self.places] = vector
        return self.query @ cells
