"""The pages about a release: the report, answers, estimates and downloads. Analysts see these only.

**Privacy.** Post-processing of a release: nothing here reads rows or costs privacy.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from starlette.responses import FileResponse, HTMLResponse, Response

from understudy.errors import InputError, SettingError
from understudy.release import Release
from understudy.schema.axis import AxisColumn
from understudy.studio.app import Form, Page, Visit
from understudy.studio.guard import REPORT_POLICY
from understudy.studio.project import RUN_FILE, SCHEMA_FILE, Missing, Project, Stamp, file_stamp
from understudy.studio.rules import condition_form, find_column, read_conditions

STATISTICS = {
    "mean": "Mean of a number, for all rows or by groups",
    "corr": "Correlation of two numbers",
    "chisq": "Are two columns related? (chi-square test)",
    "regression": "Regression of one column on others",
}

DOWNLOADS = {
    "bundle.zip": ("The bundle for analysts", "Rows as CSV and Parquet, codebook, report and a README, in one file."),
    "rows.csv": ("Synthetic rows as CSV", "For a spreadsheet. Cells that look like formulas are disarmed."),
    "rows.parquet": ("Synthetic rows as Parquet", "With types and labels, for R, Python and databases."),
    "report.html": ("The report", "One page that can be printed or sent."),
    "stand-in.release": ("The release", "Makes any number of rows and answers questions, with understudy."),
}
OWN_DOWNLOADS = {
    RUN_FILE: ("The run file", "Repeats this run on the command line: understudy run run.yaml -o release"),
    SCHEMA_FILE: ("The schema", "What is public about the columns; the run file names it."),
}
"""Files for the custodian: a run file names the place of the table."""


def _file_of(project: Project, name: str) -> Path:
    """Return the path of a file that can be downloaded; other names are refused."""
    places = {
        "bundle.zip": project.archive,
        "rows.csv": project.bundle / "rows.csv",
        "rows.parquet": project.bundle / "rows.parquet",
        "report.html": project.report,
        "stand-in.release": project.release,
        RUN_FILE: project.run_file,
        SCHEMA_FILE: project.folder / SCHEMA_FILE,
    }
    if name not in places:
        raise Missing("there is no such file")
    return places[name]


def load_release(project: Project) -> Release:
    """Load the release of a project; the last ones used stay in memory.

    Raises:
        Missing: if it is not made yet.
    """
    try:
        return _load(project.release, file_stamp(project.release))
    except OSError:
        raise Missing("the release is not made yet") from None


@lru_cache(maxsize=4)
def _load(path: Path, _: Stamp) -> Release:
    return Release.load(path)


def show_result(visit: Visit) -> Response:
    """Show the report, questions and downloads."""
    project = visit.project()
    if not project.archive.exists():
        return visit.go(f"/p/{project.id}/release")
    release = load_release(project)
    custodian = visit.person.role == "custodian"
    files = DOWNLOADS | (OWN_DOWNLOADS if custodian else {})
    numbers = [column.name for column in release.schema.coded if isinstance(column, AxisColumn)]
    return visit.page(
        "result.html",
        project=project,
        release=release,
        guarantee=release.receipt.guarantee(),
        custodian=custodian,
        files=[(name, *words) for name, words in files.items()],
        columns=[column.name for column in release.schema.coded],
        numbers=numbers,
        statistics=STATISTICS,
        notes=release.notes,
    )


def show_report(visit: Visit) -> Response:
    """Show the public report, as a page that runs no script."""
    return _report(visit.project().report)


def show_rehearsal(visit: Visit) -> Response:
    """Show the report of the last rehearsal."""
    return _report(visit.project().rehearsal_report)


def _report(path: Path) -> Response:
    try:
        page = path.read_text(encoding="utf-8")
    except OSError:
        raise Missing("there is no report yet") from None
    return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"})


def download(visit: Visit) -> Response:
    """Send a file."""
    project, name = visit.project(), visit.request.path_params["name"]
    if name in OWN_DOWNLOADS and visit.person.role != "custodian":
        raise Missing("there is no such file")
    path = _file_of(project, name)
    if not path.is_file():
        raise Missing("this file is not made yet")
    shown = name if name in OWN_DOWNLOADS else f"{project.name} {name}"
    return FileResponse(path, media_type="application/octet-stream", filename=shown)


def share(visit: Visit) -> Response:
    """Share the release with analysts, or stop sharing it."""
    project = visit.project()
    if not project.archive.exists():
        raise InputError("the release is not made yet; there is nothing to share")
    with visit.studio.projects.edit(project.id) as edit:
        edit.set(shared=visit.form.get("shared") == "yes")
    return visit.go(f"/p/{project.id}/result#share")


# -- Questions


def show_condition(visit: Visit) -> Response:
    """Show the form of one condition on a column; nothing for a condition that was removed."""
    name = visit.form.get("column", "")
    if not name:
        return HTMLResponse("")
    column = find_column(load_release(visit.project()).schema, name)
    return visit.page("condition.html", project=visit.project(), **condition_form(column))


def answer(visit: Visit) -> Response:
    """Count the rows that satisfy conditions, with an interval."""
    release = load_release(visit.project())
    query = read_conditions(release.schema, visit.form)
    if not query:
        raise SettingError("add at least one condition: choose a column, then its values")
    found = release.answer(query, confidence=_confidence(visit.form), share=visit.form.get("share") == "yes")
    return visit.page("answer.html", found=found, share=visit.form.get("share") == "yes", query=query)


def _confidence(form: Form) -> float:
    percent = form.number("confidence", "confidence")
    return 0.95 if percent is None else percent / 100


def infer(visit: Visit) -> Response:
    """Estimate a statistic, with intervals."""
    release = load_release(visit.project())
    statistic = _statistic(release, visit.form)
    population = visit.form.get("target") == "population"
    found = release.infer(
        statistic,
        target="population" if population else "table",
        confidence=_confidence(visit.form),
        assume=visit.form.number("assume", "correlation"),
    )
    return visit.page("estimates.html", found=found)


def _statistic(release: Release, form: Form) -> str:
    """Return the statistic that a form describes, as `Release.infer` takes it."""
    kind, first = form.get("statistic", ""), form.get("first", "")
    others = [name for name in form.all("other") if name]
    if kind not in STATISTICS:
        raise SettingError("choose a statistic")
    columns = {name: find_column(release.schema, name) for name in [first, *others]}
    if kind == "mean":
        return f"mean({_tick(first)})" + (f" | {_tick(others[0])}" if others else "")
    if not others:
        raise SettingError("choose the other column as well")
    if kind in ("corr", "chisq"):
        return f"{kind}({_tick(first)}, {_tick(others[0])})"
    terms = [_tick(name) if isinstance(columns[name], AxisColumn) else f"C({_tick(name)})" for name in others]
    return f"{_tick(first)} ~ {' + '.join(terms)}"


def _tick(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


RESULTS = (
    Page("GET", "/p/{project}/result", show_result, "analyst"),
    Page("GET", "/p/{project}/report", show_report, "analyst"),
    Page("GET", "/p/{project}/rehearsal", show_rehearsal),
    Page("GET", "/p/{project}/files/{name}", download, "analyst"),
    Page("GET", "/p/{project}/condition", show_condition, "analyst"),
    Page("GET", "/p/{project}/answer", answer, "analyst"),
    Page("GET", "/p/{project}/infer", infer, "analyst"),
    Page("POST", "/p/{project}/share", share),
)
"""Every page about a release."""
