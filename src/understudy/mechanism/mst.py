"""`mst`: a spanning tree of dependent pairs, chosen privately (Algorithm 2 of "Winning the NIST Contest", in general).

What differs from the paper lowers the error at no cost; `paper_settings` undoes it, and docs/decisions/mst.md says what
each change bought.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.table import LARGEST_TABLE
from understudy.measurement import Measurement
from understudy.mechanism.compress import all_re_expressed, compress
from understudy.mechanism.generate import check_generator, generated
from understudy.mechanism.protocol import Fit, Footprint, check_numbers, one_way
from understudy.mechanism.spanning_tree import (
    RULED_MIB,
    IndependentPairs,
    Keep,
    eligible,
    joinable,
    kept_cliques,
    largest_forest,
    spanning_tree,
)
from understudy.model import JunctionTree
from understudy.model.tree import fitted_one_ways, tree_fit
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

_UNFELT = 0.1  # noise of up to this part of the rows is no reason against a pair; from twice that, all of it is one
_CARRIED = 0.002  # of the rows, for each factor e of cells: what decides between pairs that are about as dependent
_MANY = 0.1  # of a column's rows in its rare bins, and they become intervals of its axis instead of one code
_COPIES = 10  # tables of doubles that estimation holds for each cell of the model


@dataclass(frozen=True, kw_only=True)
class MST:
    """Measure the columns, choose a spanning tree of dependent pairs privately, measure those, fit a tree model.

    Attributes:
        keep: cliques that are always measured, of any order: cliques, or (clique, weight).
        split: the parts of the budget for one-way marginals, for choosing pairs, and for measuring them.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges few.
        penalty: how much of the noise that a pair's table would get is taken off its score; 0 takes nothing.
        size_power: a table of n cells is measured with weight n^size_power; 1/3 minimises the summed noise.
        max_cells: pairs of more cells are not chosen.
        generator: "pgm", a graphical model; or "gum", consistent tables and gradual updates of rows.

    **Privacy.** Three kinds of calls to the gate; everything else reads their answers (Theorem 3 and the appendix).
    """

    keep: Keep = ()
    split: Sequence[float] = (0.35, 0.1, 0.55)
    threshold: float = 3.0
    penalty: float = 0.5
    size_power: float = 1 / 3
    max_cells: int = 1_000_000
    generator: str = "pgm"

    name: ClassVar[str] = "mst"
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", kept_cliques(self.keep))
        object.__setattr__(self, "split", _checked_split(self.split))
        check_numbers(threshold=self.threshold, penalty=self.penalty, size_power=self.size_power)
        check_numbers(at_least=4, max_cells=self.max_cells)
        check_generator(self.generator)

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure, compress, select, measure, finish."""
        domain, kept = table.domain, dict(kept_cliques(self.keep))
        check_kept(domain, list(kept))
        several = sum(size > 1 for size in domain.values()) > 1
        for_ones, for_choice, for_pairs = (rho * part for part in self.split) if several or kept else (rho, 0.0, 0.0)
        progress(Step("measure", 0.0, "one-way marginals"))
        ones = table.measure(one_way(domain), rho=for_ones, weights=sized(domain, one_way(domain), self.size_power))
        recoding = compress(domain, ones, table.code_groups, threshold=self.threshold, once=True, many=_MANY)
        merged = table.recoded(recoding)
        draws = joinable(merged.domain, kept, self.max_cells)
        tree: list[Clique] = []
        if draws:
            independent = independent_pairs(domain, ones, recoding, total=table.rows_public)
            tree = spanning_tree(
                merged,
                independent,
                rho=for_choice,
                start=kept,
                max_cells=self.max_cells,
                offsets=self._offsets(independent, merged, for_pairs / (draws + len(kept))),
                progress=progress,
            )
        progress(Step("measure", 0.5, "chosen marginals"))
        for_rest = for_pairs if draws else for_pairs + for_choice
        weights = sized(merged.domain, tree, self.size_power) | kept
        later: list[Measurement] = []
        if weights:
            later = merged.measure(weights, rho=for_rest, weights=weights)
        elif for_rest:  # columns of one code each have no pairs: what is left buys a second look at the columns
            later = table.measure(one_way(domain), rho=for_rest)
            recoding = compress(
                domain, [*ones, *later], table.code_groups, threshold=self.threshold, once=True, many=_MANY
            )
        done = self.finish(domain, [*ones, *later], recoding=recoding, total=table.rows_public, progress=progress)
        return replace(done, rounds=[{"chosen": list(pair)} for pair in tree])

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
        """The largest tree that could be chosen, a group of tables being counted, and the lists of candidates."""
        kept = [clique for clique, _ in kept_cliques(self.keep)]
        forest = largest_forest(domain, self.max_cells)
        return tree_footprint(domain, forest, kept, candidates=len(eligible(domain, self.max_cells)))

    def _offsets(self, independent: IndependentPairs, table: PrivateTable, share: float) -> dict[Clique, float] | None:
        """What a pair must be worth: part of what noise would add to the L1 distance of its table, less a little.

        That is sqrt(2/pi) sigma a cell on average. In a cell that hardly any row is expected in, noise costs no more
        than that: estimation knows that counts are not negative and what they sum to.
        """
        if self.penalty == 0:
            return None
        noise = math.sqrt(2 / math.pi) * table.sigma(share)
        return {pair: self._worth(independent[pair], noise) for pair in eligible(table.domain, self.max_cells)}

    def _worth(self, expected: NDArray[np.float64], noise: float) -> float:
        """Noise of little weight beside the rows is no reason against a pair: tables of more cells tell more.

        Through a pair the columns behind it depend on each other as well, and the more so the more codes it has.
        """
        rows, cost = float(expected.sum()), float(np.minimum(noise, expected).sum())
        felt = min(cost, max(0.0, 2 * (cost - _UNFELT * rows)))
        return self.penalty * felt - _CARRIED * rows * math.log(expected.size)


def paper_settings() -> dict[str, Any]:
    """The settings of the paper: thirds of the budget, equal noise, plain scores."""
    return {"split": (1 / 3, 1 / 3, 1 / 3), "penalty": 0.0, "size_power": 0.0}


def independent_pairs(
    domain: Domain, ones: Sequence[Measurement], recoding: Recoding, *, total: float | None
) -> IndependentPairs:
    """Every pair's table by the one-way marginals alone (line 1 of Algorithm 6)."""
    merged = recoding.recode(domain)
    expressed = all_re_expressed(domain, ones, recoding)
    return IndependentPairs(*fitted_one_ways(merged, expressed, total=total))


def sized(domain: Domain, cliques: Sequence[Clique], power: float) -> dict[Clique, float]:
    """Weights n^power of tables of n cells, scaled to a mean square of 1 so that other weights compare with them."""
    raw = {clique: float(domain.cells(clique)) ** power for clique in cliques}
    mean = math.sqrt(math.fsum(weight**2 for weight in raw.values()) / len(raw)) if raw else 1.0
    return {clique: weight / mean for clique, weight in raw.items()}


def check_kept(domain: Domain, cliques: Sequence[Clique]) -> None:
    """Refuse forced cliques that cannot be measured, before anything is spent.

    Raises:
        SchemaError: for an unknown column.
        SettingError: for a table that is too large.
    """
    for clique in cliques:
        if domain.cells(domain.check(clique)) > LARGEST_TABLE:
            raise SettingError(f"keep: the table of {clique} is too large; use fewer columns, or coarser ones")


def tree_footprint(domain: Domain, forest: Sequence[int], kept: Sequence[Clique], *, candidates: int = 0) -> Footprint:
    """What a run needs for a model of tables of these many cells and of forced cliques."""
    check_kept(domain, kept)
    forced = int(JunctionTree.of(domain, kept).size_mib * 2**17) + 1 if kept or domain.rules else 0
    forced += int(RULED_MIB * 2**17) if domain.rules else 0
    measured = sum(domain.values()) + sum(forest) + sum(domain.cells(clique) for clique in kept)
    named = 16 + 2 * max(len(column) for column in domain)
    return Footprint(
        memory_bytes=8 * _COPIES * (sum(forest) + forced + sum(domain.values())) + (256 << 20),
        disk_bytes=16 * measured + 1024 * len(domain) + len(forest) * candidates * named // 2,
    )


def _checked_split(split: Any) -> tuple[float, ...]:
    numbers = isinstance(split, Sequence) and not isinstance(split, str) and len(split) == 3
    if not numbers or not all(isinstance(part, int | float) and 0 < part < math.inf for part in split):
        raise SettingError("split: give three positive parts of the budget, such as [0.35, 0.1, 0.55]")
    return tuple(float(part / math.fsum(split)) for part in split)
