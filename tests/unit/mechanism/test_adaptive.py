"""`adaptive`: what it spends, chooses and records, by hand and on small tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import Domain
from understudy.errors import SettingError, UnderstudyError
from understudy.gate import Allocation, PrivateTable
from understudy.mechanism import adaptive
from understudy.mechanism.adaptive import STOP, Adaptive, choose_batch
from understudy.model.graphical import GraphicalModel
from understudy.release.answer import _stages_from_rounds
from understudy.release.bounds import Evidence, bound_marginals
from understudy.testing import insecure
from understudy.testing.tables import CodedSource

from .conftest import SIZES, related_rows, related_table


def _fit(rho=1.0, mechanism=None, **rest):
    table = related_table(rho, **rest)
    with insecure(1):
        return (mechanism or Adaptive()).fit(table, rho=rho), table


@pytest.mark.parametrize("rho", [1e-4, 0.7, 1e4])
@pytest.mark.parametrize("settings", [{}, {"rounds": 1}, {"rounds": 3, "growth": 2.0}, {"workload": "all-1way"}])
def test_all_of_the_budget_is_spent_and_no_more(settings, rho):
    fit, table = _fit(rho, Adaptive(**settings))
    assert float(table.account.spent) == pytest.approx(rho, rel=1e-9)
    assert table.account.spent <= table.account.budget.capacity
    assert sum(entry["share"] for entry in fit.rounds) <= 1 + 1e-9
    assert sum(entry["measured"] for entry in fit.rounds) == len(fit.measurements)


def test_pure_dp_spends_all_of_epsilon():
    table = PrivateTable(CodedSource(SIZES, related_rows()), Budget.of(epsilon=3.0, delta=0))
    Adaptive().fit(table, rho=3.0)
    assert float(table.account.spent) == pytest.approx(3.0, rel=1e-9)


def test_only_measurements_and_selections_are_asked_for():
    _, table = _fit()
    assert {charge.what for charge in table.account.charges} == {"measure", "select"}


def test_much_budget_reproduces_all_pairs():
    fit, _ = _fit(1e6, Adaptive(workload="all-2way"))
    rows = np.array(related_rows())
    for pair, (i, j) in {("a", "b"): (0, 1), ("a", "c"): (0, 2), ("b", "d"): (1, 3)}.items():
        true = np.bincount(rows[:, i] * SIZES[pair[1]] + rows[:, j], minlength=SIZES[pair[0]] * SIZES[pair[1]])
        assert np.abs(fit.model.project(pair).ravel() - true).sum() < 0.02 * len(rows)


def _choose(table, weights, **changes):
    model = GraphicalModel(table.domain, {}, total=300.0)
    given = {"measured": [], "allocation": Allocation(0.01), "rho": 1e5, "draws": 9, "limit_mib": 1.0, "forest": False}
    return choose_batch(table, model, weights, **given | changes)


PAIRS = {("a", "b"): 1.0, ("a", "c"): 1.0, ("b", "c"): 1.0, ("c", "d"): 1.0}


def test_the_first_round_chooses_a_forest_and_later_ones_may_close_cycles():
    open_ = list(_choose(related_table(1e6), PAIRS).weights)
    forest = list(_choose(related_table(1e6), PAIRS, forest=True).weights)
    assert {("a", "b"), ("a", "c"), ("b", "c")} <= set(open_)
    assert ("a", "b") in forest
    assert len({("a", "b"), ("a", "c"), ("b", "c")} & set(forest)) == 2


def test_a_round_stops_where_noise_costs_more_than_any_marginal_is_worth():
    """The uniform model is 2/3 of 300 rows from `a x b`: 400 in L1. With 50 a cell its nine cells cost 450."""
    chosen = _choose(related_table(1e6), PAIRS, allocation=Allocation(50.0))
    assert chosen.weights == {}
    assert chosen.record.selection.clique == STOP
    assert chosen.spent == pytest.approx(1e5 / 9)
    assert list(_choose(related_table(1e6), {("a", "b"): 1.0}, allocation=Allocation(40.0)).weights) == [("a", "b")]


def test_offsets_are_what_a_clique_adds_to_the_noise_of_the_best_division():
    """Cells (8, 27, 64) at 7.978846 a cell: the noise of {8} is 63.83, of {8, 27} 373.99 (two thirds and 3/2)."""
    sizes = {"a": 8, "b": 27, "c": 64}
    table = related_table(1e6, rows=[[0, 0, 0]] * 10**4, sizes=sizes)
    weights = {("a",): 1.0, ("b",): 1.0}
    chosen = _choose(table, weights, allocation=Allocation(7.978846), draws=2)
    first, second = (("b",), ("a",)) if next(iter(chosen.weights)) == ("b",) else (("a",), ("b",))
    noise = {("a",): 63.83, ("b",): 27 * 7.978846}
    assert chosen.record.offsets[second] == pytest.approx(373.99 - noise[first], abs=0.01)
    shares = {r: weight**2 for r, weight in chosen.weights.items()}
    assert shares[("a",)] == pytest.approx(4 / 13)


def test_a_chosen_clique_closes_its_parts_and_what_contains_it():
    chosen = _choose(related_table(1e6), {("a",): 1.0, ("a", "b"): 1.0, ("c",): 1.0}, allocation=Allocation(1e-6))
    names = list(chosen.weights)
    assert not any(set(r) < set(s) for r in names for s in names)


def test_weights_of_the_workload_decide():
    light = dict.fromkeys(PAIRS, 0.001) | {("c", "d"): 1.0}
    chosen = _choose(related_table(1e6, rows=[[0, 0, 0, 0]] * 300), light, draws=1, allocation=Allocation(1e-6))
    assert list(chosen.weights) == [("c", "d")]


def test_the_tree_stays_within_its_limit_also_where_candidates_are_not_reviewed(monkeypatch):
    sizes = dict.fromkeys("abcdef", 6)
    rows = np.random.default_rng(0).integers(0, 2, (400, 6)).tolist()
    for reviewed in (10**6, 0):
        monkeypatch.setattr(adaptive, "_MOST_RECHECKED", reviewed)
        table = related_table(1e4, rows=rows, sizes=sizes)
        fit = Adaptive(max_mib=0.004, threshold=0.0, workload="all-2way").fit(table, rho=1e4)
        assert fit.model.size_mib <= 0.004


def test_triples_wait_until_pairs_connect_them():
    table = related_table(1e6)
    weights = Adaptive()._cliques(Domain(SIZES))
    early = Adaptive()._candidates(table, weights, [("a",), ("b",)], 300.0, 1e5)
    later = Adaptive()._candidates(table, weights, [("a", "b"), ("b", "c")], 300.0, 1e5)
    assert {len(r) for r in early} == {1, 2}
    assert [r for r in later if len(r) == 3] == [("a", "b", "c")]


def test_choices_of_a_round_follow_from_noise_and_cells():
    """K tables of c cells that share a budget have noise kappa c sqrt(K) each: it may reach 0.22 of the rows."""
    table, few = related_table(1.0), Adaptive(max_mib=1e-6)
    pairs = [("a", "b"), ("a", "c"), ("c", "d")]  # 9, 6 and 8 cells
    kappa = table.expected_noise(0.9 * 0.01)
    assert few._draws(table, pairs, 1e9, 0.01) == len(SIZES)
    assert few._draws(table, pairs, 1.0, 0.01) == adaptive._FEWEST
    rows = math.sqrt(3.5) * kappa * 8 / 0.22
    assert few._draws(table, pairs, rows, 0.01) == 3
    assert Adaptive()._draws(table, pairs, 1e9, 0.01) == 2 * len(SIZES)  # every tree of this domain fits


@pytest.mark.parametrize(("columns", "largest"), [(20, 3), (21, 2)])
def test_wide_tables_have_pairs_only_and_smaller_trees_by_default(columns, largest):
    domain = Domain({f"c{i}": 2 for i in range(columns)})
    assert max(map(len, Adaptive()._cliques(domain))) == largest
    assert Adaptive(max_mib=80.0)._limit(domain) == pytest.approx(80.0 * min(1, 20 / columns) ** 2)


@pytest.mark.parametrize(("rho", "second"), [(1e-6, 0.6), (0.02, 0.35)])
def test_columns_get_a_larger_share_where_the_whole_budget_leaves_more_noise_than_rows(rho, second):
    fit, _ = _fit(rho, Adaptive())
    assert [entry["share"] for entry in fit.rounds[:2]] == pytest.approx([0.05, second])


def test_settings_that_leave_nothing_are_refused():
    with pytest.raises(SettingError, match=r"first and second .* at most 0\.9"):
        Adaptive(first=0.5, second=0.5)
    with pytest.raises(SettingError, match=r"second_if_noisy"):
        Adaptive(first=0.35)
    with pytest.raises(SettingError, match=r"adaptive\.growth"):
        Adaptive(growth=0.5)


def test_bounds_hold_for_measured_and_chosen_against_cliques():
    """Seeded: the bound of every marginal holds, and some of those that were not measured have one."""
    rows, seen = np.array(related_rows(2000)), set()
    for rho in (0.002, 0.02):
        fit, table = _fit(rho, Adaptive(workload="all-3way"), rows=rows.tolist())
        first = fit.rounds[0]
        cliques = [(tuple(c), float(w)) for c, w in zip(first["cliques"], first["weights"], strict=True)]
        stages = _stages_from_rounds(fit.measurements, fit.rounds)
        evidence = Evidence(fit.model, table.domain, fit.recoding.maps, stages=stages, cliques=cliques)
        named = [clique for clique, _ in cliques if clique]
        truth = table.recode(fit.recoding)._counts(named)
        for (clique, counts), bound in zip(truth, bound_marginals(evidence, named), strict=True):
            seen.add(bound.source)
            if bound.bound is not None:
                assert np.abs(counts - fit.model.project(clique).ravel()).sum() <= bound.bound
    assert {"measured", "selected"} <= seen


def test_rounds_double_where_any_tree_fits_and_one_of_them_could_measure_everything():
    """The first of ten rounds has 1 / 42.6 of the budget; three marginals of 9, 6 and 8 cells share 0.9 of it."""
    table, pairs = related_table(1.0), [("a", "b"), ("a", "c"), ("c", "d")]
    share = 1 / sum(1.3**k for k in range(10))
    enough = table.expected_noise(0.9 * share) * sum(c ** (2 / 3) for c in (9, 6, 8)) ** 1.5 / 3 / 0.22
    assert Adaptive()._number_of_rounds(table, pairs, 1.01 * enough, 1.0) == 10
    assert Adaptive()._number_of_rounds(table, pairs, 0.99 * enough, 1.0) == 5
    assert Adaptive(max_mib=1e-6)._number_of_rounds(table, pairs, 1.01 * enough, 1.0) == 5


MILLION = {"x": 1000, "y": 1000, "z": 2}


@pytest.mark.parametrize("epsilon", [0.001, 1.0])
@pytest.mark.parametrize(
    ("sizes", "rows", "settings"),
    [
        ({"only": 7}, [[3]] * 40, {}),
        ({"only": 7}, [], {}),
        (SIZES, [[0, 1, 0, 1], [2, 0, 1, 0]], {}),
        (MILLION, [[i % 1000, i * 7 % 1000, i % 2] for i in range(500)], {"threshold": 0.0}),
        (MILLION, [[i % 1000, i * 7 % 1000, i % 2] for i in range(500)], {"max_cells": 1}),
        (SIZES, related_rows(), {"max_mib": 1e-9}),
        (SIZES, related_rows(), {"workload": "all-1way"}),
        (SIZES, related_rows(), {"workload": "target:a"}),
    ],
)
@pytest.mark.parametrize("delta", [0, 1e-9])
def test_nothing_fails_after_spending(sizes, rows, settings, epsilon, delta):
    """One column, no or two rows, marginals of a million cells, a limit below any tree, a budget that says nothing."""
    budget = Budget.of(epsilon=epsilon, delta=delta)
    table = PrivateTable(CodedSource(sizes, rows), budget)
    with insecure(1):
        fit = Adaptive(**settings).fit(table, rho=float(budget.capacity))
    made = fit.model.sample(50, np.random.default_rng(0))
    assert float(table.account.spent) == pytest.approx(float(budget.capacity), rel=1e-9)
    assert set(made) == set(sizes)
    assert all(codes.min() >= 0 and codes.max() < fit.model.domain[column] for column, codes in made.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- [a, b]\n- [nobody]\n", "nobody"),
        ("- [a, a]\n", "named twice"),
        ("- {clique: [a, b], weight: -1}\n- {clique: [a, b], weight: 1}\n", "weight"),
        ("- {clique: [a, b], weight: 0}\n", "weight"),
        ("- {clique: [a, b], weight: .inf}\n", "weight"),
        ("[]\n", "workload"),
    ],
)
def test_workloads_that_contradict_the_schema_or_themselves_are_refused_before_spending(text, said, tmp_path):
    path, table = tmp_path / "workload.yaml", related_table(1.0)
    path.write_text(text)
    with pytest.raises(UnderstudyError, match=said):
        Adaptive(workload=str(path)).fit(table, rho=1.0)
    assert not table.account.charges
