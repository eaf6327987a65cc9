"""`rap`: relaxed adaptive projection (Aydore et al. 2021), with whole marginals or, as published, cells as queries.

Differences from the paper are explained in docs/decisions/rap.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Cell, Measurement, noisy_total
from understudy.mechanism.adaptive import ModelMarginals
from understudy.mechanism.aim import fit_into
from understudy.mechanism.base import Count, Footprint, Share
from understudy.mechanism.columns_first import ColumnsFirst, measure_rows
from understudy.model.fit import Fit
from understudy.model.generate import re_express_all
from understudy.model.network import CellTraining
from understudy.model.protocol import Model
from understudy.model.relaxed import CellProjection, RelaxedModel, count_rows, fit_relaxed
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding
from understudy.workload import Workload

_MOST_CELLS = 1 << 24  # cells of all candidates together


class RAP(ColumnsFirst):
    """Select the marginals that relaxed rows answer worst, measure them, fit the rows to all measurements; repeat.

    The model consists of a thousand rows of relaxed one-hot codes. It needs no junction tree, so any marginals may be
    measured together.

    **Privacy.** Rows are read only by `measure` and `select` (or `select_cells`) of the gate. Candidates, offsets
    and shares follow from the schema, the settings and earlier answers; the shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        rounds: the number of rounds (T in the paper).
        batch: the number of queries that a round selects and measures (K).
        queries: "marginals", all cells of which are measured, or "cells", single cells, as in the paper; needs first=0.
        measured: the part of each round's budget for measuring; the rest is for selection.
        first: the part of the budget for a first measurement of every column; 0 for none, and then no codes are merged.
        second: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        max_cells: cliques of more cells are not candidates.
    """

    name = "rap"
    paper = (
        "Aydore, Brown, Kearns, Kenthapadi, Melis, Roth and Siva 2021, Differentially Private Query "
        "Release Through Adaptive Projection"
    )
    when = "Many overlapping marginals of interest, whose junction tree would be too large."
    generator = "rap"

    workload: str = "all-3way"
    rounds: Count = 10
    batch: Count = 5
    queries: Literal["marginals", "cells"] = "marginals"
    measured: Share = 0.9
    max_cells: Count = 1_000_000

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: cells, nothing measured before the first round, half of it for selection."""
        return {"first": 0.0, "queries": "cells", "measured": 0.5}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queries == "cells" and self.first > 0:
            raise SettingError(f"{self.name}: queries='cells' measures no columns first; set first=0 as well")

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, then select, measure and project in each round."""
        if self.queries == "cells":
            return self._fit_cells(table, rho=rho, progress=progress)
        declared, total = table.domain, table.rows_public
        columns = [r for r in self._cliques(declared) if len(r) == 1]
        raw, _, left, table = self.measure_columns(table, columns, rho=rho, progress=progress)
        known = {r: weight for r, weight in self._cliques(table.domain).items() if table.can_measure(r)}
        weights = fit_into(table.domain, known, _MOST_CELLS)
        measurements = re_express_all(declared, raw, table.recoding)
        model = self.project(table.domain, measurements, total, None)
        share = left / self.rounds
        chosen: list[Clique] = []
        for number in range(self.rounds):
            batch = self._choose(table, model, weights, chosen, share)
            chosen += batch
            measurements += table.measure(batch, rho=self.measured * share)
            if number + 1 < self.rounds:
                model = self.project(table.domain, measurements, total, model)
            progress(Step("measure", (number + 1) / self.rounds, f"round {number + 1}: {len(batch)} marginals"))
        kept = [*raw, *measurements[len(raw) :]]
        return self.conclude(table, kept, rounds=[{"chosen": list(r)} for r in chosen], progress=progress)

    def _fit_cells(self, table: PrivateTable, *, rho: float, progress: Progress) -> Fit:
        """Select cells, measure each, and project, in each round; every query costs the same."""
        raw, left = measure_rows(table, [], rho)
        rows, cliques = float(table.rows_public or noisy_total(raw)), self._cell_cliques(table)
        each = left / (self.rounds * self.batch)
        training, cells, measured = self.train(table.domain), list[Cell](), list[Measurement]()
        open_ = sum(map(table.domain.cells, cliques))
        for number in range(self.rounds):
            model = RelaxedModel(table.domain, rows, training.rows())
            batch = min(self.batch, open_ - len(cells))
            if not batch:
                break
            new = table.select_cells(
                cliques,
                against=ModelMarginals(model, cliques),
                count=batch,
                rho=(1 - self.measured) * each * batch,
                used=cells,
            )
            for cell in new:
                query = {cell.clique: cell.query(table.domain)}
                measured += table.measure([cell.clique], rho=self.measured * each, queries=query)
            cells += new
            training.learn(measured, rows)
            progress(Step("measure", (number + 1) / self.rounds, f"round {number + 1}: {len(new)} cells"))
        model = RelaxedModel(table.domain, rows, training.final_rows())
        chosen = [{"chosen": list(cell.clique), "cell": cell.number} for cell in cells]
        return Fit(model, [*raw, *measured], table.recoding, rounds=chosen)

    def train(self, domain: Domain) -> CellProjection | CellTraining:
        """Return new rows, which learn from cells."""
        return CellProjection(domain)

    def own_model(
        self, domain: Domain, measurements: Sequence[Measurement], recoding: Recoding, total: float | None
    ) -> Model | None:
        """Repeat the training of a run on cells from its measurements, in their order; None for marginals."""
        if self.queries == "marginals":
            return None
        cells = [one for one in measurements if one.query is not None]
        rows, training = float(total or noisy_total(measurements)), self.train(domain)
        for end in range(self.batch, len(cells) + self.batch, self.batch):
            training.learn(cells[:end], rows)
        return RelaxedModel(domain, rows, training.final_rows())

    def _cell_cliques(self, table: PrivateTable) -> list[Clique]:
        """Return the cliques of the workload, smallest first if all of them have too many cells; else columns."""
        domain = table.domain
        fitting = [r for r in Workload.parse(self.workload, domain) if domain.cells(r) <= self.max_cells]
        fitting = [r for r in fitting if table.can_measure(r)] or [(column,) for column in domain]
        return list(fit_into(domain, dict.fromkeys(fitting, 1.0), _MOST_CELLS))

    def project(
        self, domain: Domain, measurements: Sequence[Measurement], total: float | None, before: RelaxedModel | None
    ) -> RelaxedModel:
        """Fit relaxed rows to all measurements so far, starting from those of the previous round."""
        return fit_relaxed(domain, measurements, total=total, start=before)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of the candidates' tables, true and by the model, and of relaxed rows with gradients."""
        closure = Workload.parse(self.workload, domain).closure()
        cells = min(sum(min(domain.cells(r), self.max_cells) for r in closure), _MOST_CELLS)
        rows = count_rows(domain) * (sum(domain.values()) + 4 * math.isqrt(self.max_cells))
        each = 64 if self.queries == "cells" else 32  # scores and weights of all cells
        return Footprint(
            memory_bytes=each * cells + 32 * rows + (64 << 20), disk_bytes=16 * cells + 4 * rows + (1 << 20)
        )

    def _choose(
        self,
        table: PrivateTable,
        model: RelaxedModel,
        weights: Mapping[Clique, float],
        chosen: Sequence[Clique],
        share: float,
    ) -> list[Clique]:
        """Select the marginals of a round by AIM's score, the distance minus the expected noise."""
        noise, domain = table.expected_noise(self.measured * share / self.batch), table.domain
        useful = {r: w for r, w in weights.items() if len(r) == 1 or noise * domain.cells(r) <= 2 * model.total}
        unused = {r: w for r, w in useful.items() if r not in chosen} or useful
        rho = (1 - self.measured) * share
        return choose_worst(table, model, unused, count=self.batch, rho=rho, noise=noise)

    def _cliques(self, domain: Domain) -> dict[Clique, float]:
        """Return the workload's cliques and subsets of at most `max_cells` cells, and all columns, with weights."""
        closure = Workload.parse(self.workload, domain).closure()
        return {r: w for r, w in closure.items() if len(r) == 1 or domain.cells(r) <= self.max_cells}


def choose_worst(
    table: PrivateTable, model: Model, weights: Mapping[Clique, float], *, count: int, rho: float, noise: float = 0.0
) -> list[Clique]:
    """Select the candidates that a model answers worst, one by one; if there are few, all of them at no cost.

    **Privacy.** At most `count` selections of rho / count each, all against the same model.

    Args:
        table: the private table.
        model: the current model.
        weights: the candidates.
        count: the number of selections.
        rho: the budget for selection.
        noise: the noise per cell that is subtracted from the score, in rows.
    """
    open_, chosen = dict(weights), list[Clique]()
    if len(open_) <= count:
        return list(open_)
    against = ModelMarginals(model, open_)
    while len(chosen) < count:
        offsets = {r: noise * table.domain.cells(r) for r in open_}
        picked = table.select(open_, against=against, weights=open_, offsets=offsets, rho=rho / count)
        chosen.append(picked.clique)
        del open_[picked.clique]
    return chosen
