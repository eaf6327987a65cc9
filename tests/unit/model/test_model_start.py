import itertools

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.estimate import estimate
from understudy.model.junction_tree import JunctionTree
from understudy.model.problem import make_problem, start_cold, start_warm

DOMAIN = Domain({"a": 5, "b": 6, "c": 4})
PEOPLE = np.random.default_rng(1).dirichlet(np.full(120, 0.2)).reshape(5, 6, 4) * 1e4


def measured(clique, sigma, people=PEOPLE):
    counts = people.sum(axis=tuple(i for i, column in enumerate(DOMAIN) if column not in clique)).ravel()
    return Measurement(clique, counts + np.random.default_rng(2).normal(0.0, sigma, counts.size), sigma)


def problem_of(found):
    return make_problem(JunctionTree.of(DOMAIN, [m.clique for m in found]), found, 1e4, {})


def losses(earlier, new):
    """At the cold start, the warm one, and where the earlier model is."""
    model = estimate(DOMAIN, earlier, total=1e4)
    problem = problem_of([*earlier, new])
    cold, warm = start_cold(problem, np.empty(len(problem.targets))), start_warm(problem, model)
    values = (model.project(m.clique).ravel() - m.values for m in (*earlier, new))
    there = sum(0.5 * float(v @ v) / m.sigma**2 for v, m in zip(values, (*earlier, new), strict=True))
    return *(problem.loss(problem.answers(x)) for x in (cold, warm)), there


@pytest.mark.parametrize("sigma", [1.0, 20.0])
def test_a_new_table_is_fitted_by_the_start_for_the_most_part(sigma):
    earlier = [measured((column,), sigma) for column in DOMAIN] + [measured(("a", "b"), sigma)]
    cold, warm, there = losses(earlier, measured(("b", "c"), sigma))
    assert warm < 0.1 * there
    assert warm < cold


def test_a_table_that_noise_hides_changes_nothing():
    earlier = [measured((column,), 1.0) for column in DOMAIN]
    _, warm, there = losses(earlier, measured(("b", "c"), 1e5))
    assert warm == pytest.approx(there, rel=1e-6)


def test_a_start_that_would_be_worse_is_taken_back():
    """Fifteen new tables that tell the same story: each alone would be fitted, all together overshoot."""
    domain = Domain(dict.fromkeys("abcdef", 3))
    people = np.full((3,) * 6, 8.0)
    people[(np.arange(3),) * 6] += 800.0
    pairs = list(itertools.combinations(domain, 2))
    found = [Measurement((column,), people.sum() / 3 * np.ones(3), 1.0) for column in domain]
    model = estimate(domain, found, total=people.sum())
    new = [Measurement(p, people.sum(axis=tuple(i for i, c in enumerate(domain) if c not in p)), 1.0) for p in pairs]
    problem = make_problem(JunctionTree.of(domain, pairs), [*found, *new], people.sum(), {})
    cold = problem.loss(problem.answers(start_cold(problem, np.empty(len(problem.targets)))))
    assert problem.loss(problem.answers(start_warm(problem, model))) == pytest.approx(cold)  # the same, here


def test_a_table_within_a_new_one_is_not_scaled_twice():
    earlier = [measured((column,), 1.0) for column in DOMAIN] + [measured(("a", "b"), 1.0)]
    model = estimate(DOMAIN, earlier, total=1e4)
    problem = problem_of([*earlier, measured(("b", "c"), 1.0), measured(("a", "b", "c"), 1.0)])
    alone = problem_of([*earlier, measured(("a", "b", "c"), 1.0)])
    both, one = (p.answers(start_warm(p, model)) for p in (problem, alone))
    whole = [p.propagation.slice_of(0) for p in (problem, alone)]
    np.testing.assert_allclose(both[whole[0]], one[whole[1]], rtol=0.2, atol=10.0)
