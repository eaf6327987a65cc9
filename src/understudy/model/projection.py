"""Many marginals of one calibrated junction tree, sharing the work between them.

`Projector` answers queries. It uses `Sums` for sums of one table, `Contraction` for products of tables of which only
some columns are kept, and `ColumnSets` for sets of columns as bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.model.junction_tree import sort_columns
from understudy.model.propagate import Propagation

Vector: TypeAlias = NDArray[np.float64]


# The projector

_BUNDLE = 2048  # queries across cliques are answered together while their joint table has at most this many cells
_KEPT = 2**23  # cells of intermediate tables that outlive a call, at most
_REMEMBERED = 2**22  # cells of products that queries share, at most
_LARGE = 2**17  # cells of a tree clique whose own table is not kept, at most
_SMALL = 2**12  # cells that are never worth saving
_OrderedTable: TypeAlias = tuple[tuple[int, ...], Vector]
"""The columns of a table's axes, and the table."""


class _Leaf(NamedTuple):
    """A tree clique's table summed to the columns that matter: joint at the top of a subtree, conditional below."""

    position: int
    mask: int
    top: bool


class Projector:
    """Computes marginals of the distribution that a propagation was last called with.

    A query inside one tree clique is a sum of that clique's table. A query whose columns lie in unconnected parts of
    the tree is the product of its marginals in these parts. Any other query is a product of conditional tables over
    the smallest subtree with all its columns: each table is first summed to the columns that matter, and they are
    multiplied in the order that takes the least work. Sums and products are cached, so that queries share them.

    Args:
        propagation: a propagation whose `marginals` was called.
        total: the sum of each marginal.
    """

    def __init__(self, propagation: Propagation, total: float) -> None:
        self._propagation, self._total = propagation, total
        tree = propagation.tree
        names = sort_columns(tree.domain)
        self._bit = {column: 1 << i for i, column in enumerate(names)}
        self._domain, self._columns = tree.domain, get_column_sets(tree.domain.shape(names))
        self._masks = [self._mask(clique) for clique in tree.cliques]
        self._separators = [self._masks[i] & self._masks[p] if p >= 0 else 0 for i, p in enumerate(tree.parents)]
        self._children: list[list[int]] = [[] for _ in tree.cliques]
        self._below = list(self._masks)
        for i in range(len(tree.cliques) - 1, 0, -1):
            self._children[tree.parents[i]].insert(0, i)
            self._below[tree.parents[i]] |= self._below[i]
        by_size = sorted(range(len(self._masks)), key=lambda i: (self._columns.cells[self._masks[i]], i))
        self._holders = [[i for i in by_size if self._masks[i] >> bit & 1] for bit in range(len(names))]
        self._parts = self._find_parts()
        self._clear()

    def many(self, cliques: Sequence[Clique]) -> dict[Clique, Vector]:
        """Return the table of each clique, its axes in the clique's order; the caller may change the tables.

        The cache keeps at most about twice the cells of the tree. If the requested tables themselves need much memory
        it keeps almost nothing, and large tables are dropped as soon as no query needs them.
        """
        masks = {clique: self._mask(clique) for clique in cliques}
        tree = self._propagation.tree.cells
        crowded = sum(map(self._columns.cells.__getitem__, {*masks.values()})) > tree // 4
        large = min(_LARGE, max(_SMALL, tree // 32)) if crowded else tree
        if crowded:
            self._forget(tree // 4)
        divided = {mask: parts for mask in masks.values() if len(parts := self._split_by_part(mask)) > 1}
        wanted = {mask for mask in masks.values() if mask not in divided}.union(*divided.values())
        inside, across = self._split(wanted)
        bundles = self._bundles(across)
        leaves = {joint: self._leaves(joint) for joint in bundles}
        found = self._reduce(inside, {leaf for several, _ in leaves.values() for leaf in several}, large)
        for whole in self._products(leaves, large):
            found |= self._members(whole, bundles[whole.mask])
        shares = {part: found[part][1] / self._total for _, *others in divided.values() for part in others}
        for mask, (first, *others) in divided.items():
            bits, table = found[first]
            for part in others:  # unconnected columns are independent
                bits, table = bits + found[part][0], np.multiply.outer(table, shares[part])
            found[mask] = bits, table
        self._forget(2 * tree)
        shaped: dict[Clique, Vector] = {}
        given: set[int] = set()
        for clique, mask in masks.items():
            table = self._reshape(*found[mask], clique)
            shaped[clique] = (
                table.copy() if mask in given else table
            )  # the same columns in another order: the caller may change each
            given.add(mask)
        return shaped

    def _mask(self, clique: Iterable[str]) -> int:
        return sum(self._bit.get(column, 0) for column in clique)

    def _reshape(self, bits: tuple[int, ...], table: Vector, clique: Clique) -> Vector:
        wanted = [self._bit[column].bit_length() - 1 for column in clique if column in self._bit]
        table = table.transpose([bits.index(bit) for bit in wanted])
        return table if len(wanted) == len(clique) else table.reshape(self._domain.shape(clique))

    def _clear(self) -> None:
        self._sums: dict[int, Sums] = {}
        self._operands: dict[_Leaf, Operand] = {}
        self._contraction = Contraction(self._columns, _REMEMBERED)

    def _forget(self, most: int) -> None:
        """Shrink the cache to about this many cells: products are dropped first, then sums."""
        most = min(_KEPT, max(8 * _SMALL, most))
        sums = sum(table.size for sums in self._sums.values() for table in sums.found.values())
        operands = sum(operand.table.size for operand in self._operands.values())
        if sums + operands + self._contraction.cells > most:
            self._contraction.forget()
        if sums + operands > most:
            self._sums.clear()
        if operands > most:
            self._clear()
        self._contraction.tidy()

    def _find_parts(self) -> list[int]:
        """For each column, return all columns of its connected part of the tree."""
        parts = list(self._masks)
        for i in range(len(parts) - 1, 0, -1):  # children come after their parents
            if self._separators[i]:
                parts[self._propagation.tree.parents[i]] |= parts[i]
        for i in range(1, len(parts)):
            if self._separators[i]:
                parts[i] = parts[self._propagation.tree.parents[i]]
        return [parts[holders[0]] for holders in self._holders]

    def _split_by_part(self, mask: int) -> list[int]:
        """Divide a set of columns by the connected parts of the tree."""
        found = []
        while mask:
            part = self._parts[mask.bit_length() - 1]
            found.append(mask & part)
            mask &= ~part
        return found[::-1]

    def _split(self, masks: Iterable[int]) -> tuple[list[_Leaf], list[int]]:
        """Separate queries inside a tree clique, with the smallest such clique, from all others."""
        inside: list[_Leaf] = []
        across: list[int] = []
        for mask in masks:
            holders = min((self._holders[bit] for bit in self._columns.bits[mask]), key=len, default=[0])
            for position in holders:
                if mask & self._masks[position] == mask:
                    inside.append(_Leaf(position, mask, True))
                    break
            else:
                across.append(mask)
        return inside, across

    def _bundles(self, masks: list[int]) -> dict[int, list[int]]:
        """Group queries under joint sets of columns; small queries with neighbours, which share most columns."""
        bits, cells = self._columns.bits, self._columns.cells
        joints: list[int] = []
        groups: list[list[int]] = []
        holders: list[list[int]] = [[] for _ in self._columns.sizes]
        small, most = -1, max((mask.bit_count() for mask in masks), default=0)
        for mask in sorted(masks, key=lambda mask: (-mask.bit_count(), bits[mask])):
            place = -1
            if cells[mask] <= _BUNDLE or mask.bit_count() < most:
                for i in min([holders[bit] for bit in bits[mask]], key=len):
                    if mask & joints[i] == mask:
                        place = i
                        break
            if place < 0:
                if small >= 0 and cells[joints[small] | mask] <= _BUNDLE:
                    place = small
                else:
                    place = len(groups)
                    joints.append(0)
                    groups.append([])
                    small = place if cells[mask] <= _BUNDLE else small
                for bit in bits[mask & ~joints[place]]:
                    holders[bit].append(place)
                joints[place] |= mask
            groups[place].append(mask)
        return dict(zip(joints, groups, strict=True))

    def _leaves(self, wanted: int) -> tuple[list[_Leaf], list[int]]:
        """Return the tables whose product has these columns, leaves of the tree first, and each table's parent."""
        top = 0
        while deeper := [k for k in self._children[top] if wanted & self._below[k] == wanted]:
            top = deeper[0]
        leaves: list[_Leaf] = []
        parents: list[int] = []
        self._gather(top, wanted, True, leaves, parents)
        return leaves, parents

    def _gather(self, position: int, wanted: int, top: bool, leaves: list[_Leaf], parents: list[int]) -> int:
        mine = self._masks[position]
        needed = wanted & mine if top else wanted & mine | self._separators[position]
        hanging = []
        for child in self._children[position]:
            if wanted & self._below[child] & ~mine:
                needed |= self._separators[child]
                hanging.append(self._gather(child, wanted, False, leaves, parents))
        place = len(leaves)
        leaves.append(_Leaf(position, needed, top))
        parents.append(-1)
        for child in hanging:
            parents[child] = place
        return place

    def _reduce(self, inside: list[_Leaf], across: set[_Leaf], large: int) -> dict[int, _OrderedTable]:
        """Compute the marginals inside tree cliques, and store in `_operands` what queries across cliques need."""
        answers: dict[int, list[int]] = {}
        operands: dict[int, set[_Leaf]] = {}
        for leaf in inside:
            answers.setdefault(leaf.position, []).append(leaf.mask)
        for leaf in across:
            if leaf not in self._operands:
                operands.setdefault(leaf.position, set()).add(leaf)
        found: dict[int, _OrderedTable] = {}
        for position in {**answers, **operands}:
            masks, leaves = answers.get(position, []), sorted(operands.get(position, ()))
            sums = self._sums.get(position) or self._sums_of(position)
            separators = [self._separators[position] for leaf in leaves if not leaf.top]
            tables = sums.find(sorted({*masks, *(leaf.mask for leaf in leaves), *separators}))
            for mask in masks:
                found[mask] = self._columns.bits[mask], tables[mask].copy()
            for leaf in leaves:
                self._operands[leaf] = self._operand(leaf, tables)
            if self._columns.cells[self._masks[position]] <= min(large, _LARGE):
                self._sums[position] = sums
        return found

    def _sums_of(self, position: int) -> Sums:
        table = self._propagation.belief(position)
        table *= self._total
        return Sums(self._columns, self._masks[position], table)

    def _operand(self, leaf: _Leaf, tables: dict[int, Vector]) -> Operand:
        table = tables[leaf.mask]
        if leaf.top:
            table = table if leaf.mask == self._masks[leaf.position] else table.copy()  # a view keeps more alive
        else:
            separator, sizes = self._separators[leaf.position], self._columns.sizes
            spread = [sizes[bit] if separator >> bit & 1 else 1 for bit in self._columns.bits[leaf.mask]]
            given = tables[separator].reshape(spread)
            table = np.divide(table, given, out=np.zeros_like(table), where=given > 0.0)
        return self._contraction.operand(leaf.mask, table)

    def _products(self, leaves: dict[int, tuple[list[_Leaf], list[int]]], large: int) -> Iterator[Operand]:
        """Yield the joint tables, those with the largest leaves first; a large leaf is dropped after its last use."""
        cells, contraction = self._columns.cells, self._contraction
        plans = [
            (
                max(cells[leaf.mask] for leaf in mine),
                contraction.plan([*map(self._operands.__getitem__, mine)], parents, joint),
            )
            for joint, (mine, parents) in leaves.items()
        ]
        waiting = Counter(leaf for mine, _ in leaves.values() for leaf in mine if cells[leaf.mask] > large)
        room = TablePool(sum(map(cells.__getitem__, leaves)) // 8)
        for _, plan in sorted(plans, key=lambda planned: -planned[0]):
            yield contraction.make(plan, room.take(cells[plan.mask]), large)
            for leaf in waiting.keys() & set(leaves[plan.mask][0]):
                waiting[leaf] -= 1
                if not waiting[leaf]:
                    self._operands.pop(leaf).forget()

    def _members(self, whole: Operand, members: list[int]) -> dict[int, _OrderedTable]:
        """Return the marginals of a bundle's members."""
        bits = self._columns.bits
        if members == [whole.mask]:
            return {whole.mask: (whole.bits, whole.table)}
        table = np.ascontiguousarray(whole.table.transpose([whole.bits.index(bit) for bit in bits[whole.mask]]))
        found = Sums(self._columns, whole.mask, table).find(members)
        return {mask: (bits[mask], found[mask]) for mask in members}


# Products of tables of which only some columns are kept, in the order that takes the least work

_SEARCHED = 8  # tables whose best order is searched for; with more, those at the ends of the tree are joined first
_WORD = 62  # columns that fit into one machine word
_TIDY = 1000  # plans that are kept in any case
_MISSING = np.empty(0)


@dataclass(eq=False, slots=True)
class Operand:
    """A table that was given, or is planned as the product of two others.

    Attributes:
        number: a unique number.
        mask: its columns as bits.
        factors: the two tables of the product; none for a given table.
        bits: the columns of the table's axes.
        table: the table; `_MISSING` until it is computed.
        uses: number of planned products that still need it.
    """

    number: int
    mask: int
    factors: tuple[Operand, ...]
    bits: tuple[int, ...]
    table: Vector
    uses: int = 0

    def forget(self) -> None:
        """Drop the table; a product can be computed again."""
        self.table = _MISSING


class Contraction:
    """Multiplies tables and shares intermediate products. All products are planned before the first is computed.

    Args:
        columns: the columns of all tables.
        most: the most cells of products to keep; beyond it all are dropped, and computed again when needed.

    Attributes:
        cells: number of cells of the products that are kept.
    """

    def __init__(self, columns: ColumnSets, most: int) -> None:
        self._columns, self._most = columns, most
        self._sizes = np.array(columns.sizes, np.float64)
        self._numbers = 0
        self._known: dict[tuple[int, int, int], Operand] = {}
        self.cells = 0
        self._tidied = _TIDY
        self._kept, self._splits = np.zeros((2, 1 << _SEARCHED), np.int64)
        self._costs = np.zeros(1 << _SEARCHED)

    def operand(self, mask: int, table: Vector) -> Operand:
        """Add a given table, its axes in order."""
        self._numbers += 1
        return Operand(self._numbers, mask, (), self._columns.bits[mask], table)

    def plan(self, operands: Sequence[Operand], parents: Sequence[int], wanted: int) -> Operand:
        """Plan the product of at least two tables, summed over the columns that are not wanted.

        Args:
            operands: the tables, leaves of the tree first; each column that is not wanted is in at least two of them.
            parents: for each table the place of its parent, which comes later.
            wanted: the columns to keep.
        """
        rest, above = list(operands), list(parents)
        while len(rest) > 2 and (len(rest) > _SEARCHED or self._is_wide(rest)):
            first, parent = rest[0], above[0]
            others = wanted
            for i, operand in enumerate(rest):
                if i not in (0, parent):
                    others |= operand.mask
            rest[parent] = self._product(first, rest[parent], (first.mask | rest[parent].mask) & others)
            rest, above = rest[1:], [i - 1 for i in above[1:]]
        splits = self._search([operand.mask for operand in rest], wanted)
        whole = (1 << len(rest)) - 1
        one, two = (self._plan_part(part, rest, splits, wanted) for part in (splits[whole], whole ^ splits[whole]))
        return self._new(one, two, wanted)

    def make(self, planned: Operand, out: Vector, large: int) -> Operand:
        """Compute a planned product into `out`; the result itself is not kept.

        Products of more than `large` cells are dropped after their last planned use; smaller ones may be used later.
        """
        if self.cells > self._most:
            self.forget()
        self._fill(planned, out, large)
        return planned

    def forget(self) -> None:
        """Drop all products."""
        for product in self._known.values():
            product.forget()
        self.cells = 0

    def tidy(self) -> None:
        """Forget the plans of dropped products, whose factors may no longer exist."""
        if len(self._known) > 2 * self._tidied:
            self._known = {key: product for key, product in self._known.items() if product.table is not _MISSING}
            self._tidied = max(_TIDY, len(self._known))

    def _is_wide(self, operands: list[Operand]) -> bool:
        if len(self._columns.sizes) <= _WORD:
            return False
        mask = 0
        for operand in operands:
            mask |= operand.mask
        return mask.bit_count() > _WORD

    def _plan_part(self, part: int, operands: list[Operand], splits: list[int], wanted: int) -> Operand:
        """Plan the product of some of the tables (as bits) from the products of its two halves."""
        if part & (part - 1) == 0:
            return operands[part.bit_length() - 1]
        inside, outside = 0, wanted
        for i, operand in enumerate(operands):
            if part >> i & 1:
                inside |= operand.mask
            else:
                outside |= operand.mask
        one = self._plan_part(splits[part], operands, splits, wanted)
        two = self._plan_part(part ^ splits[part], operands, splits, wanted)
        return self._product(one, two, inside & outside)

    def _search(self, masks: list[int], wanted: int) -> list[int]:
        if len(masks) == 2:
            return [0, 0, 0, 1]
        from understudy.model.kernels.projection import best_order

        sizes = self._sizes
        if len(sizes) > _WORD:
            masks, wanted, sizes = self._renumber(masks, wanted)
        best_order(np.array(masks, np.int64), sizes, wanted, self._kept, self._costs, self._splits)
        found: list[int] = self._splits[: 1 << len(masks)].tolist()
        return found

    def _renumber(self, masks: list[int], wanted: int) -> tuple[list[int], int, Vector]:
        """Renumber the columns that occur in these sets from 0, so that they fit into a machine word."""
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
        """Compute a product, and before it those of its factors that are missing."""
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
        """Multiply two tables as a batch of matrix products, with the longer rows in the inner loop."""
        from understudy.model.kernels.projection import products

        cells, sizes = self._columns.cells, self._columns.sizes
        a, b = planned.factors
        shared, kept = a.mask & b.mask, planned.mask
        if cells[a.mask & ~shared] > cells[b.mask & ~shared]:
            a, b = b, a
        rows, cols = a.mask & ~shared, b.mask & ~shared
        batch, inner = shared & kept, shared & ~kept
        larger = a if cells[a.mask] > cells[b.mask] else b
        of_batch, of_inner = _order_columns(larger, batch), _order_columns(larger, inner)
        of_rows, of_cols = _order_columns(a, rows), _order_columns(b, cols)
        left = _flatten(a, of_batch + of_rows + of_inner)
        right = _flatten(b, of_batch + of_inner + of_cols)
        products(left, right, place, cells[batch], cells[rows], cells[inner], cells[cols])
        planned.bits = of_batch + of_rows + of_cols
        planned.table = place.reshape([sizes[i] for i in planned.bits])


def _flatten(operand: Operand, order: tuple[int, ...]) -> Vector:
    """Return a table with its axes in this order, flat."""
    return operand.table.transpose([operand.bits.index(i) for i in order]).reshape(-1)


def _order_columns(operand: Operand, mask: int) -> tuple[int, ...]:
    """Return columns in the order in which a table has them."""
    return tuple([i for i in operand.bits if mask >> i & 1])


# Sums of one table, sharing their steps


class Sums:
    """Sums of one table over sets of columns, which share their steps.

    Each sum drops the largest column first: that saves most in the first step, and other sums can start from it.
    """

    def __init__(self, columns: ColumnSets, mask: int, table: Vector) -> None:
        self._columns = columns
        self._mask = mask
        self._table = table
        self.found: dict[int, Vector] = {mask: table}

    def find(self, masks: Iterable[int]) -> dict[int, Vector]:
        """Compute the tables of sets of columns, axes in order; returns all tables found so far."""
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


# Sets of columns, and memory for tables

_MOST_SETS = 2**17  # the most sets of columns in a cache


class ColumnSets:
    """Sets of columns as bits of a Python int, with cached properties.

    Attributes:
        sizes: the sizes of all columns.
        bits: for each set, its columns in order.
        cells: for each set, the number of cells of its table.

    >>> columns = ColumnSets((2, 3, 5))
    >>> columns.bits[0b101], columns.shape(0b101), columns.cells[0b101]
    ((0, 2), (2, 5), 10)
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.bits = _Bits()
        self.cells = _Cells(self)

    def shape(self, mask: int) -> tuple[int, ...]:
        """Return the sizes of a set's columns, in order."""
        return tuple([self.sizes[i] for i in self.bits[mask]])


@lru_cache(4)
def get_column_sets(sizes: tuple[int, ...]) -> ColumnSets:
    """Return the `ColumnSets` of these sizes, shared by all models of one domain, which need the same sets."""
    return ColumnSets(sizes)


class _Bits(dict[int, tuple[int, ...]]):
    def __missing__(self, mask: int) -> tuple[int, ...]:
        if len(self) > _MOST_SETS:
            self.clear()
        found = self[mask] = tuple([i for i in range(mask.bit_length()) if mask >> i & 1])
        return found


class _Cells(dict[int, int]):
    def __init__(self, columns: ColumnSets) -> None:
        super().__init__()
        self._columns = columns

    def __missing__(self, mask: int) -> int:
        if len(self) > _MOST_SETS:
            self.clear()
        found = self[mask] = math.prod(self._columns.shape(mask))
        return found


_FIRST_BLOCK = 2**12  # cells


class TablePool:
    """Memory for many tables, allocated in blocks, which is much faster than many small allocations.

    Args:
        block: the most cells of a block, unless a single table needs more.
    """

    def __init__(self, block: int) -> None:
        self._most = block
        self._next = min(_FIRST_BLOCK, block)
        self._block = self._free = np.empty(0)

    def take(self, cells: int) -> Vector:
        """Return memory for one more table."""
        if cells > self._free.size:
            self._block = self._free = np.empty(max(cells, self._next))
            self._next = min(4 * self._next, self._most)
        taken, self._free = self._free[:cells], self._free[cells:]
        return taken
