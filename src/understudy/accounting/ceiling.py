"""The largest ROC curve that a guarantee allows an attacker, and the area under it.

An attacker distinguishes two neighbouring tables with a share T of true positives and a share f of false positives.
For every (epsilon, delta) that the guarantee implies, T <= exp(epsilon) f + delta and
1 - f <= exp(epsilon) (1 - T) + delta. The ceiling is the largest T that satisfies all of these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.accounting.budget import Budget
from understudy.accounting.calibrate import LossDistribution
from understudy.accounting.convert import delta_of
from understudy.accounting.receipt import Receipt

_POINTS = 200
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class Ceiling:
    """The most that an attacker can achieve against a guarantee.

    Attributes:
        epsilons: points of the privacy curve.
        deltas: the delta at each of them. With fewer points the ceiling is higher, never too low.

    >>> ceiling = Ceiling(np.array([1.0]), np.array([0.01]))
    >>> round(float(ceiling.power(0.01)), 4), round(ceiling.advantage, 4), round(ceiling.auc, 4)
    (0.0372, 0.4675, 0.7364)
    """

    epsilons: NDArray[np.float64]
    deltas: NDArray[np.float64]

    @classmethod
    def of(cls, receipt: Receipt) -> Ceiling:
        """Return the ceiling of a release, from its receipt."""
        budget = receipt.budget
        if budget.proof == "pld":
            return cls.of_plan(budget, [c.scale for c in receipt.charges], replace_one=receipt.neighbours.replace_one)
        return cls.of_budget(budget)

    @classmethod
    def of_budget(cls, budget: Budget) -> Ceiling:
        """Return the ceiling of charges that add up as rho or as epsilon."""
        if budget.pure:
            return cls(np.array([float(budget.capacity)]), np.zeros(1))
        rho, aside = float(budget.rho), float(budget.discovery_delta)
        grid = np.linspace(0.0, rho + 2 * math.sqrt(-rho * math.log(_NEGLIGIBLE)), _POINTS)
        return cls(grid, np.array([min(1.0, delta_of(rho, float(e)) + aside) for e in grid]))

    @classmethod
    def of_plan(cls, budget: Budget, sigmas: list[float], *, replace_one: bool) -> Ceiling:
        """Return the ceiling of measurements fixed in advance, by the exact curve that calibrated them."""
        cells = sigmas * (2 if replace_one else 1)
        epsilon, delta = float(budget.epsilon or 0), float(budget.delta or 0)
        loss = LossDistribution(cells, epsilon, delta)
        spread = math.sqrt(math.fsum(sigma**-2 for sigma in cells))
        grid = np.append(np.linspace(0.0, spread * (spread / 2 + 6), _POINTS), epsilon)
        return cls(grid, np.array([loss.delta(float(e)) for e in grid]))

    def power(self, false_positives: ArrayLike) -> NDArray[np.float64]:
        """Return the largest share of true positives at these shares of false positives."""
        f = np.asarray(false_positives, np.float64)[..., np.newaxis]
        grown, shrunk = np.exp(self.epsilons), np.exp(-self.epsilons)
        best = np.minimum(grown * f + self.deltas, 1 - shrunk * (1 - self.deltas - f))
        found: NDArray[np.float64] = np.clip(best.min(axis=-1), 0.0, 1.0)
        return found

    @cached_property
    def _curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        f = np.linspace(0.0, 1.0, 4001)
        f = np.union1d(f, f[:401] / 400)
        return f, self.power(f)

    @property
    def auc(self) -> float:
        """The area under the ceiling: no attack has more, on average over runs."""
        f, t = self._curve
        return float(np.trapezoid(t, f))

    @property
    def advantage(self) -> float:
        """The largest difference between true and false positives."""
        f, t = self._curve
        return float((t - f).max())
