"""Algorithm 6: forced cliques, candidates, budgets, and the tree itself where the budget is ample."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.accounting.convert import rho_of
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism.spanning_tree import (
    IndependentPairs,
    count_joins,
    eligible_pairs,
    largest_forest,
    parse_kept,
    spanning_tree,
)
from understudy.testing.tables import CodedSource


def chain(rows=400, seed=3):
    """Columns a - b - c - d, each mostly a copy of the one before, and e on its own."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(3, size=rows)]
    for noise in (0.1, 0.2, 0.3):
        columns.append(np.where(rng.random(rows) < noise, rng.integers(3, size=rows), columns[-1]))
    columns.append(rng.integers(3, size=rows))
    return np.stack(columns, axis=1)


def table_of(rows, sizes, rho=1e6):
    return PrivateTable(CodedSource(sizes, rows), Budget.of(rho=rho))


def independent(rows, names):
    n = len(rows)
    return IndependentPairs({c: np.bincount(rows[:, i], minlength=3).astype(float) for i, c in enumerate(names)}, n)


def test_with_an_ample_budget_it_is_the_maximum_spanning_tree_of_the_l1_distances():
    rows, names = chain(), "abcde"
    pairs = independent(rows, names)
    scores = {}
    for (i, a), (j, b) in combinations(enumerate(names), 2):
        counts = np.zeros((3, 3))
        np.add.at(counts, (rows[:, i], rows[:, j]), 1)
        scores[a, b] = np.abs(counts - pairs[a, b]).sum()
    best, part = [], {c: c for c in names}
    for pair in sorted(scores, key=scores.get, reverse=True):
        if part[pair[0]] != part[pair[1]]:
            best.append(pair)
            part = {c: part[pair[0]] if p == part[pair[1]] else p for c, p in part.items()}
    table = table_of(rows, dict.fromkeys(names, 3))
    assert spanning_tree(table, pairs, rho=1e6, max_cells=100) == best
    assert best[:3] == [("a", "b"), ("b", "c"), ("c", "d")]


def test_each_choice_costs_its_part_and_has_the_papers_epsilon():
    """rho(1, 1e-9) / 3 for 14 edges of 15 columns: epsilon 0.0534042 each."""
    names = [f"x{i}" for i in range(15)]
    rho = rho_of(1.0, 1e-9) / 3
    table = table_of(np.zeros((5, 15), int), dict.fromkeys(names, 2), rho=rho)
    pairs = IndependentPairs({name: np.array([2.5, 2.5]) for name in names}, 5.0)
    assert len(spanning_tree(table, pairs, rho=rho, max_cells=100)) == 14
    charges = table.account.charges
    assert [charge.scale for charge in charges] == pytest.approx([0.0534042] * 14, rel=1e-6)
    assert float(table.account.spent) == pytest.approx(rho, rel=1e-12)
    candidates = [charge.candidates[0] for charge in charges]
    assert candidates[0] == 105
    assert candidates == sorted(candidates, reverse=True)


def test_every_choice_joins_two_components():
    rows, names = chain(40), "abcde"
    table = table_of(rows, dict.fromkeys(names, 3), rho=1e-6)
    part = {c: c for c in names}
    for a, b in spanning_tree(table, independent(rows, names), rho=1e-6, max_cells=100):
        assert part[a] != part[b]
        part = {c: part[a] if p == part[b] else p for c, p in part.items()}
    assert len(set(part.values())) == 1


def test_columns_of_forced_cliques_are_connected_already():
    rows, names = chain(), "abcde"
    table = table_of(rows, dict.fromkeys(names, 3))
    tree = spanning_tree(table, independent(rows, names), rho=1.0, start=[("a", "e", "d")], max_cells=100)
    assert len(tree) == 2
    assert table.account.charges[0].scale == pytest.approx((8 * 0.5) ** 0.5)
    assert not {("a", "e"), ("a", "d"), ("d", "e")} & set(tree)


def test_constant_columns_and_large_pairs_are_no_candidates():
    domain = Domain({"a": 10, "b": 1, "c": 9, "d": 2})
    assert eligible_pairs(domain, 20) == [("a", "d"), ("c", "d")]
    assert count_joins(domain, [], 20) == 2
    assert count_joins(domain, [("a", "c", "d")], 20) == 0
    assert count_joins(domain, [], 19) == 1


def test_no_tree_could_be_larger_than_the_bound():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sizes = {f"x{i}": int(rng.integers(1, 30)) for i in range(5)}
        domain = Domain(sizes)
        bound = sum(largest_forest(domain, 200)) if max(sizes.values()) > 1 else 0
        part = {c: c for c in domain}
        cells = 0
        for pair in sorted(eligible_pairs(domain, 200), key=domain.cells, reverse=True):
            if part[pair[0]] != part[pair[1]]:
                cells += domain.cells(pair)
                part = {c: part[pair[0]] if p == part[pair[1]] else p for c, p in part.items()}
        assert cells <= bound


def test_offsets_decide_between_equal_pairs():
    rows = np.array([[0, 0, 0], [1, 1, 1]] * 50)
    table = table_of(rows, dict.fromkeys("abc", 2))
    pairs = IndependentPairs({c: np.array([50.0, 50.0]) for c in "abc"}, 100.0)
    offsets = {("a", "b"): 30.0, ("a", "c"): 0.0, ("b", "c"): 10.0}
    assert spanning_tree(table, pairs, rho=100.0, max_cells=9, offsets=offsets) == [("a", "c"), ("b", "c")]


def test_independent_pairs_are_the_product_and_a_mapping():
    pairs = IndependentPairs({"a": np.array([6.0, 2.0]), "b": np.array([1.0, 3.0, 4.0]), "c": np.array([8.0])}, 8.0)
    assert pairs["a", "b"].tolist() == [[0.75, 2.25, 3.0], [0.25, 0.75, 1.0]]
    assert pairs["b", "a"].tolist() == pairs["a", "b"].T.tolist()
    assert list(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert len(pairs) == 3
    assert ("a", "b") in pairs
    assert ("a", "x") not in pairs
    assert ("a",) not in pairs
    assert pairs != IndependentPairs({"a": np.array([1.0])}, 1.0)


def test_forced_cliques_in_every_form_and_through_json():
    assert parse_kept({("a", "b"): 2}) == ((("a", "b"), 2.0),)
    assert parse_kept([["a", "b"], [["c", "d", "e"], 3]]) == ((("a", "b"), 1.0), (("c", "d", "e"), 3.0))
    again = parse_kept([("a", "b"), (("c",), 0.5)])
    assert parse_kept([[list(clique), weight] for clique, weight in again]) == again


@pytest.mark.parametrize(
    "keep",
    [
        ["ab"],
        [()],
        [(("a", "b"), 0)],
        [(("a", "b"), float("inf"))],
        [(("a", "b"), "x")],
        [("a", "b"), ("b", "a")],
        [5],
        {"ab": 2},
        {5: 1},
        5,
        "ab",
    ],
)
def test_forced_cliques_that_make_no_sense(keep):
    with pytest.raises(SettingError, match="keep"):
        parse_kept(keep)
