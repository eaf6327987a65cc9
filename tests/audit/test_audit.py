"""Every stage of the gate, run thousands of times on two worst-case neighbouring tables, stays below its claim.

The stages draw true random bits; each test fails by chance with probability at most `audit.ERROR`, 1e-9.
"""

from __future__ import annotations

import math
from functools import partial

import pytest

from understudy.testing.audit import check_claim, epsilon_at_least
from understudy.testing.trials import (
    dependence_trial,
    gaussian_trial,
    independent_trial,
    laplace_trial,
    own_value_trial,
    selection_trial,
    shared_value_trial,
)

STAGES = {
    "measure-gaussian": gaussian_trial,
    "measure-laplace": laplace_trial,
    "select-pure": partial(selection_trial, pure=True),
    "select-zcdp": partial(selection_trial, pure=False),
    "dependence": dependence_trial,
    "values-shared": shared_value_trial,
    "values-own": own_value_trial,
    "independent": partial(independent_trial, replace_one=False),
    "independent-replace-one": partial(independent_trial, replace_one=True),
}


@pytest.mark.law
@pytest.mark.parametrize("stage", STAGES)
def test_measured_epsilon_stays_below_the_claim(stage):
    check_claim(STAGES[stage]())


def test_the_bound_is_below_the_truth_and_close_to_it_with_many_runs():
    runs, p, q, delta = 10**7, 0.5, 0.1, 0.05
    bound = epsilon_at_least(int(runs * p), int(runs * q), runs, delta)
    truth = math.log((p - delta) / q)
    assert truth - 0.01 < bound < truth


def test_the_bound_holds_at_the_edges():
    assert epsilon_at_least(0, 0, 100, 0.0) == 0.0
    assert epsilon_at_least(100, 100, 100, 0.0) == 0.0
    assert 0 < epsilon_at_least(1000, 0, 1000, 0.0) < math.log(1000)


def test_the_bound_at_the_edges_is_that_of_one_error_in_a_billion():
    """The upper bound at 0 of n is the p with (1 - p)^n = error / 2."""
    n = 1000
    high = 1 - (0.5e-9) ** (1 / n)
    low = (0.5e-9) ** (1 / n)
    assert epsilon_at_least(n, 0, n, 0.0) == pytest.approx(math.log(low / high), rel=1e-9)
