from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.mechanism.privmrf import (
    PrivMRF,
    _scores,
    cfs_score,
    draw_candidates,
    first_marginals,
    graph_cliques,
    useful_marginals,
)
from understudy.testing.tables import CodedSource

SIZES = {"a": 3, "b": 3, "c": 2, "d": 2}


def pairs(**scores):
    return {frozenset(pair): value for pair, value in scores.items()}


def rows(count=2000):
    rng = np.random.default_rng(0)
    a, d = rng.integers(3, size=count), rng.integers(2, size=count)
    return np.stack([a, (a + (rng.random(count) < 0.1)) % 3, (a + d) % 2, d], axis=1).tolist()


def test_the_worked_numbers():
    """R of a distance of 8 rows among 100 is 0.04; the CFS score of two parents is 0.5 / sqrt(2.1)."""
    assert _scores({("a", "b"): 8, ("a", "c"): -3}, 100) == pairs(ab=0.04, ac=0.0)
    assert cfs_score("x", "pq", pairs(xp=0.3, xq=0.2, pq=0.1)) == pytest.approx(0.345033, abs=1e-6)
    assert cfs_score("x", "p", pairs(xp=0.3)) == 0.3


def test_the_graph_takes_the_most_dependent_pairs_that_fit():
    domain = Domain({"a": 10, "b": 10, "c": 10, "d": 1})
    scores = pairs(ab=0.3, bc=0.2, ac=0.1)
    assert sorted(graph_cliques(domain, scores, 1.0)) == [("a", "b", "c")]
    assert sorted(graph_cliques(domain, scores, 200 * 8 / 2**20)) == [("a", "b"), ("b", "c")]
    assert sorted(graph_cliques(domain, pairs(ab=0.0, bc=0.2), 1.0)) == [("a",), ("b", "c")]


def test_first_marginals_cover_every_column_within_the_limits():
    domain = Domain({"a": 2, "b": 2, "c": 3, "d": 4, "e": 1})
    scores = pairs(ab=0.3, bc=0.2, ac=0.1, cd=0.05)
    assert first_marginals(domain, [("a", "b", "c"), ("d",)], scores, cells=12, columns=3) == [
        ("a", "b"),
        ("a", "b", "c"),
        ("d",),
    ]
    assert first_marginals(domain, [("a", "b", "c"), ("d",)], scores, cells=3, columns=3) == [
        ("a",),
        ("b",),
        ("c",),
        ("d",),
    ]


def test_candidates_are_useful_parts_of_cliques_by_weight():
    domain = Domain({"a": 2, "b": 2, "c": 3})
    found = useful_marginals(domain, [("a", "b", "c")], cells=5, columns=6)
    assert set(found) == {("a",), ("b",), ("c",), ("a", "b")}
    assert found["a", "b"] == pytest.approx(9 / 4)


def test_candidates_are_drawn_by_weight_the_same_each_time_and_others_in_each_step():
    weights = {(f"c{i}",): 9.0 if i < 100 else 1.0 for i in range(1000)}
    drawn = draw_candidates(weights, 200, 0)
    assert drawn == draw_candidates(weights, 200, 0)
    assert len(set(drawn)) == 200
    assert 60 < sum(weights[clique] == 9.0 for clique in drawn) < 100
    assert set(drawn) != set(draw_candidates(weights, 200, 1))
    assert set(draw_candidates(weights, 2000, 0)) == set(weights)


def test_the_budget_has_three_parts():
    """A tenth for the graph, a tenth for choices, the rest for marginals of equal noise."""
    table = PrivateTable(CodedSource(SIZES, rows(), rows_public=2000), Budget.of(rho=1.0))
    PrivMRF(**PrivMRF.paper_settings()).fit(table, rho=1.0)
    costs = [(charge.what, float(charge.rho)) for charge in table.account.charges]
    assert costs[0] == ("dependence", pytest.approx(0.1, rel=1e-6))
    assert sum(cost for what, cost in costs if what == "select") == pytest.approx(0.1, rel=1e-6)
    measured = [cost for what, cost in costs if what == "measure"]
    assert sum(measured) == pytest.approx(0.8, rel=1e-6)
    assert measured == pytest.approx([measured[0]] * len(measured), rel=1e-6)


def test_it_answers_what_depends():
    table = PrivateTable(CodedSource(SIZES, rows()), Budget.of(rho=20.0))
    model = PrivMRF().fit(table, rho=20.0).model
    counts = np.zeros((3, 3, 2))
    np.add.at(counts, tuple(np.array(rows())[:, :3].T), 1)
    assert np.abs(model.project(("a", "b", "c")) - counts).sum() < 100


def test_a_table_of_one_column_is_measured():
    table = PrivateTable(CodedSource({"a": 2}, [[0]] * 30 + [[1]] * 10), Budget.of(rho=5.0))
    assert PrivMRF().fit(table, rho=5.0).model.project(("a",)) == pytest.approx([30, 10], abs=4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"graph": 0.6, "choosing": 0.5}, "privmrf: graph and choosing must not exceed 0.9"),
        ({"first": 0.8}, "privmrf: first and look must not exceed 0.9"),
        ({"theta": 0.0}, "privmrf.theta: give a number above 0"),
        ({"max_columns": 1}, "privmrf.max_columns: give a whole number"),
    ],
)
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(SettingError) as refused:
        make_mechanism("privmrf", **settings)
    assert said in str(refused.value)
