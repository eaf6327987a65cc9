"""The price of telling values that occur: a noisy count and a threshold, charged in rho and in delta.

**Privacy.** Let one unit have at most k rows. Values that other units have too are protected by the noise: their counts
move by a vector of L2 norm at most k (sqrt(2) k when a unit is replaced), which costs D^2 / (2 sigma^2) in rho. Values
that a unit alone has, at most k of them with at most k rows each, must not be told: each passes the threshold T with
probability at most P(X >= T - k), so any of them does with probability at most delta = k P(X >= T - k). Given that none
does, the answer is distributed exactly as that of a mechanism which looks only at values that both neighbouring tables
have. So the answer is delta-approximate rho-zCDP; `docs/decisions/discovery.md` has the proof in full.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from numbers import Real

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.privacy.accounting.charge import Charge, gaussian
from understudy.privacy.accounting.neighbours import Neighbours
from understudy.privacy.exact import exact_of, float_above
from understudy.privacy.fixed_point import exp_neg

_ROOT_TWO_PI = Fraction(250662, 100000)  # below sqrt(2 pi) = 2.5066282...


def tail_above(sigma: Fraction, t: int, bits: int = 256) -> Fraction:
    """A number not below P(X >= t) for the discrete Gaussian of parameter sigma, and t >= 1; nearly equal in the tail.

    The sum of exp(-x^2 / 2 sigma^2) over x >= t is at most exp(-t^2 / 2 sigma^2) / (1 - exp(-t / sigma^2)), because
    (t + j)^2 >= t^2 + 2 t j; over all x it is at least sqrt(2 pi) sigma (Poisson summation), and at least 1.
    """
    if t < 1:
        return Fraction(1)
    _, top = exp_neg(Fraction(t * t) / (2 * sigma**2), bits)
    _, ratio = exp_neg(Fraction(t) / sigma**2, bits)
    if ratio >= 1 << bits:
        return Fraction(1)
    whole = max(_ROOT_TWO_PI * sigma, Fraction(1))
    return min(Fraction(1), Fraction(top, (1 << bits) - ratio) / whole)


@lru_cache(maxsize=256)
def threshold_for(sigma: Fraction, max_rows: int, delta: Fraction) -> tuple[int, Fraction]:
    """The smallest threshold found that costs no more than `delta`, and what it costs.

    Raises:
        SettingError: when delta is not between 0 and 1.
    """
    if not 0 < delta < 1:
        raise SettingError("values are bought with a part of delta: give a delta above 0")
    bits = 128 + 2 * (delta.denominator // delta.numerator).bit_length()

    def cost(threshold: int) -> Fraction:
        return max_rows * tail_above(sigma, threshold - max_rows, bits)

    low, high = max_rows, max_rows + 1 + math.ceil(sigma)
    while cost(high) > delta:
        low, high = high, max_rows + 2 * (high - max_rows)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) > delta else (low, middle)
    return high, min(delta, Fraction(float_above(cost(high))))


def thresholded(
    about: tuple[Clique, ...], neighbours: Neighbours, *, share: Fraction, delta: float | Fraction
) -> Charge:
    """Telling the values of a column whose noisy count reaches a threshold, for at most `share` of rho and `delta`.

    Raises:
        SettingError: when delta is no number between 0 and 1.
    """
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 < delta < 1:
        raise SettingError("values are bought with a part of delta: give a delta above 0 and below 1")
    paid = gaussian("values", about, neighbours.marginal_l2_squared, share=share)
    threshold, cost = threshold_for(Fraction(paid.scale), neighbours.max_rows, exact_of(delta))
    return replace(paid, delta=cost, threshold=threshold)
