"""Products of tables of which only some columns are kept, in the order that takes the least work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from understudy.model.projection.column_sets import Columns, Vector

_SEARCHED = 8  # tables whose best order is searched for; with more, those at the ends of the tree are joined first
_WORD = 62  # columns that fit into one machine word
_TIDY = 1000  # plans that take no memory to speak of
_MISSING = np.empty(0)


@dataclass(eq=False, slots=True)
class Operand:
    """A table that is there, or is planned as the product of two others.

    Attributes:
        number: of its own.
        mask: its columns as bits.
        factors: what it is the product of; none for one that was given.
        bits: the columns of the table's axes.
        table: empty while it is not there.
        uses: planned products that are still to be made of it.
    """

    number: int
    mask: int
    factors: tuple[Operand, ...]
    bits: tuple[int, ...]
    table: Vector
    uses: int = 0

    def forget(self) -> None:
        """Give up the table; a product can be made again."""
        self.table = _MISSING


class Contraction:
    """Multiplies tables, sharing the products between. All products are planned before the first is made.

    Args:
        columns: of all tables.
        most: cells of products to hold; when there are more, all are forgotten, and made again when needed.

    Attributes:
        cells: of the products it holds.
    """

    def __init__(self, columns: Columns, most: int) -> None:
        self._columns, self._most = columns, most
        self._sizes = np.array(columns.sizes, np.float64)
        self._numbers = 0
        self._known: dict[tuple[int, int, int], Operand] = {}
        self.cells = 0
        self._tidied = _TIDY
        self._kept, self._splits = np.zeros((2, 1 << _SEARCHED), np.int64)
        self._costs = np.zeros(1 << _SEARCHED)

    def operand(self, mask: int, table: Vector) -> Operand:
        """A table with its axes in order."""
        self._numbers += 1
        return Operand(self._numbers, mask, (), self._columns.bits[mask], table)

    def plan(self, operands: Sequence[Operand], parents: Sequence[int], wanted: int) -> Operand:
        """The product of all tables, summed over what is not wanted; at least two.

        Args:
            operands: the tables, those at the ends of the tree first; what is not wanted is in at least two of them.
            parents: for each the place of the table it hangs on, which is further on.
            wanted: the columns to keep.
        """
        rest, above = list(operands), list(parents)
        while len(rest) > 2 and (len(rest) > _SEARCHED or self._wide(rest)):
            first, parent = rest[0], above[0]
            others = wanted
            for i, operand in enumerate(rest):
                if i not in (0, parent):
                    others |= operand.mask
            rest[parent] = self._product(first, rest[parent], (first.mask | rest[parent].mask) & others)
            rest, above = rest[1:], [i - 1 for i in above[1:]]
        splits = self._search([operand.mask for operand in rest], wanted)
        whole = (1 << len(rest)) - 1
        one, two = (self._planned(part, rest, splits, wanted) for part in (splits[whole], whole ^ splits[whole]))
        return self._new(one, two, wanted)

    def make(self, planned: Operand, out: Vector, large: int) -> Operand:
        """Make what was planned, in the room given for it; that alone is not held.

        Products of more than `large` cells are given up after their last planned use, smaller ones may be of use later.
        """
        if self.cells > self._most:
            self.forget()
        self._fill(planned, out, large)
        return planned

    def forget(self) -> None:
        """Give up all products."""
        for product in self._known.values():
            product.forget()
        self.cells = 0

    def tidy(self) -> None:
        """Drop the plans of products that were given up: what they were made of may be gone."""
        if len(self._known) > 2 * self._tidied:
            self._known = {key: product for key, product in self._known.items() if product.table is not _MISSING}
            self._tidied = max(_TIDY, len(self._known))

    def _wide(self, operands: list[Operand]) -> bool:
        if len(self._columns.sizes) <= _WORD:
            return False
        mask = 0
        for operand in operands:
            mask |= operand.mask
        return mask.bit_count() > _WORD

    def _planned(self, part: int, operands: list[Operand], splits: list[int], wanted: int) -> Operand:
        """The product of some of the tables (as bits), each half of them first."""
        if part & (part - 1) == 0:
            return operands[part.bit_length() - 1]
        inside, outside = 0, wanted
        for i, operand in enumerate(operands):
            if part >> i & 1:
                inside |= operand.mask
            else:
                outside |= operand.mask
        one = self._planned(splits[part], operands, splits, wanted)
        two = self._planned(part ^ splits[part], operands, splits, wanted)
        return self._product(one, two, inside & outside)

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

    def _product(self, one: Operand, two: Operand, kept: int) -> Operand:
        key = (one.number, two.number, kept)
        if key not in self._known:
            self._known[key] = self._new(one, two, kept)
        return self._known[key]

    def _new(self, one: Operand, two: Operand, kept: int) -> Operand:
        one.uses += 1
        two.uses += 1
        self._numbers += 1
        return Operand(self._numbers, kept, (one, two), (), _MISSING)

    def _fill(self, planned: Operand, place: Vector, large: int) -> None:
        """Make a product, and first what it is made of."""
        for factor in planned.factors:
            if factor.table is _MISSING:
                self._fill(factor, np.empty(self._columns.cells[factor.mask]), large)
                self.cells += self._columns.cells[factor.mask]
        self._multiply(planned, place)
        for factor in planned.factors:
            factor.uses -= 1
            cells = self._columns.cells[factor.mask]
            if factor.factors and factor.uses <= 0 and cells > large and factor.table is not _MISSING:
                factor.forget()
                self.cells -= cells

    def _multiply(self, planned: Operand, place: Vector) -> None:
        """A batch of matrix products; the longer rows are the inner loop."""
        from understudy.model.kernels.projection import products

        cells, sizes = self._columns.cells, self._columns.sizes
        a, b = planned.factors
        shared, kept = a.mask & b.mask, planned.mask
        if cells[a.mask & ~shared] > cells[b.mask & ~shared]:
            a, b = b, a
        rows, cols = a.mask & ~shared, b.mask & ~shared
        batch, inner = shared & kept, shared & ~kept
        larger = a if cells[a.mask] > cells[b.mask] else b
        of_batch, of_inner = _within(larger, batch), _within(larger, inner)
        of_rows, of_cols = _within(a, rows), _within(b, cols)
        left = _turned(a, of_batch + of_rows + of_inner)
        right = _turned(b, of_batch + of_inner + of_cols)
        products(left, right, place, cells[batch], cells[rows], cells[inner], cells[cols])
        planned.bits = of_batch + of_rows + of_cols
        planned.table = place.reshape([sizes[i] for i in planned.bits])


def _turned(operand: Operand, order: tuple[int, ...]) -> Vector:
    """A table with its axes in this order, flat."""
    return operand.table.transpose([operand.bits.index(i) for i in order]).reshape(-1)


def _within(operand: Operand, mask: int) -> tuple[int, ...]:
    """Some columns in the order that a table has them."""
    return tuple([i for i in operand.bits if mask >> i & 1])
