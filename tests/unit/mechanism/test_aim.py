"""AIM by the paper's numbers, its settings, and what it records for bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import CodeGroups, Domain, Forbidden
from understudy.errors import SettingError
from understudy.gate import PrivateTable, Selection
from understudy.mechanism.aim import AIM, Choice, RoundLog, _possible_cells, ablations
from understudy.mechanism.gaussian import Gaussian
from understudy.mechanism.mwem import MWEM
from understudy.model.junction_tree import limit_cliques
from understudy.testing import insecure
from understudy.testing.tables import CodedSource

from .conftest import SIZES, related_rows, related_table


def _fit(rho=1.0, mechanism=None, **rest):
    table = related_table(rho, **rest)
    with insecure(1):  # what is measured in which round is a matter of noise; the laws of noise are tested elsewhere
        return (mechanism or AIM()).fit(table, rho=rho), table


def _stop_after_a_round(step):
    if step.detail.startswith("round"):
        raise InterruptedError


@pytest.mark.parametrize(("columns", "sigma", "epsilon"), [(15, 94.3657, 0.00706471), (5, 54.4821, 0.0122364)])
def test_paper_settings_give_the_papers_first_sigma_and_epsilon(columns, sigma, epsilon):
    """At rho(1, 1e-9); T = 16 d, so that columns take 5.625 % of it."""
    rho, sizes = 0.0149730577, dict.fromkeys("abcdefghijklmno"[:columns], 2)
    table = related_table(rho, sizes=sizes, rows=[[0] * columns] * 50)
    with pytest.raises(InterruptedError):
        AIM(workload="all-1way", **AIM.paper_settings()).fit(table, rho=rho, progress=_stop_after_a_round)
    measured = [charge for charge in table.account.charges if charge.what == "measure"]
    selected = [charge for charge in table.account.charges if charge.what == "select"]
    assert [charge.scale for charge in measured[:columns]] == pytest.approx([sigma] * columns, rel=1e-5)
    assert selected[0].scale == pytest.approx(epsilon, rel=1e-5)
    assert float(sum(charge.rho for charge in measured[:columns])) == pytest.approx(0.05625 * rho)


@pytest.mark.parametrize(
    "settings", [{}, AIM.paper_settings(), {"anneal": False, "rounds": 2.0}, {"first": 0.0, "second": 0.0}]
)
def test_all_of_the_budget_is_spent_and_no_more(settings):
    fit, table = _fit(0.7, AIM(**settings))
    assert float(table.account.spent) == pytest.approx(0.7, rel=1e-9)
    assert table.account.spent <= table.account.budget.capacity
    assert sum(entry["share"] for entry in fit.rounds) == pytest.approx(1.0)


def test_rounds_are_at_most_the_planned_number():
    for rho in (1e-3, 10.0):
        fit, _ = _fit(rho, AIM(rounds=2.0))
        assert sum("chosen" in entry for entry in fit.rounds) <= 2 * len(SIZES)


def test_much_budget_reproduces_the_workload():
    fit, _ = _fit(1e6, AIM(workload="all-2way"))
    rows = np.array(related_rows())
    for pair, (i, j) in {("a", "b"): (0, 1), ("b", "d"): (1, 3)}.items():
        true = np.bincount(rows[:, i] * SIZES[pair[1]] + rows[:, j], minlength=SIZES[pair[0]] * SIZES[pair[1]])
        assert np.abs(fit.model.project(pair).ravel() - true).sum() < 0.02 * len(rows)


def test_the_sensitivity_of_a_choice_is_the_largest_weight_times_the_unitsrelated_rows():
    fit, table = _fit(1.0, max_rows=2)
    weights = fit.rounds[0]["weights"]
    chosen = [entry for entry in fit.rounds if "chosen" in entry]
    charges = [charge for charge in table.account.charges if charge.what == "select"]
    for entry, charge in zip(chosen, charges, strict=True):
        assert charge.sensitivity == entry["sensitivity"] == 2 * weights[entry["candidates"]].max()


def test_candidates_grow_with_the_budget_and_stay_within_the_limit():
    fit, _ = _fit(50.0, AIM(max_mib=1e-4, rounds=2.0))
    assert fit.model.size_mib <= max(1e-4, sum(SIZES.values()) * 8 / 2**20)


def test_within_agrees_with_the_small_domain_shortcut():
    domain, weights = Domain(SIZES), AIM()._cliques(Domain(SIZES))
    assert list(limit_cliques(domain, weights, [("a",)], 1.0)) == list(weights)
    assert set(limit_cliques(domain, weights, [("a", "b")], 1e-9)) == {
        ("a",),
        ("b",),
        ("c",),
        ("d",),
        ("a", "b"),
    }


def test_where_nothing_fits_the_smallest_are_the_candidates():
    domain = Domain(SIZES)
    triples = {r: w for r, w in AIM()._cliques(domain).items() if len(r) == 3}
    assert list(limit_cliques(domain, triples, [], 1e-9)) == [
        ("a", "b", "c")
    ]  # 18 cells and 4 for d; the others have 28 and up


def test_a_second_look_goes_to_columns_of_many_codes_for_so_fewrelated_rows():
    sizes = {"wide": 60, "yes": 2}
    rows = [[i % 60, i % 2] for i in range(400)]
    table = related_table(0.05, rows=rows, sizes=sizes)
    with insecure(1):
        AIM(workload="all-1way").fit(table, rho=0.05)
    first_select = next(i for i, charge in enumerate(table.account.charges) if charge.what == "select")
    looks = [charge.about[0] for charge in table.account.charges[:first_select]]
    assert looks[:2] == [("wide",), ("yes",)]
    assert looks[2:3] == [("wide",)]
    calm = related_table(1e4, rows=rows, sizes=sizes)
    AIM(workload="all-1way").fit(calm, rho=1e4)
    assert [charge.what for charge in calm.account.charges[:3]] == ["measure", "measure", "select"]


def test_rare_codes_are_merged_and_declared_measurements_kept():
    sizes = {"wide": 40, "yes": 2}
    rows = [[0, 0]] * 200 + [[1, 1]] * 200
    fit, table = _fit(0.5, AIM(workload="all-2way"), sizes=sizes, rows=rows)
    assert fit.model.domain["wide"] < 20
    assert len(fit.measurements[0].values) == 40
    again = AIM(workload="all-2way").finish(table.domain, fit.measurements, recoding=fit.recoding)
    assert again.model.domain == fit.model.domain


def test_a_long_column_and_its_previous_value_are_merged_alike_by_the_noise_of_one_measurement():
    sizes = {"prev": 20, "own": 20}
    rows = [[i % 8, i % 8] for i in range(600)] + [[8 + i % 12] * 2 for i in range(60)]
    workload = 'conditional:[["own"], ["prev"], [["own", "prev"]], {}]'
    codes = {}
    for alike in ("[]", '[["prev", "own"]]'):
        source = CodedSource(sizes, rows)
        source.code_groups = CodeGroups(axes=sizes)
        with insecure(1):
            mechanism = AIM(workload=workload.format(alike), first=0.01)
            fit = mechanism.fit(PrivateTable(source, Budget.of(rho=1.0)), rho=1.0)
        codes[alike] = [fit.recoding.maps.get(column, np.arange(20)).tolist() for column in sizes]
    (before, own), (like, alike) = codes.values()
    assert before != own  # by its own noise
    assert like == alike
    assert len(set(alike)) < len(set(own))  # the second measurement makes counts precise, not larger tables


def test_the_record_holds_models_only_where_a_clique_was_last_a_candidate():
    fit, _ = _fit(2.0, AIM(threshold=0.0))
    kept = {m.clique for m in fit.measurements}
    names = [tuple(clique) for clique in fit.rounds[0]["cliques"]]
    lasts = [place for entry in fit.rounds for place in entry.get("last", [])]
    assert len(lasts) == len(set(lasts))
    assert kept & {names[place] for place in lasts}  # measured marginals have one too
    assert all(len(entry["last"]) for entry in fit.rounds if "model" in entry)


def test_round_log_keeps_the_last_candidacy():
    log = RoundLog({("a",): 1.0, ("b",): 1.0}, [(1, 0.1)])
    table = related_table()
    model = AIM().fit(table, rho=1.0).model
    for candidates in ([("a",), ("b",)], [("a",)], [("a",)]):
        offsets = dict.fromkeys(candidates, 1.0)
        log.add_round(Choice(Selection(("a",), 0.5, 1.0), offsets), before=model, share=0.3, measured=1)
    entries = log.entries()
    assert [entry.get("last", np.array([])).tolist() for entry in entries] == [[], [1], [], [0]]
    assert ["model" in entry for entry in entries] == [False, True, False, True]


@pytest.mark.parametrize("name", ablations())
def test_ablations_run(name):
    fit, table = _fit(0.5, AIM(**ablations()[name]))
    assert float(table.account.spent) == pytest.approx(0.5)
    assert any("chosen" in entry for entry in fit.rounds)


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 0.5},
        {"measured": 1.0},
        {"measured": 0.0},
        {"first": 0.8, "second": 0.3},
        {"first": 0.0, "second": 0.3},
        {"max_mib": 0},
        {"max_cells": 0},
        {"precise": 0.0},
        {"threshold": -1.0},
        {"fewest": math.nan},
        {"score": "best"},
        {"rounds": "16"},
        {"rounds": True},
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        AIM(**settings)


def test_a_workload_without_candidates_is_refused_before_spending():
    with pytest.raises(SettingError, match="max_cells"):
        AIM(closure=False, max_cells=1).footprint(Domain(SIZES))


def test_mwem_measures_cliques_of_the_workload_in_equal_rounds():
    _, table = _fit(1.0, MWEM(workload="all-2way"))
    measured = [charge for charge in table.account.charges if charge.what == "measure"]
    assert len(measured) == len(SIZES)
    assert all(len(charge.about[0]) == 2 for charge in measured)
    assert [float(charge.rho) for charge in measured] == pytest.approx([0.9 / 4] * 4)
    with pytest.raises(SettingError, match="mwem"):
        MWEM(rounds=0.0)


def test_gaussian_splits_noise_by_the_cube_root_of_the_cells():
    fit, table = _fit(1.0, Gaussian(workload="all-2way"))
    sigma = {m.clique: m.sigma for m in fit.measurements}
    assert len(sigma) == 6
    assert sigma[("a", "b")] / sigma[("b", "d")] == pytest.approx((12 / 9) ** (1 / 3))
    assert float(table.account.spent) == pytest.approx(1.0)


def test_gaussian_falls_back_to_gradual_updates_where_the_tree_is_too_large():
    assert _fit(1.0, Gaussian(max_mib=1e-5))[0].model.kind != _fit(1.0, Gaussian())[0].model.kind
    with pytest.raises(SettingError, match="gaussian"):
        Gaussian(max_mib=0.0)


def test_cells_that_rules_forbid_cost_no_noise() -> None:
    below = Forbidden(("a", "b"), lambda: np.tril(np.ones((4, 4), np.bool_), -1))
    domain = Domain({"a": 4, "b": 4, "c": 3}, [below])
    found = _possible_cells(domain, [("a",), ("a", "b"), ("b", "c"), ("a", "b", "c")])
    assert found == {("a",): 4, ("a", "b"): 10, ("b", "c"): 12, ("a", "b", "c"): 30}
