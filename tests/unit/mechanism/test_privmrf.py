from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from understudy.accounting import Budget, epsilon_of
from understudy.domain import Domain, Forbidden
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
    grow_network,
    search_graph,
    take_worst,
    triangulate,
    useful_marginals,
)
from understudy.schema import Schema
from understudy.testing.audit import epsilon_of_mu
from understudy.testing.tables import CodedSource, SealedSource

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


CELLS = 8 / 2**20  # MiB of a cell


def test_a_cycle_gets_chords_by_increasing_degree():
    """A pentagon: nodes of equal degree in their order, 0 joins 1 and 4, 1 joins 2 and 4."""
    pentagon = [0b10010, 0b00101, 0b01010, 0b10100, 0b01001]
    assert triangulate(pentagon) == [(0, 0b10010), (1, 0b10100), (2, 0b11000), (3, 0b10000), (4, 0)]
    star = [0b1110, 1, 1, 1]  # the centre has the largest degree and is eliminated last
    assert triangulate(star) == [(1, 1), (2, 1), (3, 1), (0, 0)]


def test_the_papers_search_ends_where_no_edge_is_feasible():
    """Columns of ten: triples of 1000 cells. 5000 cells allow cliques of 1000; less only pairs, or nothing."""
    domain, scores = Domain({"a": 10, "b": 10, "c": 10, "d": 1}), pairs(ab=0.3, bc=0.2, ac=0.1)
    assert search_graph(domain, scores, 5000 * CELLS) == [("a", "b", "c")]
    assert sorted(search_graph(domain, scores, 4990 * CELLS)) == [("a", "b"), ("b", "c")]
    assert sorted(search_graph(domain, scores, 490 * CELLS)) == [("a",), ("b",), ("c",)]


def test_the_papers_search_scores_the_triangulated_graph():
    """After ab, bc and cd, the edge ad is worth its chord as well: 0.1 + 0.15, more than either of the chords alone."""
    domain = Domain(dict.fromkeys("abcd", 2))
    scores = pairs(ab=0.5, bc=0.5, cd=0.5, ad=0.1, bd=0.15, ac=0.05)
    seen = []

    def judged(graph):
        seen.append([bin(one) for one in graph])
        return triangulate(graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.mechanism.privmrf.triangulate", judged)
        assert search_graph(domain, scores, 1000 * CELLS) == [("a", "b", "c", "d")]
    tried = [6, 5, 4, 3, 2, 1]  # absent edges of each step; the last triangulation is that of the result
    assert len(seen) == sum(tried) + 1
    third = seen[sum(tried[:3])]  # the first graph of the fourth step: ab, bc, cd and one more
    assert sum(one.count("1") for one in third) == 8


def brute_force_search(domain, scores, cells):
    """The same search with sets in place of bits."""
    columns, edges = [c for c in domain if domain[c] > 1], set()

    def judge(edges):
        left = {c: {d for d in columns if frozenset((c, d)) in edges} for c in columns}
        order = sorted(columns, key=lambda c: len(left[c]))
        score, cliques = 0.0, []
        for c in order:
            mine = left.pop(c)
            score += sum(scores.get(frozenset((c, d)), 0.0) for d in mine)
            cliques.append(mine | {c})
            for d in mine:
                left[d] = (left[d] | mine) - {c, d}
        cliques = [c for i, c in enumerate(cliques) if not any(c <= other for other in cliques[:i])]
        sizes = [domain.cells(tuple(c)) for c in cliques]
        fits = max(sizes) <= cells / 5 and sum(sizes) <= cells
        return (score - 1e-8 * sum(sizes) if fits else -np.inf), cliques

    while True:
        absent = [frozenset(p) for p in combinations(columns, 2) if frozenset(p) not in edges]
        found = [(judge(edges | {e})[0], -i) for i, e in enumerate(absent)]
        if not found or max(found)[0] == -np.inf:
            return {frozenset(c) for c in judge(edges)[1]}
        edges.add(absent[-max(found)[1]])


@pytest.mark.parametrize("seed", range(6))
def test_the_papers_search_agrees_with_brute_force(seed):
    rng = np.random.default_rng(seed)
    domain = Domain({column: int(rng.integers(2, 6)) for column in "abcdef"})
    scores = {frozenset(pair): float(rng.normal(0.02, 0.05)) for pair in combinations(domain, 2)}
    found = search_graph(domain, scores, 600 * CELLS)
    assert {frozenset(clique) for clique in found} == brute_force_search(domain, scores, 600)


def test_the_columns_of_a_rule_lie_in_one_clique():
    mask = np.zeros((2, 2), np.bool_)
    mask[0, 1] = True
    domain = Domain(dict.fromkeys("abc", 2)).add_rules([Forbidden(("a", "c"), lambda: mask)])
    assert ("a", "c") in search_graph(domain, pairs(ab=0.1), 20 * CELLS)


def test_the_roots_of_the_papers_networks_are_drawn_and_scores_may_be_negative():
    domain, scores = Domain(dict.fromkeys("abcd", 2)), pairs(ab=-0.1, bc=-0.2, ac=-0.3)
    assert first_marginals(domain, [("a", "b", "c")], scores, cells=4, columns=3) == [("a",), ("b",), ("c",), ("d",)]
    printed = first_marginals(domain, [("a", "b", "c")], scores, cells=4, columns=3, as_printed=True)
    assert printed == first_marginals(domain, [("a", "b", "c")], scores, cells=4, columns=3, as_printed=True)
    assert len(printed) == 3  # of each column but the root, and the column in no clique
    assert {len(r) for r in printed} == {1, 2}
    names = [tuple(f"{i}{column}" for column in "abc") for i in range(40)]
    roots = [first_root(Domain(dict.fromkeys(clique, 2)), clique) for clique in names]
    assert all(roots.count(place) >= 5 for place in range(3))


def first_root(domain, clique):
    """The place in the clique of the column that both marginals of a chain have in common with a strong root."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "understudy.mechanism.privmrf.maximal_parents",
            lambda domain, known, cells, degree: seen.append(tuple(known)) or [tuple(known[:1])],
        )
        first_marginals(domain, [clique], {}, cells=4, columns=3, as_printed=True)
    return clique.index(seen[0][0])


def test_the_papers_first_marginals_contain_no_other_and_are_filled_up_from_the_networks():
    """Two cliques, the best marginal of b and of c lies in the first: that of the second fills up, not one within."""
    domain = Domain(dict.fromkeys("abcde", 2))
    scores = pairs(ab=0.5, bc=0.4, ac=0.3, bd=0.05, de=0.2, be=0.01)
    cliques = [("a", "b", "c"), ("b", "d", "e")]
    found = [
        {r for _, _, r in grow_network(domain, clique, scores, clique[0], 8, 3, lambda r: True)} for clique in cliques
    ]
    assert found == [{("a", "b"), ("a", "b", "c")}, {("b", "d"), ("b", "d", "e")}]
    printed = first_marginals(domain, cliques, scores, cells=8, columns=3, as_printed=True)
    assert all(not set(one) < set(other) for one in printed for other in printed)
    assert {("a", "b", "c"), ("b", "d", "e")} <= set(printed)
    drawn = first_marginals(domain, cliques, scores, cells=4, columns=3, as_printed=True)  # pairs only
    assert len(drawn) <= 5
    assert set(drawn) <= {pair for clique in cliques for pair in combinations(clique, 2)}
    assert drawn == first_marginals(domain, cliques, scores, cells=4, columns=3, as_printed=True)


def test_the_papers_first_marginals_are_at_most_as_many_as_columns():
    """Six overlapping cliques have twelve marginals in their networks: six, none twice, whatever is drawn."""
    domain = Domain(dict.fromkeys("abcdef", 2))
    scores = {frozenset(pair): 0.1 + i / 100 for i, pair in enumerate(combinations(domain, 2))}
    cliques = [("a", "b", "c"), ("b", "c", "d"), ("c", "d", "e"), ("d", "e", "f"), ("a", "e", "f"), ("a", "b", "f")]
    found = first_marginals(domain, cliques, scores, cells=4, columns=3, as_printed=True)
    assert len(found) == len(set(found)) == 6


class Uniform:
    total = 60.0

    def __init__(self, domain):
        self.domain = domain

    def project_many(self, cliques):
        return {r: np.full(self.domain.shape(r), self.total / self.domain.cells(r)) for r in cliques}


def test_the_worst_are_taken_and_the_second_half_of_the_others_is_told():
    """Distances from uniform: a 60, b 40, c 0, d 20; two are taken, and the second half of the list is d and c."""
    codes = [[0, int(i >= 50), i % 2, int(i >= 40)] for i in range(60)]
    table = PrivateTable(CodedSource(dict.fromkeys("abcd", 2), codes), Budget.of(rho=1e6))
    ones = [(c,) for c in "dcba"]
    taken, lost = take_worst(table, Uniform(table.domain), ones, count=2, rho=1e6)
    assert (taken, lost) == ([("a",), ("b",)], [("d",), ("c",)])
    spent = table.account.spent
    assert take_worst(table, Uniform(table.domain), ones, count=4, rho=1.0) == (ones, [])
    assert table.account.spent == spent  # nothing is left to choose
    taken, lost = take_worst(PrivateTable(CodedSource(dict.fromkeys("abcd", 2), codes), Budget.of(rho=1e6)),
                             Uniform(table.domain), ones, count=1, rho=1e6)  # fmt: skip
    assert (taken, lost) == ([("a",)], [("d",), ("c",)])


def test_losers_get_half_weight_in_later_steps(monkeypatch):
    drawn = []

    def draw(weights, most, step):
        drawn.append((step, dict(weights)))
        return draw_candidates(weights, most, step)

    monkeypatch.setattr("understudy.mechanism.privmrf.draw_candidates", draw)
    sizes = dict.fromkeys("abcdef", 2)
    codes = np.random.default_rng(0).integers(2, size=(3000, 6)).tolist()
    table = PrivateTable(CodedSource(sizes, codes, rows_public=3000), Budget.of(rho=5.0))
    PrivMRF.as_published().fit(table, rho=5.0)
    steps = [weights for step, weights in drawn if step >= 0]
    assert len(steps) == 3  # half of six columns
    halved = [r for r in steps[1] if steps[1][r] == steps[0][r] / 2]
    kept = [r for r in steps[1] if steps[1][r] == steps[0][r]]
    assert len(halved) + len(kept) == len(steps[1])
    assert len(halved) == len(steps[0]) - len(steps[0]) // 2  # all candidates were asked about
    asked = [charge for charge in table.account.charges if charge.what == "distances"]
    assert [charge.candidates[0] for charge in asked] == [len(weights) for weights in steps]


def test_gaussian_dp_of_the_paper_in_rho():
    """The paper's B(eps) is mu^2 = 2 rho, by the exact curve: a rho of B / 2 is a little more than eps in zCDP."""
    for epsilon, squared in ((0.1, 0.00105760), (0.2, 0.00376188), (0.8, 0.0478237), (1.6, 0.168452)):
        assert epsilon_of_mu(squared**0.5, 1e-5) == pytest.approx(epsilon, rel=1e-4)
        assert epsilon < epsilon_of(squared / 2, 1e-5) < 1.4 * epsilon


def test_the_papers_fits_stop_at_a_multiple_of_the_loss_of_the_noise():
    table = PrivateTable(CodedSource(SIZES, rows(), rows_public=2000), Budget.of(rho=2.0))
    fit = PrivMRF.as_published().fit(table, rho=2.0)
    cells = sum(len(m.values) for m in fit.measurements)
    assert fit.model.report.loss <= 0.7 * cells / 2 or fit.model.report.converged
    assert fit.generator.enough == 0.7
    again = PrivMRF.as_published().finish(table.domain, fit.measurements, recoding=fit.recoding, total=2000)
    assert np.array_equal(again.model.project(("a", "b")), fit.model.project(("a", "b")))


def test_a_graph_of_too_many_columns_is_refused_before_anything_is_asked():
    wide = {f"c{i}": 2 for i in range(41)}
    with pytest.raises(SettingError, match="takes at most 40 columns, not 41; use search='sorted'"):
        PrivMRF.as_published().prepare(Schema.from_domain(wide))
    table = PrivateTable(SealedSource(wide, []), Budget.of(rho=1.0))
    with pytest.raises(SettingError, match="Nothing was spent"):
        PrivMRF.as_published().fit(table, rho=1.0)
    assert not table.account.charges
    assert PrivMRF().prepare(Schema.from_domain(wide)) == PrivMRF()
    assert PrivMRF.as_published().prepare(Schema.from_domain(wide | {"c0": 1}))  # a single code is no column


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
    """A tenth for the graph, a tenth for two vectors of errors, the rest for marginals of equal noise."""
    table = PrivateTable(CodedSource(SIZES, rows(), rows_public=2000), Budget.of(rho=1.0))
    PrivMRF(**PrivMRF.paper_settings()).fit(table, rho=1.0)
    costs = [(charge.what, float(charge.rho)) for charge in table.account.charges]
    assert costs[0] == ("dependence", pytest.approx(0.1, rel=1e-6))
    assert [cost for what, cost in costs if what == "distances"] == pytest.approx([0.05, 0.05], rel=1e-6)
    measured = [cost for what, cost in costs if what == "measure"]
    assert sum(measured) == pytest.approx(0.8, rel=1e-6)
    assert measured == pytest.approx([measured[0]] * len(measured), rel=1e-6)


def test_marginals_have_the_noise_of_the_specification():
    """sigma^2 = (|M0| + floor(0.8 d)) / (0.8 B) with B = 2 rho: of six columns, four marginals after the first ones."""
    sizes = dict.fromkeys("abcdef", 2)
    codes = np.random.default_rng(0).integers(2, size=(3000, 6)).tolist()
    table = PrivateTable(CodedSource(sizes, codes, rows_public=None), Budget.of(rho=5.0))
    fit = PrivMRF.as_published().fit(table, rho=5.0)
    left = 0.99 * 5.0  # one column was measured for the number of rows
    what = [charge.what for charge in table.account.charges]
    first = what.index("distances") - what.index("dependence") - 1
    assert len(fit.measurements) == 1 + first + 4
    assert [m.sigma**2 for m in fit.measurements[1:]] == pytest.approx([(first + 4) / (0.8 * 2 * left)] * (first + 4))
    (score,) = [charge for charge in table.account.charges if charge.what == "dependence"]
    assert score.scale == pytest.approx(4 * np.sqrt(15 / (2 * 0.1 * left)))  # 15 scores of sensitivity 4
    asked = [charge for charge in table.account.charges if charge.what == "distances"]
    steps = [np.sqrt(one.candidates[0] / (2 * 0.1 * left / 3)) for one in asked]  # half of six steps
    assert [one.scale / 2**16 for one in asked] == pytest.approx(steps, rel=1e-6)


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
        ({"first": 0.8}, "privmrf: first and second must not exceed 0.9"),
        ({"theta": 0.0}, "privmrf.theta: give a number above 0"),
        ({"search": "random"}, "privmrf.search"),
        ({"errors": "exact"}, "privmrf.errors"),
        ({"max_columns": 1}, "privmrf.max_columns: give a whole number"),
    ],
)
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(SettingError) as refused:
        make_mechanism("privmrf", **settings)
    assert said in str(refused.value)
