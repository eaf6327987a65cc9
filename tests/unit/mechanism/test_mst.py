"""MST: the paper's numbers, every shape of table, forced cliques, and the contract of mechanisms."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.accounting.convert import rho_of
from understudy.domain import Domain
from understudy.errors import SchemaError, SettingError
from understudy.gate import PrivateTable
from understudy.mechanism.mst import MST, weights_by_size
from understudy.testing.contract import CHECKS, check_extremes
from understudy.testing.tables import CodedSource, SealedSource

PAPER = MST(**MST.paper_settings())


def fitted(mechanism, sizes, rows, *, rho=1.0, **given):
    table = PrivateTable(CodedSource(sizes, rows, **given), Budget.of(rho=rho))
    return mechanism.fit(table, rho=rho), table


def chain(rows, seed=0, sizes=(4, 4, 4, 4)):
    rng = np.random.default_rng(seed)
    columns = [rng.integers(sizes[0], size=rows)]
    for size in sizes[1:]:
        columns.append(np.where(rng.random(rows) < 0.3, rng.integers(size, size=rows), columns[-1] % size))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not check_extremes], ids=lambda c: c.__name__)
@pytest.mark.parametrize("mechanism", [MST(keep=[(("a", "b", "c"), 2.0)]), PAPER], ids=["keep", "paper"])
def test_contract(check, mechanism):
    check(mechanism)


@pytest.mark.parametrize("rho", [1e-4, 1.0])
@pytest.mark.parametrize(
    ("sizes", "rows"),
    [({"a": 3, "b": 2}, []), ({"a": 3, "b": 2}, [[2, 1]]), ({"only": 5}, [[3]] * 9), ({"x": 1, "y": 1}, [[0, 0]])],
    ids=["empty", "one row", "one column", "constant"],
)
def test_extremes(sizes, rows, rho):
    fit, table = fitted(MST(), sizes, rows, rho=rho)
    assert fit.model.domain == fit.recoding.recode(Domain(sizes))
    assert float(table.account.spent) == pytest.approx(rho, rel=1e-9)
    assert len(fit.model.sample(7, np.random.default_rng(0))[next(iter(sizes))]) == 7


def test_the_papers_noise():
    """rho(1, 1e-9), 15 columns: one-way sd 38.76466, two-way (14 edges) 37.45022, epsilon of a choice 0.0534042."""
    rho = rho_of(1.0, 1e-9)
    rows = np.random.default_rng(1).integers(2, size=(4000, 15))
    fit, table = fitted(PAPER, {f"x{i}": 2 for i in range(15)}, rows, rho=rho)
    ones = [m.sigma for m in fit.measurements if len(m.clique) == 1]
    pairs = [m.sigma for m in fit.measurements if len(m.clique) == 2]
    assert ones == pytest.approx([38.76466] * 15, rel=1e-6)
    assert pairs == pytest.approx([37.45022] * 14, rel=1e-6)
    chosen = [charge.scale for charge in table.account.charges if charge.what == "select"]
    assert chosen == pytest.approx([0.0534042] * 14, rel=1e-6)


def test_all_of_the_budget_is_spent_in_the_stated_parts():
    fit, table = fitted(MST(split=(2, 1, 5)), dict.fromkeys("abcd", 4), chain(3000), rho=0.8)
    spent = {"ones": 0.0, "choice": 0.0, "pairs": 0.0}
    for charge in table.account.charges:
        spent["choice" if charge.what == "select" else "ones" if len(charge.about[0]) == 1 else "pairs"] += charge.rho
    assert spent == pytest.approx({"ones": 0.2, "choice": 0.1, "pairs": 0.5}, rel=1e-9)
    assert len(fit.rounds) == 3


def test_larger_tables_get_less_noise_and_weights_have_mean_square_one():
    domain = Domain({"a": 8, "b": 27})
    weights = weights_by_size(domain, [("a",), ("b",)], 1 / 3)
    assert weights["b",] / weights["a",] == pytest.approx(1.5)
    assert np.mean(np.square(list(weights.values()))) == pytest.approx(1)
    assert weights_by_size(domain, [], 1 / 3) == {}
    fit, _ = fitted(MST(), {"a": 8, "b": 27}, np.zeros((9, 2), int))
    sigma = {m.clique: m.sigma for m in fit.measurements[:2]}  # others may follow
    assert sigma["a",] / sigma["b",] == pytest.approx(1.5)


def test_with_much_budget_a_chain_is_reproduced():
    rows = chain(3000)
    fit, _ = fitted(MST(), dict.fromkeys("abcd", 4), rows, rho=1e3)
    assert {tuple(step["chosen"]) for step in fit.rounds} == {("a", "b"), ("b", "c"), ("c", "d")}
    for i, pair in enumerate([("a", "b"), ("b", "c"), ("c", "d")]):
        truth = np.zeros((4, 4))
        np.add.at(truth, (rows[:, i], rows[:, i + 1]), 1)
        assert np.abs(fit.model.project(pair) - truth).sum() < 0.01 * len(rows)


def test_a_column_of_ten_thousand_values_is_compressed():
    rng = np.random.default_rng(2)
    wide = np.where(rng.random(3000) < 0.9, rng.integers(5, size=3000), rng.integers(10_000, size=3000))
    rows = np.stack([wide, wide % 3], axis=1)
    fit, _ = fitted(MST(), {"wide": 10_000, "narrow": 3}, rows, rho=0.5)
    assert fit.model.domain["wide"] <= 200
    assert [list(step["chosen"]) for step in fit.rounds] == [["wide", "narrow"]]


def test_pairs_beyond_the_limit_are_left_out_and_their_share_is_used_elsewhere():
    rows = chain(2000, sizes=(6, 6, 2))
    fit, table = fitted(MST(max_cells=12), {"a": 6, "b": 6, "c": 2}, rows)
    assert {tuple(step["chosen"]) for step in fit.rounds} == {("a", "c"), ("b", "c")}
    assert float(table.account.spent) == pytest.approx(1.0, rel=1e-9)


def test_constant_columns_take_no_pair():
    rows = np.column_stack([chain(2000, sizes=(3, 3)), np.zeros(2000, int)])
    fit, _ = fitted(MST(), {"a": 3, "b": 3, "c": 1}, rows)
    assert [step["chosen"] for step in fit.rounds] == [["a", "b"]]


def test_more_columns_than_the_budget_can_serve():
    rows = np.random.default_rng(0).integers(3, size=(30, 60))
    fit, table = fitted(MST(), {f"x{i}": 3 for i in range(60)}, rows, rho=1e-5)
    assert float(table.account.spent) == pytest.approx(1e-5, rel=1e-9)
    assert all(len(codes) == 5 for codes in fit.model.sample(5, np.random.default_rng(0)).values())


def test_forced_cliques_are_measured_with_their_weights_and_save_choices():
    keep = [(("a", "c", "d"), 3.0), (("a", "b"), 1.0)]
    fit, table = fitted(MST(keep=keep), dict.fromkeys("abcd", 4), chain(3000))
    sigma = {m.clique: m.sigma for m in fit.measurements}
    assert sigma["a", "b"] / sigma["a", "c", "d"] == pytest.approx(3.0)
    assert not any(charge.what == "select" for charge in table.account.charges)
    assert float(table.account.spent) == pytest.approx(1.0, rel=1e-9)
    assert any({"a", "c", "d"} <= set(clique) for clique in fit.model.tree.cliques)


def test_a_forced_clique_that_cannot_be_measured_is_refused_before_rows_are_read():
    for keep, error in (([("a", "nope")], SchemaError), ([("a", "b", "c", "d")], SettingError)):
        sizes = dict.fromkeys("abcd", 1000)
        table = PrivateTable(SealedSource(sizes, [[0] * 4]), Budget.of(rho=1.0))
        with pytest.raises(error):
            MST(keep=keep).fit(table, rho=1.0)
        assert table.account.charges == ()
        with pytest.raises(error):
            MST(keep=keep).footprint(Domain(sizes))


def test_the_model_has_the_declared_number_of_rows():
    fit, _ = fitted(MST(), dict.fromkeys("abcd", 4), chain(500), rows_public=500)
    assert fit.model.total == pytest.approx(500)


@pytest.mark.parametrize(
    "settings",
    [
        {"split": (1, 1)},
        {"split": (1, 0, 1)},
        {"split": "abc"},
        {"split": 3},
        {"threshold": -1},
        {"penalty": float("nan")},
        {"size_power": "x"},
        {"max_cells": 1},
        {"max_cells": True},
    ],
)
def test_settings_out_of_range(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        MST(**settings)


def test_settings_survive_json():
    mechanism = MST(keep={("a", "b"): 6}, split=[2, 1, 2])
    assert MST(**json.loads(json.dumps(asdict(mechanism)))) == mechanism


def test_the_footprint_grows_with_the_domain_and_stays_reasonable_for_a_wide_one():
    small = MST().footprint(Domain({"a": 3, "b": 3}))
    wide = MST().footprint(
        Domain({f"x{i}": size for i, size in enumerate([10_000, 5_000, 3_000] + [300] * 40 + [9] * 55)})
    )
    assert small.memory_bytes < wide.memory_bytes < 4 << 30
    assert small.disk_bytes < wide.disk_bytes


def test_noise_counts_against_a_pair_only_where_it_is_felt():
    """Four cells of 250 expected rows: noise of 20 a cell is 8 % of the rows, of 30 12 %, of 100 40 %."""
    expected, mechanism = np.full((2, 2), 250.0), MST()
    bonus = 0.002 * 1000 * np.log(4)
    assert mechanism._offset(expected, 20.0) == pytest.approx(-bonus)
    assert mechanism._offset(expected, 30.0) == pytest.approx(0.5 * 2 * (120 - 100) - bonus)
    assert mechanism._offset(expected, 100.0) == pytest.approx(0.5 * 400 - bonus)


def test_nearly_empty_cells_cost_no_more_than_is_expected_in_them():
    expected = np.array([[900.0, 100.0], [0.0, 0.0]])
    assert MST()._offset(expected, 300.0) == pytest.approx(0.5 * 400 - 0.002 * 1000 * np.log(4))


def test_between_equally_dependent_pairs_the_larger_table_must_be_worth_less():
    small, large = np.full((2, 2), 250.0), np.full((4, 4), 62.5)
    assert MST()._offset(large, 1.0) < MST()._offset(small, 1.0)
    assert MST()._offset(large, 50.0) > MST()._offset(small, 50.0)  # unless its noise is felt
