"""The price of a threshold, against probabilities added up one by one."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from understudy.accounting.charge import bound_tail, find_threshold, threshold_charge
from understudy.accounting.neighbours import Neighbours
from understudy.errors import SettingError

SIGMAS = [Fraction(1, 5), Fraction(1), Fraction(15, 2), Fraction(71), Fraction(1000)]


def exact_tail(sigma, t):
    """P(X >= t) of the discrete Gaussian, to 60 digits."""
    with mpmath.workdps(60):
        s = mpmath.mpf(sigma.numerator) / sigma.denominator
        weight = lambda x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * s**2))  # noqa: E731
        reach = int(20 * sigma + 40)
        whole = sum(weight(x) for x in range(-reach, reach + 1))
        return sum(weight(x) for x in range(t, t + reach)) / whole


@pytest.mark.parametrize("sigma", SIGMAS[:4])
@pytest.mark.parametrize("z", [1, 3, 6, 9])
def test_the_tail_is_bounded_from_above_and_closely(sigma, z):
    t = max(1, int(z * sigma))
    bound, exact = mpmath.mpf(0), exact_tail(sigma, t)
    claimed = bound_tail(sigma, t)
    bound = mpmath.mpf(claimed.numerator) / claimed.denominator
    assert exact <= bound <= exact * (1.7 if z < 3 else 1.15)


def test_a_tail_that_holds_everything_is_one():
    assert bound_tail(Fraction(5), 0) == bound_tail(Fraction(5), -3) == 1
    assert bound_tail(Fraction(10**9), 1, bits=16) == 1


@pytest.mark.parametrize("max_rows", [1, 7])
@pytest.mark.parametrize("delta", [Fraction(1, 1000), Fraction(1, 10**12), Fraction(1, 10**40)])
@pytest.mark.parametrize("sigma", SIGMAS[:4])
def test_the_threshold_is_safe_and_one_less_would_not_be(sigma, delta, max_rows):
    threshold, cost = find_threshold(sigma, max_rows, delta)
    assert cost <= delta
    assert max_rows * exact_tail(sigma, threshold - max_rows) <= float(cost) * (1 + 1e-12)
    bits = 512
    assert max_rows * bound_tail(sigma, threshold - 1 - max_rows, bits) > delta


def test_more_rows_per_unit_cost_more():
    one, many = (
        find_threshold(Fraction(50), 1, Fraction(1, 10**9)),
        find_threshold(Fraction(50), 30, Fraction(1, 10**9)),
    )
    assert many[0] > one[0] + 29


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(-1, 9)])
def test_a_delta_outside_its_range_is_refused(delta):
    with pytest.raises(SettingError, match="delta above 0"):
        find_threshold(Fraction(5), 1, delta)


@pytest.mark.parametrize("replace_one", [False, True])
@pytest.mark.parametrize("max_rows", [1, 4])
def test_the_charge_is_the_noise_and_the_threshold(max_rows, replace_one):
    neighbours = Neighbours(None if max_rows == 1 else "who", max_rows, replace_one)
    charge = threshold_charge((("city",),), neighbours, share=Fraction(1, 100), delta=Fraction(1, 10**8))
    sigma, squared = Fraction(charge.scale), max_rows**2 * (2 if replace_one else 1)
    assert charge.rho == squared / (2 * sigma**2) <= Fraction(1, 100)
    assert charge.rho > Fraction(99, 10000)
    assert (charge.what, charge.noise) == ("values", "gaussian")
    assert (charge.threshold, charge.delta) == find_threshold(sigma, max_rows, Fraction(1, 10**8))
