"""`mst`: a spanning tree of dependent pairs, selected privately (Algorithm 2 of "Winning the NIST Contest").

Differences from the paper are explained in docs/decisions/mst.md; paper mode undoes them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.base import Footprint, Mechanism, NotNegative, Positive, one_way
from understudy.mechanism.compress import compress, measure_columns_again
from understudy.mechanism.spanning_tree import (
    IndependentPairs,
    Keep,
    check_kept,
    count_joins,
    eligible_pairs,
    independent_pairs,
    largest_forest,
    spanning_tree,
    tree_footprint,
)
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

_NO_PENALTY = 0.1  # no penalty for noise below this part of the rows, full penalty from twice that
_CELL_BONUS = 0.002  # bonus per factor e of cells, as a part of the rows: decides near-ties


def _normalise(parts: Sequence[float]) -> tuple[float, ...]:
    if len(parts) != 3:
        raise ValueError("give three positive parts of the budget, such as [0.35, 0.1, 0.55]")
    return tuple(float(part / math.fsum(parts)) for part in parts)


class MST(Mechanism):
    """Measure the columns, privately select a spanning tree of dependent pairs, measure these, fit a tree model.

    Attributes:
        keep: cliques that are always measured, of any order: cliques, or (clique, weight).
        split: the parts of the budget for one-way marginals, for selecting pairs, and for measuring them.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges few.
        penalty: the part of a pair's expected noise that is subtracted from its score.
        size_power: a marginal of n cells is measured with weight n^size_power; 1/3 minimises the summed noise.
        max_cells: pairs of more cells are not selected.
        as_printed: merge codes as printed: one code for all rare ones (Algorithm 4), no intervals of an axis.
        rare: how merged values are written, unless `sample` overrides it; "even" is step 8 of the paper.
        generator: "pgm", a graphical model; "gum", consistent tables and gradual updates of rows; or "rap", relaxed
            projection.

    **Privacy.** Three kinds of questions to the gate; everything else uses their answers (Theorem 3 and the appendix).
    """

    name = "mst"
    paper = "McKenna, Miklau and Sheldon 2021, Winning the NIST Contest (Algorithms 1, 2, 4, 6 to 8)"
    when = "Any table, also wide or small ones, in about a second."

    keep: Keep = ()
    split: Annotated[Sequence[Positive], AfterValidator(_normalise)] = (0.35, 0.1, 0.55)
    threshold: NotNegative = 3.0
    penalty: NotNegative = 0.5
    size_power: NotNegative = 1 / 3
    max_cells: Annotated[int, Field(ge=4)] = 1_000_000
    as_printed: bool = False
    rare: Literal["spread", "even"] | None = None
    generator: GeneratorName = "pgm"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: thirds of the budget, equal noise, plain scores, Algorithm 4 as printed."""
        return {
            "split": (1 / 3, 1 / 3, 1 / 3),
            "penalty": 0.0,
            "size_power": 0.0,
            "as_printed": True,
            "rare": "even",
        }

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, merge rare codes, select a tree of pairs, measure the tree."""
        kept: dict[Clique, float] = dict(self.keep)
        check_kept(table.domain, kept)
        for_ones, for_tree, for_pairs = self._divide(table.domain, rho)

        def merge(ones: Sequence[Measurement]) -> Recoding:
            return compress(
                table.domain,
                ones,
                table.code_groups,
                threshold=self.threshold,
                once=True,
                as_printed=self.as_printed,
            )

        progress(Step("measure", 0.0, "one-way marginals"))
        columns = weights_by_size(table.domain, one_way(table.domain), self.size_power)
        ones = table.measure(columns, rho=for_ones, weights=columns)
        merged = table.recode(merge(ones))  # Algorithm 4
        tree = self._choose_tree(merged, ones, kept, for_tree, for_pairs, progress)  # Algorithm 6
        cliques = weights_by_size(merged.domain, tree, self.size_power) | kept
        left = for_pairs if tree else for_pairs + for_tree
        progress(Step("measure", 0.5, "chosen marginals"))
        if cliques:
            pairs = merged.measure(cliques, rho=left, weights=cliques)
        else:  # columns of one code each have no pairs
            merged, pairs = measure_columns_again(table, ones, rho=left, merge=merge)
        return self.conclude(
            merged, [*ones, *pairs], rounds=[{"chosen": list(pair)} for pair in tree], progress=progress
        )

    def make_generator(self) -> Generator:
        """Return the generator; a graphical model starts from closed forms, because the cliques are nearly a tree."""
        return Generator("tree" if self.generator == "pgm" else self.generator, as_printed=self.as_printed)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of the largest possible tree, of marginals being counted, and of lists of candidates."""
        kept = [clique for clique, _ in self.keep]
        forest = largest_forest(domain, self.max_cells)
        return tree_footprint(domain, forest, kept, candidates=len(eligible_pairs(domain, self.max_cells)))

    def _divide(self, domain: Domain, rho: float) -> tuple[float, ...]:
        """Return the budget of each step; all of it is for the columns if there is no pair to select or keep."""
        several = sum(size > 1 for size in domain.values()) > 1
        return tuple(rho * part for part in self.split) if several or self.keep else (rho, 0.0, 0.0)

    def _choose_tree(
        self,
        table: PrivateTable,
        ones: Sequence[Measurement],
        kept: Collection[Clique],
        rho: float,
        for_pairs: float,
        progress: Progress,
    ) -> list[Clique]:
        """Select the tree (Algorithm 6), with a penalty for the expected noise of each pair."""
        joins = count_joins(table.domain, kept, self.max_cells)
        if not joins:
            return []
        independent = independent_pairs(table, ones)
        offsets = self._offsets(independent, table, for_pairs / (joins + len(kept)))
        return spanning_tree(
            table, independent, rho=rho, start=kept, max_cells=self.max_cells, offsets=offsets, progress=progress
        )

    def _offsets(self, independent: IndependentPairs, table: PrivateTable, share: float) -> dict[Clique, float] | None:
        """Return the offsets of pairs: part of their expected L1 noise, minus a bonus for cells.

        The noise is sqrt(2/pi) sigma per cell on average, but at most the expected count of the cell: estimation uses
        that counts are not negative and what they sum to.
        """
        if self.penalty == 0:
            return None
        noise = math.sqrt(2 / math.pi) * table.sigma(share)
        return {pair: self._offset(independent[pair], noise) for pair in eligible_pairs(table.domain, self.max_cells)}

    def _offset(self, expected: NDArray[np.float64], noise: float) -> float:
        """Return a pair's offset: no penalty below 10 % of the rows, full penalty from 20 %, less a bonus for cells.

        A pair with more codes also carries more of the dependence between its other neighbours in the tree.
        """
        rows, cost = float(expected.sum()), float(np.minimum(noise, expected).sum())
        felt = min(cost, max(0.0, 2 * (cost - _NO_PENALTY * rows)))
        return self.penalty * felt - _CELL_BONUS * rows * math.log(expected.size)


def weights_by_size(domain: Domain, cliques: Sequence[Clique], power: float) -> dict[Clique, float]:
    """Return weights n^power of marginals of n cells, scaled to a mean square of 1 to compare with other weights."""
    raw = {clique: float(domain.cells(clique)) ** power for clique in cliques}
    mean = math.sqrt(math.fsum(weight**2 for weight in raw.values()) / len(raw)) if raw else 1.0
    return {clique: weight / mean for clique, weight in raw.items()}
