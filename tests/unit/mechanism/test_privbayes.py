"""PrivBayes: worked numbers of its paper, the network it chooses, and the model it makes of it."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from understudy.accounting import Budget
from understudy.domain import Domain, Forbidden
from understudy.gate import PrivateTable
from understudy.gate.selection import indif
from understudy.measurement import Measurement
from understudy.mechanism.privbayes import (
    PrivBayes,
    condition,
    count_at_least,
    families_of,
    largest_degree,
    maximal_parents,
    split_columns,
)
from understudy.schema import Recoding
from understudy.testing.contract import CHECKS
from understudy.testing.tables import CodedSource

PAPER = PrivBayes.paper_settings()


def chain(count, sizes, seed=0):
    """Rows in which each column mostly repeats the one before it."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, next(iter(sizes.values())), count)]
    for size in list(sizes.values())[1:]:
        columns.append(np.where(rng.random(count) < 0.8, columns[-1] % size, rng.integers(0, size, count)))
    return np.stack(columns, axis=1)


def table_of(sizes, rows, *, rows_public=None, **budget):
    return PrivateTable(CodedSource(sizes, rows, rows_public=rows_public), Budget.of(**budget or {"rho": 1.0}))


def charges(table, what):
    return [charge for charge in table.account.charges if charge.what == what]


# -- worked numbers ----------------------------------------------------------------------------------------------------


def test_the_score_is_twice_r_in_rows():
    """R is 0.24 for these 100 rows; also where the second axis has the cells of two columns."""
    counts = np.array([[30, 5, 10], [10, 25, 20]])
    assert indif(counts.reshape(-1), (2, 3)) == 2 * 100 * 0.24
    rows = [[x, *divmod(pi, 2)] for x in range(2) for pi in range(3) for _ in range(counts[x, pi])]
    table = table_of({"x": 2, "p": 2, "q": 2}, rows)
    assert [table._indif(*counted) for counted in table._counts([("x", "p", "q")])] == [48]


@pytest.mark.parametrize(("epsilon", "degree"), [(1.0, 6), (0.1, 2)])
def test_the_degree_of_a_binary_network_is_the_largest_useful_one(epsilon, degree):
    """n = 21574, d = 16, theta = 4; epsilon_2 = 0.7 gives k = 6 (usefulness 5.90; 3.28 for 7), 0.07 gives k = 2."""
    table = table_of(dict.fromkeys("abcdefghijklmnop", 2), [], rows_public=21574, epsilon=epsilon, delta=0)
    assert PrivBayes()._useful_cells(table, 21574, 0.7 * epsilon) == 2 ** (degree + 1)


def test_tables_of_other_domains_have_a_largest_number_of_cells():
    """n = 45222, d = 15, epsilon = 1, beta = 0.3, theta = 4: 263.795 cells."""
    table = table_of({f"c{i}": 3 for i in range(15)}, [], rows_public=45222, epsilon=1.0, delta=0)
    assert 45222 / (4 * table.expected_noise(0.7 / 15)) == pytest.approx(263.795, rel=1e-4)
    assert PrivBayes()._useful_cells(table, 45222, 0.7) == 263
    assert PrivBayes(theta=8.0)._useful_cells(table, 45222, 0.7) == 131
    assert PrivBayes(max_cells=100)._useful_cells(table, 45222, 0.7) == 100


def test_gaussian_noise_has_its_own_largest_number_of_cells():
    """m <= n / (theta sigma sqrt(2 / pi)) with sigma^2 = d / (2 rho_2)."""
    table = table_of({f"c{i}": 3 for i in range(15)}, [], rho=0.02)
    sigma = math.sqrt(15 / (2 * 0.014))
    assert PrivBayes()._useful_cells(table, 45222, 0.014) == int(45222 / (4 * sigma * math.sqrt(2 / math.pi)))


# -- parent sets -------------------------------------------------------------------------------------------------------


def brute_force(domain, columns, cells, degree):
    feasible = [
        set(chosen) for k in range(degree + 1) for chosen in combinations(columns, k) if domain.cells(chosen) <= cells
    ]
    return {frozenset(one) for one in feasible if not any(one < other for other in feasible)}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(2, 7), max_size=7), st.integers(1, 400), st.integers(1, 7))
def test_maximal_parent_sets_are_those_of_brute_force(sizes, cells, degree):
    domain = Domain({f"c{i}": size for i, size in enumerate(sizes)})
    found = list(maximal_parents(domain, list(domain), cells, degree))
    assert {frozenset(one) for one in found} == brute_force(domain, list(domain), cells, degree)
    assert len({frozenset(one) for one in found}) == len(found)
    assert all(list(one) == [c for c in domain if c in one] for one in found)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 7), max_size=7), st.integers(1, 400))
def test_the_largest_degree_is_that_of_the_largest_set(sizes, cells):
    domain = Domain({f"c{i}": size for i, size in enumerate(sizes)})
    largest = largest_degree(domain, list(domain), cells)
    assert largest == max(map(len, brute_force(domain, list(domain), cells, len(sizes))))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 7), max_size=7), st.lists(st.integers(1, 400), max_size=3), st.integers(1, 7))
def test_the_bound_of_how_many_sets_there_are_is_from_below(sizes, rooms, degree):
    domain = Domain({f"c{i}": size for i, size in enumerate(sizes)})
    sets = sum(len(brute_force(domain, list(domain), cells, degree)) for cells in rooms)
    assert count_at_least(domain, list(domain), rooms, degree) <= sets


def test_many_sets_of_nearly_all_columns_are_listed_without_looking_at_all_subsets():
    domain = Domain({f"c{i}": 2 for i in range(40)})
    assert len(list(maximal_parents(domain, list(domain), 2**38, 40))) == math.comb(40, 38)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 60))
def test_columns_stand_alone_when_no_pair_with_them_fits(sizes, cells):
    domain = Domain({f"c{i}": size for i, size in enumerate(sizes)})
    alone, linked = split_columns(domain, cells)
    wide = [column for column in domain if domain[column] > 1]
    fits = {c for pair in combinations(wide, 2) if domain.cells(pair) <= cells for c in pair}
    assert (set(linked), set(alone)) == (fits, set(wide) - fits)


# -- the network -------------------------------------------------------------------------------------------------------


SIZES = {"a": 3, "b": 2, "c": 4, "d": 3, "e": 2}


@pytest.mark.parametrize("budget", [{"rho": 20.0}, {"epsilon": 200.0, "delta": 0}])
def test_each_column_depends_on_the_one_it_repeats(budget):
    sizes = dict.fromkeys("abcdef", 4)
    table = table_of(sizes, chain(3000, sizes), **budget)
    fit = PrivBayes(max_cells=16).fit(table, rho=float(table.account.budget.capacity))
    chosen = {frozenset(entry["chosen"]) for entry in fit.rounds}
    assert chosen == {frozenset(pair) for pair in zip("abcde", "bcdef", strict=True)}


def test_the_measured_cliques_tell_the_network():
    """Also where the table of a column is within that of another, in a binary domain."""
    for sizes, mechanism in [
        (SIZES, PrivBayes(every_table=True, theta=0.5)),
        (dict.fromkeys("abcdefgh", 2), PrivBayes(max_cells=16)),
    ]:
        table = table_of(sizes, chain(2000, sizes), rho=2.0)
        fit = mechanism.fit(table, rho=2.0)
        told = {frozenset(family) for family in families_of(fit.model.domain, fit.measurements)}
        assert {frozenset(entry["chosen"]) for entry in fit.rounds} == {family for family in told if len(family) > 1}
        assert len(told) == len(sizes)


def test_a_column_without_parents_is_told_by_the_most_precise_table():
    domain, rough = Domain({"a": 2, "b": 3}), Measurement(("a",), np.zeros(2), 9.0)
    for sigma, told in ((1.0, ("b", "a")), (8.0, ("a",))):
        joint = Measurement(("b", "a"), np.zeros(6), sigma)
        assert families_of(domain, [rough, joint]) == {("a",): told, ("b", "a"): ("b", "a")}


def test_a_binary_network_of_degree_k_has_k_fewer_tables():
    sizes = dict.fromkeys("abcdefgh", 2)
    table = table_of(sizes, chain(2000, sizes), rows_public=2000, rho=2.0)
    fit = PrivBayes(**PAPER, max_cells=16).fit(table, rho=2.0)
    assert [len(m.clique) for m in fit.measurements] == [4] * (8 - 3)


def test_the_paper_measures_every_table_with_equal_noise():
    table = table_of(SIZES, chain(500, SIZES), rows_public=500, epsilon=5.0, delta=0)
    fit = PrivBayes(**PAPER).fit(table, rho=5.0)
    assert len(fit.measurements) == len(SIZES)
    assert len({m.sigma for m in fit.measurements}) == 1
    measured, selected = charges(table, "measure"), charges(table, "select")
    assert len(selected) == len(SIZES) - 1
    assert [float(c.epsilon) for c in selected] == pytest.approx([0.3 * 5 / 4] * 4)
    assert [c.scale for c in measured] == pytest.approx([2 * 5 / (0.7 * 5)] * 5)
    assert float(table.account.spent) == pytest.approx(5.0)


def test_the_number_of_rows_is_measured_where_it_is_not_public():
    table = table_of(SIZES, chain(500, SIZES), rho=1.0)
    fit = PrivBayes(**PAPER).fit(table, rho=1.0)
    first, *rest = charges(table, "measure")
    assert first.about == (("b",),)
    assert float(first.rho) == pytest.approx(0.01)
    assert [float(c.rho) for c in charges(table, "select")] == pytest.approx([0.3 * 0.99 / 4] * 4)
    assert [float(c.rho) for c in rest] == pytest.approx([0.7 * 0.99 / 5] * 5)
    assert fit.model.total == pytest.approx(500, rel=0.1)


def test_nothing_is_chosen_where_no_table_of_two_columns_is_useful():
    table = table_of(SIZES, chain(20, SIZES), rows_public=20, rho=1e-3)
    fit = PrivBayes(**PAPER).fit(table, rho=1e-3)
    assert charges(table, "select") == []
    assert sorted(m.clique for m in fit.measurements) == [(c,) for c in SIZES]
    assert float(table.account.spent) == pytest.approx(1e-3)


def test_a_choice_of_one_is_not_paid_for():
    table = table_of({"a": 3, "b": 2}, chain(500, {"a": 3, "b": 2}), rows_public=500, rho=1.0)
    fit = PrivBayes().fit(table, rho=1.0)
    assert charges(table, "select") == []
    assert [m.clique for m in fit.measurements] == [("b", "a")]
    assert float(table.account.spent) == pytest.approx(1.0)


def test_candidates_are_bounded_and_columns_have_fewer_parents_then():
    sizes = {f"c{i}": 2 for i in range(30)}
    for most in (50, 2000):
        table = table_of(sizes, chain(1000, sizes), rho=100.0)
        fit = PrivBayes(max_candidates=most, max_mib=1.0).fit(table, rho=100.0)
        listed = [charge.candidates[0] for charge in charges(table, "select")]
        singles = max(v * (30 - v) for v in range(1, 30))
        assert max(listed) <= max(most, singles)
        assert fit.model.size_mib <= 1.0
    assert max(listed) > singles


def test_the_junction_tree_stays_within_its_limit():
    sizes = dict.fromkeys("abcdefghij", 4)
    rows = np.random.default_rng(0).integers(0, 4, (3000, 10))
    for mib in (0.02, 0.1):
        fit = PrivBayes(max_mib=mib).fit(table_of(sizes, rows, rho=50.0), rho=50.0)
        assert fit.model.size_mib <= mib


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator", ["network", "pgm"])
@pytest.mark.parametrize("clip", [True, False])
def test_without_noise_the_model_is_the_table(generator, clip):
    """A network in which every column depends on all before it, and a budget so large that the noise is 0."""
    sizes = {"a": 3, "b": 2, "c": 4}
    rows = chain(400, sizes)
    table = table_of(sizes, rows, rho=1e6)
    model = PrivBayes(clip=clip, generator=generator, theta=1.0).fit(table, rho=1e6).model
    true = np.zeros((3, 2, 4))
    np.add.at(true, tuple(rows.T), 1)
    assert model.project(("a", "b", "c")) == pytest.approx(true, abs=1e-6 if generator == "network" else 2)
    made = model.sample(400, np.random.default_rng(0))
    again = np.zeros((3, 2, 4))
    np.add.at(again, (made["a"], made["b"], made["c"]), 1)
    assert np.abs(again - true).max() <= 2


def test_a_column_is_drawn_given_its_parents():
    """Tables that disagree about the parent: the child's table tells how it depends on the parent, and no more."""
    a, ba = np.array([30, 10]), np.array([[10, 0], [10, 20]])  # b first: b = 0 has a = 0 only
    measured = [Measurement(("a",), a, 1.0), Measurement(("b", "a"), ba.reshape(-1), 1.0)]
    model = PrivBayes(clip=True).finish(Domain({"a": 2, "b": 2}), measured, recoding=Recoding.identity()).model
    assert model.project(("a",)) / model.total == pytest.approx([0.75, 0.25])
    assert model.project(("b", "a")) / model.total == pytest.approx(np.array([[0.375, 0.0], [0.375, 0.25]]))


def test_parents_that_do_not_occur_leave_all_values_as_likely():
    joint = np.array([[2.0, 0.0], [6.0, 0.0]])
    assert condition(joint, 0).tolist() == [[0.25, 0.5], [0.75, 0.5]]
    assert condition(joint, 1).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert condition(joint, 1, least=0.1).tolist() == [[1.0, 0.1], [1.0, 0.1]]


def test_negative_counts_are_clipped_or_moved():
    measured = [Measurement(("a",), np.array([12, 10, -2]), 1.0)]
    for clip, shares in ((True, [12 / 22, 10 / 22, 0]), (False, [11 / 20, 9 / 20, 0])):
        model = PrivBayes(clip=clip).finish(Domain({"a": 3}), measured, recoding=Recoding.identity()).model
        assert model.project(("a",)) / model.total == pytest.approx(shares)


def test_wide_columns_are_looked_at_first_and_merged_until_they_fit():
    sizes = {"wide": 5000, "a": 3, "b": 3}
    rows = chain(4000, {"wide": 3, "a": 3, "b": 3})
    table = table_of(sizes, rows, rho=1.0)
    fit = PrivBayes().fit(table, rho=1.0)
    assert list(fit.recoding.columns) == ["wide"]
    assert any("wide" in entry["chosen"] for entry in fit.rounds)
    assert not PrivBayes(first=0.0).fit(table_of(sizes, rows, rho=1.0), rho=1.0).recoding.columns


def test_rules_hold_in_every_row_of_a_network_that_cannot_keep_them():
    """Each column takes the value that the rule forbids beside the other's."""
    mask = np.eye(3, dtype=bool)
    domain = Domain({"a": 3, "b": 3, "c": 2}).add_rules([Forbidden(("a", "b"), lambda: mask)])
    measured = [Measurement((c,), np.array([50, 0, 0]), 1.0) for c in "ab"]
    model = PrivBayes().finish(domain, measured, recoding=Recoding.identity()).model
    rows = model.sample(500, np.random.default_rng(0))
    assert not (rows["a"] == rows["b"]).any()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_paper_s_settings_pass_the_contract(check):
    for generator in ("network", "pgm"):
        check(PrivBayes(**PAPER, generator=generator))


def test_a_release_is_saved_and_answers(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(chain(800, SIZES), columns=list(SIZES))
    schema = us.Schema.from_domain(SIZES)
    for delta in (1e-6, 0):
        path = tmp_path / f"r{delta}.release"
        us.synthesize(frame, schema, epsilon=20.0, delta=delta, mechanism="privbayes", output=path)
        release = us.Release.load(path)
        true = int(((frame["a"] == 0) & (frame["b"] == 0)).sum())
        answer = release.answer({"a": 0, "b": 0})
        assert answer.value == pytest.approx(true, abs=40)
        assert answer.low <= true <= answer.high
        assert len(release.sample(100, seed=1)) == 100
