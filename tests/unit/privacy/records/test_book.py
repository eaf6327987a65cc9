from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager

import pytest
from understudy.privacy.records.book import Book
from understudy.privacy.records.limit import Limit

from understudy.accounting import Budget, epsilon_of
from understudy.errors import OutputError, SettingError
from understudy.testing import insecure

UNIT = "one row"


@pytest.fixture
def shelf(tmp_path):
    return Book(tmp_path / "shelf")


def test_a_single_run_costs_what_it_says(shelf):
    shelf.append("people", Budget.of(epsilon=1.0, delta=1e-9), unit=UNIT)
    spent = shelf.spent("people")
    assert (spent.runs, spent.epsilon, spent.delta) == (1, 1.0, 1e-9)
    assert str(spent) == "1 run, epsilon 1 in all at delta 1e-09"


def test_two_runs_add_epsilons_and_deltas_where_that_is_smaller(shelf):
    for _ in range(2):
        shelf.append("people", Budget.of(epsilon=0.01, delta=1e-9).certified(1), unit=UNIT)
    assert shelf.spent("people").epsilon == pytest.approx(0.02)
    assert shelf.spent("people").delta == pytest.approx(2e-9)


def test_the_sum_of_several_runs_says_under_which_assumption_it_holds(shelf):
    budget, words = (
        Budget.of(rho=0.25),
        "; holds for budgets fixed in advance, not chosen by looking at earlier releases",
    )
    shelf.append("people", budget, unit=UNIT)
    assert str(shelf.spent("people")) == "1 run, rho 0.25 in all"
    shelf.append("people", budget, unit=UNIT)
    assert str(shelf.spent("people")) == f"2 runs, rho 0.5 in all{words}"
    for _ in range(2):
        shelf.append("others", Budget.of(epsilon=1.0, delta=0), unit=UNIT)
    assert str(shelf.spent("others")) == f"2 runs, epsilon 2 in all at delta 0{words}"


def test_many_runs_add_rhos_where_that_is_smaller(shelf):
    budget = Budget.of(epsilon=1.0, delta=1e-9)
    for _ in range(50):
        shelf.append("people", budget, unit=UNIT)
    spent = shelf.spent("people")
    assert spent.epsilon == pytest.approx(epsilon_of(50 * budget.rho, 50e-9), rel=1e-9)
    assert spent.epsilon < 20


def test_pure_runs_stay_pure_and_mixed_ones_take_the_stated_delta(shelf):
    shelf.append("people", Budget.of(epsilon=0.5, delta=0), unit=UNIT)
    shelf.append("people", Budget.of(epsilon=0.25, delta=0), unit=UNIT)
    assert (shelf.spent("people").epsilon, shelf.spent("people").delta) == (0.75, 0.0)
    shelf.append("people", Budget.of(epsilon=1.0, delta=1e-9), unit=UNIT)
    assert (shelf.spent("people").epsilon, shelf.spent("people").delta) == (1.75, 1e-9)


def test_a_run_that_stated_rho_alone_is_counted_by_rho(shelf):
    shelf.append("people", Budget.of(rho=0.5), unit=UNIT)
    assert (shelf.spent("people").epsilon, shelf.spent("people").rho) == (None, 0.5)
    assert str(shelf.spent("people")) == "1 run, rho 0.5 in all"
    shelf.append("people", Budget.of(epsilon=1.0, delta=1e-6), unit=UNIT)
    assert shelf.spent("people").epsilon > epsilon_of(0.5, 1e-6)


def test_runs_that_protect_different_units_are_told_apart(shelf):
    shelf.append("people", Budget.of(epsilon=1.0, delta=1e-9), unit=UNIT)
    assert not shelf.spent("people").mixed
    shelf.append("people", Budget.of(epsilon=1.0, delta=1e-9), unit="everything of one person")
    assert shelf.spent("people").mixed
    assert "different units" in str(shelf.spent("people"))


def test_a_run_that_never_began_is_no_dataset(shelf):
    shelf.check("misspelt")
    assert shelf.datasets() == []
    shelf.set_limit("planned", Limit(epsilon=4))
    assert shelf.datasets() == ["planned"]


def test_datasets_have_pages_of_their_own(shelf):
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    assert shelf.spent("others").runs == 0
    assert str(shelf.spent("others")) == "0 runs, rho 0 in all"


def test_an_entry_tells_budget_unit_and_time_and_nothing_else(shelf):
    shelf.append("people", Budget.of(epsilon=1.0, delta=0), unit=UNIT)
    (entry,) = shelf.entries("people")
    assert set(entry) == {"time", "proof", "rho", "epsilon", "delta", "protects"}


def test_test_mode_is_refused(shelf):
    with insecure(1), pytest.raises(SettingError, match="refuses runs in test mode"):
        shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    assert shelf.spent("people").runs == 0


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a\nb", ".hidden", "x" * 101, "a\0b", "-x", "a\\b"])
def test_a_name_that_could_leave_the_folder_is_refused(shelf, name):
    with pytest.raises(SettingError, match="letters, digits"):
        shelf.path(name)


@pytest.mark.parametrize("line", [
    "no json", "{}", "[]", "3", "null", '{"rho": "1e9", "epsilon": null, "delta": null}',
    '{"rho": "1", "epsilon": "1", "delta": null}', '{"rho": null, "epsilon": null, "delta": null}', "[" * 100_000,
    '{"rho": "-1", "epsilon": null, "delta": null}',
])  # fmt: skip
def test_a_damaged_page_stops_the_next_run_before_it_spends(shelf, line):
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    with shelf.path("people").open("a") as file:
        file.write(line + "\n")
    for attempt in (lambda: shelf.spent("people"), lambda: shelf.check("people")):
        with pytest.raises(OutputError, match="damaged in line 2; repair or move it"):
            attempt()


def test_a_page_that_is_no_text_is_told(shelf):
    shelf.folder.mkdir()
    shelf.path("people").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OutputError, match="cannot be read"):
        shelf.check("people")


def test_a_folder_that_cannot_be_written_is_told_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="set UNDERSTUDY_BOOK"):
        Book(tmp_path / "file" / "shelf").check("people")


def test_the_environment_says_where_the_book_is(book):
    assert Book().folder == book
    assert os.environ["UNDERSTUDY_BOOK"] == str(book)


@contextmanager
def no_more_than(size):
    """A disk that is full once a file has so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_page_as_it_was(shelf):
    """Half a line would stop every later run until somebody moves the page away, and forgets what was spent."""
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    page = shelf.path("people").read_bytes()
    with no_more_than(len(page) + 20), pytest.raises(OutputError, match="cannot be written; nothing was read"):
        shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    assert shelf.path("people").read_bytes() == page
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    assert shelf.spent("people").rho == 2.0


def test_a_page_that_an_editor_left_without_its_last_line_end_is_gone_on_with(shelf):
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    shelf.path("people").write_bytes(shelf.path("people").read_bytes().rstrip(b"\n"))
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    assert shelf.spent("people").rho == 2.0


def test_entries_are_plain_json_lines(shelf):
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT)
    assert json.loads(shelf.path("people").read_text())["rho"] == "1"


def test_a_run_is_entered_once_and_who_comes_second_is_told(shelf):
    assert shelf.append("people", Budget.of(rho=1.0), unit=UNIT, run="it")
    assert not shelf.append("people", Budget.of(rho=1.0), unit=UNIT, run="it")
    assert shelf.spent("people").runs == 1


def test_of_two_attempts_that_go_on_from_one_record_one_is_let(shelf):
    shelf.append("people", Budget.of(rho=1.0), unit=UNIT, run="it")
    assert shelf.went_on("people", "it", "one")
    assert not shelf.went_on("people", "it", "two")
    assert shelf.went_on("people", "it", "three", known=["one"])
    for attempt in (None, "one", "two"):
        with pytest.raises(OutputError, match="went on with a copy of this run"), shelf.turn("people", "it", attempt):
            pass
    with shelf.turn("people", "it", "three"):
        pass
    shelf.finish("people", "it")
    assert not shelf.went_on("people", "it", "four", known=["one", "three"])
    with pytest.raises(OutputError, match="went on with a copy of this run"), shelf.turn("people", "it", "three"):
        pass
