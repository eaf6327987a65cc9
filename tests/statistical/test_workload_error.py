"""The measured workload error is unbiased, its interval covers as often as it says; shorter ones are noticed.

A test fails by chance with probability below 1e-9: each makes one comparison with the law, by the exact binomial law at
4e-10 or at 6.3 standard errors. A coverage whose scale is wrong by 1.3 is called right with probability below 1e-17
(the closest is Laplace noise at a confidence of 0.95).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from understudy.accounting import Budget
from understudy.gate import PrivateTable
from understudy.quality import Quality
from understudy.testing.tables import CodedSource

pytestmark = pytest.mark.law
DRAWS = 8000
ALPHA = 4e-10
REACH = 6.3  # standard errors
TABLES = [("a",), ("a", "b"), ("b", "c")]
WEIGHTS = {TABLES[0]: 1, TABLES[1]: 3, TABLES[2]: 2}
SIZES = {"a": 3, "b": 4, "c": 2}
ROWS = np.random.default_rng(1).integers(0, [3, 4, 2], (200, 3))
GIVEN = {clique: np.full([SIZES[c] for c in clique], 190.5 / math.prod(SIZES[c] for c in clique)) for clique in TABLES}


def exact() -> float:
    places = {name: i for i, name in enumerate(SIZES)}
    total = 0.0
    for clique, weight in WEIGHTS.items():
        table = np.zeros([SIZES[column] for column in clique])
        np.add.at(table, tuple(ROWS[:, places[column]] for column in clique), 1)
        total += weight * float(np.abs(table - GIVEN[clique]).sum())
    return total / sum(WEIGHTS.values())


def answers(budget: Budget) -> list[Quality]:
    source = CodedSource(SIZES, ROWS.tolist())
    found = []
    for _ in range(DRAWS):
        apart = PrivateTable(source, budget).error(GIVEN, weights=WEIGHTS, rho=float(budget.capacity))
        found.append(Quality(apart.rows, apart.scale, apart.noise, "w", 3, 3, 1.0))
    return found


def covered(found: list[Quality], confidence: float, shorter: float = 1.0) -> bool:
    """Whether coverage is what it says."""
    truth = exact()
    inside = 0
    for one in found:
        low, high = Quality(one.value, one.scale / shorter, one.noise, "w", 3, 3, 1.0).interval(confidence)
        inside += low <= truth <= high
    return bool(binomtest(inside, DRAWS, confidence).pvalue > ALPHA)


@pytest.fixture(scope="module", params=["gaussian", "laplace"])
def found(request: pytest.FixtureRequest) -> list[Quality]:
    # the truth lies far above the noise: no end of an interval is cut
    return answers(Budget.of(rho=0.02) if request.param == "gaussian" else Budget.of(epsilon=0.4, delta=0))


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
def test_the_interval_covers_as_often_as_it_says(found: list[Quality], confidence: float) -> None:
    assert covered(found, confidence)
    assert not covered(found, confidence, shorter=1.3)
    assert not covered(found, confidence, shorter=1 / 1.3)


def test_the_estimate_is_unbiased(found: list[Quality]) -> None:
    deviation = found[0].scale * (1.0 if found[0].noise == "gaussian" else math.sqrt(2))
    mean = float(np.mean([one.value for one in found]))
    assert abs(mean - exact()) < REACH * deviation / math.sqrt(DRAWS)
    assert abs(1.2 * mean - exact()) > REACH * deviation / math.sqrt(DRAWS)


def test_the_noise_is_that_of_one_number(found: list[Quality]) -> None:
    expected = 1 / math.sqrt(2 * 0.02) if found[0].noise == "gaussian" else 1 / 0.4
    assert found[0].scale == pytest.approx(expected, rel=1e-6)
