"""Calibration of fixed plans: brute force, published values, dp-accounting as referee."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest

from understudy.accounting.calibrate import LossDistribution, calibrate_epsilon, calibrate_sigma, divide_sigma
from understudy.accounting.convert import epsilon_of, rho_of
from understudy.accounting.exact import float_below
from understudy.errors import SettingError


def true_delta(sigmas: list[float], epsilon: float) -> float:
    """E[max(0, 1 - exp(epsilon - L))] by summing over every combination of noises."""
    losses, masses = np.zeros(1), np.ones(1)
    for sigma in sigmas:
        reach = math.ceil(14 * sigma) + 2
        x = np.arange(-reach, reach + 1.0)
        p = np.exp(-x * x / (2 * sigma * sigma))
        losses = np.add.outer(losses, (1 - 2 * x) / (2 * sigma * sigma)).ravel()
        masses = np.multiply.outer(masses, p / p.sum()).ravel()
    above = losses > epsilon
    return float((masses[above] * -np.expm1(epsilon - losses[above])).sum())


def continuous_delta(sigma: float, epsilon: float) -> float:
    def phi(z: float) -> float:
        return math.erfc(-z / math.sqrt(2)) / 2

    return phi(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * phi(-0.5 / sigma - epsilon * sigma)


def test_integer_noise_needs_the_discrete_curve() -> None:
    assert continuous_delta(0.65, 10.0) == pytest.approx(1e-9, rel=0.03)
    assert calibrate_epsilon([0.65], 1e-9) == pytest.approx(10.3326, rel=1e-4)
    assert continuous_delta(3, 4 / 3) == pytest.approx(4.6e-6, rel=0.01)
    assert LossDistribution([3.0], 4 / 3, 5e-6).delta(4 / 3) == pytest.approx(4.92e-6, rel=1e-3)


@pytest.mark.parametrize(
    "sigmas", [[0.3], [0.65], [3.0], [40.0], [3.0, 3.0], [0.7, 0.7], [2.0, 3.0], [0.5, 4.0], [1.0, 2.5, 2.5]]
)
def test_delta_against_brute_force(sigmas: list[float]) -> None:
    rho = sum(1 / (2 * s * s) for s in sigmas)
    for delta in (1e-3, 1e-9):
        epsilon = epsilon_of(rho, delta) * 0.93
        exact = true_delta(sigmas, epsilon)
        bound = LossDistribution(sigmas, epsilon, exact).delta(epsilon)
        assert exact <= bound
        assert bound == pytest.approx(exact, rel=1e-8 if len(set(sigmas)) == 1 else 5e-3)


def test_delta_is_valid_away_from_where_it_was_aimed() -> None:
    aimed = LossDistribution([2.0, 3.0], 1.0, 1e-6)
    for epsilon in (0.0, 0.3, 1.7, 2.5):
        assert aimed.delta(epsilon) >= true_delta([2.0, 3.0], epsilon)


@pytest.mark.parametrize("more", [[], [0.2], [0.29]], ids=["one", "lattice", "grid"])
def test_rounding_a_loss_does_not_hide_it_from_an_epsilon_right_below(more: list[float]) -> None:
    """In exact fractions the loss without noise, which is nearly always there, lies above epsilon by a rounding."""
    for sigma in np.linspace(0.06, 0.2, 50).tolist():
        sigmas = [sigma, *([sigma] if more == [0.2] else more)]
        loss = sum(1 / (2 * Fraction(one) ** 2) for one in sigmas)
        epsilon = math.nextafter(float_below(loss), 0.0)
        above = float(loss - Fraction(epsilon))
        quiet = math.prod(1 / (1 + 2.001 * math.exp(-1 / (2 * one * one))) for one in sigmas)
        assert LossDistribution(sigmas, 1.02 * epsilon, 1e-20).delta(epsilon) >= quiet * above * (1 - above)


@pytest.mark.parametrize("delta", [1e-201, 1e-300, 5e-324])
def test_a_delta_that_floating_point_cannot_sum_up_to_is_served_by_zcdp(delta: float) -> None:
    for epsilon in np.linspace(0.5, 2.0, 20).tolist():
        sigma, rho = Fraction(calibrate_sigma([1.0], epsilon, delta)), Fraction(rho_of(epsilon, delta))
        assert rho * (1 - Fraction(1, 10**12)) <= 1 / (2 * sigma * sigma) <= rho
    assert calibrate_epsilon([1.0], delta) == epsilon_of(0.5, delta)


def test_no_epsilon_is_so_large_that_delta_is_nothing() -> None:
    """The noise has no end, and what is cut away of its tails counts as lost at every epsilon."""
    for sigmas in ([0.5], [3.0, 4.0]):
        assert LossDistribution(sigmas, 1.0, 1e-9).delta(1e9) > 0


def test_an_epsilon_far_above_the_losses_is_answered() -> None:
    assert LossDistribution([0.05], 1800.0, 1e-9).delta(1800.0) < 1e-20


@pytest.mark.parametrize("weights", [[1.0], [1.0] * 5, [3.0, 1.0, 2.0]])
@pytest.mark.parametrize("replace_one", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-5), (8.0, 1e-12)])
def test_planned_sigma_holds_is_tight_and_beats_zcdp(
    weights: list[float], replace_one: bool, epsilon: float, delta: float
) -> None:
    sigma = calibrate_sigma(weights, epsilon, delta, replace_one=replace_one)
    assert calibrate_epsilon(divide_sigma(sigma, weights), delta, replace_one=replace_one) <= epsilon * (1 + 2e-6)
    assert calibrate_epsilon(divide_sigma(sigma * 0.999, weights), delta, replace_one=replace_one) > epsilon
    cells = 2 if replace_one else 1
    assert sigma < 0.99 * math.sqrt(cells / (2 * rho_of(epsilon, delta)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (3.0, 1e-9)])
@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0], [1.0, 2.0]])
def test_planned_sigma_against_brute_force(weights: list[float], epsilon: float, delta: float) -> None:
    sigma = calibrate_sigma(weights, epsilon, delta)
    assert true_delta(divide_sigma(sigma, weights), epsilon) <= delta
    assert true_delta(divide_sigma(sigma * 0.999, weights), epsilon) > delta
    if len(weights) == 1:
        assert true_delta([calibrate_sigma(weights, epsilon, delta, replace_one=True)] * 2, epsilon) <= delta


def test_two_cells_are_two_measurements() -> None:
    assert calibrate_epsilon([2.0, 3.0], 1e-6, replace_one=True) == pytest.approx(
        calibrate_epsilon([2.0, 3.0, 2.0, 3.0], 1e-6), rel=1e-5
    )


def test_spread_normalises_and_rounds_up() -> None:
    assert divide_sigma(2.0, [1.0, 1.0, 1.0, 1.0]) == pytest.approx([4.0] * 4)
    wide = divide_sigma(1.0, [1e200, 3e200])
    assert wide == pytest.approx([math.sqrt(10), math.sqrt(10) / 3])
    rng = np.random.default_rng(3)
    for weights in (rng.uniform(0.1, 9.0, count).tolist() for count in range(1, 60)):  # in exact fractions
        sigmas = list(map(Fraction, divide_sigma(5.0, weights)))
        assert Fraction(1, 50) * (1 - Fraction(1, 10**13)) <= sum(1 / (2 * s * s) for s in sigmas) <= Fraction(1, 50)


def test_large_and_many_sigmas_fall_back_to_zcdp() -> None:
    zcdp = math.sqrt(1 / (2 * rho_of(1e-5, 1e-9)))
    assert calibrate_sigma([1.0], 1e-5, 1e-9) == pytest.approx(zcdp, rel=1e-12)
    weights = [1 + i / 1000 for i in range(100)]
    sigma = calibrate_sigma(weights, 1.0, 1e-9)
    assert sum(1 / (2 * s * s) for s in divide_sigma(sigma, weights)) <= rho_of(1.0, 1e-9)
    assert calibrate_epsilon([1e6], 1e-9) == epsilon_of(1 / (2 * 10**12), 1e-9)


@pytest.mark.parametrize(("sigmas", "delta"), list(product([[1.0] * 4, [2.0, 5.0, 9.0], [30.0] * 15], [1e-5, 1e-9])))
def test_dp_accounting_agrees(sigmas: list[float], delta: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    bounds = []
    for pessimistic in (True, False):
        parts = [
            pld.from_discrete_gaussian_mechanism(
                sigma, pessimistic_estimate=pessimistic, value_discretization_interval=1e-3
            )
            for sigma in sigmas
        ]
        bounds.append(reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta))
    ours = calibrate_epsilon(sigmas, delta)
    assert bounds[1] * (1 - 1e-6) <= ours <= bounds[0] * (1 + 1e-6)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: calibrate_sigma([], 1, 1e-9), "weights"),
        (lambda: calibrate_sigma([1, 0], 1, 1e-9), "weights"),
        (lambda: calibrate_sigma([1, math.nan], 1, 1e-9), "weights"),
        (lambda: calibrate_sigma([1], 0, 1e-9), "epsilon"),
        (lambda: calibrate_sigma([1], math.inf, 1e-9), "epsilon"),
        (lambda: calibrate_sigma([1], 1, 0), "delta"),
        (lambda: calibrate_sigma([1], 1, 1), "delta"),
        (lambda: calibrate_epsilon([], 1e-9), "sigmas"),
        (lambda: calibrate_epsilon([1, -1], 1e-9), "sigmas"),
        (lambda: calibrate_epsilon([1], 0), "delta"),
    ],
)
def test_bad_arguments_are_named(call: Any, name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name} must"):
        call()
