"""Columns so wide that several of them together have no table, however few of their codes are left after merging."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.testing.tables import CodedSource

COLUMNS = tuple("abcd")
WIDE = dict.fromkeys(COLUMNS, 100_000)


@pytest.fixture
def rows():
    """Four columns of two common values each, every one of which says what the others are."""
    return np.repeat(np.arange(400)[:, None] % 2, len(COLUMNS), axis=1).tolist()


@pytest.mark.parametrize("name", ["aim", "adaptive", "privbayes", "privmrf", "privsyn", "rap", "nist-mst"])
def test_a_run_does_not_ask_what_cannot_be_counted(rows, name, tmp_path):
    (tmp_path / "w.yaml").write_text("- [a, b, c, d]\n")
    settings = {
        "aim": {"workload": str(tmp_path / "w.yaml")},
        "privbayes": {},
        "privmrf": {},
        "adaptive": {"workload": str(tmp_path / "w.yaml")},
        "privsyn": {},
        "rap": {"workload": str(tmp_path / "w.yaml"), "rounds": 2},
        "nist-mst": {"cliques": [(COLUMNS, 1.0), (("a", "b"), 1.0)]},
    }
    table = PrivateTable(CodedSource(WIDE, rows), Budget.of(rho=500.0))
    fit = make_mechanism(name, **settings[name]).fit(table, rho=500.0)
    asked = {len(measurement.clique) for measurement in fit.measurements}
    assert max(asked) in (2, 3)
    assert table.account.spent > 0.9 * 500


def test_what_may_be_asked_is_a_fact_of_the_columns(rows):
    table = PrivateTable(CodedSource(WIDE, rows), Budget.of(rho=1.0))
    assert table.can_measure(("a",))
    assert not table.can_measure(("a", "b"))
