"""Mistakes that PrivBayes invites, made on purpose. Each must be caught by a check that the correct code passes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from understudy.accounting import Budget, Receipt
from understudy.accounting.neighbours import Neighbours
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.mechanism import privbayes
from understudy.mechanism.privbayes import PrivBayes
from understudy.testing.audit import check_claim
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource
from understudy.testing.trials import dependent_selection_trial
from understudy.testing.twin import record_answers, replay_answers

SIZES = {"a": 3, "b": 2, "c": 3, "d": 2}


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    a, d = rng.integers(3, size=count), rng.integers(2, size=count)
    return np.stack([a, a > 0, (a + d) % 3, d], axis=1).astype(int).tolist()


# -- the mistakes ------------------------------------------------------------------------------------------------------


def scores_of_the_sensitivity_of_a_count(patch):
    patch.setattr(Neighbours, "indif", property(lambda near: near.marginal_l1))


def scores_of_half_their_sensitivity(patch):
    """R is half of InDif: its sensitivity with the score that is not halved."""
    patch.setattr(Neighbours, "indif", property(lambda near: 2 * near.marginal_l1))


def the_best_candidate_without_noise(patch):
    patch.setattr(gate, "exponential_mechanism", lambda scores, rate: int(np.argmax(scores)))


def exact_number_of_rows_decides_how_large_tables_are(patch):
    truth = _watch(patch)
    patch.setattr(privbayes, "noisy_total", lambda measured: float(truth["n"]))


def first_column_chosen_by_the_rows(patch):
    truth, original = _watch(patch), privbayes.split_columns

    def split(domain, cells):
        alone, linked = original(domain, cells)
        return alone, linked if truth["count"]((linked[0],))[-1] > 100 else linked[::-1]

    patch.setattr(privbayes, "split_columns", split)


def conditional_tables_of_exact_counts(patch):
    truth, original = _watch(patch), privbayes.measured_tables

    def tables(domain, measured):
        return original(domain, [replace(one, values=truth["count"](one.clique)) for one in measured])

    patch.setattr(privbayes, "measured_tables", tables)


def _watch(patch):
    truth, init = {}, PrivateTable.__init__

    def watched(table, source, *given, **rest):
        truth["n"] = int(dict(source.counts([()]))[()].sum())
        truth["count"] = lambda clique: np.asarray(dict(source.counts([clique]))[clique])
        init(table, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", watched)
    return truth


# -- the checks --------------------------------------------------------------------------------------------------------


def spied(*, pure=False, max_rows=1, rows_public=None, settings=None):
    """A whole run: what was drawn is what was paid, by sensitivities that the spy has of its own."""
    budget = Budget.of(epsilon=30, delta=0) if pure else Budget.of(rho=3.0)
    with Spy() as spy:
        table = PrivateTable(CodedSource(SIZES, rows(2000), max_rows=max_rows, rows_public=rows_public), budget)
        PrivBayes(**settings or {}).fit(table, rho=float(budget.capacity))
    assert {one.what for one in spy.seen} == {"measure", "select"}
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


def only_answers_tell_the_tables_apart(count=800, other=5):
    with record_answers() as answers:
        first = seen(CodedSource(SIZES, rows(count)))
    with replay_answers(answers):
        second = seen(CodedSource(SIZES, rows(other, seed=1)))
    assert first == second, "the fit depends on rows in a way that did not pass the gate"


def seen(source):
    steps = []
    fit = PrivBayes(max_cells=9).fit(PrivateTable(source, Budget.of(rho=1.0)), rho=1.0, progress=steps.append)
    arrays = {name: array.tobytes() for name, array in fit.model.to_arrays().items()}
    return arrays, fit.recoding.to_dict(), [m.clique for m in fit.measurements], steps, fit.model.total


def audited():
    check_claim(dependent_selection_trial())


KILLS = [
    (scores_of_the_sensitivity_of_a_count, spied),
    (scores_of_half_their_sensitivity, spied),
    (scores_of_half_their_sensitivity, partial(spied, pure=True)),
    (scores_of_half_their_sensitivity, partial(spied, max_rows=3, rows_public=2000)),
    (the_best_candidate_without_noise, audited),
    (scores_of_the_sensitivity_of_a_count, audited),
    (exact_number_of_rows_decides_how_large_tables_are, only_answers_tell_the_tables_apart),
    (first_column_chosen_by_the_rows, only_answers_tell_the_tables_apart),
    (conditional_tables_of_exact_counts, only_answers_tell_the_tables_apart),
]


@pytest.mark.parametrize(("mutant", "check"), KILLS, ids=[f"{kill[0].__name__}-{i}" for i, kill in enumerate(KILLS)])
def test_mutant_is_killed(mutant, check, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):  # answers of another network do not fit
        check()


@pytest.mark.parametrize("settings", [{}, PrivBayes.paper_settings()], ids=["default", "paper"])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize(("max_rows", "rows_public"), [(1, None), (3, None), (1, 2000), (3, 2000)])
def test_the_spy_agrees_with_the_receipt(pure, max_rows, rows_public, settings):
    spied(pure=pure, max_rows=max_rows, rows_public=rows_public, settings=settings)


def test_nothing_but_answers_tells_two_tables_apart():
    only_answers_tell_the_tables_apart()
    only_answers_tell_the_tables_apart(count=3, other=900)
