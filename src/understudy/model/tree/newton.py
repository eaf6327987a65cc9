"""The step of Newton's method: where links would hold if every cell moved as it does now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LARGE, _FEW = 2048, 2  # a table of more cells and more ends of links would fill the matrix: it is visited by itself
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


def pull(ends: Sequence[End], prices: Array) -> Array:
    """What the prices of the links at a table add up to for each of its cells, to be broadcast."""
    total = np.zeros(())
    for end in ends:
        price = prices[end.prices].reshape(end.shape)
        total = total + price if end.sign > 0.0 else total - price
    return total


def add_margins(ends: Sequence[End], cells: Array, out: Array, power: int = 1) -> None:
    """Add a table's margins to the links at it, with their sign or with its square."""
    for end in ends:
        margin = (np.add.reduce(cells, axis=end.summed) if end.summed else cells).reshape(-1)
        if end.sign**power > 0.0:
            out[end.prices] += margin
        else:
            out[end.prices] -= margin


class Coupling:
    """Which cells of links move one another, because some cell of a table counts for both.

    Args:
        tables: the shape of each table, and the ends of links at it.
    """

    def __init__(self, tables: Sequence[tuple[tuple[int, ...], Sequence[End]]]) -> None:
        self._tables = tables
        sizes = [(math.prod(shape), len(ends)) for shape, ends in tables]
        self._large = [number for number, (cells, ends) in enumerate(sizes) if cells > _LARGE and ends > _FEW]
        self._blocks: list[tuple[int, tuple[int, ...], tuple[int, ...], float]] = []
        rows, columns = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for number, (shape, ends) in enumerate(tables):
            for one, other in combinations(ends, 2) if number not in self._large else ():
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
        diagonal, alone = diagonal + more, diagonal + more
        for number in self._large:
            shape, ends = self._tables[number]
            add_margins(ends, -np.broadcast_to(active[number], shape), alone, 2)
        move, residual = np.zeros(len(broken)), broken.copy()
        direction = scaled = residual / diagonal
        size = float(residual @ scaled)
        enough = tolerance**2 * size
        for _ in range(_MOST_INNER):
            if size <= enough:
                break
            image = alone * direction
            add_products(self._rows, self._columns, values, direction, image)
            for number in self._large:
                shape, ends = self._tables[number]
                add_margins(ends, np.broadcast_to(active[number] * pull(ends, direction), shape), image)
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
