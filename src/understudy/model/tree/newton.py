"""The step of Newton's method: where links would hold if every cell moved as it does now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MOST_INNER = 100
_SINGULAR = 1e-10


@dataclass(frozen=True)
class End:
    """One side of a link: the margin of a table that shall be equal to another's, or to the total.

    Attributes:
        prices: where the link's cells lie among those of all links.
        shape: of the margin, with axes of length 1 for what is summed over.
        summed: the axes of the table that are summed over.
        sign: whether the margin counts for the link, or against it.
    """

    prices: slice
    shape: tuple[int, ...]
    summed: tuple[int, ...]
    sign: float


class Coupling:
    """Which cells of links move one another, because some cell of a table counts for both.

    Args:
        tables: the shape of each table, and the ends of links at it.
    """

    def __init__(self, tables: Sequence[tuple[tuple[int, ...], Sequence[End]]]) -> None:
        self._blocks: list[tuple[int, tuple[int, ...], tuple[int, ...], float]] = []
        rows, columns = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for number, (shape, ends) in enumerate(tables):
            for one, other in combinations(ends, 2):
                lost = tuple(axis for axis in one.summed if axis in other.summed)
                block = tuple(1 if axis in lost else size for axis, size in enumerate(shape))
                self._blocks.append((number, shape, lost, one.sign * other.sign))
                rows.append(np.broadcast_to(_places(one), block).ravel())
                columns.append(np.broadcast_to(_places(other), block).ravel())
        self._rows, self._columns = np.concatenate(rows), np.concatenate(columns)

    def step(self, active: Sequence[Array], diagonal: Array, whole: Array, broken: Array, tolerance: float) -> Array:
        """How far to move the prices: conjugate gradients.

        A link none of whose cells moves is taken for one whose cells all do.

        Args:
            active: for each table, how far its cells move when pulled.
            diagonal: how far each link's cells move when they are pulled themselves.
            whole: the same if no cell were empty.
            broken: by how much each is to be moved.
            tolerance: relative error that does no harm.
        """
        from understudy.model.kernels.links import add_products

        values = self._values(active)
        more = np.where(diagonal > _SINGULAR * whole, _SINGULAR * whole, whole)
        diagonal = diagonal + more
        move, residual = np.zeros(len(broken)), broken.copy()
        direction = scaled = residual / diagonal
        size = float(residual @ scaled)
        enough = tolerance**2 * size
        for _ in range(_MOST_INNER):
            if size <= enough:
                break
            image = diagonal * direction
            add_products(self._rows, self._columns, values, direction, image)
            step = size / float(direction @ image)
            move += step * direction
            residual -= step * image
            scaled = residual / diagonal
            size, before = float(residual @ scaled), size
            direction = scaled + size / before * direction
        return move

    def _values(self, active: Sequence[Array]) -> Array:
        """How far one cell moves when another is pulled, in the order of `rows` and `columns`."""
        out, place = np.empty(len(self._rows)), 0
        for number, shape, lost, sign in self._blocks:
            block = np.add.reduce(np.broadcast_to(active[number], shape), axis=lost) if lost else active[number]
            cells = np.broadcast_to(block, [size for axis, size in enumerate(shape) if axis not in lost])
            np.multiply(cells.reshape(-1), sign, out=out[place : place + cells.size])
            place += cells.size
        return out


def _places(end: End) -> NDArray[np.int32]:
    return np.arange(end.prices.start, end.prices.stop, dtype=np.int32).reshape(end.shape)
