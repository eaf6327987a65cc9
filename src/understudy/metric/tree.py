"""A classification tree that divides categories in any way, grown and pruned as rpart does (Breiman et al. 1984)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

_LEAF, _SPLIT = 7, 20  # the fewest rows of a leaf and of a node that is split: rpart's defaults


@dataclass(frozen=True)
class Split:
    """How the rows of a node are divided.

    Attributes:
        feature: the column.
        cut: values below it go left; None for categories.
        left: the categories that go left.
        right: those that go right; others, which no fitted row of the node has, go where most rows went.
        larger: whether most rows went left.
    """

    feature: int
    cut: float | None
    left: Whole
    right: Whole
    larger: bool

    def goes_left(self, values: Array) -> NDArray[np.bool_]:
        """Return which of these values of its column go left."""
        if self.cut is not None:
            return values < self.cut
        return ~np.isin(values, self.right) if self.larger else np.isin(values, self.left)


@dataclass(frozen=True, eq=False)
class DecisionTree:
    """A fitted tree; a node's children come after it.

    Attributes:
        splits: by node, None for a leaf.
        children: by node, the left and the right one.
        chance: by node, the share of its rows with the label.
        risk: by node, its share of the rows times their Gini impurity.
    """

    splits: tuple[Split | None, ...]
    children: tuple[tuple[int, int], ...]
    chance: Array
    risk: Array

    def predict(self, features: Array) -> Array:
        """Return the chance of the label for each row."""
        found = np.empty(len(features))
        waiting = [(0, np.arange(len(features)))]
        while waiting:
            node, rows = waiting.pop()
            split = self.splits[node]
            if split is None or not len(rows):
                found[rows] = self.chance[node]
                continue
            left = split.goes_left(features[rows, split.feature])
            waiting += zip(self.children[node], (rows[left], rows[~left]), strict=True)
        return found

    def prune(self, complexity: float) -> DecisionTree:
        """Return the smallest subtree with the least risk plus `complexity` for each leaf."""
        cost, splits = self.risk + complexity, list(self.splits)
        for node in reversed(range(len(splits))):
            if splits[node] is not None:
                below = sum(cost[child] for child in self.children[node])
                splits[node], cost[node] = (None, cost[node]) if cost[node] <= below + 1e-12 else (splits[node], below)
        reached = {0}
        for node, split in enumerate(splits):
            splits[node] = split if node in reached else None
            reached.update(self.children[node] if splits[node] is not None else ())
        return replace(self, splits=tuple(splits))

    def complexities(self) -> Array:
        """Return for each split the complexity at which it and all below it are worth no more than a leaf."""
        risk, leaves, found = self.risk.copy(), np.ones(len(self.risk)), []
        for node in reversed(range(len(self.splits))):
            if self.splits[node] is not None:
                one, other = self.children[node]
                risk[node], leaves[node] = risk[one] + risk[other], leaves[one] + leaves[other]
                found.append((self.risk[node] - risk[node]) / (leaves[node] - 1))
        return np.array(found)


def grow(features: Array, labels: NDArray[np.bool_], unordered: Sequence[int], complexity: float = 0.0) -> DecisionTree:
    """Grow a tree by the Gini impurity, and prune it.

    Args:
        features: a column for each feature.
        labels: what is to be predicted.
        unordered: which of the features are codes of categories; the best division into two sets is a cut of the
            categories in the order of their share of labels (Theorem 4.5), which every node computes anew.
        complexity: by how much of the risk, at least, a split must lower it.
    """
    coded = [np.unique(column, return_inverse=True) for column in features.T]
    starts = np.cumsum([0, *(len(values) for values, _ in coded)])
    values = np.concatenate([values for values, _ in coded])
    codes = np.column_stack([start + code for start, (_, code) in zip(starts, coded, strict=False)])
    owner = np.repeat(np.arange(len(coded)), np.diff(starts))
    is_category = np.isin(owner, unordered)
    splits, children, chance, risk = list[Split | None](), list[tuple[int, int]](), list[float](), list[float]()
    waiting = [(np.arange(len(labels)), -1, 0)]
    while waiting:
        rows, parent, side = waiting.pop()
        node, number, made = len(splits), len(rows), int(labels[rows].sum())
        if parent >= 0:
            children[parent] = (node, children[parent][1]) if side == 0 else (children[parent][0], node)
        chance.append(made / number)
        risk.append(2 * made * (number - made) / number / len(labels))
        splits.append(None)
        children.append((-1, -1))
        if number < _SPLIT or risk[-1] <= complexity or made in (0, number):
            continue
        sides = _find_split(codes[rows], labels[rows], owner, is_category)
        if sides is None:
            continue
        left, right = sides
        place = int(owner[left[0]])
        to_left = np.isin(codes[rows, place], left)
        cut = None if is_category[left[0]] else float((values[left].max() + values[right].min()) / 2)
        splits[node] = Split(place, cut, values[left], values[right], 2 * int(to_left.sum()) >= number)
        waiting += [(rows[~to_left], node, 1), (rows[to_left], node, 0)]
    return DecisionTree(tuple(splits), tuple(children), np.array(chance), np.array(risk)).prune(complexity)


def _find_split(
    codes: Whole, labels: NDArray[np.bool_], owner: Whole, is_category: NDArray[np.bool_]
) -> tuple[Whole, Whole] | None:
    """Return the codes on both sides of the best split of these rows; None where no split makes them purer.

    The codes of all features are numbered through; every row has one of each feature.
    """
    flat, weights = codes.reshape(-1), np.repeat(labels.astype(np.float64), codes.shape[1])
    if 4 * flat.size < len(owner):
        used, flat = np.unique(flat, return_inverse=True)
        rows, made = np.bincount(flat), np.bincount(flat, weights)
    else:
        rows, made = np.bincount(flat, minlength=len(owner)), np.bincount(flat, weights, len(owner))
        used = np.flatnonzero(rows)
        rows, made = rows[used], made[used]
    feature = owner[used]
    order = np.lexsort((np.where(is_category[used], made / rows, used), feature))
    number, total = len(codes), float(labels.sum())
    left = np.cumsum(rows[order]) - number * feature[order]
    hits = np.cumsum(made[order]) - total * feature[order]
    right, others = number - left, total - hits
    fits = (left >= _LEAF) & (right >= _LEAF)
    purity = (hits**2 + (left - hits) ** 2) / np.maximum(left, 1) + (others**2 + (right - others) ** 2) / np.maximum(
        right, 1
    )
    best = int(np.argmax(np.where(fits, purity, 0.0)))
    if not fits[best] or purity[best] <= (total**2 + (number - total) ** 2) / number + 1e-9 * number:
        return None
    same = np.flatnonzero(feature[order] == feature[order[best]])
    return used[order[same[same <= best]]], used[order[same[same > best]]]
