"""`nist-mst`: the winner of the 2018 NIST challenge: marginals chosen from a public table, then measured privately.

Algorithm 2 of "Winning the NIST Contest" for any table; the schema replaces the census transforms of steps 2, 3 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.base import Footprint, Mechanism, NotNegative, one_way
from understudy.mechanism.compress import compress, measure_columns_again
from understudy.mechanism.spanning_tree import Keep, Kept, check_kept, parse_kept, tree_footprint
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.model.junction_tree import JunctionTree
from understudy.progress import Progress, Step, silent
from understudy.schema import PrivacyUnit, Recoding, Schema
from understudy.source import Source, open_source
from understudy.source.place import public_name
from understudy.tabulate import Counts, SparseCounts

_KEPT = 100.0  # added to the weight of pairs to keep, in nats: more than any mutual information


def _parse_chosen(cliques: Any) -> Kept | None:
    return None if cliques is None else parse_kept(cliques, setting="cliques")


class NistMST(Mechanism):
    """Choose marginals from a public table, measure the columns and those marginals privately, fit a model.

    Attributes:
        public: the public table: a frame, a file, or a source; not kept once the marginals are chosen.
        keep: cliques that are always measured, of any order: cliques, or (clique, weight); others weigh 1.
        cliques: the chosen marginals with weights; None before they are chosen.
        public_name: the name of the public table in the receipt.
        income: the columns of the contest's third score, the income last; by default those that the schema marks
            (`role: income_group` and `role: income`), none with []. Their marginal has weight 8 up to epsilon 0.3, 4
            from epsilon 4, and 6 in between; their pairs and the first measurement of the income have weight 2.
        error: triples whose error in the tree (L1, as a part of the rows) is below this are not added.
        threshold: codes whose noisy count is below this many standard deviations are merged.
        max_cells: larger marginals are not measured.
        calibration: "tight" (the exact curve of all measurements, or the tightest conversion from zCDP, Remark 3) or
            "paper" (equation 5.1, more noise).
        as_printed: merge codes as printed: one code for all rare ones (Algorithm 4).
        rare: how merged values are written, unless `sample` overrides it; "even" is step 8 of the paper.
        generator: "pgm", a graphical model; "gum", consistent tables and gradual updates of rows; or "rap", relaxed
            projection.

    **Privacy.** Two groups of measurements with half of the budget each (Theorem 2). They are fixed in advance; codes
    are merged in between. The custodian declares the public table; reading it costs nothing.
    """

    name = "nist-mst"
    paper = "McKenna, Miklau and Sheldon 2021, Winning the NIST Contest (Algorithms 1 to 5)"
    when = "A public table of the same kind is at hand, such as an earlier year."

    public: Any = field(default=None, repr=False, compare=False)
    keep: Keep = ()
    cliques: Annotated[Any, PlainValidator(_parse_chosen)] = None
    public_name: str | None = None
    income: tuple[str, ...] | None = None
    error: NotNegative = 0.1
    threshold: NotNegative = 3.0
    max_cells: Annotated[int, Field(ge=0)] = 1_000_000
    calibration: Literal["tight", "paper"] = "tight"
    as_printed: bool = False
    rare: Literal["spread", "even"] | None = None
    generator: GeneratorName = "pgm"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: equation 5.1, Algorithm 4 as printed, rare values spread evenly."""
        return {"calibration": "paper", "as_printed": True, "rare": "even"}

    def prepare(self, schema: Schema) -> NistMST:
        """Return the mechanism with its marginals chosen and without the public table.

        **Privacy.** Reads only the public table, with the private table's schema.

        Raises:
            SettingError: if there is no public table, or a clique to keep cannot be measured.
            InputError: if the public table cannot be read.
        """
        if self.income is None:
            return replace(self, income=marked_income(schema)).prepare(schema)
        check_kept(schema.domain, [*self._kept_cliques(), self.income])
        if self.cliques is not None:
            return replace(self, public=None)
        if self.public is None:
            raise SettingError(f"{self.name} chooses marginals from a public table: give one with `public` (--public)")
        as_rows = replace(schema, privacy_unit=PrivacyUnit(), rows=None)
        source = self.public if isinstance(self.public, Source) else open_source(self.public, as_rows)
        return replace(self, public=None, public_name=self._name_public(), cliques=self._choose(source))

    def public_tables(self) -> dict[str, Any]:
        """Return the table that the marginals are chosen from."""
        return {} if self.public is None and self.public_name is None else {self._name_public(): self.public}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, merge rare values, measure the chosen marginals, finish."""
        domain, power = table.domain, table.weight_power
        columns, chosen = self._weights(domain, power, table.guarantee)
        paper = _paper_sigma(table) if self.calibration == "paper" else None
        spend = rho if paper is None else min(rho, paper**-2)
        rest = spend * math.fsum(weight**power for weight in chosen.values())

        def merge(ones: Sequence[Measurement]) -> Recoding:
            return compress(
                domain, ones, table.code_groups, threshold=self.threshold, once=True, as_printed=self.as_printed
            )

        progress(Step("measure", 0.0, "one-way marginals"))
        ones = table.measure(columns, rho=spend - rest, weights=columns)
        merged = table.recode(merge(ones))
        weights = self._leave_out_large_cliques(merged, chosen)
        progress(Step("measure", 0.5, "marginals chosen from the public table"))
        later: list[Measurement] = []
        if weights:
            later = merged.measure(weights, rho=rest, weights=weights)
        elif not table.planned:  # columns of one code have no pairs
            merged, later = measure_columns_again(table, ones, rho=rest, merge=merge, weights=columns)
        return self.conclude(merged, [*ones, *later], rounds=_report_noise(table, ones), progress=progress)

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """Return all measurements with weights; none with the paper's calibration, or if weights depend on epsilon."""
        if self.calibration == "paper" or self.income:
            return {}
        columns, chosen = self._weights(domain, 2)
        return columns | chosen

    def make_generator(self) -> Generator:
        """Return the generator; a graphical model starts from closed forms, because the cliques are nearly a tree."""
        return Generator("tree" if self.generator == "pgm" else self.generator, as_printed=self.as_printed)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of the chosen marginals, at most `max_cells` each, and of those to keep."""
        kept = list(self._kept_cliques())
        chosen = [clique for clique, _ in self.cliques or ()]
        sizes = [min(int(self.max_cells), domain.cells(clique)) for clique in chosen]
        if domain.rules:  # columns of a rule share a clique, so the model is more than a tree
            small = leave_out_large(domain, chosen, int(self.max_cells))
            sizes.append(JunctionTree.of(domain, [*small, *kept]).cells)
        return tree_footprint(domain, sizes, kept)

    def _name_public(self) -> str:
        return self.public_name or public_name(self.public)

    def _choose(self, source: Source) -> Kept:
        cliques = choose_cliques(source, keep=list(self._kept_cliques()), error=self.error)
        return tuple((clique, 1.0) for clique in cliques)

    def _kept_cliques(self, epsilon: float | None = None) -> dict[Clique, float]:
        """Return the cliques that are always measured, with weights; `keep` has precedence (lines 2 and 6)."""
        income = self.income or ()
        pairs = dict.fromkeys(combinations(income, 2), 2.0) if len(income) > 2 else {}
        whole = {income: income_weight(epsilon)} if len(income) > 1 else {}
        return pairs | whole | dict(self.keep)

    def _weighted_cliques(self, epsilon: float | None) -> dict[Clique, float]:
        """Return chosen and kept cliques with weights (line 6 of Algorithm 5); those of kept ones have precedence."""
        cliques = self.cliques
        if cliques is None:
            if not isinstance(self.public, Source):
                raise SettingError(f"{self.name} has chosen no marginals yet: give a public source, or call `prepare`")
            cliques = self._choose(self.public)
        return dict(cliques) | self._kept_cliques(epsilon)

    def _weights(
        self, domain: Domain, power: int, guarantee: tuple[float, float] | None = None
    ) -> tuple[dict[Clique, float], dict[Clique, float]]:
        """Return the weights of columns and of chosen cliques; the powers of each group sum to one half.

        A single column that is kept is measured once, with the sum of both weights.
        """
        chosen = self._weighted_cliques(None if guarantee is None else guarantee[0])
        for clique in chosen:
            domain.check(clique)
        part = (2 if chosen else 1) ** (-1 / power)
        norm = math.fsum(weight**power for weight in chosen.values()) ** (1 / power)
        looks = dict.fromkeys(one_way(domain), 1.0) | ({self.income[-1:]: 2.0} if self.income else {})  # step 4
        whole = math.fsum(weight**power for weight in looks.values()) ** (1 / power)
        columns = {clique: part * weight / whole for clique, weight in looks.items()}
        groups = {clique: part * weight / norm for clique, weight in chosen.items()}
        for clique in [clique for clique in groups if len(clique) == 1]:
            columns[clique] = (columns[clique] ** power + groups.pop(clique) ** power) ** (1 / power)
        return columns, groups

    def _leave_out_large_cliques(self, merged: PrivateTable, chosen: dict[Clique, float]) -> dict[Clique, float]:
        """Return cliques that fit on the merged domain (line 5), and all kept ones, without columns of one code."""
        domain = merged.domain
        kept = set(self._kept_cliques())
        free = leave_out_large(domain, [clique for clique in chosen if clique not in kept], int(self.max_cells))
        small = {clique for clique in free if domain.cells(clique) > 1 and merged.can_measure(clique)}
        return {clique: weight for clique, weight in chosen.items() if clique in small or clique in kept}


def marked_income(schema: Schema) -> tuple[str, ...]:
    """Return the columns that the schema marks for the income score, the income last; none if no income is marked.

    Raises:
        SettingError: if two columns are marked as the income.
    """
    named: dict[str, list[str]] = {"income": [], "income_group": []}
    for column in schema.columns:
        if column.role is not None and column.parts:
            named[column.role].append(next(iter(column.parts)))
    if len(named["income"]) > 1:
        raise SettingError(
            f"columns {named['income'][0]!r} and {named['income'][1]!r} are both marked `role: income`; mark one, or "
            "give nist-mst its columns with `income`"
        )
    return (*named["income_group"], *named["income"]) if named["income"] else ()


def income_weight(epsilon: float | None) -> float:
    """Return the weight of the marginal of the income score (line 6 of Algorithm 5); 6 without an epsilon.

    >>> [income_weight(epsilon) for epsilon in (0.3, 0.31, 3.9, 4.0, None)]
    [8.0, 6.0, 6.0, 4.0, 6.0]
    """
    if epsilon is None:
        return 6.0
    return 8.0 if epsilon <= 0.3 else 4.0 if epsilon >= 4.0 else 6.0


def equation_5_1(epsilon: float, delta: float) -> float:
    """Return the paper's noise scale for two groups of measurements of unit L2 norm.

    >>> [round(equation_5_1(epsilon, 2e-12), 4) for epsilon in (0.3, 1, 8)]
    [34.6972, 10.4758, 1.3876]
    """
    log = math.log(1 / delta)
    return (math.sqrt(log) + math.sqrt(log + epsilon)) / epsilon


def _paper_sigma(table: PrivateTable) -> float | None:
    """Return equation 5.1 for this run's guarantee and sensitivity 1; None without epsilon and delta."""
    if table.guarantee is None or not table.guarantee[1]:
        return None
    return equation_5_1(*table.guarantee)


def _report_noise(table: PrivateTable, ones: Sequence[Measurement]) -> list[dict[str, float]]:
    """Describe the run's Gaussian noise for sensitivity 1, and that of equation 5.1; empty under pure DP.

    A marginal of sigma s costs rho = D^2 / (2 s^2) at L2 sensitivity D, so 2 rho is its precision for sensitivity
    1.
    """
    if table.guarantee is not None and not table.guarantee[1]:
        return []
    used = 1 / math.sqrt(math.fsum(2 * table.rho_for(one.sigma) for one in ones))
    paper = _paper_sigma(table)
    return [{"sigma": used} if paper is None else {"sigma": used, "equation_5_1": paper, "gain": 1 - used / paper}]


# Algorithm 5: the choice of marginals from a public table.


def mutual_information(counts: Counts, shape: tuple[int, ...]) -> float:
    """Return the mutual information of a two-way marginal, in nats; 0 for an empty one.

    >>> round(mutual_information(np.array([5, 0, 0, 5]), (2, 2)), 4), mutual_information(np.array([1, 1, 1, 1]), (2, 2))
    (0.6931, 0.0)
    """
    if isinstance(counts, SparseCounts):
        rows, columns = np.unravel_index(counts.cells, shape)
        first, second = (np.bincount(codes, counts.counts) for codes in (rows, columns))
        cells = counts.counts
    else:
        table = counts.reshape(shape)
        cells, first, second = counts, table.sum(axis=1), table.sum(axis=0)
    n = float(first.sum())
    if n == 0:
        return 0.0
    information = _x_log_x(cells) - _x_log_x(first) - _x_log_x(second) + n * math.log(n)
    return max(0.0, information / n)


def conditional_error(counts: Counts, shape: tuple[int, ...]) -> float:
    """Return the error of a triple modelled by two pairs that share the first column, as a part of the rows (line 3).

    Private-PGM models M_ijk by M_ij M_ik / M_i: the second and third column are independent given the first.

    >>> xor = np.array([[[5, 0], [0, 5]], [[0, 5], [5, 0]]]).ravel()
    >>> conditional_error(xor, (2, 2, 2)), conditional_error(np.full(8, 3), (2, 2, 2))
    (1.0, 0.0)
    """
    (i, j, k), cells = _occupied_cells(counts, shape)
    n = cells.sum()
    if n == 0:
        return 0.0
    ij, ik = i * shape[1] + j, i * shape[2] + k
    explained = _sum_by_key(ij, cells) * _sum_by_key(ik, cells) / _sum_by_key(i, cells)
    # The error of empty cells is the rest of the modelled counts, which sum to n.
    return float((np.abs(cells - explained).sum() + n - explained.sum()) / n)


def choose_cliques(public: Source, *, keep: Sequence[Clique] = (), error: float = 0.1) -> list[Clique]:
    """Return the pairs and triples that Algorithm 5 selects, without the cliques to keep.

    **Privacy.** Reads only the public table: the result is public, and nothing is charged.

    Args:
        public: the public table, coded by the private table's schema.
        keep: cliques to keep; their columns are connected first (line 1).
        error: triples with a smaller error in the tree are not added (line 4).
    """
    domain = public.domain
    tree = public_tree(public, keep)
    chosen = [*tree]
    for i, j, k in _find_triangles(public, tree, error):
        chosen += [domain.canonical((j, k)), domain.canonical((i, j, k))]
    kept = {frozenset(clique) for clique in keep}
    return [clique for clique in dict.fromkeys(chosen) if frozenset(clique) not in kept]


def public_tree(public: Source, keep: Sequence[Clique] = ()) -> list[Clique]:
    """Return the maximum spanning tree of mutual information (lines 1 and 2), pairs to keep first."""
    kept = {frozenset(pair) for clique in keep for pair in combinations(clique, 2)}
    weights = pair_information(public)
    raised = {pair: weight + _KEPT * (frozenset(pair) in kept) for pair, weight in weights.items()}
    return maximum_spanning_tree(raised)


def pair_information(public: Source) -> dict[Clique, float]:
    """Return the mutual information of every pair of columns with at least two codes."""
    domain = public.domain
    columns = [column for column, size in domain.items() if size > 1]
    pairs = list(combinations(columns, 2))
    return {pair: mutual_information(counts, domain.shape(pair)) for pair, counts in public.counts(pairs)}


def maximum_spanning_tree(weights: Mapping[Clique, float]) -> list[Clique]:
    """Return Kruskal's maximum spanning tree (or forest); ties are broken by the given order.

    >>> maximum_spanning_tree({("a", "b"): 1.0, ("b", "c"): 3.0, ("a", "c"): 2.0})
    [('b', 'c'), ('a', 'c')]
    """
    part = {column: column for pair in weights for column in pair}
    tree = []
    for pair in sorted(weights, key=weights.__getitem__, reverse=True):
        kept, gone = part[pair[0]], part[pair[1]]
        if kept != gone:
            part = {column: kept if name == gone else name for column, name in part.items()}
            tree.append(pair)
    return tree


def _find_triangles(public: Source, tree: Sequence[Clique], error: float) -> Iterable[Clique]:
    """Return, for each column, the tree of its neighbours whose triples have the largest errors (lines 3 and 4)."""
    neighbours: dict[str, list[str]] = {column: [] for column in public.domain}
    for a, b in tree:
        neighbours[a].append(b)
        neighbours[b].append(a)
    triples = [(i, *pair) for i, others in neighbours.items() for pair in combinations(others, 2)]
    errors: dict[str, dict[Clique, float]] = {column: {} for column in public.domain}
    for triple, counts in public.counts(triples):
        found = conditional_error(counts, public.domain.shape(triple))
        if found >= error:
            errors[triple[0]][triple[1:]] = found
    for i, weights in errors.items():
        yield from ((i, *pair) for pair in maximum_spanning_tree(weights))


def leave_out_large(domain: Domain, cliques: Iterable[Clique], max_cells: int) -> list[Clique]:
    """Return the cliques of fewer than `max_cells` cells (line 5).

    A pair that closes a triangle is left out together with its triple, even if the pair is small: the model would still
    have to hold the triangle.

    >>> leave_out_large(Domain({"a": 9, "b": 9, "c": 9}), [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")], 100)
    [('a', 'b'), ('a', 'c')]
    """
    cliques = list(cliques)
    closing = {clique: cliques[place - 1] for place, clique in enumerate(cliques) if place and len(clique) == 3}
    dropped = {clique for clique in cliques if domain.cells(clique) >= max_cells}
    dropped |= {pair for triple, pair in closing.items() if triple in dropped and set(pair) < set(triple)}
    return [clique for clique in cliques if clique not in dropped]


def _occupied_cells(counts: Counts, shape: tuple[int, ...]) -> tuple[tuple[NDArray[np.intp], ...], NDArray[np.float64]]:
    """Return the codes of non-empty cells, and their counts."""
    if isinstance(counts, SparseCounts):
        where, values = counts.cells, counts.counts
    else:
        where = np.flatnonzero(counts)
        values = counts[where]
    return np.unravel_index(where, shape), values.astype(np.float64)


def _x_log_x(counts: NDArray[Any]) -> float:
    """Return the sum of x log x."""
    positive = counts[counts > 0].astype(np.float64)
    return float(positive @ np.log(positive))


def _sum_by_key(keys: NDArray[np.intp], cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each cell the sum of the cells with its key."""
    _, place = np.unique(keys, return_inverse=True)
    return np.bincount(place, cells)[place].astype(np.float64)
