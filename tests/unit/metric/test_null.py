"""The right null: rows drawn from the model of the real rows, not two samples of one population."""

import numpy as np
import pytest

from understudy.metric.propensity import Stacked, fit_logistic, null_expectation, score_in_sample


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
