"""The right null: rows drawn from the model of the real rows, not two samples of one population."""

from dataclasses import replace

import numpy as np
import pytest

from understudy.metric.propensity import (
    Model,
    Propensities,
    Settings,
    Stacked,
    _estimate_held_out_null,
    _estimate_null,
    fit_logistic,
    null_expectation,
    score_held_out,
    score_in_sample,
)


def mean_pmse(resampled: bool, repeats: int = 300) -> float:
    """Three categories, 500 + 500 rows."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(repeats):
        real = rng.integers(0, 3, 500)
        made = rng.choice(real, 500) if resampled else rng.integers(0, 3, 500)
        terms = (np.concatenate((real, made))[:, None] == np.arange(3)).astype(float)
        labels = np.repeat([False, True], 500)
        found.append(score_in_sample("logistic", Stacked(terms, terms, labels), 0.0).pmse)
    return float(np.mean(found))


def test_the_closed_form_is_the_null_of_resampling() -> None:
    expected = null_expectation(3, 1000, 0.5)
    assert expected == pytest.approx(2.5e-4)
    # 300 repeats of a statistic whose deviation equals its mean: a standard error of 6 %, five of them allowed
    assert mean_pmse(resampled=True) == pytest.approx(expected, rel=0.3)
    independent = mean_pmse(resampled=False)
    assert independent == pytest.approx(2 * expected, rel=0.3)
    assert independent > 1.4 * expected


def test_a_fit_is_not_penalised() -> None:
    rng = np.random.default_rng(0)
    terms = rng.normal(size=(4000, 2))
    labels = rng.random(4000) < 1 / (1 + np.exp(-(0.5 + 2 * terms[:, 0] - terms[:, 1])))
    fit = fit_logistic(terms, labels)
    slopes = fit.weights[1:] / fit.scale
    gradient = np.column_stack((np.ones(4000), terms)).T @ (labels - fit.chance(terms))
    assert np.abs(gradient).max() < 1e-3  # the score equations of maximum likelihood hold
    assert slopes == pytest.approx([2.0, -1.0], abs=0.25)


def test_separated_labels_have_chances_of_0_and_1() -> None:
    terms = np.repeat([[0.0], [1.0]], 20, axis=0)
    labels = np.repeat([False, True], 20)
    chance = fit_logistic(terms, labels).chance(terms)
    assert np.isfinite(chance).all()
    assert np.abs(chance - labels).max() < 1e-6


def independent(seed: int, rows: int = 1500) -> Stacked:
    """Two samples of one distribution: two columns of categories, one of numbers."""
    rng = np.random.default_rng(seed)
    codes, number = rng.integers(0, 4, (2 * rows, 2)), rng.normal(size=2 * rows)
    terms = [(codes[:, place] == code).astype(float) for place in range(2) for code in range(4)]
    features = np.column_stack((codes, number))
    labels = np.repeat([False, True], rows)
    return Stacked(np.column_stack((*terms, number)), features, labels, unordered=(0, 1))


def test_the_held_out_null_of_a_regression_has_a_closed_form() -> None:
    """``k c (1 - c) / n`` with k coefficients, and n the rows that one of the models is fitted to."""
    rng = np.random.default_rng(1)
    found = [score_held_out("logistic", independent(seed), 0.0, rng).pmse for seed in range(60)]
    fitted = 0.7 * 3000 / 5
    assert np.mean(found) == pytest.approx(8 * 0.25 / fitted, rel=0.12)  # an intercept, 3 + 3 categories, a number


@pytest.mark.parametrize("model", ["logistic", "cart"])
def test_the_cross_validated_ratio_of_two_samples_is_about_1(model: str) -> None:
    rng = np.random.default_rng(2)
    settings = Settings(models=(model,), permutations=5)
    ratios = []
    for seed in range(12):
        data = independent(seed, 400)
        held = score_held_out(model, data, 0.002, rng)
        ratios.append(held.pmse / _estimate_held_out_null(model, data, held, 0.002, settings, rng))
    assert 0.8 < np.mean(ratios) < 1.25


def test_a_tree_divides_categories_in_any_way() -> None:
    """Synthetic rows have the even codes: no cut of the codes' order tells them apart, one cut of categories does."""
    codes = np.tile(np.arange(10), 40).astype(float)[:, None]
    labels = codes[:, 0] % 2 == 0
    ordered = Stacked(codes, codes, labels)
    assert score_in_sample("cart", replace(ordered, unordered=(0,)), 0.1).error_rate == 0.0
    assert score_in_sample("cart", ordered, 0.1).error_rate == 0.5


def test_the_error_rate_by_hand() -> None:
    chance, synthetic = np.array([0.2, 0.6, 0.5, 0.9]), np.array([False, False, True, True])
    assert Propensities(chance, synthetic, 1).error_rate == pytest.approx((0.5 + 0.25) / 2)  # (0, 1), (a half, 0)


@pytest.mark.parametrize("model", ["logistic", "cart"])
def test_the_ratio_of_two_samples_in_the_sample_is_about_2(model: Model) -> None:
    rng = np.random.default_rng(3)
    settings, ratios = Settings(models=(model,), permutations=5), []
    for seed in range(16):
        data = independent(seed, 400)
        found = score_in_sample(model, data, 0.002)
        ratios.append(found.pmse / _estimate_null(model, data, found, 0.002, settings, rng))
    assert 1.6 < np.mean(ratios) < 2.4
