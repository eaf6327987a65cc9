"""How noisy tables are combined: the precision-weighted mean and the noisy number of rows."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.measurement import Measurement, combine, noisy_total, weighted_mean


def test_the_noisy_total_is_the_inverse_variance_mean():
    small = Measurement(("a",), np.array([10, 20]), 1.0)
    large = Measurement(("b",), np.array([5, 5, 5, 5]), 2.0)
    assert noisy_total([small, large]) == pytest.approx((30 / 2 + 20 / 16) / (1 / 2 + 1 / 16))
    assert noisy_total([Measurement(("a",), np.array([-9, 0]), 1.0)]) == 1.0
    assert noisy_total([]) == 1.0


def test_a_single_estimate_is_returned_bit_by_bit():
    values = np.array([0.1, -7.3])
    mean, precision = weighted_mean([(values, 3.7)])
    assert mean is values
    assert precision == 3.7


def test_the_weighted_mean_has_the_least_variance_of_all_combinations():
    precision = np.array([1.0, 0.25, 4.0])
    mean, total = weighted_mean((float(value), float(p)) for value, p in zip([3, 5, 10], precision, strict=True))
    assert mean == pytest.approx((3 * 1 + 5 * 0.25 + 10 * 4) / 5.25)
    assert total == pytest.approx(5.25)


def test_precisions_may_differ_by_cell():
    mean, precision = weighted_mean([(np.array([2.0, 2.0]), np.array([1.0, 3.0])), (np.array([6.0, 6.0]), np.ones(1))])
    assert mean.tolist() == [4.0, 3.0]
    assert precision.tolist() == [2.0, 4.0]


def test_combined_measurements_of_a_clique_have_the_sigma_of_their_mean():
    one, other = (Measurement(("a",), np.array(values), sigma) for values, sigma in (([8, 0], 3.0), ([4, 1], 1.0)))
    mean, sigma = combine([one, other])
    assert mean == pytest.approx([(8 / 9 + 4) / (1 / 9 + 1), 1 / (1 / 9 + 1)])
    assert sigma == pytest.approx((1 / 9 + 1) ** -0.5)
