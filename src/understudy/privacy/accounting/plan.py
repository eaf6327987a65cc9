"""Measurements fixed in advance: their sigmas together, and the budget that their exact curve certifies."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from understudy.domain import Clique
from understudy.privacy.accounting.budget import Budget
from understudy.privacy.accounting.calibrate import planned_sigma, spread
from understudy.privacy.accounting.charge import planned
from understudy.privacy.accounting.neighbours import Neighbours


def can_plan(budget: Budget, neighbours: Neighbours) -> bool:
    """Whether the exact curve applies: an (epsilon, delta) budget, all of it free, and one row per unit.

    With more rows per unit the worst way to spread them over cells is not known, and zCDP serves. A budget stated as
    rho promises rho-zCDP, of which its epsilon is only a consequence: the curve would spend more rho than was given.
    """
    stated = budget.proof == "zcdp" and budget.epsilon is not None and budget.delta is not None
    return stated and not budget.rho_stated and not budget.purchase_delta and neighbours.max_rows == 1


def certified_plan(
    weights: Mapping[Clique, float], budget: Budget, neighbours: Neighbours
) -> tuple[dict[Clique, float], Budget]:
    """The sigma of each measurement, and the budget whose guarantee rests on exactly these.

    **Privacy.** Each clique measured once with discrete Gaussian noise of its sigma, and nothing else, is (epsilon,
    delta)-DP for the budget's epsilon and delta.

    Args:
        weights: the cliques with relative weights; a sigma is inversely proportional to its weight.
        budget: one for which `can_plan` holds.
        neighbours: the neighbour relation.
    """
    relative = list(weights.values())
    epsilon, delta = float(budget.epsilon or 0), float(budget.delta or 0)
    common = planned_sigma(relative, epsilon, delta, replace_one=neighbours.replace_one)
    sigmas = dict(zip(weights, spread(common, relative), strict=True))
    squared = neighbours.marginal_l2_squared
    charges = [planned("measure", (clique,), squared, sigma=sigma) for clique, sigma in sigmas.items()]
    return sigmas, budget.certified(sum((charge.rho for charge in charges), Fraction(0)))
