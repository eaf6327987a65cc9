"""A table that stays where it is, a path, a folder or DuckDB: from its place, typed into a page, to the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from .conftest import Browser, accept_now, choose_budget, run_jobs_here, write_people


def make_place(kind: str, folder: Path) -> str:
    """The same people as a file, as two files of a folder, or in a database."""
    table = write_people(folder / "people.csv")
    if kind == "path":
        return str(table)
    rows = pc.read_csv(table)
    if kind == "duckdb":
        duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
        with duckdb.connect(str(folder / "shop.duckdb")) as connection:
            connection.register("given", rows)
            connection.execute("create schema survey; create table survey.people as select * from given")
        return f"duckdb:///{folder}/shop.duckdb?table=survey.people"
    parts = folder / "people"
    parts.mkdir()
    for number, part in enumerate((rows.slice(0, 150), rows.slice(150))):
        if kind == "parquet":
            pq.write_table(part, parts / f"part-{number}.parquet")
        else:
            pc.write_csv(part, parts / f"part-{number}.csv")
    return str(parts) if kind == "parquet" else f"{parts}/*.csv"


def release_from(browser: Browser, place: str) -> Any:
    """Type the place of a table, accept the draft, make the release; returns its project."""
    answer = browser.send_form("/begin", place=place)
    assert answer.status_code == 303, answer.text
    base = answer.headers["location"].removesuffix("/table")
    page = browser.get(f"{base}/table")
    assert "<li>region</li>" in page.text, page.text
    assert browser.send_form(f"{base}/draft", how="draft", name="people").headers["location"] == f"{base}/columns"
    assert 'id="accept"' in browser.get(f"{base}/columns").text
    studio = browser.studio
    project = accept_now(browser, studio.projects.get(base.split("/")[2]))
    choose_budget(studio, project)
    assert "This spends epsilon 2" in browser.get(f"{base}/release").text
    assert browser.send_form(f"{base}/release").headers["location"] == f"{base}/release"
    assert browser.get(f"{base}/release").headers["location"] == f"{base}/result", browser.get(f"{base}/release").text
    assert "the stand-in is ready" in browser.get(f"{base}/result").text
    assert "<h1" in browser.get(f"{base}/report").text
    return studio.projects.get(project.id)


@pytest.mark.parametrize("kind", ["path", "parquet", "csv", "duckdb"])
def test_from_the_place_of_a_table_to_its_report(custodian, tmp_path, monkeypatch, kind):
    run_jobs_here(monkeypatch)
    place = make_place(kind, tmp_path)
    project = release_from(custodian, place)
    assert str(tmp_path) not in custodian.get("/").text or kind == "path"
    again = custodian.send_form("/begin", place=place)
    assert again.headers["location"] != f"/p/{project.id}/table"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("duckdb:///{folder}/none.duckdb?table=people", "no such DuckDB database"),
        ("duckdb:///{folder}/shop.duckdb?table=nobody", "is it a table or view"),
        ("duckdb:///{folder}/shop.duckdb", "the table"),
        ("duckdb:///{folder}/people.csv?table=people", "database"),
        ("mysql://host/db?table=people", "begins with mysql"),
        ("postgresql://me:hunter2@host/db?table=people", "holds a password"),
        ("postgresql://host/db?table=people&password=hunter2", "holds a password"),
        ("{folder}/empty", "no .parquet or .csv file"),
        ("{folder}/none", "check the path"),
        ("{folder}/*.xyz", "no .parquet or .csv file"),
        ("{folder}/notes.docx", "give one of .csv"),
        ("{folder}/clinic.yaml", "linked by keys"),
        ("{folder}/clinic", "linked by keys"),
        ("{folder}/package", "linked by keys"),
    ],
)
def test_a_place_that_cannot_be_read(custodian, tmp_path, place, words):
    """What is wrong and what to do, as a page; never a stack trace, never a password."""
    make_place("duckdb", tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.docx").write_bytes(b"PK\x03\x04\0\0")
    (tmp_path / "clinic.yaml").write_text("resources: []")
    for name, columns in (("patients", "patient,sex"), ("visits", "visit,patient,day")):
        for folder in ("clinic", "package"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{name}.csv").write_text(f"{columns}\n1,2,3\n")
    (tmp_path / "package" / "datapackage.json").write_text("{}")
    answer = custodian.send_form("/begin", place=place.format(folder=tmp_path))
    assert answer.status_code == 400, answer.text
    assert words.lower() in answer.text.lower(), answer.text
    assert "What to do next" in answer.text
    assert "Nothing was spent" in answer.text
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    assert "Error at" not in answer.text
    assert list(custodian.studio.projects.all()) == []
