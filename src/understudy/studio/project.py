"""A project: the work on one release, from a table to its bundle, in a folder that only its owner can read."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from understudy.errors import InputError, OutputError, SchemaError, UnderstudyError
from understudy.files import describe_os_error, write_text
from understudy.ledger import Ledger
from understudy.run.file import RunFile
from understudy.schema import Schema
from understudy.schema.custodian import mark_path
from understudy.schema.review import is_draft
from understudy.yaml_json import dump_text, read_json

_ID = re.compile(r"[0-9a-f]{32}")
RUN_FILE, SCHEMA_FILE = "run.yaml", "schema.yaml"

Stamp: TypeAlias = tuple[int, int, int]


def file_stamp(path: Path) -> Stamp:
    """Return a stamp that changes whenever the file is written, for caches of what was read from it.

    Raises:
        OSError: if there is no such file.
    """
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


class Missing(InputError):
    """There is no such project, or the session may not see it."""


class Conflict(InputError):
    """The project was changed in another tab since the page was loaded."""


@dataclass(frozen=True)
class Project:
    """The state of the work on one release; its files are in `folder`.

    Attributes:
        id: 128 random bits, which nobody can guess.
        folder: its folder.
        name: the name of the dataset in the ledger.
        table: the path or the address of the table; it may not be shown to analysts.
        shown: what the table is called on pages.
        created: when it was begun.
        version: changes with every edit; a form that was loaded before another edit is refused.
        notes: by column, why it was drafted so.
        questions: what the draft asks the custodian.
        to_discover: whether the schema leaves everything to discovery.
        people: about how many people the table is about.
        epsilon: the budget.
        delta: together with epsilon.
        mechanism: its name.
        chosen: the mechanism that runs, where `mechanism` leaves the choice to the run.
        reason: why it was chosen.
        seconds: about how long the run takes.
        shared: whether analysts may see the release.
    """

    id: str
    folder: Path
    name: str
    table: str
    shown: str
    created: str
    version: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    questions: tuple[str, ...] = ()
    to_discover: bool = False
    people: int | None = None
    epsilon: float = 1.0
    delta: float | None = None
    mechanism: str = "auto"
    chosen: str = ""
    reason: str = ""
    seconds: float | None = None
    shared: bool = False

    # -- files -----------------------------------------------------------------------------------------------------

    @property
    def draft_file(self) -> Path:
        """The schema while it is edited; private, since drafts are made from the rows."""
        return mark_path(self.folder / "schema.json")

    @property
    def run_file(self) -> Path:
        """The run file, which repeats the run on the command line."""
        return self.folder / RUN_FILE

    @property
    def output(self) -> Path:
        """The folder that the run fills."""
        return self.folder / "release"

    @property
    def release(self) -> Path:
        """The release file."""
        return self.output / "stand-in.release"

    @property
    def report(self) -> Path:
        """The public report."""
        return self.output / "report.html"

    @property
    def rehearsal_report(self) -> Path:
        """The report of the last rehearsal."""
        return self.folder / "rehearsal" / "rehearsal-report.html"

    @property
    def bundle(self) -> Path:
        """The folder for analysts."""
        return self.folder / "bundle"

    @property
    def archive(self) -> Path:
        """The same as one file."""
        return self.folder / "bundle.zip"

    # -- the schema ------------------------------------------------------------------------------------------------

    def content(self) -> dict[str, Any] | None:
        """Return the content of the schema as it is edited; None before there is a draft."""
        try:
            return dict(read_json(self.draft_file.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise InputError(f"the draft of {self.shown} is damaged; draft the columns again") from None

    def write_content(self, content: Mapping[str, Any]) -> None:
        """Save the schema as it is edited."""
        write_text(json.dumps(content), self.draft_file, private=True)

    def schema(self) -> Schema:
        """Return the schema as it is edited; drafts are allowed.

        Raises:
            SchemaError: if there is none yet, or it contradicts itself.
        """
        if self.content() is None:
            raise SchemaError("the columns are not described yet; draft them first")
        return _read_schema(self.draft_file, file_stamp(self.draft_file))

    @property
    def reviewed(self) -> bool:
        """Whether a person has accepted every column and said who is protected."""
        content = self.content()
        return (
            content is not None
            and "privacy_unit" in content["understudy"]
            and not any(is_draft(column) for column in content["fields"])
        )

    def write_run(self) -> None:
        """Write the run file and the schema that it names: the same run as on the command line.

        Raises:
            SchemaError: if columns are not reviewed.
        """
        schema = self.schema()
        schema.require_reviewed()
        schema.save(self.folder / SCHEMA_FILE, overwrite=True)
        content = {
            "data": self.table,
            "schema": SCHEMA_FILE,
            "dataset": self.name,
            "budget": {"epsilon": self.epsilon, "delta": self.delta},
            "mechanism": self.mechanism,
            "outputs": {"rows": ["csv"], "report": ["public"]},
        }
        write_text(dump_text(content, ".yaml"), self.run_file, private=True)

    def run_key(self) -> str | None:
        """Return the key of the run in the ledger; None before there is a run file."""
        try:
            stamps = file_stamp(self.run_file), file_stamp(self.folder / SCHEMA_FILE)
            return _read_run_key(self.run_file, self.output, stamps)
        except (InputError, OSError):
            return None

    def spending(self, ledger: Ledger) -> Spending:
        """Return what the run of this project has spent, according to the ledger."""
        key = self.run_key()
        found = None if key is None else ledger.find_by_key(key)
        if found is None:
            return Spending("nothing")
        if found.finished is not None:
            return Spending("finished", found.run)
        return Spending("answered" if found.answered else "reserved", found.run)


@lru_cache(maxsize=32)
def _read_schema(draft_file: Path, _: Stamp) -> Schema:
    return Schema.from_dict(read_json(draft_file.read_bytes()), unit="row")


@lru_cache(maxsize=256)
def _read_run_key(run_file: Path, output: Path, _: tuple[Stamp, ...]) -> str:
    return RunFile.load(run_file).key(output)


@dataclass(frozen=True)
class Spending:
    """What a run has spent.

    Attributes:
        state: "nothing"; "reserved" (nothing was answered: the budget can be returned); "answered" (the charges stand,
            the run can be continued); "finished".
        run: the run's identifier in the ledger.
    """

    state: str
    run: str | None = None

    @property
    def words(self) -> str:
        """One sentence for people."""
        return {
            "nothing": "Nothing was spent.",
            "reserved": "The budget is reserved, and nothing was answered from the table yet.",
            "answered": "The budget is spent. Every answer is recorded, and continuing costs nothing more.",
            "finished": "The budget is spent, and the release is made.",
        }[self.state]


class Projects:
    """The projects of a studio, one folder each.

    Args:
        folder: the folder that holds them; made for its owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[str, threading.RLock] = defaultdict(threading.RLock)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
        except OSError as error:
            raise OutputError(f"{folder} cannot be used ({describe_os_error(error)}); choose another folder") from None

    def new_folder(self) -> Path:
        """Make the folder of a new project."""
        folder = self.folder / secrets.token_hex(16)
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise OutputError(f"a project cannot be begun ({describe_os_error(error)}); make room") from None
        return folder

    def begin(self, folder: Path, *, table: str, shown: str, name: str) -> Project:
        """Begin a project in its folder."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        project = Project(folder.name, folder, name, table, shown, now)
        self._write(project)
        return project

    def get(self, key: str) -> Project:
        """Return a project.

        Raises:
            Missing: if there is none of this id.
        """
        if not _ID.fullmatch(key):
            raise Missing("there is no such page")
        try:
            data = read_json((self.folder / key / "project.json").read_bytes())
            known = {one.name for one in fields(Project)} - {"folder"}
            kept = {name: value for name, value in data.items() if name in known}
            return Project(folder=self.folder / key, **kept | {"questions": tuple(kept.get("questions", ()))})
        except (OSError, ValueError, TypeError):
            raise Missing("there is no such page") from None

    def all(self) -> list[Project]:
        """Return every project, the newest first."""
        found = []
        for folder in self.folder.iterdir():
            try:
                found.append(self.get(folder.name))
            except UnderstudyError:
                continue
        return sorted(found, key=lambda project: project.created, reverse=True)

    @contextmanager
    def edit(self, key: str, version: str | None = None) -> Iterator[Edit]:
        """Change a project; one change at a time.

        Args:
            key: its id.
            version: the version that the form was loaded with; None for changes that no form can contradict.

        Raises:
            Conflict: if it was changed since.
        """
        with self._locks[key]:
            project = self.get(key)
            if version is not None and version != str(project.version):
                raise Conflict(
                    "the columns or settings were changed in another tab or by somebody else since this page was loaded"
                )
            edit = Edit(project)
            yield edit
            if edit.project is not project:
                self._write(replace(edit.project, version=project.version + 1))

    def _write(self, project: Project) -> None:
        said = {key: value for key, value in asdict(project).items() if key != "folder"}
        write_text(json.dumps(said), project.folder / "project.json", private=True)


class Edit:
    """A change of a project that is being made."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def set(self, **facts: Any) -> Project:
        """Change attributes; they are saved when the block of `Projects.edit` ends."""
        self.project = replace(self.project, **facts)
        return self.project

    def touch(self) -> Project:
        """Change only the version, because the schema was saved."""
        return self.set()
