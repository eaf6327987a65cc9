"""`privmrf`: a Markov random field whose graph is chosen by noisy dependence (Cai et al. 2021, "PrivMRF").

Differences from the paper are explained in docs/decisions/privmrf.md; paper mode undoes what is a setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from heapq import nlargest
from itertools import combinations, islice
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import noisy_total
from understudy.mechanism.base import Footprint, Positive, Share, one_way
from understudy.mechanism.columns_first import ColumnsFirst, count_rows
from understudy.mechanism.privbayes import maximal_parents
from understudy.mechanism.rap import choose_worst
from understudy.model.estimate import estimate
from understudy.model.fit import Fit, GeneratorName
from understudy.model.generate import re_express_all
from understudy.model.junction_tree import JunctionTree, cliques_within
from understudy.progress import Progress, Step, silent

Scores: TypeAlias = Mapping[frozenset[str], float]
"""The noisy score R of each pair of columns: half the distance from independence, as a share of the rows."""

_LATER_MARGINALS = 0.8  # marginals of the refinement steps, as a multiple of the number of columns
_MOST_STEPS, _STEP_CANDIDATES = 8, 400  # refinement steps at most, and candidates of each
_MOST_SETS, _MOST_CANDIDATES = 500, 20_000  # sets of parents of a column in a clique, and candidates of a clique
_ROUND_TOLERANCES, _MEDIUM_MIB = (
    (0.05, 0.01),
    8.0,
)  # tolerance of the fit before a selection, of large and smaller models


class PrivMRF(ColumnsFirst):
    """Build a tractable graph of dependent columns, measure marginals within its cliques, add marginals in steps.

    The first marginals come from a small Bayesian network in each clique of the graph. A few steps then add marginals
    that the model answers worst.

    **Privacy.** Questions to the gate: a first measurement of columns (or of one column, for the number of rows), one
    vector of dependence scores, the first marginals, and in each step selections and measurements. Candidates, graphs
    and limits follow from the schema, the settings and earlier answers; the shares add up to `rho`.

    Attributes:
        graph: the part of the budget for the dependence scores.
        choosing: the part of the budget for selecting marginals in the steps.
        theta: the smallest ratio of a marginal's mean count to its mean noise per cell.
        max_columns: the most columns of a marginal.
        max_mib: the largest junction tree of the graph.
        first: the part of the budget for a first measurement of every column; 0 for none, and then no codes are merged.
        look: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        generator: "pgm", a graphical model; "gum", gradual updates of rows; or "rap", relaxed projection.
    """

    name = "privmrf"
    paper = "Cai, Lei, Wei and Xiao 2021, Data Synthesis via Differentially Private Markov Random Fields"
    when = "Columns of few values that depend on several others together, without a workload in mind."

    graph: Share = 0.1
    choosing: Share = 0.1
    theta: Positive = 6.0
    max_columns: Annotated[int, Field(ge=2, le=10)] = 6
    max_mib: Positive = 80.0
    generator: GeneratorName = "pgm"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: no first measurement of columns, no merging."""
        return {"first": 0.0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.graph + self.choosing <= 0.9:
            raise SettingError("privmrf: graph and choosing must not exceed 0.9 of the budget together; give one less")

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Score pairs, build the graph, measure the first marginals, then refine them step by step."""
        declared, total = table.domain, table.rows_public
        raw, _, left, table = self.measure_columns(table, one_way(declared), rho=rho, progress=progress)
        raw, left = count_rows(table, raw, left)
        rows, domain = float(total or noisy_total(raw)), table.domain
        varying = [column for column, size in domain.items() if size > 1]
        if not varying:  # no column has two codes left: measure columns again
            return self.conclude(table, [*raw, *table.measure(one_way(domain), rho=left)], progress=progress)
        progress(Step("select", 0.1, "dependence of pairs"))
        pairs = [pair for pair in combinations(varying, 2) if table.can_measure(pair)]
        scores = _scores(table.dependence(pairs, rho=self.graph * left), rows)
        cliques = graph_cliques(domain, scores, self.max_mib)
        later = int(_LATER_MARGINALS * len(varying))
        rho_each = (1 - self.graph - self.choosing) * left / (len(varying) + later)
        most = int(rows / (self.theta * table.expected_noise(rho_each)))
        initial = first_marginals(
            domain, cliques, scores, cells=most, columns=self.max_columns, admissible=table.can_measure
        )
        steps = max(1, min(len(varying) // 2, _MOST_STEPS)) if later else 0
        shared = left * (1 - self.graph - self.choosing if steps else 1 - (self.graph if pairs else 0))
        rho_each = shared / (len(initial) + later)
        found = table.measure(initial, rho=rho_each * len(initial))
        measurements = [*re_express_all(declared, raw, table.recoding), *found]
        model = estimate(domain, measurements, total=total, tolerance=_ROUND_TOLERANCES[1])
        candidates = useful_marginals(domain, cliques, cells=most, columns=self.max_columns)
        chosen = list[Clique]()
        for step in range(steps):
            count = later // steps + (step < later % steps)
            weights = {r: w for r, w in candidates.items() if r not in chosen and table.can_measure(r)} or candidates
            asked = draw_candidates(weights, _STEP_CANDIDATES, step)
            open_ = cliques_within(domain, dict.fromkeys(asked, 1.0), [m.clique for m in measurements], self.max_mib)
            batch = choose_worst(table, model, open_, count=count, rho=self.choosing * left / steps)
            measurements += table.measure(batch, rho=rho_each * len(batch))
            chosen += batch
            progress(Step("measure", 0.2 + 0.8 * (step + 1) / steps, f"step {step + 1}: {len(batch)} marginals"))
            if step + 1 < steps:
                rough = _ROUND_TOLERANCES[model.size_mib < _MEDIUM_MIB]
                model = estimate(domain, measurements, total=total, warm_start=model, tolerance=rough)
        kept = [*raw, *measurements[len(raw) :]]
        return self.conclude(table, kept, rounds=[{"chosen": list(r)} for r in chosen], progress=progress)

    def footprint(self, domain: Domain) -> Footprint:
        """The junction tree a few times over, and the tables of all pairs or of a step's candidates."""
        tree = int(self.max_mib * (1 << 20))
        cells = max(map(domain.cells, combinations(domain, 2)), default=1) + 1_000_000
        return Footprint(memory_bytes=4 * tree + 64 * cells + (64 << 20), disk_bytes=tree + 16 * cells + (1 << 20))


# The graph and its marginals: pure functions of the domain and of noisy scores


def graph_cliques(domain: Domain, scores: Scores, limit_mib: float) -> list[Clique]:
    """Build a graph from pairs, the most dependent first, within a limit of its junction tree; return its cliques.

    A pair that the triangulation joins already is free.
    """
    edges: list[Clique] = []
    tree = JunctionTree.of(domain, edges)
    for pair in sorted(scores, key=lambda pair: (-scores[pair], sorted(pair))):
        edge = domain.canonical(pair)
        if scores[pair] <= 0 or tree.home(edge) is not None:
            continue
        larger = JunctionTree.of(domain, [*edges, edge])
        if larger.size_mib <= limit_mib:
            edges, tree = [*edges, edge], larger
    return [domain.canonical(c for c in clique if domain[c] > 1) for clique in tree.cliques]


def cfs_score(column: str, parents: Sequence[str], scores: Scores) -> float:
    """Return how well parents predict a column: its scores with them, reduced by scores between them (CFS).

    >>> round(cfs_score("x", "pq", {frozenset("xp"): 0.3, frozenset("xq"): 0.2, frozenset("pq"): 0.1}), 6)
    0.345033
    """
    told = sum(scores.get(frozenset((column, parent)), 0.0) for parent in parents)
    among = sum(scores.get(frozenset(pair), 0.0) for pair in combinations(parents, 2))
    return told / math.sqrt(max(1.0, len(parents) + among))


def first_marginals(
    domain: Domain,
    cliques: Iterable[Clique],
    scores: Scores,
    *,
    cells: int,
    columns: int,
    admissible: Callable[[Clique], bool] = lambda clique: True,
) -> list[Clique]:
    """Return for each column the best marginal of a small Bayesian network in one of the cliques, or the column.

    The network of a clique starts at its first column. The next column is the one with the best set of parents among
    those before it, by the CFS score; a set is as large as `cells` and `columns` allow, and its table is `admissible`.
    """
    best: dict[str, tuple[float, Clique]] = {}
    for clique in cliques:
        known, waiting = list(clique[:1]), list(clique[1:])
        while waiting:
            found = []
            for column in waiting:
                for degree in range(columns - 1, 0, -1):
                    sets = islice(maximal_parents(domain, known, cells // domain[column], degree), _MOST_SETS)
                    fitting = [chosen for chosen in sets if chosen and admissible((column, *chosen))]
                    found += [(cfs_score(column, chosen, scores), column, chosen) for chosen in fitting]
                    if fitting:
                        break
            if not found:
                break
            score, column, chosen = max(found)
            if score > best.get(column, (0.0, ()))[0]:
                best[column] = score, domain.canonical((column, *chosen))
            known.append(column)
            waiting.remove(column)
    marginals = dict.fromkeys(marginal for _, marginal in best.values())
    covered = {column for marginal in marginals for column in marginal}
    return [*marginals, *((column,) for column, size in domain.items() if size > 1 and column not in covered)]


def useful_marginals(domain: Domain, cliques: Iterable[Clique], *, cells: int, columns: int) -> dict[Clique, float]:
    """Return the theta-useful marginals within the cliques, with the weights by which a step draws candidates.

    A clique of k columns gives each of its candidates the weight k^2 / (their number). Marginals of cliques with very
    many candidates have fewer columns.
    """
    found: dict[Clique, float] = {(column,): 0.0 for column, size in domain.items() if size > 1}
    for clique in cliques:
        mine: list[Clique] = []
        for size in range(1, min(columns, max(1, len(clique) - 1)) + 1):
            if len(mine) + math.comb(len(clique), size) > _MOST_CANDIDATES:
                break
            mine += [r for r in combinations(clique, size) if size == 1 or domain.cells(r) <= cells]
        for r in mine:
            found[r] = found.get(r, 0.0) + len(clique) ** 2 / len(mine)
    return {r: max(weight, 1e-9) for r, weight in found.items()}


def draw_candidates(weights: Mapping[Clique, float], most: int, step: int) -> list[Clique]:
    """Draw distinct candidates by weight, with numbers derived from the step and the columns' names; all if few.

    The largest of log(u) / weight for uniform u are a weighted sample without replacement (Efraimidis and Spirakis).
    """

    def rank(clique: Clique) -> float:
        digest = sha256(repr((step, clique)).encode()).digest()
        return math.log((int.from_bytes(digest[:8], "big") + 0.5) / 2**64) / weights[clique]

    return nlargest(most, weights, key=rank)


def _scores(distances: Mapping[Clique, int], rows: float) -> Scores:
    """Return R of each pair: half its distance from independence, as a share of the rows; at least 0."""
    return {frozenset(pair): max(0.0, value / (2 * rows)) for pair, value in distances.items()}
