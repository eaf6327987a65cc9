"""Sets of columns as bits, memory for many tables, and sums of a table that share their steps."""

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
from understudy.model.junction_tree import ordered_columns
from understudy.model.propagate import Propagation

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


# ----------------------------------------------------------------------------------------------------
# Products of tables of which only some columns are kept, in the order that takes the least work.


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


# ----------------------------------------------------------------------------------------------------
# Many marginals of one calibrated tree, sharing the work between them.


_BUNDLE = 2048  # queries across cliques are answered together while their joint table has at most this many cells
_KEPT = 2**23  # cells of intermediate tables that outlive a call, at most
_REMEMBERED = 2**22  # cells of products that queries share, at most
_LARGE = 2**17  # cells of a tree clique whose own table is not kept, at most
_SMALL = 2**12  # cells that are never worth saving


_Found: TypeAlias = tuple[tuple[int, ...], Vector]
"""A table, and before it the columns of its axes."""


class _Leaf(NamedTuple):
    """The table of a tree clique reduced to the columns that matter: the joint one at the top, conditionals below."""

    position: int
    mask: int
    top: bool


class Projector:
    """Marginals, adding up to a total, of the distribution that a propagation was last called with.

    A query inside one tree clique is a sum of that clique's table. One whose columns lie in parts of the tree that
    share none is the product of its marginals in these parts. Any other one is a product of conditional tables over the
    smallest subtree that has all its columns, each first reduced to the columns that matter, multiplied in the order
    that takes the least work. Sums and products are remembered, so that queries share them.

    Args:
        propagation: after a call of its `marginals`.
        total: what each marginal adds up to.
    """

    def __init__(self, propagation: Propagation, total: float) -> None:
        self._propagation, self._total = propagation, total
        tree = propagation.tree
        names = ordered_columns(tree.domain)
        self._bit = {column: 1 << i for i, column in enumerate(names)}
        self._domain, self._columns = tree.domain, columns_of(tree.domain.shape(names))
        self._masks = [self._mask(clique) for clique in tree.cliques]
        self._separators = [self._masks[i] & self._masks[p] if p >= 0 else 0 for i, p in enumerate(tree.parents)]
        self._children: list[list[int]] = [[] for _ in tree.cliques]
        self._below = list(self._masks)
        for i in range(len(tree.cliques) - 1, 0, -1):
            self._children[tree.parents[i]].insert(0, i)
            self._below[tree.parents[i]] |= self._below[i]
        by_size = sorted(range(len(self._masks)), key=lambda i: (self._columns.cells[self._masks[i]], i))
        self._holders = [[i for i in by_size if self._masks[i] >> bit & 1] for bit in range(len(names))]
        self._parts = self._connected()
        self._clear()

    def many(self, cliques: Sequence[Clique]) -> dict[Clique, Vector]:
        """The table of each clique, its axes in the clique's order; every table is the caller's own.

        At most about two trees are kept for later calls, and where the tables asked for need much memory themselves,
        next to nothing: then large tables go as soon as no query waits for them.
        """
        masks = {clique: self._mask(clique) for clique in cliques}
        tree = self._propagation.tree.cells
        crowded = sum(map(self._columns.cells.__getitem__, {*masks.values()})) > tree // 4
        large = min(_LARGE, max(_SMALL, tree // 32)) if crowded else tree
        if crowded:
            self._forget(tree // 4)
        apart = {mask: parts for mask in masks.values() if len(parts := self._apart(mask)) > 1}
        wanted = {mask for mask in masks.values() if mask not in apart}.union(*apart.values())
        inside, across = self._split(wanted)
        bundles = self._bundles(across)
        leaves = {joint: self._leaves(joint) for joint in bundles}
        found = self._reduce(inside, {leaf for several, _ in leaves.values() for leaf in several}, large)
        for whole in self._products(leaves, large):
            found |= self._members(whole, bundles[whole.mask])
        shares = {part: found[part][1] / self._total for _, *others in apart.values() for part in others}
        for mask, (first, *others) in apart.items():
            bits, table = found[first]
            for part in others:  # columns that have nothing to do with one another
                bits, table = bits + found[part][0], np.multiply.outer(table, shares[part])
            found[mask] = bits, table
        self._forget(2 * tree)
        shaped: dict[Clique, Vector] = {}
        given: set[int] = set()
        for clique, mask in masks.items():
            table = self._shaped(*found[mask], clique)
            shaped[clique] = table.copy() if mask in given else table  # the same columns in another order: their own
            given.add(mask)
        return shaped

    def _mask(self, clique: Iterable[str]) -> int:
        return sum(self._bit.get(column, 0) for column in clique)

    def _shaped(self, bits: tuple[int, ...], table: Vector, clique: Clique) -> Vector:
        wanted = [self._bit[column].bit_length() - 1 for column in clique if column in self._bit]
        table = table.transpose([bits.index(bit) for bit in wanted])
        return table if len(wanted) == len(clique) else table.reshape(self._domain.shape(clique))

    def _clear(self) -> None:
        self._sums: dict[int, Sums] = {}
        self._operands: dict[_Leaf, Operand] = {}
        self._contraction = Contraction(self._columns, _REMEMBERED)

    def _forget(self, most: int) -> None:
        """Keep at most about so many cells: products go first, then sums."""
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

    def _connected(self) -> list[int]:
        """For each column, all columns of its part of the tree: what cliques join that have a column in common."""
        parts = list(self._masks)
        for i in range(len(parts) - 1, 0, -1):  # children come after their parents
            if self._separators[i]:
                parts[self._propagation.tree.parents[i]] |= parts[i]
        for i in range(1, len(parts)):
            if self._separators[i]:
                parts[i] = parts[self._propagation.tree.parents[i]]
        return [parts[holders[0]] for holders in self._holders]

    def _apart(self, mask: int) -> list[int]:
        """A set of columns, divided by the parts of the tree."""
        found = []
        while mask:
            part = self._parts[mask.bit_length() - 1]
            found.append(mask & part)
            mask &= ~part
        return found[::-1]

    def _split(self, masks: Iterable[int]) -> tuple[list[_Leaf], list[int]]:
        """Queries inside a tree clique, the smallest there is; and the others."""
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
        """Queries grouped under a joint set of columns; small ones with neighbours, which have most in common."""
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
        """The tables whose product has these columns, ends of the tree first; and what each hangs on."""
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

    def _reduce(self, inside: list[_Leaf], across: set[_Leaf], large: int) -> dict[int, _Found]:
        """The marginals inside a tree clique, and in `_operands` what those across need: one clique after the other."""
        answers: dict[int, list[int]] = {}
        operands: dict[int, set[_Leaf]] = {}
        for leaf in inside:
            answers.setdefault(leaf.position, []).append(leaf.mask)
        for leaf in across:
            if leaf not in self._operands:
                operands.setdefault(leaf.position, set()).add(leaf)
        found: dict[int, _Found] = {}
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
            table = table if leaf.mask == self._masks[leaf.position] else table.copy()  # not a part of something larger
        else:
            separator, sizes = self._separators[leaf.position], self._columns.sizes
            spread = [sizes[bit] if separator >> bit & 1 else 1 for bit in self._columns.bits[leaf.mask]]
            given = tables[separator].reshape(spread)
            table = np.divide(table, given, out=np.zeros_like(table), where=given > 0.0)
        return self._contraction.operand(leaf.mask, table)

    def _products(self, leaves: dict[int, tuple[list[_Leaf], list[int]]], large: int) -> Iterator[Operand]:
        """The joint tables; those that need the largest leaves first, and a large leaf is given up after its last."""
        cells, contraction = self._columns.cells, self._contraction
        plans = [
            (
                max(cells[leaf.mask] for leaf in mine),
                contraction.plan([*map(self._operands.__getitem__, mine)], parents, joint),
            )
            for joint, (mine, parents) in leaves.items()
        ]
        waiting = Counter(leaf for mine, _ in leaves.values() for leaf in mine if cells[leaf.mask] > large)
        room = Room(sum(map(cells.__getitem__, leaves)) // 8)
        for _, plan in sorted(plans, key=lambda planned: -planned[0]):
            yield contraction.make(plan, room.take(cells[plan.mask]), large)
            for leaf in waiting.keys() & set(leaves[plan.mask][0]):
                waiting[leaf] -= 1
                if not waiting[leaf]:
                    self._operands.pop(leaf).forget()

    def _members(self, whole: Operand, members: list[int]) -> dict[int, _Found]:
        """The marginals of a bundle's members."""
        bits = self._columns.bits
        if members == [whole.mask]:
            return {whole.mask: (whole.bits, whole.table)}
        table = np.ascontiguousarray(whole.table.transpose([whole.bits.index(bit) for bit in bits[whole.mask]]))
        found = Sums(self._columns, whole.mask, table).find(members)
        return {mask: (bits[mask], found[mask]) for mask in members}
