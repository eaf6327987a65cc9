"""Every stage of the gate, run thousands of times on two worst-case neighbouring tables, stays below its claim.

The stages draw true random bits; each test fails by chance with probability at most `audit.ERROR`, 1e-9.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from understudy.testing.audit import check_claim, epsilon_at_least, p_value_bound

from .trials import (
    cells_trial,
    dependence_trial,
    dependent_selection_trial,
    distances_trial,
    gaussian_trial,
    independent_trial,
    laplace_trial,
    own_value_trial,
    query_trial,
    selection_trial,
    shared_value_trial,
)

STAGES = {
    "measure-gaussian": gaussian_trial,
    "measure-laplace": laplace_trial,
    "measure-queries": partial(query_trial, pure=False),
    "measure-queries-pure": partial(query_trial, pure=True),
    "select-pure": partial(selection_trial, pure=True),
    "select-zcdp": partial(selection_trial, pure=False),
    "select-dependent": dependent_selection_trial,
    "select-cells": partial(cells_trial, pure=False),
    "select-cells-pure": partial(cells_trial, pure=True),
    "dependence": dependence_trial,
    "distances": partial(distances_trial, pure=False),
    "distances-pure": partial(distances_trial, pure=True),
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


@pytest.mark.parametrize(("runs", "share"), [(5, 0.5), (40, 0.3), (400, 0.01)])
def test_the_bound_of_a_p_value_is_above_the_exact_one_and_falls_with_distance(runs, share):
    hits = np.arange(runs + 1)
    chance = binom.pmf(hits, runs, share)
    bounds = np.array([p_value_bound([k, runs - k], [share, 1 - share]) for k in hits])
    for bound in np.unique(bounds):
        assert chance[bounds <= bound].sum() <= bound * (1 + 1e-9)
    assert bounds[-1] < 3 * math.e * runs * -math.log(share) * share**runs + 1e-300
    assert bounds[round(runs * share)] == 1.0


def test_the_bound_of_a_p_value_holds_for_three_cells():
    law, runs = np.array([0.6, 0.39, 0.01]), 30
    counts = [(a, b, runs - a - b) for a in range(runs + 1) for b in range(runs + 1 - a)]
    chance = multinomial.pmf(counts, runs, law)
    bounds = np.array([p_value_bound(one, law) for one in counts])
    for bound in np.unique(bounds):
        assert chance[bounds <= bound].sum() <= bound * (1 + 1e-9)
    assert bounds.min() < 1e-30


def test_a_draw_that_the_law_excludes_has_no_chance():
    assert p_value_bound([3, 1], [1.0, 0.0]) == 0.0
    assert p_value_bound([3, 0], [1.0, 0.0]) == 1.0
