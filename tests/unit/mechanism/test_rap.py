from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.ledger import Ledger
from understudy.mechanism import make_mechanism
from understudy.mechanism.gem import GEM
from understudy.mechanism.rap import RAP
from understudy.run.record import RunRecorder
from understudy.testing.tables import CodedSource, SealedSource

SIZES = {"a": 3, "b": 3, "c": 2, "d": 2}


def rows(count=600):
    rng = np.random.default_rng(0)
    a, c, d = rng.integers(3, size=count), rng.integers(2, size=count), rng.integers(2, size=count)
    return np.stack([a, (a + (rng.random(count) < 0.1)) % 3, c, d], axis=1).tolist()


@pytest.mark.usefixtures("short_training")
def test_half_of_each_round_chooses_and_every_query_costs_the_same():
    """rho_0 = rho / (2 T K) for each choice and each measurement: 1/12 for two rounds of three."""
    table = PrivateTable(CodedSource(SIZES, rows(), rows_public=600), Budget.of(rho=1.0))
    fit = RAP.as_published(rounds=2, batch=3).fit(table, rho=1.0)
    costs = [(charge.what, float(charge.rho)) for charge in table.account.charges]
    assert [what for what, _ in costs] == (["cells"] * 3 + ["measure"] * 3) * 2
    assert [cost for _, cost in costs] == pytest.approx([1 / 12] * 12, rel=1e-6)
    assert [tuple(entry["chosen"]) for entry in fit.rounds] == [m.clique for m in fit.measurements]
    assert len({(m.clique, m.query.digest) for m in fit.measurements}) == 6  # each is used once
    assert {m.query.shape[0] for m in fit.measurements} == {1}
    assert {len(m.clique) for m in fit.measurements} == {3}  # cells of the workload's marginals, no others
    assert fit.measurements[0].sigma == pytest.approx(6**0.5)  # Delta^2 / (2 rho_0), a cell moves by one row
    assert [charge.candidates[0] for charge in table.account.charges if charge.candidates] == list(range(60, 54, -1))


def test_marginals_are_selected_for_half_of_each_round_where_asked():
    table = PrivateTable(CodedSource(SIZES, rows()), Budget.of(rho=1.0))
    RAP(first=0.0, measured=0.5, rounds=2, batch=3).fit(table, rho=1.0)
    costs = [(charge.what, float(charge.rho)) for charge in table.account.charges]
    assert [what for what, _ in costs] == (["select"] * 3 + ["measure"] * 3) * 2
    assert [cost for _, cost in costs] == pytest.approx([1 / 12] * 12, rel=1e-6)


@pytest.mark.usefixtures("short_training")
def test_the_number_of_rows_is_measured_where_it_is_not_public():
    table = PrivateTable(CodedSource(SIZES, rows()), Budget.of(rho=1.0))
    fit = RAP.as_published(rounds=1, batch=2).fit(table, rho=1.0)
    costs = [float(charge.rho) for charge in table.account.charges]
    assert costs == pytest.approx([0.01, *[0.99 / 4] * 4], rel=1e-6)
    assert fit.measurements[0].query is None
    assert fit.model.total == pytest.approx(600, abs=60)


def test_with_all_cells_measured_and_no_noise_the_marginals_are_matched():
    """The check of the specification: a 2 x 2 x 2 table, two-way marginals to 1e-3."""
    rng = np.random.default_rng(3)
    counts = rng.integers(20, 200, 8)
    codes = np.repeat(np.stack(np.unravel_index(np.arange(8), (2, 2, 2)), axis=1), counts, axis=0).tolist()
    source = CodedSource(dict.fromkeys("abc", 2), codes, rows_public=len(codes))
    table = PrivateTable(source, Budget.of(rho=1e12))
    model = RAP.as_published(workload="all-2way", rounds=1, batch=12).fit(table, rho=1e12).model
    for pair in (("a", "b"), ("b", "c"), ("a", "c")):
        true = dict(source.counts([pair]))[pair].reshape(2, 2) / len(codes)
        assert np.abs(model.project(pair) / model.total - true).max() < 1e-3


@pytest.mark.usefixtures("short_training")
def test_a_small_table_has_fewer_cells_than_rounds_ask_for():
    table = PrivateTable(CodedSource({"a": 3}, [[0]] * 30 + [[1]] * 10), Budget.of(rho=50.0))
    fit = RAP.as_published(rounds=5, batch=2).fit(table, rho=50.0)
    assert sum(m.query is not None for m in fit.measurements) == 3
    assert fit.model.project(("a",)) == pytest.approx([30, 10, 0], abs=3)


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("kind", [RAP, GEM])
def test_the_training_is_repeated_from_the_measurements(kind):
    """A finished run has the model of the run that was not interrupted, and of all but a batch a model of its own."""
    mechanism = kind.as_published(rounds=4, batch=1)
    table = PrivateTable(CodedSource(SIZES, rows()), Budget.of(rho=5.0))
    fit = mechanism.fit(table, rho=5.0)
    again = mechanism.finish(table.domain, fit.measurements, recoding=fit.recoding)
    assert np.array_equal(again.model.shares, fit.model.shares)
    assert again.model.total == fit.model.total
    part = mechanism.finish(table.domain, fit.measurements[:-1], recoding=fit.recoding)
    assert not np.array_equal(part.model.shares, fit.model.shares)


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("kind", [RAP, GEM])
def test_a_resumed_run_asks_the_same_questions_and_ends_with_the_same_model(kind):
    mechanism, budget, ledger = kind.as_published(rounds=3, batch=1), Budget.of(rho=5.0), Ledger()
    handle = ledger.reserve("people", budget, unit="one row", spec={}, key="it")
    table = PrivateTable(CodedSource(SIZES, rows()), budget, recorder=RunRecorder(ledger, handle))
    with pytest.raises(KeyboardInterrupt):
        mechanism.fit(table, rho=5.0, progress=stop_after(2))
    answered = len(ledger.continue_run(handle.run).answers)
    table = PrivateTable(
        CodedSource(SIZES, rows()), budget, recorder=RunRecorder(ledger, ledger.continue_run(handle.run))
    )
    first = mechanism.fit(table, rho=5.0)
    assert len(ledger.continue_run(handle.run).answers) > answered
    sealed = PrivateTable(
        SealedSource(SIZES, rows()), budget, recorder=RunRecorder(ledger, ledger.continue_run(handle.run))
    )
    again = mechanism.fit(sealed, rho=5.0)
    assert np.array_equal(again.model.shares, first.model.shares)
    assert [m.values.tolist() for m in again.measurements] == [m.values.tolist() for m in first.measurements]


def stop_after(steps):
    seen = []

    def progress(step):
        seen.append(step)
        if len(seen) == steps:
            raise KeyboardInterrupt

    return progress


@pytest.mark.usefixtures("short_training")
def test_marginals_that_are_too_large_are_no_candidates():
    sizes = {"a": 40, "b": 40, "c": 2}
    table = PrivateTable(CodedSource(sizes, [[1, 2, 0]] * 50, rows_public=50), Budget.of(rho=1.0))
    fit = RAP.as_published(workload="all-2way", max_cells=100, rounds=1, batch=3).fit(table, rho=1.0)
    assert {m.clique for m in fit.measurements} <= {("a", "c"), ("b", "c")}
    fit = RAP.as_published(workload="all-3way", max_cells=100, rounds=1, batch=3).fit(
        PrivateTable(CodedSource(sizes, [[1, 2, 0]] * 50, rows_public=50), Budget.of(rho=1.0)), rho=1.0
    )
    assert {len(m.clique) for m in fit.measurements} == {1}  # no triple is left: single columns


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
        ({"queries": "cells"}, "rap: queries='cells' measures no columns first; set first=0 as well"),
        ({"queries": "rows"}, "rap.queries"),
        ({"first": 0.8}, "rap: first and second must not exceed 0.9"),
        ({"generator": "pgm"}, "rap has no setting 'generator'"),
    ],
)
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(SettingError) as refused:
        make_mechanism("rap", **settings)
    assert said in str(refused.value)
