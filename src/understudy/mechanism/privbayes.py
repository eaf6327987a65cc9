"""`privbayes`: a Bayesian network of low degree, chosen privately (Zhang et al. 2014, "PrivBayes", general domains).

Differences from the paper are explained in docs/decisions/privbayes.md; paper mode undoes what is a setting.
With `generator="pgm"` it is PrivBayes+PGM (McKenna et al. 2019).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, noisy_total
from understudy.mechanism.base import Count, Footprint, Mechanism, NotNegative, Positive, Share, one_way
from understudy.mechanism.columns_first import measure_rows
from understudy.mechanism.compress import compress
from understudy.model.fit import Fit
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree, limit_cliques
from understudy.model.protocol import Model
from understudy.model.tree import MeasuredTable, average_measurements, estimate_rows, nearest_counts
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

Family: TypeAlias = Clique
"""An attribute-parent pair as one clique: the child first, then its parents."""

_LEAST_PROBABILITY = 1e-9  # the smallest probability of a value if there are rules, so that some row is possible


class PrivBayes(Mechanism):
    """Select parents for one column after another, measure each column with its parents, sample in that order.

    A column and its parents are selected together, by their dependence (score R). Their marginal is theta-useful: the
    mean count of its cells is at least `theta` times their noise.

    **Privacy.** Four kinds of questions to the gate: a column for the number of rows if it is not public, a first
    measurement of columns with too many codes, one selection for each column but the first, and the marginals. The
    first column, the candidates and the largest marginal follow from the schema, the settings and earlier answers.

    Attributes:
        beta: the part of the budget for selecting the network; the rest is for measuring.
        theta: the smallest ratio of a marginal's mean count to its mean noise per cell.
        first: the part of the budget for a first measurement of columns that have no useful pair; 0 for none.
        threshold: codes of these columns whose noisy count is below this many standard deviations are merged.
        every_table: also measure marginals that another one contains; never in binary domains.
        clip: set negative counts to zero; otherwise use the nearest non-negative marginal with the same sum.
        max_cells: the largest marginal.
        max_candidates: columns have fewer parents, but at least one, if there would be more candidates than this.
        max_mib: candidates that would make the junction tree of the network larger are left out.
        generator: "network", sampling from the network; "pgm", a graphical model of its tables; "gum", gradual updates;
            "rap", relaxed projection.
    """

    name = "privbayes"
    paper = "Zhang, Cormode, Procopiuc, Srivastava and Xiao 2014, PrivBayes (general domains, score R)"
    when = "Pure differential privacy, or columns that explain each other in an order."

    beta: Share = 0.3
    theta: Positive = 4.0
    first: Annotated[float, Field(ge=0, lt=1)] = 0.3
    threshold: NotNegative = 3.0
    every_table: bool = False
    clip: bool = False
    max_cells: Count = 100_000
    max_candidates: Count = 5000
    max_mib: Positive = 80.0
    generator: Literal["network", "pgm", "gum", "rap"] = "network"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: no first measurement, every marginal measured, negative counts set to zero."""
        return {"first": 0.0, "every_table": True, "clip": True}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Select the network (GreedyBayes), measure its marginals (NoisyConditionals)."""
        declared = table
        ones, left = measure_rows(table, [], rho)
        cells = self._useful_cells(table, table.rows_public or noisy_total(ones), (1 - self.beta) * left)
        if self.first and (wide := split_columns(table.domain, cells)[0]):
            progress(Step("measure", 0.0, "one-way marginals"))
            seen = table.measure([(column,) for column in wide], rho=self.first * left)
            ones, left, table = [*ones, *seen], (1 - self.first) * left, self._merge(declared, seen)
        alone, waiting = split_columns(table.domain, cells)
        network: list[Family] = [(column,) for column in [*alone, *waiting[:1]]]
        share = self.beta * left / max(1, len(waiting) - 1)
        for chosen in range(1, len(waiting)):
            progress(Step("select", chosen / len(waiting), "columns and their parents"))
            candidates = self._candidates(table, network, waiting, cells)
            family = candidates[0]
            if len(candidates) > 1:
                family = table.select(candidates, rho=share).clique  # by score R
                left -= share
            network.append(family)
        progress(Step("measure", 0.5, "columns with their parents"))
        tables = table.measure(self._families(table.domain, network), rho=left)
        if not network:  # no column has two codes left: measure columns again
            tables = declared.measure(one_way(declared.domain), rho=left)
            table = self._merge(declared, [*ones, *tables])
        rounds = [{"chosen": list(family)} for family in network if len(family) > 1]
        return self.conclude(table, [*ones, *tables], rounds=rounds, progress=progress)

    def own_model(
        self, domain: Domain, measurements: Sequence[Measurement], recoding: Recoding, total: float | None
    ) -> Model | None:
        """Return the model of the network, or None if another generator was chosen."""
        if self.generator != "network":
            return None
        return self._network_model(recoding.recode(domain), re_express_all(domain, measurements, recoding), total)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of the marginals, of candidates being counted, and of the junction tree.

        All marginals together have at most twice the cells of the tree: within one of its cliques, each is at least
        twice as large as the one before.
        """
        tree = min(int(self.max_mib * 2**17), len(domain) * domain.cells())
        cells = sum(domain.values()) + min(len(domain) * min(self.max_cells, domain.cells()), 2 * tree)
        return Footprint(memory_bytes=64 * cells + 32 * tree + (64 << 20), disk_bytes=24 * cells + 1024 * len(domain))

    def _merge(self, table: PrivateTable, ones: Sequence[Measurement]) -> PrivateTable:
        return table.recode(compress(table.domain, ones, table.code_groups, threshold=self.threshold))

    def _useful_cells(self, table: PrivateTable, rows: float, rho: float) -> int:
        """Return the most cells of a theta-useful marginal: its mean count is at least theta times the mean noise.

        There are as many marginals as columns; in binary domains with k parents each, k fewer, because the marginal of
        column k + 1 contains those of the columns before it.
        """
        columns = max(1, sum(size > 1 for size in table.domain.values()))

        def most(tables: int) -> float:
            return rows / (self.theta * table.expected_noise(rho / tables))

        if not is_binary(table.domain):
            return int(min(most(columns), self.max_cells))
        degrees = [k for k in range(columns) if 2 ** (k + 1) <= most(columns - k)]
        return int(min(2 ** (max(degrees, default=0) + 1), self.max_cells))

    def _candidates(
        self, table: PrivateTable, network: Sequence[Family], columns: Sequence[str], cells: int
    ) -> list[Family]:
        """Return every remaining column with each of its maximal parent sets; smaller sets if there are too many."""
        domain, known = table.domain, {family[0] for family in network}
        parents = [column for column in columns if column in known]
        children = [column for column in columns if column not in known]
        for degree in range(max(1, largest_degree(domain, parents, cells)), 0, -1):
            rooms = [cells // domain[child] for child in children]
            if degree > 1 and count_at_least(domain, parents, rooms, degree) > self.max_candidates:
                continue
            families = (
                (child, *chosen)
                for child, room in zip(children, rooms, strict=True)
                for chosen in maximal_parents(domain, parents, room, degree)
            )
            found = list(islice(families, self.max_candidates + 1 if degree > 1 else None))
            if degree > 1 and len(found) > self.max_candidates:
                continue
            countable = [family for family in found if table.can_measure(family)] or [(child,) for child in children]
            if degree == 1 and not domain.rules:  # a new column and one parent make no other clique of the tree larger
                return countable
            fitting = list(limit_cliques(domain, dict.fromkeys(countable, 1.0), network, self.max_mib))
            if degree == 1 or JunctionTree.of(domain, [*network, fitting[0]]).size_mib <= self.max_mib:
                break
        return fitting

    def _families(self, domain: Domain, network: Sequence[Family]) -> list[Clique]:
        """Return the cliques to measure: each column, then its parents in reverse order, which encodes the network."""
        place = {family[0]: i for i, family in enumerate(network)}
        cliques = [(child, *sorted(parents, key=place.__getitem__, reverse=True)) for child, *parents in network]
        if self.every_table and not is_binary(domain):
            return cliques
        sets = [frozenset(clique) for clique in cliques]
        contained = [any(mine < other for other in sets) for mine in sets]
        return [clique for clique, inner in zip(cliques, contained, strict=True) if not inner]

    def _network_model(
        self, domain: Domain, measurements: Sequence[Measurement], total: float | None
    ) -> GraphicalModel:
        """Return the model in which each column depends on its parents as in their marginal.

        The potentials of the graphical model are the logarithms of the conditional distributions, so sampling from it
        draws the columns one by one, each given its parents. Its rows satisfy the rules.
        """
        tables = average_measurements(domain, measurements)
        rows = estimate_rows(tables) if total is None else float(total)
        counts = {clique: self._remove_negative(table, rows) for clique, table in tables.items()}
        potentials: dict[Clique, NDArray[np.float64]] = {(): np.zeros(())}
        for family, clique in families_of(domain, measurements).items():
            home, mine = domain.canonical(clique), domain.canonical(family)
            joint = counts[home].sum(axis=tuple(i for i, column in enumerate(home) if column not in mine))
            conditional = condition(joint, mine.index(family[0]), least=_LEAST_PROBABILITY if domain.rules else 0.0)
            with np.errstate(divide="ignore"):
                potentials[mine] = np.log(conditional)
        return GraphicalModel(domain, potentials, total=rows)

    def _remove_negative(self, table: MeasuredTable, rows: float) -> NDArray[np.float64]:
        if self.clip:
            return np.maximum(table.values, 0.0)
        precision = np.broadcast_to(table.precision, table.values.shape)
        return nearest_counts(table.values.ravel(), precision.ravel(), rows).reshape(table.values.shape)


# The network: pure functions of the domain


def is_binary(domain: Domain) -> bool:
    """Return whether columns have at most two codes, and some have two."""
    return max(domain.values()) == 2


def split_columns(domain: Domain, cells: int) -> tuple[list[str], list[str]]:
    """Split columns into those without a useful pair and the others, by their sizes.

    If a column has any useful pair, its pair with the smallest column is useful.
    """
    columns = [column for column, size in domain.items() if size > 1]
    sizes = sorted(domain[column] for column in columns)[:2]
    if len(sizes) < 2 or sizes[0] * sizes[1] > cells:
        return columns, []
    linked = [column for column in columns if domain[column] * sizes[0] <= cells]
    return [column for column in columns if column not in linked], linked


def largest_degree(domain: Domain, columns: Sequence[str], cells: int) -> int:
    """Return the most of these columns that a marginal of this many cells can have."""
    products = accumulate(sorted(domain[column] for column in columns), lambda one, other: one * other)
    return sum(product <= cells for product in products)


def count_at_least(domain: Domain, columns: Sequence[str], rooms: Sequence[int], degree: int) -> int:
    """Return a lower bound of the number of sets of `degree` columns within several limits of cells, summed."""
    powers = sorted(domain[column] ** degree for column in columns)
    return sum(math.comb(bisect_right(powers, room), degree) for room in rooms)


def maximal_parents(domain: Domain, columns: Sequence[str], cells: int, degree: int) -> Iterator[Clique]:
    """Yield the maximal sets of at most `degree` columns with at most this many cells: Max(V, tau).

    If no column fits, the only set is empty. A set keeps the order of the columns.

    >>> list(maximal_parents(Domain({"a": 2, "b": 2, "c": 3}), "abc", 6, 3))
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    ordered = sorted((column for column in columns if domain[column] <= cells), key=domain.__getitem__)
    sizes = [domain[column] for column in ordered]
    place = {column: i for i, column in enumerate(columns)}
    products = list(accumulate(reversed(sizes), lambda one, other: one * other, initial=1))[::-1]

    def grow(chosen: Clique, start: int, cells: int, skipped: float) -> Iterator[Clique]:
        """Add columns from `start` on, by size; `skipped` is the smallest size of a column that was passed over."""
        room = degree - len(chosen)
        if not room or (skipped > cells and (start == len(sizes) or sizes[start] > cells)):
            yield tuple(sorted(chosen, key=place.__getitem__))
            return
        for i in range(start, len(sizes)):
            if sizes[i] > cells:
                break
            if room > len(sizes) - i and cells // products[i] >= skipped:
                break  # the column that was passed over still fits when all others are added
            yield from grow((*chosen, ordered[i]), i + 1, cells // sizes[i], skipped)
            skipped = min(skipped, sizes[i])

    return grow((), 0, cells, math.inf)


def families_of(domain: Domain, measurements: Sequence[Measurement]) -> dict[Family, Clique]:
    """Return each column with its parents, and the measured clique that contains them, column first.

    This is the clique that begins with the column, or else one with the most parent cells, by the most precise
    measurement.
    """
    found: dict[Family, Clique] = {}
    for column in domain:
        homes = [measurement for measurement in measurements if column in measurement.clique]
        if not homes or domain[column] == 1:
            continue

        def rank(home: Measurement, column: str = column) -> tuple[bool, int, float]:
            family = home.clique[home.clique.index(column) :]
            own = home.clique[0] == column and len(family) > 1
            return own, domain.cells(family), -domain.cells(home.clique) * home.sigma**2

        best = max(homes, key=rank).clique
        found[best[best.index(column) :]] = best
    return found


def condition(joint: NDArray[np.float64], axis: int, *, least: float = 0.0) -> NDArray[np.float64]:
    """Return the distribution along an axis given the others: uniform if there are no counts, at least `least`."""
    sums = joint.sum(axis=axis, keepdims=True)
    uniform = np.full(joint.shape, 1.0 / joint.shape[axis])
    shares = np.divide(joint, sums, out=uniform, where=sums > 0)
    found: NDArray[np.float64] = np.maximum(shares, least)
    return found
