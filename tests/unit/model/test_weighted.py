"""Weighted rows: a table tilted by hand, and the model's answers against counting."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import Domain, Forbidden
from understudy.errors import InputError, ReleaseError
from understudy.measurement import Measurement, Scaling
from understudy.model.weighted import WeightedRows, find_possible, tilt

DOMAIN = Domain({"a": 2, "b": 2})
CODES = {"a": np.repeat([0, 0, 1, 1], [4, 1, 1, 4]), "b": np.repeat([0, 1, 0, 1], [4, 1, 1, 4])}
EVEN = np.ones(10)


def _ones(sigma: float) -> list[Measurement]:
    return [Measurement(("a",), np.array([60, 40]), sigma), Measurement(("b",), np.array([50, 50]), sigma)]


def test_tilting_keeps_the_odds_ratio_of_the_public_rows():
    """Public (4, 1; 1, 4): odds ratio 16. Columns (60, 40), (50, 50): 15 x^2 - 1750 x + 48000 = 0."""
    model = tilt(DOMAIN, CODES, EVEN, _ones(1e-3), total=100.0)
    assert model.project(("a", "b")) == pytest.approx(np.array([[44.0933, 15.9067], [5.9067, 34.0933]]), abs=2e-2)


def test_a_prior_that_counts_as_many_rows_is_hardly_moved_by_noise():
    """Two cells, prior (.5, .5), one measurement (60, 40) of sigma 10: the minimum is a root of one equation."""
    domain, codes = Domain({"a": 2}), {"a": np.array([0, 1])}
    measured = [Measurement(("a",), np.array([60, 40]), 10.0)]
    far = tilt(domain, codes, np.ones(2), measured, total=100.0).project(("a",))[0]
    near = tilt(domain, codes, np.ones(2), measured, total=100.0, trust=1000.0).project(("a",))[0]
    shares = np.linspace(0.5, 0.6, 100_001)
    apart = shares * np.log(2 * shares) + (1 - shares) * np.log(2 * (1 - shares))
    best = shares[np.argmin((100 * shares - 60) ** 2 / 100 + 1000 * apart)]
    assert far == pytest.approx(60, abs=0.1)
    assert near == pytest.approx(100 * best, abs=0.1)
    assert 50 < near < 53


def test_a_scaled_measurement_counts_like_the_one_it_was_made_of():
    plain = tilt(DOMAIN, CODES, EVEN, _ones(1.0), total=100.0)
    scaled = [Measurement(m.clique, m.values * 0.5, 0.5, Scaling(np.array([0.5, 0.5])), m.noise) for m in _ones(1.0)]
    again = tilt(DOMAIN, CODES, EVEN, scaled, total=100.0)
    assert again.project(("a", "b")) == pytest.approx(plain.project(("a", "b")), rel=1e-3)


def test_without_measurements_the_prior_stays():
    model = tilt(DOMAIN, CODES, np.arange(10.0) + 1, [], total=55.0)
    assert model.project(("a",)).tolist() == pytest.approx([15.0, 40.0])


def test_projections_and_conditions_are_sums_of_weights():
    model = WeightedRows(DOMAIN, 10.0, CODES, EVEN)
    assert model.project(("b", "a")).tolist() == [[4, 1], [1, 4]]
    assert model.project(()) == pytest.approx(10.0)
    given = model.condition({"a": 0})
    assert (given.total, given.project(("b",)).tolist()) == (pytest.approx(5), pytest.approx([4.0, 1.0]))
    half = model.condition({"b": np.array([0.5, 0.0])})
    assert half.project(("a",)).tolist() == pytest.approx([2.0, 0.5])
    with pytest.raises(InputError, match="cannot occur"):
        given.condition({"a": 1})
    assert model.effective_rows == pytest.approx(10)


def test_samples_hold_every_row_its_expected_number_of_times_rounded():
    weights = np.array([0.5, 1.5, 2.0, 6.0])
    codes = {"a": np.array([0, 0, 1, 1]), "b": np.array([0, 1, 0, 1])}
    made = WeightedRows(DOMAIN, 10.0, codes, weights).sample(10, np.random.default_rng(1))
    counts = np.bincount(2 * made["a"] + made["b"], minlength=4)
    assert counts.sum() == 10
    assert (np.abs(counts - weights) < 1).all()
    assert len(WeightedRows(DOMAIN, 10.0, codes, weights).sample(0, np.random.default_rng(1))["a"]) == 0


def test_arrays_make_the_same_model_and_damaged_ones_none():
    model = tilt(DOMAIN, CODES, EVEN, _ones(1.0), total=100.0)
    arrays = model.to_arrays()
    assert WeightedRows.from_arrays(DOMAIN, arrays).project(("a", "b")).tolist() == model.project(("a", "b")).tolist()
    for damage in (
        {"codes": arrays["codes"][:-1]},
        {"codes": arrays["codes"] + 2},
        {"weights": -arrays["weights"]},
        {"weights": np.full(10, np.nan)},
        {"total": np.array(np.inf)},
    ):
        with pytest.raises(ReleaseError, match="damaged"):
            WeightedRows.from_arrays(DOMAIN, arrays | damage)


def test_rows_that_a_rule_forbids_are_found():
    ruled = Domain({"a": 2, "b": 2}, [Forbidden(("a", "b"), lambda: np.array([[False, True], [False, False]]))])
    assert find_possible(ruled, CODES, 10).tolist() == [True] * 4 + [False] + [True] * 5
