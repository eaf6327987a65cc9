"""`gaussian`: all marginals of the workload, measured at once; the baseline of the AIM paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, noisy_total
from understudy.mechanism.base import Count, Footprint, Mechanism, Positive
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.model.product import fit_product
from understudy.model.protocol import Model
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding
from understudy.workload import Workload


class Gaussian(Mechanism):
    """Measure every marginal of the workload, with the noise that minimises the summed error.

    The expected L1 error of a marginal of n cells and weight c is proportional to c n sigma; for a fixed sum of
    1/sigma^2 the total is smallest if sigma is proportional to (c n)^(-1/3) (the allocation of PrivSyn, Zhang et al.
    2021). A graphical model is fitted if its junction tree is within `max_mib`; otherwise rows are made by gradual
    updates.

    **Privacy.** One question to the gate. The measurements are fixed in advance, so under (epsilon, delta) the gate
    calibrates them by the discrete Gaussian's exact curve.

    Attributes:
        workload: which marginals to measure: `all-2way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        max_mib: the largest junction tree.
        max_cells: cliques of more cells are left out.
        raw: fit no model, as in the AIM paper: the release keeps the answers in `measurements`, and its rows have
            independent columns.
        generator: "pgm" for a graphical model if it is small enough; "gum", gradual updates, or "rap",
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
        """Return the paper's settings: answers to the workload, and no model."""
        return {"raw": True}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure and finish."""
        weights = self.plan(table.domain)
        progress(Step("measure", 0.0, f"{len(weights)} marginals"))
        measured = table.measure(weights, rho=rho, weights=weights)
        return self.conclude(table, measured, rounds=[{"measured": len(measured), "share": 1.0}], progress=progress)

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """Return the cliques of the workload, with weights (c n)^(1/3), and the columns that it does not name."""
        found = list_tables(domain, self.workload, self.max_cells)
        return {r: math.cbrt(c * domain.cells(r)) for r, c in found.items()}

    def own_model(
        self, domain: Domain, measurements: Sequence[Measurement], recoding: Recoding, total: float | None
    ) -> Model | None:
        """Return a product of independent columns if `raw`, else None."""
        if not self.raw:
            return None
        rows = noisy_total(measurements) if total is None else total
        return fit_product(domain, sum_to_columns(domain, measurements), total=rows)

    def make_generator(self) -> Generator:
        """Return a graphical model if it is small enough, else gradual updates."""
        return Generator(self.generator, self.max_mib)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of a few copies of all marginals, and of the junction tree."""
        cells = sum(map(domain.cells, self.plan(domain)))
        tree = int(self.max_mib * (1 << 20))
        return Footprint(memory_bytes=4 * tree + 100 * cells, disk_bytes=16 * cells + 512 * len(domain) ** 2)


def list_tables(domain: Domain, workload: str, max_cells: int) -> dict[Clique, float]:
    """Return the cliques of a workload of at most `max_cells` cells with their weights, and the remaining columns."""
    weights = Workload.parse(workload, domain).weights
    found = {r: c for r, c in weights.items() if c > 0 and domain.cells(r) <= max_cells}
    named = {column for clique in found for column in clique}
    return found | {(column,): 1.0 for column in domain if column not in named}


def sum_to_columns(domain: Domain, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the noisy counts of single columns, summed from larger measurements.

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
