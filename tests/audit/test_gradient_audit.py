"""A short training of `dp-wgan` under audit: its gradients tell no more than they cost, and mistakes are found."""

from __future__ import annotations

from understudy.accounting import Budget
from understudy.accounting.neighbours import Neighbours
from understudy.gate import table as gate
from understudy.testing.pairs import Bench, Setup, worst_pairs

SHORT = {"rounds": 1, "critic_steps": 2, "first": 0.0}


def unpaid(**setup):
    """By how much an answer tells more than its charge allows, at most, in one run on each pair of tables."""
    given = Setup("dp-wgan", settings=SHORT, budget={"rho": 1.0}, **setup)
    pairs = worst_pairs(Budget.of(rho=1.0))
    return max(Bench(given, pair).run(True)[0].ratio.unpaid for pair in pairs)


def test_gradients_tell_no_more_than_they_cost():
    assert unpaid() == 0
    assert unpaid(max_rows=2) == 0


def test_a_sensitivity_that_forgets_the_clip_is_found(monkeypatch):
    """The planted bug: the charge is that of rows of half the norm."""
    monkeypatch.setattr(gate, "UNIT", gate.UNIT // 4)
    assert unpaid() > 0.01


def test_a_replacement_that_is_charged_as_an_addition_is_found(monkeypatch):
    """The planted bug: a row and the row that replaces it may have opposite gradients."""
    original = Neighbours.query_l2_squared
    added = Neighbours(None, 1, False)
    monkeypatch.setattr(
        Neighbours, "query_l2_squared", lambda _, squared, negative: original(added, squared, negative=negative) // 64
    )
    assert unpaid(rows_public=True) > 0.01
