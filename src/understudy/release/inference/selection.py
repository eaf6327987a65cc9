"""Widen statements about a population for the fact that the measured pairs were chosen from the same rows.

A mechanism that chooses the pairs that depend most on each other *in the rows* prefers pairs whose relation the sample
exaggerates. The noise of the measurement is drawn after the choice and is independent of it: statements about the
table are valid as they are. The sampling error of a chosen pair is larger than that of a pair fixed in advance.

How much larger is bounded without knowing how the mechanism chose. If R of the K R pairs of a column were chosen, then
at worst those with the R largest sampling errors: a chosen error is a standard normal Z, given that |Z| is among the
largest 1/K, |Z| > c with P(|Z| > c) = 1/K. Hence

* its variance is E[Z^2 | |Z| > c] = 1 + 2 K c phi(c) instead of 1, and that of noise and gaps is as before;
* no quantile is larger than that at level alpha / K, whatever part of the error is sampling: P(A | B) <= P(A) / P(B).

The smaller of both is used. The second is the level at which Benjamini and Yekutieli (2005) make intervals of selected
parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from understudy.release.inference.corrected import Array, CorrectedTables

if TYPE_CHECKING:
    from understudy.release.release import Release

Pair: TypeAlias = frozenset[str]


class Choices:
    """The pairs that a mechanism chose to measure.

    Args:
        release: the release, for the record of its mechanism.
        tables: its tables.
    """

    def __init__(self, release: Release, tables: CorrectedTables) -> None:
        measured = {frozenset(pair) for clique in tables.cliques for pair in combinations(clique, 2)}
        self._chosen = measured
        if release.mechanism == "mst":  # its other pairs were fixed in advance, by `keep`
            self._chosen = measured & {frozenset(entry.get("chosen") or ()) for entry in release.rounds}
        others = len(tables.model.domain) - 1
        fixed = Counter(column for pair in measured - self._chosen for column in pair)
        each = Counter(column for pair in self._chosen for column in pair)
        self._per_choice = {column: (others - fixed[column]) / count for column, count in each.items()}

    def candidates(self, columns: Collection[str]) -> float:
        """Return K, the number of pairs for each chosen one: the largest over chosen pairs of some columns, or 1."""
        pairs = [pair for pair in map(frozenset, combinations(columns, 2)) if pair in self._chosen]
        return max([1.0, *(self._per_choice[column] for pair in pairs for column in pair)])


def widen_sampling(noise: Array, sampling: Array, candidates: float, confidence: float) -> Array:
    """Return the variance of the sampling errors of chosen statistics, so that normal intervals and tests hold.

    Args:
        noise: all other variance.
        sampling: the variance if the pairs had been fixed in advance.
        candidates: K.
        confidence: of the intervals.
    """
    from scipy import stats

    if candidates <= 1:
        return sampling
    usual, strict = (float(stats.norm.isf((1 - confidence) / 2 / k)) for k in (1, candidates))
    larger = (noise + sampling) * (strict / usual) ** 2 - noise
    return np.minimum(sampling * tail_variance(1, candidates), larger)


def tail_variance(df: float, candidates: float) -> float:
    """Return the mean of chi-square given that it is among the largest 1/K, divided by its mean.

    >>> tail_variance(1, 1.0), round(tail_variance(1, 20.0), 3)
    (1.0, 5.582)
    """
    from scipy import stats

    if candidates <= 1:
        return 1.0
    beyond = float(stats.chi2.isf(1 / candidates, df))
    return candidates * float(stats.chi2.sf(beyond, df + 2))
