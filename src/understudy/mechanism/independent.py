"""`independent`: all one-way marginals, independent columns. The usual baseline."""

from __future__ import annotations

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.mechanism.base import Footprint, Mechanism, one_way
from understudy.model.fit import Fit
from understudy.progress import Progress, Step, silent


class Independent(Mechanism):
    """Measure all one-way marginals with equal noise; sample columns independently.

    If the schema has rules, the model is a graphical model that satisfies them. A column that was not measured because
    the run was interrupted is uniform.

    **Privacy.** One question to the gate. The measurements are fixed in advance, so under (epsilon, delta) the gate
    calibrates their common sigma by the discrete Gaussian's exact curve; under pure DP the noise is discrete Laplace.
    """

    name = "independent"
    paper = "McKenna, Mullins, Sheldon and Miklau 2022, AIM (the baseline Independent)"
    when = "Columns only, or so little budget that nothing else can be measured."
    generator = "product"

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure and finish."""
        progress(Step("measure", 0.0, "one-way marginals"))
        return self.conclude(table, table.measure(one_way(table.domain), rho=rho), progress=progress)

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """Return all one-ways, equally weighted."""
        return dict.fromkeys(one_way(domain), 1.0)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of a few copies of the one-way tables."""
        cells = sum(domain.values())
        return Footprint(memory_bytes=64 * cells, disk_bytes=16 * cells + 512 * len(domain))
