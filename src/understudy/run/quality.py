"""Measured quality: the marginals of the workload that are compared, and the question to the gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from understudy.accounting.exact import float_below
from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism import Fit
from understudy.quality import Quality
from understudy.workload import Workload, public_workload_name

MOST = 512
"""The most marginals that are compared."""
_CELLS = 1 << 16
_FINE = 1000


@dataclass(frozen=True)
class Rating:
    """The part of a run that measures its own quality.

    Attributes:
        share: the part of the budget.
        workload: which marginals matter, as on the command line; None for the mechanism's own, else all pairs.
    """

    share: float
    workload: str | None = None

    @property
    def named(self) -> str:
        """The name of the workload, or of the default one."""
        return self.workload or "all-2way"

    def tables(
        self, domain: Domain, askable: Callable[[Clique], bool] = lambda clique: True
    ) -> tuple[dict[Clique, int], int]:
        """Return the cliques to compare with whole-number weights, and how many the workload has.

        The choice depends on the workload and a fixed seed, never on rows or answers. If there are too many, they are
        drawn in proportion to their weights and then count equally. Cliques of very many cells, and those that cannot
        be measured, are left out.

        Raises:
            SettingError: if no clique is small enough.
        """
        weights = {clique: weight for clique, weight in Workload.parse(self.named, domain).weights.items() if weight}
        small = {r: weight for r, weight in weights.items() if domain.cells(r) <= _CELLS and askable(r)}
        if not small:
            raise SettingError(
                f"quality: every marginal of {self.named} has more than {_CELLS} cells; use smaller ones"
            )
        names = list(small)
        if len(names) > MOST:
            chance = np.array(list(small.values())) / sum(small.values())
            drawn = np.random.default_rng(0).choice(len(names), MOST, replace=False, p=chance)
            return {names[place]: 1 for place in sorted(drawn.tolist())}, len(weights)
        top = max(small.values())
        if min(small.values()) == top:
            return dict.fromkeys(names, 1), len(weights)
        return {clique: max(1, round(_FINE * weight / top)) for clique, weight in small.items()}, len(weights)

    def cost(self, capacity: Fraction) -> Fraction:
        """Return the cost, in the budget's own unit."""
        return Fraction(self.share) * capacity


def measure_quality(table: PrivateTable, fit: Fit, rating: Rating) -> Quality:
    """Measure the workload error of a fit with its share of the budget.

    Values that were merged as rare count as one value.

    **Privacy.** One question to the gate, about marginals of a model that was made from earlier answers.
    """
    view = table.recode(fit.recoding)
    weights, of = rating.tables(view.domain, view.can_measure)
    cost = float_below(min(rating.cost(table.account.budget.capacity), table.account.remaining))
    against = fit.model.project_many(list(weights))
    apart = view.error(against, weights=weights, rho=cost)
    whole = 2 * max(float(fit.model.total), 1.0)
    about = public_workload_name(rating.named)
    return Quality(apart.rows / whole, apart.scale / whole, apart.noise, about, len(weights), of, rating.share)
