"""`gaussian`: the whole workload, measured at once; the paper's baseline that chooses nothing."""

from __future__ import annotations

import math

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.mechanism.base import Count, Footprint, Mechanism, Positive
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.progress import Progress, Step, silent
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
        generator: "pgm" for a graphical model where it is small enough; "gum", gradual updates, or "rap",
            relaxed projection, in any case.
    """

    name = "gaussian"

    workload: str = "all-2way"
    max_mib: Positive = 80.0
    max_cells: Count = 2_000_000
    generator: GeneratorName = "pgm"

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure and finish."""
        weights = self.plan(table.domain)
        progress(Step("measure", 0.0, f"{len(weights)} marginals"))
        measured = table.measure(weights, rho=rho, weights=weights)
        return self.conclude(table, measured, rounds=[{"measured": len(measured), "share": 1.0}], progress=progress)

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """The cliques of the workload, with weights (c n)^(1/3); columns it does not name are measured alone."""
        weights = Workload.parse(self.workload, domain).weights
        found = {r: c for r, c in weights.items() if c > 0 and domain.cells(r) <= self.max_cells}
        named = {column for clique in found for column in clique}
        found |= {(column,): 1.0 for column in domain if column not in named}
        return {r: math.cbrt(c * domain.cells(r)) for r, c in found.items()}

    def make_generator(self) -> Generator:
        """A graphical model where it is small enough, else gradual updates."""
        return Generator(self.generator, self.max_mib)

    def footprint(self, domain: Domain) -> Footprint:
        """All tables at once in a few copies, and the junction tree where there is one."""
        cells = sum(map(domain.cells, self.plan(domain)))
        tree = int(self.max_mib * (1 << 20))
        return Footprint(memory_bytes=4 * tree + 100 * cells, disk_bytes=16 * cells + 512 * len(domain) ** 2)
