"""A studio in this process, one that listens on a port, and a release that was made once."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the studio needs understudy[studio]")
pytest.importorskip("uvicorn", reason="the studio needs understudy[studio]")
pytest.importorskip("httpx2", reason="the tests of the studio need httpx2")

import numpy as np
import uvicorn
from starlette.testclient import TestClient

from understudy.progress import silent
from understudy.studio import jobs
from understudy.studio.app import Studio, close_studio, make_app
from understudy.studio.guard import Session, Sessions
from understudy.studio.jobs import Jobs, Limits
from understudy.studio.pages import PAGES
from understudy.studio.planner import Planner
from understudy.studio.project import Project, Projects
from understudy.studio.results import RESULTS
from understudy.studio.server import HeaderTimeout, make_server
from understudy.studio.uploads import UploadLimits

HOST = "127.0.0.1:8080"
PEOPLE = 400


def write_people(path: Path, **more: list[str]) -> Path:
    """A table of made-up people, with further columns that tests choose."""
    rng = np.random.default_rng(1)
    columns: dict[str, list[Any]] = {
        "age": rng.integers(20, 80, PEOPLE).tolist(),
        "sex": rng.choice(["F", "M"], PEOPLE).tolist(),
        "region": rng.choice(["North", "South", "East"], PEOPLE).tolist(),
        **{name: [values[i % len(values)] for i in range(PEOPLE)] for name, values in more.items()},
    }
    quoted = [[f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in cells] for cells in columns.values()]
    head = ",".join(f'"{name}"' for name in columns)
    path.write_text("\n".join([head, *(",".join(row) for row in zip(*quoted, strict=True))]) + "\n", encoding="utf-8")
    return path


MADE: list[Studio] = []


@pytest.fixture(autouse=True)
def close_studios() -> Iterator[None]:
    """End the processes that predict, of every studio that a test made."""
    yield
    for studio in MADE:
        close_studio(studio)


def make_studio(folder: Path, *, launch: str | None = None, **options: Any) -> Studio:
    projects = Projects(folder)
    limits = Limits(memory_bytes=4 << 30, seconds=300)
    made = Studio(
        projects=projects,
        sessions=Sessions(secure=not options.get("local", True), launch=launch),
        jobs=Jobs(projects, options.get("ledger_address"), options.pop("limits", limits)),
        planner=Planner(limits),
        **options,
    )
    MADE.append(made)
    return made


class Browser(TestClient):
    """A client that behaves like a page of the studio: it sends the session's cookie and CSRF token."""

    def __init__(self, studio: Studio, session: Session | None, host: str = HOST) -> None:
        scheme = "http" if studio.local else "https"
        app = make_app(studio, frozenset({host}), (*PAGES, *RESULTS))
        super().__init__(app, base_url=f"{scheme}://{host}", follow_redirects=False, raise_server_exceptions=True)
        self.studio, self.session = studio, session
        if session is not None:
            from starlette.responses import Response

            response = studio.sessions.open(session, Response())
            key = re.match(rf"{studio.sessions.cookie}=([^;]+)", response.headers["set-cookie"])
            assert key is not None
            self.cookies.set(studio.sessions.cookie, key[1])

    def send_form(self, path: str, *, follow: bool = False, **fields: Any) -> Any:
        assert self.session is not None
        return self.post(path, data={"csrf": self.session.csrf, **fields}, follow_redirects=follow)

    def upload(self, name: str, content: bytes, **headers: str) -> Any:
        assert self.session is not None
        return self.post("/upload", data={"csrf": self.session.csrf}, files={"file": (name, content)}, headers=headers)


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return make_studio(tmp_path / "studio")


@pytest.fixture
def custodian(studio: Studio) -> Browser:
    return Browser(studio, Session("custodian", "user:tester", "tester"))


@pytest.fixture
def analyst(studio: Studio) -> Browser:
    return Browser(studio, Session("analyst", "token:0", "ana", "secret"))


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_people(tmp_path / "people.csv")


def draft_now(studio: Studio, table: Path) -> Project:
    """A project with a draft, made in this process."""
    project = studio.projects.begin(studio.projects.new_folder(), table=str(table), shown=table.name, name=table.stem)
    jobs.TASKS["draft"](studio.projects, project, silent)
    return studio.projects.get(project.id)


def accept_now(browser: Browser, project: Project) -> Project:
    answer = browser.send_form(f"/p/{project.id}/columns", unit="row", version=str(project.version))
    assert answer.status_code == 303, answer.text
    return browser.studio.projects.get(project.id)


def choose_budget(studio: Studio, project: Project, **facts: Any) -> Project:
    """A project with a budget, without waiting for a prediction."""
    budget = {"people": 400, "epsilon": 2.0, "delta": 1e-6, "mechanism": "independent", "chosen": "independent"}
    with studio.projects.edit(project.id) as edit:
        edit.set(**budget | facts)
    return studio.projects.get(project.id)


def release_now(studio: Studio, project: Project) -> Project:
    """Make the release in this process."""
    project.write_run()
    jobs.TASKS["release"](studio.projects, project, silent)
    jobs._write_job(project.folder, jobs.Job("release", "done", time.time()))
    return project


def wait_for(studio: Studio, key: str, seconds: float = 120.0) -> jobs.Job:
    """Wait for the end of a job."""
    deadline = time.monotonic() + seconds
    while (job := jobs.read_job(studio.projects.get(key))) is None or job.active:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    return job


def run_jobs_here(patch: pytest.MonkeyPatch) -> None:
    """Run jobs in this process, at once: pages are then asked as they are by browsers, without waiting."""

    def start(self: Jobs, project: Project, task: str, *, token: str | None = None) -> None:
        jobs.TASKS[task](self._projects, project, silent)
        jobs._write_job(project.folder, jobs.Job(task, "done", time.time()))

    patch.setattr(Jobs, "start", start)


@dataclass(frozen=True)
class Released:
    """A studio with a finished release, shared by tests that change nothing."""

    studio: Studio
    project: Project

    def share(self, shared: bool) -> None:
        with self.studio.projects.edit(self.project.id) as edit:
            edit.set(shared=shared)


SCRIPT = "<script>alert(1)</script>"
FORMULA = "=HYPERLINK(1)"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    folder = tmp_path_factory.mktemp("released")
    studio = make_studio(folder / "studio", ledger_address=str(folder / "ledger.db"))
    table = write_people(
        folder / "people.csv", **{SCRIPT: ["a", "b"], "note": [SCRIPT, "plain"], "cell": [FORMULA, "x"]}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERSTUDY_LEDGER", str(folder / "ledger.db"))
        browser = Browser(studio, Session("custodian", "user:tester", "tester"))
        project = accept_now(browser, draft_now(studio, table))
        project = release_now(studio, choose_budget(studio, project))
    return Released(studio, replace(project))


@dataclass
class Running:
    """A studio that listens on a port of this machine."""

    studio: Studio
    port: int
    launch: str
    address: str = ""

    def __post_init__(self) -> None:
        self.address = self.address or f"http://127.0.0.1:{self.port}"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a studio that listens on a port of this machine."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(protocol: type[HeaderTimeout] = HeaderTimeout, **options: Any) -> Running:
        studio = make_studio(tmp_path / "served", launch="launch-secret", **options)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        app = make_app(studio, frozenset({f"127.0.0.1:{port}", f"localhost:{port}"}), (*PAGES, *RESULTS))
        server = make_server(app, protocol)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        servers.append((server, thread))
        return Running(studio, port, "launch-secret")

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def small_uploads() -> UploadLimits:
    return UploadLimits(size_bytes=50_000, expanded_bytes=10**7, free_bytes=10**6, silence_seconds=0.5)
