"""The tables nearest to noisy ones that agree with one another and are not negative: Newton's method on the dual.

For tables that form a tree this is all of estimation: the product of their conditionals has just these margins. How
many steps it takes depends on the shape of the tree and not on the number of rows, while descent on the potentials
needs more the smaller the noise is beside the counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.model.tree.newton import Array, Coupling, End, add_margins, pull
from understudy.model.tree.noisy_tables import Table

_CLOSE = 1e-5  # standard deviations: how far apart margins of two tables may stay
_MOST_STEPS, _MOST_HALVINGS = 50, 20
_GAIN = 1e-6  # of the loss: steps that gain less are not worth their while, estimation does the rest
_ROUGH = 0.1  # the first steps need not be solved closely
_EMPTY_PART = 1e-7  # of the loss: what the cells that come out empty may cost together
_FLAT = 1e-3  # standard deviations from being empty or not: as if at least so far


def nearest_tables(domain: Domain, tables: Mapping[Clique, Table], total: float) -> dict[Clique, Array]:
    """Positive tables of this total with common margins, nearest to the given ones by weighted least squares.

    Margins agree along a tree of the largest cliques, which is everywhere when the cliques form a tree. What the
    domain forbids within one clique is empty. A cell that comes out empty gets so little that it hardly counts.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: the columns.
        tables: as `measured_tables` gives them.
        total: what every table shall add up to.

    Returns:
        The tables of the largest cliques; those of cliques within them are their margins.

    >>> domain = Domain({"a": 2, "b": 2})
    >>> ab, a = np.array([[5.0, 3.0], [1.0, -3.0]]), np.array([8.0, 0.0])
    >>> tables = {("a", "b"): Table(ab, np.ones((2, 2))), ("a",): Table(a, np.ones(2))}
    >>> nearest_tables(domain, tables, 8.0)[("a", "b")].round(2).tolist()
    [[4.86, 2.86], [0.29, 0.0]]
    """
    parts, aims = _linked(domain, tables, total)
    prices, loss = _prices(list(parts.values()), aims)
    cells = sum(part.table.values.size for part in parts.values())
    return {clique: part.positive(prices, _EMPTY_PART * loss / cells) for clique, part in parts.items() if part.bounded}


@dataclass(frozen=True)
class _Part:
    """A table in the problem: its cells are what is nearest when breaking a link has a price."""

    table: Table
    bounded: bool
    barred: NDArray[np.bool_] | None
    ends: list[End]

    @cached_property
    def spread(self) -> Array:
        spread = 1.0 / self.table.precision
        return spread if self.barred is None else np.where(self.barred, 0.0, spread)

    @cached_property
    def values(self) -> Array:
        return self.table.values if self.barred is None else np.where(self.barred, 0.0, self.table.values)

    def cells(self, prices: Array) -> Array:
        free: Array = self.values - self.spread * pull(self.ends, prices)
        return np.maximum(free, 0.0, out=free) if self.bounded else free

    def active(self, cells: Array) -> Array:
        """How far each cell moves when it is pulled."""
        return np.where(cells > 0.0, self.spread, 0.0) if self.bounded else self.spread

    def loss(self, cells: Array) -> float:
        off = cells - self.values
        off *= off
        off *= self.table.precision
        return 0.5 * float(off.sum())

    def positive(self, prices: Array, afford: float) -> Array:
        """The cells, an empty one with what would cost so much: the less, the surer it is that it is empty."""
        cells = self.cells(prices)
        sure = pull(self.ends, prices) - self.table.precision * self.table.values
        sure = np.maximum(sure, _FLAT * np.sqrt(self.table.precision), out=sure)
        if self.barred is not None:
            sure[self.barred] = sure.max() / _FLAT
        return np.where(cells > 0.0, cells, afford / sure)


def _prices(parts: list[_Part], aims: Array) -> tuple[Array, float]:
    """What breaking each link costs at the optimum, and the loss there.

    That maximises a concave, piecewise quadratic function: a few steps of Newton's method, the first as if cells could
    be negative.
    """
    spreads = [part.spread for part in parts]
    diagonal = _sums(parts, spreads, len(aims), 2)
    whole = np.where(diagonal == 0.0, 1.0, diagonal)
    coupling = Coupling([(part.table.values.shape, part.ends) for part in parts])
    broken = _sums(parts, [part.values for part in parts], len(aims)) - aims
    prices = coupling.step(spreads, diagonal, whole, broken, _ROUGH / max(1.0, _far(broken, whole)))
    cells = [part.cells(prices) for part in parts]
    worth = _worth(parts, cells, prices, aims)
    for _ in range(_MOST_STEPS):
        broken = _sums(parts, cells, len(aims)) - aims
        far = _far(broken, whole)
        if far <= _CLOSE:
            break
        active = [part.active(table) for part, table in zip(parts, cells, strict=True)]
        diagonal = _sums(parts, active, len(aims), 2)
        move = coupling.step(active, diagonal, whole, broken, _ROUGH * min(1.0, 10.0 * far))
        for size in 0.5 ** np.arange(_MOST_HALVINGS):
            trial = prices + size * move
            cells = [part.cells(trial) for part in parts]
            found = _worth(parts, cells, trial, aims)
            if found >= worth + 1e-4 * size * float(broken @ move):
                break
        else:
            break
        gained, prices, worth = found - worth, trial, found
        if gained <= _GAIN * worth:
            break
    return prices, max(worth, 1.0)


def _far(broken: Array, whole: Array) -> float:
    """By how many standard deviations the worst link is broken."""
    return float(np.abs(broken * whole**-0.5).max(initial=0.0))


def _worth(parts: list[_Part], cells: list[Array], prices: Array, aims: Array) -> float:
    """The dual objective."""
    broken = _sums(parts, cells, len(aims)) - aims
    return sum(part.loss(table) for part, table in zip(parts, cells, strict=True)) + float(prices @ broken)


def _sums(parts: list[_Part], cells: list[Array], links: int, power: int = 1) -> Array:
    out = np.zeros(links)
    for part, table in zip(parts, cells, strict=True):
        add_margins(part.ends, np.broadcast_to(table, part.table.values.shape), out, power)
    return out


def _linked(domain: Domain, tables: Mapping[Clique, Table], total: float) -> tuple[dict[Clique, _Part], Array]:
    """The tables with the links between them, and what each link should come to: 0, or the total."""
    largest = [clique for clique in tables if not any(set(clique) < set(other) for other in tables)]
    parts = {clique: _Part(table, clique in largest, _barred(domain, clique), []) for clique, table in tables.items()}
    aims: list[Array] = []
    place = 0
    for onto, ends in _links(tables, largest):
        where = slice(place, place := place + domain.cells(onto))
        aims.append(np.full(domain.cells(onto), 0.0 if len(ends) > 1 else total))
        for clique, sign in zip(ends, (1.0, -1.0), strict=False):
            shape = tuple(domain[column] if column in onto else 1 for column in clique)
            summed = tuple(axis for axis, column in enumerate(clique) if column not in onto)
            parts[clique].ends.append(End(where, shape, summed, sign))
    return parts, np.concatenate(aims) if aims else np.zeros(0)


def _links(tables: Mapping[Clique, Table], largest: list[Clique]) -> Iterator[tuple[Clique, tuple[Clique, ...]]]:
    """Margins with the two tables that shall have them in common; and with one table of each tree, for the total."""
    group = {clique: number for number, clique in enumerate(largest)}
    linked: set[tuple[Clique, Clique]] = set()
    shared = [(tuple(c for c in one if c in other), one, other) for one, other in combinations(largest, 2)]
    for onto, one, other in sorted((link for link in shared if link[0]), key=lambda link: -len(link[0])):
        if group[one] == group[other]:
            continue
        group = {clique: group[one] if number == group[other] else number for clique, number in group.items()}
        if onto not in tables:
            yield onto, (one, other)
            continue
        for clique in (one, other):
            if (clique, onto) not in linked:
                linked.add((clique, onto))
                yield onto, (clique, onto)
    done = {*largest, *(onto for _, onto in linked)}
    for onto in (clique for clique in tables if clique not in done):
        yield onto, (next(clique for clique in largest if set(onto) < set(clique)), onto)
    for clique in {group[clique]: clique for clique in largest}.values():
        yield (), (clique,)


def _barred(domain: Domain, clique: Clique) -> NDArray[np.bool_] | None:
    """Cells that a rule within the clique forbids; None without such a rule."""
    masks = {rule: mask for rule, mask in domain.forbidden.items() if set(rule) <= set(clique)}
    barred = np.zeros(domain.shape(clique), np.bool_)
    for rule, mask in masks.items():
        inside = [column for column in clique if column in rule]
        turned = mask.transpose([rule.index(column) for column in inside])
        barred |= turned.reshape([domain[column] if column in rule else 1 for column in clique])
    return barred if masks else None
