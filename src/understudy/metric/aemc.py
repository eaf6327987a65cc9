"""The approximate earth mover's cost between two tables of counts (Li, Wang, Dang, Li: MGD, sections 4 and 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.metric.flow import Network, Solver, Whole, settle

_EXACT = 10_000_000
_ROUNDED = 1_000_000


@dataclass(frozen=True, eq=False)
class Attribute:
    """One axis of a table, and what it costs to move along it.

    Attributes:
        size: how many values it has.
        weight: its share of the distance; None: mass never moves along it (weight infinity).
        chain: the first so many values are ordered and neighbours in this order; others stay apart.
        levels: for values without order, the group of each value by level, finest first: the hierarchy below its root.
    """

    size: int
    weight: Fraction | None = None
    chain: int = 0
    levels: tuple[NDArray[np.int64], ...] = ()

    def distance(self, one: int, other: int) -> float:
        """The semantic distance: ``|i - j|/(K - 1)`` along an order, else ``(t - s)/t`` in the hierarchy.

        >>> Attribute(13, Fraction(1), chain=13).distance(0, 7) == 7 / 12
        True
        >>> Attribute(3, Fraction(1), levels=(np.array([0, 0, 1]),)).distance(0, 1)
        0.5
        """
        if one == other:
            return 0.0
        if self.chain:
            return abs(one - other) / (self.chain - 1) if max(one, other) < self.chain else math.inf
        shared = [level[one] == level[other] for level in self.levels]
        return (shared.index(True) + 1 if any(shared) else len(self.levels) + 1) / (len(self.levels) + 1)


@dataclass(frozen=True, eq=False)
class Moves:
    """What turning the synthetic table into the real one costs, per real row.

    Attributes:
        cost: the approximate earth mover's cost.
        attributes: the share of it that is paid for moving along each attribute.
        adding: the share paid for adding rows.
        removing: the share paid for removing rows.
        cells: by cell, its part of the cost: what is added or removed there, and half of what moves over its edges.
    """

    cost: float
    attributes: tuple[float, ...]
    adding: float
    removing: float
    cells: NDArray[np.float64]


def aemc(
    synthetic: NDArray[np.int64],
    real: NDArray[np.int64],
    attributes: Sequence[Attribute],
    *,
    tolerance: int = 0,
    solver: Solver = "auto",
) -> Moves:
    """The least cost of moving, adding and removing rows until every cell differs by `tolerance` at most.

    Args:
        synthetic: counts, shaped by the attributes.
        real: counts of the same shape.
        attributes: one for each axis; the finite weights add up to 1.
        tolerance: differences up to this are free.
        solver: see `flow.settle`.

    Raises:
        SettingError: when shapes, weights or a hierarchy do not fit.

    >>> months = [Attribute(3, Fraction(1), chain=3)]
    >>> aemc(np.array([4, 4, 2]), np.array([5, 4, 1]), months).cost
    0.1
    """
    _check(synthetic, real, attributes, tolerance)
    rows = max(int(real.sum()), 1)
    network, axis, owner = neighbour_network(attributes)
    extra = len(network.final) - real.size
    made, wanted = (
        np.append(table.reshape(-1).astype(np.int64), np.zeros(extra, np.int64)) for table in (synthetic, real)
    )
    found = settle(network, made, wanted, tolerance, solver)
    paid = np.abs(found.flow) * (network.cost / network.fine)
    moving = np.bincount(axis, weights=paid, minlength=len(attributes)) / rows
    cells = (found.excess + found.lack)[: real.size].astype(np.float64)
    for end in (network.tail, network.head):
        at = owner[end]
        cells += np.bincount(at[at >= 0], weights=paid[at >= 0] / 2, minlength=real.size)
    adding, removing = float(found.lack.sum()) / rows, float(found.excess.sum()) / rows
    cost = float(moving.sum()) + adding + removing
    return Moves(round(cost, 15), tuple(moving.tolist()), adding, removing, (cells / rows).reshape(real.shape))


def neighbour_network(attributes: Sequence[Attribute]) -> tuple[Network, Whole, Whole]:
    """The sparse network: ordered values next to each other, others through dummy nodes of their hierarchy.

    Returns:
        The network, the attribute of each edge, and by node the cell it stands for (-1 for a dummy).
    """
    shape = [attribute.size for attribute in attributes]
    index = np.arange(math.prod(shape)).reshape(shape)
    ends: list[tuple[Whole, Whole]] = []
    costs: list[Fraction] = []
    axes: list[int] = []
    nodes = index.size
    for number, attribute in enumerate(attributes):
        if attribute.weight is None:
            continue
        lines = np.moveaxis(index, number, 0).reshape(attribute.size, -1)
        if attribute.chain:
            if attribute.chain > 1:
                ends.append((lines[: attribute.chain - 1].reshape(-1), lines[1 : attribute.chain].reshape(-1)))
                costs.append(attribute.weight / (attribute.chain - 1))
                axes.append(number)
            continue
        made, nodes = _climb(lines, attribute, nodes)
        ends += made
        costs += [attribute.weight / (2 * (len(attribute.levels) + 1))] * len(made)
        axes += [number] * len(made)
    scale = math.lcm(*(cost.denominator for cost in costs)) if costs else 1
    scale = scale if scale <= _EXACT else _ROUNDED
    lengths = [len(tail) for tail, _ in ends]
    empty = np.zeros(0, np.int64)
    network = Network(
        tail=np.concatenate([empty, *(tail for tail, _ in ends)]),
        head=np.concatenate([empty, *(head for _, head in ends)]),
        cost=np.repeat(np.array([round(cost * scale) for cost in costs], np.int64), lengths),
        final=np.arange(nodes) < index.size,
        fine=scale,
    )
    return network, np.repeat(np.array(axes, np.int64), lengths), np.where(network.final, np.arange(nodes), -1)


def _climb(lines: Whole, attribute: Attribute, nodes: int) -> tuple[list[tuple[Whole, Whole]], int]:
    """Edges from values to their groups, from groups to coarser groups, and at last to the root."""
    edges, below = [], lines
    group = np.arange(attribute.size)
    for level in (*attribute.levels, np.zeros(attribute.size, np.int64)):
        above = nodes + np.arange((int(level.max()) + 1) * lines.shape[1]).reshape(-1, lines.shape[1])
        nodes += above.size
        first = np.unique(group, return_index=True)[1]
        edges.append((below.reshape(-1), above[level[first]].reshape(-1)))
        below, group = above, level
    return edges, nodes


def _check(
    synthetic: NDArray[np.int64], real: NDArray[np.int64], attributes: Sequence[Attribute], tolerance: int
) -> None:
    shape = tuple(attribute.size for attribute in attributes)
    if synthetic.shape != shape or real.shape != shape:
        raise SettingError("mgd: the tables and the attributes have different shapes; count both with one schema")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int) or tolerance < 0:
        raise SettingError("mgd.tolerance must be a whole number of at least 0; correct it")
    finite = [attribute.weight for attribute in attributes if attribute.weight is not None]
    if any(weight < 0 for weight in finite) or (finite and abs(sum(finite, Fraction(-1))) > Fraction(1, 10**6)):
        raise SettingError("mgd: the finite weights of a marginal must be at least 0 and add up to 1")
    for attribute in attributes:
        if any(len(level) != attribute.size or (level < 0).any() for level in attribute.levels):
            raise SettingError("mgd: a hierarchy does not cover its column; give a group for every code")
