"""Every registered mechanism under a small audit, and mistakes made on purpose that the audit must find.

Runs are on tiny tables. Estimation cannot reach the rows: where it takes most of a run, a constant model takes its
place. Noise is seeded by the test's name, so mistakes are judged at an error that few pairs suffice for.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from understudy.accounting.neighbours import Neighbours
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.mechanism import adaptive, aim
from understudy.mechanism.registry import MECHANISMS
from understudy.model.graphical import GraphicalModel
from understudy.testing.audit import judge
from understudy.testing.pairs import Setup, choose_pair

RHO = 1.0
PAIRS = 100
ERROR = 0.1


@pytest.fixture(autouse=True)
def constant_model(monkeypatch):
    for module in (adaptive, aim):
        monkeypatch.setattr(module, "estimate", lambda domain, measured, **_: GraphicalModel(domain, {}, total=200.0))


def mechanisms(*, slow):
    """Every registered mechanism; those whose audit takes minutes run in the slow suite (`mwem` runs AIM's rounds)."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in sorted(MECHANISMS)]


def audited(name, *, pairs=PAIRS, error=ERROR, runs=2, **given):
    bench, divergence = choose_pair(Setup(name, budget={"rho": RHO}, **given), runs=runs)
    return judge(bench, bench.pairs(pairs), divergence, error=error)


# -- the mistakes --


def noise_halved(patch):
    original = PrivateTable._draw
    patch.setattr(
        PrivateTable, "_draw", lambda t, charge, size: original(t, replace(charge, scale=charge.scale / 2), size)
    )


def noise_used_twice(patch):
    """Within a run, tables of the same size and noise get the same draw."""
    original = PrivateTable._draw

    def draw(table, charge, size):
        kept = table.account.__dict__.setdefault("draws", {})
        key = (charge.scale, size)
        return kept[key] if key in kept else kept.setdefault(key, original(table, charge, size))

    patch.setattr(PrivateTable, "_draw", draw)


def sensitivity_halved(patch):
    l2, l1 = Neighbours.marginal_l2_squared.fget, Neighbours.marginal_l1.fget
    patch.setattr(Neighbours, "marginal_l2_squared", property(lambda near: Fraction(l2(near), 4)))
    patch.setattr(Neighbours, "marginal_l1", property(lambda near: Fraction(l1(near), 2)))


def choices_not_charged(patch):
    """A choice costs nothing, so each is made with eight times the whole budget."""
    original = gate.exponential_charge

    def free(candidates, sensitivity, *, share, pure):
        return replace(original(candidates, sensitivity, share=8 * Fraction(RHO), pure=pure), rho=Fraction(0))

    patch.setattr(gate, "exponential_charge", free)


@pytest.mark.parametrize("name", mechanisms(slow={"gem", "rap"}))
def test_it_is_consistent_with_its_claim(name):
    found = audited(name, pairs=40, error=1e-6)
    assert found.verdict == "consistent", found.text()


@pytest.mark.parametrize("name", mechanisms(slow={"adaptive", "aim", "gem", "rap"}))
def test_halved_noise_is_found(name, monkeypatch):
    noise_halved(monkeypatch)
    assert audited(name).verdict != "consistent"


@pytest.mark.parametrize("name", ["independent", "mst", "privbayes", "privsyn"])
def test_a_wrong_sensitivity_is_found(name, monkeypatch):
    sensitivity_halved(monkeypatch)
    assert audited(name).verdict != "consistent"


def test_choices_that_are_not_charged_are_found(monkeypatch):
    choices_not_charged(monkeypatch)
    assert audited("mst").verdict != "consistent"


def test_noise_that_is_used_twice_is_found_by_what_was_learned(monkeypatch):
    """The likelihood ratio assumes that draws are independent; the learned statistic takes their difference."""
    noise_used_twice(monkeypatch)
    found = audited("independent", pairs=200)
    assert found.verdict == "broken", found.text()
    assert found.findings[3].mu > found.theory_mu
