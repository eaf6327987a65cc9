"""`nist-mst`: the winner of the 2018 NIST challenge: marginals chosen from a public table, then measured privately.

Algorithm 2 of "Winning the NIST Contest" for any table; the census transforms of its steps 2, 3 and 8 are the schema's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.compress import compress
from understudy.mechanism.generate import check_generator, generated
from understudy.mechanism.mst import check_kept, tree_footprint
from understudy.mechanism.protocol import Fit, Footprint, check_numbers, one_way
from understudy.mechanism.public_cliques import public_cliques, within
from understudy.mechanism.spanning_tree import Keep, Kept, kept_cliques
from understudy.model import JunctionTree
from understudy.model.tree import tree_fit
from understudy.progress import Progress, Step, silent
from understudy.schema import PrivacyUnit, Recoding, Schema
from understudy.source import Source, open_source


@dataclass(frozen=True, kw_only=True)
class NistMST:
    """Choose marginals from a public table, measure the columns and those marginals privately, fit a model.

    Attributes:
        public: the public table: a frame, a file, or a source; forgotten once the marginals are chosen.
        keep: cliques that are always measured, of any order: cliques, or (clique, weight); others weigh 1.
        cliques: the chosen marginals with weights; None until they were chosen.
        public_name: what the receipt calls the public table.
        error: triples that the tree explains better than this (L1, as a part of the rows) are not added.
        threshold: codes whose noisy count is below this many standard deviations are merged.
        max_cells: larger tables are not measured.
        calibration: "tight" (the exact curve of all measurements, or the tightest conversion from zCDP, Remark 3) or
            "paper" (equation 5.1, more noise).
        generator: "pgm", a graphical model; or "gum", consistent tables and gradual updates of rows.

    **Privacy.** Two groups of measurements; each gets half of the budget (Theorem 2). All of them are fixed in advance,
    only codes are merged in between. The public table is the custodian's declaration, and is never charged.
    """

    public: Any = field(default=None, repr=False, compare=False)
    keep: Keep = ()
    cliques: Keep | None = None
    public_name: str | None = None
    error: float = 0.1
    threshold: float = 3.0
    max_cells: int = 1_000_000
    calibration: Literal["tight", "paper"] = "tight"
    generator: str = "pgm"

    name: ClassVar[str] = "nist-mst"
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", kept_cliques(self.keep))
        if self.cliques is not None:
            object.__setattr__(self, "cliques", kept_cliques(self.cliques))
        if self.calibration not in ("tight", "paper"):
            raise SettingError("calibration: use 'tight', or 'paper' for equation 5.1")
        check_generator(self.generator)
        check_numbers(error=self.error, threshold=self.threshold, max_cells=self.max_cells)

    def prepared(self, schema: Schema) -> NistMST:
        """The same mechanism with its marginals chosen and without the public table.

        **Privacy.** Reads the public table alone, through the private table's schema.

        Raises:
            SettingError: without a public table, or for forced cliques that cannot be measured.
            InputError: when the public table cannot be read.
        """
        check_kept(schema.domain, [clique for clique, _ in self._kept])
        if self.cliques is not None:
            return replace(self, public=None)
        if self.public is None:
            raise SettingError(f"{self.name} chooses marginals from a public table: give one with `public` (--public)")
        as_rows = replace(schema, privacy_unit=PrivacyUnit(), rows=None)
        source = self.public if hasattr(self.public, "counts") else open_source(self.public, as_rows)
        name = self.public_name or (Path(self.public).name if isinstance(self.public, str | PathLike) else "a frame")
        return replace(self, public=None, public_name=name, cliques=self._chosen(source))

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, merge rare values, measure the chosen marginals, finish."""
        domain, power = table.domain, table.weight_power
        columns, chosen = self._weights(domain, power)
        paper = _paper_sigma(table) if self.calibration == "paper" else None
        spend = rho if paper is None else min(rho, paper**-2)
        rest = spend * math.fsum(weight**power for weight in chosen.values())
        progress(Step("measure", 0.0, "one-way marginals"))
        ones = table.measure(columns, rho=spend - rest, weights=columns)
        recoding = compress(domain, ones, table.code_groups, threshold=self.threshold, once=True)
        merged = table.recoded(recoding)
        weights = self._affordable(merged, chosen)
        progress(Step("measure", 0.5, "marginals chosen from the public table"))
        later = merged.measure(weights, rho=rest, weights=weights) if weights else []
        if chosen and not weights and not table.planned:  # constant columns have no tables: a second look instead
            later = table.measure(columns, rho=rest, weights=columns)
            recoding = compress(domain, [*ones, *later], table.code_groups, threshold=self.threshold, once=True)
        done = self.finish(domain, [*ones, *later], recoding=recoding, total=table.rows_public, progress=progress)
        return replace(done, rounds=[_noise_report(table, ones)])

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """All measurements with their weights; none for the paper's own calibration."""
        if self.calibration == "paper":
            return {}
        columns, chosen = self._weights(domain, 2)
        return columns | chosen

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """The model of what was measured, whatever part of it there is."""
        kind = self.generator
        model = generated(kind, domain, measurements, recoding, total=total, pgm=tree_fit, progress=progress)
        return Fit(model=model, measurements=measurements, recoding=recoding)

    def footprint(self, domain: Domain) -> Footprint:
        """The chosen tables, each no larger than `max_cells`, and the forced ones."""
        kept = [clique for clique, _ in self._kept]
        sizes = [min(int(self.max_cells), domain.cells(clique)) for clique, _ in kept_cliques(self.cliques or ())]
        if domain.rules:  # the columns of rules lie together, so the chosen tables are more than a tree
            small = within(domain, [clique for clique, _ in kept_cliques(self.cliques or ())], int(self.max_cells))
            sizes.append(JunctionTree.of(domain, [*small, *kept]).cells)
        return tree_footprint(domain, sizes, kept)

    @property
    def _kept(self) -> Kept:
        return kept_cliques(self.keep)

    def _chosen(self, source: Source) -> Kept:
        cliques = public_cliques(source, keep=[clique for clique, _ in self._kept], error=self.error)
        return tuple((clique, 1.0) for clique in cliques)

    def _selected(self) -> dict[Clique, float]:
        """Chosen and forced cliques with their weights (line 6 of Algorithm 5); forced weights win."""
        cliques = self.cliques
        if cliques is None:
            if not hasattr(self.public, "counts"):
                raise SettingError(f"{self.name} has chosen no marginals yet: give a public source, or call `prepared`")
            cliques = self._chosen(self.public)
        return {tuple(clique): weight for clique, weight in (*kept_cliques(cliques), *self._kept)}

    def _weights(self, domain: Domain, power: int) -> tuple[dict[Clique, float], dict[Clique, float]]:
        """Weights of columns and of chosen cliques, each group half of the sum of their powers, which is 1.

        A single column that is forced adds its weight to that of its first look: nothing is measured twice.
        """
        chosen = self._selected()
        for clique in chosen:
            domain.check(clique)
        part = (2 if chosen else 1) ** (-1 / power)
        norm = math.fsum(weight**power for weight in chosen.values()) ** (1 / power)
        columns = dict.fromkeys(one_way(domain), part * len(domain) ** (-1 / power))
        groups = {clique: part * weight / norm for clique, weight in chosen.items()}
        for clique in [clique for clique in groups if len(clique) == 1]:
            columns[clique] = (columns[clique] ** power + groups.pop(clique) ** power) ** (1 / power)
        return columns, groups

    def _affordable(self, merged: PrivateTable, chosen: dict[Clique, float]) -> dict[Clique, float]:
        """Line 5, on the merged domain; forced cliques stay whatever their size, constant columns need no table."""
        domain = merged.domain
        forced = {clique for clique, _ in self._kept}
        free = [clique for clique in chosen if clique not in forced]
        small = {clique for clique in within(domain, free, int(self.max_cells)) if domain.cells(clique) > 1}
        small = {clique for clique in small if merged.askable(clique)}
        return {clique: weight for clique, weight in chosen.items() if clique in small or clique in forced}


def equation_5_1(epsilon: float, delta: float) -> float:
    """The paper's noise scale for two groups of measurements of unit L2 norm.

    >>> [round(equation_5_1(epsilon, 2e-12), 4) for epsilon in (0.3, 1, 8)]
    [34.6972, 10.4758, 1.3876]
    """
    log = math.log(1 / delta)
    return (math.sqrt(log) + math.sqrt(log + epsilon)) / epsilon


def _paper_sigma(table: PrivateTable) -> float | None:
    """Equation 5.1 for this run's guarantee, for sensitivity 1; None where it has no epsilon and delta."""
    if table.guarantee is None or not table.guarantee[1]:
        return None
    return equation_5_1(*table.guarantee)


def _noise_report(table: PrivateTable, ones: Sequence[Measurement]) -> dict[str, float]:
    """The noise scale of the run, for sensitivity 1, beside that of equation 5.1.

    A table of sigma s costs rho = D^2 / (2 s^2) at L2 sensitivity D, so 2 rho is its precision for sensitivity 1.
    """
    used = 1 / math.sqrt(math.fsum(2 * table.rho_for(one.sigma) for one in ones))
    paper = _paper_sigma(table)
    return {"sigma": used} if paper is None else {"sigma": used, "equation_5_1": paper, "gain": 1 - used / paper}
