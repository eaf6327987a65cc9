"""The noise that the gate would add, from the budget and the neighbour relation alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.privacy import Budget
from understudy.privacy.neighbours import Neighbours
from understudy.privacy.plan import can_plan, certified_plan

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PlannedNoise:
    """Standard deviations of measurements under a budget.

    Attributes:
        budget: what the run would spend.
        neighbours: who is protected.
    """

    budget: Budget
    neighbours: Neighbours

    @property
    def capacity(self) -> float:
        """What a mechanism divides: rho, or epsilon of a pure budget."""
        return float(self.budget.capacity)

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
        """The same for measurements fixed in advance, which the exact curve calibrates where it can."""
        if can_plan(self.budget, self.neighbours):
            return np.array(list(certified_plan(weights, self.budget, self.neighbours)[0].values()))
        return self.sigmas(np.array(list(weights.values())), self.capacity)

    def draw(self, rng: np.random.Generator, sigma: Array | float, shape: int | tuple[int, ...]) -> Array:
        """Noise for a simulation; the gate's own is integer and exact, which makes no difference to an average."""
        if self.budget.pure:
            return rng.laplace(size=shape) * sigma / math.sqrt(2)
        return rng.standard_normal(shape) * sigma
