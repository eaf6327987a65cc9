"""Sets of columns as bits, memory for many tables, and sums of a table that share their steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
_FIRST_BLOCK = 2**12  # cells
_MOST_SETS = 2**17  # of columns that are remembered


class Columns:
    """Sets of columns as bits of a Python int, with what is asked about them again and again.

    Attributes:
        sizes: of all columns.
        bits: by set, its columns in order.
        cells: by set, how many cells a table of these columns has.

    >>> columns = Columns((2, 3, 5))
    >>> columns.bits[0b101], columns.shape(0b101), columns.cells[0b101]
    ((0, 2), (2, 5), 10)
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.bits = _Bits()
        self.cells = _Cells(self)

    def shape(self, mask: int) -> tuple[int, ...]:
        """The sizes of a set's columns, in order."""
        return tuple([self.sizes[i] for i in self.bits[mask]])


@lru_cache(4)
def columns_of(sizes: tuple[int, ...]) -> Columns:
    """Columns of these sizes: the same for all models of one domain, which are asked about the same sets."""
    return Columns(sizes)


class _Bits(dict[int, tuple[int, ...]]):
    def __missing__(self, mask: int) -> tuple[int, ...]:
        if len(self) > _MOST_SETS:
            self.clear()
        found = self[mask] = tuple([i for i in range(mask.bit_length()) if mask >> i & 1])
        return found


class _Cells(dict[int, int]):
    def __init__(self, columns: Columns) -> None:
        super().__init__()
        self._columns = columns

    def __missing__(self, mask: int) -> int:
        if len(self) > _MOST_SETS:
            self.clear()
        found = self[mask] = math.prod(self._columns.shape(mask))
        return found


class Room:
    """Memory for many tables, in blocks: the system hands out a few large pieces much faster than many small ones.

    Args:
        block: the most cells of a block, unless one table needs more.
    """

    def __init__(self, block: int) -> None:
        self._most = block
        self._next = min(_FIRST_BLOCK, block)
        self._block = self._free = np.empty(0)

    def take(self, cells: int) -> Vector:
        """Room for one more table."""
        if cells > self._free.size:
            self._block = self._free = np.empty(max(cells, self._next))
            self._next = min(4 * self._next, self._most)
        taken, self._free = self._free[:cells], self._free[cells:]
        return taken


class Sums:
    """Sums of one table: each drops the largest column first, and all of them share their steps.

    Dropping the largest first makes the first step the greatest saving, and lets other sums start from it.
    """

    def __init__(self, columns: Columns, mask: int, table: Vector) -> None:
        self._columns = columns
        self._mask = mask
        self._table = table
        self.found: dict[int, Vector] = {mask: table}

    def find(self, masks: Iterable[int]) -> dict[int, Vector]:
        """The tables of sets of columns, axes in order; all that were ever asked for."""
        cells = self._columns.cells
        places: dict[int, int] = {self._mask: -1}
        steps: list[tuple[int, int, int, int, int]] = []
        size = 0
        wanted = [mask for mask in masks if mask not in self.found]
        for mask in wanted:
            path = []
            while mask not in places:
                path.append(mask)
                missing = self._mask & ~mask
                mask |= missing & -missing
            for smaller in reversed(path):
                bit = mask ^ smaller
                inner = cells[mask & -(bit << 1)]
                steps.append((places[mask], size, cells[mask & (bit - 1)], cells[bit], inner))
                places[smaller] = size
                size += cells[smaller]
                mask = smaller
        if steps:
            self._run(wanted, places, steps, size)
        return self.found

    def _run(
        self, wanted: list[int], places: dict[int, int], steps: list[tuple[int, int, int, int, int]], size: int
    ) -> None:
        from understudy.model.kernels.projection import sums

        work = np.empty(size)
        sums(self._table.reshape(-1), work, np.array(steps, np.int64))
        for mask in wanted:
            place = places[mask]
            self.found[mask] = work[place : place + self._columns.cells[mask]].reshape(self._columns.shape(mask))
