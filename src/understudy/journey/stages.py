"""The stages of a run, each of which can be the last before a crash: release, rows, reports, the final mark."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Literal

from understudy.accounting import Receipt
from understudy.errors import InputError, OutputError, ReleaseError, SettingError
from understudy.gate import PrivateTable
from understudy.journey.file import RunFile
from understudy.journey.folder import Folder
from understudy.journey.meaning import budget_of, data_of, dataset_of, prepared_run, query_of, workload_of
from understudy.mechanism import Fit
from understudy.page import write_page
from understudy.privacy.records.answered import Answered
from understudy.privacy.records.book import Book
from understudy.progress import Progress, Step
from understudy.quality import Quality, parsed_share
from understudy.release import Partial, Release, read_partial
from understudy.release.facts import facts
from understudy.release.write import write_rows
from understudy.schema import Schema
from understudy.source import open_source
from understudy.source.open import open_table
from understudy.source.place import source_kind
from understudy.synthesis.earlier import Diverged, Outdated
from understudy.synthesis.interrupted import Rate, resume
from understudy.synthesis.journal import RunJournal
from understudy.synthesis.rating import Rating, rated
from understudy.synthesis.road import carried_out

Status = Literal["made", "resumed", "completed"]


def carried_through(
    file: RunFile, folder: Folder, *, over_limit: bool, progress: Progress
) -> tuple[Status, dict[str, Any]]:
    """Everything that is still missing in a claimed folder, and the summary."""
    mark = folder.opened()
    _check_reports(folder)
    status, release = _release(file, folder, mark, "ignore" if over_limit else "refuse", progress)
    for path in folder.rows:
        if not path.exists():
            progress(Step("sample", None, path.name))
            write_rows(release, path, seed=file.outputs["seed"], progress=progress)
    for kind, path in folder.reports.items():
        if not path.exists():
            progress(Step("write", None, path.name))
            write_page(_page(kind, release, file, progress), path, private=kind == "custodian")
    about = {"dataset": dataset_of(file), **facts(release)}
    folder.close(about)
    return status, folder.summary(about)


def _release(
    file: RunFile, folder: Folder, mark: str, limit: Literal["refuse", "ignore"], progress: Progress
) -> tuple[Status, Release]:
    if folder.release.exists():
        release = Release.load(folder.release)
        folder.partial.unlink(missing_ok=True)  # killed between saving the release and removing it
        _finish(file, mark)
        return "completed", release
    dataset = dataset_of(file)
    paid = not file.rehearsal and Book().holds(dataset, mark)
    held = _held(folder, paid=paid)
    if paid and held is None:
        raise OutputError(
            f"this run was paid for, and what it paid for is not in {folder.path}: it was moved or deleted. Put it "
            f"back as {folder.partial.name} or {folder.release.name}; to run anew, and pay again, choose another folder"
        )
    if held is None:
        folder.partial.unlink(missing_ok=True)  # cut short before anything was paid
    elif folder.moved and (paid or held.charges):
        raise OutputError(
            f"{folder.path} was copied or moved since this run began: two places that go on with one run would answer "
            f"its questions twice for one price. Put it back, or finish from what was measured, at no cost, with "
            f"`understudy resume {folder.partial} -o RELEASE`"
        )
    copied = paid and held is not None and Book().outdated(dataset, mark, known=held.attempts, answers=held.answers)
    try:
        made = _gone_through(file, folder, mark, limit, held, progress, paid=paid, copied=copied)
    except (Diverged, InputError) as error:  # it cannot go on, or has no rows to go on with: what is paid for serves
        if isinstance(error, Diverged) and held is not None and not held.measurements:
            raise OutputError(
                f"{error}, and nothing was measured yet: start anew in another folder, paying again"
            ) from None
        if held is None or not held.measurements:
            raise
        copied = copied or isinstance(error, Outdated)
        rate = _rate(file, held, mark) if isinstance(error, Diverged) and not copied else None
        made = "resumed", resume(folder.partial, output=folder.release, progress=progress, rate=rate)
    if not copied:
        _finish(file, mark)
    return made


def _finish(file: RunFile, mark: str) -> None:
    """Let the book say that the run's release is there; not for a copy, while another place goes on with the run."""
    book, dataset = Book(), dataset_of(file)
    if not file.rehearsal and book.holds(dataset, mark):
        book.finish(dataset, mark)


def _gone_through(
    file: RunFile,
    folder: Folder,
    mark: str,
    limit: Literal["refuse", "ignore"],
    held: Partial | None,
    progress: Progress,
    *,
    paid: bool,
    copied: bool,
) -> tuple[Status, Release]:
    """The run from its beginning; what an earlier attempt was answered is taken from its record."""
    with open_table(data_of(file), query_of(file)) as table:
        run = prepared_run(file, table)
        if held is not None and json.loads(json.dumps(run.to_dict())) != held.run:
            raise Diverged(
                "the run file means something else to this version of understudy than to the first attempt's"
            )
        book, dataset = Book(), dataset_of(file)
        journal = RunJournal(
            run, book, dataset, folder.release, mark=mark, earlier=held, copied=copied, booked=paid, limit=limit
        )
        if held is not None and held.charges and not run.insecure and not run.rehearsal:
            # The first attempt may have written another book: in this one the sum must not be too small either.
            book.append(dataset, run.budget, unit=run.neighbours.describe(), run=mark)
        release = carried_out(table, run, journal, folder.release, progress)
    return "resumed" if held is not None and held.charges else "made", release


def _rate(file: RunFile, held: Partial, mark: str) -> Rate | None:
    """How to measure the quality that an interrupted run had kept a share for; None where it had not.

    **Privacy.** Asked once, and only where the record says the same as the run file about the budget and who is
    protected: what the record says alone may be forged, and the book knows the file's.
    """
    if "rating" not in held.run or any(charge.what == "quality" for charge in held.charges):
        return None

    def rate(fit: Fit, receipt: Receipt, schema: Schema) -> tuple[Quality | None, Receipt]:
        declared = Schema.load(file.schema)
        stated = budget_of(file, declared), parsed_share(file.content.get("quality")), _protected(declared)
        if stated != (receipt.budget, held.run["rating"]["share"], _protected(schema)) or receipt.insecure:
            return None, receipt
        with open_table(data_of(file), query_of(file)) as data:
            table = PrivateTable(open_source(data, schema), receipt.budget, noise=receipt.noise)
            table.account.pay(receipt.charges)
            if not file.rehearsal:
                book, dataset, attempt = Book(), dataset_of(file), secrets.token_hex(8)
                if not book.went_on(dataset, mark, attempt, known=held.attempts, answers=held.answers):
                    return None, receipt
                known = Answered(book.folder, mark, lambda: book.turn(dataset, mark, attempt))
                known.rise_to(held.answers + 1)()
                known.settle()
                known.close()
            named = workload_of(file) if file.content.get("workload") else held.run["rating"]["workload"]
            quality = rated(table, fit, Rating(held.run["rating"]["share"], named))
        return quality, replace(receipt, charges=table.account.charges)

    return rate


def _protected(schema: Schema) -> tuple[Any, ...]:
    return schema.privacy_unit, schema.rows


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


def _check_reports(folder: Folder) -> None:
    """Said before anything is spent, not after."""
    if folder.reports and find_spec("jinja2") is None:
        raise InputError("reports need jinja2: pip install 'understudy[eval]'. Nothing was spent")
    data = folder.file.near(folder.file.content["data"])
    if "custodian" in folder.reports and not folder.file.rehearsal and source_kind(data) != "file":
        raise SettingError("outputs: report: a report for the custodian needs the table as one file. Nothing was spent")


def _page(kind: str, release: Release, file: RunFile, progress: Progress) -> str:
    from understudy.report import custodian_report, public_report
    from understudy.source import read_table

    if kind == "public":
        return public_report(release)
    data = data_of(file)
    real = data if file.rehearsal else read_table(data, release.schema)
    return custodian_report(release, real, progress=progress)
