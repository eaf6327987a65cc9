"""The custodian's pages: sign in, table, columns, budget, release, ledger.

Every page reads the state of a project, calls the functions that the command line uses, and renders a template.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from understudy.accounting.exact import float_above
from understudy.arguments import parse_unit
from understudy.errors import InputError, SchemaError, SettingError
from understudy.ledger import Grant, Ledger
from understudy.ledger.ledger import ROLES, check_name, current_user, token_holder
from understudy.mechanism.registry import AUTO, mechanism_classes
from understudy.planning import Accuracy
from understudy.planning.odds import default_delta
from understudy.planning.plan import MECHANISMS as COMPARED
from understudy.planning.predict import needs_public
from understudy.run.file import RunFile
from understudy.run.pipeline import resolve
from understudy.schema import Schema
from understudy.schema.review import decide, drop_dependents, is_draft
from understudy.source.draft import draft_names, set_unit
from understudy.source.place import table_name
from understudy.studio.app import Form, Page, Visit
from understudy.studio.columns import AXES, KINDS, from_form, list_columns, repeat_form, to_form, view_column
from understudy.studio.guard import Session
from understudy.studio.jobs import read_job
from understudy.studio.project import Missing, Project
from understudy.studio.rules import RULES, condition_form, describe_rule, find_column, rule_from_form
from understudy.studio.tables import check_place, first_file, read_format
from understudy.studio.uploads import ENDINGS, clean_name, name_dataset, receive_table

EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
"""The steps of the slider."""

_MOST_EPSILON = 20.0
_MOST_RUNS = 200  # runs shown on the page about the ledger

# -- Signing in


def launch(visit: Visit) -> Response:
    """Open the session of the user who started the studio; the address works once."""
    if visit.session is not None:
        return RedirectResponse("/", 303)
    if not visit.studio.sessions.use_launch(visit.form.get("key", "")):
        return visit.page("login.html", 403, wrong="This address was used already, or is not the studio's.")
    who = current_user()
    session = Session("custodian", who, who.partition(":")[2])
    return visit.studio.sessions.open(session, RedirectResponse("/", 303))


def show_login(visit: Visit) -> Response:
    """Show the page to sign in with a token."""
    return visit.page("login.html", wrong="") if visit.session is None else RedirectResponse("/", 303)


def log_in(visit: Visit) -> Response:
    """Sign in with a token; the session gets a new key."""
    sessions = visit.studio.sessions
    if sessions.busy:
        return visit.page("login.html", 429, wrong="Too many wrong tokens. Wait a minute, then try again.")
    given = visit.form.get("token", "").strip()
    book = visit.studio.ledger
    known = {token.holder: token for token in book.tokens() if not token.revoked}
    token = known.get(token_holder(given))
    if token is None:
        sessions.count_failure()
        return visit.page("login.html", 403, wrong="This token is not known, or was revoked.")
    session = Session(token.role, token.holder, token.name, given)
    return sessions.open(session, RedirectResponse("/", 303))


def log_out(visit: Visit) -> Response:
    """End the session."""
    sessions = visit.studio.sessions
    return sessions.close(visit.request.cookies.get(sessions.cookie), RedirectResponse("/login", 303))


# -- 1. Table


def home(visit: Visit) -> Response:
    """Show the start page: a new table or earlier projects; for an analyst, shared releases."""
    projects = visit.studio.projects.all()
    if visit.person.role != "custodian":
        shared = [project for project in projects if project.shared and project.release.exists()]
        return visit.page("shared.html", projects=shared)
    rows = [(project, *_progress_of(project)) for project in projects]
    return visit.page(
        "home.html",
        rows=rows,
        endings=",".join(ENDINGS),
        limit=visit.studio.uploads.size_bytes / 1e9,
        paths=visit.studio.local or bool(visit.studio.roots),
    )


def _progress_of(project: Project) -> tuple[str, str]:
    """Return the progress of a project in words, and the address of its next page."""
    job, base = read_job(project), f"/p/{project.id}"
    if job is not None and job.active:
        return f"{job.words} …", f"{base}/{'columns' if job.task == 'draft' else 'release'}"
    if project.archive.exists():
        return "Released" + (", shared with analysts" if project.shared else ""), f"{base}/result"
    if job is not None and job.task == "release":
        return "Stopped: look at it", f"{base}/release"
    content = project.content()
    if content is None:
        return "Table chosen", f"{base}/table"
    return ("Budget to choose", f"{base}/budget") if project.reviewed else ("Columns to review", f"{base}/columns")


def begin_with_place(visit: Visit) -> Response:
    """Begin a project with a table on this machine, or in a database."""
    studio = visit.studio
    place = check_place(visit.form.get("place", "").strip(), local=studio.local, roots=studio.roots)
    name = table_name(place)
    project = studio.projects.begin(
        studio.projects.new_folder(),
        table=place,
        shown=clean_name(name if "://" in place else place),
        name=name_dataset(name),
    )
    return visit.go(f"/p/{project.id}/table")


async def begin_with_upload(visit: Visit) -> Response:
    """Begin a project with an uploaded table."""
    projects = visit.studio.projects
    folder = await run_in_threadpool(projects.new_folder)
    try:
        path, shown = await receive_table(visit.request, folder, visit.person, visit.studio.uploads)
        project = projects.begin(folder, table=str(path), shown=shown, name=name_dataset(shown))
    except BaseException:
        folder.rmdir()
        raise
    return visit.go(f"/p/{project.id}/table")


def show_table(visit: Visit) -> Response:
    """Show the names of the columns and the format of the file; nothing else is read before the custodian asks."""
    project = visit.project()
    return visit.page(
        "table.html",
        project=project,
        format=read_format(project.table),
        has_draft=project.content() is not None,
        locked=_is_spent(visit, project),
    )


def start_draft(visit: Visit) -> Response:
    """Draft the columns from the rows, in a job; or from the names alone, and leave the rest to discovery."""
    project = visit.project()
    _refuse_spent(visit, project)
    name = check_name(visit.form.get("name", "").strip() or project.name)
    if visit.form.get("how") == "buy":
        content, notes = draft_names(first_file(project.table), unit="row")
        del content["understudy"]["privacy_unit"]  # the custodian has not declared it yet
        project.write_content(content)
        with visit.studio.projects.edit(project.id) as edit:
            edit.set(name=name, to_discover=True, notes={}, questions=notes)
    else:
        with visit.studio.projects.edit(project.id) as edit:
            project = edit.set(name=name)
        project.draft_file.unlink(missing_ok=True)
        visit.studio.jobs.start(project, "draft", token=visit.person.token)
    visit.studio.planner.warm_up()
    return visit.go(f"/p/{project.id}/columns")


# -- 2. Columns


def show_columns(visit: Visit) -> Response:
    """Show the columns, doubtful ones first; while the draft is made, its progress."""
    project = visit.project()
    job = read_job(project)
    content = project.content()
    if job is not None and job.task == "draft" and (job.active or content is None):
        return visit.page("drafting.html", project=project, job=job)
    if content is None:
        return visit.go(f"/p/{project.id}/table")
    wanted = visit.form.get("q", "").strip().lower()
    columns = [view for view in list_columns(content, project.notes) if wanted in view.name.lower()]
    shown: dict[str, Any] = {
        "project": project,
        "columns": columns,
        "wanted": wanted,
        "locked": _is_spent(visit, project),
    }
    if visit.partial:
        return visit.page("column_rows.html", **shown)
    unit = content["understudy"].get("privacy_unit")
    names = [field["name"] for field in content["fields"]]
    rules = content["understudy"].get("rules", [])
    return visit.page(
        "columns.html",
        **shown,
        unit=unit,
        names=names,
        rules=[describe_rule(rule) for rule in rules],
        rule_kinds=RULES,
        kind="order",
        total=len(names),
    )


def _field(visit: Visit, content: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    place = int(visit.request.path_params["place"])
    if not 0 <= place < len(content["fields"]):
        raise Missing("there is no such column")
    return place, dict(content["fields"][place])


def _content(project: Project) -> dict[str, Any]:
    content = project.content()
    if content is None:
        raise SchemaError("the columns are not described yet; draft them first")
    return content


def show_column(visit: Visit) -> Response:
    """Show the form of one column."""
    project = visit.project()
    content = _content(project)
    place, field = _field(visit, content)
    return _column_page(visit, project, place, content, to_form(field))


def _column_page(
    visit: Visit, project: Project, place: int, content: Mapping[str, Any], form: Mapping[str, Any], wrong: str = ""
) -> Response:
    """Return the form of a column as it is saved, or as it was sent."""
    return visit.page(
        "column_form.html" if visit.partial else "column.html",
        400 if wrong else 200,
        project=project,
        view=view_column(content["fields"][place], place, project.notes),
        form=form,
        kinds=KINDS,
        names=[field["name"] for field in content["fields"]],
        axis=form["kind"] in AXES,
        wrong=wrong,
    )


def change_kind(visit: Visit) -> Response:
    """Show the same form for another kind, or with a grouping of values added or removed."""
    project = visit.project()
    content = _content(project)
    place, field = _field(visit, content)
    return _column_page(visit, project, place, content, repeat_form(field, visit.form))


def check_column(visit: Visit) -> Response:
    """Check a form at once, without saving it."""
    project = visit.project()
    content = _content(project)
    place, field = _field(visit, content)
    try:
        _replace_field(content, place, from_form(field, visit.form))
    except SchemaError as error:
        return visit.page("check.html", words=str(error), good=False)
    return visit.page("check.html", words="This fits.", good=True)


def _replace_field(content: dict[str, Any], place: int, field: dict[str, Any]) -> dict[str, Any]:
    """Return the content with another field.

    Raises:
        SchemaError: if it contradicts other columns or rules.
    """
    fields = list(content["fields"])
    fields[place] = field
    changed = drop_dependents(content | {"fields": fields})
    Schema.from_dict(changed, unit="row")
    return changed


def save_column(visit: Visit) -> Response:
    """Save the form of one column; the column counts as reviewed."""
    project = visit.project()
    _refuse_spent(visit, project)
    with visit.studio.projects.edit(project.id, visit.form.get("version", "")) as edit:
        content = _content(project)
        place, field = _field(visit, content)
        try:
            changed = _replace_field(content, place, from_form(field, visit.form))
        except SchemaError as error:
            return _column_page(visit, project, place, content, repeat_form(field, visit.form), str(error))
        project.write_content(changed)
        edit.touch()
    if not visit.partial:
        return visit.go(f"/p/{project.id}/columns#c{place}")
    project = visit.project()
    view = view_column(changed["fields"][place], place, project.notes)
    return visit.page("column_saved.html", project=project, view=view, locked=False)


def change_rules(visit: Visit) -> Response:
    """Add a rule, or remove one."""
    project = visit.project()
    _refuse_spent(visit, project)
    with visit.studio.projects.edit(project.id, visit.form.get("version", "")) as edit:
        content = _content(project)
        rules = list(content["understudy"].get("rules", []))
        if "remove" in visit.form:
            number = int(visit.form.number("remove", "rule") or 0)
            rules = [rule for place, rule in enumerate(rules) if place != number]
        else:
            rules.append(rule_from_form(project.schema(), visit.form))
        project.write_content(_replace_rules(content, rules))
        edit.touch()
    return visit.go(f"/p/{project.id}/columns#rules")


def _replace_rules(content: dict[str, Any], rules: list[Any]) -> dict[str, Any]:
    """Return the content with other rules.

    Raises:
        SchemaError: if they contradict the columns or each other.
    """
    ours = {key: value for key, value in content["understudy"].items() if key != "rules"}
    changed = content | {"understudy": ours | ({"rules": rules} if rules else {})}
    Schema.from_dict(changed, unit="row")
    return changed


def show_rule_fields(visit: Visit) -> Response:
    """Show the fields of a rule of another kind."""
    names = [column.name for column in visit.project().schema().coded]
    return visit.page("rule_fields.html", project=visit.project(), names=names, kind=visit.form.get("kind", "order"))


def show_rule_condition(visit: Visit) -> Response:
    """Show the form of one condition of a rule."""
    project = visit.project()
    if not (name := visit.form.get("column", "")):
        return Response("", media_type="text/html")
    return visit.page("condition.html", project=project, **condition_form(find_column(project.schema(), name)))


def check_rule(visit: Visit) -> Response:
    """Check a rule at once, without adding it; an incomplete rule gets no message."""
    project = visit.project()
    content = _content(project)
    try:
        rule = rule_from_form(project.schema(), visit.form)
        _replace_rules(content, [*content["understudy"].get("rules", []), rule])
    except SettingError:
        return Response("", media_type="text/html")
    except SchemaError as error:
        return visit.page("check.html", words=str(error), good=False)
    return visit.page("check.html", words=f"This fits: {describe_rule(rule)}.", good=True)


def accept_columns(visit: Visit) -> Response:
    """Accept every column as it is shown, and declare who is protected."""
    project = visit.project()
    _refuse_spent(visit, project)
    with visit.studio.projects.edit(project.id, visit.form.get("version", "")) as edit:
        content = _content(project)
        names = [field["name"] for field in content["fields"]]
        changed = set_unit(content, _unit_of(visit.form, names))
        fields = [decide(field, "accept") if is_draft(field) else field for field in changed["fields"]]
        changed = drop_dependents(changed | {"fields": fields})
        Schema.from_dict(changed)
        project.write_content(changed)
        edit.touch()
    visit.studio.planner.warm_up()
    return visit.go(f"/p/{project.id}/budget")


def _unit_of(form: Form, names: list[str]) -> Any:
    """Return who is protected, as a schema file writes it."""
    if form.get("unit") == "row":
        return "row"
    if form.get("unit") != "column":
        raise SettingError("say who is protected: is each row one person, or can people have several rows?")
    rows = form.number("max_rows", "rows of each person")
    if rows is None or rows < 1 or not rows.is_integer():
        raise SettingError("rows of each person: give a whole number of at least 1")
    if form.get("column") not in names:
        raise SettingError("choose the column that identifies people")
    return parse_unit(f"{form['column']}:{rows:.0f}", names)


# -- 3. Budget


def show_budget(visit: Visit) -> Response:
    """Show the budget and its expected results."""
    project = visit.project()
    if not project.reviewed:
        return visit.go(f"/p/{project.id}/columns")
    schema = project.schema()
    people = project.people or schema.rows
    job = read_job(project)
    return visit.page(
        "budget.html",
        project=project,
        people=people or "",
        **_slider(project.epsilon),
        allowance=_allowance(visit, project.name),
        mechanisms=_mechanisms(),
        chosen=project.mechanism,
        locked=_is_spent(visit, project),
        job=job if job is not None and job.task == "rehearse" else None,
        rehearsed=project.rehearsal_report.exists(),
    )


def _slider(epsilon: float) -> dict[str, Any]:
    """Return the values of the field and the slider of epsilon; the slider is at the nearest step."""
    step = min(range(len(EPSILONS)), key=lambda step: abs(math.log(EPSILONS[step] / epsilon)))
    return {"epsilon": epsilon, "step": step, "steps": len(EPSILONS) - 1}


@cache
def _mechanisms() -> list[tuple[str, str]]:
    """Return the mechanisms that can be chosen, and when to use each."""
    found = [
        (name, chosen.when or "") for name, chosen in sorted(mechanism_classes().items()) if not needs_public(name)
    ]
    return [(AUTO, "the run chooses by columns, people and budget"), *found]


def _allowance(visit: Visit, dataset: str) -> dict[str, Any]:
    """Return what was spent on a dataset, and what its grants still allow."""

    def read(book: Ledger) -> dict[str, Any]:
        if dataset not in book.datasets():
            return {"text": "Nothing was spent on this dataset yet, and nobody has limited it.", "grants": []}
        return book.describe(dataset)

    return visit.studio.ledger_reader.read(("allowance", dataset), read)


def predict(visit: Visit) -> Response:
    """Show the expected results of an epsilon, or the epsilon that an accuracy needs."""
    project = visit.project()
    form = visit.form
    if form.get("by") == "slider":
        epsilon = EPSILONS[min(max(int(form.number("step", "epsilon") or 0), 0), len(EPSILONS) - 1)]
    else:
        epsilon = _epsilon_of(form)
    people = _people_of(form)
    if people is None:
        return visit.page("prediction.html", found=None, project=project, **_slider(epsilon))
    group, within = form.number("group", "smallest group"), form.number("within", "error")
    wished = form.get("by") == "accuracy" and group is not None and within is not None
    accuracy = Accuracy(int(group or 0), float(within or 0) / 100) if wished else None
    wish: dict[str, Any] = {"epsilon": epsilon} if accuracy is None else {"accuracy": accuracy}
    found = visit.studio.planner.predict(_content(project), people=people, mechanisms=COMPARED, **wish)
    best = found.line(found.name)
    return visit.page(
        "prediction.html",
        project=project,
        found=found,
        **_slider(found.epsilon),
        accuracy=accuracy,
        best={} if best is None else best.words,
    )


def _epsilon_of(form: Form) -> float:
    epsilon = form.number("epsilon", "epsilon")
    if epsilon is None or not 0.01 <= epsilon <= _MOST_EPSILON:
        raise SettingError(f"epsilon: give a number from 0.01 to {_MOST_EPSILON:g}; a usual one is about 1")
    return epsilon


def _people_of(form: Form) -> int | None:
    people = form.number("people", "people")
    if people is not None and not (10 <= people <= 1e11):
        raise SettingError("people: give about how many there are, at least 10: fewer cannot hide among each other")
    return None if people is None else int(people)


def save_budget(visit: Visit) -> Response:
    """Save the budget, and continue with the release or a rehearsal."""
    project = visit.project()
    _refuse_spent(visit, project)
    epsilon, people = _epsilon_of(visit.form), _people_of(visit.form)
    if people is None:
        raise SettingError("people: say about how many people the table is about; not the true count")
    mechanism = visit.form.get("mechanism", AUTO)
    if mechanism not in dict(_mechanisms()):
        raise SettingError("mechanism: choose one of the list")
    compared = [*COMPARED, *({mechanism} - {AUTO, *COMPARED})]
    found = visit.studio.planner.predict(_content(project), people=people, epsilon=epsilon, mechanisms=compared)
    with visit.studio.projects.edit(project.id, visit.form.get("version", "")) as edit:
        project = edit.set(epsilon=epsilon, people=found.people, delta=default_delta(found.people), mechanism=mechanism)
        project.write_run()
        run = resolve(RunFile.load(project.run_file).spec())  # so that the run is not refused later
        line = found.line(run.mechanism.name)
        project = edit.set(
            chosen=run.mechanism.name, reason=run.spec.reason or "", seconds=None if line is None else line.seconds
        )
    if visit.form.get("next") == "rehearse":
        visit.studio.jobs.start(project, "rehearse", token=visit.person.token)
        return visit.go(f"/p/{project.id}/budget#rehearsal")
    return visit.go(f"/p/{project.id}/release")


# -- 4. Release


def _is_spent(visit: Visit, project: Project) -> bool:
    """Return whether the run of a project has spent its budget and can no longer be changed."""
    key = project.run_key()
    return key is not None and visit.studio.ledger_reader.read(
        ("spent", key), lambda book: project.spending(book).state in ("answered", "finished")
    )


def _refuse_spent(visit: Visit, project: Project) -> None:
    job = read_job(project)
    if job is not None and job.active and job.task != "draft":
        raise InputError("the project is being worked on; wait until that is done, or cancel it")
    if _is_spent(visit, project):
        raise InputError(
            "the budget of this release is spent, so it cannot be changed; begin a new one from its result"
        )


def show_release(visit: Visit) -> Response:
    """Show what the release will spend, with the button to start it; then its progress."""
    project = visit.project()
    job = read_job(project)
    if job is not None and job.task == "release":
        return _release_state(visit, project, "release.html")
    if project.people is None or not project.reviewed:
        return visit.go(f"/p/{project.id}/budget")
    schema = project.schema()
    unit = schema.privacy_unit
    return visit.page(
        "confirm.html",
        project=project,
        allowance=_allowance(visit, project.name),
        who=visit.person.name,
        unit=(
            "each row: one person has one row"
            if unit.column is None
            else f"each person, by {unit.column}: at most {unit.max_rows} of their rows are used"
        ),
        columns=len(schema.coded) + len(schema.open),
        opened=len(schema.open),
        left_out=[column.name for column in schema.columns if column.kind == "drop"],
    )


def start_release(visit: Visit) -> Response:
    """Start the release in a job, or continue one that stopped."""
    project = visit.project()
    if project.archive.exists():
        return visit.go(f"/p/{project.id}/result")
    job = read_job(project)
    if job is None or not job.active:
        if not _is_spent(visit, project):
            if project.people is None or project.delta is None:
                raise SettingError("the budget is not chosen yet; choose it first")
            project.write_run()
        visit.studio.jobs.start(project, "release", token=visit.person.token)
    return visit.go(f"/p/{project.id}/release")


def show_progress(visit: Visit) -> Response:
    """Show the progress of a job, as a part of a page; redirect when the job is done."""
    project = visit.project()
    job = read_job(project)
    if job is None:
        return visit.go(f"/p/{project.id}")
    if job.state == "done":
        target = {"draft": "columns", "rehearse": "budget#rehearsal"}.get(job.task, "result")
        return visit.go(f"/p/{project.id}/{target}")
    if job.task != "release":
        return visit.page("progress.html" if job.active else "job_ended.html", project=project, job=job, left="")
    return _release_state(visit, project, "release_state.html")


def _release_state(visit: Visit, project: Project, template: str) -> Response:
    job = read_job(project)
    if job is not None and job.state == "done":
        return visit.go(f"/p/{project.id}/result")
    spending = None
    if job is not None and not job.active:
        book = visit.studio.ledger
        spending = project.spending(book)
    left = "" if job is None or job.task != "release" else job.time_left(project.seconds)
    return visit.page(template, project=project, job=job, spending=spending, left=left)


def cancel_job(visit: Visit) -> Response:
    """Ask a job to stop."""
    project = visit.project()
    visit.studio.jobs.cancel(project)
    job = read_job(project)
    deadline = time.monotonic() + 3.0
    while job is not None and job.active and time.monotonic() < deadline:
        time.sleep(0.1)
        job = read_job(project)
    page = {"draft": "columns", "rehearse": "budget"}.get("" if job is None else job.task, "release")
    return visit.go(f"/p/{project.id}/{page}")


def return_budget(visit: Visit) -> Response:
    """Return the reserved budget of a run without answers, and go back to the budget page."""
    project = visit.project()
    job = read_job(project)
    if job is not None and job.active:
        raise InputError("the release is being made; cancel it first")
    book = visit.studio.ledger
    spending = project.spending(book)
    if spending.state == "reserved" and spending.run is not None:
        book.cancel(spending.run)
    if spending.state in ("nothing", "reserved"):
        (project.folder / "job.json").unlink(missing_ok=True)
    return visit.go(f"/p/{project.id}/budget")


def open_project(visit: Visit) -> Response:
    """Redirect to the current page of a project."""
    project = visit.project()
    return visit.go(f"/p/{project.id}/result" if visit.person.role != "custodian" else _progress_of(project)[1])


def begin_again(visit: Visit) -> Response:
    """Begin a new project with the same table and schema."""
    old = visit.project()
    projects = visit.studio.projects
    content = _content(old)
    new = projects.begin(projects.new_folder(), table=old.table, shown=old.shown, name=old.name)
    new.write_content(content)
    with projects.edit(new.id) as edit:
        edit.set(notes=old.notes, people=old.people, to_discover=old.to_discover, questions=old.questions)
    return visit.go(f"/p/{new.id}/columns")


# -- 6. Ledger


def show_ledger(visit: Visit) -> Response:
    """Show what was spent on each dataset and by whom, grants and tokens."""
    return _ledger_page(visit)


def _ledger_page(visit: Visit, **content: Any) -> Response:
    shown = visit.studio.ledger_reader.read("ledger page", _read_ledger)
    return visit.page("ledger.html", **{"new_token": "", "verified": None, "roles": ROLES} | shown | content)


def _read_ledger(book: Ledger) -> dict[str, Any]:
    """Return the content of the page about the ledger."""
    runs, tokens = list(reversed(book.reservations())), book.tokens()
    names = {token.holder: token.name for token in tokens}
    rows = [
        {
            "run": one.run,
            "dataset": one.dataset,
            "when": one.time.strftime("%Y-%m-%d %H:%M"),
            "who": _name_of(one.who, names),
            "cost": f"rho {float_above(one.budget.rho):.3g}"
            if one.budget.epsilon is None
            else f"epsilon {float_above(one.budget.epsilon):.4g}",
            "state": one.state,
            "answers": one.answers,
        }
        for one in runs[:_MOST_RUNS]
    ]
    return {
        "datasets": [book.describe(name) for name in sorted(book.datasets())],
        "runs": rows,
        "more": max(0, len(runs) - _MOST_RUNS),
        "tokens": tokens,
        "address": book.address,
    }


def _name_of(who: str, names: Mapping[str, str]) -> str:
    return names.get(who, who.partition(":")[2] if who.startswith("user:") else "a token")


def add_grant(visit: Visit) -> Response:
    """Grant budget for a dataset."""
    form = visit.form
    epsilon = form.number("epsilon", "epsilon")
    if epsilon is None:
        raise SettingError("epsilon: say how much may be spent")
    per = "year" if form.get("per") == "year" else "all"
    book = visit.studio.ledger
    book.grant(
        Grant(form.get("dataset", "").strip(), epsilon, form.number("delta", "delta") or 1e-6, None, cast(Any, per))
    )
    return visit.go("/ledger#datasets")


def revoke_grant(visit: Visit) -> Response:
    """Revoke a grant."""
    book = visit.studio.ledger
    book.revoke(int(visit.form.number("grant", "grant") or 0))
    return visit.go("/ledger#datasets")


def verify_ledger(visit: Visit) -> Response:
    """Verify that no entry was changed."""
    book = visit.studio.ledger
    wrong = book.verify() if book.exists else []
    return _ledger_page(visit, verified=wrong)


def add_token(visit: Visit) -> Response:
    """Make a token; it is shown once."""
    role = visit.form.get("role", "")
    book = visit.studio.ledger
    token, secret = book.add_token(cast(Any, role), visit.form.get("name", ""))
    return _ledger_page(visit, new_token=secret, token=token)


def revoke_token(visit: Visit) -> Response:
    """Revoke a token, and end its sessions."""
    number = int(visit.form.number("token", "token") or 0)
    book = visit.studio.ledger
    found = next((token for token in book.tokens() if token.number == number), None)
    book.revoke_token(number)
    if found is not None:
        visit.studio.sessions.close_all(found.holder)
    return visit.go("/ledger#tokens")


PAGES = (
    Page("GET", "/launch", launch, "open"),
    Page("GET", "/login", show_login, "open"),
    Page("POST", "/login", log_in, "open"),
    Page("POST", "/logout", log_out, "analyst"),
    Page("GET", "/", home, "analyst", quick=True),
    Page("POST", "/begin", begin_with_place),
    Page("POST", "/upload", begin_with_upload, stream=True),
    Page("GET", "/p/{project}", open_project, "analyst"),
    Page("GET", "/p/{project}/table", show_table),
    Page("POST", "/p/{project}/draft", start_draft),
    Page("GET", "/p/{project}/columns", show_columns, quick=True),
    Page("POST", "/p/{project}/columns", accept_columns),
    Page("POST", "/p/{project}/rules", change_rules),
    Page("POST", "/p/{project}/rules/check", check_rule),
    Page("GET", "/p/{project}/rules/fields", show_rule_fields, quick=True),
    Page("GET", "/p/{project}/rules/condition", show_rule_condition, quick=True),
    Page("GET", "/p/{project}/columns/{place:int}", show_column, quick=True),
    Page("POST", "/p/{project}/columns/{place:int}", save_column),
    Page("POST", "/p/{project}/columns/{place:int}/kind", change_kind),
    Page("POST", "/p/{project}/columns/{place:int}/check", check_column),
    Page("GET", "/p/{project}/budget", show_budget, quick=True),
    Page("GET", "/p/{project}/predict", predict),
    Page("POST", "/p/{project}/budget", save_budget),
    Page("GET", "/p/{project}/release", show_release, quick=True),
    Page("POST", "/p/{project}/release", start_release),
    Page("GET", "/p/{project}/progress", show_progress, quick=True),
    Page("POST", "/p/{project}/cancel", cancel_job),
    Page("POST", "/p/{project}/return", return_budget),
    Page("POST", "/p/{project}/again", begin_again),
    Page("GET", "/ledger", show_ledger, quick=True),
    Page("POST", "/ledger/grant", add_grant),
    Page("POST", "/ledger/revoke", revoke_grant),
    Page("POST", "/ledger/verify", verify_ledger),
    Page("POST", "/ledger/token", add_token),
    Page("POST", "/ledger/token/revoke", revoke_token),
)
"""Every page of the custodian, and those to sign in and out."""
