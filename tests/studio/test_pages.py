"""The pages: from a table to the release, and what they say when something is wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from understudy.ledger import Grant, Ledger
from understudy.release import Release
from understudy.run import run
from understudy.studio import jobs, uploads
from understudy.studio.guard import Session
from understudy.studio.jobs import Job, read_job

from .conftest import Browser, accept_now, choose_budget, draft_now, make_studio, release_now, wait_for, write_people

# -- from a table to a release --


@pytest.mark.slow
def test_from_a_table_to_a_bundle_with_real_jobs(custodian, studio, people):
    """Upload, draft, accept, plan, release: every page answers, and the ledger records what the run file repeats."""
    answer = custodian.upload("people.csv", people.read_bytes())
    base = answer.headers["location"].removesuffix("/table")
    key = base.split("/")[2]
    page = custodian.get(f"{base}/table").text
    assert "Only these names and the format were read" in page
    assert "<li>region</li>" in page
    assert custodian.send_form(f"{base}/draft", how="draft", name="people").status_code == 303
    assert "Drafting the columns" in custodian.get(f"{base}/columns").text
    assert wait_for(custodian.studio, key).state == "done"
    assert custodian.get(f"{base}/progress", headers={"hx-request": "true"}).headers["hx-redirect"] == f"{base}/columns"
    page = custodian.get(f"{base}/columns").text
    assert "For the custodian only" in page
    project = studio.projects.get(key)
    assert custodian.send_form(f"{base}/columns", version=str(project.version)).status_code == 400  # who is protected?
    project = accept_now(custodian, project)
    found = custodian.get(f"{base}/predict", params={"people": "400", "epsilon": "2", "by": "number"})
    assert "What epsilon 2 buys" in found.text
    assert "Recommended" in found.text
    form = {"people": "400", "epsilon": "2", "mechanism": "independent", "version": str(project.version)}
    assert custodian.send_form(f"{base}/budget", **form, next="release").headers["location"] == f"{base}/release"
    page = custodian.get(f"{base}/release").text
    assert "This spends epsilon 2, and cannot be taken back" in page
    assert "tester; the ledger records this name" in page
    assert Ledger().reservations() == []
    custodian.send_form(f"{base}/release")
    assert wait_for(custodian.studio, key).state == "done"
    (reserved,) = Ledger().reservations()
    assert (reserved.dataset, reserved.state, float(reserved.budget.epsilon or 0)) == ("people", "finished", 2.0)
    assert custodian.get(f"{base}/release").headers["location"] == f"{base}/result"
    assert "the stand-in is ready" in custodian.get(f"{base}/result").text
    project = studio.projects.get(key)
    again = run(project.run_file, project.output)
    assert again.status == "unchanged"
    assert len(Ledger().reservations()) == 1


def test_answers_and_estimates_are_those_of_the_release(released):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    base, release = f"/p/{released.project.id}", Release.load(released.project.release)
    asked = {"condition": ["a:sex", "b:age"], "value-a": "F", "from-b": "30", "to-b": "50"}
    page = browser.get(f"{base}/answer", params=asked).text
    expected = release.answer({"sex": ["F"], "age": ("30", "50")})
    assert f"{expected.value:.0f} rows" in page
    shares = browser.get(f"{base}/answer", params=asked | {"share": "yes", "confidence": "90"}).text
    assert "of all rows" in shares
    assert "confidence 90 %" in shares
    asked = {"first": "age", "other": "sex", "assume": "0.1"}
    page = browser.get(f"{base}/infer", params=asked | {"statistic": "mean"}).text
    lines = release.infer("mean(age) | sex", assume=0.1).lines
    assert all(f"{line.estimate:.4g}" in page for line in lines)
    assert "age ~ C(sex)" in browser.get(f"{base}/infer", params=asked | {"statistic": "regression"}).text


@pytest.mark.parametrize(
    ("page", "params", "words"),
    [
        ("answer", {}, "Add at least one condition"),
        ("answer", {"condition": "a:sex"}, "choose at least one value"),
        ("answer", {"condition": "a:age"}, "give at least one end"),
        ("answer", {"condition": ["a:sex", "b:sex"], "value-a": "F", "value-b": "M"}, "two conditions"),
        ("answer", {"condition": "a:sex", "value-a": "F", "confidence": "high"}, "give a number"),
        ("answer", {"condition": "a:sex", "value-a": "F", "confidence": "200"}, "between 0 and 1"),
        ("infer", {"statistic": "mode", "first": "age"}, "Choose a statistic"),
        ("infer", {"statistic": "corr", "first": "age"}, "other column"),
        ("infer", {"statistic": "mean", "first": "nobody"}, "no such column"),
        ("condition", {"column": "nobody"}, "no such column"),
    ],
)
def test_a_question_that_makes_no_sense(released, page, params, words):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    answer = browser.get(f"/p/{released.project.id}/{page}", params=params, headers={"hx-request": "true"})
    assert answer.status_code == 400
    assert words in answer.text


# -- columns --


def save(browser: Browser, project: Any, place: int, **form: str) -> Any:
    fields = {"version": str(project.version), "empty": "yes", **form}
    return browser.send_form(f"/p/{project.id}/columns/{place}", **fields)


def test_a_column_is_checked_at_once_and_saved(custodian, studio, people):
    project = draft_now(studio, people)
    check = f"/p/{project.id}/columns/0/check"
    wrong = custodian.send_form(check, kind="integer", minimum="90", maximum="10")
    assert "not below" in wrong.text
    assert "This fits" in custodian.send_form(check, kind="integer", minimum="0", maximum="120").text
    assert save(custodian, project, 0, kind="integer", minimum="90", maximum="10").status_code == 400
    assert studio.projects.get(project.id).version == project.version
    form = {"kind": "integer", "minimum": "0", "maximum": "120", "bins": "12", "title": "Age in years"}
    assert save(custodian, project, 0, **form, missing="-9 = refused").status_code == 303
    project = studio.projects.get(project.id)
    field = project.content()["fields"][0]
    assert field["constraints"] == {"minimum": 0, "maximum": 120}
    assert field["understudy"] == {"missing": {"-9": "refused"}, "bins": 12, "origin": "reviewed"}
    assert save(custodian, project, 1, kind="ordinal", values="F = female\nM = male\n").status_code == 303
    project = studio.projects.get(project.id)
    assert project.content()["fields"][1]["categories"][0] == {"value": "F", "label": "female"}
    assert save(custodian, project, 2, kind="drop").status_code == 303
    assert studio.projects.get(project.id).schema().column("region").kind == "drop"


REGIONS = {"kind": "categorical", "values": "North\nEast\nSouth"}
HALVES = {"level-name-1": "half", "level-text-1": "North = up\nEast = down\nSouth = down", "level-rest-1": ""}


def test_groupings_of_values_are_built_by_a_form(custodian, studio, people):
    """A line for each value, then a line for each group; what was saved is shown again."""
    project = draft_now(studio, people)
    base = f"/p/{project.id}/columns/2"
    page = custodian.send_form(f"{base}/kind", **REGIONS, add_level="yes").text
    assert "North = \nEast = \nSouth = </textarea>" in page
    page = custodian.send_form(f"{base}/kind", **REGIONS, **HALVES, add_level="yes").text
    assert "up = \ndown = </textarea>" in page
    assert 'name="level-name-3"' not in page
    page = custodian.send_form(f"{base}/kind", **REGIONS, **HALVES, remove_level="1").text
    assert "level-name-1" not in page
    whole = {"level-name-2": "all", "level-text-2": "up = everywhere", "level-rest-2": "everywhere"}
    assert "This fits" in custodian.send_form(f"{base}/check", **REGIONS, **HALVES, **whole).text
    assert save(custodian, project, 2, **REGIONS, **HALVES, **whole).status_code == 303
    project = studio.projects.get(project.id)
    levels = project.content()["fields"][2]["understudy"]["levels"]
    assert levels[0] == {"name": "half", "groups": {"up": ["North"], "down": ["East", "South"]}}
    assert levels[1] == {"name": "all", "groups": {"everywhere": ["up"]}, "rest": "everywhere"}
    assert list(project.schema().column("region").generalisations) == ["half", "all"]
    page = custodian.get(base).text
    assert "North = up\nEast = down\nSouth = down</textarea>" in page
    age = {"kind": "integer", "minimum": "0", "maximum": "99", "bins": "{width: 5}", "level-name-1": "tens"}
    assert save(custodian, project, 0, **age, **{"level-text-1": "10"}).status_code == 303
    project = studio.projects.get(project.id)
    assert save(custodian, project, 0, **age, **{"level-text-1": "0, 20, 65"}).status_code == 303
    field = studio.projects.get(project.id).content()["fields"][0]
    assert field["understudy"]["levels"] == [{"name": "tens", "edges": [0, 20, 65]}]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (HALVES | {"level-name-1": ""}, "give the grouping a name"),
        (HALVES | {"level-text-1": "North = up\nEast =\nSouth = down"}, "has no group"),
        (HALVES | {"level-text-1": "North = up\nEast = down"}, "leaves out"),
        (HALVES | {"level-text-1": "North = up\nNorth = down", "level-rest-1": "x"}, "two groups"),
        (HALVES | {"level-text-1": "West = up", "level-rest-1": "x"}, "not a value of the column"),
        (HALVES | {"level-name-2": "b", "level-text-2": "North = x\nEast = x\nSouth = y"}, "splits a group"),
        ({"levels_text": "- {name: ["}, "cannot be read"),
        ({"levels_text": "- {name: half, groups: {a: [North]}}"}, "leaves out"),
    ],
)
def test_a_grouping_that_does_not_fit(custodian, studio, people, form, words):
    project = draft_now(studio, people)
    assert words in custodian.send_form(f"/p/{project.id}/columns/2/check", **REGIONS, **form).text
    refused = save(custodian, project, 2, **REGIONS, **form)
    assert refused.status_code == 400
    assert words in refused.text


def test_a_draft_that_is_edited_in_two_tabs(custodian, studio, people):
    project = draft_now(studio, people)
    assert save(custodian, project, 1, kind="drop").status_code == 303
    second = save(custodian, project, 2, kind="drop")
    assert second.status_code == 409
    assert "changed in another tab" in second.text
    assert "Nothing was spent" in second.text
    kinds = [field.get("understudy", {}).get("kind") for field in studio.projects.get(project.id).content()["fields"]]
    assert kinds == [None, "drop", None]
    assert custodian.send_form(f"/p/{project.id}/columns", unit="row", version=str(project.version)).status_code == 409


STAYS = {"start": ["2024-01-03", "2024-02-05"], "stop": ["2024-03-01", "2024-04-01"]}


@pytest.mark.parametrize(
    ("form", "rule", "words"),
    [
        ({"kind": "order", "first": "start", "second": "stop"}, {"order": ["start", "stop"]}, "start ≤ stop"),
        (
            {"kind": "order", "first": "start", "second": "stop", "strict": "yes"},
            {"order": ["start", "stop"], "strict": True},
            "start &lt; stop",
        ),
        (
            {"kind": "determines", "first": "region", "second": "sex", "map": "North = F\nSouth ="},
            {"from": ["region"], "determines": "sex", "map": {"North": "F"}},
            "region determines sex (North → F)",
        ),
        (
            {"kind": "impossible", "condition": ["a:sex", "b:age"], "value-a": "F", "to-b": "30"},
            {"impossible": {"sex": ["F"], "age": {"maximum": 30}}},
            "Never at once: sex is F; age is at most 30",
        ),
        (
            {"kind": "impossible", "condition": ["a:start"], "from-a": "2024-02-01", "to-a": "2024-02-04"},
            {"impossible": {"start": {"minimum": "2024-02-01", "maximum": "2024-02-04"}}},
            "start is at least 2024-02-01 and at most 2024-02-04",
        ),
        ({"rule": "impossible: {sex: [F]}"}, {"impossible": {"sex": ["F"]}}, "Never at once: sex is F"),
    ],
)
def test_a_rule_is_built_checked_added_and_removed(custodian, studio, tmp_path, form, rule, words):
    project = draft_now(studio, write_people(tmp_path / "stays.csv", **STAYS))
    rules, content = f"/p/{project.id}/rules", project.content()
    content["understudy"].pop("rules", None)
    project.write_content(content)
    version = str(project.version)
    assert "This fits" in custodian.send_form(f"{rules}/check", **form).text
    assert "rules" not in project.content()["understudy"]
    answer = custodian.send_form(rules, **form, version=version)
    assert answer.status_code == 303, answer.text
    project = studio.projects.get(project.id)
    assert project.content()["understudy"]["rules"] == [rule]
    assert words in custodian.get(f"/p/{project.id}/columns").text
    assert len(project.schema().rules) == 1
    custodian.send_form(rules, remove="0", version=str(project.version))
    assert "rules" not in studio.projects.get(project.id).content()["understudy"]


@pytest.mark.parametrize(
    ("form", "words", "check"),
    [
        ({"kind": "order", "first": "age", "second": "age"}, "two different columns", ""),
        ({"kind": "order", "first": "age"}, "two different columns", ""),
        ({"kind": "impossible"}, "at least one condition", ""),
        ({"kind": "impossible", "condition": "a:age"}, "at least one end", ""),
        ({"kind": "impossible", "condition": "a:nobody"}, "no such column", ""),
        ({"kind": "order", "first": "age", "second": "sex"}, "order", "wrong"),
        ({"kind": "determines", "first": "region", "second": "sex", "map": "West = F"}, "West", "wrong"),
        ({"rule": "impossible: {nobody: 1}"}, "impossible", "wrong"),
        ({"rule": "{{"}, "cannot be read", "wrong"),
        ({"rule": "just words"}, "cannot be read", "wrong"),
    ],
)
def test_a_rule_that_does_not_fit(custodian, studio, people, form, words, check):
    """Said at once if it contradicts the columns, and only when it is sent if it is not complete."""
    project = draft_now(studio, people)
    said = custodian.send_form(f"/p/{project.id}/rules/check", **form).text
    assert (words in said) is (check == "wrong"), said
    answer = custodian.send_form(f"/p/{project.id}/rules", **form, version=str(project.version))
    assert answer.status_code == 400
    assert words in answer.text
    assert studio.projects.get(project.id).version == project.version


def test_the_fields_of_a_rule_follow_its_kind(custodian, studio, people):
    project = draft_now(studio, people)
    base = f"/p/{project.id}/rules"
    assert 'name="strict"' in custodian.get(f"{base}/fields", params={"kind": "order"}).text
    assert 'name="map"' in custodian.get(f"{base}/fields", params={"kind": "determines"}).text
    assert "rules/condition" in custodian.get(f"{base}/fields", params={"kind": "impossible"}).text
    assert 'name="from-' in custodian.get(f"{base}/condition", params={"column": "age"}).text
    assert 'value="F"' in custodian.get(f"{base}/condition", params={"column": "sex"}).text
    assert custodian.get(f"{base}/condition").text == ""


def test_the_days_between_two_dates_are_chosen_by_a_form(custodian, studio, tmp_path):
    table = write_people(tmp_path / "stays.csv", **STAYS, days=["57", "56"])
    project = draft_now(studio, table)
    place = [field["name"] for field in project.content()["fields"]].index("days")
    assert "choose the later" in save(custodian, project, place, kind="difference", later="stop").text
    assert save(custodian, project, place, kind="difference", later="stop", earlier="start").status_code == 303
    field = studio.projects.get(project.id).content()["fields"][place]
    assert field["understudy"] == {"kind": "difference", "of": ["stop", "start"], "origin": "reviewed"}
    page = custodian.get(f"/p/{project.id}/columns/{place}").text
    assert "<option selected>stop</option>" in page


def test_everything_is_left_to_discovery_instead_of_drafted(custodian, studio, people, monkeypatch):
    project = studio.projects.begin(studio.projects.new_folder(), table=str(people), shown="people", name="people")
    monkeypatch.setattr(jobs.Jobs, "start", lambda *_, **__: pytest.fail("no job reads rows"))
    assert custodian.send_form(f"/p/{project.id}/draft", how="buy").status_code == 303
    page = custodian.get(f"/p/{project.id}/columns").text
    assert page.count("Found out with budget") == 3
    assert "For the custodian only" not in page
    project = accept_now(custodian, studio.projects.get(project.id))
    assert [column.kind for column in project.schema().columns] == ["open"] * 3


def test_a_schema_page_of_many_columns_can_be_searched(custodian, studio):
    project = studio.projects.begin(studio.projects.new_folder(), table="/nowhere.csv", shown="wide", name="wide")
    fields = [
        {"name": f"q{number}", "type": "string", "categories": ["a", "b"], "understudy": {"status": "draft"}}
        for number in range(500)
    ]
    project.write_content({"fields": fields, "understudy": {}})
    assert custodian.get(f"/p/{project.id}/columns").text.count('<li id="c') == 500
    found = custodian.get(f"/p/{project.id}/columns", params={"q": "Q49"}, headers={"hx-request": "true"}).text
    assert found.count('<li id="c') == 11
    assert "<html" not in found


# -- what goes wrong --


@pytest.mark.slow
def test_a_table_that_vanishes(custodian, studio, tmp_path):
    table = write_people(tmp_path / "gone.csv")
    project = accept_now(custodian, draft_now(studio, table))
    project = choose_budget(studio, project)
    table.unlink()
    page = custodian.get(f"/p/{project.id}/table")
    assert page.status_code == 400
    assert "What to do next" in page.text
    custodian.send_form(f"/p/{project.id}/release")
    assert wait_for(custodian.studio, project.id).state == "failed"
    page = custodian.get(f"/p/{project.id}/release").text
    assert "Nothing was spent." in page
    assert "Start again" in page
    assert Ledger().total("gone").runs == 0


def test_a_run_that_fails_after_spending_is_continued_at_no_cost(custodian, studio, people, monkeypatch):
    project = choose_budget(studio, accept_now(custodian, draft_now(studio, people)))
    from understudy.mechanism.independent import Independent

    def fail(self: Any, *_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "a row of Jane Doe")

    with monkeypatch.context() as patch:
        patch.setattr(Independent, "conclude", fail)
        from understudy.errors import RunInterrupted

        with pytest.raises(RunInterrupted):
            release_now(studio, project)
    jobs._write_job(project.folder, Job("release", "failed", time.time(), message="OSError at base.py:1"))
    page = custodian.get(f"/p/{project.id}/release").text
    assert "The budget is spent." in page
    assert "Continue at no further cost" in page
    assert "Jane" not in page
    for change in (f"/p/{project.id}/columns", f"/p/{project.id}/budget", f"/p/{project.id}/draft"):
        refused = custodian.send_form(change, unit="row", version=str(project.version), people="400", epsilon="1")
        assert refused.status_code == 400
        assert "cannot be changed" in refused.text
    spent = Ledger().total("people").rho
    release_now(studio, project)
    assert Ledger().total("people").rho == spent
    assert Ledger().total("people").runs == 1


@pytest.mark.slow
def test_a_release_beyond_the_grant_is_refused_before_a_row_is_read(custodian, studio, people):
    Ledger().grant(Grant("people", epsilon=1.0))
    project = choose_budget(studio, accept_now(custodian, draft_now(studio, people)))
    assert "of epsilon 1 is used" in custodian.get(f"/p/{project.id}/release").text
    custodian.send_form(f"/p/{project.id}/release")
    job = wait_for(custodian.studio, project.id)
    assert job.state == "failed"
    assert "grant" in job.message
    assert "Nothing was spent." in custodian.get(f"/p/{project.id}/release").text


@pytest.mark.slow
def test_cancelling_says_what_is_kept(custodian, studio, people):
    project = choose_budget(studio, accept_now(custodian, draft_now(studio, people)))
    custodian.send_form(f"/p/{project.id}/release")
    while (job := read_job(project)) is None or job.process is None:
        time.sleep(0.02)
    custodian.send_form(f"/p/{project.id}/cancel")
    job = wait_for(custodian.studio, project.id)
    assert job.state in ("cancelled", "done")  # a quick machine may be done first
    page = custodian.get(f"/p/{project.id}/release", follow_redirects=True).text
    assert "What was spent" in page or "the stand-in is ready" in page


@pytest.mark.slow
def test_a_job_that_is_killed_is_noticed(custodian, studio, people):
    project = choose_budget(studio, accept_now(custodian, draft_now(studio, people)))
    custodian.send_form(f"/p/{project.id}/release")
    while (job := read_job(project)) is None or job.process is None:
        time.sleep(0.02)
    os.kill(job.process, signal.SIGKILL)
    job = wait_for(custodian.studio, project.id)
    assert job.state == "lost"
    page = custodian.get(f"/p/{project.id}/release").text
    assert "ended without a word" in page
    assert re.search("Nothing was spent|budget is reserved|budget is spent", page)


def test_a_second_job_of_a_project_is_refused(custodian, studio, people):
    project = draft_now(studio, people)
    me = Job("release", "running", time.time(), process=os.getpid(), created=jobs.psutil.Process().create_time())
    jobs._write_job(project.folder, me)
    with pytest.raises(jobs.InputError, match="worked on already"):
        studio.jobs.start(project, "draft")
    assert custodian.send_form(f"/p/{project.id}/columns", unit="row", version="1").status_code == 400


def test_a_full_disk(custodian, studio, people, monkeypatch):
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(uploads.os, "write", full)
        answer = custodian.upload("people.csv", people.read_bytes())
    assert answer.status_code == 507
    assert "the disk is full" in answer.text
    assert "Make room" in answer.text
    assert list(studio.projects.folder.iterdir()) == []


def test_a_ledger_that_is_locked(custodian, studio, people, ledger_folder, monkeypatch):
    monkeypatch.setattr("understudy.ledger.database._WAIT_SECONDS", 0.1)
    Ledger().add_dataset("people")
    connection = sqlite3.connect(os.environ["UNDERSTUDY_LEDGER"], isolation_level=None)
    connection.execute("pragma locking_mode = exclusive")
    connection.execute("begin exclusive")
    try:
        answer = custodian.send_form("/ledger/grant", dataset="people", epsilon="1")
        assert answer.status_code == 503
        assert "locked" in answer.text
        assert "End the other program" in answer.text
    finally:
        connection.close()


def test_a_damaged_ledger_is_reported_by_verify(custodian):
    Ledger().add_dataset("people")
    assert "Every entry is intact" in custodian.send_form("/ledger/verify").text
    with sqlite3.connect(os.environ["UNDERSTUDY_LEDGER"]) as connection:
        connection.execute("update understudy_entries set dataset = 'others'")
    connection.close()
    answer = custodian.send_form("/ledger/verify")
    assert "was altered" in answer.text
    assert "Traceback" not in answer.text


# -- places, budgets and grants that make no sense --


@pytest.mark.parametrize(
    ("path", "form", "words"),
    [
        ("/begin", {"place": ""}, "No table was named"),
        ("/begin", {"place": "/no/such/file.csv"}, "cannot be read"),
        ("/ledger/grant", {"dataset": "people"}, "how much may be spent"),
        ("/ledger/grant", {"dataset": "people", "epsilon": "-1"}, "positive"),
        ("/ledger/grant", {"dataset": "a/b", "epsilon": "1"}, "letters, digits"),
        ("/ledger/revoke", {"grant": "7"}, "not in the ledger"),
        ("/ledger/token", {"role": "king", "name": "Ana"}, "unknown"),
        ("/ledger/token", {"role": "analyst", "name": " "}, "whom the token is for"),
    ],
)
def test_a_form_that_makes_no_sense(custodian, path, form, words):
    answer = custodian.send_form(path, **form)
    assert answer.status_code == 400
    assert words in answer.text
    assert "What to do next" in answer.text


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"people": "400", "epsilon": "0"}, "from 0.01 to 20"),
        ({"people": "400", "epsilon": "x"}, "give a number"),
        ({"people": "3", "epsilon": "1"}, "at least 10"),
        ({"people": "", "epsilon": "1"}, "about how many people"),
        ({"people": "400", "epsilon": "1", "mechanism": "magic"}, "choose one of the list"),
    ],
)
def test_a_budget_that_makes_no_sense(custodian, studio, people, form, words):
    project = accept_now(custodian, draft_now(studio, people))
    answer = custodian.send_form(f"/p/{project.id}/budget", **form, version=str(project.version))
    assert answer.status_code == 400
    assert words in answer.text


def test_the_run_file_is_one_of_the_command_line(released):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    content = yaml.safe_load(browser.get(f"/p/{released.project.id}/files/run.yaml").text)
    assert content["budget"] == {"epsilon": 2.0, "delta": 1e-06}
    assert content["schema"] == "schema.yaml"
    assert Path(content["data"]).name == "people.csv"


def test_another_release_of_the_same_table_begins_with_its_columns(released):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    answer = browser.send_form(f"/p/{released.project.id}/again")
    key = answer.headers["location"].split("/")[2]
    assert key != released.project.id
    new = released.studio.projects.get(key)
    assert json.dumps(new.content()) == json.dumps(released.project.content())
    assert new.version != released.project.version or not new.release.exists()


def test_the_ledger_is_read_again_after_an_entry_of_another_process(custodian, studio, people):
    """Pages keep what they read; a run on the command line and an answer to it are seen at once."""
    project = choose_budget(studio, accept_now(custodian, draft_now(studio, people)))
    project.write_run()
    base = f"/p/{project.id}"
    assert "nobody has limited it" in custodian.get(f"{base}/budget").text
    assert "Nothing was spent yet" in custodian.get("/ledger").text
    Ledger().grant(Grant("people", epsilon=3.0))
    assert "of epsilon 3 is used" in custodian.get(f"{base}/budget").text
    assert "epsilon 3 at delta" in custodian.get("/ledger").text
    assert "cannot change any more" not in custodian.get(f"{base}/columns").text
    run(project.run_file, project.output)
    assert "cannot change any more" in custodian.get(f"{base}/columns").text
    assert "finished" in custodian.get("/ledger").text


def test_grants_and_tokens_of_the_ledger_page(custodian):
    assert custodian.send_form("/ledger/grant", dataset="people", epsilon="4", per="year").status_code == 303
    page = custodian.get("/ledger").text
    assert "epsilon 4 at delta 1e-06 in any 365 days" in page
    (grant,) = Ledger().grants()
    custodian.send_form("/ledger/revoke", grant=str(grant.number))
    assert Ledger().grants()[0].revoked
    page = custodian.send_form("/ledger/token", role="analyst", name="Ana").text
    secret = re.search(r'class="secret">([^<]+)<', page)
    assert secret is not None
    assert secret[1] not in custodian.get("/ledger").text
    assert [token.name for token in Ledger().tokens()] == ["Ana"]


def test_the_ledger_records_the_holder_of_a_token(tmp_path):
    studio = make_studio(tmp_path / "studio", local=False)
    token, secret = Ledger().add_token("custodian", "Cleo")
    browser = Browser(studio, Session("custodian", token.holder, "Cleo", secret), "studio.example.org")
    assert browser.send_form("/ledger/grant", dataset="people", epsilon="4").status_code == 303
    assert [entry.who for entry in Ledger().entries() if entry.kind == "grant"] == [token.holder]
    assert "Cleo, custodian" in browser.get("/ledger").text


def test_beyond_this_machine_tokens_and_a_name_are_demanded(call):
    code, _, err = call("studio", "--host", "0.0.0.0", "--no-browser")  # noqa: S104
    assert code == 3
    assert "understudy ledger token" in err
    assert call("ledger", "token", "--role", "custodian", "--name", "Cleo")[0] == 0
    code, _, err = call("studio", "--host", "0.0.0.0", "--no-browser")  # noqa: S104
    assert code == 3
    assert "--name" in err
    assert call("studio", "--port", "99999", "--no-browser")[0] == 3
    Ledger().revoke_token(1)
    code, _, err = call(
        "studio", "--name", "studio.example.org", "--no-browser"
    )  # a proxy brings people from elsewhere
    assert code == 3
    assert "understudy ledger token" in err
    assert call("studio", "--hours", "0", "--no-browser")[0] == 3


@pytest.mark.parametrize("platform", ["win32", "darwin", "linux"])
def test_an_icon_that_starts_the_studio(platform, tmp_path, monkeypatch, call):
    from understudy.cli import studio as shortcut

    path, text, words = shortcut.make_shortcut(platform, "/opt/my apps/bin/python")
    assert path.name.lower().replace(" ", "-").startswith("understudy-studio.")
    assert "/opt/my apps/bin/python" in text
    assert "-m understudy studio" in text
    monkeypatch.setattr(shortcut, "make_shortcut", lambda *_: (tmp_path / "menu" / path.name, text, words))
    code, out, _ = call("studio", "--shortcut")
    assert code == 0
    assert "Written:" in out
    written = tmp_path / "menu" / path.name
    assert written.read_bytes() == text.encode()
    assert os.access(written, os.X_OK)
    (tmp_path / "menu" / path.name).unlink()
    (tmp_path / "menu").rmdir()
    (tmp_path / "menu").write_text("in the way")
    code, _, err = call("studio", "--shortcut")
    assert code != 0
    assert "start the studio from a terminal" in err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runs the line of a desktop entry")
def test_the_icon_of_linux_runs_this_python():
    from understudy.cli.studio import make_shortcut

    _, text, _ = make_shortcut("linux", sys.executable)
    line = next(line for line in text.splitlines() if line.startswith("Exec="))
    command = [*shlex.split(line.removeprefix("Exec=")), "--help"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "--shortcut" in shown.stdout


def test_the_footer_says_what_is_true(custodian, tmp_path):
    assert "Everything stays on this machine." in custodian.get("/").text
    studio = make_studio(tmp_path / "beyond", local=False)
    page = Browser(studio, Session("custodian", "token:1", "cleo", "secret"), "studio.example.org").get("/").text
    assert "Everything stays on this machine." not in page
    assert "Tables stay on the machine that runs the studio." in page


def test_the_hosts_that_are_the_studios_own():
    from understudy.studio.server import list_hosts

    local = list_hosts("127.0.0.1", 8080, [], local=True)
    assert local == {"localhost:8080", "127.0.0.1:8080", "[::1]:8080"}
    assert list_hosts("0.0.0.0", 8443, ["Studio.example.org"], local=False) == {"studio.example.org"}  # noqa: S104
    assert list_hosts("10.0.0.5", 8443, [], local=False) == {"10.0.0.5:8443"}
