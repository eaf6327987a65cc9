"""`aim`: the adaptive and iterative mechanism (McKenna et al. 2022, Algorithms 2 to 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.mechanism.protocol import Fit, Footprint
from understudy.model import GraphicalModel, JunctionTree, estimate
from understudy.privacy import PrivateTable
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding
from understudy.workload import Workload


@dataclass(frozen=True, kw_only=True)
class AIM:
    """Measure what the current model explains worst, round by round, until the budget is spent.

    **Privacy.** Every answer comes from the gate; the shares of the rounds are chosen from earlier answers, which the
    privacy filter allows, and add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        max_mib: the largest junction tree; a round may use as much of it as was spent of the budget.
        rounds: the number of rounds to plan for, as a multiple of the number of columns.
        measured: the part of each round's budget that goes to measuring; the rest chooses.
        max_cells: candidates with more cells are left out.
    """

    name: ClassVar[str] = "aim"
    pure: ClassVar[bool] = False

    workload: str = "all-3way"
    max_mib: float = 80.0
    rounds: float = 16.0
    measured: float = 0.9
    max_cells: int = 2_000_000

    def __post_init__(self) -> None:
        if not 0 < self.measured < 1:
            raise SettingError("aim: measured is the part of a round's budget for measuring, between 0 and 1")
        if not (self.rounds >= 1 and self.max_mib > 0 and self.max_cells >= 1):
            raise SettingError("aim: rounds must be at least 1, max_mib and max_cells positive")

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Algorithm 2: initialise, then select, measure and estimate until the budget is spent."""
        domain, total = table.domain, table.rows_public
        weights = self._candidates(domain)
        ones = [clique for clique in weights if len(clique) == 1]
        share = rho / (self.rounds * len(domain))  # what a round may spend; sigma and epsilon follow from it
        left = rho
        measurements = table.measure(ones, rho=self.measured * share * len(ones))  # Algorithm 3
        left -= self.measured * share * len(ones)
        model = estimate(domain, measurements, total=total)
        rounds: list[dict[str, Any]] = []
        while left > 0:
            if left <= 2 * share:  # Algorithm 4, line 8: too little for two more rounds
                share = left
            left = 0.0 if share == left else left - share
            candidates = self._within(domain, weights, measurements, self.max_mib * (1 - left / rho))  # line 13
            sigma = table.sigma(self.measured * share)
            noise = {clique: math.sqrt(2 / math.pi) * sigma * domain.cells(clique) for clique in candidates}
            before = model.project_many(candidates)
            chosen = table.select(  # line 14
                candidates, against=before, weights=candidates, offsets=noise, rho=(1 - self.measured) * share
            )
            measurements += table.measure([chosen], rho=self.measured * share)  # line 15
            model = estimate(domain, measurements, total=total, warm_start=model)  # line 16
            rounds.append(_round(chosen, sigma, share * (1 - self.measured), candidates, before))
            progress(Step("measure", 1 - left / rho, f"round {len(rounds)}: {' x '.join(chosen)}"))
            if _moved(before[chosen], model.project(chosen)) <= noise[chosen]:  # Algorithm 4, line 1
                share *= 4  # sigma halved and epsilon doubled
        return Fit(model=model, measurements=measurements, rounds=rounds)

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """The graphical model of what was measured."""
        model = estimate(recoding.recode(domain), measurements, total=total, progress=progress)
        return Fit(model=model, measurements=measurements, recoding=recoding)

    def footprint(self, domain: Domain) -> Footprint:
        """The junction tree three times over, and the candidates' tables."""
        cells = sum(domain.cells(clique) for clique in self._candidates(domain))
        tree = int(self.max_mib * (1 << 20))
        return Footprint(memory_bytes=3 * tree + 32 * cells, disk_bytes=tree)

    def _candidates(self, domain: Domain) -> dict[Clique, float]:
        closure = Workload.parse(self.workload, domain).closure()
        return {r: w for r, w in closure.items() if len(r) == 1 or domain.cells(r) <= self.max_cells}

    def _within(
        self, domain: Domain, weights: Mapping[Clique, float], measured: Sequence[Measurement], limit_mib: float
    ) -> dict[Clique, float]:
        """Candidates whose junction tree stays within the limit; those inside a measured clique always do."""
        tree = JunctionTree.of(domain, [m.clique for m in measured])
        sizes = tree.size_mib_with(list(weights))
        small = sizes <= max(limit_mib, tree.size_mib)
        return {clique: weight for (clique, weight), fits in zip(weights.items(), small, strict=True) if fits}


def _moved(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    return float(np.abs(after - before).sum())


def _round(
    chosen: Clique, sigma: float, selecting: float, candidates: Mapping[Clique, float], before: Mapping[Clique, Any]
) -> dict[str, Any]:
    return {"chosen": list(chosen), "sigma": sigma, "rho_select": selecting}
