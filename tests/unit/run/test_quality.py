"""Quality: a share of the budget measures the workload error; release, receipt and report state it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import understudy as us
from understudy import errors, run
from understudy.accounting import Budget
from understudy.domain import Domain
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.planning.made_up import rehearsal_rows
from understudy.quality import Quality, parse_share
from understudy.run.quality import MOST, Rating, measure_quality
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource

SCHEMA = us.Schema.from_domain({"a": 4, "b": 3, "c": 5})
TABLE = rehearsal_rows(SCHEMA, 3000, seed=2)


def synthesis(**rest):
    given = {"epsilon": 1.0, "delta": 1e-6, "mechanism": "independent", "quality": "10%"} | rest
    return us.synthesize(TABLE, SCHEMA, **given)


def true_error(release):
    codes = SCHEMA.encode(TABLE).codes
    errors = []
    for pair in combinations(release.model.domain.columns, 2):
        table = np.zeros(release.model.domain.shape(pair))
        np.add.at(table, tuple(release.recoding.apply(column, codes[column]).astype(int) for column in pair), 1)
        errors.append(np.abs(table - release.model.project(pair)).sum() / 2 / release.model.total)
    return float(np.mean(errors))


@pytest.mark.parametrize(
    ("budget", "mechanism"),
    [
        ({}, "independent"),
        ({}, "mst"),
        ({"delta": 0}, "independent"),
        ({"epsilon": None, "delta": None, "rho": 0.1}, "independent"),
    ],
)
def test_the_interval_holds_the_true_error_and_the_share_is_kept_apart(budget, mechanism, tmp_path):
    with Spy() as spy:
        release = synthesis(mechanism=mechanism, **budget)
    check_spent(spy, release.receipt)
    low, high = release.quality.interval(1 - 1e-9)
    assert low <= true_error(release) <= high
    assert high - low < 0.5
    charge = release.receipt.charges[-1]
    assert charge.what == "quality"
    assert [c.what for c in release.receipt.charges].count("quality") == 1
    paid = charge.epsilon if release.receipt.budget.pure else charge.rho
    assert float(paid / release.receipt.budget.capacity) == pytest.approx(0.1, rel=1e-6)
    release.save(tmp_path / "r.release")
    assert us.Release.load(tmp_path / "r.release").quality == release.quality


def test_without_it_nothing_is_kept_and_nothing_printed():
    release = synthesis(quality=None)
    assert release.quality is None
    assert "workload error" not in release.receipt.text()


def test_receipt_and_public_report_tell_it():
    from understudy.report import public_report

    release = synthesis()
    assert "measured how good the result is (workload error)" in release.receipt.text()
    page = public_report(release)
    assert "How good it is" in page
    assert release.quality.text() in page
    assert "How good it is" not in public_report(synthesis(quality=None))


@pytest.mark.parametrize("share", ["0%", "51%", -1, "much", True, 0, "nan"])
def test_a_share_that_makes_no_sense_is_refused_for_free(share):
    with pytest.raises(errors.SettingError, match="quality: give the share"):
        synthesis(quality=share, dataset="d")
    assert us.Ledger().total("d").runs == 0


def test_shares_as_people_write_them():
    assert [parse_share(text) for text in ("5%", " 5 % ", "0.05", 0.05)] == [0.05] * 4


# -- which tables --


def test_tables_follow_from_the_workload_alone():
    domain = Domain(dict.fromkeys("abcd", 3))
    assert Rating(0.1).tables(domain) == (dict.fromkeys(combinations("abcd", 2), 1), 6)
    weights, of = Rating(0.1, "target:a").tables(domain)
    assert (set(weights.values()), of) == ({1}, 3)


def test_many_tables_are_drawn_the_same_ones_every_time_and_large_ones_left_out():
    domain = Domain({f"c{i}": 3 for i in range(40)} | {"large": 60_000})
    weights, of = Rating(0.1).tables(domain)
    assert (len(weights), of) == (MOST, 820)
    assert not any("large" in clique for clique in weights)
    assert (weights, of) == Rating(0.1).tables(domain)
    with pytest.raises(errors.SettingError, match="more than 65536 cells"):
        Rating(0.1).tables(Domain({"a": 60_000, "b": 3}))


def test_tables_that_cannot_be_counted_are_left_out_once_codes_are_merged(tmp_path):
    """Four columns of 100,000 values each have no table, however few codes are left: the run was paid for by then."""
    (tmp_path / "w.yaml").write_text("- [a, b, c, d]\n- [e]\n")
    sizes = dict.fromkeys("abcd", 100_000) | {"e": 2}
    table = PrivateTable(CodedSource(sizes, [[0, 0, 0, 0, 1]] * 500), Budget.of(rho=10.0))
    fit = make_mechanism("mst").fit(table, rho=9.0)
    assert fit.recoding.recode(table.domain).cells("abcd") < 1 << 16
    assert measure_quality(table, fit, Rating(0.05, str(tmp_path / "w.yaml"))).tables == 1


def test_weights_of_the_workload_count(tmp_path):
    (tmp_path / "w.yaml").write_text("- {clique: [a, b], weight: 4}\n- {clique: [b, c], weight: 1}\n")
    weights, _ = Rating(0.1, str(tmp_path / "w.yaml")).tables(SCHEMA.domain)
    assert weights == {("a", "b"): 1000, ("b", "c"): 250}


def test_wrong_weights_and_marginals_are_refused_before_a_row_is_read():
    table = PrivateTable(CodedSource({"a": 2}, [[0], [1]]), us.Budget.of(rho=1.0))
    for weights in ({}, {("a",): 0}, {("a",): 1.5}, {("a",): True}):
        with pytest.raises(errors.SettingError, match="whole number of at least 1"):
            table.error({("a",): [1.0, 1.0]}, weights=weights, rho=1.0)
    with pytest.raises(errors.SettingError, match="has 3 cells"):
        table.error({("a",): [1.0, 1.0, 1.0]}, weights={("a",): 1}, rho=1.0)
    with pytest.raises(errors.BudgetExceeded):
        table.error({("a",): [1.0, 1.0]}, weights={("a",): 1}, rho=1.1)
    assert table.account.charges == ()


# -- in a run file --


@pytest.fixture
def folder(tmp_path):
    import pyarrow.csv as pa_csv

    pa_csv.write_csv(TABLE, tmp_path / "t.csv")
    SCHEMA.save(tmp_path / "s.yaml")
    (tmp_path / "run.yaml").write_text(
        "data: t.csv\nschema: s.yaml\nbudget: {epsilon: 1, delta: 1e-6}\nmechanism: independent\nquality: 10%\n"
        "workload: target:a\noutputs: {report: []}\n"
    )
    return tmp_path


def test_a_run_file_says_workload_and_share(folder):
    told = run.run(folder / "run.yaml", folder / "out").summary["quality"]
    assert (told["workload"], told["tables"], told["share"]) == ("target:a", 1, 0.1)
    assert told["interval"][0] < told["value"] < told["interval"][1]


def test_the_command_lines_share_makes_another_run(folder):
    run.run(folder / "run.yaml", folder / "out", quality="20%")
    with pytest.raises(errors.OutputError, match="holds no run of this file"):
        run.run(folder / "run.yaml", folder / "out")


@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_run_that_stopped_around_it_still_measures_it_once(folder, monkeypatch, stage):
    """Stopped before the question it is asked now; stopped after the answer, that one is given again."""
    original, answers = PrivateTable.error, []

    def stops(self, *args, **kwargs):
        if stage == "after":
            answers.append(original(self, *args, **kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateTable, "error", stops)
    with pytest.raises(KeyboardInterrupt):
        run.run(folder / "run.yaml", folder / "out")
    monkeypatch.setattr(PrivateTable, "error", original)
    done = run.run(folder / "run.yaml", folder / "out")
    assert done.status == "resumed"
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert [charge.what for charge in release.receipt.charges] == ["measure"] * 3 + ["quality"]
    assert release.quality.to_dict().items() <= done.summary["quality"].items()
    for answer in answers:  # with noise of so many digits, a second draw is another number
        assert release.quality.value == pytest.approx(answer.rows / 2 / release.model.total, rel=1e-12)
    assert us.Ledger().total("t").runs == 1


def test_a_release_that_was_taken_away_is_made_again_with_the_same_answer(folder):
    run.run(folder / "run.yaml", folder / "out")
    seen = us.Release.load(folder / "out" / "stand-in.release").quality
    (folder / "out" / "stand-in.release").rename(folder / "handed-over.release")
    assert run.run(folder / "run.yaml", folder / "out").status == "completed"
    assert us.Release.load(folder / "out" / "stand-in.release").quality == seen


def test_resume_without_the_table_states_no_quality(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTable, "error", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(errors.RunInterrupted):
            run.run(folder / "run.yaml", folder / "out")
    (folder / "t.csv").unlink()
    (one,) = us.Ledger().reservations("t")
    release = us.resume(one.run, output=folder / "r.release")
    assert release.quality is None
    assert len(release.measurements) == 3
    assert "quality" not in [charge.what for charge in release.receipt.charges]
    assert us.Ledger().total("t").runs == 1


def test_a_column_whose_name_looks_like_a_path_is_reported_by_its_name():
    schema = us.Schema.from_domain({"a": 2, "pay/hour": 2})
    table = rehearsal_rows(schema, 50)
    release = us.synthesize(table, schema, rho=1.0, mechanism="gaussian", workload="target:pay/hour", quality="5%")
    assert release.quality.workload == "target:pay/hour"


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_that_is_none_is_refused(confidence):
    for noise in ("gaussian", "laplace"):
        with pytest.raises(errors.SettingError, match="between 0 and 1, such as"):
            Quality(0.05, 0.01, noise, "all-2way", 3, 3, 0.05).interval(confidence)
