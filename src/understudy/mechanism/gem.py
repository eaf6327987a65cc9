"""`gem`: a generator network trained on marginals selected one by one (Liu et al. 2021, "Iterative Methods").

By default a query is a whole marginal, the variant that the AIM paper compares with; as published, it is one cell.
Differences from the paper are explained in docs/decisions/gem.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.base import Count, Footprint
from understudy.mechanism.rap import RAP
from understudy.model.fit import Fit
from understudy.model.network import CellTraining, NetworkModel, fit_network, network_bytes
from understudy.model.relaxed import RelaxedModel
from understudy.progress import Progress, silent

_MOST_CODES = 10_000  # of all columns, for the published network: 26 million weights, a minute a round
_ALPHA = 0.67  # a: selecting costs a^2 eps_0^2 / 2 in a round, measuring (1 - a)^2 eps_0^2 / 2


class GEM(RAP):
    """Select the marginal that a generator network answers worst, measure it, train the network; repeat.

    This is RAP with a network: two residual blocks make relaxed rows from fixed noise, and each round trains the
    network on all measurements.

    **Privacy.** Rows are read only by `measure` and `select` (or `select_cells`) of the gate. The noise that the
    network starts from is public and fixed; training is post-processing. The shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        rounds: the number of rounds (T in the paper).
        batch: the number of queries that a round selects and measures; 1 in the paper.
        queries: "marginals", all cells of which are measured, or "cells", single cells, as in the paper, with its
            network and training; needs first=0.
        measured: the part of each round's budget for measuring; the rest is for selection. (1 - a)^2 / (a^2 + (1 -
            a)^2) for the paper's a.
        first: the part of the budget for a first measurement of every column; 0 for none, and then no codes are merged.
        second: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        max_cells: cliques of more cells are not candidates.
    """

    name = "gem"
    paper = "Liu, Vietri and Wu 2021, Iterative Methods for Private Synthetic Data"
    when = "To compare with: a generator network in place of RAP's rows."
    generator = "gem"

    rounds: Count = 30
    batch: Count = 1

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: cells, nothing measured before the first round, a = 0.67 for selection."""
        return {"first": 0.0, "queries": "cells", "measured": (1 - _ALPHA) ** 2 / (_ALPHA**2 + (1 - _ALPHA) ** 2)}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Select, measure and train in each round.

        Raises:
            SettingError: if the published network would be too large; nothing was spent.
        """
        self._check_codes(table.domain)
        return super().fit(table, rho=rho, progress=progress)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of candidates and rows, as for RAP, and of training the network.

        Raises:
            SettingError: if the published network would be too large; nothing was spent.
        """
        self._check_codes(domain)
        needed = super().footprint(domain)
        network = network_bytes(domain, published=self.queries == "cells")
        return Footprint(memory_bytes=needed.memory_bytes + network, disk_bytes=needed.disk_bytes)

    def _check_codes(self, domain: Domain) -> None:
        codes = sum(domain.values())
        if self.queries == "cells" and codes > _MOST_CODES:
            raise SettingError(
                f"gem: queries='cells', as in the paper, takes at most {_MOST_CODES:,} values of all columns together, "
                f"not {codes:,}; use queries='marginals', which merges rare values. Nothing was spent"
            )

    def train(self, domain: Domain) -> CellTraining:
        """Return a new network, which learns from cells."""
        return CellTraining(domain, self.rounds)

    def project(
        self, domain: Domain, measurements: Sequence[Measurement], total: float | None, before: RelaxedModel | None
    ) -> RelaxedModel:
        """Train the network on all measurements so far, starting from the network of the previous round."""
        start = before if isinstance(before, NetworkModel) else None
        return fit_network(domain, measurements, total=total, start=start)
