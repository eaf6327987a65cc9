"""The errors of any set of measured tables, by fitting made-up pairs of columns with the noise they would have.

A table of more columns tells each of its pairs through sums over the other columns. A pair that several tables cover is
known from all of them, a column from its own looks and from every table it is in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from understudy.model.consistency import norm_sub
from understudy.planning.noise import PlannedNoise
from understudy.planning.plausible import LARGEST, Pair, Problem, fitted, informed, plausible_column, plausible_table

Array = NDArray[np.float64]
Places = tuple[int, ...]

_NEWS = 0.33
"""How much of what a column's other tables tell is news to one of them, at least; everything where it is in two tables,
less the more there are: keeping counts non-negative makes all of them err in the same direction. Chosen by hand, see
benchmarks/plan.md."""

_UNKNOWN = 1e9  # the standard deviation of what was not measured, in rows


@dataclass(frozen=True, eq=False)
class Measured:
    """What a run measured.

    Attributes:
        declared: by column, the codes it is declared with.
        sizes: by column, the codes that are left after rare ones were merged.
        looks: by column, the precision of its own tables' cells, before codes were merged; 0 where there is none.
        cliques: the other tables, by the places of their columns in ascending order.
        sigmas: the standard deviations on their cells.
        threshold: the one by which codes were merged; 0 merges none.
        part: the part of the table's columns that these are.
        rough: how many times larger the errors of columns, and of pairs, are than a least-squares fit of the made-up
            tables leaves them.
    """

    declared: Array
    sizes: Array
    looks: Array
    cliques: Sequence[Places]
    sigmas: Sequence[float]
    threshold: float = 0.0
    part: float = 1.0
    rough: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Errors:
    """How runs came out.

    Attributes:
        one_way: the mean over columns of the mean absolute error of their cells.
        two_way: the same over pairs that some table covers; None where there are none.
        sigma: the median standard deviation with which a column's code is known.
        pair_sigma: the same for a pair's cell.
        pair_total: the mean summed error of a pair's table, in rows.
        pairs: how many pairs a run covers, on average.
    """

    one_way: float
    two_way: float | None
    sigma: float
    pair_sigma: float | None
    pair_total: float | None
    pairs: float


def errors_of(
    rng: np.random.Generator, runs: Sequence[Measured], rows: int, noise: PlannedNoise, *, pairs: int, cells: int
) -> Errors:
    """Draw and fit some of the pairs that runs cover; a column in none of them is fitted alone.

    Args:
        rng: for what is made up.
        runs: what was measured in each.
        rows: how many rows the table has.
        noise: the budget's noise.
        pairs: how many pairs to fit for each run, at most.
        cells: how many cells they may have together, at most; one pair is always fitted.
    """
    told = [_Told(run) for run in runs]
    problems: list[Problem] = []
    for run, known in zip(runs, told, strict=True):
        problems += _drawn(rng, run, known, rows, noise, pairs, cells)
    margins, tables = _compared(problems)
    of_columns, of_pairs = runs[0].rough
    margins, tables = [of_columns * error for error in margins], [of_pairs * wrong for wrong in tables]
    parts = [(np.mean(margins), sum(len(known.named) for known in told))] if margins else []
    alone = []
    for run, known in zip(runs, told, strict=True):
        columns = known.alone if margins else np.flatnonzero(run.looks).tolist()  # all was merged: no pair is left
        alone += [_alone(rng, run, column, rows, known.total, noise) for column in columns]
    parts += [(np.mean(alone), len(alone))] if alone else []
    pair_sigmas = [known_to**-0.5 for known in told for known_to in known.pairs.values()]
    precision = np.concatenate([known.columns for known in told])
    return Errors(
        one_way=float(np.average([mean for mean, _ in parts], weights=[weight for _, weight in parts])),
        two_way=float(np.mean([np.abs(table).mean() for table in tables])) if tables else None,
        sigma=float(np.median(precision[precision > 0] ** -0.5)),
        pair_sigma=float(np.median(pair_sigmas)) if tables else None,
        pair_total=float(np.mean([np.abs(table).sum() for table in tables])) if tables else None,
        pairs=len(pair_sigmas) / len(runs) / runs[0].part,
    )


class _Told:
    """How precisely the tables of a run tell the total, each column, each covered pair, and columns beside a pair."""

    def __init__(self, run: Measured) -> None:
        self.columns = run.looks.astype(np.float64)
        self.pairs: dict[tuple[int, int], float] = {}
        self.total = float((run.looks / run.declared).sum())
        self._tables = np.zeros(len(run.looks))
        self._inside: dict[tuple[int, int], Array] = {}
        for clique, sigma in zip(run.cliques, run.sigmas, strict=True):
            sizes = run.sizes[list(clique)]
            precision = sigma**-2 / float(sizes.prod())
            self.total += precision
            own = dict(zip(clique, (precision * sizes).tolist(), strict=True))
            self._tables[list(clique)] += precision * sizes
            for pair in combinations(clique, 2):
                here = precision * float(run.sizes[pair[0]] * run.sizes[pair[1]])
                self.pairs[pair] = self.pairs.get(pair, 0.0) + here
                self._inside[pair] = self._inside.get(pair, 0.0) + np.array([own[pair[0]], own[pair[1]]])
        each = sum(map(len, run.cliques)) / max(1, len({column for clique in run.cliques for column in clique}))
        self._news = min(1.0, max(_NEWS, 2 / max(each, 1)))
        self.columns += self._news * self._tables
        self.named = sorted({column for clique in run.cliques if len(clique) > 1 for column in clique})
        self.alone = [column for column in np.flatnonzero(run.looks).tolist() if column not in set(self.named)]

    def beside(self, pair: tuple[int, int]) -> list[float]:
        """How precisely tables that do not hold the pair tell its two columns, their own looks not counted."""
        rest = self._tables[list(pair)] - self._inside[pair]
        return [self._news * max(0.0, precision) for precision in rest.tolist()]


def _drawn(
    rng: np.random.Generator,
    run: Measured,
    told: _Told,
    rows: int,
    noise: PlannedNoise,
    pairs: int,
    cells: int,
) -> Iterable[Problem]:
    """Some of the pairs that a run covers, made up, with the noise that its tables leave on them."""
    covered = list(told.pairs)
    for place in rng.permutation(len(covered))[:pairs]:
        pair = covered[place]
        smaller = min(1.0, math.sqrt(LARGEST / float(run.declared[list(pair)].prod())))
        sizes = [max(2, int(run.declared[column] * smaller)) for column in pair]
        made = _looked(rng, run, pair, plausible_table(rng, sizes[0], sizes[1], rows), noise)
        cells -= made.counts.size
        if min(made.counts.shape) > 1:
            made = informed(rng, made, told.beside(pair))
            sigma = told.pairs[pair] ** -0.5
            total = max(1.0, made.counts.sum() + float(noise.draw(rng, told.total**-0.5, 1)[0]))
            yield Problem(made, made.counts + noise.draw(rng, sigma, made.counts.shape), sigma, total)
        if cells <= 0:
            return


def _looked(rng: np.random.Generator, run: Measured, pair: tuple[int, int], counts: Array, noise: PlannedNoise) -> Pair:
    """The pair with its columns' own looks, and rare codes merged."""
    sigmas, noisy = [], []
    for axis, column in enumerate(pair):
        look = float(run.looks[column])
        sigmas.append(np.full(counts.shape[axis], look**-0.5 if look else _UNKNOWN))
        noisy.append(counts.sum(axis=1 - axis) + (noise.draw(rng, sigmas[-1], len(sigmas[-1])) if look else 0.0))
    made = Pair(pair[0], pair[1], counts, noisy[0], sigmas[0], noisy[1], sigmas[1])
    return made.merged(run.threshold) if run.threshold else made


def _compared(problems: Sequence[Problem]) -> tuple[list[float], list[Array]]:
    """The mean errors of columns, and by how much each pair's cells are wrong."""
    tables = [made - problem.pair.counts for problem, made in zip(problems, fitted(problems), strict=True)]
    margins: dict[int, list[float]] = {}
    for problem, wrong in zip(problems, tables, strict=True):
        margins.setdefault(problem.pair.first, []).append(float(np.abs(wrong.sum(axis=1)).mean()))
        margins.setdefault(problem.pair.second, []).append(float(np.abs(wrong.sum(axis=0)).mean()))
    return [float(np.mean(found)) for found in margins.values()], tables


def _alone(
    rng: np.random.Generator, run: Measured, column: int, rows: int, precision: float, noise: PlannedNoise
) -> float:
    true = plausible_column(rng, int(run.declared[column]), rows)
    about = max(1.0, true.sum() + float(noise.draw(rng, precision**-0.5, 1)[0]))
    noisy = true + noise.draw(rng, float(run.looks[column]) ** -0.5, len(true))
    return float(np.abs(norm_sub(noisy, about) - true).mean())
