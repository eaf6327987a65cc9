"""Charges, and the exact cost of each kind of noise."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any, Literal

from pydantic import TypeAdapter

from understudy.accounting.exact import Exact, exp_neg, float_above, float_below, sqrt_above, sqrt_below, to_fraction
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique
from understudy.errors import SettingError

What = Literal[
    "measure", "select", "cells", "dependence", "distances", "gradient", "type", "bounds", "bins", "values", "quality"
]
DISCOVERIES: tuple[What, ...] = ("type", "bounds", "bins", "values")
"""The charges that discovery makes, before the mechanism begins."""

LARGEST_SCALE = 1 << 50
"""The largest noise that fits 64-bit integers; a share that would need more is refused before it is charged."""


@dataclass(frozen=True)
class Charge:
    """One question to the gate and its cost; every field is public.

    Attributes:
        what: the kind of question.
        about: its cliques; empty for selections and for distances.
        noise: the distribution of the noise.
        sensitivity: the sensitivity in the norm that the noise needs, as a float, for reading.
        scale: sigma (Gaussian), scale (Laplace) or epsilon (exponential mechanism).
        rho: the exact cost in zCDP.
        epsilon: the exact cost in pure DP; None if the noise does not give pure DP.
        delta: the exact cost in delta; 0 unless values are discovered.
        threshold: for values, the smallest noisy count with which a value is published.
        candidates: for selections and for distances, the number of candidates and the SHA-256 of their list. (A
            spanning tree of 300 columns selects 299 times among up to 44,850 pairs; their names would be most of the
            release.)
        query: the SHA-256 of the query matrix, or of the critic and the clip; None if cells were counted.
        table: the virtual table that was counted, where several tables are linked; else None.
    """

    what: What
    about: tuple[Clique, ...]
    noise: Literal["gaussian", "laplace", "exponential"]
    sensitivity: float
    scale: float
    rho: Exact
    epsilon: Exact | None = None
    delta: Exact = Fraction(0)
    threshold: int | None = None
    candidates: tuple[int, str] | None = None
    query: str | None = None
    table: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with fractions as text, so that JSON keeps them exactly."""
        data: dict[str, Any] = _CHARGE.dump_python(self, mode="json")
        return {name: value for name, value in data.items() if value is not None or name == "epsilon"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Charge:
        """Read the result of `to_dict`."""
        return _CHARGE.validate_python(data)


_CHARGE = TypeAdapter(Charge)


def gaussian_charge(what: What, about: tuple[Clique, ...], squared: int, *, share: Fraction) -> Charge:
    """Return the charge of discrete Gaussian noise for at most `share` of rho, at L2 sensitivity sqrt(`squared`).

    **Privacy.** The discrete Gaussian of parameter sigma on integers is D^2 / (2 sigma^2)-zCDP, like the continuous one
    (Canonne, Kamath and Steinke 2020, Theorem 4).
    """
    return planned_charge(what, about, squared, sigma=sqrt_above(squared / (2 * share)))


def planned_charge(what: What, about: tuple[Clique, ...], squared: int, *, sigma: float) -> Charge:
    """Return the charge of discrete Gaussian noise whose sigma was fixed in advance."""
    rho = squared / (2 * Fraction(_check_scale(sigma)) ** 2)
    return Charge(what, about, "gaussian", math.sqrt(squared), sigma, rho)


def laplace_charge(what: What, about: tuple[Clique, ...], sensitivity: int, *, share: Fraction) -> Charge:
    """Return the charge of discrete Laplace noise for at most `share` of epsilon, at this L1 sensitivity.

    **Privacy.** sensitivity / scale in pure DP; epsilon-DP implies epsilon^2 / 2-zCDP.
    """
    scale = _check_scale(float_above(sensitivity / share))
    epsilon = sensitivity / Fraction(scale)
    return Charge(what, about, "laplace", float(sensitivity), scale, epsilon**2 / 2, epsilon)


def laplace_sd(scale: float) -> float:
    """Return the standard deviation of the discrete Laplace: its variance is 2 q / (1 - q)^2 with q = exp(-1/scale)."""
    if math.isinf(scale):
        return math.inf
    q = math.exp(-1 / scale)
    return max(math.sqrt(2 * q) / -math.expm1(-1 / scale), 1e-9)


def exponential_charge(candidates: Sequence[Clique], sensitivity: Fraction, *, share: Fraction, pure: bool) -> Charge:
    """Return the charge of a selection with weights exp(epsilon q / (2 sensitivity)), for at most `share`.

    **Privacy.** epsilon-DP, and by its bounded range epsilon^2 / 8-zCDP (Cesar and Rogers 2021).
    """
    epsilon = float_below(share) if pure else sqrt_below(8 * share)
    exact = Fraction(epsilon)
    listed = list_candidates(candidates)
    return Charge("select", (), "exponential", float(sensitivity), epsilon, exact**2 / 8, exact, candidates=listed)


def list_candidates(candidates: Sequence[Any]) -> tuple[int, str]:
    """Return the number of candidates and the SHA-256 of their list, which a charge holds in place of their names."""
    return len(candidates), hashlib.sha256(json.dumps(candidates).encode()).hexdigest()


def _check_scale(scale: float) -> float:
    if not scale <= LARGEST_SCALE:
        raise SettingError("this share of the budget is too small: its noise would not fit 64-bit integers; give more")
    return scale


# ----------------------------------------------------------------------------------------------------
# The division of one call's share of the budget among cliques, from public numbers.


def divide(
    cliques: Sequence[Clique], weights: Mapping[Clique, float] | None, share: Fraction, *, squared: bool
) -> dict[Clique, Fraction]:
    """Divide a share among cliques exactly, in proportion to their weights or their squared weights.

    Raises:
        SettingError: if a weight is missing or not positive.
    """
    given = [1.0] * len(cliques) if weights is None else read_numbers("weight", cliques, weights)
    if min(given) <= 0:
        raise SettingError("measure: every clique needs a positive weight")
    weight = {clique: Fraction(number) for clique, number in zip(cliques, given, strict=True)}
    power = {clique: value**2 if squared else value for clique, value in weight.items()}
    total = sum(power.values(), Fraction(0))
    return {clique: share * value / total for clique, value in power.items()}


def read_numbers(what: str, cliques: Sequence[Clique], given: Mapping[Clique, float]) -> list[float]:
    """Return one public number per clique.

    Raises:
        SettingError: if a clique has no number, or one that is not finite.
    """
    if not isinstance(given, Mapping):
        raise SettingError(f"give a {what} by clique, such as {{('sex', 'age'): 2}}")
    found = [value if type(value) is float else _float(value) for value in map(given.get, cliques)]
    if not all(map(math.isfinite, found)):
        clique = next(clique for clique, number in zip(cliques, found, strict=True) if not math.isfinite(number))
        raise SettingError(f"{clique} needs a finite {what}; give one for every clique")
    return found


def _float(value: object) -> float:
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # a whole number beyond all floats
        return math.inf


# ----------------------------------------------------------------------------------------------------
# The charge for publishing the values of a column: noisy counts and a threshold, charged in rho and in delta.
#
# **Privacy.** Let one unit have at most k rows. Values that other units have too are protected by the noise: their
# counts change by a vector of L2 norm D of at most k (sqrt(2) k if a unit is replaced), which costs D^2 / (2 sigma^2)
# in rho. Values that only one unit has, at most k of them with at most k rows each, must not be published: each passes
# the threshold T with probability at most P(X >= T - k), so any of them does with probability at most
# delta = k P(X >= T - k). Given that none does, the answer has the distribution of a mechanism that considers only
# values of both neighbouring tables. So the answer is delta-approximate rho-zCDP (proof: docs/proofs/discovery.md).


_ROOT_TWO_PI = Fraction(250662, 100000)  # below sqrt(2 pi) = 2.5066282...


def bound_tail(sigma: Fraction, t: int, bits: int = 256) -> Fraction:
    """Return an upper bound of P(X >= t) for the discrete Gaussian of parameter sigma and t >= 1; tight in the tail.

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
def find_threshold(sigma: Fraction, max_rows: int, delta: Fraction) -> tuple[int, Fraction]:
    """Find a threshold that costs at most `delta`, close to the smallest, and its cost.

    Raises:
        SettingError: if delta is not between 0 and 1.
    """
    if not 0 < delta < 1:
        raise SettingError("discovering values needs a part of delta: give a delta above 0")
    bits = 128 + 2 * (delta.denominator // delta.numerator).bit_length()

    def cost(threshold: int) -> Fraction:
        return max_rows * bound_tail(sigma, threshold - max_rows, bits)

    low, high = max_rows, max_rows + 1 + math.ceil(sigma)
    while cost(high) > delta:
        low, high = high, max_rows + 2 * (high - max_rows)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) > delta else (low, middle)
    return high, min(delta, Fraction(float_above(cost(high))))


def threshold_charge(
    about: tuple[Clique, ...], neighbours: Neighbours, *, share: Fraction, delta: float | Fraction
) -> Charge:
    """Return the charge for publishing values whose noisy count reaches a threshold: at most `share` and `delta`.

    Raises:
        SettingError: if delta is not between 0 and 1.
    """
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 < delta < 1:
        raise SettingError("discovering values needs a part of delta: give a delta above 0 and below 1")
    paid = gaussian_charge("values", about, neighbours.marginal_l2_squared, share=share)
    threshold, cost = find_threshold(Fraction(paid.scale), neighbours.max_rows, to_fraction(delta))
    return replace(paid, delta=cost, threshold=threshold)
