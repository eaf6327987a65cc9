"""Mistakes that relaxed projection invites, made on purpose: each must be caught by a check."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial, partialmethod

import numpy as np
import pytest

from understudy.accounting import Budget, Receipt
from understudy.accounting.neighbours import Neighbours
from understudy.gate import PrivateTable
from understudy.mechanism import gem, rap
from understudy.mechanism.gem import GEM
from understudy.mechanism.rap import RAP
from understudy.model.network import CellTraining
from understudy.model.relaxed import CellProjection
from understudy.testing.contract import check_share, check_spending, check_twin
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource

from .conftest import exact_counts

SIZES = {"a": 3, "b": 2, "c": 3}
QUICK = {"rounds": 2, "batch": 2}


def rows_fitted_to_exact_counts(patch):
    count, originals = exact_counts(patch), (rap.fit_relaxed, gem.fit_network)

    def fitted(original, domain, measurements, **given):
        exact = [replace(one, values=count(one.clique)) for one in measurements if one.query is None]
        return original(domain, exact, **given)

    patch.setattr(rap, "fit_relaxed", partial(fitted, originals[0]))
    patch.setattr(gem, "fit_network", partial(fitted, originals[1]))


def every_choice_with_the_budget_of_a_round(patch):
    original = PrivateTable.select
    patch.setattr(PrivateTable, "select", lambda table, *a, rho, **k: original(table, *a, rho=2 * rho, **k))


def scores_of_half_their_sensitivity(patch):
    original = Neighbours.score
    patch.setattr(Neighbours, "score", lambda near, weight: original(near, weight) / 2)


def spied(mechanism):
    """A whole run: what was drawn is what was paid, by sensitivities that the spy has of its own."""
    rows = np.random.default_rng(0).integers(2, size=(300, 3)).tolist()
    with Spy() as spy:
        table = PrivateTable(CodedSource(SIZES, rows), Budget.of(rho=1.0))
        mechanism.fit(table, rho=1.0)
    assert {one.what for one in spy.seen} == {"measure", "select"}
    check_spent(spy, Receipt(Budget.of(rho=1.0), table.account.charges, table.neighbours))


@pytest.mark.parametrize("mechanism", [RAP(**QUICK), GEM(**QUICK)], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (rows_fitted_to_exact_counts, check_twin),
        (every_choice_with_the_budget_of_a_round, check_share),
        (scores_of_half_their_sensitivity, spied),
    ],
)
def test_mutant_is_killed(mutant, check, mechanism, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check(mechanism)


def test_the_spy_agrees_with_the_receipt():
    spied(RAP(**QUICK))
    check_spending(RAP(**QUICK))


# -- single cells, as published --

PUBLISHED = [RAP.as_published(rounds=2, batch=2), GEM.as_published(rounds=2)]


def exact_cells_learned(patch):
    count = exact_counts(patch)

    def learned_from_exact(training, original, cells, total):
        original(training, [replace(one, values=one.query @ count(one.clique)) for one in cells], total)

    for kind in (CellProjection, CellTraining):
        patch.setattr(kind, "learn", partialmethod(learned_from_exact, kind.learn))


def every_cell_with_twice_its_budget(patch):
    original = PrivateTable.select_cells
    patch.setattr(PrivateTable, "select_cells", lambda table, *a, rho, **k: original(table, *a, rho=2 * rho, **k))


def cells_of_half_their_sensitivity(patch):
    patch.setattr(Neighbours, "cell", property(lambda near: Fraction(near.max_rows, 2)))


def cells_spied(mechanism):
    rows = np.random.default_rng(0).integers(2, size=(300, 3)).tolist()
    for public in (None, 300):
        with Spy() as spy:
            table = PrivateTable(CodedSource(SIZES, rows, max_rows=2, rows_public=public), Budget.of(rho=1.0))
            mechanism.fit(table, rho=1.0)
        assert {one.what for one in spy.seen} == {"measure", "cells"}
        check_spent(spy, Receipt(Budget.of(rho=1.0), table.account.charges, table.neighbours))


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("mechanism", PUBLISHED, ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (exact_cells_learned, check_twin),
        (every_cell_with_twice_its_budget, check_share),
        (cells_of_half_their_sensitivity, cells_spied),
    ],
)
def test_mutant_of_cells_is_killed(mutant, check, mechanism, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        check(mechanism)


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("mechanism", PUBLISHED, ids=lambda one: one.name)
def test_the_spy_agrees_with_the_receipt_of_cells(mechanism):
    cells_spied(mechanism)
