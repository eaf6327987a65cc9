"""Products of tables of which only some columns are kept, in the order that takes the least work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from understudy.model.projection.column_sets import Columns, Room, Vector

_SEARCHED = 8  # tables whose best order is searched for; with more, those at the ends of the tree are joined first
_WORD = 62  # columns that fit into one machine word


class Operand(NamedTuple):
    """A table, the columns of its axes, the same as bits, and a number of its own."""

    number: int
    mask: int
    bits: tuple[int, ...]
    table: Vector


class Contraction:
    """Multiplies tables, remembering the products between so that later ones share them.

    Args:
        columns: of all tables.
        most: cells of products to remember; when there are more, all are forgotten.

    Attributes:
        cells: of the products it remembers.
    """

    def __init__(self, columns: Columns, most: int) -> None:
        self._columns, self._most = columns, most
        self._sizes = np.array(columns.sizes, np.float64)
        self._numbers = 0
        self._known: dict[tuple[int, int, int], Operand] = {}
        self.cells = 0
        self._room, self._left, self._right = Room(most), Room(1), Room(1)
        self._kept, self._splits = np.zeros((2, 1 << _SEARCHED), np.int64)
        self._costs = np.zeros(1 << _SEARCHED)

    def operand(self, mask: int, table: Vector) -> Operand:
        """A table with its axes in order."""
        self._numbers += 1
        return Operand(self._numbers, mask, self._columns.bits[mask], table)

    def contract(self, operands: Sequence[Operand], parents: Sequence[int], wanted: int, out: Vector) -> Operand:
        """The product of all tables, summed over what is not wanted; at least two.

        Args:
            operands: the tables, those at the ends of the tree first; what is not wanted is in at least two of them.
            parents: for each the place of the table it hangs on, which is further on.
            wanted: the columns to keep.
            out: room for the result, which is not remembered.
        """
        if self.cells > self._most:
            self._known.clear()
            self._room.empty()
            self.cells = 0
        rest, above = list(operands), list(parents)
        while len(rest) > 2 and (len(rest) > _SEARCHED or self._wide(rest)):
            first, parent = rest[0], above[0]
            others = wanted
            for i, operand in enumerate(rest):
                if i not in (0, parent):
                    others |= operand.mask
            rest[parent] = self._product(first, rest[parent], (first.mask | rest[parent].mask) & others, None)
            rest, above = rest[1:], [i - 1 for i in above[1:]]
        splits = self._search([operand.mask for operand in rest], wanted)
        return self._solved((1 << len(rest)) - 1, rest, splits, wanted, out)

    def _wide(self, operands: list[Operand]) -> bool:
        if len(self._columns.sizes) <= _WORD:
            return False
        mask = 0
        for operand in operands:
            mask |= operand.mask
        return mask.bit_count() > _WORD

    def _solved(
        self, part: int, operands: list[Operand], splits: list[int], wanted: int, out: Vector | None
    ) -> Operand:
        """The product of some of the tables (as bits), each half of them first; `out` is for the end result."""
        if part & (part - 1) == 0:
            return operands[part.bit_length() - 1]
        inside, outside = 0, wanted
        for i, operand in enumerate(operands):
            if part >> i & 1:
                inside |= operand.mask
            else:
                outside |= operand.mask
        one = self._solved(splits[part], operands, splits, wanted, None)
        two = self._solved(part ^ splits[part], operands, splits, wanted, None)
        return self._product(one, two, inside & outside, out)

    def _search(self, masks: list[int], wanted: int) -> list[int]:
        if len(masks) == 2:
            return [0, 0, 0, 1]
        from understudy.model.kernels.projection import best_order

        sizes = self._sizes
        if len(sizes) > _WORD:
            masks, wanted, sizes = self._renumbered(masks, wanted)
        best_order(np.array(masks, np.int64), sizes, wanted, self._kept, self._costs, self._splits)
        found: list[int] = self._splits[: 1 << len(masks)].tolist()
        return found

    def _renumbered(self, masks: list[int], wanted: int) -> tuple[list[int], int, Vector]:
        """The same sets with the columns that occur in them counted from 0."""
        union = 0
        for mask in masks:
            union |= mask
        bits = self._columns.bits[union]
        short = [sum(1 << i for i, bit in enumerate(bits) if mask >> bit & 1) for mask in (*masks, wanted)]
        return short[:-1], short[-1], self._sizes[list(bits)]

    def _product(self, a: Operand, b: Operand, kept: int, out: Vector | None) -> Operand:
        key = (a.number, b.number, kept)
        if out is None and key in self._known:
            return self._known[key]
        found = self._multiplied(a, b, kept, out)
        if out is None:
            self._known[key] = found
            self.cells += found.table.size
        return found

    def _multiplied(self, a: Operand, b: Operand, kept: int, out: Vector | None) -> Operand:
        """A batch of matrix products; the longer rows are the inner loop."""
        from understudy.model.kernels.projection import products

        cells, shared = self._columns.cells, a.mask & b.mask
        if cells[a.mask & ~shared] > cells[b.mask & ~shared]:
            a, b = b, a
        rows, cols = a.mask & ~shared, b.mask & ~shared
        batch, inner = shared & kept, shared & ~kept
        larger = a if a.table.size > b.table.size else b
        of_batch, of_inner = _within(larger, batch), _within(larger, inner)
        of_rows, of_cols = _within(a, rows), _within(b, cols)
        place = self._room.take(cells[kept]) if out is None else out
        left = _turned(a, of_batch + of_rows + of_inner, self._left)
        right = _turned(b, of_batch + of_inner + of_cols, self._right)
        products(left, right, place, cells[batch], cells[rows], cells[inner], cells[cols])
        self._numbers += 1
        order, sizes = of_batch + of_rows + of_cols, self._columns.sizes
        return Operand(self._numbers, kept, order, place.reshape([sizes[i] for i in order]))


def _turned(operand: Operand, order: tuple[int, ...], scratch: Room) -> Vector:
    """A table with its axes in this order, flat."""
    if order == operand.bits:
        return operand.table.reshape(-1)
    table = operand.table.transpose([operand.bits.index(i) for i in order])
    place = scratch.again(table.size)
    np.copyto(place.reshape(table.shape), table)
    return place


def _within(operand: Operand, mask: int) -> tuple[int, ...]:
    """Some columns in the order that a table has them."""
    return tuple([i for i in operand.bits if mask >> i & 1])
