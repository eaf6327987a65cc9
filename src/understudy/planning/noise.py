"""The noise that the gate would add, from the budget and the neighbour relation alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Budget
from understudy.accounting.calibrate import can_plan, certified_plan, too_much
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique

Array = NDArray[np.float64]

_TABLES = 25


@dataclass(frozen=True)
class PlannedNoise:
    """Standard deviations of measurements under a budget.

    Attributes:
        budget: what the run would spend.
        neighbours: who is protected.
        kept: the part of the budget that is not spent before the mechanism starts; below 1, no exact curve applies.
    """

    budget: Budget
    neighbours: Neighbours
    kept: float = 1.0

    @property
    def capacity(self) -> float:
        """What a mechanism divides: rho, or epsilon of a pure budget."""
        return self.kept * float(self.budget.capacity)

    def sigmas(self, weights: Array, share: float) -> Array:
        """The standard deviation on each table's cells, of tables with these weights that cost `share` together."""
        if not len(weights):
            return weights
        if self.budget.pure:
            return np.asarray(math.sqrt(2) * self.neighbours.marginal_l1 * weights.sum() / (weights * share))
        return np.asarray(
            np.sqrt(self.neighbours.marginal_l2_squared * np.square(weights).sum() / (2 * share)) / weights
        )

    def fixed(self, weights: Mapping[Clique, float]) -> Array:
        """The same for measurements fixed in advance, which the exact curve calibrates where it can.

        For many tables the curve depends on the sum of their precisions alone (noise on integers and on numbers is then
        the same), so it is asked about tables of one weight: in a thousandth of the time, within a tenth of a percent.
        """
        values, capacity = np.array(list(weights.values())), self.capacity
        exact = self.kept == 1 and can_plan(self.budget, self.neighbours)
        if exact and not too_much(self.sigmas(values, capacity).tolist()):
            capacity = self._by_the_curve
        return self.sigmas(values, capacity)

    @cached_property
    def _by_the_curve(self) -> float:
        tables: dict[Clique, float] = {(str(place),): 1.0 for place in range(_TABLES)}
        sigmas = certified_plan(tables, self.budget, self.neighbours)[0].values()
        return sum(self.cost(sigma) for sigma in sigmas)

    def draw(self, rng: np.random.Generator, sigma: Array | float, shape: int | tuple[int, ...]) -> Array:
        """Noise for a simulation; the gate's own is integer and exact, which makes no difference to an average."""
        if self.budget.pure:
            return rng.laplace(size=shape) * sigma / math.sqrt(2)
        return rng.standard_normal(shape) * sigma

    @property
    def magnitude(self) -> float:
        """The mean magnitude of noise of standard deviation 1."""
        return math.sqrt(1 / 2) if self.budget.pure else math.sqrt(2 / math.pi)

    def single(self, share: float) -> float:
        """The standard deviation on the cells of one table that costs this share."""
        return float(self.sigmas(np.ones(1), share)[0])

    def cost(self, sigma: float) -> float:
        """What one table of this standard deviation costs."""
        if self.budget.pure:
            return math.sqrt(2) * self.neighbours.marginal_l1 / sigma
        return self.neighbours.marginal_l2_squared / (2 * sigma**2)

    def selecting(self, share: float) -> float:
        """The epsilon of an exponential mechanism that costs this share."""
        return share if self.budget.pure else math.sqrt(8 * share)
