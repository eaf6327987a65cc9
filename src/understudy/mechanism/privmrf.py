"""`privmrf`: a Markov random field whose graph is chosen by noisy dependence (Cai et al. 2021, "PrivMRF").

Differences from the paper are explained in docs/decisions/privmrf.md; paper mode has its graph search, its choice of
marginals and its stopping rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import nlargest
from itertools import combinations, islice
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, noisy_total
from understudy.mechanism.adaptive import ModelMarginals
from understudy.mechanism.base import Footprint, Positive, Share, one_way
from understudy.mechanism.columns_first import ColumnsFirst, measure_rows
from understudy.mechanism.privbayes import maximal_parents
from understudy.mechanism.rap import choose_worst
from understudy.model.estimate import estimate
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree, limit_cliques
from understudy.progress import Progress, Step, silent
from understudy.schema import Schema

Scores: TypeAlias = Mapping[frozenset[str], float]
"""The noisy score R of each pair of columns: half the distance from independence, as a share of the rows."""

MOST_COLUMNS = 40
"""The most columns for which every absent edge is tried in every step: 20 seconds, of which 25 columns take a tenth."""

_LATER_MARGINALS = 0.8  # marginals of the refinement steps, as a multiple of the number of columns
_MOST_STEPS, _STEP_CANDIDATES = 8, 400  # refinement steps at most, and candidates of each
_MOST_SETS, _MOST_CANDIDATES = 500, 20_000  # sets of parents of a column in a clique, and candidates of a clique
_PAPER_CELLS = 5e7  # of all cliques of the graph together, and a fifth of that of one clique
_PAPER_PENALTY = 1e-8  # of the graph's score, for each cell of its cliques
_PAPER_ENOUGH, _PAPER_TOLERANCE = (1.2, 0.7), 1e-3  # losses at which fits stop, as multiples of that of the noise
_ROUND_TOLERANCES, _MEDIUM_MIB = (0.05, 0.01), 8.0  # tolerance between steps, of large and smaller models


class PrivMRF(ColumnsFirst):
    """Build a tractable graph of dependent columns, measure marginals within its cliques, add marginals in steps.

    The first marginals come from a small Bayesian network in each clique of the graph. A few steps then add marginals
    that the model answers worst.

    **Privacy.** Questions to the gate: a first measurement of columns (or of one column, for the number of rows), one
    vector of dependence scores, the first marginals, and in each step selections (or one vector of distances) and
    measurements. Candidates, graphs and limits follow from the schema, the settings and earlier answers; the shares add
    up to `rho`.

    Attributes:
        graph: the part of the budget for the dependence scores.
        search: how the graph is built: "sorted", from the most dependent pairs on, or "greedy", as in the paper: each
            step tries every edge and scores the triangulated graph. At most 40 columns.
        choosing: the part of the budget for selecting marginals in the steps.
        errors: how marginals are chosen in the steps: "selected" by the exponential mechanism, or "measured", as in the
            paper: the errors of all candidates are measured, and the largest are taken.
        theta: the smallest ratio of a marginal's mean count to its mean noise per cell.
        max_columns: the most columns of a marginal.
        max_mib: the largest junction tree of the graph; with search="greedy", a clique has at most a fifth of it.
        first: the part of the budget for a first measurement of every column; 0 for none, and then no codes are merged.
        second: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        generator: "pgm", a graphical model; "gum", gradual updates of rows; or "rap", relaxed projection.
        as_printed: drawn roots of the networks, first marginals filled up to the number of columns, and fits that stop
            at 1.2 times (the last at 0.7 times) the loss of the noise, as in the paper's code.
    """

    name = "privmrf"
    paper = "Cai, Lei, Wei and Xiao 2021, Data Synthesis via Differentially Private Markov Random Fields"
    when = "Columns of few values that depend on several others together, without a workload in mind."

    graph: Share = 0.1
    search: Literal["sorted", "greedy"] = "sorted"
    choosing: Share = 0.1
    errors: Literal["selected", "measured"] = "selected"
    theta: Positive = 6.0
    max_columns: Annotated[int, Field(ge=2, le=10)] = 6
    max_mib: Positive = 80.0
    generator: GeneratorName = "pgm"
    as_printed: bool = False

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: nothing measured before the graph, and the steps as in the authors' code."""
        return {
            "first": 0.0,
            "search": "greedy",
            "errors": "measured",
            "max_mib": _PAPER_CELLS * 8 / 2**20,
            "as_printed": True,
        }

    def prepare(self, schema: Schema) -> Self:
        """Refuse a search of the graph that would take too long.

        Raises:
            SettingError: if there are more columns than `search="greedy"` can take.
        """
        if not schema.open:  # what is discovered later is checked before the first question
            self._check_width(schema.domain)
        return self

    def _check_width(self, domain: Domain) -> None:
        varying = sum(size > 1 for size in domain.values())
        if self.search == "greedy" and varying > MOST_COLUMNS:
            raise SettingError(
                f"privmrf: search='greedy', as in the paper, takes at most {MOST_COLUMNS} columns, not {varying}; use "
                "search='sorted'. Nothing was spent"
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.graph + self.choosing <= 0.9:
            raise SettingError("privmrf: graph and choosing must not exceed 0.9 of the budget together; give one less")

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Score pairs, build the graph, measure the first marginals, then refine them step by step."""
        self._check_width(table.domain)
        declared, total = table.domain, table.rows_public
        raw, _, left, table = self.measure_columns(table, one_way(declared), rho=rho, progress=progress)
        raw, left = measure_rows(table, raw, left)
        rows, domain = float(total or noisy_total(raw)), table.domain
        varying = [column for column, size in domain.items() if size > 1]
        if not varying:  # no column has two codes left: measure columns again
            return self.conclude(table, [*raw, *table.measure(one_way(domain), rho=left)], progress=progress)
        progress(Step("select", 0.1, "dependence of pairs"))
        pairs = [pair for pair in combinations(varying, 2) if table.can_measure(pair)]
        scores = _scores(table.dependence(pairs, rho=self.graph * left), rows, negative=self.as_printed)
        search = search_graph if self.search == "greedy" else graph_cliques
        cliques = search(domain, scores, self.max_mib)
        later = int(_LATER_MARGINALS * len(varying))
        rho_each = (1 - self.graph - self.choosing) * left / (len(varying) + later)
        most = int(rows / (self.theta * table.expected_noise(rho_each)))
        candidates = useful_marginals(domain, cliques, cells=most, columns=self.max_columns)
        candidates = {r: weight for r, weight in candidates.items() if table.can_measure(r)}
        initial = first_marginals(
            domain,
            cliques,
            scores,
            cells=most,
            columns=self.max_columns,
            admissible=table.can_measure,
            as_printed=self.as_printed,
        )
        steps = max(1, min(len(varying) // 2, _MOST_STEPS)) if later else 0
        shared = left * (1 - self.graph - self.choosing if steps else 1 - (self.graph if pairs else 0))
        rho_each = shared / (len(initial) + later)
        found = table.measure(initial, rho=rho_each * len(initial))
        measurements = [*re_express_all(declared, raw, table.recoding), *found]
        model = self._estimate(domain, measurements, total, None)
        chosen = list[Clique]()
        for step in range(steps):
            count = later // steps + (step < later % steps)
            weights = {r: w for r, w in candidates.items() if r not in chosen} or candidates
            asked = draw_candidates(weights, _STEP_CANDIDATES, step)
            open_ = limit_cliques(domain, dict.fromkeys(asked, 1.0), [m.clique for m in measurements], self.max_mib)
            if self.errors == "measured":
                batch, lost = take_worst(table, model, open_, count=count, rho=self.choosing * left / steps)
                candidates |= {r: candidates[r] / 2 for r in lost}
            else:
                batch = choose_worst(table, model, open_, count=count, rho=self.choosing * left / steps)
            measurements += table.measure(batch, rho=rho_each * len(batch))
            chosen += batch
            progress(Step("measure", 0.2 + 0.8 * (step + 1) / steps, f"step {step + 1}: {len(batch)} marginals"))
            if step + 1 < steps:
                model = self._estimate(domain, measurements, total, model)
        kept = [*raw, *measurements[len(raw) :]]
        return self.conclude(table, kept, rounds=[{"chosen": list(r)} for r in chosen], progress=progress)

    def _estimate(
        self, domain: Domain, measurements: Sequence[Measurement], total: float | None, model: GraphicalModel | None
    ) -> GraphicalModel:
        """Fit the model between steps: roughly, or until its loss is 1.2 times that of the noise."""
        rough = _ROUND_TOLERANCES[model is None or model.size_mib < _MEDIUM_MIB]
        tolerance, enough = (_PAPER_TOLERANCE, _PAPER_ENOUGH[0]) if self.as_printed else (rough, 0.0)
        return estimate(domain, measurements, total=total, warm_start=model, tolerance=tolerance, enough=enough)

    def make_generator(self) -> Generator:
        """Return the generator; as printed, its fit stops at 0.7 times the loss of the noise."""
        enough = _PAPER_ENOUGH[1] if self.as_printed else 0.0
        return Generator(self.generator, as_printed=self.as_printed, enough=enough)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of a few junction trees, and of the tables of all pairs or of a step's candidates."""
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


def search_graph(domain: Domain, scores: Scores, limit_mib: float) -> list[Clique]:
    """Search the graph as in the paper's code; return the maximal cliques of its triangulation.

    Each step tries every absent edge and adds the one whose triangulated graph has the largest score: the scores of all
    of its edges, less 1e-8 for each cell of its maximal cliques. The search ends when every edge would make a clique
    larger than a fifth of the limit, or all cliques together larger than the limit. Of equal edges the first is taken,
    in the order of the columns; the graph begins with the columns of rules.
    """
    columns = [column for column, size in domain.items() if size > 1]
    place = {column: i for i, column in enumerate(columns)}
    most = limit_mib * 2**20 / 8
    counted: dict[int, int] = {}

    def cells(clique: int) -> int:
        if clique not in counted:
            counted[clique] = domain.cells([columns[i] for i in _members(clique)])
        return counted[clique]

    def judge(graph: Sequence[int]) -> float:
        """Return the score of a graph once it is triangulated; minus infinity if a clique is too large."""
        parts = triangulate(graph)
        told = sum(table[i][j] for i, later in parts for j in _members(later))
        sizes = [cells(clique) for clique in _maximal(parts)]
        if max(sizes) > most / 5 or sum(sizes) > most:
            return -math.inf
        return told - _PAPER_PENALTY * sum(sizes)

    table = [[scores.get(frozenset((one, other)), 0.0) for other in columns] for one in columns]
    graph = [0] * len(columns)
    for rule in domain.rules:
        for one, other in combinations([place[c] for c in rule.clique if c in place], 2):
            graph = _join(graph, one, other)
    while absent := [(i, j) for i, j in combinations(range(len(columns)), 2) if not graph[i] >> j & 1]:
        found = [(judge(_join(graph, i, j)), i, j) for i, j in absent]
        score, i, j = max(found, key=lambda one: one[0])
        if score == -math.inf:
            break
        graph = _join(graph, i, j)
    return [tuple(columns[i] for i in _members(clique)) for clique in _maximal(triangulate(graph))]


def triangulate(graph: Sequence[int]) -> list[tuple[int, int]]:
    """Eliminate nodes by increasing degree, joining the neighbours of each; return nodes with their later neighbours.

    A graph has for each node the set of its neighbours, as bits.

    >>> triangulate([0b1010, 0b0101, 0b1010, 0b0101])  # a square gets a diagonal
    [(0, 10), (1, 12), (2, 8), (3, 0)]
    """
    left, parts = list(graph), list[tuple[int, int]]()
    for node in sorted(range(len(graph)), key=lambda i: graph[i].bit_count()):
        later = left[node]
        for other in _members(later):
            left[other] = (left[other] | later) & ~(1 << other | 1 << node)
        parts.append((node, later))
    return parts


def _maximal(parts: Iterable[tuple[int, int]]) -> list[int]:
    """Return the maximal cliques of a triangulated graph, as bits; any other clique lies within an earlier one."""
    found: list[int] = []
    for node, later in parts:
        clique = later | 1 << node
        if not any(clique & known == clique for known in found):
            found.append(clique)
    return found


def _members(clique: int) -> list[int]:
    found = []
    while clique:
        found.append((clique & -clique).bit_length() - 1)
        clique &= clique - 1
    return found


def _join(graph: Sequence[int], one: int, other: int) -> list[int]:
    joined = list(graph)
    joined[one] |= 1 << other
    joined[other] |= 1 << one
    return joined


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
    as_printed: bool = False,
) -> list[Clique]:
    """Return for each column its best marginal in the networks of the cliques, or the column by itself.

    As printed, marginals are kept whatever their score, but not those within another one; then other marginals of the
    networks, drawn by the SHA-256 of their columns' names, fill up to the number of columns.

    Args:
        domain: the columns.
        cliques: the cliques of the graph.
        scores: the noisy dependence of each pair.
        cells: the most cells of a marginal.
        columns: the most columns of a marginal.
        admissible: whether a marginal may be measured.
        as_printed: as in the paper's code.
    """
    best: dict[str, tuple[float, Clique]] = {}
    least, others = -math.inf if as_printed else 0.0, dict[Clique, float]()
    for clique in cliques:
        root = max(clique, key=lambda column: _draw("root", clique, column)) if as_printed else clique[0]
        for score, column, marginal in grow_network(domain, clique, scores, root, cells, columns, admissible):
            others[marginal] = 1.0
            if score > best.get(column, (least, ()))[0]:
                best[column] = score, marginal
    found = list(dict.fromkeys(marginal for _, marginal in best.values()))
    if as_printed:
        found = [r for r in found if not any(set(r) < set(other) for other in found)]
    covered = {column for marginal in found for column in marginal}
    found += [(column,) for column, size in domain.items() if size > 1 and column not in covered]
    if as_printed:
        for r in draw_candidates(others, len(others), -1):
            if len(found) < sum(size > 1 for size in domain.values()) and not any(set(r) <= set(one) for one in found):
                found.append(r)
    return found


def grow_network(
    domain: Domain,
    clique: Clique,
    scores: Scores,
    root: str,
    cells: int,
    columns: int,
    admissible: Callable[[Clique], bool],
) -> Iterator[tuple[float, str, Clique]]:
    """Yield the columns of a Bayesian network in a clique: the CFS score, the column, the marginal with its parents.

    The next column is the one with the best set of parents among those before it; a set is as large as `cells` and
    `columns` allow. The network ends early if no column has parents left.
    """
    known, waiting = [root], [column for column in clique if column != root]
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
        yield score, column, domain.canonical((column, *chosen))
        known.append(column)
        waiting.remove(column)


def take_worst(
    table: PrivateTable, model: GraphicalModel, candidates: Iterable[Clique], *, count: int, rho: float
) -> tuple[list[Clique], list[Clique]]:
    """Measure the errors of all candidates and take those with the largest; if there are few, all at no cost.

    **Privacy.** One vector of noisy distances, for `rho`.

    Returns:
        The marginals that are taken, and those not taken in the second half of the list, the largest error first.
    """
    asked = list(candidates)
    if len(asked) <= count:
        return asked, []
    errors = table.distances(asked, against=ModelMarginals(model, asked), rho=rho)
    ranked = sorted(asked, key=errors.__getitem__, reverse=True)
    return ranked[:count], ranked[max(count, len(ranked) // 2) :]


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
    return nlargest(most, weights, key=lambda clique: math.log(_draw(step, clique)) / weights[clique])


def _draw(*names: Any) -> float:
    """Return a number between 0 and 1 that depends on these names alone, so that a resumed run has the same."""
    digest = sha256(repr(names).encode()).digest()
    return (int.from_bytes(digest[:8], "big") + 0.5) / 2**64


def _scores(distances: Mapping[Clique, int], rows: float, *, negative: bool = False) -> Scores:
    """Return R of each pair: half its distance from independence, as a share of the rows; at least 0 by default."""
    least = -math.inf if negative else 0.0
    return {frozenset(pair): max(least, value / (2 * rows)) for pair, value in distances.items()}
