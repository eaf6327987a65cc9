from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.mechanism.gem import GEM
from understudy.testing.tables import CodedSource

SIZES = {"a": 3, "b": 3, "c": 2}


def rows(count=600):
    rng = np.random.default_rng(0)
    a, c = rng.integers(3, size=count), rng.integers(2, size=count)
    return np.stack([a, (a + (rng.random(count) < 0.1)) % 3, c], axis=1).tolist()


def test_the_budget_of_a_round_is_divided_as_in_the_paper(monkeypatch):
    """eps_0^2 = 2 rho / (T (a^2 + (1 - a)^2)); choosing costs a^2 eps_0^2 / 2, measuring (1 - a)^2 eps_0^2 / 2."""
    monkeypatch.setattr("understudy.model.network._PAPER_HIDDEN", 16)
    a, rounds = 0.67, 3
    table = PrivateTable(CodedSource(SIZES, rows(), rows_public=600), Budget.of(rho=1.0))
    fit = GEM.as_published(rounds=rounds).fit(table, rho=1.0)
    squared = 2 / (rounds * (a**2 + (1 - a) ** 2))
    assert squared == pytest.approx(1.195172, abs=1e-6)
    costs = [(charge.what, float(charge.rho)) for charge in table.account.charges]
    assert [what for what, _ in costs] == ["cells", "measure"] * rounds
    epsilon = squared**0.5
    select, measure = table.account.charges[:2]
    assert select.scale == pytest.approx(2 * a * epsilon)  # weights exp(2 a eps_0 |err| / (2 Delta))
    assert measure.scale == fit.measurements[0].sigma == pytest.approx(1 / ((1 - a) * epsilon))
    assert [cost for _, cost in costs] == pytest.approx([0.268256, 0.065077] * rounds, abs=1e-6)


def test_it_finds_what_depends_and_answers_it():
    table = PrivateTable(CodedSource(SIZES, rows()), Budget.of(rho=50.0))
    fit = GEM(workload="all-2way", rounds=2).fit(table, rho=50.0)
    assert tuple(fit.rounds[0]["chosen"]) == ("a", "b")
    counts = np.zeros((3, 3))
    np.add.at(counts, tuple(np.array(rows())[:, :2].T), 1)
    assert np.abs(fit.model.project(("a", "b")) - counts).sum() < 60
    assert (fit.model.kind, fit.generator.name) == ("relaxed", "gem")


def test_settings_out_of_range_are_refused_by_name():
    with pytest.raises(SettingError, match=r"gem\.rounds: give a whole number of at least 1"):
        make_mechanism("gem", rounds=0)
    with pytest.raises(SettingError, match="gem: first and second"):
        make_mechanism("gem", first=0.8)
