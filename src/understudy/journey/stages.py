"""The stages of a run, each of which can be the last before a crash: release, rows, reports, the final mark."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from understudy.errors import InputError, OutputError, ReleaseError, SettingError
from understudy.journey.file import RunFile
from understudy.journey.folder import Folder
from understudy.journey.rehearsal import rehearsal_rows
from understudy.mechanism.registry import setting_names
from understudy.privacy import Book, Budget
from understudy.privacy.charge import Charge
from understudy.progress import Progress, Step
from understudy.release import Partial, Release, read_partial
from understudy.run import Run, RunJournal, prepared
from understudy.schema import Schema
from understudy.synthesis import carried_out, dataset_name, resume
from understudy.written import write_page, write_rows

Status = Literal["made", "resumed", "completed"]


def carried_through(
    file: RunFile, folder: Folder, *, over_limit: bool, progress: Progress
) -> tuple[Status, dict[str, Any]]:
    """Everything that is still missing in a claimed folder, and the summary."""
    mark = folder.opened()
    _check_reports(folder)
    status, release = _release(file, folder, mark, progress)
    for path in folder.rows:
        if not path.exists():
            progress(Step("sample", None, path.name))
            table = release.sample(seed=file.outputs["seed"], as_="arrow", as_written=path.suffix == ".csv")
            write_rows(table, path, release.schema.dialect)
    for kind, path in folder.reports.items():
        if not path.exists():
            progress(Step("write", None, path.name))
            write_page(_page(kind, release, file, progress), path)
    facts = _facts(file, release)
    folder.close(facts)
    return status, folder.summary(facts)


def _release(file: RunFile, folder: Folder, mark: str, progress: Progress) -> tuple[Status, Release]:
    if folder.release.exists():
        release = Release.load(folder.release)
        folder.partial.unlink(missing_ok=True)  # killed between saving the release and removing it
        return "completed", release
    dataset = _dataset(file)
    paid = not file.rehearsal and Book().holds(dataset, mark)
    held = _held(folder, paid=paid)
    if held is not None and held.measurements:
        return "resumed", resume(folder.partial, output=folder.release, progress=progress)
    if paid and held is None:
        raise OutputError(
            f"this run was paid for, and what it paid for is not in {folder.path}: it was moved or deleted. Put it "
            f"back as {folder.partial.name} or {folder.release.name}; to run anew, and pay again, choose another folder"
        )
    run = _prepared(file)
    lost = () if held is None else _lost(held)
    again = folder.partial.exists()
    journal = RunJournal(run, Book(), dataset, folder.release, mark=mark, lost=lost, again=again)
    return "made", carried_out(_data(file), run, journal, folder.release, progress, lost)


def _held(folder: Folder, *, paid: bool) -> Partial | None:
    """What an interrupted attempt left; a file that was cut short before anything was paid is nothing."""
    if not folder.partial.exists():
        return None
    try:
        return read_partial(folder.partial)
    except ReleaseError:
        if paid:
            raise
        return None


def _lost(held: Partial) -> tuple[Charge, ...]:
    """The charges of an attempt that left no measurement, as far as their answers may have been seen.

    **Privacy.** A measurement is on disk before anyone gets it. Where there is none, charges for measurements alone
    were for answers that never left the process: nothing was released for them, and they need not stand. Selections and
    scores are not written down, so they may have been seen: with one among the charges, all stand.
    """
    return () if all(charge.what == "measure" for charge in held.charges) else held.charges


def _prepared(file: RunFile) -> Run:
    content = file.content
    budget = Budget.of(**(content["budget"] or {}))
    mechanism = content.get("mechanism", "mst")
    settings = {} if isinstance(mechanism, str) else {key: mechanism[key] for key in mechanism if key != "name"}
    name = mechanism if isinstance(mechanism, str) else mechanism["name"]
    settings |= _own_settings(file, name)
    rows = content.get("rows")
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int)):
        raise SettingError(f"{file.path}: `rows` must be a whole number")
    run = prepared(_data(file), file.schema, budget, name, settings, content.get("noise", "exact"), rows)
    run.rehearsal = file.rehearsal
    return run


def _own_settings(file: RunFile, mechanism: str) -> dict[str, Any]:
    """Settings with keys of their own; paths as the file means them."""
    content = file.content
    found: dict[str, Any] = {}
    if content.get("workload") is not None:
        found["workload"] = _workload(file)
    if content.get("keep"):
        found["keep"] = [_kept(entry, file) for entry in content["keep"]]
    if content.get("public") is not None:
        found["public"] = file.near(content["public"])
    if "workload" in found and content.get("quality") and "workload" not in setting_names(mechanism):
        del found["workload"]  # it says what quality is measured on
    return found


def _workload(file: RunFile) -> str:
    workload = file.content["workload"]
    if not isinstance(workload, str):
        raise SettingError(f"{file.path}: `workload` is all-3way, target:COLUMN, skewed:SEED or a .yaml file")
    return file.near(workload) if Path(workload).suffix in (".yaml", ".yml", ".json") else workload


def _kept(entry: Any, file: RunFile) -> tuple[list[str], float]:
    weight = entry.get("weight", 1.0) if isinstance(entry, dict) else 1.0
    columns = entry.get("clique") if isinstance(entry, dict) else entry
    if not isinstance(columns, list) or not isinstance(weight, int | float):
        raise SettingError(f"{file.path}: `keep` is a list of lists of columns, or of {{clique: [a, b], weight: 2}}")
    return [str(column) for column in columns], float(weight)


def _data(file: RunFile) -> Any:
    if file.rehearsal:
        return rehearsal_rows(Schema.load(file.schema), file.content.get("rows"), seed=file.outputs["seed"] or 0)
    return file.near(file.content["data"])


def _dataset(file: RunFile) -> str:
    return str(file.content.get("dataset") or dataset_name(file.content["data"]))


def _check_reports(folder: Folder) -> None:
    """Said before anything is spent, not after."""
    if folder.reports and find_spec("jinja2") is None:
        raise InputError("reports need jinja2: pip install 'understudy[eval]'. Nothing was spent")


def _page(kind: str, release: Release, file: RunFile, progress: Progress) -> str:
    from understudy.report import custodian_report, public_report
    from understudy.source import read_table

    if kind == "public":
        return public_report(release)
    data = _data(file)
    real = data if file.rehearsal else read_table(data, release.schema)
    return custodian_report(release, real, progress=progress)


def _facts(file: RunFile, release: Release) -> dict[str, Any]:
    receipt = release.receipt
    return {
        "dataset": _dataset(file),
        "mechanism": release.mechanism,
        "guarantee": receipt.guarantee(),
        "epsilon": receipt.epsilon,
        "delta": receipt.delta,
        "rho": receipt.rho,
        "insecure": receipt.insecure,
        "default_rows": release.default_rows,
        "measurements": len(release.measurements),
    }
