"""The filter under absurd settings and adaptive sequences: never past the budget, never short by rounding."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.accounting import Budget
from understudy.errors import BudgetExceeded, SettingError
from understudy.gate import PrivateTable
from understudy.testing.tables import CodedSource, SealedSource

SIZES = {"a": 2, "b": 3, "c": 2}
ROWS = [[0, 1, 1], [1, 2, 0]]
CLIQUES = [("a",), ("b",), ("c",), ("a", "b"), ("b", "c")]

amounts = st.one_of(
    st.floats(min_value=1e-300, max_value=1e300),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([1 / 3, 1 / 7, 1e-300, 5e-324, 1.0, 1 - 1e-16, 1 + 1e-10, 0.0, -1.0]),
)
budgets = st.one_of(
    st.floats(min_value=1e-12, max_value=1e12).map(lambda rho: Budget.of(rho=rho)),
    st.floats(min_value=1e-6, max_value=1e6).map(lambda epsilon: Budget.of(epsilon=epsilon, delta=0)),
    st.floats(min_value=1e-3, max_value=1e3).map(lambda epsilon: Budget.of(epsilon=epsilon, delta=1e-9)),
    st.just(Budget.of(epsilon=1e300, delta=0)),
)
calls = st.lists(
    st.tuples(st.sampled_from(["measure", "select", "cells", "dependence", "distances"]), amounts), max_size=8
)
weights = st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=5, max_size=5)


def ask(table, what, rho, given_weights):
    weight = dict(zip(CLIQUES, given_weights, strict=True))
    if what == "measure":
        table.measure(CLIQUES, rho=rho, weights=weight)
    elif what == "select":
        against = {clique: np.zeros(table.domain.cells(clique)) for clique in CLIQUES}
        table.select(CLIQUES, against=against, rho=rho, weights=weight)
    elif what == "cells":
        table.select_cells(CLIQUES, against={c: np.zeros(table.domain.cells(c)) for c in CLIQUES}, count=3, rho=rho)
    elif what == "distances":
        table.distances(CLIQUES, against={c: np.zeros(table.domain.cells(c)) for c in CLIQUES}, rho=rho)
    else:
        table.dependence([clique for clique in CLIQUES if len(clique) == 2], rho=rho)


def exact_sum(table):
    budget = table.account.budget
    if budget.pure:
        return sum((charge.epsilon for charge in table.account.charges), Fraction(0))
    return sum((charge.rho for charge in table.account.charges), Fraction(0))


@given(budgets, calls, weights, st.sampled_from([1, 3]), st.booleans())
def test_the_sum_of_charges_never_passes_the_budget(budget, sequence, given_weights, k, public):
    source = CodedSource(SIZES, ROWS, max_rows=k, rows_public=2 if public else None)
    table = PrivateTable(source, budget, noise=_Quiet())
    for what, part in sequence:
        before, left = exact_sum(table), table.account.remaining
        try:
            ask(table, what, part * float(min(budget.capacity, 10**300)), given_weights)
        except (BudgetExceeded, SettingError):
            assert exact_sum(table) == before
        assert 0 <= table.account.remaining <= left
        assert exact_sum(table) <= budget.capacity


@given(budgets, st.integers(1, 60), st.sampled_from(["measure", "select", "cells", "dependence", "distances"]))
@example(Budget.of(rho=1.0), 3, "measure")
@example(Budget.of(epsilon=1.0, delta=1e-9), 7, "select")
def test_a_budget_in_equal_parts_is_never_refused_its_last(budget, parts, what):
    table = PrivateTable(CodedSource(SIZES, ROWS), budget, noise=_Quiet())
    whole = float(min(budget.capacity, 10**300))
    for _ in range(parts):
        ask(table, what, whole / parts, [1.0] * 5)
    if budget.capacity <= 10**300:
        assert table.account.remaining <= budget.capacity * Fraction(1, 10**9)


@given(budgets, st.lists(st.floats(min_value=0.01, max_value=1.0), min_size=1, max_size=8))
def test_shares_that_sum_to_the_budget_in_floats_are_all_granted(budget, shares):
    whole = float(min(budget.capacity, 10**300))
    total = sum(shares)
    table = PrivateTable(CodedSource(SIZES, ROWS), budget, noise=_Quiet())
    for share in shares[:-1]:
        table.measure([("a",)], rho=whole * (share / total))
    if whole == float(budget.capacity):
        table.measure([("a",)], rho=whole - sum(whole * (share / total) for share in shares[:-1]))
    assert exact_sum(table) <= budget.capacity


@given(
    budgets,
    st.sampled_from(["measure", "select", "cells", "dependence", "distances"]),
    st.floats(min_value=1.0001, max_value=1e6),
)
def test_too_much_is_refused_before_the_source_is_read(budget, what, factor):
    table = PrivateTable(SealedSource(SIZES, ROWS), budget)
    amount = float(min(budget.capacity, 10**300)) * factor
    try:
        ask(table, what, amount, [1.0] * 5)
    except (BudgetExceeded, SettingError):
        assert table.account.charges == ()
    except AssertionError:  # the sealed source was read
        assert amount <= budget.capacity


class _Quiet:
    """Noise that costs no time: the sums are the subject here."""

    def gaussian(self, sigma, size):
        return np.zeros(size, np.int64)

    laplace = gaussian
