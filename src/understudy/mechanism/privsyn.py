"""PrivSyn: many two-way marginals chosen by dependence, made consistent, and a table edited until it fits them.

"PrivSyn: Differentially Private Data Synthesis" (USENIX Security 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.compress import compress
from understudy.mechanism.dense import choose_pairs, join_pairs, shrink_scores
from understudy.mechanism.generate import check_generator, generated
from understudy.mechanism.protocol import Fit, Footprint, check_numbers, one_way
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding


@dataclass(frozen=True, kw_only=True)
class PrivSyn:
    """One-ways, noisy dependence of all pairs, a dense choice of pairs merged into cliques, weighted measurements.

    Attributes:
        one_way_share: the share of the budget for the one-way marginals.
        dependence_share: the share for the dependence scores; the rest measures the chosen cliques.
        threshold: codes with a noisy count below this many standard deviations are merged, column by column.
        clique_cells: pairs that are chosen together are measured as one table of up to this many cells.
        pair_cells: pairs with more cells than this are never measured.
        most_cells: all chosen pairs together have at most this many cells.
        least_gain: stop choosing when the expected error falls by less than this many rows; 0 is the paper's rule.
        shrink: whether to take the noise out of the differences between scores before choosing.
        generator: "gum", or "pgm" for a graphical model; pairs that would make its tree too large are then not chosen.
        limit_mib: the largest junction tree for "pgm".

    **Privacy.** Three questions to the gate: one-ways, all dependence scores in one charge, the chosen cliques. Choice,
    merging, consistency and row making read their noisy answers only. The number of rows is the noisy total.
    """

    name: ClassVar[str] = "privsyn"
    pure: ClassVar[bool] = True

    one_way_share: float = 0.2
    dependence_share: float = 0.1
    threshold: float = 2.0
    clique_cells: int = 5000
    pair_cells: int = 1_000_000
    most_cells: int = 20_000_000
    least_gain: float = 0.0
    shrink: bool = True
    generator: str = "gum"
    limit_mib: float = 80.0

    def __post_init__(self) -> None:
        check_numbers(one_way_share=self.one_way_share, dependence_share=self.dependence_share)
        check_numbers(threshold=self.threshold, least_gain=self.least_gain, limit_mib=self.limit_mib)
        check_numbers(clique_cells=self.clique_cells, pair_cells=self.pair_cells, most_cells=self.most_cells)
        shares = (self.one_way_share, self.dependence_share)
        if not (min(shares) > 0 and sum(shares) < 1):
            raise SettingError(
                "one_way_share and dependence_share must be positive and leave something for the cliques"
            )
        check_generator(self.generator)
        if min(self.clique_cells, self.pair_cells, self.most_cells) < 1 or not self.limit_mib > 0:
            raise SettingError("clique_cells, pair_cells, most_cells and limit_mib must be positive")

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure one-ways, score pairs, choose, measure what was chosen, finish."""
        progress(Step("measure", 0.0, "one-way marginals"))
        ones = table.measure(one_way(table.domain), rho=self.one_way_share * rho)
        recoding = compress(table.domain, ones, table.code_groups, threshold=self.threshold)
        view = table.recoded(recoding)
        progress(Step("select", None, "dependence of all pairs"))
        candidates = self._candidates(view.domain)
        asked = self.dependence_share * rho if candidates else 0.0
        scores = self._scores(view, candidates, asked)
        left = rho - self.one_way_share * rho - asked
        pairs = self._chosen(view, scores, left)
        recoding = _restricted(recoding, {column for pair in pairs for column in pair})
        view = table.recoded(recoding)
        cliques, weights = self._cliques(view, pairs, left)
        progress(Step("measure", 0.5, f"{len(cliques)} marginals"))
        tables = view.measure(cliques, rho=left, weights=weights)
        return self.finish(
            table.domain, [*ones, *tables], recoding=recoding, total=table.rows_public, progress=progress
        )

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """Consistent tables of whatever was measured, or a graphical model of it."""
        model = generated(
            self.generator, domain, measurements, recoding, total=total, limit_mib=self.limit_mib, progress=progress
        )
        return Fit(model=model, measurements=measurements, recoding=recoding)

    def footprint(self, domain: Domain) -> Footprint:
        """Tables of at most `most_cells` cells in all, in a few copies."""
        wide = [column for column, size in domain.items() if size > 1]
        # merging codes may turn a pair that is too large into one that is just small enough
        pairs = sum(min(domain.cells(pair), self.pair_cells) for pair in combinations(wide, 2))
        cells = sum(domain.values()) + min(pairs, self.most_cells)
        return Footprint(memory_bytes=100 * cells, disk_bytes=16 * cells + 512 * len(domain) ** 2)

    def _candidates(self, domain: Domain) -> list[Clique]:
        wide = [column for column, size in domain.items() if size > 1]
        return [pair for pair in combinations(wide, 2) if domain.cells(pair) <= self.pair_cells]

    def _scores(self, view: PrivateTable, candidates: Sequence[Clique], rho: float) -> dict[Clique, float]:
        """Noisy dependence of the candidates, shrunk by what is public about its noise."""
        if not candidates:
            return {}
        sigma = view.dependence_noise(len(candidates), rho)  # before it is spent: less than this share may be left
        scores = view.dependence(candidates, rho=rho)
        return shrink_scores(scores, sigma) if self.shrink else dict(scores)

    def _chosen(self, view: PrivateTable, scores: Mapping[Clique, float], rho: float) -> list[Clique]:
        domain = view.domain
        return choose_pairs(
            scores,
            {pair: domain.cells(pair) for pair in scores},
            view.allocation(rho),
            least_gain=self.least_gain,
            most_cells=self.most_cells,
            admissible=self._tractable(domain),
        )

    def _cliques(
        self, view: PrivateTable, pairs: Sequence[Clique], rho: float
    ) -> tuple[list[Clique], dict[Clique, float]]:
        """The cliques to measure and their weights; a column that no pair names is measured by itself again."""
        domain = view.domain
        named = {column for pair in pairs for column in pair}
        cliques = join_pairs(domain, pairs, most_cells=self.clique_cells, admissible=view.askable)
        cliques += [(column,) for column in domain if column not in named]
        weights = view.allocation(rho).weights([domain.cells(clique) for clique in cliques])
        return cliques, dict(zip(cliques, weights, strict=True))

    def _tractable(self, domain: Domain) -> Callable[[list[Clique]], bool] | None:
        if self.generator != "pgm":
            return None
        from understudy.model.junction_tree import JunctionTree

        return lambda cliques: JunctionTree.of(domain, cliques).size_mib <= self.limit_mib


def _restricted(recoding: Recoding, columns: set[str]) -> Recoding:
    """The recoding of these columns alone: a column that no pair names gains nothing from merged codes."""
    return Recoding({column: array for column, array in recoding.maps.items() if column in columns})
