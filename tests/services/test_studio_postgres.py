"""The studio with a table of PostgreSQL: from an address, typed into a page, to the report."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the studio needs understudy[studio]")

from understudy.ledger import Ledger

from ..studio.conftest import close_studios, custodian, run_jobs_here, studio, wait_for, write_people  # noqa: F401
from ..studio.test_places import release_from
from .conftest import PASSWORD


@pytest.fixture
def address(postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a table of people; the password is in the environment, as for every PostgreSQL program."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    text = write_people(tmp_path / "people.csv").read_text(encoding="utf-8")
    with postgres.connect() as connection:
        connection.execute("drop table if exists studio_people")
        connection.execute("create table studio_people (age integer, sex text, region text)")
        with connection.cursor().copy("copy studio_people from stdin (format csv, header)") as copy:
            copy.write(text)
    return f"{postgres.url}?table=studio_people"


def test_from_an_address_to_the_report(custodian, address, monkeypatch):  # noqa: F811
    run_jobs_here(monkeypatch)
    project = release_from(custodian, address)
    assert project.shown == "studio_people"
    pages = [custodian.get(path).text for path in ("/", f"/p/{project.id}/table", f"/p/{project.id}/files/run.yaml")]
    assert not any(PASSWORD in page for page in pages)


@pytest.mark.slow
def test_from_an_address_to_the_report_with_real_jobs(custodian, studio, address):  # noqa: F811
    """Jobs are processes of their own, which find the password as the studio does."""
    base = custodian.send_form("/begin", place=address).headers["location"].removesuffix("/table")
    key = base.split("/")[2]
    custodian.send_form(f"{base}/draft", how="draft", name="people")
    assert wait_for(studio, key).state == "done"
    custodian.send_form(f"{base}/columns", unit="row", version=str(studio.projects.get(key).version))
    form = {"people": "400", "epsilon": "2", "mechanism": "auto", "version": str(studio.projects.get(key).version)}
    assert custodian.send_form(f"{base}/budget", **form).headers["location"] == f"{base}/release"
    custodian.send_form(f"{base}/release")
    assert wait_for(studio, key).state == "done"
    assert "the stand-in is ready" in custodian.get(f"{base}/result").text
    assert "<h1" in custodian.get(f"{base}/report").text
    assert [run.state for run in Ledger().reservations()] == ["finished"]


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("password", "password"),
        ("port", "no database server answers"),
        ("database", "no such database"),
        ("table", "no such table"),
        ("user", "password"),
    ],
)
def test_an_address_that_cannot_be_read(custodian, postgres, address, monkeypatch, wrong, words):  # noqa: F811
    """What is wrong and what to do, as a page; never a stack trace, never the password or the address."""
    places = {
        "port": address.replace(f":{postgres.port}/", f":{closed_port()}/"),
        "database": address.replace("/shop?", "/nowhere?"),
        "table": address.replace("studio_people", "nobody"),
        "user": address.replace("owner@", "stranger@"),
    }
    if wrong == "password":
        monkeypatch.setenv("PGPASSWORD", "not-the-password")
    answer = custodian.send_form("/begin", place=places.get(wrong, address))
    assert answer.status_code == 400
    assert words in answer.text.lower(), answer.text
    assert "What to do next" in answer.text
    for secret in (PASSWORD, "not-the-password", "owner@", "Traceback", "Error at", str(postgres.port)):
        assert secret not in answer.text
    assert custodian.studio.projects.all() == []


def test_a_table_that_vanishes_from_its_database(custodian, postgres, address):  # noqa: F811
    place = custodian.send_form("/begin", place=address).headers["location"]
    with postgres.connect() as connection:
        connection.execute("drop table studio_people")
    answer = custodian.get(place)
    assert answer.status_code == 400
    assert "no such table" in answer.text
    assert "What to do next" in answer.text
