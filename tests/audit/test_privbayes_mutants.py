"""Mistakes that PrivBayes invites, made on purpose. Each must be caught by a check that the correct code passes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from understudy.accounting.neighbours import Neighbours
from understudy.gate import table as gate
from understudy.mechanism import privbayes
from understudy.mechanism.privbayes import PrivBayes
from understudy.testing.audit import check_claim
from understudy.testing.tables import CodedSource

from .conftest import SIZES, check_answers_decide, check_receipt, exact_counts, rows
from .trials import dependent_selection_trial

# -- the mistakes ------------------------------------------------------------------------------------------------------


def scores_of_the_sensitivity_of_a_count(patch):
    patch.setattr(Neighbours, "indif", property(lambda near: near.marginal_l1))


def scores_of_half_their_sensitivity(patch):
    """R is half of InDif: its sensitivity with the score that is not halved."""
    patch.setattr(Neighbours, "indif", property(lambda near: 2 * near.marginal_l1))


def the_best_candidate_without_noise(patch):
    patch.setattr(gate, "exponential_mechanism", lambda scores, rate: int(np.argmax(scores)))


def exact_number_of_rows_decides_how_large_tables_are(patch):
    count = exact_counts(patch)
    patch.setattr(privbayes, "noisy_total", lambda measured: float(count(()).sum()))


def first_column_chosen_by_the_rows(patch):
    count, original = exact_counts(patch), privbayes.split_columns

    def split(domain, cells):
        alone, linked = original(domain, cells)
        return alone, linked if count((linked[0],))[-1] > 100 else linked[::-1]

    patch.setattr(privbayes, "split_columns", split)


def conditional_tables_of_exact_counts(patch):
    count, original = exact_counts(patch), privbayes.average_measurements

    def tables(domain, measured):
        return original(domain, [replace(one, values=count(one.clique)) for one in measured])

    patch.setattr(privbayes, "average_measurements", tables)


# -- the checks --------------------------------------------------------------------------------------------------------


def spied(settings=None, **given):
    check_receipt(PrivBayes(**settings or {}), asks={"measure", "select"}, **given)


def only_answers_tell_the_tables_apart(count=800, other=5):
    check_answers_decide(
        PrivBayes(max_cells=9), CodedSource(SIZES, rows(count)), CodedSource(SIZES, rows(other, seed=1))
    )


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
