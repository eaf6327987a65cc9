"""Numerics of privacy over arbitrary arguments: enclosures enclose, conversions and sums are never optimistic."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.accounting.calibrate import calibrate_epsilon, calibrate_sigma, divide_sigma
from understudy.accounting.convert import delta_of, epsilon_of, rho_of
from understudy.accounting.exact import exp_neg
from understudy.gate.noise import discrete_gaussian, discrete_laplace
from understudy.gate.selection import exponential_mechanism

fractions = st.builds(Fraction, st.integers(0, 10**12), st.integers(1, 10**12))
epsilons = st.floats(1e-4, 50)
deltas = st.floats(1e-15, 0.1)
rhos = st.floats(1e-8, 50)


@settings(deadline=None)
@given(fractions, st.integers(1, 300))
def test_exp_neg_encloses(x: Fraction, bits: int) -> None:
    lower, upper = exp_neg(x, bits)
    assert 0 <= upper - lower <= 3
    with localcontext() as context:
        context.prec = 130
        exact = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**bits
        assert lower <= exact <= upper


@settings(deadline=None)
@given(epsilons, deltas)
def test_rho_round_trip(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert delta_of(rho, epsilon) <= delta * (1 + 1e-9)
    assert epsilon_of(rho, delta) <= epsilon * (1 + 1e-9)
    assert delta_of(rho * 1.0001, epsilon) > delta


@settings(deadline=None)
@given(rhos, deltas)
def test_epsilon_round_trip(rho: float, delta: float) -> None:
    epsilon = epsilon_of(rho, delta)
    assert delta_of(rho, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert rho_of(epsilon, delta) == pytest.approx(rho, rel=1e-9)


@settings(deadline=None)
@given(rhos, deltas, st.floats(1.001, 3))
def test_more_rho_or_less_delta_never_costs_less(rho: float, delta: float, factor: float) -> None:
    assert epsilon_of(rho * factor, delta) >= epsilon_of(rho, delta)
    assert epsilon_of(rho, delta / factor) >= epsilon_of(rho, delta)


sigma_lists = st.lists(st.floats(0.4, 30), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(sigma_lists, st.sampled_from([1e-5, 1e-9]))
def test_random_compositions_are_never_below_the_truth(sigmas: list[float], delta: float) -> None:
    """dp-accounting's optimistic estimate is a lower bound of the true epsilon, its Renyi accountant an upper one."""
    import dp_accounting
    from dp_accounting import rdp
    from dp_accounting.pld import privacy_loss_distribution as pld

    parts = [
        pld.from_discrete_gaussian_mechanism(sigma, pessimistic_estimate=False, value_discretization_interval=5e-3)
        for sigma in sigmas
    ]
    truth = reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta)
    rho = sum(1 / (2 * Fraction(sigma) ** 2) for sigma in sigmas)
    by_loss, by_zcdp = calibrate_epsilon(sigmas, delta), epsilon_of(rho, delta)
    assert truth * (1 - 1e-6) <= by_loss <= by_zcdp
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for sigma in sigmas:
        accountant.compose(dp_accounting.ZCDpEvent(1 / (2 * sigma * sigma)))
    assert by_zcdp <= accountant.get_epsilon(delta) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.2, 5), min_size=1, max_size=4), st.floats(0.2, 10), st.sampled_from([1e-5, 1e-12]))
def test_planned_sigma_keeps_its_claim(weights: list[float], epsilon: float, delta: float) -> None:
    sigma = calibrate_sigma(weights, epsilon, delta)
    assert calibrate_epsilon(divide_sigma(sigma, weights), delta) <= epsilon * (1 + 2e-6)
    assert sigma <= math.sqrt(1 / (2 * rho_of(epsilon, delta))) * (1 + 1e-12)


@settings(deadline=None)
@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=40), fractions)
def test_selection_answers_with_an_index_it_could_choose(scores: list[int], rate: Fraction) -> None:
    chosen = exponential_mechanism(scores, rate)
    assert 0 <= chosen < len(scores)
    assert rate * (max(scores) - scores[chosen]) < 60  # 40 candidates of weight exp(-60): below 1e-24


@settings(deadline=None)
@given(st.floats(1e-6, 2.0**50), st.integers(0, 50))
def test_noise_of_any_parameter_stays_in_reach(parameter: float, size: int) -> None:
    for drawn, reach in ((discrete_gaussian(parameter, size), 11), (discrete_laplace(parameter, size), 60)):
        assert drawn.shape == (size,)
        assert drawn.dtype == np.int64
        assert (np.abs(drawn) <= reach * parameter + 1).all()  # beyond: probability below 1e-22 for all draws together
