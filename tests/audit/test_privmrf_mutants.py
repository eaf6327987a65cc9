"""Mistakes that PrivMRF invites, made on purpose: each must be caught by a check."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting.neighbours import Neighbours
from understudy.gate import table as gate
from understudy.mechanism import privmrf
from understudy.mechanism.privmrf import PrivMRF
from understudy.testing.contract import check_share, check_spending
from understudy.testing.tables import CodedSource

from .conftest import check_answers_decide, exact_counts


def exact_number_of_rows_decides_what_is_useful(patch):
    """The pitfall of the public code: it divides by the true number of rows."""
    count = exact_counts(patch)
    patch.setattr(privmrf, "noisy_total", lambda measured: float(count(()).sum()))


def scores_of_the_sensitivity_of_a_count(patch):
    patch.setattr(Neighbours, "indif", property(lambda near: near.marginal_l1))


def a_graph_of_exact_scores(patch):
    count = exact_counts(patch)

    def scores(noisy, rows, **rest):
        return {frozenset(pair): float(count(pair)[0]) for pair in noisy}

    patch.setattr(privmrf, "_scores", scores)


def every_error_with_the_budget_of_a_step(patch):
    original = privmrf.take_worst
    patch.setattr(privmrf, "take_worst", lambda *a, rho, **k: original(*a, rho=20 * rho, **k))


def exact_errors_choose(patch):
    """The worst are taken by exact distances; the noisy ones are paid for and thrown away."""
    count = exact_counts(patch)
    original = privmrf.take_worst

    def take(table, model, candidates, *, count, rho):
        taken, lost = original(table, model, candidates, count=count, rho=rho)
        far = {r: np.abs(exact(r) - model.project(r).ravel()).sum() for r in candidates}
        return (sorted(far, key=far.get)[-count:], lost) if lost else (taken, lost)

    exact = count
    patch.setattr(privmrf, "take_worst", take)


def distances_of_the_sensitivity_of_one(patch):
    """The noise of one distance, whatever their number."""
    original = gate.gaussian_charge

    def charge(what, about, squared, *, share):
        return original(what, about, 2**32 if what == "distances" else squared, share=share)

    patch.setattr(gate, "gaussian_charge", charge)


def only_answers_tell_the_tables_apart(mechanism):
    rng = np.random.default_rng(0)
    many, few = (rng.integers(2, size=(count, 6)) for count in (800, 5))
    many[:, 1] = many[:, 0]
    sizes = {"a": 2, "b": 3, "c": 2, "d": 4, "e": 3, "f": 2}
    check_answers_decide(mechanism, CodedSource(sizes, many.tolist()), CodedSource(sizes, few.tolist()))


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (exact_number_of_rows_decides_what_is_useful, only_answers_tell_the_tables_apart),
        (scores_of_the_sensitivity_of_a_count, check_spending),
        (a_graph_of_exact_scores, only_answers_tell_the_tables_apart),
        (every_error_with_the_budget_of_a_step, check_share),
        (exact_errors_choose, only_answers_tell_the_tables_apart),
        (distances_of_the_sensitivity_of_one, check_spending),
    ],
)
def test_mutant_is_killed(mutant, check, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check(PrivMRF(**PrivMRF.paper_settings()))


def test_paper_settings_pass_the_checks():
    for check in (only_answers_tell_the_tables_apart, check_spending, check_share):
        check(PrivMRF(**PrivMRF.paper_settings()))
