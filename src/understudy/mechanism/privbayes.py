"""`privbayes`: a Bayesian network of low degree, chosen privately (Zhang et al. 2014, "PrivBayes", general domains).

Where it differs from the paper, and why, is in docs/decisions/privbayes.md; paper mode undoes what is a setting.
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

from understudy.domain import NO_GROUPS, Clique, CodeGroups, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, noisy_total
from understudy.mechanism.base import Count, Footprint, Mechanism, NotNegative, Positive, Share, one_way
from understudy.mechanism.compress import compress
from understudy.model.fit import Fit
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree, cliques_within
from understudy.model.tree import MeasuredTable, implied_rows, measured_tables, nearest_counts
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

Family: TypeAlias = Clique
"""An attribute-parent pair as one clique: the child first, then its parents."""

_FOR_ROWS = 0.01  # the part of the budget for the number of rows, where it is not public
_POSSIBLE = 1e-9  # the least probability of a value given its parents, where rules may leave no other


class PrivBayes(Mechanism):
    """Choose parents for one column after another, measure each column with its parents, sample in that order.

    A column and its parents are chosen together, by how much the column depends on them (score R). Their table is
    theta-useful: it has few enough cells that their mean count is `theta` times the noise on them.

    **Privacy.** Four kinds of calls to the gate: a column for the number of rows where that is not public, a first look
    at columns that are too wide, one selection for each column but the first, and the tables. The first column, the
    candidates and the largest table follow from the schema, the settings and earlier answers.

    Attributes:
        beta: the part of the budget for choosing the network; the rest measures its tables.
        theta: how many times the mean noise on a cell the mean count of a table's cells must be.
        first: the part of the budget for a first look at columns too wide for a useful table with another; 0 for none.
        threshold: codes of these columns whose noisy count is below this many standard deviations are merged.
        every_table: measure the table of every column, also where the table of a later column contains it; binary
            domains never do.
        clip: set negative counts to zero; else take the nearest table without them that has the right sum.
        max_cells: no table has more cells.
        max_candidates: columns have fewer parents where there would be more candidates than this, but at least one.
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
        """No first look, every table measured, negative counts set to zero."""
        return {"first": 0.0, "every_table": True, "clip": True}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Choose the network (GreedyBayes), measure its tables (NoisyConditionals)."""
        declared = table
        ones, left = self._count_rows(table, rho)
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
        if not network:  # no column has two codes left: look again
            tables = declared.measure(one_way(declared.domain), rho=left)
            table = self._merge(declared, [*ones, *tables])
        rounds = [{"chosen": list(family)} for family in network if len(family) > 1]
        return self.conclude(table, [*ones, *tables], rounds=rounds, progress=progress)

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        groups: CodeGroups = NO_GROUPS,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """Sample from the network; or make a graphical model of its tables, or gradual updates."""
        if self.generator != "network":
            return super().finish(
                domain, measurements, recoding=recoding, groups=groups, total=total, progress=progress
            )
        progress(Step("estimate", None, "conditional tables"))
        model = self._network_model(recoding.recode(domain), re_express_all(domain, measurements, recoding), total)
        return Fit(model, measurements, recoding)

    def footprint(self, domain: Domain) -> Footprint:
        """The tables in a few copies, a group of candidates being counted, the junction tree.

        All tables together have at most twice the cells of the tree: those within one of its cliques grow with each of
        their columns, at least twofold.
        """
        tree = min(int(self.max_mib * 2**17), len(domain) * domain.cells())
        cells = sum(domain.values()) + min(len(domain) * min(self.max_cells, domain.cells()), 2 * tree)
        return Footprint(memory_bytes=64 * cells + 32 * tree + (64 << 20), disk_bytes=24 * cells + 1024 * len(domain))

    def _count_rows(self, table: PrivateTable, rho: float) -> tuple[list[Measurement], float]:
        """The smallest column, for the number of rows where that is not public, and what is left of the budget."""
        if table.rows_public is not None:
            return [], rho
        smallest = min(table.domain, key=table.domain.__getitem__)
        return table.measure([(smallest,)], rho=_FOR_ROWS * rho), (1 - _FOR_ROWS) * rho

    def _merge(self, table: PrivateTable, ones: Sequence[Measurement]) -> PrivateTable:
        return table.recode(compress(table.domain, ones, table.code_groups, threshold=self.threshold))

    def _useful_cells(self, table: PrivateTable, rows: float, rho: float) -> int:
        """The most cells of a theta-useful table: its mean count is at least theta times the mean noise of a cell.

        There are as many tables as columns; of binary columns with k parents each, k fewer: the table of column k + 1
        contains those of the columns before it.
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
        """Every column that is left with each of its maximal parent sets; with fewer parents where these are many."""
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
            if degree == 1 and not domain.rules:  # a new column and one parent make no other table of the tree larger
                return countable
            fitting = list(cliques_within(domain, dict.fromkeys(countable, 1.0), network, self.max_mib))
            if degree == 1 or JunctionTree.of(domain, [*network, fitting[0]]).size_mib <= self.max_mib:
                break
        return fitting

    def _families(self, domain: Domain, network: Sequence[Family]) -> list[Clique]:
        """What to measure: each column and its parents in reverse order, so that the cliques tell the network."""
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
        """The distribution in which each column depends on its parents as in their table.

        The potentials of the graphical model are the logarithms of the conditional tables, so that drawing from it is
        drawing the columns one after the other, each given its parents. Its rows obey the rules.
        """
        tables = measured_tables(domain, measurements)
        rows = implied_rows(tables) if total is None else float(total)
        counts = {clique: self._remove_negative(table, rows) for clique, table in tables.items()}
        potentials: dict[Clique, NDArray[np.float64]] = {(): np.zeros(())}
        for family, clique in families_of(domain, measurements).items():
            home, mine = domain.canonical(clique), domain.canonical(family)
            joint = counts[home].sum(axis=tuple(i for i, column in enumerate(home) if column not in mine))
            conditional = condition(joint, mine.index(family[0]), least=_POSSIBLE if domain.rules else 0.0)
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
    """Whether columns have two codes at most, and some have two."""
    return max(domain.values()) == 2


def split_columns(domain: Domain, cells: int) -> tuple[list[str], list[str]]:
    """Columns that stand alone because no table of two columns with them is useful, and the others; by their sizes.

    A column that goes with any other goes with the smallest, so that all others can be joined.
    """
    columns = [column for column, size in domain.items() if size > 1]
    sizes = sorted(domain[column] for column in columns)[:2]
    if len(sizes) < 2 or sizes[0] * sizes[1] > cells:
        return columns, []
    linked = [column for column in columns if domain[column] * sizes[0] <= cells]
    return [column for column in columns if column not in linked], linked


def largest_degree(domain: Domain, columns: Sequence[str], cells: int) -> int:
    """How many of these columns a table of this many cells can have at most."""
    products = accumulate(sorted(domain[column] for column in columns), lambda one, other: one * other)
    return sum(product <= cells for product in products)


def count_at_least(domain: Domain, columns: Sequence[str], rooms: Sequence[int], degree: int) -> int:
    """A lower bound of how many sets of `degree` columns have at most so many cells, summed over several limits."""
    powers = sorted(domain[column] ** degree for column in columns)
    return sum(math.comb(bisect_right(powers, room), degree) for room in rooms)


def maximal_parents(domain: Domain, columns: Sequence[str], cells: int, degree: int) -> Iterator[Clique]:
    """Sets of at most `degree` columns with at most this many cells to which none can be added: Max(V, tau).

    The empty set is the only one where no column fits. A set keeps the order of the columns.

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
    """Each column with its parents, and the measured clique that tells them; the parents stand behind it in the clique.

    That is the clique in which the column is the first, or else one with the largest table of parents, by the most
    precise measurement.
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
    """The distribution along an axis given the others: uniform where there are no counts, at least `least`."""
    sums = joint.sum(axis=axis, keepdims=True)
    uniform = np.full(joint.shape, 1.0 / joint.shape[axis])
    shares = np.divide(joint, sums, out=uniform, where=sums > 0)
    found: NDArray[np.float64] = np.maximum(shares, least)
    return found
