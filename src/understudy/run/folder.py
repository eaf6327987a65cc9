"""`run` and `rehearse`: all outputs of a run file in one folder; a second call makes only what is missing.

The folder holds finished files. What was reserved, answered and finished is recorded in the ledger only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy.errors import OutputError, SettingError
from understudy.files import file_digest, publish, staged_path
from understudy.ledger import Ledger, RunHandle
from understudy.progress import Progress, Step, silent
from understudy.run.file import RunFile

if TYPE_CHECKING:
    from understudy.release import Release
    from understudy.release.linked import LinkedRelease

Status = Literal["made", "resumed", "completed", "unchanged"]


@dataclass(frozen=True)
class Outcome:
    """What a run did.

    Attributes:
        status: "made", "resumed" (an interrupted run was continued), "completed" (the run was finished; missing files
            were made again) or "unchanged" (nothing was missing).
        summary: public facts about the release, and where its files are.
    """

    status: Status
    summary: Mapping[str, Any]


def run(
    path: str | PathLike[str],
    output: str | PathLike[str],
    *,
    quality: str | float | None = None,
    rehearse: bool = False,
    progress: Progress | None = None,
    ledger: str | PathLike[str] | None = None,
) -> Outcome:
    """Make the release, rows and reports that a run file asks for, in one folder.

    Two calls are the same run if the run file, the schema and the folder are the same; rows are not compared. A
    finished run is not repeated: missing files are made from its release. An interrupted run is continued: it keeps its
    answers, asks only for the missing ones, and is counted once. A release is never overwritten.

    Args:
        path: the run file.
        output: the folder; created if it does not exist.
        quality: a share of the budget, such as "5%", to measure the workload error with; replaces that of the file.
        rehearse: use rows made from the schema instead of the data; costs nothing.
        progress: called with each `Step`.
        ledger: the path or `postgresql://` address of the ledger; by default `UNDERSTUDY_LEDGER`, else the user's own.

    **Privacy.** The same guarantee as `synthesize`, for all attempts at a run together.

    Raises:
        UnderstudyError: as `synthesize`; OutputError also for a folder that holds something else.
    """
    file = RunFile.load(Path(path)).override(quality=quality, rehearsal=rehearse)
    return _Folder(file, Path(output), Ledger(ledger)).fill(progress or silent)


def rehearse(
    schema: str | PathLike[str],
    output: str | PathLike[str],
    *,
    epsilon: float = 1.0,
    delta: float = 1e-9,
    mechanism: str = "auto",
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """Rehearse a complete run on rows made from a schema alone. Costs nothing; all output is marked as a rehearsal.

    Args:
        schema: the schema's file.
        output: the folder; created if it does not exist.
        epsilon: the budget that the real run would have, which determines the noise.
        delta: together with epsilon.
        mechanism: a mechanism's name, or "auto".
        rows: how many rows to make up; by default the declared number, else 1000 (20,000 with discovery).
        seed: for the made-up rows and those sampled.
        progress: called with each `Step`.

    **Privacy.** Reads no private row and writes nothing into the ledger.

    Raises:
        UnderstudyError: as `run`.
    """
    path = Path(schema)
    content = {
        "data": "rows made from the schema",
        "schema": path.name,
        "budget": {"epsilon": epsilon, "delta": delta},
        "mechanism": mechanism,
        "outputs": {"rows": ["csv"], "report": ["public"], "seed": seed},
        **({} if rows is None else {"rows": rows}),
    }
    file = RunFile(path.parent / "rehearsal", content, rehearsal=True)
    return _Folder(file, Path(output), Ledger()).fill(progress or silent)


def find_run_file(known: RunHandle, ledger: Ledger) -> Path | None:
    """Return the run file of this run; None if it is gone or was changed."""
    place = known.spec.get("place", {})
    try:
        path, folder = Path(place["run"]), Path(place["folder"])
        found = ledger.find_by_key(RunFile.load(path).override(quality=place.get("quality")).key(folder))
    except (KeyError, SettingError):
        return None
    return path if found is not None and found.run == known.run else None


class _Folder:
    """The folder of a run and its files."""

    def __init__(self, file: RunFile, path: Path, ledger: Ledger) -> None:
        self.file, self.path, self.ledger = file, path, ledger
        before = "rehearsal-" if file.rehearsal else ""
        outputs = file.outputs
        self.release = path / f"{before}stand-in.release"
        self.linked = file.linked
        if self.linked:  # a folder with a file for each table
            self.rows = [path / f"{before}rows-{kind}" for kind in outputs["rows"]]
        else:
            self.rows = [path / f"{before}rows.{kind}" for kind in outputs["rows"]]
        names = {"public": "report.html", "custodian": "report.custodian-only.html"}
        self.reports = {kind: path / f"{before}{names[kind]}" for kind in outputs["report"]}

    def fill(self, progress: Progress) -> Outcome:
        """Make what is missing."""
        known = None if self.file.rehearsal else self._find_run()
        there = known is not None and self._has_release(known)
        if known is not None and there and all(file.exists() for file in [*self.rows, *self.reports.values()]):
            return Outcome("unchanged", self._summary(known.dataset, (known.finished or {})["facts"]))
        self._check(known)
        status: Status
        release: Any
        try:
            if there:
                from understudy.release import open_release

                status, release = "completed", open_release(self.release)
            else:
                finished, begun = known is not None and known.finished is not None, known is not None and known.answered
                release = self._make(progress, begun=begun)
                status = "completed" if finished else "resumed" if begun else "made"
            self._write_outputs(release, progress)
        except KeyboardInterrupt as interrupt:
            if self.release.exists():
                interrupt.add_note(f"{self.release} was made; run the same command again to make the rest, at no cost.")
            raise
        from understudy.release.release import summarize

        facts = release.summary() if self.linked else summarize(release)
        return Outcome(status, self._summary(self.file.dataset, facts))

    def _find_run(self) -> RunHandle | None:
        """Find the run of this file and folder in the ledger, or the run of a finished folder that was moved."""
        if (found := self.ledger.find_by_key(self.file.key(self.path))) is not None:
            return found
        if not self.release.exists():
            return None
        moved = self.ledger.find_finished(file_digest(self.release))
        return moved if moved is not None and moved.spec["place"].get("file") == self.file.digest() else None

    def _has_release(self, known: RunHandle) -> bool:
        """Return whether the folder holds the release of a finished run; a release that waits for its name gets it.

        Raises:
            OutputError: if another file has its name.
        """
        if known.finished is None:
            return False
        staged = staged_path(self.release, known.run)
        if not self.release.exists() and staged.exists() and file_digest(staged) in known.releases:
            publish(staged, self.release)
        if self.release.exists() and file_digest(self.release) not in known.releases:
            raise OutputError(
                f"{self.release} is not the release of this run; choose another folder. Nothing was spent"
            )
        return self.release.exists()

    def _check(self, known: RunHandle | None) -> None:
        """Check the folder, and whether reports can be made, before anything is spent."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = [item.name for item in self.path.iterdir() if not item.name.startswith(".")]
        except OSError:
            raise OutputError(f"the folder {self.path} cannot be made or written; choose another") from None
        if self.file.rehearsal:
            self.release.unlink(missing_ok=True)  # a rehearsal costs nothing: it replaces the one before
            held = [name for name in held if not name.startswith("rehearsal-")]
        if known is None and held:
            raise OutputError(
                f"{self.path} is not empty and holds no run of this file; choose a new folder. Nothing was spent"
            )
        if "custodian" in self.reports and self.file.content.get("query") is not None:
            raise SettingError(
                "outputs: report: a report for the custodian reads a table, not a query; make a view of it, or leave "
                "the report out. Nothing was spent"
            )

    def _make(self, progress: Progress, *, begun: bool) -> Any:
        """Make the release; a run with answers is finished from them if the table is gone."""
        from understudy.run.pipeline import execute

        spec = self.file.spec()
        spec = replace(
            spec.without_missing_data() if begun else spec,
            key=self.file.key(self.path),
            place={
                "file": self.file.digest(),
                "run": str(self.file.path.absolute()),
                "folder": str(self.path.absolute()),
                **({"quality": self.file.content["quality"]} if self.file.content.get("quality") else {}),
            },
        )
        return execute(spec, output=self.release, progress=progress, ledger=self.ledger)

    def _write_outputs(self, release: Any, progress: Progress) -> None:
        from understudy.files import write_text
        from understudy.sink.files import write_rows

        if self.linked:
            self._write_linked(release, progress)
            return
        for path in self.rows:
            if self.file.rehearsal or not path.exists():
                progress(Step("sample", None, path.name))
                path.unlink(missing_ok=True)
                write_rows(release, path, seed=self.file.outputs["seed"], progress=progress)
        for kind, path in self.reports.items():
            if self.file.rehearsal or not path.exists():
                progress(Step("write", None, path.name))
                write_text(self._page(kind, release, progress), path, private=kind == "custodian")

    def _write_linked(self, release: LinkedRelease, progress: Progress) -> None:
        from understudy.evaluation.linked import report_linked
        from understudy.files import write_text
        from understudy.sink.linked import write_tables

        for kind, path in zip(self.file.outputs["rows"], self.rows, strict=True):
            if self.file.rehearsal or not path.exists():
                progress(Step("sample", None, path.name))
                rows = release.sample(seed=self.file.outputs["seed"], as_written=kind == "csv")
                write_tables(rows, release.schema, path, kind=kind, force=self.file.rehearsal)
        for report, path in self.reports.items():
            if self.file.rehearsal or not path.exists():
                progress(Step("write", None, path.name))
                real = self.file.data() if report == "custodian" else None
                write_text(report_linked(release, real), path, private=report == "custodian")

    def _page(self, kind: str, release: Release, progress: Progress) -> str:
        from understudy.report import custodian_report, public_report
        from understudy.source.read import collect_table

        if kind == "public":
            return public_report(release)
        data = self.file.data()
        real = data if self.file.rehearsal else collect_table(data, release.schema)
        return custodian_report(release, real, progress=progress)

    def _summary(self, dataset: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "folder": str(self.path),
            "release": str(self.release),
            "rows": [str(path) for path in self.rows],
            "reports": {kind: str(path) for kind, path in self.reports.items()},
            "dataset": dataset,
            **facts,
            "rehearsal": self.file.rehearsal,
        }
