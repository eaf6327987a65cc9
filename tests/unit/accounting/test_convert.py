"""Conversions: published values, round trips, the safe direction, edge cases."""

from __future__ import annotations

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from understudy.accounting.convert import _edge, _log_delta, delta_of, epsilon_of, rho_of
from understudy.errors import SettingError

KNOWN = [
    (1, 1e-9, 0.0149730577),
    (1, 1e-5, 0.0305565952),
    (0.1, 1e-9, 0.0001771384),
    (0.5, 1e-9, 0.00395319),
    (2, 1e-9, 0.0561305018),
    (10, 1e-9, 1.0907857),
]


@pytest.mark.parametrize(("epsilon", "delta", "rho"), KNOWN)
def test_known_values(epsilon: float, delta: float, rho: float) -> None:
    assert rho_of(epsilon, delta) == pytest.approx(rho, rel=1e-6)
    assert epsilon_of(rho_of(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)
    assert rho_of(epsilon_of(rho, delta), delta) == pytest.approx(rho, rel=1e-9)


def test_more_known_values() -> None:
    assert delta_of(0.1, 1) == pytest.approx(0.00893325, rel=1e-6)
    assert epsilon_of(0.1, 1e-6) == pytest.approx(2.14193893, rel=1e-8)
    assert epsilon_of(0.5, 1e-9) == pytest.approx(6.47407002, rel=1e-8)


def test_better_than_the_old_closed_form() -> None:
    for epsilon, delta, _ in KNOWN:
        log = math.log(1 / delta)
        assert rho_of(epsilon, delta) > (math.sqrt(epsilon + log) - math.sqrt(log)) ** 2


def best_delta(rho: Fraction, epsilon: Fraction) -> Decimal:
    """The minimum over a of the conversion's formula, by golden section in 50 digits."""
    with localcontext() as context:
        context.prec = 50
        r = Decimal(rho.numerator) / Decimal(rho.denominator)
        e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)

        def log_delta(log_b: Decimal) -> Decimal:
            b = log_b.exp()
            a = 1 + b
            return b * (a * r - e) + a * (b / a).ln() - log_b

        low, high = Decimal(-25), ((e + 1) / (2 * r) + 2).ln()
        for _ in range(250):
            third = (high - low) / 3
            if log_delta(low + third) < log_delta(high - third):
                high -= third
            else:
                low += third
        return log_delta((low + high) / 2).exp()


@pytest.mark.parametrize("rho", [1e-6, 0.0149, 0.3, 2.0])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_delta_is_never_below_the_formula(rho: float, epsilon: float) -> None:
    exact = best_delta(Fraction(rho), Fraction(epsilon))
    assert Decimal(delta_of(rho, epsilon)) >= exact
    if exact > Decimal("1e-300"):
        assert delta_of(rho, epsilon) == pytest.approx(min(1.0, float(exact)), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta", "rho"), KNOWN)
def test_claims_hold_in_fifty_digits(epsilon: float, delta: float, rho: float) -> None:
    assert best_delta(Fraction(rho_of(epsilon, delta)), Fraction(epsilon)) <= Decimal(delta)
    assert best_delta(Fraction(rho), Fraction(epsilon_of(rho, delta))) <= Decimal(delta)


def test_the_search_stays_on_the_safe_side() -> None:
    low, high = _edge(lambda x: x * x <= 2, 3.0), _edge(lambda x: x * x <= 2, 3.0, above=True)
    assert low * low <= 2 < high * high
    assert high - low < 1e-14


def test_edges() -> None:
    assert delta_of(0, 1) == 0
    assert delta_of(0, 0) == 0
    assert epsilon_of(0, 0) == 0
    assert epsilon_of(0, 1e-9) == 0
    assert epsilon_of(0.1, 0) == math.inf
    assert rho_of(1, 0) == 0
    assert rho_of(math.inf, 1e-9) == math.inf
    assert epsilon_of(math.inf, 1e-9) == math.inf
    assert delta_of(1e6, 1) == 1
    assert 0 < delta_of(1e-5, 1) < 1e-300  # never zero by underflow
    assert epsilon_of(1e-12, 0.5) == 0


@pytest.mark.parametrize("rho", [1e15, 1e31, 1e40, 1e100, 1e300])
def test_an_epsilon_beyond_all_use_is_still_one_that_holds(rho: float) -> None:
    """The larger rho is, the less of what comes on top of it a float can tell."""
    assert delta_of(rho, epsilon_of(rho, 1e-9)) <= 1e-9 * (1 + 1e-9)


def test_rationals_are_rounded_the_safe_way() -> None:
    rho = Fraction(0.1) + Fraction(1, 10**40)
    assert epsilon_of(rho, 1e-6) >= epsilon_of(math.nextafter(0.1, 1), 1e-6)
    assert delta_of(rho, 1) >= delta_of(0.1, 1)
    assert rho_of(Fraction(1) - Fraction(1, 10**40), Fraction(1, 10**9)) <= rho_of(1, 1e-9) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: rho_of(0, 1e-9), "epsilon"),
        (lambda: rho_of(-1, 1e-9), "epsilon"),
        (lambda: rho_of(math.nan, 1e-9), "epsilon"),
        (lambda: rho_of(1, 1), "delta"),
        (lambda: rho_of(1, -1e-9), "delta"),
        (lambda: rho_of(1, math.nan), "delta"),
        (lambda: epsilon_of(-1, 1e-9), "rho"),
        (lambda: epsilon_of(math.nan, 1e-9), "rho"),
        (lambda: epsilon_of(1, 1.5), "delta"),
        (lambda: delta_of(1, -1), "epsilon"),
        (lambda: delta_of(-1, 1), "rho"),
    ],
)
def test_bad_arguments_are_named(call: Any, name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name} must"):
        call()


def test_the_logarithm_of_delta_is_never_below_its_exact_value() -> None:
    """Rounding goes either way, so without an allowance for it about half of these would be."""
    rng = random.Random(0)
    with localcontext() as context:
        context.prec = 60
        for _ in range(2000):
            rho, epsilon, b = (10 ** rng.uniform(low, 2) for low in (-6, -3, -6))
            a, exact_b = 1 + Decimal(b), Decimal(b)
            exact = (a * Decimal(rho) - Decimal(epsilon)) * exact_b - a * (1 + 1 / exact_b).ln() - exact_b.ln()
            assert Decimal(_log_delta(rho, epsilon, b)) >= exact
