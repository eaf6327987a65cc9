"""Choices of `adaptive` under audit, and mistakes made on purpose in it: each is caught by a check that it passes.

As in the audit of AIM, the claim is made from the receipt, and a constant model takes the place of estimation, which
cannot reach the rows. Audits of correct code draw true random bits and fail by chance with probability at most
`audit.ERROR`, 1e-9; those of mistakes are seeded.
"""

from __future__ import annotations

from itertools import product

import pytest

from understudy.accounting import Budget, Receipt
from understudy.accounting.budget import Account
from understudy.accounting.neighbours import Neighbours
from understudy.errors import BudgetExceeded
from understudy.gate import Allocation, PrivateTable, Selection
from understudy.mechanism import adaptive
from understudy.mechanism.adaptive import STOP, Adaptive
from understudy.model.graphical import GraphicalModel
from understudy.testing.audit import check_claim
from understudy.testing.contract import SIZES, check_spending, check_twin
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource

from .conftest import trial_of_receipt

DELTA = 0.3
TWO = {"a": 2, "b": 2}
EVERYONE = [list(cell) for cell in product(range(2), range(2))] * 40
ROWS = [[i % 3, i % 2, i % 4, 0] for i in range(60)]
ONE_ROUND = {"rounds": 1, "first": 0.01, "second": 0.0, "threshold": 0.0}


def _trial(patch, happened, mechanism, rho, present, absent, runs, total):
    patch.setattr(adaptive, "estimate", lambda domain, measured, **_: GraphicalModel(domain, {}, total=total))

    return trial_of_receipt(happened, mechanism, present, absent, rho=rho, runs=runs, delta=DELTA)


def choice_trial(patch, folder, *, runs=150):
    """Nearly all of the budget in one choice; replacing a row raises one score by 2 w and lowers the other by it."""
    path = folder / "workload.yaml"
    path.write_text("- {clique: [a], weight: 8}\n- {clique: [b], weight: 8}\n")
    patch.setattr(Adaptive, "_draws", lambda *_: 1)
    patch.setattr(PrivateTable, "allocation", lambda table, rho: Allocation(0.0))  # offsets are public: let them be 0
    mechanism = Adaptive(workload=str(path), choosing=0.98, **ONE_ROUND)
    kept = [[0, 0], [0, 1], [1, 1]]
    tables = (CodedSource(TWO, [*kept, row], rows_public=4) for row in ([0, 0], [1, 1]))
    return _trial(patch, lambda fit: fit.rounds[-1]["chosen"] == ["a"], mechanism, 0.5, *tables, runs, 4)


@pytest.mark.law
def test_a_choice_keeps_the_claim_of_its_receipt(tmp_path, monkeypatch):
    check_claim(choice_trial(monkeypatch, tmp_path))


# -- mistakes ----------------------------------------------------------------------------------------------------------


def sensitivity_of_one(patch):
    patch.setattr(Neighbours, "score", lambda near, max_weight: near.marginal_l1 * 1)


def test_the_audit_catches_a_sensitivity_of_one(tmp_path, monkeypatch):
    sensitivity_of_one(monkeypatch)
    with pytest.raises(AssertionError, match="measured epsilon"):
        check_claim(choice_trial(monkeypatch, tmp_path))


def _spied():
    budget = Budget.of(rho=0.3)
    with Spy() as spy:
        table = PrivateTable(CodedSource(SIZES, ROWS), budget)
        Adaptive(rounds=2).fit(table, rho=0.3)
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


def test_correct_code_passes():
    _spied()
    check_twin(Adaptive(rounds=2))


def test_sensitivity_of_one_instead_of_the_largest_weight_is_caught(monkeypatch):
    sensitivity_of_one(monkeypatch)
    with pytest.raises(AssertionError, match="rho"):
        _spied()


class Peeking(Adaptive):
    """Stops by the true number of rows instead of by a private choice."""

    def fit(self, table, **rest):
        rows = len(table._PrivateTable__source._codes["a"])
        original = PrivateTable.select

        def select(view, candidates, **given):
            answer = original(view, candidates, **given)
            return Selection(STOP, answer.epsilon, answer.sensitivity) if rows > 30 else answer

        PrivateTable.select = select
        try:
            return super().fit(table, **rest)
        finally:
            PrivateTable.select = original


def test_a_stop_that_reads_the_true_number_of_rows_is_caught():
    with pytest.raises(AssertionError, match=r"gate|rows"):
        check_twin(Peeking(rounds=2))


def test_choices_that_are_not_paid_for_are_caught(monkeypatch):
    original = Account.pay
    monkeypatch.setattr(
        Account, "pay", lambda account, charges: original(account, [c for c in charges if c.what != "select"])
    )
    with pytest.raises(AssertionError, match="rho"):
        check_spending(Adaptive(rounds=2))


def test_every_choice_with_the_rounds_whole_share_is_refused(monkeypatch):
    original = PrivateTable.select
    monkeypatch.setattr(
        PrivateTable, "select", lambda table, *args, rho, **rest: original(table, *args, rho=9 * rho, **rest)
    )
    table = PrivateTable(CodedSource(SIZES, ROWS), Budget.of(rho=0.3))
    with pytest.raises(BudgetExceeded):
        Adaptive(rounds=2).fit(table, rho=0.3)
