"""`privsyn`: many two-way marginals selected by dependence, made consistent, and rows edited until they fit.

"PrivSyn: Differentially Private Data Synthesis" (USENIX Security 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np

from understudy.domain import NO_GROUPS, Clique, Domain
from understudy.errors import SettingError
from understudy.gate import Allocation, PrivateTable
from understudy.mechanism.base import Count, Footprint, Mechanism, NotNegative, Positive, Share, one_way
from understudy.mechanism.compress import compress
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.model.junction_tree import JunctionTree
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

_MOST_VISITS = 30_000
"""The most partial cliques that are visited for each size; dense graphs have too many to list."""


class PrivSyn(Mechanism):
    """Measure columns and the dependence of all pairs, select pairs, join them into cliques, measure these.

    Attributes:
        one_way_share: the share of the budget for the one-way marginals.
        dependence_share: the share for the dependence scores; the rest measures the selected cliques.
        threshold: codes with a noisy count below this many standard deviations are merged, column by column.
        clique_cells: selected pairs are joined into cliques of up to this many cells.
        pair_cells: pairs with more cells than this are never measured.
        most_cells: the most cells of all selected pairs together.
        least_gain: stop selecting when the expected error falls by less than this many rows; 0 is the paper's rule.
        shrink: whether to remove the noise from the differences between scores before selecting.
        again: whether to measure a column in no selected pair a second time, by itself.
        as_printed: merge all rare codes of a column into one, and do not estimate by cumulative counts.
        updates: how rows are made: "tree", from a tree of marginals; "privsyn", the paper's start, passes and steps.
        rare: how merged values are written, unless `sample` overrides it; "counts" is the paper's rule.
        generator: "gum"; "pgm" for a graphical model, without pairs that would make its tree too large;
            or "rap" for relaxed projection.
        limit_mib: the largest junction tree for "pgm".

    **Privacy.** Three questions to the gate: one-way marginals, all dependence scores in one charge, the selected
    cliques. Everything else uses their noisy answers. The number of rows is the noisy total.
    """

    name = "privsyn"
    paper = "Zhang et al. 2021, PrivSyn"
    when = "Many dependent pairs: tables whose graphical model would be too large."

    one_way_share: Share = 0.2
    dependence_share: Share = 0.1
    threshold: NotNegative = 2.0
    clique_cells: Count = 5000
    pair_cells: Count = 1_000_000
    most_cells: Count = 20_000_000
    least_gain: NotNegative = 0.0
    shrink: bool = True
    again: bool = True
    as_printed: bool = False
    updates: Literal["tree", "privsyn"] = "tree"
    rare: Literal["spread", "counts"] | None = None
    generator: GeneratorName = "gum"
    limit_mib: Positive = 80.0

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: a tenth for columns and for scores, threshold 3, plain scores, other updates."""
        return {
            "one_way_share": 0.1,
            "dependence_share": 0.1,
            "threshold": 3.0,
            "shrink": False,
            "again": False,
            "as_printed": True,
            "updates": "privsyn",
            "rare": "counts",
        }

    def __post_init__(self) -> None:
        if not self.one_way_share + self.dependence_share < 1:
            raise SettingError(
                "privsyn: one_way_share and dependence_share must add up to less than 1; lower one of them"
            )

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure columns, score pairs, select pairs, measure their cliques, finish."""
        progress(Step("measure", 0.0, "one-way marginals"))
        ones = table.measure(one_way(table.domain), rho=self.one_way_share * rho)
        recoding = compress(table.domain, ones, table.code_groups, threshold=self.threshold, as_printed=self.as_printed)
        view = table.recode(recoding)
        progress(Step("select", None, "dependence of all pairs"))
        candidates = self._candidates(view.domain)
        asked = self.dependence_share * rho if candidates else 0.0
        scores, record = self._scores(view, candidates, asked)
        left = rho - self.one_way_share * rho - asked
        pairs = self._choose(view, scores, left)
        named = {column for pair in pairs for column in pair}  # other columns do not need merged codes
        view = table.recode(Recoding({column: array for column, array in recoding.maps.items() if column in named}))
        cliques, weights = self._cliques(view, pairs, left)
        progress(Step("measure", 0.5, f"{len(cliques)} marginals"))
        tables = view.measure(cliques, rho=left, weights=weights) if cliques else []
        return self.conclude(view, [*ones, *tables], rounds=record, progress=progress)

    def make_generator(self) -> Generator:
        """Return gradual updates, or a graphical model if it is small enough."""
        return Generator(self.generator, self.limit_mib, self.as_printed, self.updates)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of a few copies of tables with at most `most_cells` cells in total."""
        wide = [column for column, size in domain.items() if size > 1]
        # merging codes may make a pair that is too large small enough
        pairs = sum(min(domain.cells(pair), self.pair_cells) for pair in combinations(wide, 2))
        cells = sum(domain.values()) + min(pairs, self.most_cells)
        return Footprint(memory_bytes=100 * cells, disk_bytes=16 * cells + 512 * len(domain) ** 2)

    def _candidates(self, domain: Domain) -> list[Clique]:
        wide = [column for column, size in domain.items() if size > 1]
        return [pair for pair in combinations(wide, 2) if domain.cells(pair) <= self.pair_cells]

    def _scores(
        self, view: PrivateTable, candidates: Sequence[Clique], rho: float
    ) -> tuple[dict[Clique, float], list[dict[str, Any]]]:
        """Return the noisy dependence of the candidates, shrunk by the known noise, and the record of it.

        The record shows how dependent the pairs are that are not measured.
        """
        if not candidates:
            return {}, []
        sigma = view.dependence_noise(len(candidates), rho)  # computed before the share is spent
        scores = view.dependence(candidates, rho=rho)
        values = np.array(list(scores.values()), np.int64)
        record = {"scored": [list(pair) for pair in scores], "scores": values, "scores_sigma": sigma}
        return shrink_scores(scores, sigma) if self.shrink else dict(scores), [record]

    def _choose(self, view: PrivateTable, scores: Mapping[Clique, float], rho: float) -> list[Clique]:
        domain = view.domain
        return choose_pairs(
            scores,
            {pair: domain.cells(pair) for pair in scores},
            view.allocation(rho),
            least_gain=self.least_gain,
            most_cells=self.most_cells,
            admissible=self._make_size_check(domain),
        )

    def _cliques(
        self, view: PrivateTable, pairs: Sequence[Clique], rho: float
    ) -> tuple[list[Clique], dict[Clique, float]]:
        """Return the cliques to measure and their weights; a column in no pair is measured again by itself."""
        domain = view.domain
        named = {column for pair in pairs for column in pair}
        groups = NO_GROUPS if self.as_printed else view.code_groups
        alone = [pair for pair in pairs if any(groups.axis(column) for column in pair)]  # fitted group by group
        rest = [pair for pair in pairs if pair not in alone]
        cliques = alone + join_pairs(domain, rest, most_cells=self.clique_cells, admissible=view.can_measure)
        cliques += [(column,) for column in domain if self.again and column not in named]
        weights = view.allocation(rho).weights([domain.cells(clique) for clique in cliques])
        return cliques, dict(zip(cliques, weights, strict=True))

    def _make_size_check(self, domain: Domain) -> Callable[[list[Clique]], bool] | None:
        if self.generator != "pgm":
            return None
        return lambda cliques: JunctionTree.of(domain, cliques).size_mib <= self.limit_mib


# DenseMarg: the selection of pairs and their joining into cliques; post-processing of scores.


def shrink_scores(scores: Mapping[Clique, float], sd: float) -> dict[Clique, float]:
    """Shrink scores towards their mean by the part of their variance that the noise explains (James and Stein).

    Greedy selection from noisy scores prefers pairs whose score the noise raised. With little noise, scores hardly
    change.

    >>> shrink_scores({("a", "b"): 5.0, ("a", "c"): 1.0, ("b", "c"): 3.0}, 1.0)
    {('a', 'b'): 4.5, ('a', 'c'): 1.5, ('b', 'c'): 3.0}
    """
    if len(scores) < 3:
        return dict(scores)
    values = np.array(list(scores.values()), dtype=np.float64)
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    kept = max(0.0, 1 - sd**2 / variance) if variance > 0 else 0.0
    return {pair: float(mean + kept * (score - mean)) for pair, score in scores.items()}


def choose_pairs(
    scores: Mapping[Clique, float],
    cells: Mapping[Clique, int],
    allocation: Allocation,
    *,
    least_gain: float = 0.0,
    most_cells: float = math.inf,
    admissible: Callable[[list[Clique]], bool] | None = None,
) -> list[Clique]:
    """Select pairs greedily, each time the one that lowers the expected error most (DenseMarg).

    The expected error is the noise of the selected pairs plus the dependence of the others.

    Args:
        scores: noisy dependence of each candidate, in rows.
        cells: the number of cells of each candidate.
        allocation: the division of the budget.
        least_gain: stop when a pair would lower the error by less than this many rows.
        most_cells: the most cells of all selected pairs.
        admissible: whether these pairs may be measured together; pairs that make a set inadmissible are skipped.
    """
    pairs = list(scores)
    gain = np.array([float(scores[pair]) for pair in pairs])
    size = np.array([cells[pair] for pair in pairs], dtype=np.float64)
    part, open_ = size**allocation.power, size <= most_cells
    chosen: list[Clique] = []
    total = 0.0
    while open_.any():
        now = allocation.per_cell * total ** (1 / allocation.power)
        better = gain - (allocation.per_cell * (total + part) ** (1 / allocation.power) - now)
        best = int(np.argmax(np.where(open_, better, -np.inf)))
        if better[best] <= 0 or better[best] < least_gain:
            break
        open_[best] = False
        if admissible is not None and not admissible([*chosen, pairs[best]]):
            continue
        chosen.append(pairs[best])
        total += part[best]
        most_cells -= size[best]
        open_ &= size <= most_cells
    return chosen


def join_pairs(
    domain: Domain,
    pairs: Sequence[Clique],
    *,
    most_cells: int = 5000,
    admissible: Callable[[Clique], bool] = lambda clique: True,
) -> list[Clique]:
    """Join pairs into cliques: a small clique whose pairs were all selected is measured instead of them.

    From the largest size down to three, a clique of the graph of pairs is taken when its table has at most
    `most_cells` cells, it is `admissible` and shares at most two columns with all cliques taken before; then the pairs
    that no clique covers. Among cliques of one size the first in the domain's order is taken.

    >>> join_pairs(Domain(dict.fromkeys("abcd", 2)), [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")])
    [('a', 'b', 'c'), ('c', 'd')]
    """
    near: dict[str, set[str]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    taken: list[Clique] = []
    used: set[str] = set()
    largest = min(len(near), int(math.log2(max(most_cells, 1))))
    for length in range(largest, 2, -1):
        for clique in _cliques(domain, near, length, most_cells, used):
            if admissible(clique):
                taken.append(clique)
                used |= set(clique)
    covered = {pair for clique in taken for pair in combinations(clique, 2)}
    return [*taken, *(pair for pair in map(domain.canonical, pairs) if pair not in covered)]


def _cliques(
    domain: Domain, near: Mapping[str, set[str]], length: int, most_cells: int, used: set[str]
) -> Iterator[Clique]:
    """Yield cliques of one length in order; `used` may grow between two of them, which prunes the rest."""
    visits = 0

    def grow(clique: Clique, cells: int, candidates: list[str]) -> Iterator[Clique]:
        nonlocal visits
        if len(clique) == length:
            yield clique
            return
        for i, column in enumerate(candidates):
            visits += 1
            if len(clique) + len(candidates) - i < length or visits > _MOST_VISITS:
                return
            if cells * domain[column] > most_cells or sum(other in used for other in (*clique, column)) > 2:
                continue
            rest = [other for other in candidates[i + 1 :] if other in near[column]]
            yield from grow((*clique, column), cells * domain[column], rest)

    return grow((), 1, [column for column in domain if column in near])
