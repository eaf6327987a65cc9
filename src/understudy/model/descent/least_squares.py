"""Closed-form least squares: the consistent tables nearest to noisy ones, before non-negativity is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement

Vector: TypeAlias = NDArray[np.float64]
_MOST_WORK = 2e8


@dataclass
class MeasuredClique:
    """All measurements of one clique's cells; they stay where they are.

    Attributes:
        domain: the sizes of the columns.
        clique: the columns in one common order; those of a single code may be left out.
        measurements: of the same columns, in any order.
    """

    domain: Domain
    clique: Clique
    measurements: list[Measurement] = field(default_factory=list)

    @property
    def weight(self) -> float:
        """1/variance of the mean."""
        return sum(m.sigma**-2 for m in self.measurements)

    def mean(self) -> Vector:
        """The table that they measure best: their mean by precision."""
        out = np.zeros(self.domain.shape(self.clique))
        for m in self.measurements:
            out += self._values(m) * (m.sigma**-2 / self.weight)
        return out

    def loss(self, table: Vector) -> float:
        """Half the squared distance of a table from all measurements, in units of their noise."""
        squares = 0.0
        for m in self.measurements:
            away = np.asarray(table - self._values(m))
            squares += m.sigma**-2 * float(np.square(away, out=away).sum())
        return 0.5 * squares

    def _values(self, measurement: Measurement) -> NDArray[Any]:
        """What was measured, its axes in our order."""
        clique = measurement.clique
        order = [clique.index(column) for column in self.clique]
        single = [axis for axis, column in enumerate(clique) if column not in self.clique]
        turned = measurement.values.reshape(self.domain.shape(clique)).transpose([*single, *order])
        return turned.reshape(self.domain.shape(self.clique))


def consistent_tables(
    domain: Domain, tables: Mapping[Clique, MeasuredClique], total: float
) -> Iterator[tuple[Clique, Vector]]:
    """The tables that agree with one another and with the total, nearest by weighted least squares.

    Each table splits into one part for every subset of its columns (summed over the others, centred along its own);
    parts of different subsets are orthogonal, so every subset's part is simply the weighted mean over the tables
    that have it. Minimising the distance to the result is the same as minimising the distance to the noisy tables.

    Args:
        domain: the sizes of the columns.
        tables: what was measured of each clique, with all cliques' columns in one common order.
        total: what every table must add up to.

    Yields:
        Each clique with its table; the tables as measured where splitting them would cost too much.
    """
    if sum(2.0 ** len(clique) * domain.cells(clique) for clique in tables) > _MOST_WORK:
        yield from ((clique, table.mean()) for clique, table in tables.items())
        return
    sums: dict[Clique, Vector] = {}
    weights: dict[Clique, float] = {}
    for clique, table in tables.items():
        for subset, part in _split(table.mean(), clique).items():
            mine = table.weight * domain.cells(subset) / domain.cells(clique)
            part *= mine
            sums[subset] = np.add(sums[subset], part, out=part) if subset in sums else part
            weights[subset] = weights.get(subset, 0.0) + mine
    for subset, weight in weights.items():
        sums[subset] /= weight
    sums[()] = np.array(total)
    for clique in tables:
        yield clique, _join(sums, clique, domain)


def _split(table: Vector, clique: Clique) -> dict[Clique, Vector]:
    """The part of a table for every subset of its columns; writes over the table."""
    parts: dict[Clique, Vector] = {(): table}
    for column in clique:
        longer: dict[Clique, Vector] = {}
        for subset, part in parts.items():
            summed = part.sum(axis=len(subset), keepdims=True)
            longer[subset] = summed.squeeze(axis=len(subset))
            part -= summed / part.shape[len(subset)]
            longer[(*subset, column)] = part
        parts = longer
    return parts


def _join(parts: Mapping[Clique, Vector], clique: Clique, domain: Domain) -> Vector:
    """The table with these parts: the inverse of `_split`."""
    subsets: dict[Clique, Vector] = {}
    for mask in range(2 ** len(clique)):
        subset = tuple(column for i, column in enumerate(clique) if mask >> i & 1)
        subsets[subset] = parts[subset].copy()
    for column in reversed(clique):
        shorter: dict[Clique, Vector] = {}
        for subset, part in subsets.items():
            if column not in subset:
                shorter[subset] = subsets[(*subset, column)]
                shorter[subset] += np.expand_dims(part, len(subset)) / domain[column]
        subsets = shorter
    return subsets[()]
