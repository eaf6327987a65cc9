"""The expected error of what a mechanism measures, by running its measurements and a local fit on made-up tables.

**What is predicted.** Of every table that is measured, the mean absolute error of its cells in the released model, in
rows; the mean over tables, for tables of one column and of two. Codes merged as too rare are one cell. Pairs that are
not measured are in the model by what follows from others; how wrong that is cannot be known without the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.mechanism.independent import Independent
from understudy.mechanism.mst import MST
from understudy.model.consistency import norm_sub
from understudy.planning.noise import PlannedNoise
from understudy.planning.plausible import Pair, fitted, plausible_column, plausible_table

Array = NDArray[np.float64]

_SEED = 1  # the same question gets the same answer
_PAIRS = 150
_CELLS = 300_000
_LARGEST = 60_000
_VISIBLE = 3.0


@dataclass(frozen=True)
class Expected:
    """What to expect of a mechanism.

    Attributes:
        one_way: the mean absolute error of a cell of one column, in rows.
        two_way: the same for a measured pair of columns; None where no pair is measured.
        group: the smallest group in one column that stands out from noise: three standard deviations.
        pair_group: the same for a group told by two columns.
        pair_share: the summed error of a pair's table as a share of the rows; above 1 it says nothing.
    """

    one_way: float
    two_way: float | None
    group: float
    pair_group: float | None
    pair_share: float | None


Predictor = Callable[[Domain, int, PlannedNoise], Expected]


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
    return Expected(float(np.mean(errors)), None, _VISIBLE * float(np.median(sigmas)), None, None)


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
        return replace(_whole_budget(domain, rows, noise), group=_VISIBLE * float(np.median(sigmas)))
    return _summary(outcomes, float(np.median(sigmas)), rows)


PREDICTORS: dict[str, Predictor] = {"independent": expect_independent, "mst": expect_mst}
"""Mechanisms whose measurements are known well enough before a row is read."""


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
    smaller = min(1.0, math.sqrt(_LARGEST / _cells(sizes, (a, b))))  # a huge table is drawn smaller: rare codes merge
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
    return [
        _outcome(rng, _informed(rng, pair, sigma, known), sigma, total_sigma, noise)
        for pair, sigma in zip(tree, sigmas, strict=True)
    ]


def _outcome(rng: np.random.Generator, pair: Pair, sigma: float, total_sigma: float, noise: PlannedNoise) -> _Outcome:
    true = pair.counts
    total = max(1.0, true.sum() + float(noise.draw(rng, total_sigma, 1)[0]))
    wrong = fitted(pair, true + noise.draw(rng, sigma, true.shape), sigma, total) - true
    margins = float(np.abs(wrong.sum(axis=1)).mean()), float(np.abs(wrong.sum(axis=0)).mean())
    return _Outcome((pair.first, pair.second), margins, true.size, float(np.abs(wrong).mean()), float(sigma))


def _precision_of_columns(tree: Sequence[Pair], sigmas: Array) -> dict[int, float]:
    """How well the pairs tell each column's counts: the sum of 1 / (sigma^2 n), n the codes that are added up."""
    known: dict[int, float] = {}
    for pair, sigma in zip(tree, sigmas, strict=True):
        known[pair.first] = known.get(pair.first, 0.0) + 1 / (sigma**2 * pair.counts.shape[1])
        known[pair.second] = known.get(pair.second, 0.0) + 1 / (sigma**2 * pair.counts.shape[0])
    return known


def _informed(rng: np.random.Generator, pair: Pair, sigma: float, known: dict[int, float]) -> Pair:
    """The pair with what the other pairs tell about its columns added to their own measurements."""
    more_rows = known[pair.first] - 1 / (sigma**2 * pair.counts.shape[1])
    more_columns = known[pair.second] - 1 / (sigma**2 * pair.counts.shape[0])
    rows, rows_sigma = _combined(rng, pair.rows, pair.rows_sigma, pair.counts.sum(axis=1), more_rows)
    columns, columns_sigma = _combined(rng, pair.columns, pair.columns_sigma, pair.counts.sum(axis=0), more_columns)
    return replace(pair, rows=rows, rows_sigma=rows_sigma, columns=columns, columns_sigma=columns_sigma)


def _combined(
    rng: np.random.Generator, noisy: Array, sigma: Array, true: Array, precision: float
) -> tuple[Array, Array]:
    if precision * sigma.max() ** 2 < 1e-9:
        return noisy, sigma
    own = sigma**-2
    other = true + rng.standard_normal(len(true)) / math.sqrt(precision)
    return (noisy * own + other * precision) / (own + precision), (own + precision) ** -0.5


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
        group=_VISIBLE * sigma,
        pair_group=_VISIBLE * float(np.median([outcome.sigma for outcome in outcomes])),
        pair_share=float(np.mean([outcome.error * outcome.cells for outcome in outcomes])) / rows,
    )
