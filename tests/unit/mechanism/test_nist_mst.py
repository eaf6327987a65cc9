"""NIST-MST: selection from a public table (Algorithm 5), the two calibrations, and the contract of mechanisms."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from understudy.accounting import Budget
from understudy.accounting.calibrate import certify_plan
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Domain
from understudy.errors import SchemaError, SettingError
from understudy.gate import PrivateTable
from understudy.mechanism.nist_mst import (
    NistMST,
    choose_cliques,
    conditional_error,
    equation_5_1,
    leave_out_large,
    maximum_spanning_tree,
    mutual_information,
    pair_information,
    public_tree,
)
from understudy.schema import Schema
from understudy.tabulate import marginals
from understudy.testing.contract import CHECKS, check_extremes
from understudy.testing.tables import CodedSource, SealedSource

CHOSEN = NistMST(cliques=[("a", "b"), ("b", "c"), (("a", "c"), 2.0), ("a", "b", "c")])


def star(rows=3000, seed=0):
    """b and c copy a; d is b xor c at times, which no tree explains; e is alone."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=rows)
    b = np.where(rng.random(rows) < 0.2, rng.integers(2, size=rows), a)
    c = np.where(rng.random(rows) < 0.3, rng.integers(2, size=rows), a)
    d = np.where(rng.random(rows) < 0.05, rng.integers(2, size=rows), b ^ c)
    return np.stack([a, b, c, d, rng.integers(3, size=rows)], axis=1)


SIZES = {"a": 2, "b": 2, "c": 2, "d": 2, "e": 3}


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not check_extremes], ids=lambda c: c.__name__)
@pytest.mark.parametrize("mechanism", [CHOSEN, NistMST(cliques=(), calibration="paper")], ids=["chosen", "paper"])
def test_contract(check, mechanism):
    check(mechanism)


# -- selection ---------------------------------------------------------------------------------------------------------


def test_mutual_information_against_entropies():
    rng = np.random.default_rng(4)
    counts = rng.integers(0, 9, size=(4, 5))

    def entropy(table):
        p = table[table > 0] / table.sum()
        return -(p * np.log(p)).sum()

    truth = entropy(counts.sum(axis=1)) + entropy(counts.sum(axis=0)) - entropy(counts)
    assert mutual_information(counts.ravel(), (4, 5)) == pytest.approx(truth)
    assert mutual_information(np.zeros(6, int), (2, 3)) == 0.0


def test_dense_and_sparse_tables_give_the_same_numbers():
    rng = np.random.default_rng(5)
    codes = {c: rng.integers(6, size=200).astype(np.uint8) for c in "abc"}
    domain = Domain(dict.fromkeys("abc", 6))
    for clique, measure in ((("a", "b"), mutual_information), (("a", "b", "c"), conditional_error)):
        dense, sparse = (dict(marginals(codes, domain, [clique], dense_cells=limit))[clique] for limit in (1000, 1))
        assert measure(dense, domain.shape(clique)) == pytest.approx(measure(sparse, domain.shape(clique)))


def test_the_explanation_of_a_triple_by_brute_force():
    counts = np.random.default_rng(6).integers(0, 5, size=(3, 4, 2)).astype(float)
    explained = np.einsum("ij,ik,i->ijk", counts.sum(2), counts.sum(1), 1 / counts.sum((1, 2)))
    truth = np.abs(counts - explained).sum() / counts.sum()
    assert conditional_error(counts.astype(np.int64).ravel(), (3, 4, 2)) == pytest.approx(truth)
    assert conditional_error(np.zeros(8, int), (2, 2, 2)) == 0.0


def test_the_tree_is_heaviest_by_brute_force():
    rng = np.random.default_rng(7)
    for _ in range(20):
        weights = {pair: float(rng.random()) for pair in combinations("abcde", 2)}
        trees = (edges for edges in combinations(weights, 4) if len(set().union(*edges)) == 5 and _connected(edges))
        best = max(sum(weights[edge] for edge in edges) for edges in trees)
        assert sum(weights[edge] for edge in maximum_spanning_tree(weights)) == pytest.approx(best)


def _connected(edges):
    reached = {edges[0][0]}
    for _ in edges:
        reached |= {column for edge in edges if reached & set(edge) for column in edge}
    return len(reached) == 5


def test_triples_that_the_tree_does_not_explain_are_added():
    public = CodedSource(SIZES, star())
    assert set(public_tree(public)) > {("a", "b"), ("a", "c")}
    chosen = choose_cliques(public)
    triples = [clique for clique in chosen if len(clique) == 3]
    assert triples
    errors = {}
    for triple in triples:
        for first in triple:
            order = (first, *(column for column in triple if column != first))
            counts = dict(public.counts([order]))[order]
            errors[triple] = max(errors.get(triple, 0.0), conditional_error(counts, public.domain.shape(order)))
    assert min(errors.values()) >= 0.1
    for triple in triples:
        assert sum(set(pair) < set(triple) for pair in chosen if len(pair) == 2) == 3
    assert choose_cliques(public, error=1.99) == public_tree(public)


def test_forced_cliques_come_first_in_the_tree_and_are_not_listed_twice():
    public = CodedSource(SIZES, star())
    assert pair_information(public)["a", "e"] < 0.01
    tree = public_tree(public, keep=[("a", "e", "d")])
    assert sum(set(pair) < {"a", "d", "e"} for pair in tree) == 2
    chosen = choose_cliques(public, keep=[("b", "a")])
    assert ("a", "b") not in chosen
    assert ("b", "a") not in chosen


def test_cliques_that_are_too_large_go_with_the_pair_that_closes_their_triangle():
    domain = Domain({"a": 5, "b": 5, "c": 5, "d": 50})
    cliques = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("a", "b", "c"), ("c", "d"), ("a", "c", "d")]
    kept = leave_out_large(domain, cliques, 1000)
    assert kept == [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("a", "b", "c")]
    assert leave_out_large(domain, cliques, 125) == [("a", "b"), ("a", "c")]  # limits are exclusive, as in the paper


# -- the mechanism -----------------------------------------------------------------------------------------------------


def frame(rows):
    return pd.DataFrame(rows, columns=list(SIZES))


def test_prepared_keeps_cliques_and_no_rows():
    schema = Schema.from_domain(SIZES)
    made = NistMST(public=frame(star()), keep=[(("a", "e"), 6)]).prepare(schema)
    assert made.public is None
    assert made.public_name == "a frame"
    assert json.loads(json.dumps(asdict(made)))["cliques"]
    assert NistMST(**json.loads(json.dumps(asdict(made)))) == made
    assert made.prepare(schema) == made


def test_the_public_table_is_named_by_its_file(tmp_path):
    path = tmp_path / "colorado.csv"
    frame(star(50)).to_csv(path, index=False)
    assert NistMST(public=path).prepare(Schema.from_domain(SIZES)).public_name == "colorado.csv"


def test_a_public_source_needs_no_schema():
    table = PrivateTable(CodedSource(SIZES, star(seed=1)), Budget.of(rho=1.0))
    fit = NistMST(public=CodedSource(SIZES, star())).fit(table, rho=1.0)
    assert {m.clique for m in fit.measurements} >= {("a", "b"), ("a", "c")}


def test_half_of_the_budget_for_each_group_and_forced_weights():
    mechanism = NistMST(cliques=[("a", "b"), ("a", "c")], keep=[(("a", "b", "d"), 4.0)])
    table = PrivateTable(CodedSource(SIZES, star()), Budget.of(rho=0.5))
    fit = mechanism.fit(table, rho=0.5)
    ones = sum(charge.rho for charge in table.account.charges if len(charge.about[0]) == 1)
    assert float(ones) == pytest.approx(0.25, rel=1e-9)
    assert float(table.account.spent) == pytest.approx(0.5, rel=1e-9)
    sigma = {m.clique: m.sigma for m in fit.measurements}
    assert sigma["a", "b"] / sigma["a", "b", "d"] == pytest.approx(4.0)
    assert not any(charge.what == "select" for charge in table.account.charges)


def test_both_calibrations_and_the_gain():
    """delta 2e-12, epsilon 1: equation 5.1 gives 10.4758; the tight conversion 9.2 % less."""
    assert [equation_5_1(e, 2e-12) for e in (0.3, 1, 8)] == pytest.approx([34.6972, 10.4758, 1.38762], rel=1e-5)
    budget = Budget.of(epsilon=1.0, delta=2e-12)
    used = {}
    for calibration in ("paper", "tight"):
        table = PrivateTable(CodedSource(SIZES, star()), budget)
        mechanism = NistMST(cliques=[("a", "b"), ("a", "c")], calibration=calibration)
        fit = mechanism.fit(table, rho=float(budget.capacity))
        used[calibration] = fit.rounds[0]["sigma"]
        pairs = [m.sigma / np.sqrt(2) for m in fit.measurements if len(m.clique) == 2]
        assert pairs == pytest.approx([used[calibration]] * 2, rel=1e-9)
    assert used["paper"] == pytest.approx(10.4758, rel=1e-5)
    assert 1 - used["tight"] / used["paper"] == pytest.approx(0.0921, abs=1e-3)


def test_all_measurements_are_calibrated_together_though_codes_are_merged_in_between():
    """The exact curve gives 4.0 % less noise than zCDP at epsilon 1, delta 2e-12."""
    rows = np.column_stack([star(), np.zeros(3000, int)])
    sizes = SIZES | {"f": 40}
    mechanism = NistMST(cliques=[("a", "b"), ("a", "f")], keep=[(("e",), 3.0)])
    budget, neighbours = Budget.of(epsilon=1.0, delta=2e-12), Neighbours(None, 1, replace_one=False)
    sigmas, certified = certify_plan(mechanism.plan(Domain(sizes)), budget, neighbours)
    table = PrivateTable(CodedSource(sizes, rows), certified, plan=sigmas)
    fit = mechanism.fit(table, rho=float(certified.capacity))
    assert {m.clique: m.sigma for m in fit.measurements} == sigmas
    assert fit.model.domain["f"] < 40
    loose = PrivateTable(CodedSource(sizes, rows), budget)
    less = mechanism.fit(loose, rho=float(budget.capacity)).rounds[0]["sigma"]
    assert 1 - fit.rounds[0]["sigma"] / less == pytest.approx(0.0397, abs=1e-3)


def test_the_papers_calibration_has_no_plan():
    assert NistMST(cliques=[("a", "b")], calibration="paper").plan(Domain(SIZES)) == {}


@pytest.mark.parametrize("pure", [False, True])
def test_a_forced_column_is_measured_once_with_both_weights(pure):
    budget = Budget.of(epsilon=1.0, delta=0) if pure else Budget.of(rho=1.0)
    table = PrivateTable(CodedSource(SIZES, star()), budget)
    fit = NistMST(cliques=[("a", "b")], keep=[(("e",), 1.0)]).fit(table, rho=float(budget.capacity))
    assert sorted(m.clique for m in fit.measurements) == [("a",), ("a", "b"), ("b",), ("c",), ("d",), ("e",)]
    spent = {charge.about[0]: float(charge.epsilon if pure else charge.rho) for charge in table.account.charges}
    assert spent["a", "b"] == pytest.approx(0.25)
    assert spent["e",] == pytest.approx(0.1 + 0.25)
    assert sum(spent.values()) == pytest.approx(1.0)


def test_nothing_to_measure_after_merging_pays_for_a_second_look():
    rows = np.zeros((500, 5), int)
    table = PrivateTable(CodedSource(SIZES, rows), Budget.of(rho=1e-5))
    fit = NistMST(cliques=[("a", "b")], threshold=20.0).fit(table, rho=1e-5)
    assert [len(m.clique) for m in fit.measurements] == [1] * 10
    assert float(table.account.spent) == pytest.approx(1e-5)


def test_without_a_public_table_nothing_is_spent():
    schema = Schema.from_domain(SIZES)
    with pytest.raises(SettingError, match="--public"):
        NistMST().prepare(schema)
    table = PrivateTable(SealedSource(SIZES, star(5)), Budget.of(rho=1.0))
    with pytest.raises(SettingError, match="public"):
        NistMST().fit(table, rho=1.0)
    with pytest.raises(SchemaError):
        NistMST(cliques=[("a", "nope")]).fit(table, rho=1.0)
    with pytest.raises(SchemaError):
        NistMST(public=frame(star(9)), keep=[("nope",)]).prepare(schema)
    assert table.account.charges == ()


@pytest.mark.parametrize("settings", [{"calibration": "loose"}, {"error": -1}, {"threshold": "x"}, {"max_cells": -3}])
def test_settings_out_of_range(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        NistMST(**settings)
