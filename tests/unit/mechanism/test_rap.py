from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.mechanism.rap import RAP
from understudy.testing.tables import CodedSource

SIZES = {"a": 3, "b": 3, "c": 2, "d": 2}


def rows(count=600):
    rng = np.random.default_rng(0)
    a, c, d = rng.integers(3, size=count), rng.integers(2, size=count), rng.integers(2, size=count)
    return np.stack([a, (a + (rng.random(count) < 0.1)) % 3, c, d], axis=1).tolist()


def test_half_of_each_round_chooses_and_every_query_costs_the_same():
    """rho_0 = rho / (2 T K) for each choice and each measurement: 1/12 for two rounds of three."""
    table = PrivateTable(CodedSource(SIZES, rows()), Budget.of(rho=1.0))
    fit = RAP(**RAP.paper_settings(), rounds=2, batch=3).fit(table, rho=1.0)
    costs = [(charge.what, float(charge.rho)) for charge in table.account.charges]
    assert [what for what, _ in costs] == (["select"] * 3 + ["measure"] * 3) * 2
    assert [cost for _, cost in costs] == pytest.approx([1 / 12] * 12, rel=1e-6)
    assert [tuple(entry["chosen"]) for entry in fit.rounds] == [m.clique for m in fit.measurements]
    assert len({m.clique for m in fit.measurements}) == 6  # each is used once


def test_it_finds_what_depends_and_answers_it():
    table = PrivateTable(CodedSource(SIZES, rows()), Budget.of(rho=50.0))
    fit = RAP(workload="all-2way", rounds=2, batch=1).fit(table, rho=50.0)
    assert tuple(fit.rounds[0]["chosen"]) == ("a", "b")
    counts = np.zeros((3, 3))
    np.add.at(counts, tuple(np.array(rows())[:, :2].T), 1)
    assert np.abs(fit.model.project(("a", "b")) - counts).sum() < 60


def test_a_table_of_one_column_has_one_candidate():
    table = PrivateTable(CodedSource({"a": 2}, [[0]] * 30 + [[1]] * 10), Budget.of(rho=5.0))
    fit = RAP(rounds=2).fit(table, rho=5.0)
    assert fit.model.project(("a",)) == pytest.approx([30, 10], abs=4)
    assert float(table.account.spent) <= 5.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rounds": 0}, "rap.rounds: give a whole number of at least 1"),
        ({"measured": 1.0}, "rap.measured: give a number above 0 and below 1"),
        ({"first": 0.8}, "rap: first and look must not exceed 0.9"),
        ({"generator": "pgm"}, "rap has no setting 'generator'"),
    ],
)
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(SettingError) as refused:
        make_mechanism("rap", **settings)
    assert said in str(refused.value)
