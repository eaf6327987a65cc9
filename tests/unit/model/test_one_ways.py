"""Columns by themselves: the closed form agrees with the engine, and with the conditions of a least-squares optimum."""

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.mechanism.compress import compress
from understudy.model.estimate import estimate
from understudy.model.generate import re_express_all
from understudy.model.tree import fit_one_ways, nearest_counts

DOMAIN = Domain({"a": 6, "b": 2, "c": 9})


def noisy(seed: int) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    true = {"a": [400, 90, 8, 0, 1, 1], "b": [480, 20], "c": [300, 120, 70, 5, 2, 2, 1, 0, 0]}
    sigmas = {"a": 4.0, "b": 2.0, "c": 7.0}
    return [Measurement((c,), np.rint(rng.normal(true[c], sigmas[c])).astype(np.int64), sigmas[c]) for c in true]


@pytest.mark.parametrize("total", [None, 500.0])
def test_agrees_with_the_engine_over_merged_codes(total):
    raw = noisy(1)
    recoding = compress(DOMAIN, raw)
    assert recoding.maps  # or the re-expressed tables would not be exercised
    merged, tables = recoding.recode(DOMAIN), re_express_all(DOMAIN, raw, recoding)
    counts, rows = fit_one_ways(merged, tables, total=total)
    model = estimate(merged, tables, total=total, tolerance=1e-9)
    assert rows == pytest.approx(model.total)
    for column in merged:
        assert counts[column] == pytest.approx(model.project((column,)), abs=0.05)


def test_two_looks_at_a_column_are_averaged_by_precision():
    looks = [Measurement(("b",), np.array([10, 30]), 1.0), Measurement(("b",), np.array([30, 10]), 3.0)]
    counts, rows = fit_one_ways(Domain({"b": 2}), looks)
    assert rows == pytest.approx(40.0)
    assert counts["b"] == pytest.approx([12.0, 28.0])


@pytest.mark.parametrize("seed", range(5))
def test_nearest_meets_the_conditions_of_the_optimum(seed):
    rng = np.random.default_rng(seed)
    values, precision = rng.normal(3, 10, 20), rng.uniform(0.1, 4, 20)
    found = nearest_counts(values, precision, 50.0)
    slope = precision * (found - values)  # equal where positive, no smaller where zero
    assert found.min() >= 0
    assert found.sum() == pytest.approx(50.0)
    assert (found == 0).any()
    inside = slope[found > 0]
    assert np.ptp(inside) < 1e-9
    assert (slope[found == 0] >= inside[0] - 1e-9).all()
