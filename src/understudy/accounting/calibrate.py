"""Calibration of measurements fixed in advance, by the exact privacy loss of discrete Gaussian noise.

A measurement with parameter sigma of a cell that one row changes by 1 has the privacy loss L = (1 - 2 X) / (2 sigma^2),
where X is the noise; losses of independent measurements add up, and delta(epsilon) = E[max(0, 1 - exp(epsilon - L))].
The law of the sum is computed by Fourier transforms on a grid. Everything that is not exact errs towards a larger
delta:

- *Grid.* For one common sigma the losses lie on a lattice, which is the grid. Otherwise an atom of probability p and
  loss l between grid points g < g' becomes two atoms there, of the same probability in total under both neighbouring
  tables (p and p exp(-l)): the original is a post-processing of the pair, so delta can only grow.
- *Tilt.* Probabilities are multiplied by exp(theta l) before the transform and divided after, which centres the mass
  near epsilon and makes rounding errors relative to delta instead of absolute.
- *Window.* The transform is circular: mass outside the window is counted again inside it, never lost, except what lies
  above, whose probability is bounded (the discrete Gaussian is sub-Gaussian with variance proxy sigma^2) and added.
- *Tails* of each measurement beyond a cut are bounded in the same way and added; *rounding* of the transforms likewise.
- *Losses* themselves are rounded, and 1 - exp(epsilon - L) can be as small as their rounding. No loss of the sum errs
  by more than a slack, so delta is computed at an epsilon that is smaller by the slack.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from understudy.accounting.budget import Budget
from understudy.accounting.charge import planned_charge
from understudy.accounting.convert import epsilon_of, rho_of
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique
from understudy.errors import SettingError

_LOST = 1e-12  # share of delta allowed for what is cut away
_GRID = 512  # grid points per standard deviation of the loss, times the root of the number of measurements
_LATTICE_UP_TO = 2048.0  # the largest sigma for which the lattice itself serves as grid
_RELATIVE = 1e-9  # rounding of exponents up to 1e5 and of a few sums, relative to delta
_EPS = 2.0**-52


class LossDistribution:
    """The summed privacy loss of discrete Gaussian measurements, most accurate near `epsilon` and `delta`.

    Args:
        sigmas: one parameter per cell that changes by 1.
        epsilon: the epsilon at which `delta` will be evaluated; other values are valid but less accurate.
        delta: about the value expected there.
    """

    def __init__(self, sigmas: Sequence[float], epsilon: float, delta: float) -> None:
        count = len(sigmas)
        groups = Counter(float(sigma) for sigma in sigmas)
        mean = sum(m / (2 * sigma * sigma) for sigma, m in groups.items())
        deviation = math.sqrt(2 * mean)
        self._tilt = max(0.0, (epsilon - mean) / (2 * mean))
        self._cut = math.sqrt(2 * math.log(4 * count / (_LOST * delta)))
        self._lost = _LOST * delta
        lattice = len(groups) == 1 and next(iter(groups)) <= _LATTICE_UP_TO
        self._step = 1 / next(iter(groups)) ** 2 if lattice else deviation / (_GRID * math.sqrt(count))
        reach = deviation * self._cut + count * self._step
        low, high = min(mean, epsilon) - reach, max(mean, epsilon) + reach
        size = 1 << math.ceil(math.log2((high - low) / self._step + 2))
        spectrum: NDArray[np.complex128] = np.ones(size // 2 + 1, dtype=np.complex128)
        offset = self._log_scale = 0.0
        for sigma, m in groups.items():
            shift = 1 / (2 * sigma * sigma) if lattice else 0.0
            masses, log_scale = self._measurement_loss(sigma, shift, size)
            spectrum *= np.fft.rfft(masses) ** m
            offset, self._log_scale = offset + m * shift, self._log_scale + m * log_scale
        start = math.floor((low - offset) / self._step)
        masses = np.roll(np.fft.irfft(spectrum, size), -start % size)
        self._losses = offset + self._step * np.arange(start, start + size)
        largest = sum(m * (2 * (math.ceil(self._tilt) + self._reach(s)) + 1) / (2 * s * s) for s, m in groups.items())
        self._slack = 16 * _EPS * (largest + float(np.abs(self._losses).max()))
        self._masses = np.maximum(masses, 0.0) + 8 * _EPS * math.log2(size) * (count + 1)

    def _measurement_loss(self, sigma: float, shift: float, size: int) -> tuple[NDArray[np.float64], float]:
        """Return tilted probabilities of a measurement's loss on the circular grid, and the log of their scale."""
        reach = self._reach(sigma)
        x = np.arange(-math.ceil(self._tilt) - reach, reach + 1, dtype=np.float64)
        loss = (1 - 2 * x) / (2 * sigma * sigma)
        log_p = -x * x / (2 * sigma * sigma)
        log_p -= math.log(float(np.exp(log_p).sum()))
        place = np.rint((loss - shift) / self._step) if shift else np.floor(loss / self._step)
        part = np.zeros_like(x) if shift else _upper_share(loss - place * self._step, self._step)
        index = place.astype(np.int64)
        tilted = log_p + self._tilt * (shift + place * self._step)
        scale = float(tilted.max())
        tilted = np.exp(tilted - scale)
        masses = np.bincount(index % size, tilted * (1 - part), size)
        if not shift:
            masses += np.bincount((index + 1) % size, tilted * part * math.exp(self._tilt * self._step), size)
        total = float(masses.sum())
        return masses / total, scale + math.log(total)

    def _reach(self, sigma: float) -> int:
        """Return the range over which one measurement's noise is tabulated."""
        return math.ceil(self._cut * sigma) + 1

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of the delta at which the measurements together are (epsilon, delta)-DP."""
        epsilon -= self._slack
        above = self._losses > epsilon
        losses = self._losses[above]
        terms = self._masses[above] * np.exp(self._log_scale - self._tilt * losses) * -np.expm1(epsilon - losses)
        return min(1.0, float(terms.sum()) * (1 + _RELATIVE) + self._lost)


def _upper_share(above: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Return the part b of an atom that goes to the upper grid point: 1 - b + b exp(-step) = exp(-above)."""
    return np.clip(np.expm1(-above) / math.expm1(-step), 0.0, 1.0)


# ----------------------------------------------------------------------------------------------------
# The noise of a plan: discrete Gaussian measurements fixed in advance, calibrated to (epsilon, delta).
#
# A fixed plan needs less noise than zCDP requires, because the exact privacy loss of its measurements is known
# (`LossDistribution`). The continuous Gaussian's curve is never used: it is too optimistic for integer noise.


_PRECISION = 1e-6  # relative, of the sigma or epsilon returned
_LARGEST = 1e5  # a larger sigma, or more distinct ones, would cost many seconds for the few percent gained over zCDP
_DISTINCT = 64
_SMALLEST = 1e-200  # a smaller delta is a sum of terms that underflow


def divide_sigma(sigma: float, weights: Sequence[float]) -> list[float]:
    """Return the sigma of each measurement for a common `sigma`: sigma / w_i, the weights scaled to unit L2 norm.

    m equal weights give sigma sqrt(m) each. Rounded up, by less than one part in 10^14.

    Raises:
        SettingError: if there are no weights or one is not a positive, finite number.
    """
    if not len(weights) or not all(weight > 0 and math.isfinite(weight) for weight in weights):
        raise SettingError("weights must be positive, finite numbers, at least one")
    largest = max(weights)
    norm = math.sqrt(math.fsum((weight / largest) ** 2 for weight in weights))
    return [sigma * norm / (weight / largest) * (1 + 2.0**-50) for weight in weights]


def calibrate_sigma(weights: Sequence[float], epsilon: float, delta: float, *, replace_one: bool = False) -> float:
    """Return the smallest common sigma (to one part in 10^6) with which a plan is (epsilon, delta)-DP.

    The plan: marginal i is measured once, with discrete Gaussian noise of sigma ``divide_sigma(sigma, weights)[i]``,
    so that the whole costs 1 / (2 sigma^2) in zCDP under add/remove.

    **Privacy.** The claim holds if exactly those floats are used as parameters, one row per unit moving one cell of
    each marginal by 1 (`replace_one`: two cells). It is proved by the discrete Gaussian's privacy loss, rounded
    pessimistically, or by zCDP where that is better.

    Raises:
        SettingError: unless epsilon > 0 and 0 < delta < 1 and all weights are positive.
    """
    shape = divide_sigma(1.0, weights)
    _check_delta(delta)
    rho = rho_of(epsilon, delta)
    if not 0 < rho < math.inf:
        raise SettingError(f"epsilon must be finite and not vanishingly small, not {epsilon}")
    valid = _calibrate_by_zcdp(shape, rho, replace_one)
    if delta < _SMALLEST or takes_too_long(divide_sigma(valid, weights)):
        return valid

    def excess(sigma: float) -> float:
        return _log_delta(divide_sigma(sigma, weights), epsilon, delta, replace_one) - math.log(delta)

    return _find_smallest(excess, valid)


def calibrate_epsilon(sigmas: Sequence[float], delta: float, *, replace_one: bool = False) -> float:
    """Return the least epsilon (to one part in 10^6) for which measurements fixed in advance are (epsilon, delta)-DP.

    **Privacy.** As `calibrate_sigma`, for discrete Gaussian noise of parameters exactly `sigmas`.

    Raises:
        SettingError: unless 0 < delta < 1 and all sigmas are positive.
    """
    _check_delta(delta)
    if not len(sigmas) or not all(sigma > 0 and math.isfinite(sigma) for sigma in sigmas):
        raise SettingError("sigmas must be positive, finite numbers, at least one")
    valid = epsilon_of(_rho(sigmas, replace_one), delta)
    if valid == 0 or delta < _SMALLEST or takes_too_long(sigmas):
        return valid
    return _find_smallest(lambda epsilon: _log_delta(sigmas, epsilon, delta, replace_one) - math.log(delta), valid)


def _find_smallest(excess: Callable[[float], float], valid: float) -> float:
    """Return the smallest x found with excess(x) <= 0, searching down from `valid`.

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
    """Return the zCDP cost, in exact arithmetic."""
    cells = 2 if replace_one else 1
    return sum((cells / (2 * Fraction(sigma) ** 2) for sigma in sigmas), Fraction(0))


def _calibrate_by_zcdp(shape: Sequence[float], rho: float, replace_one: bool) -> float:
    """Return the common sigma that costs at most rho."""
    ratio = _rho(shape, replace_one) / Fraction(rho)  # sigma^2, since the cost is the shape's divided by sigma^2
    return math.sqrt(ratio) * (1 + 2.0**-48)


def takes_too_long(sigmas: Sequence[float]) -> bool:
    """Return whether the exact curve would take too long for these measurements, so that zCDP is used."""
    return max(sigmas) > _LARGEST or len(set(sigmas)) > _DISTINCT


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise SettingError(f"delta must be above 0 and below 1 for Gaussian noise, not {delta}")


# ----------------------------------------------------------------------------------------------------
# Measurements fixed in advance: their sigmas together, and the budget that their exact curve certifies.


def can_plan(budget: Budget, neighbours: Neighbours) -> bool:
    """Return whether the exact curve applies: an unspent (epsilon, delta) budget, and one row per unit.

    With several rows per unit, the worst distribution of them over cells is not known, and zCDP is used. A budget
    stated as rho promises rho-zCDP; the curve would meet the epsilon that follows from it but spend more rho.
    """
    stated = budget.proof == "zcdp" and budget.epsilon is not None and budget.delta is not None
    return stated and not budget.rho_stated and not budget.discovery_delta and neighbours.max_rows == 1


def certify_plan(
    weights: Mapping[Clique, float], budget: Budget, neighbours: Neighbours
) -> tuple[dict[Clique, float] | None, Budget]:
    """Return the sigma of each measurement, and the budget that certifies exactly these.

    Without measurements, or where the exact curve does not apply (`can_plan`): None, and the budget as it is.

    **Privacy.** Each clique measured once with discrete Gaussian noise of its sigma, and nothing else, is (epsilon,
    delta)-DP for the budget's epsilon and delta.

    Args:
        weights: the cliques with relative weights; a sigma is inversely proportional to its weight.
        budget: the budget.
        neighbours: the neighbour relation.
    """
    if not weights or not can_plan(budget, neighbours):
        return None, budget
    relative = list(weights.values())
    epsilon, delta = float(budget.epsilon or 0), float(budget.delta or 0)
    common = calibrate_sigma(relative, epsilon, delta, replace_one=neighbours.replace_one)
    sigmas = dict(zip(weights, divide_sigma(common, relative), strict=True))
    squared = neighbours.marginal_l2_squared
    charges = [planned_charge("measure", (clique,), squared, sigma=sigma) for clique, sigma in sigmas.items()]
    return sigmas, budget.certify(sum((charge.rho for charge in charges), Fraction(0)))
