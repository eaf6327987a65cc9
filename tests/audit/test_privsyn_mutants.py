"""Mistakes that PrivSyn invites, made on purpose. Each must be caught by a check that the correct code passes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from understudy.accounting.neighbours import Neighbours
from understudy.gate import table as gate
from understudy.mechanism import privsyn
from understudy.mechanism.privsyn import PrivSyn
from understudy.model import generate
from understudy.testing.tables import CodedSource

from .conftest import SIZES, check_answers_decide, check_receipt, exact_counts, rows

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
    count, original = exact_counts(patch), PrivSyn._scores

    def scores(self, view, candidates, rho):
        found, record = original(self, view, candidates, rho)
        return {pair: 2 * score / count(()).sum() for pair, score in found.items()}, record

    patch.setattr(PrivSyn, "_scores", scores)


def exact_number_of_rows_in_the_model(patch):
    count, original = exact_counts(patch), generate.fit_gum
    patch.setattr(
        generate,
        "fit_gum",
        lambda domain, measured, **rest: original(domain, measured, **rest | {"total": count(()).sum()}),
    )


def rare_values_judged_by_exact_counts(patch):
    count, original = exact_counts(patch), privsyn.compress

    def compress(domain, ones, groups, **rest):
        exact = [replace(one, values=count(one.clique)) for one in ones]
        return original(domain, exact, groups, **rest)

    patch.setattr(privsyn, "compress", compress)


# -- the checks --------------------------------------------------------------------------------------------------------


def spied(**given):
    check_receipt(PrivSyn(), asks={"measure", "dependence"}, **given)


def only_answers_tell_the_tables_apart(count=800, other=5):
    check_answers_decide(PrivSyn(), CodedSource(SIZES, rows(count)), CodedSource(SIZES, rows(other, seed=1)))


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
