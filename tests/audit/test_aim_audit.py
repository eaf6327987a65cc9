"""Whole runs of AIM under audit, and mistakes made on purpose in them: each is caught by the audit they pass.

The claim is made from the receipt, so a part that was not paid for counts as a mistake. Estimation cannot reach the
rows: in the default suite a constant model takes its place, which makes a run ten times as fast; the slow audits are of
AIM as it is. Audits of correct code draw true random bits and fail by chance with probability at most `audit.ERROR`,
1e-9; those of mistakes are seeded.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from understudy.accounting import Budget, epsilon_of
from understudy.accounting.budget import Account
from understudy.accounting.neighbours import Neighbours
from understudy.errors import BudgetExceeded
from understudy.gate import PrivateTable
from understudy.mechanism import aim
from understudy.mechanism.aim import AIM
from understudy.model.graphical import GraphicalModel
from understudy.testing.audit import Trial, check_claim
from understudy.testing.tables import CodedSource

DELTA = 0.3
TWO = {"a": 2, "b": 2}
EVERYONE = [list(cell) for cell in product(range(2), range(2))] * 40
PAPER = AIM.paper_settings() | {"workload": "all-2way", "rounds": 1.0, "first": 0.01}


def constant_model(patch):
    """The uniform model of as many rows, whatever was measured."""
    patch.setattr(aim, "estimate", lambda domain, measured, **_: GraphicalModel(domain, {}, total=len(EVERYONE)))


def _trial(happened, mechanism, rho, present, absent, runs):
    """The claim is what the receipt of a run says, at the same delta."""

    def run(source):
        table = PrivateTable(source, Budget.of(rho=rho))
        return mechanism.fit(table, rho=rho), table

    spent = float(run(absent)[1].account.spent)
    claim = epsilon_of(spent, DELTA) if spent else 0.0
    return Trial(lambda: happened(run(present)[0]), lambda: happened(run(absent)[0]), claim, DELTA, runs)


def noise_trial(mechanism=None, *, rho=1.0, runs=250):
    """One row more moves the last cell of everything measured; the event is a weighted mean of what it moved by."""

    def happened(fit):
        seen = [(int(m.values[-1]) - len(EVERYONE) / len(m.values), m.sigma**-2) for m in fit.measurements]
        return math.fsum(more * precision for more, precision in seen) >= 0.8 * math.fsum(p for _, p in seen)

    tables = CodedSource(TWO, [*EVERYONE, [1, 1]]), CodedSource(TWO, EVERYONE)
    return _trial(happened, mechanism or AIM(**PAPER), rho, *tables, runs)


def choice_trial(folder, *, runs=150):
    """Nearly all of the budget in one choice; replacing a row raises one score by 2 w and lowers the other by it."""
    path = folder / "workload.yaml"
    path.write_text("- {clique: [a], weight: 8}\n- {clique: [b], weight: 8}\n")
    mechanism = AIM(**PAPER | {"workload": str(path), "first": 0.0, "measured": 0.01})
    kept = [[0, 0], [0, 1], [1, 1]]
    tables = (CodedSource(TWO, [*kept, row], rows_public=4) for row in ([0, 0], [1, 1]))
    return _trial(lambda fit: fit.measurements[0].clique == ("a",), mechanism, 0.5, *tables, runs)


def annealing_trial(*, runs=50):
    """Whether the second round has less noise than the first is decided by what was measured, not by the rows."""

    def happened(fit):
        first, second = (m.sigma for m in fit.measurements[2:4])
        return second < first

    tables = CodedSource(TWO, [*EVERYONE, [1, 1]]), CodedSource(TWO, EVERYONE)
    return _trial(happened, AIM(**PAPER | {"rounds": 4.0}), 0.05, *tables, runs)


TRIALS = {
    "noise": lambda folder: noise_trial(),
    "less noise": lambda folder: noise_trial(rho=4.0),
    "choice": choice_trial,
    "annealing": lambda folder: annealing_trial(),
}


@pytest.mark.law
@pytest.mark.parametrize("trial", TRIALS.values(), ids=TRIALS)
def test_a_run_keeps_the_claim_of_its_receipt(trial, tmp_path, monkeypatch):
    constant_model(monkeypatch)
    check_claim(trial(tmp_path))


@pytest.mark.law
@pytest.mark.slow
@pytest.mark.parametrize("settings", [PAPER, {"workload": "all-2way"}], ids=["paper", "default"])
def test_a_run_with_its_estimates_keeps_the_claim_of_its_receipt(settings):
    check_claim(noise_trial(AIM(**settings), runs=1000))


# -- mistakes ----------------------------------------------------------------------------------------------------------


def sensitivity_of_one(patch):
    patch.setattr(Neighbours, "score", lambda near, max_weight: near.marginal_l1 * 1)


def annealing_by_true_counts(patch):
    original = PrivateTable.__init__

    def init(table, source, *given, **rest):
        rows = int(dict(source.counts([()]))[()].sum())
        patch.setattr(aim, "l1_distance", lambda before, after: 0.0 if rows > len(EVERYONE) else math.inf)
        original(table, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", init)


def last_round_unpaid(patch):
    """What is left of the budget is used and not charged."""
    original = Account.pay

    def pay(account, charges):
        if account.remaining - sum(charge.rho for charge in charges) > 0.2:
            original(account, charges)

    patch.setattr(Account, "pay", pay)


def noise_too_small(patch):
    patch.setattr(PrivateTable, "_draw", lambda table, charge, size: np.zeros(size, np.int64))


@pytest.mark.parametrize(
    ("mistake", "trial"),
    [
        (sensitivity_of_one, "choice"),
        (annealing_by_true_counts, "annealing"),
        (last_round_unpaid, "less noise"),
        (noise_too_small, "noise"),
    ],
)
def test_the_audit_catches(mistake, trial, tmp_path, monkeypatch):
    constant_model(monkeypatch)
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="measured epsilon"):
        check_claim(TRIALS[trial](tmp_path))


def test_the_audit_catches_fewer_rounds_than_columns_where_nothing_refuses_it(monkeypatch):
    """T < d makes the paper's initialisation alone cost d / T of the budget; settings and gate refuse it, one each."""
    constant_model(monkeypatch)
    forged = AIM(**PAPER)
    for name, value in (("rounds", 0.02), ("first", forged.measured / 0.02)):
        object.__setattr__(forged, name, value)
    with pytest.raises(BudgetExceeded):
        noise_trial(forged)
    monkeypatch.setattr(Account, "share", lambda account, amount: Fraction(amount))
    monkeypatch.setattr(Account, "pay", lambda account, charges: account._charges.extend(charges))
    monkeypatch.setattr(Account, "spent", property(lambda account: account.budget.capacity))
    with pytest.raises(AssertionError, match="measured epsilon"):
        check_claim(noise_trial(forged))
