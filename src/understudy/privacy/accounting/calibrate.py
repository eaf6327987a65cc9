"""How much noise a plan needs: discrete Gaussian measurements fixed in advance, calibrated to (epsilon, delta).

zCDP pays for not knowing what will be measured. A plan that is fixed needs less noise, because the exact privacy loss
of its measurements is known (`loss_distribution`). The continuous Gaussian's curve is never used: it promises too much
for integer noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from understudy.errors import SettingError
from understudy.privacy.accounting.convert import epsilon_of, rho_of
from understudy.privacy.accounting.loss_distribution import LossDistribution

_PRECISION = 1e-6  # relative, of the sigma or epsilon returned
_LARGEST = 1e5  # a larger sigma, or more distinct ones, would cost many seconds for the few percent gained over zCDP
_DISTINCT = 64
_SMALLEST = 1e-200  # a smaller delta is the sum of terms that floating point would take for nothing


def spread(sigma: float, weights: Sequence[float]) -> list[float]:
    """The noise of each measurement under a common `sigma`: sigma / w_i, the weights scaled to unit L2 norm.

    m equal weights give sigma sqrt(m) each. Rounded up, by less than one part in 10^14.

    Raises:
        SettingError: if there are no weights or one is not a positive, finite number.
    """
    if not len(weights) or not all(weight > 0 and math.isfinite(weight) for weight in weights):
        raise SettingError("weights must be positive, finite numbers, at least one")
    largest = max(weights)
    norm = math.sqrt(math.fsum((weight / largest) ** 2 for weight in weights))
    return [sigma * norm / (weight / largest) * (1 + 2.0**-50) for weight in weights]


def planned_sigma(weights: Sequence[float], epsilon: float, delta: float, *, replace_one: bool = False) -> float:
    """The smallest common sigma (to one part in 10^6) with which a plan is (epsilon, delta)-DP.

    The plan: marginal i is measured once, with discrete Gaussian noise of parameter ``spread(sigma, weights)[i]``, so
    that the whole costs 1 / (2 sigma^2) in zCDP under add/remove.

    **Privacy.** The claim holds if exactly those floats are used as parameters, one row per unit moving one cell of
    each marginal by 1 (`replace_one`: two cells). It is proved by the discrete Gaussian's privacy loss, rounded
    pessimistically, or by zCDP where that is better.

    Raises:
        SettingError: unless epsilon > 0 and 0 < delta < 1 and all weights are positive.
    """
    shape = spread(1.0, weights)
    _check_delta(delta)
    rho = rho_of(epsilon, delta)
    if not 0 < rho < math.inf:
        raise SettingError(f"epsilon must be finite and not vanishingly small, not {epsilon}")
    valid = _by_zcdp(shape, rho, replace_one)
    if delta < _SMALLEST or too_much(spread(valid, weights)):
        return valid

    def excess(sigma: float) -> float:
        return _log_delta(spread(sigma, weights), epsilon, delta, replace_one) - math.log(delta)

    return _smallest(excess, valid)


def planned_epsilon(sigmas: Sequence[float], delta: float, *, replace_one: bool = False) -> float:
    """The smallest epsilon (to one part in 10^6) for which measurements fixed in advance are (epsilon, delta)-DP.

    **Privacy.** As `planned_sigma`, for discrete Gaussian noise of parameters exactly `sigmas`.

    Raises:
        SettingError: unless 0 < delta < 1 and all sigmas are positive.
    """
    _check_delta(delta)
    if not len(sigmas) or not all(sigma > 0 and math.isfinite(sigma) for sigma in sigmas):
        raise SettingError("sigmas must be positive, finite numbers, at least one")
    valid = epsilon_of(_rho(sigmas, replace_one), delta)
    if valid == 0 or delta < _SMALLEST or too_much(sigmas):
        return valid
    return _smallest(lambda epsilon: _log_delta(sigmas, epsilon, delta, replace_one) - math.log(delta), valid)


def _smallest(excess: Callable[[float], float], valid: float) -> float:
    """The smallest x known to be valid, excess(x) <= 0, searching down from `valid`; the last valid one tried is kept.

    Regula falsi on log(x) in the manner of Illinois. Each step aims a little past the estimate, so that both ends of
    the bracket close in on it.
    """
    high, above = valid, excess(valid)
    if above > 0:
        return valid  # valid for another reason than this bound
    low, below = high, above
    while below <= 0:
        high, above = low, below
        low = high * 0.9
        if low < 1e-9 * valid:
            return high
        below = excess(low)
    nudge, side = _PRECISION / 3, 0
    while high > low * (1 + _PRECISION):
        width = math.log(high / low)
        step = min(max(below / (below - above) * width + nudge, width * 1e-3), width * (1 - 1e-3))
        middle = low * math.exp(step)
        value = excess(middle)
        if value <= 0:
            high, above, nudge = middle, value, -_PRECISION / 3
            below, side = (below / 2 if side == 1 else below), 1
        else:
            low, below, nudge = middle, value, _PRECISION / 3
            above, side = (above / 2 if side == -1 else above), -1
    return high


def _log_delta(sigmas: Sequence[float], epsilon: float, delta: float, replace_one: bool) -> float:
    terms = [*sigmas, *sigmas] if replace_one else sigmas
    bound = LossDistribution(terms, epsilon, delta).delta(epsilon)
    return math.log(max(bound, delta * 1e-100))


def _rho(sigmas: Sequence[float], replace_one: bool) -> Fraction:
    """The zCDP cost, in exact arithmetic."""
    cells = 2 if replace_one else 1
    return sum((cells / (2 * Fraction(sigma) ** 2) for sigma in sigmas), Fraction(0))


def _by_zcdp(shape: Sequence[float], rho: float, replace_one: bool) -> float:
    """The common sigma that costs at most rho."""
    ratio = _rho(shape, replace_one) / Fraction(rho)  # sigma^2, since the cost is the shape's divided by sigma^2
    return math.sqrt(ratio) * (1 + 2.0**-48)


def too_much(sigmas: Sequence[float]) -> bool:
    """Whether measurements are too many of a kind for the exact curve, so that zCDP serves."""
    return max(sigmas) > _LARGEST or len(set(sigmas)) > _DISTINCT


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise SettingError(f"delta must be above 0 and below 1 for Gaussian noise, not {delta}")
