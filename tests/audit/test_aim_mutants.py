"""Mistakes made on purpose in AIM. Each must be caught by a check that the correct code passes."""

from __future__ import annotations

import pytest

from understudy.accounting import Budget, Receipt
from understudy.accounting.budget import Account
from understudy.accounting.neighbours import Neighbours
from understudy.errors import BudgetExceeded
from understudy.gate import PrivateTable
from understudy.mechanism import aim
from understudy.mechanism.aim import AIM
from understudy.testing.contract import SIZES, check_spending, check_twin
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource, SealedSource

ROWS = [[i % 3, i % 2, i % 4, 0] for i in range(60)]


def _spied(mechanism=None):
    budget = Budget.of(rho=0.3)
    with Spy() as spy:
        table = PrivateTable(CodedSource(SIZES, ROWS), budget)
        (mechanism or AIM(rounds=1.0)).fit(table, rho=0.3)
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


def test_correct_code_passes():
    _spied()
    check_twin(AIM(rounds=1.0))


def test_sensitivity_of_one_instead_of_the_largest_weight_is_caught(monkeypatch):
    monkeypatch.setattr(Neighbours, "score", lambda near, max_weight: near.marginal_l1 * 1)
    with pytest.raises(AssertionError, match="rho"):
        _spied()


class Peeking(AIM):
    """Annealing that looks at the true number of rows."""

    def fit(self, table, **rest):
        rows = len(table._PrivateTable__source._codes["a"])
        original = aim.l1_distance
        aim.l1_distance = lambda before, after: original(before, after) * 0 + (1e9 if rows > 30 else 0.0)
        try:
            return super().fit(table, **rest)
        finally:
            aim.l1_distance = original


def test_annealing_that_reads_true_counts_is_caught():
    with pytest.raises(AssertionError, match=r"gate|rows"):
        check_twin(Peeking(rounds=4.0))


def test_an_unpaid_last_round_is_caught(monkeypatch):
    original = Account.pay

    def pay(account, charges):
        if float(account.remaining) > 0.1:
            original(account, charges)

    monkeypatch.setattr(Account, "pay", pay)
    with pytest.raises(AssertionError, match="rho"):
        check_spending(AIM(rounds=1.0))


def test_another_round_after_the_last_is_refused():
    table = PrivateTable(CodedSource(SIZES, ROWS), Budget.of(rho=0.3))
    AIM(rounds=1.0).fit(table, rho=0.3)
    with pytest.raises(BudgetExceeded):
        table.measure([("a",)], rho=1e-3)


def test_fewer_rounds_than_columns_cannot_overspend():
    """T < d makes the paper's initialisation cost more than everything; the settings and the gate both refuse it."""
    forged = AIM(**AIM.paper_settings())
    for name, value in (("rounds", 0.5), ("first", forged.measured / 0.5)):
        object.__setattr__(forged, name, value)
    with pytest.raises(BudgetExceeded):
        forged.fit(PrivateTable(SealedSource(SIZES, ROWS), Budget.of(rho=0.3)), rho=0.3)
