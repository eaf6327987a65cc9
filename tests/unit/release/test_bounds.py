"""Bounds: tails that are exact or on the safe side, and intervals that hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.aim import AIM
from understudy.model.graphical import GraphicalModel
from understudy.release.bounds import (
    Evidence,
    NoiseSum,
    Stage,
    bound_count,
    bound_marginals,
    subgaussian_l1,
    weighted_average,
)
from understudy.testing import insecure
from understudy.testing.tables import CodedSource

DOMAIN = Domain({"a": 3, "b": 4})
TRUE = np.array([[40, 3, 0, 9], [11, 25, 2, 0], [0, 7, 30, 5]])


def _pmf(noise, sigma, reach=400):
    k = np.arange(-reach, reach + 1)
    if noise == "gaussian":
        p = np.exp(-(k**2) / (2 * sigma**2))
    else:  # found by bisection on the variance, another way than the code's
        low, high = 1e-12, 1 - 1e-12
        for _ in range(200):
            q = (low + high) / 2
            low, high = (q, high) if 2 * q / (1 - q) ** 2 < sigma**2 else (low, q)
        p = q ** np.abs(k)
    return p / p.sum()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("terms", [1, 3])
@pytest.mark.parametrize("beta", [0.3, 0.05, 1e-4])
def test_tails_are_the_exact_quantiles(noise, terms, beta):
    one = _pmf(noise, 2.5)
    summed = one
    for _ in range(terms - 1):
        summed = np.convolve(summed, one)
    k = np.abs(np.arange(len(summed)) - len(summed) // 2)
    either = next(t for t in range(1000) if summed[k > t].sum() <= beta)
    one_sided_quantile = next(t for t in range(1000) if summed[k > t].sum() / 2 <= beta)
    law = NoiseSum.of(noise, 2.5, terms)
    assert (law.two_sided_quantile(beta), law.one_sided_quantile(beta)) == (either, one_sided_quantile)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("cells", [2, 8])
def test_l1_bound_holds_and_is_not_loose(noise, cells):
    mass = NoiseSum.of(noise, 3.0, 2).mass
    summed = mass
    for _ in range(cells - 1):
        summed = np.convolve(summed, mass)
    beyond = 1 - np.cumsum(summed)
    for beta in (0.2, 0.01):
        bound = NoiseSum.of(noise, 3.0, 2).l1(cells, beta)
        exact = int(np.argmax(beyond <= beta))
        assert exact <= bound <= 2 * exact


def test_l1_of_many_cells_comes_near_the_mean():
    assert NoiseSum.of("gaussian", 50.0, 1).l1(10_000, 0.05) < 1.05 * math.sqrt(2 / math.pi) * 50 * 10_000


@pytest.mark.parametrize("cells", [1, 5, 200, 10_000])
@pytest.mark.parametrize("beta", [0.5, 0.05, 1e-6])
def test_subgaussian_bound_is_not_looser_than_theorem_3_and_holds_for_gaussians(cells, beta):
    bound = subgaussian_l1(cells, 4.0, beta)
    u = math.sqrt(-math.log(beta))
    assert bound <= math.sqrt(2 * math.log(2)) * 2 * cells + u * 2 * math.sqrt(2 * cells) + 1e-9
    if beta > 1e-3:
        draws = np.abs(np.random.default_rng(5).normal(0, 2, (2000 if cells < 1000 else 50, cells))).sum(axis=1)
        assert (draws > bound).mean() <= beta


def test_laws_that_reach_too_far_are_not_written_down():
    assert NoiseSum.of("gaussian", 1e6, 4) is None
    assert NoiseSum.of("laplace", 1e6, 1) is None


def _model(table=TRUE):
    return GraphicalModel(DOMAIN, {("a", "b"): np.log(np.maximum(table, 0.5))}, total=float(table.sum()))


def test_weighted_average_has_theorem_2s_variance():
    rng = np.random.default_rng(0)
    pair = Measurement(("b", "a"), (TRUE.T + rng.normal(0, 2, (4, 3))).ravel(), 2.0)
    single = Measurement(("a",), TRUE.sum(axis=1), 3.0)
    evidence = Evidence(_model(), DOMAIN)
    mean, variance = weighted_average([pair, single], evidence, ("a",))
    assert variance == pytest.approx(1 / (3 / (12 * 4) + 1 / 9))
    y = pair.values.reshape(4, 3).sum(axis=0)
    assert mean == pytest.approx((y / 16 + TRUE.sum(axis=1) / 9) / (1 / 16 + 1 / 9))
    assert weighted_average([single], evidence, ("b",)) is None


def _coverage(scale, runs=300, confidence=0.9):
    """How often the bound of a marginal, and the interval of a count, hold when noise is so many times as stated."""
    rng = np.random.default_rng(1)
    bounds = intervals = 0
    mask = {"a": np.array([True, False, False]), "b": np.array([True, True, False, False])}
    for _ in range(runs):
        values = TRUE.ravel() + np.rint(rng.normal(0, 6 * scale, 12)).astype(int)
        evidence = Evidence(_model(), DOMAIN, stages=[Stage([Measurement(("a", "b"), values, 6.0)], 1.0)])
        (bound,) = bound_marginals(evidence, [("a",)], confidence=confidence)
        error = np.abs(_model().project(("a",)) - TRUE.sum(axis=1)).sum()
        bounds += error <= bound.bound
        interval = bound_count(evidence, mask, mask, confidence=confidence)
        intervals += interval.low <= 43 <= interval.high
    return bounds / runs, intervals / runs


def test_intervals_hold_as_often_as_they_say_and_not_for_wrong_noise():
    bounds, intervals = _coverage(1.0)
    assert bounds >= 0.9
    assert 0.82 < intervals <= 0.97  # exact: neither too short nor needlessly long
    assert _coverage(2.0)[1] < 0.75


def test_sum_of_shares_is_the_whole_doubt():
    """Two looks at half the budget each: the interval is no shorter than half the beta allows."""
    values = TRUE.ravel()
    measurement = Measurement(("a", "b"), values, 6.0)
    both = Evidence(_model(), DOMAIN, stages=[Stage([measurement], 0.5), Stage([measurement], 0.5)])
    mask = {"a": np.array([True, False, False])}
    interval = bound_count(both, mask, mask, confidence=0.9)
    assert interval.high - TRUE[0].sum() == NoiseSum.of("gaussian", 6.0, 4).two_sided_quantile(0.05)


def test_merged_and_cut_codes_widen_the_interval():
    merged = Domain({"a": 2, "b": 4})
    model = GraphicalModel(merged, {("a",): np.log([52.0, 80.0])}, total=132.0)
    measurement = Measurement(("a",), np.array([52, 80]), 1.0)
    evidence = Evidence(model, DOMAIN, merged={"a": np.array([0, 1, 1])}, stages=[Stage([measurement], 1.0)])
    half = {"a": np.array([False, True, False])}
    interval = bound_count(evidence, half, half, confidence=0.95)
    assert interval.low == 0.0  # the merged code is not wholly inside
    assert 80 <= interval.high <= 84


def test_parts_of_a_query_bound_it_from_above_only():
    evidence = Evidence(_model(), DOMAIN, stages=[Stage([Measurement(("a",), TRUE.sum(axis=1), 1.0)], 1.0)])
    masks = {"a": np.array([True, False, False]), "b": np.array([True, False, False, False])}
    interval = bound_count(evidence, masks, masks)
    assert interval.source == "contained"
    assert interval.low == 0.0
    assert 52 <= interval.high <= 56
    unknown = bound_count(Evidence(_model(), DOMAIN), masks, masks)
    assert (unknown.source, unknown.high) == ("unknown", math.inf)


def test_no_bound_is_known_without_evidence():
    (bound,) = bound_marginals(Evidence(_model(), DOMAIN), [("a", "b")])
    assert (bound.bound, bound.source, bound.supported) == (None, "unknown", False)


def test_unequal_noise_of_laplace_is_not_guessed():
    """Merged cells of a Laplace table have no single law; the bound says so instead of pretending."""
    merged = GraphicalModel(Domain({"a": 2, "b": 4}), {}, total=132.0)
    measurement = Measurement(("a",), TRUE.sum(axis=1), 2.0, noise="laplace")
    evidence = Evidence(merged, DOMAIN, merged={"a": np.array([0, 1, 1])}, stages=[Stage([measurement], 1.0)])
    assert bound_marginals(evidence, [("a",)])[0].bound is None


SIZES = {"a": 3, "b": 3, "c": 2, "d": 3}


def _rows(count=400):
    rng = np.random.default_rng(2)
    a = rng.integers(0, 3, count)
    b = np.where(rng.random(count) < 0.8, a, rng.integers(0, 3, count))
    return np.stack([a, b, (a + b) % 2, np.where(rng.random(count) < 0.6, b, 0)], axis=1)


def _fitted(rho, seed=0, **settings):
    from understudy.release.answer import _stages_from_rounds

    table = PrivateTable(CodedSource(SIZES, _rows().tolist()), Budget.of(rho=rho))
    with insecure(seed):  # which marginals are measured, and so have which bound, is a matter of noise
        fit = AIM(threshold=0.0, rounds=2.0, **settings).fit(table, rho=rho)
    cliques = [(tuple(c), float(w)) for c, w in zip(fit.rounds[0]["cliques"], fit.rounds[0]["weights"], strict=True)]
    return Evidence(fit.model, table.domain, stages=_stages_from_rounds(fit.measurements, fit.rounds), cliques=cliques)


def _true(clique):
    columns = [list(SIZES).index(column) for column in clique]
    flat = np.ravel_multi_index(_rows()[:, columns].T, [SIZES[column] for column in clique])
    return np.bincount(flat, minlength=math.prod(SIZES[column] for column in clique))


@pytest.mark.parametrize(
    ("simultaneous", "settings"), [(False, {}), (True, {}), (False, {"score": "cells", "first": 0.0, "second": 0.0})]
)
def test_bounds_of_whole_runs_hold(simultaneous, settings):
    seen = {"measured": 0, "selected": 0}
    for seed in range(6):
        evidence = _fitted(0.5, seed, **settings)
        triples = [("a", "b", "c"), ("a", "b", "d"), ("a", "c", "d"), ("b", "c", "d"), ("b", "a"), ("d",)]
        for bound in bound_marginals(evidence, triples, confidence=1 - 1e-6, simultaneous=simultaneous):
            if bound.bound is not None:
                error = np.abs(evidence.model.project(bound.clique).ravel() - _true(bound.clique)).sum()
                assert error <= bound.bound
                assert (bound.source == "measured") <= bound.supported
                seen[bound.source] += 1
    assert min(seen.values()) > 0


def record_of(before, *, chosen, offsets, last, **rest):
    """What a release records of a choice between two cliques."""
    found = {"chosen": chosen, "epsilon": 0.5, "sensitivity": 2.0, "candidates": np.array([0, 1], np.int32), **rest}
    found |= {"offsets": np.array(offsets), "last": np.array(last, np.int32)}
    return found | {"kind": before.kind, "model": before.to_arrays()}


def test_a_choice_is_undone_by_hand():
    """Corollary 2 written out for one round: two candidates, of which the other one was chosen."""
    domain = Domain({"a": 2, "b": 2})
    before = GraphicalModel(domain, {}, total=100.0)
    y = np.array([70, 35])
    record = record_of(before, chosen=["a"], offsets=[8.0, 12.0], last=[1])
    stages = [Stage([Measurement(("a",), y, 5.0)], 0.6, record)]
    after = GraphicalModel(domain, {("a",): np.log([70.0, 35.0])}, total=105.0)
    evidence = Evidence(after, domain, stages=stages, cliques=[(("a",), 2.0), (("b",), 1.5)])
    (bound,) = bound_marginals(evidence, [("b",)], confidence=0.9)
    part = 0.1 * 0.6 / 3
    error = 20 + 15 + NoiseSum.of("gaussian", 5.0, 2).one_sided_quantile(part)
    missed = 2 * 2.0 / 0.5 * math.log(2 / part)
    assert bound.source == "selected"
    assert bound.bound == pytest.approx(5.0 + 12.0 + (2.0 * (error - 8.0) + missed) / 1.5, abs=1e-3)


def test_a_marginal_measured_with_much_noise_has_the_smaller_bound_of_a_later_choice():
    domain = Domain({"a": 2, "b": 2})
    before = GraphicalModel(domain, {}, total=100.0)
    record = record_of(before, chosen=["a"], offsets=[8.0, 12.0], last=[0, 1])
    later = Stage([Measurement(("a",), np.array([70, 35]), 5.0)], 0.6, record)
    after = GraphicalModel(domain, {("a",): np.log([70.0, 35.0])}, total=105.0)
    cliques = [(("a",), 2.0), (("b",), 1.5)]
    found = {}
    for sigma in (5.0, 500.0):
        early = Stage([Measurement(("b",), np.array([52, 52]), sigma)], 0.4)
        evidence = Evidence(after, domain, stages=[early, later], cliques=cliques)
        (found[sigma],) = bound_marginals(evidence, [("b",)], confidence=0.9)
    (alone,) = bound_marginals(Evidence(after, domain, stages=[later], cliques=cliques), [("b",)], confidence=0.9)
    assert (found[5.0].source, found[5.0].supported) == ("measured", True)
    assert (found[500.0].source, found[500.0].supported) == ("selected", True)
    assert found[5.0].bound < found[500.0].bound == alone.bound


def test_the_choice_of_the_empty_clique_says_that_no_other_score_was_much_above_0():
    domain = Domain({"a": 2, "b": 2})
    before = GraphicalModel(domain, {}, total=100.0)
    record = record_of(before, chosen=[], offsets=[12.0, 0.0], last=[0], draws=7)
    evidence = Evidence(before, domain, stages=[Stage([], 0.6, record)], cliques=[(("b",), 1.5), ((), 0.0)])
    (bound,) = bound_marginals(evidence, [("b",)], confidence=0.9)
    missed = 2 * 2.0 / 0.5 * math.log(2 * 7 / (0.1 * 0.6 / 3))
    assert bound.bound == pytest.approx(12.0 + missed / 1.5, abs=1e-3)
    everyone = np.ones(2, bool)
    assert bound_count(evidence, {"b": everyone}, {"b": everyone}).source == "selected"


def test_more_confidence_costs_width_and_together_costs_more():
    evidence = _fitted(0.5)
    cliques = [("a", "b"), ("c", "d"), ("a",)]
    low, high, together = (
        [b.bound for b in bound_marginals(evidence, cliques, confidence=c, simultaneous=s)]
        for c, s in ((0.8, False), (0.99, False), (0.99, True))
    )
    assert all(x < y for x, y in zip(low, high, strict=True))
    assert all(x <= y for x, y in zip(high, together, strict=True))
    assert high[2] < together[2]  # by its own measurement, whose beta the three share


def test_without_kept_models_unmeasured_marginals_have_no_bound():
    evidence = _fitted(0.5, bounds=False)
    assert all("model" not in (stage.round or {}) for stage in evidence.stages)
    found = bound_marginals(evidence, [("a", "b", "c"), ("a", "b", "d"), ("a", "c", "d"), ("b", "c", "d")])
    assert all(bound.supported == (bound.bound is not None) for bound in found)
