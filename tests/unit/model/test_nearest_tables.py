"""Tables fitted all at once: as near as estimation gets, consistent, positive, and in as many steps for any rows."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import Domain, Forbidden
from understudy.measurement import Measurement, Scaling
from understudy.model.estimate import estimate
from understudy.model.tree import average_measurements, estimate_rows, fit_tree, nearest_tables, start_tree

DOMAIN = Domain({"a": 6, "b": 5, "c": 4, "d": 7})
CHAIN = [("a",), ("b",), ("c",), ("d",), ("a", "b"), ("c", "b"), ("c", "d")]


def noisy(cliques, *, rows=10_000.0, sigma=20.0, seed=0, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    joint = rows * rng.dirichlet(np.full(domain.cells(domain.columns), 0.05)).reshape(domain.shape(domain.columns))
    out = []
    for clique in cliques:
        table = joint.sum(axis=tuple(i for i, column in enumerate(domain) if column not in clique))
        table = table.transpose(np.argsort(np.argsort([domain.columns.index(column) for column in clique])))
        out.append(Measurement(clique, np.rint(table + rng.normal(0, sigma, table.shape)).astype(int), sigma))
    return out


def margin_of(tables, clique, onto):
    return np.einsum(f"{''.join(clique)}->{''.join(onto)}", tables[clique])


def loss(tables, measurements):
    """Of the measurements, by the margins of tables that contain them."""
    total = 0.0
    for m in measurements:
        clique = next(clique for clique in tables if set(m.clique) <= set(clique))
        margin = margin_of(tables, clique, m.clique)
        total += 0.5 * float(np.square((margin.ravel() - m.values) / m.sigma).sum())
    return total


@pytest.mark.parametrize("sigma", [1.0, 20.0, 500.0])
@pytest.mark.parametrize(
    "cliques",
    [CHAIN, CHAIN[4:], [("a", "b", "c"), ("a", "b"), ("b", "c", "d"), ("d",)], [("a", "b"), ("c",), ("d",)]],
    ids=["chain", "no one-ways", "triples", "in parts"],
)
def test_as_near_as_estimation_gets_consistent_and_positive(cliques, sigma):
    measurements = noisy(cliques, sigma=sigma)
    measured = average_measurements(DOMAIN, measurements)
    rows = estimate_rows(measured)
    tables = nearest_tables(DOMAIN, measured, rows)
    model = estimate(DOMAIN, measurements, tolerance=1e-8)
    assert rows == pytest.approx(model.total)
    assert loss(tables, measurements) <= (1 + 1e-5) * model.report.loss
    for clique, table in tables.items():
        assert table.min() > 0
        assert table.sum() == pytest.approx(rows, abs=0.01 * sigma)
        for other in tables:
            onto = [column for column in clique if column in other]
            one, two = (margin_of(tables, side, onto) for side in (clique, other))
            assert one == pytest.approx(two, abs=0.01 * sigma)


def test_the_start_is_the_answer_and_estimation_takes_as_many_steps_for_any_rows():
    steps = []
    for rows in (1e4, 1e6, 1e8, 1e10):
        measurements = noisy(CHAIN, rows=rows)
        start = start_tree(DOMAIN, measurements)
        model = fit_tree(DOMAIN, measurements)
        assert model.report.converged
        for measurement in measurements:
            assert start.project(measurement.clique) * model.total == pytest.approx(
                model.project(measurement.clique), abs=0.2
            )
        steps.append(model.report.iterations)
    assert max(steps) <= 150


def test_what_is_forbidden_within_a_table_stays_empty():
    mask = np.zeros((4, 5), bool)
    mask[2, 1:] = mask[0, 3] = True
    domain = Domain(dict(DOMAIN), [Forbidden(("c", "b"), lambda: mask)])
    measurements = noisy(CHAIN, domain=DOMAIN)
    tables = nearest_tables(domain, average_measurements(domain, measurements), 10_000.0)
    assert tables["b", "c"].T[mask].max() < 1e-3
    model = estimate(domain, measurements, total=10_000.0, tolerance=1e-8)
    assert loss(tables, measurements) <= (1 + 1e-5) * model.report.loss


def test_a_table_measured_twice_in_either_order_is_one_by_precision():
    one = Measurement(("a", "b"), np.arange(30), 2.0)
    other = Measurement(("b", "a"), np.arange(30).reshape(6, 5).T.ravel() + 5, 1.0)
    (table,) = average_measurements(DOMAIN, [one, other]).values()
    assert table.values == pytest.approx(np.arange(30).reshape(6, 5) + 4)
    assert table.precision == pytest.approx(1.25)
    scaled = Measurement(("c",), np.array([4.0, 3.0, 2.0, 1.0]), 3.0, Scaling(np.array([1.0, 1.0, 1.0, 0.5])))
    (table,) = average_measurements(DOMAIN, [scaled]).values()
    assert table.values.tolist() == [4, 3, 2, 2]
    assert table.rows == (11.0, pytest.approx(9 * 7))


@pytest.mark.parametrize("values", [-1000, 0, 3])
def test_noise_alone_gives_a_proper_table(values):
    measurements = [Measurement(clique, np.full(DOMAIN.cells(clique), values), 5.0) for clique in CHAIN]
    tables = nearest_tables(DOMAIN, average_measurements(DOMAIN, measurements), 1.0)
    for table in tables.values():
        assert table.min() > 0
        assert table.sum() == pytest.approx(1.0, abs=0.05)


def test_cliques_with_a_cycle_are_a_start_too():
    measurements = noisy([("a", "b"), ("b", "c"), ("a", "c"), ("d",)])
    tables = nearest_tables(DOMAIN, average_measurements(DOMAIN, measurements), 10_000.0)
    assert set(tables) == {("a", "b"), ("b", "c"), ("a", "c"), ("d",)}
    assert fit_tree(DOMAIN, measurements).report.converged
