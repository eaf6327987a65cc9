"""A short training of `dp-wgan` under audit: its gradients tell no more than they cost, and a mistake is found."""

from __future__ import annotations

import pytest

from understudy.accounting import Budget
from understudy.gate import table as gate
from understudy.model import network
from understudy.testing.pairs import Bench, Setup, worst_pairs

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
