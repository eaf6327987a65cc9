"""The rounds of an adaptive mechanism, played on made-up dependences: which tables it would measure, and how well.

No rows and no model: every column and every pair has a distance from what the model says, in rows. One that was not
measured has what its made-up dependence says, one that was has what noise leaves. A triple is as far away as its
columns and pairs together. Scores, shares and the growth of shares are the mechanism's own; its limit on the size of
the model is not played.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.mechanism.aim import AIM
from understudy.planning.choices import merged_sizes
from understudy.planning.cost import MANY
from understudy.planning.measured import Measured, Places
from understudy.planning.noise import PlannedNoise
from understudy.planning.plausible import plausible_column, plausible_dependence

Array = NDArray[np.float64]

_LEFT = 0.3
"""How much of the noise a fit leaves on cells: margins are known from elsewhere, and none is negative."""

_EXPLAINED = 0.35
"""What is left of the distance of a pair that was not measured when two measured pairs lead from one column to the
other. This, `_LEFT` and `_NORM` were chosen by hand so that `aim` covers as many pairs as it does on Adult and Fire."""

_NORM = 1.1
"""How the distances of columns and pairs add up to that of a pair or triple: by this norm."""

_ROUGH, _CLEAR, _GROWS = (0.95, 1.5), 17_000, 0.15
"""How many times larger the errors of columns are than their pairs by themselves tell: 1 where all rows are so many
times the noise of the whole budget, growing with this power of it within these limits. Chosen by hand as above."""

_LARGE_TABLES = ((90_000, 0.15), (120_000, -0.22))
"""The same for columns and pairs of `mwem`, by the number of rows alone. Chosen by hand on Adult and Fire."""

_FEW, _WORTH_ASKING = 8, 0.002  # as `AIM` has them; a test compares


def of_rounds(rng: np.random.Generator, settings: AIM, domain: Domain, rows: int, noise: PlannedNoise) -> Measured:
    """What the mechanism would measure of a made-up table.

    Of very many columns a part is played, with its part of the budget: a run would take hours.
    """
    declared = np.array(list(domain.values()))
    looks, left = _looks(settings, declared, rows, noise)
    share = (noise.capacity if settings.anneal else left) / (settings.rounds * len(declared))
    if len(declared) > MANY:
        played = np.sort(rng.permutation(len(declared))[:MANY])
        left *= MANY / len(declared)
        declared, looks = declared[played], looks[played]
    merging = settings.threshold if settings.first else 0.0
    sizes = merged_sizes(rng, declared, looks, rows, noise, merging)
    world = _World(rng, sizes, looks, rows, noise)
    tables = list(_rounds(rng, settings, world, share, left, noise))
    cliques, sigmas = [clique for clique, _ in tables], [sigma for _, sigma in tables]
    rough = _after_looks(rows, noise) if settings.first else _without_looks(rows)
    return Measured(declared, sizes, looks, cliques, sigmas, merging, part=len(declared) / len(domain), rough=rough)


def _after_looks(rows: int, noise: PlannedNoise) -> tuple[float, float]:
    clear = rows / noise.single(noise.capacity) / _CLEAR
    return min(max(_ROUGH[0], clear**_GROWS), _ROUGH[1]), 1.0


def _without_looks(rows: int) -> tuple[float, float]:
    """Large tables alone: the more rows, the more cells are above zero, and the less of a pair's noise is left."""
    columns, pairs = (min(max(0.75, (rows / about) ** power), 1.25) for about, power in _LARGE_TABLES)
    return columns, pairs


def _looks(settings: AIM, declared: Array, rows: int, noise: PlannedNoise) -> tuple[Array, float]:
    """The precision of the first and second look at each column, and what they leave of the budget."""
    budget = noise.capacity
    if not settings.first:
        return np.zeros(len(declared)), budget
    weights = declared ** (1 / 3) if settings.look else np.ones(len(declared))
    first = noise.sigmas(weights, settings.first * budget)
    enough = settings.precise * np.maximum(1.0, _FEW / declared) * rows / (noise.magnitude * declared)
    again = (enough < first) & (declared > 1)
    needs = np.array([noise.cost(sigma) for sigma in enough])
    spend = float(min(settings.look * budget, needs[again].sum()))
    left = budget - settings.first * budget
    if spend <= _WORTH_ASKING * budget:
        return first**-2, left
    chosen = weights if spend < needs[again].sum() else np.sqrt(needs)
    second = np.zeros(len(declared))
    second[again] = noise.sigmas(chosen[again], spend) ** -2
    return first**-2 + second, left - spend


class _World:
    """What is made up, and how far the model is from it.

    Args:
        rng: for what is made up.
        sizes: codes of the columns after merging.
        looks: the precision of the columns' own tables.
        rows: how many rows.
        noise: the budget's noise.
    """

    def __init__(self, rng: np.random.Generator, sizes: Array, looks: Array, rows: int, noise: PlannedNoise) -> None:
        self.sizes, self.rows, self._magnitude = sizes, rows, noise.magnitude
        self.pairs = np.array(list(combinations(range(len(sizes)), 2)), dtype=np.int64).reshape(-1, 2)
        self.pair_cells = sizes[self.pairs].prod(axis=1)
        self.triples = np.array(list(combinations(range(len(sizes)), 3)), dtype=np.int64).reshape(-1, 3)
        self.triple_cells = sizes[self.triples].prod(axis=1)
        place = np.zeros((len(sizes), len(sizes)), dtype=np.int64)
        place[self.pairs[:, 0], self.pairs[:, 1]] = np.arange(len(self.pairs))
        a, b, c = self.triples.T
        self._places = place + place.T
        self._tied = np.zeros((len(sizes), len(sizes)), dtype=bool)
        self.parts = np.stack([place[a, b], place[a, c], place[b, c]], axis=1)
        self._columns_precision = looks.copy()
        self._pairs_precision = np.zeros(len(self.pairs))
        self.columns_away = self._noise_left(looks, sizes) if looks.all() else _uneven(rng, sizes, rows)
        self.pairs_away = rows * plausible_dependence(rng, sizes[self.pairs])

    def away(self) -> tuple[Array, Array]:
        """How far the model is from each pair and each triple, in rows."""
        columns, pairs = self.columns_away**_NORM, self.pairs_away**_NORM
        two = (pairs + columns[self.pairs].sum(axis=1)) ** (1 / _NORM)
        three = (pairs[self.parts].sum(axis=1) + columns[self.triples].sum(axis=1)) ** (1 / _NORM)
        most = 2.0 * self.rows
        return two / np.hypot(1, two / most), three / np.hypot(1, three / most)

    def learn(self, clique: Places, sigma: float) -> None:
        """The model fits a noisy table of these columns."""
        cells = float(self.sizes[list(clique)].prod())
        for column in clique:
            self._columns_precision[column] += sigma**-2 / (cells / self.sizes[column])
            self.columns_away[column] = self._noise_left(self._columns_precision[column], self.sizes[column])
        for pair in combinations(clique, 2):
            place = self._places[pair]
            if not self._pairs_precision[place]:
                self._explain(*pair)
            self._pairs_precision[place] += sigma**-2 / (cells / self.pair_cells[place])
            self.pairs_away[place] = self._noise_left(self._pairs_precision[place], self.pair_cells[place])

    def _explain(self, a: int, b: int) -> None:
        """A pair that was not measured follows in part from two that were, and share a column each with it."""
        for one, other in ((a, b), (b, a)):
            through = self._tied[other] & ~self._tied[one]
            through[one] = False
            self.pairs_away[self._places[one, through]] *= _EXPLAINED
        self._tied[a, b] = self._tied[b, a] = True

    def _noise_left(self, precision: Array, cells: Array) -> Array:
        return np.minimum(_LEFT * self._magnitude * precision**-0.5 * cells, 2.0 * self.rows)


def _uneven(rng: np.random.Generator, sizes: Array, rows: int) -> Array:
    """How far columns are from evenly spread over their codes, which is all a model knows that has seen nothing."""
    columns = [plausible_column(rng, int(size), rows) for size in sizes]
    return np.array([float(np.abs(column - column.mean()).sum()) for column in columns])


def _rounds(
    rng: np.random.Generator, settings: AIM, world: _World, share: float, left: float, noise: PlannedNoise
) -> Iterator[tuple[Places, float]]:
    """Algorithm 2 and 4, as `AIM.fit` has them: each round's table, and its noise."""
    while left > 0:
        if left <= (2 if settings.anneal else 1.5) * share:
            share = left
        left = 0.0 if share == left else left - share
        sigma = noise.single(settings.measured * share)
        expected = noise.magnitude * sigma
        chosen, before = _selected(rng, settings, world, expected, (1 - settings.measured) * share, noise)
        world.learn(chosen, sigma)
        yield chosen, sigma
        usual = expected * float(world.sizes[list(chosen)].prod())
        if settings.anneal and math.hypot(before, _LEFT * usual) <= usual:
            grown = share * (2 if noise.budget.pure else 4)
            share = max(share, min(grown, left / settings.fewest)) if settings.fewest else grown


def _selected(
    rng: np.random.Generator, settings: AIM, world: _World, expected: float, share: float, noise: PlannedNoise
) -> tuple[Places, float]:
    """The pair or triple that the exponential mechanism takes, and how far the model is from it."""
    two, three = world.away()
    old = settings.score == "cells"
    per_cell = 1.0 if old else expected
    pairs = (1.0 if old else 2.0) * (two - per_cell * world.pair_cells)
    triples = (1.0 if old else 3.0) * (three - per_cell * world.triple_cells)
    cells = np.concatenate([world.pair_cells, world.triple_cells])
    small = cells <= max(settings.max_cells, cells.min())
    small[: len(two)] &= settings.closure or not len(three)
    scores = np.where(small, np.concatenate([pairs, triples]), -np.inf)
    scale = 2 * noise.neighbours.marginal_l1 * (1.0 if old else 3.0) / noise.selecting(share)
    best = int(np.argmax(scores + scale * rng.gumbel(size=len(scores))))
    cliques, away = (world.pairs, two) if best < len(two) else (world.triples, three)
    place = best if best < len(two) else best - len(two)
    return tuple(cliques[place].tolist()), float(away[place])
