import itertools

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model import descent as metric_module
from understudy.model.descent import Stride, make_metric, minimise
from understudy.model.junction_tree import JunctionTree
from understudy.model.problem import make_problem, start_cold


def problem_of(concentration):
    """All pairs of four columns; the smaller the concentration, the fewer cells have most of the people."""
    domain = Domain({"a": 5, "b": 6, "c": 4, "d": 3})
    rng = np.random.default_rng(0)
    people = 1e4 * rng.dirichlet(np.full(domain.cells(domain.columns), concentration)).reshape(domain.shape(domain))
    found = []
    for clique in itertools.combinations(domain, 2):
        counts = people.sum(axis=tuple(i for i, column in enumerate(domain) if column not in clique)).ravel()
        found.append(Measurement(clique, counts + rng.normal(0.0, 30.0, counts.size), 30.0))
    return make_problem(JunctionTree.of(domain, [m.clique for m in found]), found, 1e4, {})


@pytest.fixture(scope="module")
def problem():
    return problem_of(2.0)


@pytest.fixture(scope="module")
def place(problem):
    x = start_cold(problem, np.empty(len(problem.targets)))
    return x, problem.answers(x).copy()


def stiffness(problem, x, answers):
    """Covariance times weights, column by column."""
    columns = []
    for k in range(len(x)):
        moved = x.copy()
        moved[k] += 1e-5
        columns.append((problem.answers(moved) - answers) / 1e-5)
    return np.array(columns).T * every_weight(problem)


def every_weight(problem):
    return problem.weights.at(np.arange(len(problem.targets)))


def largest(matrix):
    return float(np.linalg.eigvals(matrix).real.max())


def found_at(problem, place, directions, **options):
    """The metric, and how many calls it took; `x` and the room are left as they were."""
    x, answers = place
    problem.room[:] = answers
    mine, before = x.copy(), problem.propagation.calls
    metric = make_metric(problem, mine, problem.weights, directions, **options)
    np.testing.assert_allclose(mine, x, atol=1e-14)
    np.testing.assert_allclose(problem.room, answers, rtol=1e-12)
    return metric, problem.propagation.calls - before


def in_full(metric, problem):
    """The stiff directions as vectors, and the metric as a matrix."""
    weights = every_weight(problem)
    rows = np.zeros((len(metric.shortened), len(weights)))
    rows[:, metric.stiff.places] = metric.stiff.rows
    return np.divide(rows, weights, out=np.zeros_like(rows), where=weights > 0.0), np.diag(weights) - (
        rows.T * metric.shortened
    ) @ rows


def test_the_curvature_is_the_largest_eigenvalue(problem, place):
    true = largest(stiffness(problem, *place))
    calls = []
    for enough in (0.0, 0.05):
        metric, spent = found_at(problem, place, 0, enough=enough)
        calls.append(spent)
        assert 0.9 * true <= metric.curvature <= 1.3 * true
        assert len(metric.shortened) == 0
    assert calls[1] < calls[0] == 9


def test_stiff_directions_are_eigenvectors_and_are_shortened_to_the_last_of_them(problem, place):
    metric, _ = found_at(problem, place, 12)
    assert len(metric.shortened) >= 3
    directions, _ = in_full(metric, problem)
    weights = every_weight(problem)
    np.testing.assert_allclose(directions * weights @ directions.T, np.eye(len(directions)), atol=1e-9)
    images = directions @ stiffness(problem, *place).T
    eigenvalues = metric.curvature / (1.0 - metric.shortened)
    errors = [np.sqrt(weights @ (i - e * d) ** 2) for i, e, d in zip(images, eigenvalues, directions, strict=True)]
    assert (errors <= 0.31 * eigenvalues).all()
    assert errors[0] <= 0.01 * eigenvalues[0]


def test_directions_that_lie_on_few_cells_are_found_there(monkeypatch):
    problem = problem_of(0.02)
    x, _ = minimise(problem, tolerance=1e-3, max_seconds=None, watch=lambda calls, loss: None)
    there = x, problem.answers(x).copy()
    everywhere, _ = found_at(problem, there, 12)
    monkeypatch.setattr(metric_module, "_FEW", 30)
    metric, _ = found_at(problem, there, 12)
    assert len(metric.stiff.places) == 30 < len(problem.targets)
    assert len(metric.shortened) >= 2
    assert metric.curvature / (1.0 - metric.shortened[0]) == pytest.approx(
        everywhere.curvature / (1.0 - everywhere.shortened[0]), rel=0.05
    )
    _, matrix = in_full(metric, problem)
    weights = every_weight(problem)
    covariance = np.divide(stiffness(problem, *there), weights, out=np.zeros((len(weights),) * 2), where=weights > 0.0)
    assert largest(covariance @ matrix) < 0.6 * largest(stiffness(problem, *there))


def test_directions_that_lie_everywhere_are_left_alone(monkeypatch):
    """Where all cells are alike, a few of them hold little of the stiff directions: the curvature is still right."""
    domain = Domain({"a": 8, "b": 8, "c": 8})
    cliques = list(itertools.combinations(domain, 2))
    found = [Measurement(c, 100.0 + np.random.default_rng(2).normal(0.0, 5.0, 64), 5.0) for c in cliques]
    problem = make_problem(JunctionTree.of(domain, cliques), found, 6400.0, {})
    x = np.zeros(len(problem.targets))
    place = x, problem.answers(x).copy()
    monkeypatch.setattr(metric_module, "_FEW", 6)
    metric, _ = found_at(problem, place, 12)
    assert len(metric.shortened) == 0
    true = largest(stiffness(problem, *place))
    assert 0.9 * true <= metric.curvature <= 1.3 * true


def test_loss_and_steps_are_those_of_the_shortened_metric(problem, place):
    metric, _ = found_at(problem, place, 12)
    _, matrix = in_full(metric, problem)
    answers = place[1]
    wrong = answers - problem.targets
    loss, parts = metric.measure(answers, problem.targets)
    assert loss == pytest.approx(0.5 * wrong @ matrix @ wrong)
    x, beyond = np.zeros(len(wrong)), np.zeros(len(wrong), np.float32)
    metric.descend(x, beyond, answers, problem.targets, parts, by=Stride(0.1, 0.3, 0.6))
    plain = 0.1 * matrix @ wrong
    np.testing.assert_allclose(x, -1.9 * plain, rtol=1e-4, atol=1e-6 * np.abs(wrong).max())
    np.testing.assert_allclose(beyond, -0.9 * plain, rtol=1e-4, atol=1e-6 * np.abs(wrong).max())
