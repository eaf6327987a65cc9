"""Mistakes that PrivSyn invites, made on purpose. Each must be caught by a check that the correct code passes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from understudy.accounting import Budget, Receipt
from understudy.accounting.neighbours import Neighbours
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.mechanism import privsyn
from understudy.mechanism.privsyn import PrivSyn
from understudy.model import generate
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource
from understudy.testing.twin import record_answers, replay_answers

SIZES = {"a": 3, "b": 2, "c": 3, "d": 2}


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    a, d = rng.integers(3, size=count), rng.integers(2, size=count)
    return np.stack([a, a > 0, (a + d) % 3, d], axis=1).astype(int).tolist()


# -- the mistakes ------------------------------------------------------------------------------------------------------


def indif_of_sensitivity_one(patch):
    patch.setattr(Neighbours, "indif", property(lambda near: 1))


def root_of_the_number_of_pairs_forgotten(patch):
    gaussian, laplace = gate.gaussian_charge, gate.laplace_charge

    def one_gaussian(what, about, squared, *, share):
        return gaussian(what, about, squared // len(about), share=share)

    def one_laplace(what, about, l1, *, share):
        return laplace(what, about, l1 // len(about), share=share)

    patch.setattr(gate, "gaussian_charge", one_gaussian)
    patch.setattr(gate, "laplace_charge", one_laplace)


def scores_normalised_by_the_exact_number_of_rows(patch):
    truth, original = _watch(patch), PrivSyn._scores

    def scores(self, view, candidates, rho):
        found, record = original(self, view, candidates, rho)
        return {pair: 2 * score / truth["n"] for pair, score in found.items()}, record

    patch.setattr(PrivSyn, "_scores", scores)


def exact_number_of_rows_in_the_model(patch):
    truth, original = _watch(patch), generate.gum_of
    patch.setattr(
        generate, "gum_of", lambda domain, measured, **rest: original(domain, measured, **rest | {"total": truth["n"]})
    )


def rare_values_judged_by_exact_counts(patch):
    truth, original = _watch(patch), privsyn.compress

    def compress(domain, ones, groups, **rest):
        exact = [replace(one, values=truth["source"]([one.clique])) for one in ones]
        return original(domain, exact, groups, **rest)

    patch.setattr(privsyn, "compress", compress)


def _watch(patch):
    truth, init = {}, PrivateTable.__init__

    def watched(table, source, *given, **rest):
        truth["n"] = int(dict(source.counts([()]))[()].sum())
        truth["source"] = lambda cliques: dict(source.counts(cliques))[cliques[0]]
        init(table, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", watched)
    return truth


# -- the checks --------------------------------------------------------------------------------------------------------


def spied(*, pure=False, max_rows=1, rows_public=None):
    """A whole run: what was drawn is what was paid, by sensitivities that the spy has of its own."""
    budget = Budget.of(epsilon=30, delta=0) if pure else Budget.of(rho=3.0)
    with Spy() as spy:
        table = PrivateTable(CodedSource(SIZES, rows(2000), max_rows=max_rows, rows_public=rows_public), budget)
        PrivSyn().fit(table, rho=float(budget.capacity))
    assert {one.what for one in spy.seen} == {"measure", "dependence"}
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


def only_answers_tell_the_tables_apart(count=800, other=5):
    with record_answers() as answers:
        first = seen(CodedSource(SIZES, rows(count)))
    with replay_answers(answers):
        second = seen(CodedSource(SIZES, rows(other, seed=1)))
    assert first == second, "the fit depends on rows in a way that did not pass the gate"


def seen(source):
    steps = []
    fit = PrivSyn().fit(PrivateTable(source, Budget.of(rho=1.0)), rho=1.0, progress=steps.append)
    arrays = {name: array.tobytes() for name, array in fit.model.to_arrays().items()}
    return arrays, fit.recoding.to_dict(), [m.clique for m in fit.measurements], steps, fit.model.total


KILLS = [
    (indif_of_sensitivity_one, spied),
    (indif_of_sensitivity_one, partial(spied, pure=True)),
    (indif_of_sensitivity_one, partial(spied, max_rows=3, rows_public=2000)),
    (root_of_the_number_of_pairs_forgotten, spied),
    (root_of_the_number_of_pairs_forgotten, partial(spied, pure=True)),
    (scores_normalised_by_the_exact_number_of_rows, only_answers_tell_the_tables_apart),
    (exact_number_of_rows_in_the_model, only_answers_tell_the_tables_apart),
    (rare_values_judged_by_exact_counts, only_answers_tell_the_tables_apart),
]


@pytest.mark.parametrize(("mutant", "check"), KILLS, ids=[f"{kill[0].__name__}-{i}" for i, kill in enumerate(KILLS)])
def test_mutant_is_killed(mutant, check, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize(("max_rows", "rows_public"), [(1, None), (3, None), (1, 2000), (3, 2000)])
def test_the_spy_agrees_with_the_receipt(pure, max_rows, rows_public):
    spied(pure=pure, max_rows=max_rows, rows_public=rows_public)


def test_only_answers_distinguish_two_tables():
    only_answers_tell_the_tables_apart()
    only_answers_tell_the_tables_apart(count=3, other=900)
