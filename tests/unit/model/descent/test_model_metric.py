import itertools

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model import JunctionTree
from understudy.model.descent.metric import metric_at
from understudy.model.descent.problem import make_problem
from understudy.model.descent.start import cold_potentials
from understudy.model.kernels.arguments import CHUNK


@pytest.fixture(scope="module")
def problem():
    domain = Domain({"a": 5, "b": 6, "c": 4, "d": 3})
    rng = np.random.default_rng(0)
    people = 1e4 * rng.dirichlet(np.full(domain.cells(tuple(domain)), 2.0)).reshape(domain.shape(tuple(domain)))
    found = []
    for clique in itertools.combinations(domain, 2):
        counts = people.sum(axis=tuple(i for i, column in enumerate(domain) if column not in clique)).ravel()
        found.append(Measurement(clique, counts + rng.normal(0.0, 30.0, counts.size), 30.0))
    return make_problem(JunctionTree.of(domain, [m.clique for m in found]), found, 1e4, {})


@pytest.fixture(scope="module")
def place(problem):
    x = cold_potentials(problem, np.empty(len(problem.targets)))
    return x, problem.answers(x).copy()


def stiffness(problem, x, answers, weights):
    """Covariance times weights, column by column."""
    columns = []
    for k in range(len(x)):
        moved = x.copy()
        moved[k] += 1e-5
        columns.append((problem.answers(moved) - answers) / 1e-5)
    return np.array(columns).T * weights


def largest(matrix):
    return float(np.linalg.eigvals(matrix).real.max())


def test_the_curvature_is_the_largest_eigenvalue(problem, place):
    x, answers = place
    true = largest(stiffness(problem, x, answers, problem.weights))
    calls = []
    for enough in (0.0, 0.05):
        before = problem.propagation.calls
        metric = metric_at(problem, x, answers, problem.weights, 0, scratch=np.empty(len(x)), enough=enough)
        calls.append(problem.propagation.calls - before)
        assert 0.9 * true <= metric.curvature <= 1.3 * true
        assert len(metric.shortened) == 0
    assert calls[1] < calls[0] == 8


def test_stiff_directions_are_eigenvectors_and_are_shortened_to_the_last_of_them(problem, place):
    x, answers = place
    metric = metric_at(problem, x, answers, problem.weights, 12, scratch=np.empty(len(x)))
    assert len(metric.shortened) >= 3
    directions = metric.basis.codes * np.repeat(metric.basis.scales, CHUNK, axis=1)[:, : len(x)]
    np.testing.assert_allclose(directions * problem.weights @ directions.T, np.eye(len(directions)), atol=0.01)
    images = directions @ stiffness(problem, x, answers, problem.weights).T
    eigenvalues = metric.curvature / (1.0 - metric.shortened)
    errors = [
        np.sqrt(problem.weights @ (i - e * d) ** 2) for i, e, d in zip(images, eigenvalues, directions, strict=True)
    ]
    assert (errors <= 0.31 * eigenvalues).all()
    assert errors[0] <= 0.01 * eigenvalues[0]
