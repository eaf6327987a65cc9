"""The most that a guarantee allows an attacker."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget, Neighbours, Receipt
from understudy.accounting.ceiling import Ceiling
from understudy.accounting.charge import planned_charge


def test_worked_numbers_of_one_point_and_of_a_zcdp_curve():
    point = Ceiling(np.array([1.0]), np.array([0.01]))
    assert float(point.power(0.01)) == pytest.approx(0.037183, abs=1e-6)
    assert point.advantage == pytest.approx(0.467496, abs=1e-4)
    assert point.auc == pytest.approx(0.736411, abs=1e-5)
    assert float(Ceiling(np.array([0.1]), np.array([1e-5])).power(0.6)) == pytest.approx(0.638074, abs=1e-6)
    curve = Ceiling.of_budget(Budget.of(epsilon=1.0, delta=0.01))
    assert float(curve.power(0.01)) == pytest.approx(0.035851, abs=1e-5)
    assert curve.advantage == pytest.approx(0.26330, abs=1e-4)
    assert curve.auc == pytest.approx(0.66745, abs=1e-5)


def test_a_plan_has_the_ceiling_of_its_gaussian_noise():
    budget = Budget.of(epsilon=1.0, delta=0.01)
    charges = [planned_charge("measure", ((name,),), 1, sigma=3.75252) for name in "abcd"]
    certified = budget.certify(sum(charge.rho for charge in charges))
    found = Ceiling.of(Receipt(certified, tuple(charges), Neighbours()))
    assert found.auc == pytest.approx(0.646740, abs=2e-4)
    assert found.auc >= 0.646740
    twice = Ceiling.of(Receipt(certified, tuple(charges), Neighbours(None, 1, True)))
    assert twice.auc > found.auc


def test_pure_dp_is_the_curve_of_randomised_response():
    found = Ceiling.of_budget(Budget.of(epsilon=2.0, delta=0))
    right = 1 / (1 + np.exp(-2.0))
    assert found.advantage == pytest.approx(2 * right - 1, abs=1e-3)
    assert np.array_equal(found.power([0.0, 1.0]), [0.0, 1.0])


def test_delta_set_aside_for_discovery_raises_the_ceiling():
    one = Ceiling.of_budget(Budget.of(rho=0.1, delta=1e-2, discovery_delta=5e-3))
    other = Ceiling.of_budget(Budget.of(rho=0.1, delta=1e-2))
    assert float(one.power(0.0)) == pytest.approx(float(other.power(0.0)) + 5e-3, abs=1e-6)
