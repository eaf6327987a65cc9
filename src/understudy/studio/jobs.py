"""Run drafts, rehearsals and releases in child processes, each with a limit of memory and of time.

A job writes its progress into a file of its project, so that it survives a closed browser and a stopped studio. It is
started as ``python -m understudy.studio.jobs FOLDER TASK``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import psutil

from understudy.errors import InputError, OutputError, UnderstudyError, describe_unexpected
from understudy.files import write_atomically
from understudy.progress import Progress, Step
from understudy.studio.project import Project, Projects
from understudy.yaml_json import read_json

State = Literal["starting", "running", "done", "failed", "cancelled", "lost"]

STAGES = {
    "start": "Starting",
    "read": "Reading the table",
    "discover": "Finding out facts, with noise",
    "select": "Choosing what to measure next",
    "measure": "Measuring, with noise",
    "compile": "Preparing the program, once on this machine",
    "estimate": "Fitting the model",
    "sample": "Drawing synthetic rows",
    "write": "Writing the files",
    "evaluate": "Comparing",
}
"""The stages of a job in words."""

LOWERED = 5
"""The lowered priority of a job: a page gets about three times as much of the processor."""

_GRACE_SECONDS = 20.0  # after which a job that does not stop by itself is killed
_STARTING_SECONDS = 120.0
_STARTING = 15.0  # seconds that every job takes to start and to write its files
_WRITES_PER_SECOND = 5


@dataclass(frozen=True)
class Limits:
    """The memory and time that a job may use.

    Attributes:
        memory_bytes: the most memory; by default three quarters of the machine's.
        seconds: the most time.
        jobs: how many jobs may run at once.
    """

    memory_bytes: int = field(default_factory=lambda: int(psutil.virtual_memory().total) * 3 // 4)
    seconds: float = 24 * 3600.0
    jobs: int = 2


@dataclass(frozen=True)
class Job:
    """The state of a job.

    Attributes:
        task: "draft", "rehearse" or "release".
        state: "lost" if its process ended without reporting an end.
        started: when, in seconds since 1970.
        stage: a key of `STAGES`.
        fraction: how much of the stage is done; None if unknown.
        detail: a few words; never about rows.
        message: what went wrong, or what was kept after it was cancelled.
        process: its process.
        created: when the process was created, which tells it from a later one of the same number.
        ended: when it ended.
    """

    task: str
    state: State
    started: float
    stage: str = "start"
    fraction: float | None = None
    detail: str = ""
    message: str = ""
    process: int | None = None
    created: float | None = None
    ended: float | None = None

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return self.state in ("starting", "running")

    @property
    def words(self) -> str:
        """The stage in words."""
        return STAGES.get(self.stage, "Working")

    def time_left(self, expected: float | None) -> str:
        """Return the remaining time, roughly, in words.

        Args:
            expected: about how many seconds the whole job takes; None if unknown.
        """
        passed = time.time() - self.started
        if expected is None:
            return ""
        left = expected + _STARTING - passed
        if left < 0:
            return "a little longer than expected"
        for limit, words in ((15, "a few seconds left"), (60, "less than a minute left")):
            if left < limit:
                return words
        return f"about {round(left / 60)} minutes left" if left < 5400 else f"about {round(left / 3600)} hours left"


def read_job(project: Project) -> Job | None:
    """Return the last job of a project, or None."""
    try:
        data = read_json(_status_file(project.folder).read_bytes())
        known = {one.name for one in fields(Job)}
        job = Job(**{key: value for key, value in data.items() if key in known})
    except (OSError, ValueError, TypeError):
        return None
    return job if not job.active or _is_alive(job, project) else replace(job, state="lost")


class Jobs:
    """Starts and stops jobs.

    Args:
        projects: the projects.
        ledger: the address of the ledger; None for the user's own.
        limits: what each job may use.
    """

    def __init__(self, projects: Projects, ledger: str | None, limits: Limits) -> None:
        self._projects, self._ledger, self.limits = projects, ledger, limits
        self._lock = threading.Lock()

    def start(self, project: Project, task: str, *, token: str | None = None) -> None:
        """Start a job in its own process, which continues if the studio stops.

        Args:
            project: the project.
            task: a key of `TASKS`.
            token: the token of the person who starts it; the ledger records its holder.

        Raises:
            InputError: if the project has a job already, or too many are running.
        """
        with self._lock:
            _reap()
            job = read_job(project)
            if job is not None and job.active:
                raise InputError("this project is being worked on already; wait for it, or cancel it")
            if (last := _children.get(project.folder)) is not None:
                with suppress(subprocess.TimeoutExpired):  # its work is done, and its process is about to end
                    last.wait(_GRACE_SECONDS)
            running = [one for one in map(read_job, self._projects.all()) if one is not None and one.active]
            if len(running) >= self.limits.jobs:
                raise InputError(f"{len(running)} jobs are running already; try again when one of them is done")
            _write_job(project.folder, Job(task, "starting", time.time()))
            environment = os.environ | {"UNDERSTUDY_STUDIO_LIMITS": json.dumps(asdict(self.limits))}
            environment |= {} if self._ledger is None else {"UNDERSTUDY_LEDGER": self._ledger}
            environment |= {} if token is None else {"UNDERSTUDY_TOKEN": token}
            try:
                _children[project.folder] = subprocess.Popen(
                    [sys.executable, "-m", "understudy.studio.jobs", str(project.folder), task],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # Windows: not in the studio's console
                )
            except OSError:
                _write_job(project.folder, Job(task, "failed", time.time(), message="the job could not be started"))
                raise OutputError("a new process cannot be started; close other programs and try again") from None

    def cancel(self, project: Project) -> None:
        """Ask a job to stop; what it recorded is kept."""
        job = read_job(project)
        if job is not None and job.active and job.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(job.process, signal.SIGINT)


_children: dict[Path, subprocess.Popen[bytes]] = {}
"""Processes that this studio started, by their project's folder; they must be waited for."""


def _reap() -> None:
    for folder in [folder for folder, child in _children.items() if child.poll() is not None]:
        del _children[folder]


def _is_alive(job: Job, project: Project) -> bool:
    child = _children.get(project.folder)
    if child is not None and child.poll() is not None:
        return False
    if job.process is None:
        return child is not None or time.time() - job.started < _STARTING_SECONDS
    try:
        found = psutil.Process(job.process)
        return bool(found.create_time() == job.created and found.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _status_file(folder: Path) -> Path:
    return folder / "job.json"


def _write_job(folder: Path, job: Job) -> None:
    with write_atomically(_status_file(folder), private=True, lasting=False) as file:
        file.write(json.dumps(asdict(job)).encode())


# -- In the child process --------------------------------------------------------------------------------------------


class Reporter:
    """Writes the progress of a job into its file, a few times a second."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder, self.job, self._last = folder, job, 0.0
        _write_job(folder, job)

    def __call__(self, step: Step) -> None:
        """Report a step, which contains public facts only."""
        changed = step.stage != self.job.stage
        self.job = replace(self.job, stage=step.stage, fraction=step.fraction, detail=step.detail[:200])
        if changed or time.monotonic() - self._last > 1 / _WRITES_PER_SECOND:
            self._last = time.monotonic()
            _write_job(self.folder, self.job)

    def end(self, state: State, message: str = "") -> None:
        """Report the end."""
        self.job = replace(self.job, state=state, message=message, ended=time.time())
        _write_job(self.folder, self.job)


def _draft(projects: Projects, project: Project, progress: Progress) -> None:
    from understudy.source.draft import draft

    progress(Step("read", None, ""))
    found = draft(project.table)
    project.write_content(found.content)
    with projects.edit(project.id) as edit:
        edit.set(notes=found.notes, questions=found.questions, to_discover=False)


def _rehearse(projects: Projects, project: Project, progress: Progress) -> None:
    from understudy.run import run

    project.write_run()
    run(project.run_file, project.folder / "rehearsal", rehearse=True, progress=progress)


def _release(projects: Projects, project: Project, progress: Progress) -> None:
    from understudy.bundle import make_bundle
    from understudy.release import Release
    from understudy.run import run

    run(project.run_file, project.output, progress=progress)
    if not project.bundle.exists():
        make_bundle(Release.load(project.release), project.bundle, progress=progress)
    progress(Step("write", None, project.archive.name))
    with write_atomically(project.archive, private=True) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as z:
        for path in sorted(path for path in project.bundle.rglob("*") if path.is_file()):
            z.write(path, path.relative_to(project.bundle).as_posix())


TASKS: dict[str, Callable[[Projects, Project, Progress], None]] = {
    "draft": _draft,
    "rehearse": _rehearse,
    "release": _release,
}


def main(folder: Path, task: str, limits: Mapping[str, Any]) -> None:
    """Run a task of a project within its limits, and report how it ended."""
    ended: list[str] = []  # why it was asked to stop

    def stop(number: int, frame: FrameType | None) -> None:
        ended.append("time" if number == getattr(signal, "SIGALRM", None) else "cancel")
        late = threading.Timer(_GRACE_SECONDS, os._exit, [130])  # for a library that blocks interrupts
        late.daemon = True
        late.start()
        raise KeyboardInterrupt

    lower_priority()
    me = psutil.Process()
    reporter = Reporter(folder, Job(task, "running", time.time(), process=me.pid, created=me.create_time()))
    signal.signal(signal.SIGINT, stop)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, float(limits["seconds"]))
    limit_memory(int(limits["memory_bytes"]))
    try:
        projects = Projects(folder.parent)
        TASKS[task](projects, projects.get(folder.name), reporter)
        reporter.end("done")
    except KeyboardInterrupt as interrupt:
        kept = " ".join(getattr(interrupt, "__notes__", []))
        if ended[:1] == ["time"]:
            reporter.end("failed", f"it took longer than a job may take ({limits['seconds']:g} seconds). {kept}")
        else:
            reporter.end("cancelled", kept)
    except MemoryError:
        reporter.end("failed", "the table needs more memory than a job may use; use fewer columns, or a larger machine")
    except UnderstudyError as error:
        reporter.end("failed", str(error))
    except Exception as error:
        reporter.end("failed", describe_unexpected(error))


def lower_priority() -> None:
    """Lower the priority of this process, so that pages stay fast while it computes."""
    with suppress(psutil.Error, OSError):
        psutil.Process().nice(getattr(psutil, "BELOW_NORMAL_PRIORITY_CLASS", LOWERED))  # Windows has classes
    with suppress(OSError):  # Linux weighs sessions against each other, and a job has a session of its own
        Path("/proc/self/autogroup").write_text(str(LOWERED), encoding="ascii")


def limit_memory(most: int) -> None:
    """Limit the memory of this process, if the operating system supports it."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], read_json(os.environ["UNDERSTUDY_STUDIO_LIMITS"]))
