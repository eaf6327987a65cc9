"""The yearly limit: what counts, when it is passed, and who is told."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Barrier, BrokenBarrierError, Thread

import pytest

import understudy as us
from understudy import errors, journey
from understudy.accounting import Budget, epsilon_of
from understudy.accounting.neighbours import Neighbours
from understudy.journey.rehearsal import rehearsal_rows
from understudy.notice import PastLimit
from understudy.privacy.records.book import Book
from understudy.privacy.records.limit import Limit, entry_of, past_year

ONE = Budget.of(epsilon=1.0, delta=1e-9)
SCHEMA = us.Schema.from_domain({"a": 3, "b": 2})
UNIT = Neighbours().describe()


def test_small_runs_add_up_by_the_smaller_of_two_valid_bounds():
    limit = Limit(epsilon=4.0)
    assert limit.used([]) == 0.0
    assert limit.used([entry_of(ONE, UNIT)]) == pytest.approx(min(1.0, epsilon_of(ONE.rho, 1e-6)))
    many = [entry_of(ONE, UNIT)] * 30
    assert limit.used(many) == pytest.approx(epsilon_of(30 * ONE.rho, 1e-6), rel=1e-9)
    assert limit.used(many) < 30


def test_runs_of_large_delta_are_counted_at_the_limits_own():
    loose = Budget.of(epsilon=1.0, delta=1e-3)
    assert Limit(epsilon=4.0, delta=1e-6).used([entry_of(loose, UNIT)]) == pytest.approx(epsilon_of(loose.rho, 1e-6))
    assert Limit(epsilon=4.0, delta=1e-6).used([entry_of(loose, UNIT)]) > 1.0


def test_a_limit_in_rho_is_a_sum():
    limit = Limit(rho=0.5)
    assert limit.used([entry_of(Budget.of(rho=0.2), UNIT)] * 2) == pytest.approx(0.4)
    assert limit.passed([entry_of(Budget.of(rho=0.2), UNIT)] * 2, Budget.of(rho=0.1), "d", UNIT) is None
    words = limit.passed([entry_of(Budget.of(rho=0.2), UNIT)] * 2, Budget.of(rho=0.2), "d", UNIT) or ""
    assert "'d' would come to rho 0.6" in words
    assert "its limit is rho 0.5 in any 365 days" in words


def test_delta_set_aside_for_purchases_is_not_used_twice():
    bought = Budget.of(epsilon=1.0, delta=1e-6, purchase_delta=9e-7)
    assert Limit(epsilon=9.0, delta=1e-6).used([entry_of(bought, UNIT)] * 2) == float("inf")
    assert Limit(epsilon=9.0, delta=1e-5).used([entry_of(bought, UNIT)] * 2) <= 2.0


def test_only_the_last_365_days_count_and_what_has_no_time_counts():
    now = datetime(2026, 6, 1, tzinfo=UTC)
    old = {"time": (now - timedelta(days=366)).isoformat()}
    new = {"time": (now - timedelta(days=364)).isoformat()}
    assert past_year([old, new, {}, {"time": "yesterday"}], now) == [new, {}, {"time": "yesterday"}]


def test_a_clock_that_was_set_back_does_not_make_a_run_older_than_the_one_before():
    now = datetime(2026, 6, 1, tzinfo=UTC)
    old, new, ahead = ({"time": (now + timedelta(days=days)).isoformat()} for days in (-500, -3, 5000))
    back = {"time": "1970-01-01T00:00:09+00:00"}
    assert past_year([old, new, back], now) == [new, back]
    assert past_year([old, back], now) == []
    assert past_year([ahead, old, new], now) == [ahead, new]  # one that was ahead says nothing about later ones


def test_a_run_that_was_gone_on_with_months_later_counts_from_then_on(book):
    """Its last answers were given then: any 365 days around them hold it."""
    Book().append("people", ONE, unit="one row", run="it")
    page = book / "people.jsonl"
    begun = json.loads(page.read_text()) | {"time": (datetime.now(UTC) - timedelta(days=400)).isoformat()}
    page.write_text(json.dumps(begun) + "\n")
    assert past_year(Book().entries("people")) == []
    Book().went_on("people", "it", "second")
    assert [entry["run"] for entry in past_year(Book().entries("people"))] == ["it"]
    assert Book().spent("people").runs == 1


@pytest.mark.parametrize(
    "given", [{}, {"epsilon": 0.0}, {"epsilon": -1}, {"epsilon": 1, "rho": 1}, {"rho": float("nan")},
              {"epsilon": 1, "delta": 0}, {"epsilon": "1"}]
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(given):
    with pytest.raises(errors.SettingError):
        Limit(**given)


def test_a_limit_is_kept_beside_the_page(book):
    assert Book().limit("people") is None
    Book().set_limit("people", Limit(epsilon=4.0))
    assert Book().limit("people") == Limit(epsilon=4.0)
    Book().set_limit("people", None)
    assert Book().limit("people") is None
    (book / "people.limit").write_text('{"epsilon": ')
    with pytest.raises(errors.OutputError, match="cannot be read; set it anew"):
        Book().passed("people", ONE, unit=UNIT)


def synthesis(**rest):
    table = rehearsal_rows(SCHEMA, 50)
    return us.synthesize(table, SCHEMA, rho=0.2, mechanism="independent", dataset="people", **rest)


def test_synthesize_warns_before_it_spends_and_goes_on():
    Book().set_limit("people", Limit(rho=0.3))
    synthesis()
    with pytest.warns(PastLimit, match="would come to rho 0.4"):
        synthesis()
    assert Book().spent("people").runs == 2


@pytest.fixture
def folder(tmp_path):
    import pyarrow.csv as pa_csv

    pa_csv.write_csv(rehearsal_rows(SCHEMA, 50), tmp_path / "people.csv")
    SCHEMA.save(tmp_path / "s.yaml")
    (tmp_path / "run.yaml").write_text(
        "data: people.csv\nschema: s.yaml\nbudget: {rho: 0.2}\nmechanism: independent\noutputs: {report: []}"
    )
    return tmp_path


def test_run_refuses_unless_told_and_a_paid_run_is_not_asked_again(folder):
    Book().set_limit("people", Limit(rho=0.3))
    assert journey.run(folder / "run.yaml", folder / "one").status == "made"
    with pytest.raises(errors.BudgetExceeded, match="--over-limit"):
        journey.run(folder / "run.yaml", folder / "two")
    assert Book().spent("people").runs == 1
    assert journey.run(folder / "run.yaml", folder / "one").status == "unchanged"
    assert journey.run(folder / "run.yaml", folder / "two", over_limit=True).status == "made"
    assert Book().spent("people").runs == 2
    journey.run(folder / "run.yaml", folder / "three", rehearse=True)


def test_of_two_runs_at_the_same_time_the_second_is_refused_before_it_reads(folder, monkeypatch):
    Book().set_limit("people", Limit(rho=0.3))
    original = Book.append

    def overtaken(self, *args, **rest):
        original(self, "people", Budget.of(rho=0.2), unit=UNIT)
        original(self, *args, **rest)

    monkeypatch.setattr(Book, "append", overtaken)
    with pytest.raises(errors.BudgetExceeded, match="Another run was quicker"):
        journey.run(folder / "run.yaml", folder / "one")
    assert Book().spent("people").runs == 1
    assert not list((folder / "one").glob("*.partial"))


def test_of_two_runs_that_look_at_the_same_moment_one_is_refused(tmp_path):
    both, in_time = Barrier(2), 0.2

    class Slow(Book):
        def passed(self, *args, **rest):
            found = super().passed(*args, **rest)
            with suppress(BrokenBarrierError):  # goes on when the other run has looked as well
                both.wait(in_time)
            return found

    shelf = Slow(tmp_path)
    shelf.set_limit("people", Limit(rho=0.3))

    def append():
        with suppress(errors.BudgetExceeded):
            shelf.append("people", Budget.of(rho=0.2), unit=UNIT, limited=True)

    threads = [Thread(target=append) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert shelf.spent("people").runs == 1


OTHER = [Neighbours(unit="patient"), Neighbours(replace_one=True), Neighbours(unit="house", max_rows=2)]


@pytest.mark.parametrize("limit", [Limit(rho=9.0), Limit(epsilon=99.0)])
@pytest.mark.parametrize("other", OTHER)
def test_runs_that_protect_different_units_have_no_sum_and_pass_any_limit(limit, other):
    year = [entry_of(ONE, UNIT)]
    assert limit.passed(year, ONE, "d", UNIT) is None
    assert "protect different units" in (limit.passed(year, ONE, "d", other.describe()) or "")
    assert limit.used([*year, entry_of(ONE, other.describe())]) == float("inf")


def test_how_many_rows_of_a_unit_are_used_is_no_other_unit(book):
    few, many = (Neighbours(unit="patient", max_rows=rows).describe() for rows in (1, 20))
    Book().append("people", ONE, unit=few)
    Book().append("people", ONE, unit=many)
    assert not Book().spent("people").mixed
    assert Limit(epsilon=4.0).passed(Book().entries("people"), ONE, "d", many) is None


def test_run_refuses_another_unit_than_the_years_and_the_command_tells_it(folder, call):
    Book().set_limit("people", Limit(rho=9.0))
    Book().append("people", Budget.of(rho=0.1), unit=Neighbours(unit="patient", max_rows=3).describe())
    with pytest.raises(errors.BudgetExceeded, match=r"protect different units.*--over-limit"):
        journey.run(folder / "run.yaml", folder / "one")
    assert Book().spent("people").runs == 1
    assert journey.run(folder / "run.yaml", folder / "one", over_limit=True).status == "made"
    assert "passed: the year's runs protect different units" in call("book", "people")[1]
    told = json.loads(call("book", "people", "--json")[1])["limit"]
    assert (told["used"], told["mixed_units"]) == (None, True)


def test_the_command_sets_shows_and_removes_it(call):
    assert call("book")[1] == "The book is empty.\n"
    synthesis()
    code, out, _ = call("book", "people", "--limit-epsilon", 4)
    assert code == 0
    assert "1 run, rho 0.2 in all" in out
    assert "limit: epsilon 4 at delta 1e-06 in any 365 days; 3." in out
    told = json.loads(call("book", "people", "--json")[1])
    assert (told["runs"], told["limit"]["most"], told["limit"]["unit"]) == (1, 4.0, "epsilon")
    assert told["limit"]["used"] == pytest.approx(epsilon_of(0.2, 1e-6))
    assert json.loads(call("book", "--json")[1])["datasets"] == [told]
    assert json.loads(call("book", "people", "--no-limit", "--json")[1])["limit"] is None


def test_the_command_refuses_half_a_limit(call):
    assert call("book", "--limit-rho", 1)[0] == 3
    assert call("book", "people", "--limit-rho", 1, "--limit-epsilon", 1)[0] == 3
    assert call("book", "people", "--limit-rho", 1, "--no-limit")[0] == 3


def test_the_command_line_tells_the_warning_in_one_line(call, folder):
    words = ["synthesize", folder / "people.csv", "-s", folder / "s.yaml", "--rho", 0.4, "-m", "independent"]
    Book().set_limit("people", Limit(rho=0.3))
    code, _, err = call(*words, "-o", folder / "r.release")
    assert code == 0
    assert err.startswith("note: with this run, 'people' would come to rho 0.4;")
    assert len(err.splitlines()) == 1
