"""What the audits of several mechanisms share: tables, exact counts for mistakes to use, checks and trials."""

from __future__ import annotations

import numpy as np

from understudy.accounting import Budget, Receipt, epsilon_of
from understudy.gate import PrivateTable
from understudy.testing.audit import Trial
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource
from understudy.testing.twin import record_answers, replay_answers

SIZES = {"a": 3, "b": 2, "c": 3, "d": 2}


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    a, d = rng.integers(3, size=count), rng.integers(2, size=count)
    return np.stack([a, a > 0, (a + d) % 3, d], axis=1).astype(int).tolist()


def exact_counts(patch):
    """A function for the exact counts of a clique of the latest table, which nothing behind the gate may know."""
    latest, init = [], PrivateTable.__init__

    def watched(table, source, *given, **rest):
        latest[:] = [source]
        init(table, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", watched)
    return lambda clique: np.asarray(dict(latest[0].counts([clique]))[clique])


def check_receipt(mechanism, *, asks, pure=False, max_rows=1, rows_public=None):
    """A whole run: what was drawn is what was paid, by sensitivities that the spy has of its own."""
    budget = Budget.of(epsilon=30, delta=0) if pure else Budget.of(rho=3.0)
    with Spy() as spy:
        table = PrivateTable(CodedSource(SIZES, rows(2000), max_rows=max_rows, rows_public=rows_public), budget)
        mechanism.fit(table, rho=float(budget.capacity))
    assert {one.what for one in spy.seen} == asks
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


def check_answers_decide(mechanism, first, second):
    """With the answers of the first table, the second one gives the same questions, charges and fit."""
    with record_answers() as answers:
        seen = _seen(mechanism, first)
    with replay_answers(answers):
        assert seen == _seen(mechanism, second), "the fit depends on rows in a way that did not pass the gate"


def _seen(mechanism, source):
    steps = []
    table = PrivateTable(source, Budget.of(rho=1.0))
    fit = mechanism.fit(table, rho=1.0, progress=steps.append)
    arrays = {name: array.tobytes() for name, array in fit.model.to_arrays().items()}
    return arrays, fit.recoding.to_dict(), table.account.charges, steps, fit.model.total


def trial_of_receipt(happened, mechanism, present, absent, *, rho, runs, delta):
    """A trial of whole runs; the claim is what the receipt of a run says, at the same delta."""

    def run(source):
        table = PrivateTable(source, Budget.of(rho=rho))
        return mechanism.fit(table, rho=rho), table

    spent = float(run(absent)[1].account.spent)
    claim = epsilon_of(spent, delta) if spent else 0.0
    return Trial(lambda: happened(run(present)[0]), lambda: happened(run(absent)[0]), claim, delta, runs)
