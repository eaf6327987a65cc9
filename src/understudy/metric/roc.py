"""How well a score tells two groups apart: the ROC curve, its area with an error, exact bounds of proportions."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

_NORMAL = NormalDist()


def auc(out: ArrayLike, inside: ArrayLike) -> tuple[float, float]:
    """Return the area under the ROC curve and its standard error (DeLong, DeLong and Clarke-Pearson 1988).

    The area is the probability that a score of `inside` exceeds one of `out`; ties count half.

    >>> area, error = auc([0, 1, 2, 3], [1, 2, 4, 5])
    >>> round(area, 6), round(error, 6)
    (0.75, 0.190941)
    """
    x, y = np.asarray(out, np.float64), np.asarray(inside, np.float64)
    n, m = len(x), len(y)
    together = _midranks(np.concatenate([x, y]))
    below = (together[n:] - _midranks(y)) / n  # of each inside score: the share of out scores below it
    above = 1 - (together[:n] - _midranks(x)) / m
    area = float(below.mean())
    spread = _variance(below) / m + _variance(above) / n
    return area, math.sqrt(spread)


def _midranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def _variance(values: NDArray[np.float64]) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def roc(out: ArrayLike, inside: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return false and true positives at every threshold, from none to all."""
    x, y = np.sort(np.asarray(out, np.float64)), np.sort(np.asarray(inside, np.float64))
    cuts = np.append(np.unique(np.concatenate([x, y]))[::-1], -np.inf)
    cuts = np.concatenate([[np.inf], cuts])
    false, true = (1 - np.searchsorted(z, cuts, side="left") / len(z) for z in (x, y))
    return false, true


def true_positives_at(out: ArrayLike, inside: ArrayLike, false_positives: float) -> float:
    """Return the share of `inside` above the threshold that at most this share of `out` passes."""
    x = np.sort(np.asarray(out, np.float64))
    allowed = math.floor(false_positives * len(x))
    threshold = x[len(x) - 1 - allowed] if allowed < len(x) else -math.inf
    return float((np.asarray(inside, np.float64) > threshold).mean())


def gaussian_power(mu: float, false_positives: ArrayLike) -> NDArray[np.float64]:
    """Return true positives of the best test of two normal distributions whose means are mu deviations apart."""
    f = np.atleast_1d(np.asarray(false_positives, np.float64))
    return np.array([_gaussian_power(float(one), mu) for one in f])


def _gaussian_power(f: float, mu: float) -> float:
    if not 0 < f < 1:
        return 0.0 if f <= 0 else 1.0
    return _NORMAL.cdf(_NORMAL.inv_cdf(f) + mu)


def auc_of_mu(mu: float) -> float:
    """Return the area under the curve of `gaussian_power`."""
    return _NORMAL.cdf(mu / math.sqrt(2))


def mu_of_auc(area: float) -> float:
    """Return the inverse of `auc_of_mu`; infinite for an area of 1.

    >>> round(mu_of_auc(0.62), 6)
    0.432015
    """
    if not 0 < area < 1:
        return math.copysign(math.inf, area - 0.5)
    return math.sqrt(2) * _NORMAL.inv_cdf(area)


# -- Exact bounds of a proportion (Clopper and Pearson 1934), by binomial tails.


def proportion_low(hits: int, runs: int, error: float) -> float:
    """Bound a proportion from below, given `hits` in `runs`; the bound is too large with probability at most `error`.

    >>> round(proportion_low(620, 1000, 0.05), 6)
    0.594014
    """
    if hits == 0:
        return 0.0
    low, high = 0.0, hits / runs
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(hits, runs, middle) <= error else (low, middle)
    return low


def proportion_high(hits: int, runs: int, error: float) -> float:
    """Return an upper bound of a proportion; too small with probability at most `error`.

    >>> round(proportion_high(411, 1000, 0.025), 6)
    0.44222
    """
    return 1 - proportion_low(runs - hits, runs, error)


def binomial_tail(hits: int, runs: int, share: float) -> float:
    """Return P(X >= hits) for a binomial X.

    >>> binomial_tail(1, 2, 0.5), binomial_tail(0, 5, 0.3)
    (0.75, 1.0)
    """
    if hits <= 0 or share >= 1:
        return 1.0
    if hits > runs or share <= 0:
        return 0.0
    if hits <= runs * share:
        return 1 - binomial_tail(runs - hits + 1, runs, 1 - share)
    width = min(runs - hits, 50 + 12 * math.ceil(math.sqrt(runs)))  # the terms fall faster than geometrically
    k = np.arange(hits, hits + width, dtype=np.float64)
    falling = np.concatenate([[1.0], np.cumprod((runs - k) / (k + 1) * (share / (1 - share)))])
    return float(math.exp(_log_binomial(hits, runs, share)) * falling.sum())


def _log_binomial(hits: int, runs: int, share: float) -> float:
    ways = math.lgamma(runs + 1) - math.lgamma(hits + 1) - math.lgamma(runs - hits + 1)
    return ways + hits * math.log(share) + (runs - hits) * math.log1p(-share)
