"""HDMM: the specification's worked numbers, queries through the gate, and what rests on their sensitivity."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.accounting import Budget, Receipt
from understudy.accounting.neighbours import Neighbours
from understudy.domain import CodeGroups, Domain
from understudy.errors import BudgetExceeded, InputError, SettingError
from understudy.gate import PrivateTable
from understudy.measurement import KroneckerQuery, Measurement
from understudy.mechanism.hdmm import (
    HDMM,
    column_strategy,
    optimise_strategy,
    p_identity,
    strategy_error,
    tree_of_sums,
    workload_gram,
)
from understudy.model.consistency import average_tables
from understudy.model.estimate import estimate
from understudy.schema import Schema
from understudy.testing import insecure
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource, SealedSource

SIZES = {"a": 9, "b": 2, "c": 3}


def source(count=500, cls=CodedSource, **given):
    rng = np.random.default_rng(0)
    a = rng.integers(8, size=count)
    made = cls(SIZES, np.stack([a, a > 3, rng.integers(3, size=count)], axis=1), **given)
    made.code_groups = CodeGroups(axes={"a": 8})  # the ninth code is "missing"
    return made


# -- strategies --------------------------------------------------------------------------------------------------------


def test_the_worked_numbers_of_the_specification():
    """Prefixes of four codes: the identity has error 10, one row of 0.5 has 14.0625 and columns that sum to 1."""
    prefixes = workload_gram(4, "prefixes")
    half = p_identity(np.full((1, 4), 0.5), 1)
    assert half.sum(axis=0).tolist() == pytest.approx([1] * 4)
    assert strategy_error(np.eye(4), prefixes, 1) == pytest.approx(10)
    assert strategy_error(half, prefixes, 1) == pytest.approx(14.0625)
    assert strategy_error(optimise_strategy(prefixes, 1, 1), prefixes, 1) <= 10


@pytest.mark.parametrize("answers", ["prefixes", "ranges", "cells"])
def test_the_gram_matrix_is_that_of_the_workload(answers):
    n = 5
    ends = {"cells": [(i, i) for i in range(n)], "prefixes": [(0, i) for i in range(n)]}
    ends["ranges"] = [(i, j) for i in range(n) for j in range(i, n)]
    workload = np.array([[float(i <= k <= j) for k in range(n)] for i, j in ends[answers]])
    assert workload_gram(n, answers).tolist() == (workload.T @ workload).tolist()


@pytest.mark.parametrize("norm", [1, 2])
def test_the_gradient_descends_below_the_identity_and_the_whole_numbers_lose_little(norm):
    gram = workload_gram(64, "prefixes")
    found = optimise_strategy(gram, 4, norm)
    assert strategy_error(found, gram, norm) < {1: 0.5, 2: 0.2}[norm] * np.trace(gram)
    whole, error = column_strategy(66, 64, "prefixes", norm)
    assert whole.dtype == np.int64
    assert error - 2 < 1.05 * strategy_error(found, gram, norm)
    assert whole[-2:, 64:].tolist() == [[whole[-1, -1], 0], [0, whole[-1, -1]]]
    assert np.linalg.matrix_rank(whole) == 66


def test_a_long_axis_has_a_tree_of_sums():
    tree = tree_of_sums(600)
    assert tree.shape == (600 + 38 + 3, 600)
    assert tree.sum(axis=0).tolist() == [3] * 600


# -- queries through the gate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize(("max_rows", "rows_public"), [(1, None), (3, None), (1, 500), (3, 500)])
def test_the_spy_agrees_with_the_receipt(pure, max_rows, rows_public):
    spied(pure=pure, max_rows=max_rows, rows_public=rows_public)


def spied(*, pure=False, max_rows=1, rows_public=None):
    budget = Budget.of(epsilon=5, delta=0) if pure else Budget.of(rho=3.0)
    odd = KroneckerQuery((np.array([[1, -2], [3, 0]]),))
    with Spy() as spy:
        table = PrivateTable(source(max_rows=max_rows, rows_public=rows_public), budget)
        HDMM().fit(table, rho=float(budget.capacity) / 2)
        table.measure([("b",), ("c",)], rho=float(budget.capacity) / 4, queries={("b",): odd})
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


@pytest.mark.parametrize("given", [{}, {"pure": True}, {"max_rows": 3, "rows_public": 500}])
def test_the_sensitivity_of_a_count_for_queries_is_caught(given, monkeypatch):
    monkeypatch.setattr(Neighbours, "query_l1", lambda near, *_, **__: near.marginal_l1)
    monkeypatch.setattr(Neighbours, "query_l2_squared", lambda near, *_, **__: near.marginal_l2_squared)
    with pytest.raises(AssertionError):
        spied(**given)


def test_negative_entries_taken_for_positive_ones_are_caught(monkeypatch):
    monkeypatch.setattr(KroneckerQuery, "negative", False)
    with pytest.raises(AssertionError):
        spied(rows_public=500)


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ({("b",): KroneckerQuery((np.eye(2, dtype=int),))}, "clique that is measured"),
        ({("a",): np.eye(9)}, "give a `KroneckerQuery`"),
        ({("a",): KroneckerQuery((np.eye(8, dtype=int),))}, "has 9 cells, its query 8 columns"),
        ([], "queries: give a mapping"),
    ],
)
def test_queries_that_do_not_fit_are_refused_before_anything_is_spent(queries, said):
    table = PrivateTable(source(cls=SealedSource), Budget.of(rho=1.0))
    with pytest.raises(SettingError, match=said):
        table.measure([("a",)], rho=1.0, queries=queries)
    assert not table.account.charges


@pytest.mark.parametrize(
    "factors",
    [
        (),
        (np.zeros((2, 2), int),),
        (np.eye(2),),
        (np.array([1, 2]),),
        (np.array([[2**21]]),),
        (np.eye(1, dtype=int),) * 99,
    ],
)
def test_matrices_that_are_no_queries_are_refused(factors):
    with pytest.raises(InputError):
        KroneckerQuery(factors)


def test_a_run_that_fixed_its_measurements_answers_no_queries():
    table = PrivateTable(source(cls=SealedSource), Budget.of(rho=1.0), plan={("b",): 2.0})
    with pytest.raises(BudgetExceeded):
        table.measure([("b",)], rho=1.0, queries={("b",): KroneckerQuery((np.eye(2, dtype=int),))})


# -- the model and the release -----------------------------------------------------------------------------------------


def test_least_squares_tables_of_queries_and_their_variances():
    rng = np.random.default_rng(1)
    first, second = np.vstack([np.eye(3, dtype=int), np.ones((1, 3), int)]), np.array([[2, 0], [0, 2], [1, 1]])
    truth, query = rng.integers(50, size=6), KroneckerQuery((first, second))
    (table,) = average_tables(Domain({"a": 3, "b": 2}), [Measurement(("a", "b"), query @ truth, 3.0, query)])
    assert table.counts.ravel() == pytest.approx(truth)
    dense = np.kron(first, second)
    assert table.variance.ravel() == pytest.approx(9 * np.diag(np.linalg.inv(dense.T @ dense)))
    half = KroneckerQuery((np.ones((1, 6), int),))
    with pytest.raises(InputError, match="does not determine"):
        average_tables(Domain({"a": 3, "b": 2}), [Measurement(("a", "b"), np.array([9]), 1.0, half)])


def test_ranges_are_answered_better_than_from_cells():
    """Sixty ages with much noise: the squared error of prefixes is below that of noisy cells, summed over ten runs."""
    rows = np.minimum(np.random.default_rng(2).geometric(0.05, size=(20_000, 1)) - 1, 59)
    coded = CodedSource({"age": 60}, rows)
    coded.code_groups = CodeGroups(axes={"age": 60})
    truth = np.cumsum(np.bincount(rows[:, 0], minlength=60))
    errors = {"prefixes": 0.0, "cells": 0.0}
    with insecure(5):
        for answers in errors:
            for _ in range(10):
                mechanism = HDMM(answers=answers, workload="all-1way")
                (m,) = mechanism.fit(PrivateTable(coded, Budget.of(rho=1e-4)), rho=1e-4).measurements
                cells = m.values if m.query is None else np.linalg.pinv(m.query.factors[0]) @ m.values
                errors[answers] += float(np.square(np.cumsum(cells) - truth).sum())
    assert errors["prefixes"] < 0.5 * errors["cells"]


def test_the_papers_equal_budgets_and_ours_by_error():
    for mechanism, same in ((HDMM.as_published(), True), (HDMM(), False)):
        table = PrivateTable(source(), Budget.of(rho=1.0))
        mechanism.fit(table, rho=1.0)
        costs = {round(float(charge.rho), 9) for charge in table.account.charges}
        assert (len(costs) == 1) is same


@pytest.mark.parametrize("generator", ["pgm", "gum"])
def test_a_release_keeps_its_queries_and_makes_replicates(generator, tmp_path):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": rng.integers(0, 40, 400), "sex": rng.integers(0, 2, 400)})
    schema = Schema.from_dict(
        {
            "fields": [
                {"name": "age", "type": "integer", "constraints": {"required": True, "minimum": 0, "maximum": 39}},
                {"name": "sex", "type": "integer", "constraints": {"required": True, "minimum": 0, "maximum": 1}},
            ],
            "understudy": {"privacy_unit": "row"},
        }
    )
    us.synthesize(frame, schema, rho=2.0, mechanism="hdmm", generator=generator, output=tmp_path / "r")
    release = us.Release.load(tmp_path / "r")
    (measured,) = release.measurements
    assert isinstance(measured.query, KroneckerQuery)
    assert release.receipt.charges[0].query == measured.query.digest
    made = release.sample(400, seed=1).to_pandas()
    assert made["age"].between(0, 39).all()
    assert abs(made["age"].mean() - frame["age"].mean()) < 3
    assert len(list(release.replicates(2, seed=1))) == 2


def test_estimation_uses_the_queries():
    query = KroneckerQuery((np.array([[1, 0, 0], [0, 1, 1]]),))
    model = estimate(Domain({"a": 3}), [Measurement(("a",), np.array([60, 40]), 1.0, query)])
    assert model.project(("a",)) == pytest.approx([60, 20, 20], abs=0.5)


def test_the_sensitivity_of_a_long_matrix_of_large_entries_does_not_overflow():
    rows = 1 << 23
    query = KroneckerQuery((np.full((rows, 1), 1 << 20),))
    assert query.column_squared == rows << 40 > 1 << 62
    assert query.column_sum == rows << 20
