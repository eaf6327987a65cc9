"""What to expect of `independent` and `mst`: their own measurements on made-up tables, and a fit of each pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.mechanism.independent import Independent
from understudy.mechanism.mst import MST
from understudy.model.consistency import norm_sub
from understudy.planning.expected import VISIBLE, Expected
from understudy.planning.noise import PlannedNoise
from understudy.planning.plausible import LARGEST, Pair, Problem, fitted, informed, plausible_column, plausible_table

Array = NDArray[np.float64]

_SEED = 1  # the same question gets the same answer
_PAIRS = 150
_CELLS = 300_000


def expect_independent(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """What to expect of `independent`: every column's noisy table, made non-negative with a common total."""
    rng = np.random.default_rng(_SEED)
    sizes = np.array(list(domain.values()))
    sigmas = noise.fixed(Independent().plan(domain))
    total = _total_sigma(sizes, sigmas)
    errors = []
    for _ in range(max(1, _PAIRS // len(sizes))):
        for size, sigma in zip(sizes, sigmas, strict=True):
            true = plausible_column(rng, size, rows)
            about = max(1.0, true.sum() + float(noise.draw(rng, total, 1)[0]))
            made = norm_sub(true + noise.draw(rng, sigma, size), about)
            errors.append(float(np.abs(made - true).mean()))
    return Expected(float(np.mean(errors)), None, VISIBLE * float(np.median(sigmas)), None, None)


def expect_mst(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """What to expect of `mst`: columns, codes merged, a tree of pairs (drawn at random here), one fit of everything."""
    settings = MST()
    sizes = np.array([size for size in domain.values() if size > 1])
    if len(sizes) < 2:
        return _whole_budget(domain, rows, noise)
    rng = np.random.default_rng(_SEED)
    for_ones, for_pairs = settings.split[0] * noise.capacity, settings.split[2] * noise.capacity
    sigmas = noise.sigmas(sizes**settings.size_power, for_ones)
    outcomes: list[_Outcome] = []
    seen = 0
    for _ in range(max(1, _PAIRS // (len(sizes) - 1))):
        ties = _random_tree(rng, sizes)
        seen += sum(_cells(sizes, tie) for tie in ties)
        drawn = [_measured(rng, a, b, sizes, sigmas, rows, noise) for a, b in ties]
        tree = [pair for pair in (pair.merged(settings.threshold) for pair in drawn) if min(pair.counts.shape) > 1]
        weights = np.array([float(pair.counts.size) ** settings.size_power for pair in tree])
        share = for_pairs * len(ties) / (len(sizes) - 1)
        outcomes += _outcomes(rng, tree, noise.sigmas(weights, share), _total_sigma(sizes, sigmas), noise)
        if seen >= _CELLS:
            break
    if not outcomes:
        return replace(_whole_budget(domain, rows, noise), group=VISIBLE * float(np.median(sigmas)))
    return _summary(outcomes, float(np.median(sigmas)), rows)


@dataclass(frozen=True)
class _Outcome:
    """How one pair's table came out: errors of its cells and of its two columns' cells, sigma, cells."""

    columns: tuple[int, int]
    margins: tuple[float, float]
    cells: int
    error: float
    sigma: float


def _whole_budget(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """With no pairs to measure, everything goes to the columns."""
    return expect_independent(domain, rows, noise)


def _random_tree(rng: np.random.Generator, sizes: Array) -> list[tuple[int, int]]:
    """Each column after the first is tied to one before it: which pairs will be chosen is not known without rows.

    Where columns have many codes, a part of the tree has to do.
    """
    order = rng.permutation(len(sizes))
    ties = [(int(order[rng.integers(i)]), int(order[i])) for i in range(1, len(order))]
    cells = np.cumsum([_cells(sizes, tie) for tie in ties])
    return ties[: max(1, int((cells < _CELLS).sum()))]


def _cells(sizes: Array, tie: tuple[int, int]) -> int:
    return int(sizes[tie[0]] * sizes[tie[1]])


def _measured(
    rng: np.random.Generator, a: int, b: int, sizes: Array, sigmas: Array, rows: int, noise: PlannedNoise
) -> Pair:
    smaller = min(1.0, math.sqrt(LARGEST / _cells(sizes, (a, b))))  # a huge table is drawn smaller: rare codes merge
    first_size, second_size = (max(2, int(sizes[column] * smaller)) for column in (a, b))
    counts = plausible_table(rng, first_size, second_size, rows)
    by_row, by_column = np.full(len(counts), sigmas[a]), np.full(counts.shape[1], sigmas[b])
    first = counts.sum(axis=1) + noise.draw(rng, by_row, len(by_row))
    second = counts.sum(axis=0) + noise.draw(rng, by_column, len(by_column))
    return Pair(a, b, counts, first, by_row, second, by_column)


def _outcomes(
    rng: np.random.Generator, tree: Sequence[Pair], sigmas: Array, total_sigma: float, noise: PlannedNoise
) -> list[_Outcome]:
    """Fit pair after pair; each knows its columns from the other pairs as well."""
    known = _precision_of_columns(tree, sigmas)
    problems = []
    for pair, sigma in zip(tree, sigmas, strict=True):
        told = informed(rng, pair, _others(pair, sigma, known))
        total = max(1.0, pair.counts.sum() + float(noise.draw(rng, total_sigma, 1)[0]))
        problems.append(Problem(told, pair.counts + noise.draw(rng, sigma, pair.counts.shape), float(sigma), total))
    return [_outcome(problem, made) for problem, made in zip(problems, fitted(problems), strict=True)]


def _outcome(problem: Problem, made: Array) -> _Outcome:
    pair, wrong = problem.pair, made - problem.pair.counts
    margins = float(np.abs(wrong.sum(axis=1)).mean()), float(np.abs(wrong.sum(axis=0)).mean())
    return _Outcome((pair.first, pair.second), margins, wrong.size, float(np.abs(wrong).mean()), problem.sigma)


def _precision_of_columns(tree: Sequence[Pair], sigmas: Array) -> dict[int, float]:
    """How well the pairs tell each column's counts: the sum of 1 / (sigma^2 n), n the codes that are added up."""
    known: dict[int, float] = {}
    for pair, sigma in zip(tree, sigmas, strict=True):
        known[pair.first] = known.get(pair.first, 0.0) + 1 / (sigma**2 * pair.counts.shape[1])
        known[pair.second] = known.get(pair.second, 0.0) + 1 / (sigma**2 * pair.counts.shape[0])
    return known


def _others(pair: Pair, sigma: float, known: dict[int, float]) -> list[float]:
    """How precisely the other pairs tell the two columns."""
    rows, columns = pair.counts.shape
    return [known[pair.first] - 1 / (sigma**2 * columns), known[pair.second] - 1 / (sigma**2 * rows)]


def _total_sigma(sizes: Array, sigmas: Array) -> float:
    """How well all columns together tell the number of rows."""
    return float((1 / (sizes * sigmas**2)).sum() ** -0.5)


def _summary(outcomes: Sequence[_Outcome], sigma: float, rows: int) -> Expected:
    by_column: dict[int, list[float]] = {}
    for outcome in outcomes:
        for column, error in zip(outcome.columns, outcome.margins, strict=True):
            by_column.setdefault(column, []).append(error)
    return Expected(
        one_way=float(np.mean([np.mean(errors) for errors in by_column.values()])),
        two_way=float(np.mean([outcome.error for outcome in outcomes])),
        group=VISIBLE * sigma,
        pair_group=VISIBLE * float(np.median([outcome.sigma for outcome in outcomes])),
        pair_share=float(np.mean([outcome.error * outcome.cells for outcome in outcomes])) / rows,
    )
