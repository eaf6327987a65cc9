from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import CodeGroups, Domain
from understudy.errors import SettingError
from understudy.gate import Allocation, PrivateTable
from understudy.mechanism import make_mechanism
from understudy.mechanism.privsyn import PrivSyn, choose_pairs, join_pairs, shrink_scores
from understudy.model.gum import GumModel
from understudy.testing import insecure
from understudy.testing.tables import CodedSource

CELLS = {("a", "b"): 6, ("a", "c"): 20, ("b", "c"): 100}
SCORES = {("a", "b"): 50, ("a", "c"): 300, ("b", "c"): 5}
SIZES = {"a": 3, "b": 2, "c": 4, "d": 2}


def gaussian(rho: float) -> Allocation:
    return Allocation(math.sqrt(1 / (math.pi * rho)))


def rows(count: int) -> list[list[int]]:
    """b follows a, c follows b and a; d is on its own."""
    rng = np.random.default_rng(8)
    a = rng.integers(3, size=count)
    b = (a > 0) ^ (rng.random(count) < 0.1)
    c = (a + b) % 4
    return np.stack([a, b, c, rng.integers(2, size=count)], axis=1).tolist()


def private(rho: float = 1.0, *, count: int = 3000, **source: int) -> PrivateTable:
    return PrivateTable(CodedSource(SIZES, rows(count), **source), Budget.of(rho=rho))


def test_the_worked_example_of_shares() -> None:
    spread = gaussian(1.0)
    assert spread.shares([6, 20, 100]) == pytest.approx([0.102499, 0.228720, 0.668781], abs=1e-6)
    assert spread.error([6, 20, 100]) == pytest.approx(103.157, abs=1e-3)
    equal = sum(cells * math.sqrt(3 / math.pi) for cells in (6, 20, 100))
    assert equal == pytest.approx(123.128, abs=1e-3)
    assert [weight**2 for weight in spread.weights([6, 20, 100])] == pytest.approx(spread.shares([6, 20, 100]))


def test_shares_of_laplace_noise_are_least_too() -> None:
    spread, cells = Allocation(1.0, 1), [6, 20, 100]
    shares = spread.shares(cells)
    assert spread.error(cells) == pytest.approx(sum(c / share for c, share in zip(cells, shares, strict=True)))
    other = [shares[0] + 0.01, shares[1] - 0.01, shares[2]]
    assert sum(c / share for c, share in zip(cells, other, strict=True)) > spread.error(cells)


@pytest.mark.parametrize(("rho", "chosen"), [(1.0, [("a", "c"), ("a", "b")]), (0.01, [("a", "c")]), (0.001, [])])
def test_the_worked_example_of_choosing(rho: float, chosen: list) -> None:
    assert choose_pairs(SCORES, CELLS, gaussian(rho)) == chosen


def test_the_worked_errors_of_choosing() -> None:
    spread = gaussian(1.0)
    assert 55 + spread.error([20]) == pytest.approx(66.284, abs=1e-3)
    assert 5 + spread.error([20, 6]) == pytest.approx(24.664, abs=1e-3)
    assert 55 + gaussian(0.01).error([20]) == pytest.approx(167.838, abs=1e-3)
    assert 5 + gaussian(0.01).error([20, 6]) == pytest.approx(201.640, abs=1e-3)
    assert 55 + gaussian(0.001).error([20]) == pytest.approx(411.825, abs=1e-3)


def test_choosing_stops_at_the_least_gain_and_the_most_cells() -> None:
    assert choose_pairs(SCORES, CELLS, gaussian(1.0), least_gain=100) == [("a", "c")]
    assert choose_pairs(SCORES, CELLS, gaussian(1.0), most_cells=20) == [("a", "c")]
    assert choose_pairs(SCORES, CELLS, gaussian(1.0), most_cells=19) == [("a", "b")]
    assert choose_pairs({}, {}, gaussian(1.0)) == []


def test_choosing_passes_over_what_is_not_admissible() -> None:
    chosen = choose_pairs(SCORES, CELLS, gaussian(1.0), admissible=lambda pairs: ("a", "c") not in pairs)
    assert chosen == [("a", "b")]


def test_shrinking_takes_out_the_variance_of_the_noise() -> None:
    rng = np.random.default_rng(2)
    truth = rng.gamma(2.0, 100.0, 3000)
    noisy = {(str(i), "x"): float(score) for i, score in enumerate(truth + rng.normal(0, 150, 3000))}
    better = np.array(list(shrink_scores(noisy, 150.0).values()))
    assert np.square(better - truth).mean() < 0.6 * 150**2
    assert better.var() == pytest.approx(truth.var() ** 2 / (truth.var() + 150**2), rel=0.15)
    assert shrink_scores(noisy, 1e9) == pytest.approx(dict.fromkeys(noisy, float(np.mean(list(noisy.values())))))
    assert shrink_scores(noisy, 1e-9) == pytest.approx(noisy)
    assert shrink_scores(SCORES, 0.0) == pytest.approx(SCORES)


def test_pairs_become_the_largest_small_cliques() -> None:
    domain = Domain(dict.fromkeys("abcdef", 4))
    every = list(combinations("abcd", 2))
    assert join_pairs(domain, [*every, ("d", "e"), ("e", "f")], most_cells=256) == [
        tuple("abcd"),
        ("d", "e"),
        ("e", "f"),
    ]
    smaller = join_pairs(domain, every, most_cells=64)
    assert smaller == [("a", "b", "c"), ("a", "b", "d"), ("c", "d")]
    assert join_pairs(domain, every, most_cells=63) == every
    assert join_pairs(domain, [("b", "a")]) == [("a", "b")]


def test_a_clique_shares_at_most_two_columns_with_those_before() -> None:
    domain = Domain(dict.fromkeys("abcdef", 2))
    cliques = join_pairs(domain, list(combinations("abcdef", 2)), most_cells=16)
    used: set[str] = set()
    for clique in (clique for clique in cliques if len(clique) > 2):
        assert len(used & set(clique)) <= 2
        used |= set(clique)
    covered = {pair for clique in cliques for pair in combinations(clique, 2)}
    assert covered == set(combinations("abcdef", 2))


def test_a_dense_graph_of_many_columns_is_combined_in_little_time() -> None:
    domain = Domain({f"c{i:03}": 2 + i % 3 for i in range(60)})
    pairs = list(combinations(domain, 2))
    covered = {pair for clique in join_pairs(domain, pairs) for pair in combinations(clique, 2)}
    assert covered == set(pairs)


def test_the_budget_is_divided_as_settings_say() -> None:
    table = private()
    PrivSyn(one_way_share=0.25, dependence_share=0.05).fit(table, rho=1.0)
    kinds: dict[str, float] = {}
    for charge in table.account.charges:
        kind = charge.what if charge.what == "dependence" else f"{charge.what}{min(len(charge.about[0]), 2)}"
        kinds[kind] = kinds.get(kind, 0.0) + float(charge.rho)
    assert kinds["dependence"] == pytest.approx(0.05)
    assert sum(kinds.values()) == pytest.approx(1.0)
    assert kinds["measure1"] > 0.25 - 1e-9
    assert [c.what for c in table.account.charges].count("dependence") == 1


def test_dependent_columns_come_out_dependent() -> None:
    with insecure(5):
        fit = PrivSyn().fit(private(rho=2.0), rho=2.0)
    assert isinstance(fit.model, GumModel)
    assert any({"a", "b", "c"} <= set(clique) for clique in fit.model.tables)
    assert any(m.clique == ("d",) and len(m.values) == 2 for m in fit.measurements)
    made = fit.model.sample(3000, np.random.default_rng(0))
    assert np.mean(made["c"] == (made["a"] + made["b"]) % 4) > 0.95


def test_nothing_chosen_is_the_product_with_the_whole_budget() -> None:
    table = private(rho=1e-5, count=50)
    with insecure(5):  # noise alone can make a pair look worth measuring
        fit = PrivSyn().fit(table, rho=1e-5)
    assert [len(m.values) for m in fit.measurements] == [*SIZES.values()] * 2
    assert fit.model.domain == Domain(SIZES)
    assert float(table.account.spent) == pytest.approx(1e-5)


@pytest.mark.parametrize("ordered", [True, False])
def test_numbers_stay_in_pairs_which_can_be_fitted_group_by_group(ordered: bool) -> None:
    source = CodedSource(SIZES, rows(3000))
    source.code_groups = CodeGroups(axes={"c": 4} if ordered else {})
    with insecure(5):
        fit = PrivSyn().fit(PrivateTable(source, Budget.of(rho=2.0)), rho=2.0)
    sizes = [len(m.clique) for m in fit.measurements if "c" in m.clique]
    assert max(sizes) == (2 if ordered else 3)


def test_rare_codes_are_merged_for_the_pairs() -> None:
    sizes = {"wide": 40, "b": 2, "c": 2}
    table = PrivateTable(CodedSource(sizes, [[i % 3, i % 3 % 2, i % 2] for i in range(3000)]), Budget.of(rho=1.0))
    fit = PrivSyn(threshold=8.0).fit(table, rho=1.0)
    assert fit.recoding.merged_codes("wide")[:3] == [[0], [1], [2]]
    assert fit.model.domain["wide"] == 4
    assert fit.measurements[0].query is None
    assert len(fit.measurements[0].values) == 40


def test_an_interrupted_run_is_finished_from_any_part() -> None:
    fit = PrivSyn().fit(private(), rho=1.0)
    domain = Domain(SIZES)
    for count in range(1, len(fit.measurements) + 1):
        model = PrivSyn().finish(domain, fit.measurements[:count], recoding=fit.recoding).model
        assert model.total == pytest.approx(3000, abs=200)
    again = PrivSyn().finish(domain, fit.measurements, recoding=fit.recoding).model
    assert again.to_arrays()["counts"].tobytes() == fit.model.to_arrays()["counts"].tobytes()


def test_the_graphical_model_is_another_generator_for_the_same_measurements() -> None:
    with insecure(5):
        fit = PrivSyn(generator="pgm").fit(private(rho=2.0), rho=2.0)
    assert fit.model.kind == "graphical"
    gum = PrivSyn().finish(Domain(SIZES), fit.measurements, recoding=fit.recoding).model
    for clique in (m.clique for m in fit.measurements if len(m.clique) > 1):
        assert fit.model.project(clique) == pytest.approx(gum.project(clique), abs=60)


def test_pairs_that_make_the_tree_too_large_are_not_chosen_for_the_graphical_model() -> None:
    with insecure(5):
        small = PrivSyn(generator="pgm", limit_mib=20 * 8 / 2**20).fit(private(rho=50.0), rho=50.0)
        large = PrivSyn(generator="pgm").fit(private(rho=50.0), rho=50.0)
    assert max(len(m.clique) for m in small.measurements) == 2
    assert max(len(m.clique) for m in large.measurements) >= 3


def test_pure_budgets_and_public_rows_work() -> None:
    budget = Budget.of(epsilon=20.0, delta=0)
    table = PrivateTable(CodedSource(SIZES, rows(3000), rows_public=3000), budget)
    fit = PrivSyn().fit(table, rho=20.0)
    assert fit.model.total == pytest.approx(3000)
    assert any(len(m.clique) > 1 for m in fit.measurements)
    assert {m.noise for m in fit.measurements} == {"laplace"}


@pytest.mark.parametrize(
    "settings",
    [
        {"one_way_share": 0.0},
        {"one_way_share": 0.6, "dependence_share": 0.4},
        {"generator": "gan"},
        {"threshold": -1.0},
        {"threshold": float("nan")},
        {"least_gain": -1.0},
        {"clique_cells": 0},
        {"limit_mib": 0.0},
    ],
)
def test_settings_out_of_range_are_named(settings: dict) -> None:
    with pytest.raises(SettingError, match=next(reversed(settings))):
        make_mechanism("privsyn", **settings)


@pytest.mark.parametrize(
    ("mechanism", "setting", "words"),
    [
        *(("privsyn", name, "a number above 0 and below 1") for name in ("one_way_share", "dependence_share")),
        *(("privsyn", name, "a number of at least 0") for name in ("threshold", "least_gain")),
        *(("privsyn", name, "a whole number of at least 1") for name in ("clique_cells", "pair_cells", "most_cells")),
        ("privsyn", "limit_mib", "a number above 0"),
        ("gaussian", "max_mib", "a number above 0"),
        ("gaussian", "max_cells", "a whole number of at least 1"),
    ],
)
@pytest.mark.parametrize("value", ["x", None, [1], {"a": 1}, float("inf")], ids=str)
def test_settings_of_a_wrong_kind_are_named(mechanism: str, setting: str, words: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"^{mechanism}.{setting}: give {words}$"):
        make_mechanism(mechanism, **{setting: value})


def test_the_footprint_is_bounded_by_the_most_cells() -> None:
    wide = Domain({f"c{i}": 900 for i in range(100)})
    assert PrivSyn().footprint(wide).memory_bytes < 3 * 2**30
    assert PrivSyn(most_cells=1000).footprint(wide).memory_bytes < 2**24


def test_the_scores_may_cost_more_than_what_they_leave() -> None:
    table = private()
    PrivSyn(one_way_share=0.1, dependence_share=0.8).fit(table, rho=1.0)
    assert float(table.account.spent) == pytest.approx(1.0)
