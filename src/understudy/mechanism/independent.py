"""`independent`: every one-way marginal, columns independent. The baseline of all the papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.protocol import Fit, Footprint, one_way
from understudy.model.product import product_of
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding


@dataclass(frozen=True, kw_only=True)
class Independent:
    """Measure all one-way marginals with equal noise; sample columns independently.

    **Privacy.** One call to the gate. The measurements are fixed in advance, so under (epsilon, delta) the gate
    calibrates their common sigma by the discrete Gaussian's exact curve; under pure DP the noise is discrete Laplace.
    """

    name: ClassVar[str] = "independent"
    pure: ClassVar[bool] = True

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """All one-ways, equally weighted."""
        return dict.fromkeys(one_way(domain), 1.0)

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure and finish."""
        progress(Step("measure", 0.0, "one-way marginals"))
        ones = table.measure(one_way(table.domain), rho=rho)
        return self.finish(table.domain, ones, recoding=Recoding.identity(), total=table.rows_public, progress=progress)

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """The product of the measured one-ways; a column that was not reached is uniform.

        Where the schema has rules, the graphical model that fits the one-ways and obeys them.
        """
        progress(Step("estimate", 1.0, "product of one-way marginals"))
        model = product_of(recoding.recode(domain), measurements, total=total)
        return Fit(model=model, measurements=measurements, recoding=recoding)

    def footprint(self, domain: Domain) -> Footprint:
        """A few copies of the one-way tables."""
        cells = sum(domain.values())
        return Footprint(memory_bytes=64 * cells, disk_bytes=16 * cells + 512 * len(domain))
