"""`auto`: what it chooses, by hand; that the choice is told, kept by the ledger, and never made from rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.accounting import Budget, Neighbours
from understudy.domain import Domain
from understudy.errors import InputError, SettingError
from understudy.ledger import Ledger
from understudy.run import auto
from understudy.run.auto import choose_mechanism

DOMAIN = Domain({"a": 3, "b": 4, "c": 5})  # pairs of 12, 15 and 20 cells
HALF = Budget.of(rho=0.5)


@pytest.mark.parametrize(
    ("rows", "expected"), [(None, "adaptive"), (12, "adaptive"), (11, "independent"), (10**6, "adaptive")]
)
def test_independent_where_a_pair_has_more_noise_than_rows(rows, expected):
    """The median pair has 15 cells; each has a mean absolute noise of sqrt(1 / (pi / 2)) = .798: 11.97 together."""
    assert choose_mechanism(DOMAIN, HALF, Neighbours(), rows=rows)[0] == expected
    assert choose_mechanism(DOMAIN, HALF, Neighbours(), rows=rows, complete=False)[0] == "adaptive"


@pytest.mark.parametrize(("rows", "expected"), [(31, "adaptive"), (29, "independent")])
def test_pure_budgets_have_laplace_noise(rows, expected):
    """Epsilon 1, replacing one row: each of 15 cells has a mean absolute noise of 2."""
    budget = Budget.of(epsilon=1.0, delta=0.0)
    assert choose_mechanism(DOMAIN, budget, Neighbours(replace_one=True), rows=rows)[0] == expected


def test_columns_of_one_code_do_not_count():
    assert choose_mechanism(Domain({"a": 9, "b": 1}), HALF, Neighbours())[0] == "independent"
    assert choose_mechanism(Domain({"a": 9, "b": 1}), HALF, Neighbours(), complete=False)[0] == "adaptive"


def test_settings_narrow_the_choice(monkeypatch):
    for settings, expected in ((["keep"], "mst"), (["workload"], "adaptive"), (["threshold"], "adaptive")):
        assert choose_mechanism(DOMAIN, HALF, Neighbours(), settings=settings)[0] == expected
    with pytest.raises(SettingError, match="settings keep, workload: name the mechanism"):
        choose_mechanism(DOMAIN, HALF, Neighbours(), settings=["keep", "workload"])
    monkeypatch.setattr(auto, "_MOST_BYTES", 1)
    assert choose_mechanism(DOMAIN, HALF, Neighbours())[0] == "mst"
    assert choose_mechanism(DOMAIN, HALF, Neighbours(), settings=["workload"])[0] == "adaptive"


def test_the_choice_is_told_and_kept():
    frame = pd.DataFrame({"a": [0, 1, 2] * 40, "b": [0, 1, 1] * 40})
    schema = us.Schema.from_domain({"a": 3, "b": 2})
    release = us.synthesize(frame, schema, rho=1.0, dataset="d")
    assert release.mechanism == "adaptive"
    assert "Mechanism: adaptive, chosen automatically: the most accurate" in release.receipt.text()
    spec = Ledger().find(Ledger().reservations("d")[0].run).spec
    assert (spec["mechanism"], spec["reason"]) == ("adaptive", "the most accurate for most tables")
    named = us.synthesize(frame, schema, rho=1.0, mechanism="mst")
    assert named.receipt.mechanism == "mst"
    few = us.synthesize(frame, replace(schema, rows=120), epsilon=0.001, delta=1e-9)
    assert few.receipt.mechanism.startswith("independent, chosen automatically: with this budget")


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("sizes", [{"a": 2}, {"a": 1, "b": 1}, {"a": 3, "b": 2}, {"a": 1000, "b": 1000}])
def test_tiny_tables_and_budgets_do_not_fail_after_spending(sizes, rows):
    """A million cells, one column, hardly any rows, epsilon 0.001."""
    frame = pd.DataFrame({column: np.zeros(rows, int) for column in sizes})
    release = us.synthesize(frame, us.Schema.from_domain(sizes), epsilon=0.001, delta=1e-9)
    assert release.sample(5, seed=1).column_names == list(sizes)


@pytest.mark.parametrize(
    "text",
    [
        "- [a, nowhere]",
        "- {clique: [a, b], weight: -1}",
        "- {clique: [a, b], weight: 0}",
        "- [a, a]",
        "[]",
        "- {clique: [a, b], weight: 1}\n- {clique: [b, a], weight: .inf}",
    ],
)
def test_contradictory_workloads_are_refused_before_spending(tmp_path, text):
    path = tmp_path / "workload.yaml"
    path.write_text(text)
    frame = pd.DataFrame({"a": [0, 1], "b": [0, 1]})
    with pytest.raises(InputError):
        us.synthesize(frame, us.Schema.from_domain({"a": 2, "b": 2}), rho=1.0, workload=str(path), dataset="d")
    assert us.Ledger().total("d").runs == 0
