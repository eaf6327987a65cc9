"""A short training of `dp-wgan` under audit: its gradients tell no more than they cost, and a mistake is found."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.mechanism import dp_wgan
from understudy.mechanism.dp_wgan import DPWGAN
from understudy.model import network
from understudy.model.network import AdversarialNetwork
from understudy.testing.pairs import Bench, Setup, worst_pairs
from understudy.testing.tables import CodedSource

from .conftest import SIZES, check_answers_decide, rows

SHORT = {"rounds": 1, "critic_steps": 2, "first": 0.0, "hidden": 4}


@pytest.fixture(autouse=True)
def unfitted_generator(monkeypatch):
    """The generator is post-processing: it need not be fitted to the columns."""
    monkeypatch.setattr(network, "_STEPS", 1)


def unpaid(**setup):
    """By how much an answer tells more than its charge allows, at most, in one run on each of two pairs of tables."""
    given = Setup("dp-wgan", settings=SHORT, budget={"rho": 1.0}, **setup)
    return max(Bench(given, pair).run(True)[0].ratio.unpaid for pair in worst_pairs(Budget.of(rho=1.0))[:2])


def test_gradients_tell_no_more_than_they_cost():
    assert unpaid() == 0


def test_a_sensitivity_that_forgets_the_clip_is_found(monkeypatch):
    """The planted bug: the charge is that of rows of a quarter of the norm."""
    monkeypatch.setattr(gate, "UNIT", gate.UNIT // 4)
    assert unpaid() > 0.01


# -- mistakes in the mechanism: what did not pass the gate --


def real_rows(patch):
    """A function for the rows of the latest table, one-hot, which nothing behind the gate may know."""
    latest, init = [], PrivateTable.__init__

    def watched(table, source, *given, **rest):
        latest[:] = [source]
        init(table, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", watched)

    def one_hot():
        (codes,) = latest[0].codes()
        return np.hstack([np.eye(SIZES[column], dtype=np.float32)[array] for column, array in codes.items()])

    return one_hot


def the_norm_of_real_rows_clips(patch):
    """The norm at which derivatives are clipped is the largest among the real rows."""
    rows_of, original = real_rows(patch), dp_wgan.mean_gradients

    def means(critic, generated, columns, clip=None):
        return original(critic, generated, columns, clip)[0], original(critic, rows_of(), columns)[1]

    patch.setattr(dp_wgan, "mean_gradients", means)


def the_generator_starts_from_real_rows(patch):
    rows_of = real_rows(patch)
    patch.setattr(AdversarialNetwork, "draw", lambda generator: rows_of())


def only_answers_tell_the_tables_apart():
    mechanism = DPWGAN(rounds=2, critic_steps=2, hidden=3, threshold=0.0)
    check_answers_decide(mechanism, CodedSource(SIZES, rows(400)), CodedSource(SIZES, [[0, 0, 0, 0]] * 5))


def test_nothing_but_answers_tells_two_tables_apart():
    only_answers_tell_the_tables_apart()


@pytest.mark.parametrize("mistake", [the_norm_of_real_rows_clips, the_generator_starts_from_real_rows])
def test_rows_that_pass_by_the_gate_are_found(mistake, monkeypatch):
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        only_answers_tell_the_tables_apart()
