"""Algorithm 6 of "Winning the NIST Contest": Kruskal's spanning tree with private selection, and cliques to keep."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.selection import FixedMarginals
from understudy.gate.table import LARGEST_TABLE
from understudy.measurement import Measurement
from understudy.mechanism.base import Footprint
from understudy.model.generate import re_express_all
from understudy.model.junction_tree import JunctionTree, limit_cliques
from understudy.model.tree import fit_one_ways
from understudy.progress import Progress, Step, silent

Kept: TypeAlias = tuple[tuple[Clique, float], ...]
"""Cliques that are always measured, with their weights; this form survives JSON."""


def parse_kept(keep: Any, *, setting: str = "keep") -> Kept:
    """Parse cliques to keep, given as a mapping to weights or a list of cliques and of (clique, weight).

    >>> parse_kept([("sex", "city"), (("sex", "age"), 6)])
    ((('sex', 'city'), 1.0), (('sex', 'age'), 6.0))

    Raises:
        SettingError: if a clique has no columns or is named twice, or a weight is not positive.
    """
    if isinstance(keep, str) or not isinstance(keep, Mapping | Sequence):
        raise SettingError(f"{setting}: give a list of cliques, such as [('sex', 'city')]")
    pairs = list(keep.items()) if isinstance(keep, Mapping) else [_parse_weighted(item, setting) for item in keep]
    for clique, weight in pairs:
        if not isinstance(clique, list | tuple) or not clique or not all(isinstance(column, str) for column in clique):
            raise SettingError(f"{setting}: name the columns of each clique, such as ('sex', 'city')")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise SettingError(f"{setting}: the weight of {clique} must be a positive, finite number")
    kept = tuple((tuple(clique), float(weight)) for clique, weight in pairs)
    if len({frozenset(clique) for clique, _ in kept}) != len(kept):
        raise SettingError(f"{setting}: a clique is given twice; give it once")
    return kept


def _parse_weighted(item: Any, setting: str) -> tuple[Clique, Any]:
    if isinstance(item, str) or not isinstance(item, Sequence):
        raise SettingError(f"{setting}: give cliques, or pairs of a clique and its weight")
    if len(item) == 2 and not isinstance(item[0], str) and isinstance(item[0], Sequence):
        return tuple(item[0]), item[1]
    return tuple(item), 1.0


Keep: TypeAlias = Annotated[Any, PlainValidator(parse_kept)]
"""A setting that names cliques to keep, in any form that `parse_kept` takes."""


def check_kept(domain: Domain, cliques: Iterable[Clique]) -> None:
    """Refuse cliques to keep that cannot be measured, before anything is spent.

    Raises:
        SchemaError: for an unknown column.
        SettingError: for a table that is too large.
    """
    for clique in cliques:
        if domain.cells(domain.check(clique)) > LARGEST_TABLE:
            raise SettingError(f"keep: the marginal of {clique} is too large; use fewer columns, or coarser ones")


RULED_MIB = 80.0
"""The largest junction tree of selected pairs together with rules, as long as other pairs are left."""

_COPIES = 10  # doubles that estimation holds for each cell of the model


class IndependentPairs(FixedMarginals):
    """The marginal of every pair of columns under independence, with which the private selections compare.

    Args:
        one_ways: the expected counts of each column.
        total: their sum.
    """

    def __init__(self, one_ways: Mapping[str, NDArray[np.float64]], total: float) -> None:
        self._counts = dict(one_ways)
        self._shares = {column: counts / total for column, counts in one_ways.items()}
        self._pairs = frozenset(pair for both in combinations(one_ways, 2) for pair in (both, both[::-1]))

    def __getitem__(self, clique: Clique) -> NDArray[np.float64]:
        first, second = clique
        return np.multiply.outer(self._counts[first], self._shares[second])

    def __contains__(self, clique: object) -> bool:
        return clique in self._pairs

    def __iter__(self) -> Iterator[Clique]:
        return combinations(self._counts, 2)

    def __len__(self) -> int:
        return math.comb(len(self._counts), 2)


def independent_pairs(table: PrivateTable, ones: Sequence[Measurement]) -> IndependentPairs:
    """Return every pair's marginal under independence (line 1 of Algorithm 6).

    Args:
        table: the private table, with codes merged.
        ones: measurements of the columns, before codes were merged.
    """
    expressed = re_express_all(table.declared_domain, ones, table.recoding)
    return IndependentPairs(*fit_one_ways(table.domain, expressed, total=table.rows_public))


def spanning_tree(
    table: PrivateTable,
    independent: FixedMarginals,
    *,
    rho: float,
    start: Collection[Clique] = (),
    max_cells: int,
    offsets: Mapping[Clique, float] | None = None,
    progress: Progress = silent,
) -> list[Clique]:
    """Select pairs that connect the columns as a tree, each privately from those that join two components.

    The score of a pair is the L1 distance of its marginal from the given one, minus its offset. Columns with a single
    code need no pair; pairs of more than `max_cells` cells are left out, so there may be several trees.

    **Privacy.** r - 1 selections of rho / (r - 1) each, for r components that can be joined (Theorem 3).

    Args:
        table: the private table.
        independent: each pair's marginal under independence.
        rho: the share for all selections together.
        start: cliques that are always measured; their columns count as connected.
        max_cells: the largest pair.
        offsets: subtracted from the scores, in rows; none by default.
        progress: called with each selection.
    """
    domain = table.domain
    pairs = eligible_pairs(domain, max_cells)
    components = Components(domain, start)
    draws = count_joins(domain, start, max_cells)
    tree: list[Clique] = []
    for draw in range(draws):  # line 6
        progress(Step("select", draw / draws, "pairs of columns"))
        pairs = [pair for pair in pairs if components.are_apart(pair)]  # line 7
        fitting = leave_room_for_rules(domain, pairs, [*start, *tree])
        wanted = None if offsets is None else {pair: offsets[pair] for pair in fitting}
        choice = table.select(fitting, against=independent, rho=rho / draws, offsets=wanted).clique  # line 8
        components.join(choice)
        tree.append(choice)  # line 9
    return tree


def leave_room_for_rules(domain: Domain, pairs: list[Clique], chosen: Iterable[Clique]) -> list[Clique]:
    """Return the pairs that keep the model small: with rules, whose columns share a clique, pairs may form cycles."""
    return (
        list(limit_cliques(domain, dict.fromkeys(pairs, 1.0), chosen, RULED_MIB)) if domain.rules and pairs else pairs
    )


def eligible_pairs(domain: Domain, max_cells: int) -> list[Clique]:
    """Return the candidate pairs: both columns with at least two codes, at most `max_cells` cells."""
    columns = [column for column, size in domain.items() if size > 1]
    return [pair for pair in combinations(columns, 2) if domain.cells(pair) <= max_cells]


def count_joins(domain: Domain, start: Iterable[Clique], max_cells: int) -> int:
    """Return the number of pairs of the tree, which is known in advance."""
    components = Components(domain, start)
    return sum(components.join(pair) for pair in eligible_pairs(domain, max_cells))


def largest_forest(domain: Domain, max_cells: int) -> list[int]:
    """Return the cells of each pair of the largest possible tree, as a bound of what a run needs.

    Merging codes may reduce a pair that is too large to `max_cells`, so larger pairs count as that.
    """
    columns = sorted((column for column, size in domain.items() if size > 1), key=domain.__getitem__, reverse=True)
    return [min(max_cells, domain.cells((columns[0], other))) for other in columns[1:]]


def tree_footprint(domain: Domain, forest: Sequence[int], kept: Sequence[Clique], *, candidates: int = 0) -> Footprint:
    """Return the memory and disk for a model of marginals with these numbers of cells and of cliques to keep."""
    check_kept(domain, kept)
    joined = int(JunctionTree.of(domain, kept).size_mib * 2**17) + 1 if kept or domain.rules else 0
    joined += int(RULED_MIB * 2**17) if domain.rules else 0
    measured = sum(domain.values()) + sum(forest) + sum(domain.cells(clique) for clique in kept)
    named = 16 + 2 * max(len(column) for column in domain)
    return Footprint(
        memory_bytes=8 * _COPIES * (sum(forest) + joined + sum(domain.values())) + (256 << 20),
        disk_bytes=16 * measured + 1024 * len(domain) + len(forest) * candidates * named // 2,
    )


class Components:
    """The connected components of columns."""

    def __init__(self, domain: Domain, start: Iterable[Clique]) -> None:
        self._of = {column: column for column in domain}
        for clique in start:
            for column in clique[1:]:
                self.join((clique[0], column))

    def are_apart(self, pair: Clique) -> bool:
        """Return whether the two columns are not connected."""
        return self._of[pair[0]] != self._of[pair[1]]

    def join(self, pair: Clique) -> bool:
        """Connect the two columns; return False if they were connected already."""
        kept, gone = self._of[pair[0]], self._of[pair[1]]
        if kept == gone:
            return False
        self._of = {column: kept if name == gone else name for column, name in self._of.items()}
        return True
