"""Many marginals of one calibrated tree, sharing the work between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from understudy.domain import Clique
from understudy.model.junction_tree import ordered_columns
from understudy.model.projection.column_sets import Room, Sums, Vector, columns_of
from understudy.model.projection.contraction import Contraction, Operand
from understudy.model.propagate import Propagation

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
