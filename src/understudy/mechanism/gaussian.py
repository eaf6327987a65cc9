"""`gaussian`: the whole workload, measured at once; the paper's baseline that chooses nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from understudy.domain import NO_GROUPS, Clique, CodeGroups, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, noisy_total
from understudy.mechanism.base import Count, Footprint, Mechanism, Positive
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.model.product import product_of
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding
from understudy.workload import Workload


class Gaussian(Mechanism):
    """Measure every marginal of the workload, with the noise split so that the summed error is least.

    The expected L1 error of a table of n cells and weight c grows with c n sigma; under a fixed sum of 1/sigma^2 the
    total is least when sigma is proportional to (c n)^(-1/3) (the allocation of PrivSyn, Zhang et al. 2021). A
    graphical model is fitted where its junction tree stays within `max_mib`; else rows are made by gradual updates.

    **Privacy.** One call to the gate; the measurements are fixed in advance, so under (epsilon, delta) the gate
    calibrates them by the discrete Gaussian's exact curve.

    Attributes:
        workload: which marginals to measure: `all-2way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        max_mib: the largest junction tree.
        max_cells: cliques of more cells are left out.
        raw: as in the AIM paper, where the answers are the result: the release keeps them in `measurements`, and its
            rows have independent columns.
        generator: "pgm" for a graphical model where it is small enough; "gum", gradual updates, or "rap",
            relaxed projection, in any case.
    """

    name = "gaussian"
    paper = "McKenna, Mullins, Sheldon and Miklau 2022, AIM (the baseline Gaussian)"
    when = "A small workload that must be answered whole, with known noise."

    workload: str = "all-2way"
    max_mib: Positive = 80.0
    max_cells: Count = 2_000_000
    raw: bool = False
    generator: GeneratorName = "pgm"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Answers to the workload, and no model of them."""
        return {"raw": True}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure and finish."""
        weights = self.plan(table.domain)
        progress(Step("measure", 0.0, f"{len(weights)} marginals"))
        measured = table.measure(weights, rho=rho, weights=weights)
        return self.conclude(table, measured, rounds=[{"measured": len(measured), "share": 1.0}], progress=progress)

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """The cliques of the workload, with weights (c n)^(1/3); columns it does not name are measured alone."""
        found = list_tables(domain, self.workload, self.max_cells)
        return {r: math.cbrt(c * domain.cells(r)) for r, c in found.items()}

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        groups: CodeGroups = NO_GROUPS,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """Fit a model; or keep the answers and make rows of their columns alone."""
        if not self.raw:
            return super().finish(
                domain, measurements, recoding=recoding, groups=groups, total=total, progress=progress
            )
        progress(Step("estimate", None, "columns of the answers"))
        rows = noisy_total(measurements) if total is None else total
        return Fit(product_of(domain, sum_to_columns(domain, measurements), total=rows), measurements, recoding)

    def make_generator(self) -> Generator:
        """A graphical model where it is small enough, else gradual updates."""
        return Generator(self.generator, self.max_mib)

    def footprint(self, domain: Domain) -> Footprint:
        """All tables at once in a few copies, and the junction tree where there is one."""
        cells = sum(map(domain.cells, self.plan(domain)))
        tree = int(self.max_mib * (1 << 20))
        return Footprint(memory_bytes=4 * tree + 100 * cells, disk_bytes=16 * cells + 512 * len(domain) ** 2)


def list_tables(domain: Domain, workload: str, max_cells: int) -> dict[Clique, float]:
    """The cliques of a workload with their weights, without those of too many cells; other columns are added alone."""
    weights = Workload.parse(workload, domain).weights
    found = {r: c for r, c in weights.items() if c > 0 and domain.cells(r) <= max_cells}
    named = {column for clique in found for column in clique}
    return found | {(column,): 1.0 for column in domain if column not in named}


def sum_to_columns(domain: Domain, measurements: Sequence[Measurement]) -> list[Measurement]:
    """The noisy counts of single columns that tables add up to.

    >>> import numpy as np
    >>> table = Measurement(("a", "b"), np.array([5, 1, 2, 2]), 3.0)
    >>> [(m.clique, m.values.tolist(), round(m.sigma, 3)) for m in sum_to_columns(Domain({"a": 2, "b": 2}), [table])]
    [(('a',), [6, 4], 4.243), (('b',), [7, 3], 4.243)]
    """
    found = []
    for m in measurements:
        table = m.values.reshape(domain.shape(m.clique))
        for axis, column in enumerate(m.clique):
            values = table.sum(axis=tuple(other for other in range(table.ndim) if other != axis))
            found.append(
                replace(m, clique=(column,), values=values, sigma=m.sigma * math.sqrt(table.size / len(values)))
            )
    return found
