"""The noise against its exact law, and against the same law with a wrong scale.

A test fails by chance with probability below 1e-9: it makes at most two comparisons with the law, each with the bound
`p_value_bound` at 4e-10, and a wrong scale is missed with probability below 1e-20. A million draws each, except where
the undecided path is forced (20,000: each draw costs a big-integer computation) and for OpenDP (50,000: it is slow).
The laws are computed here from their definition, not from the package's tables.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from understudy.gate.noise import (
    NOISES,
    GaussianLaw,
    GeometricLaw,
    LaplaceLaw,
    Table,
    discrete_gaussian,
    discrete_laplace,
    gaussian_by_rejection,
    laplace_by_rejection,
)
from understudy.gate.randomness import stream
from understudy.testing.audit import p_value_bound

pytestmark = pytest.mark.law
ALPHA = 4e-10
DRAWS = 1_000_000
FORCED = 20_000
SIGMAS = [0.3, 0.65, 1.0, 3.0, 10.0, 38.76466, 100.0, 1000.0, 1e4, 1e6]
SCALES = [0.2, 1.0, 7.3, 100.0, 1e6]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Cdf = Callable[[Ints, float], Floats]


def gaussian_cdf(x: Ints, sigma: float) -> Floats:
    if sigma > 2000:  # the midpoint rule errs by less than 1 / sigma^2
        return np.asarray(ndtr((x + 0.5) / sigma))
    reach = int(40 * sigma) + 40
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma * sigma))
    return np.asarray((np.cumsum(weights) / weights.sum())[np.clip(x, -reach, reach) + reach])


def laplace_cdf(x: Ints, scale: float) -> Floats:
    q = np.exp(-1 / scale)
    return np.asarray(np.where(x < 0, np.exp(x / scale) / (1 + q), 1 - np.exp(-(x + 1.0) / scale) / (1 + q)))


def p_value(draws: Ints, edges: Ints, sums: Floats) -> float:
    """By the cells between the edges; those that expect fewer than 10 draws join the largest one."""
    shares = np.diff(np.concatenate(([0.0], sums, [1.0])))
    seen = np.bincount(np.searchsorted(edges, draws), minlength=len(shares))
    pooled = shares * len(draws) < 10
    pooled[np.argmax(shares)] = True
    return p_value_bound(np.append(seen[~pooled], seen[pooled].sum()), np.append(shares[~pooled], shares[pooled].sum()))


FINE, COARSE = (0.9, 1.1), (0.8, 1.25)
"""Wrong scales that must be told: 10 % with a million draws; with few draws, what they tell all but surely."""


def judge(
    draws: Ints,
    cdf: Cdf,
    parameter: float,
    width: float | None = None,
    *,
    wrongly: tuple[float, float] = FINE,
) -> None:
    """Accept the law and reject it with the parameter too small or too large; up to 80 cells across 8 widths."""
    edges = np.unique(np.rint((width or parameter) * np.linspace(-4, 4, 79))).astype(np.int64)
    assert p_value(draws, edges, cdf(edges, parameter)) > ALPHA, "the law is wrong"
    for factor in wrongly:
        wrong = p_value(draws, edges, cdf(edges, parameter * factor))
        assert wrong < ALPHA, f"the test cannot tell a scale wrong by {factor}"


@pytest.mark.parametrize("sigma", SIGMAS)
def test_gaussian(sigma: float) -> None:
    judge(discrete_gaussian(sigma, DRAWS), gaussian_cdf, sigma)


@pytest.mark.parametrize("sigma", [s for s in SIGMAS if s <= 1e4])
def test_gaussian_by_table(sigma: float) -> None:
    table = Table(GaussianLaw(Fraction(sigma)))
    judge(np.concatenate([table.draw(DRAWS // 100, stream()) for _ in range(100)]), gaussian_cdf, sigma)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_gaussian_by_rejection(sigma: float) -> None:
    judge(gaussian_by_rejection(Fraction(sigma), DRAWS, stream()), gaussian_cdf, sigma)


@pytest.mark.parametrize("scale", SCALES)
def test_laplace(scale: float) -> None:
    judge(discrete_laplace(scale, DRAWS), laplace_cdf, scale)


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_by_rejection(scale: float) -> None:
    judge(laplace_by_rejection(Fraction(scale), DRAWS, stream()), laplace_cdf, scale)


@pytest.mark.parametrize("width", [2, 5])
def test_undecided_table_draws_follow_the_law(width: int) -> None:
    """With a table of so few bits, a large part of the draws is settled with more bits."""
    judge(Table(GaussianLaw(Fraction(2)), width).draw(FORCED, stream()), gaussian_cdf, 2.0, wrongly=COARSE)
    judge(Table(LaplaceLaw(Fraction(2)), width).draw(FORCED, stream()), laplace_cdf, 2.0, wrongly=COARSE)


@pytest.mark.parametrize("margin", [0.1, 2.0])
def test_undecided_trials_follow_the_law(margin: float) -> None:
    """With so wide a margin, many or all of the trials are settled exactly."""
    judge(gaussian_by_rejection(Fraction(50), FORCED, stream(), margin), gaussian_cdf, 50.0, wrongly=COARSE)
    judge(laplace_by_rejection(Fraction(7.3), FORCED, stream(), margin), laplace_cdf, 7.3, wrongly=COARSE)


def test_geometric() -> None:
    rate = 0.37

    def cdf(x: Ints, rate: float) -> Floats:
        return np.asarray(np.where(x < 0, 0.0, -np.expm1(-rate * (x + 1.0))))

    judge(Table(GeometricLaw(Fraction(rate))).draw(DRAWS, stream()), cdf, rate, 1 / rate)


@pytest.mark.parametrize("parameter", [0.65, 12.5])
def test_opendp_follows_the_same_laws(parameter: float) -> None:
    pytest.importorskip("opendp")
    judge(NOISES["opendp"].gaussian(parameter, DRAWS // 20), gaussian_cdf, parameter, wrongly=COARSE)
    judge(NOISES["opendp"].laplace(parameter, DRAWS // 20), laplace_cdf, parameter, wrongly=COARSE)


def test_draws_are_independent() -> None:
    """Neighbouring draws, and draws a block apart, are uncorrelated.

    Eight comparisons at 7 standard errors fail by chance with probability below 1e-10.
    """
    for sigma in (10.0, 1e6):
        draws = discrete_gaussian(sigma, DRAWS) / sigma
        for lag in (1, 2, 1 << 13, 1 << 15):
            correlation = float(np.mean(draws[:-lag] * draws[lag:]))
            assert abs(correlation) < 7 / np.sqrt(DRAWS - lag)
