"""Estimate how strong a relation the mechanism may have missed between columns that were not measured together.

The means of a function that no measured margin explains come from the model alone. They are wrong by the correlation of
that function with whatever the model lacks: the *missed correlation*. It is estimated from what a release records of
the choice of its marginals: a pair that was not chosen lost against pairs whose relation is known; nothing is known of
a pair that was never a candidate. The distance of that relation from independence (or from the model) is divided by
2.5, and for each column by what corresponds to twice the standard deviation of a binary one. The constants were chosen
on releases of Adult, NLTCS and Salary and checked on other tables (benchmarks/inference.md).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.domain import Clique
from understudy.measurement import Measurement
from understudy.model.protocol import MODELS
from understudy.release.answer import collect_evidence
from understudy.release.bounds import Evidence, find_candidate
from understudy.release.inference.corrected import Array, CorrectedTables

if TYPE_CHECKING:
    from understudy.release.release import Release

LEAST = 0.03
"""The smallest missed correlation that is assumed: no mechanism looks for weaker ones."""

EVIDENCE = 8
"""The degrees of freedom of an estimated missed correlation."""

_PER_DISTANCE = 2.5  # L1 distance from independence of the pair that was preferred, for each unit of correlation


class Gaps:
    """The missed correlations of a release.

    Args:
        release: the release, for the record of its mechanism.
        tables: its tables.
    """

    def __init__(self, release: Release, tables: CorrectedTables) -> None:
        self._tables = tables
        self._scores = _read_scores(release.rounds)
        self._tree = _read_tree(release.rounds) if release.mechanism == "mst" else []
        rounds = not self._tree and self._scores is None
        self._lost = dict(_distances_of_selections(collect_evidence(release))) if rounds else {}

    def correlation(self, clique: Clique) -> float | None:
        """Return the missed correlation of a clique's columns that were not measured together; None if not known."""
        apart = [pair for pair in combinations(clique, 2) if not self._tables.is_measured(pair)]
        if self._scores is not None:
            known = self._correlation_of_scores(apart)
        elif self._tree:
            known = max((self._lost_distance(pair) / self._per_correlation(pair) for pair in apart), default=LEAST)
        else:
            known = self._correlation_of_selections(clique, apart)
        return None if known is None else min(1.0, max(LEAST, known))

    def _correlation_of_selections(self, clique: Clique, apart: Sequence[Clique]) -> float | None:
        """Return the missed correlation of a clique from the last selections that had its pairs as candidates (rounds).

        Nothing is known of a pair that was never a candidate, such as one of too many cells for the budget.
        """
        known: list[float] = []
        for part in apart or [clique]:
            lost = self._find_lost(part)
            if lost is not None:
                known.append(lost / self._per_correlation(part))
            elif self._lost and not apart:
                known.append(LEAST)  # all pairs were measured: as for mechanisms without rounds
            else:
                return None
        return max(known)

    def _find_lost(self, clique: Clique) -> float | None:
        """Return the largest plausible distance of a clique; at most that of a candidate that contains it."""
        own = self._lost.get(self._tables.model.domain.canonical(clique))
        around = [distance for other, distance in self._lost.items() if set(clique) <= set(other)]
        return own if own is not None else min(around, default=None)

    def _correlation_of_scores(self, apart: Sequence[Clique]) -> float | None:
        """Return the missed correlation from noisy distances from independence plus their sigma (PrivSyn)."""
        assert self._scores is not None  # noqa: S101 - the caller checked
        scores, sigma = self._scores
        if any(frozenset(pair) not in scores for pair in apart):
            return None
        distances = {pair: (max(scores[frozenset(pair)], 0.0) + sigma) / self._tables.rows for pair in apart}
        return max((distances[pair] / self._per_correlation(pair) for pair in apart), default=LEAST)

    def _lost_distance(self, pair: Clique) -> float:
        """Return the distance from independence of the last edge chosen on the path between two columns (MST)."""
        order = {frozenset(edge): number for number, edge in enumerate(self._tree)}
        kept = {frozenset(edge) for clique in self._tables.cliques for edge in combinations(clique, 2)}
        path = _find_path([*map(frozenset, self._tree), *(kept - order.keys())], *pair)
        chosen = [order[edge] for edge in path if edge in order]
        if chosen:
            return self._distance(self._tree[max(chosen)])
        return max(map(self._distance, self._tree))  # the pair was not a candidate

    def _per_correlation(self, pair: Clique) -> float:
        """Return the distance from independence of two columns that goes with each unit of their missed correlation.

        For two binary columns, the distance is the correlation times twice the standard deviation of each, which is
        the square root of 2 - 2 * sum(shares^2). A column of which nearly all rows have one value is taken likewise.
        """
        spread = 1.0
        for column in pair:
            shares = self._tables.shares((column,))
            spread *= min(1.0, math.sqrt(2 * max(1 - float((shares**2).sum()), 2e-4)))
        return _PER_DISTANCE * spread

    def _distance(self, edge: Clique) -> float:
        shares = self._tables.shares(edge)
        alone = np.multiply.outer(shares.sum(axis=1), shares.sum(axis=0))
        return float(np.abs(shares - alone).sum())


def _read_scores(rounds: Sequence[Mapping[str, Any]]) -> tuple[dict[frozenset[str], float], float] | None:
    """Return PrivSyn's noisy distances from independence by pair, in rows, and the sigma of their noise."""
    for entry in rounds:
        if "scores" in entry:
            values = np.asarray(entry["scores"], np.float64).tolist()
            pairs = map(frozenset, entry["scored"])
            return dict(zip(pairs, values, strict=True)), float(entry["scores_sigma"])
    return None


def _read_tree(rounds: Sequence[Mapping[str, Any]]) -> list[Clique]:
    """Return the pairs that MST chose one after the other, each by its own selection."""
    return [pair for entry in rounds if len(pair := tuple(entry.get("chosen") or ())) == len(set(pair)) == 2]


def _find_path(edges: Sequence[frozenset[str]], start: str, end: str) -> list[frozenset[str]]:
    """Return the edges of a shortest path between two columns; none if they are not connected."""
    reached: dict[str, list[frozenset[str]]] = {start: []}
    waiting = deque([start])
    while waiting and end not in reached:
        here = waiting.popleft()
        for edge in edges:
            if here in edge:
                (there,) = edge - {here}
                if there not in reached:
                    reached[there] = [*reached[here], edge]
                    waiting.append(there)
    return reached.get(end, [])


def _distances_of_selections(evidence: Evidence) -> Iterator[tuple[Clique, float]]:
    """Yield cliques with their largest plausible distance from the model, as a share of the rows (rounds).

    In the last round that had it as a candidate, another clique was preferred, whose measurement shows how wrong the
    model was. With the same score, the clique would have been as likely to be chosen; a score higher by `chance` would
    have made it e times as likely.
    """
    places = {number: clique for number, (clique, _) in enumerate(evidence.cliques)}
    weights = dict(evidence.cliques)
    for stage in evidence.stages:
        entry = stage.round
        if entry is None or "model" not in entry:
            continue
        chosen = evidence.model.domain.canonical(entry["chosen"])
        score = 0.0  # of the empty clique, which stands for none
        if chosen:
            before = MODELS[entry["kind"]].from_arrays(evidence.model.domain, entry["model"])
            error = _distance_without_noise(stage.measurements[-1], before.project(stage.measurements[-1].clique))
            score = weights[chosen] * (error - float(entry["offsets"][find_candidate(evidence, entry, chosen)]))
        chance = 2 * float(entry["sensitivity"]) / float(entry["epsilon"])
        for place in np.asarray(entry["last"]).tolist():
            clique = places[place]
            if weights[clique] > 0:
                offset = float(entry["offsets"][find_candidate(evidence, entry, clique)])
                distance = offset + (score + chance) / weights[clique]
                yield clique, max(0.0, distance) / evidence.model.total


def _distance_without_noise(measurement: Measurement, expected: Array) -> float:
    """Return the L1 distance of a measured marginal from an expected one, less what the noise adds to it."""
    seen = float(np.abs(measurement.values - expected.reshape(-1)).sum())
    each = math.sqrt(2 / math.pi) if measurement.noise == "gaussian" else math.sqrt(0.5)
    return math.sqrt(max(0.0, seen**2 - (each * measurement.sigma * len(measurement.values)) ** 2))
