"""Conversion between rho-zCDP and (epsilon, delta), by Canonne, Kamath and Steinke (2020, corollary 13).

A rho-zCDP mechanism is (epsilon, delta)-DP with, for any a > 1,

    delta = exp((a - 1) (a rho - epsilon)) (1 - 1/a)^a / (a - 1).

**Guarantees.** Every result is rounded against the user: the stated delta and epsilon are never too small and rho is
never too large, by allowing for the rounding of each floating-point operation. Any a gives a valid delta, so the search
for the best one needs no proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from understudy.errors import SettingError

Number: TypeAlias = float | int | Fraction

_ROUNDING = 2.0**-46  # sixty times what the dozen operations of _log_delta can lose, relative to their largest term


def rho_of(epsilon: Number, delta: Number) -> float:
    """Return the largest rho (to one part in 10^12) for which every rho-zCDP mechanism is (epsilon, delta)-DP.

    Zero for delta = 0: pure differential privacy does not follow from zCDP.

    >>> round(rho_of(1, 1e-9), 10)
    0.0149730577

    Raises:
        SettingError: unless epsilon > 0 and 0 <= delta < 1.
    """
    target = _log(_delta(delta))
    bound = _round_down(_positive("epsilon", epsilon))
    if target == -math.inf:
        return 0.0
    if math.isinf(bound):
        return math.inf
    return _edge(lambda rho: _best_log_delta(rho, bound) <= target, bound + 1 if bound < 1e300 else bound)


def epsilon_of(rho: Number, delta: Number) -> float:
    """Return the smallest epsilon (to one part in 10^12) for which every rho-zCDP mechanism is (epsilon, delta)-DP.

    Infinite for delta = 0, unless rho = 0.

    >>> round(epsilon_of(0.1, 1e-6), 8)
    2.14193893

    Raises:
        SettingError: unless rho >= 0 and 0 <= delta < 1.
    """
    target, number = _log(_delta(delta)), _rho(rho)
    if number == 0:
        return 0.0
    if target == -math.inf or math.isinf(number):
        return math.inf
    upper = (number + 2 * math.sqrt(number * -target) + 1) * (1 + 2.0**-20)  # for a rho of 1e40, + 1 has no effect
    if _best_log_delta(number, 0.0) <= target:
        return 0.0
    # the complement of a falling predicate: the edge's other side is the answer
    return _edge(lambda epsilon: _best_log_delta(number, epsilon) > target, upper, above=True)


def delta_of(rho: Number, epsilon: Number) -> float:
    """Return the smallest known delta for which every rho-zCDP mechanism is (epsilon, delta)-DP, at most 1.

    >>> round(delta_of(0.1, 1), 8)
    0.00893325

    Raises:
        SettingError: unless rho >= 0 and epsilon >= 0.
    """
    number = _rho(rho)
    bound = 0.0 if epsilon == 0 else _round_down(_positive("epsilon", epsilon))
    if number == 0:
        return 0.0
    if math.isinf(number) or math.isinf(bound):
        return 1.0 if math.isinf(number) else 0.0
    return min(1.0, math.nextafter(math.exp(min(0.0, _best_log_delta(number, bound))) * (1 + _ROUNDING), 2.0))


def _log_delta(rho: float, epsilon: float, b: float) -> float:
    """Return an upper bound of log(delta) for a = 1 + b, rounding included."""
    a = 1 + b
    loss = (rho - epsilon + rho * b) * b
    logs = a * math.log1p(1 / b), math.log(b)
    size = (rho + epsilon + rho * b) * b + logs[0] + abs(logs[1]) + 1
    return loss - logs[0] - logs[1] + size * _ROUNDING


def _best_log_delta(rho: float, epsilon: float) -> float:
    """Return the smallest `_log_delta` over b, whose derivative (2 b + 1) rho - epsilon - log(1 + 1/b) grows with b."""
    low, high = math.log(1e-9), math.log((epsilon + 1) / (2 * rho) + 2)
    for _ in range(60):
        middle = (low + high) / 2
        b = math.exp(middle)
        if (2 * b + 1) * rho - epsilon - math.log1p(1 / b) < 0:
            low = middle
        else:
            high = middle
    return min(0.0, _log_delta(rho, epsilon, math.exp(high)))


def _edge(holds: Callable[[float], bool], upper: float, *, above: bool = False) -> float:
    """Find the point of [0, upper] up to which a predicate holds: the last float found on the requested side."""
    low, high = 0.0, upper
    for _ in range(200):
        middle = low + (high - low) / 2
        if middle in (low, high) or high - low <= 1e-15 * high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high if above else low


def _positive(name: str, value: Number) -> Number:
    if not value > 0:
        raise SettingError(f"{name} must be positive, not {value}")
    return value


def _rho(value: Number) -> float:
    if not value >= 0:
        raise SettingError(f"rho must not be negative, not {value}")
    number = float(value)
    return number if number >= value else math.nextafter(number, math.inf)


def _delta(value: Number) -> Fraction:
    if not 0 <= value < 1:
        raise SettingError(f"delta must be at least 0 and below 1, not {value}")
    return Fraction(value)


def _round_down(value: Number) -> float:
    number = float(value)
    return number if number <= value else math.nextafter(number, 0.0)


def _log(delta: Fraction) -> float:
    """Return a lower bound of log(delta); minus infinity for zero and for what a float cannot hold."""
    number = _round_down(delta)
    return math.log(number) * (1 + _ROUNDING) if number > 0 else -math.inf
