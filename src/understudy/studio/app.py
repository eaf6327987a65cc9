"""The application: which page answers which address, who may see it, and what happens when something goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from anyio import CapacityLimiter, fail_after
from anyio.to_thread import run_sync
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from understudy.errors import (
    BudgetExceeded,
    InputError,
    InternalError,
    LedgerError,
    OutputError,
    SchemaError,
    SettingError,
    UnderstudyError,
    describe_unexpected,
)
from understudy.ledger import Ledger
from understudy.ledger.ledger import acting_as
from understudy.studio.guard import Guard, Session, Sessions, holds_token
from understudy.studio.jobs import Jobs
from understudy.studio.planner import Planner
from understudy.studio.project import Conflict, Missing, Project, Projects
from understudy.studio.uploads import Refused, UploadLimits

T = TypeVar("T")
_QUICK_THREADS = 1
"""The number of quick pages that are made at once; with more, each would wait for the interpreter."""

_MOST_FORM = 8 << 20
_MOST_FIELDS = 20_000
_FORM_SECONDS = 60.0
_STATIC = {
    "htmx.min.js": "text/javascript; charset=utf-8",
    "studio.css": "text/css; charset=utf-8",
    "mark.svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Studio:
    """The state that all pages share.

    Attributes:
        projects: the projects.
        sessions: who is signed in.
        jobs: starts long work.
        planner: predicts errors.
        ledger_address: the ledger; None for the user's own.
        local: whether only this machine can reach the studio; its user may then name any path and database.
        roots: the folders whose tables may be named if the studio is not local.
        uploads: what an upload may be.
    """

    projects: Projects
    sessions: Sessions
    jobs: Jobs
    planner: Planner
    ledger_address: str | None = None
    local: bool = True
    roots: tuple[Path, ...] = ()
    uploads: UploadLimits = field(default_factory=UploadLimits)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger; connecting to its database takes longer than reading it, so all pages share the connections."""
        return Ledger(self.ledger_address)

    @cached_property
    def ledger_reader(self) -> LedgerReader:
        """A cache of what many pages show of the ledger."""
        return LedgerReader(self.ledger)


class LedgerReader:
    """A cache of reads from the ledger, valid until an entry is added; entries are never changed.

    Args:
        ledger: the ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[Hashable, tuple[tuple[int, date], Any]] = {}

    def read(self, name: Hashable, read: Callable[[Ledger], T]) -> T:
        """Return what a function reads from the ledger; cached for at most a day, because grants by year age."""
        now = self._ledger.latest, date.today()
        before, value = self._kept.get(name, (None, None))
        if before != now:
            value = read(self._ledger)
            self._kept[name] = now, value
        return cast(T, value)


class Form(dict[str, str]):
    """The fields of a form; `all` has every value of a field that occurs several times."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return [value for key, value in self._pairs if key == name]

    def number(self, name: str, words: str) -> float | None:
        """Return a field as a number; None if it is empty.

        Raises:
            SettingError: saying what the field is for.
        """
        text = self.get(name, "").strip().replace(" ", "").replace("_", "").lstrip("~")
        if not text:
            return None
        try:
            return float(text.replace(",", ""))
        except ValueError:
            raise SettingError(f"{words}: give a number") from None


@dataclass(frozen=True)
class Visit:
    """One request of a signed-in person.

    Attributes:
        studio: what pages work with.
        request: the request.
        session: who sent it; None on the page to sign in.
        form: the fields of a form, or of the address.
    """

    studio: Studio
    request: Request
    session: Session | None
    form: Form

    @property
    def person(self) -> Session:
        """Who sent the request."""
        if self.session is None:
            raise Missing("sign in first")
        return self.session

    @property
    def partial(self) -> bool:
        """Whether only a part of a page is requested."""
        return "hx-request" in self.request.headers and "hx-boosted" not in self.request.headers

    def project(self) -> Project:
        """Return the project of the address.

        Raises:
            Missing: if there is none, or an analyst may not see it.
        """
        project = self.studio.projects.get(self.request.path_params["project"])
        if self.person.role != "custodian" and not (project.shared and project.release.exists()):
            raise Missing("there is no such page")
        return project

    def page(self, template: str, status: int = 200, **content: Any) -> Response:
        """Render a template."""
        common = {"session": self.session, "path": self.request.url.path, "local": self.studio.local}
        return HTMLResponse(_templates().get_template(template).render(common | content), status)

    def go(self, address: str) -> Response:
        """Redirect to another page; a request for a part of a page redirects the whole page."""
        if self.partial:
            now = urlsplit(self.request.headers.get("hx-current-url", "")).path
            here = now == urlsplit(address).path  # a browser would only scroll to the part that the address names
            return Response(headers={"HX-Refresh": "true"} if here else {"HX-Redirect": address})
        return RedirectResponse(address, 303)


@dataclass(frozen=True)
class Page:
    """An address of the studio and the function that answers it.

    Attributes:
        method: GET, or POST for everything that changes something.
        path: the address.
        show: what answers it.
        role: who may see it; "open" needs no session.
        stream: whether the page reads the body itself, and checks the CSRF token itself.
        quick: whether the page only reads small files of the studio and the ledger, and waits for nothing else.
    """

    method: Literal["GET", "POST"]
    path: str
    show: Callable[[Visit], Any]
    role: Literal["custodian", "analyst", "open"] = "custodian"
    stream: bool = False
    quick: bool = False


def make_app(studio: Studio, hosts: frozenset[str], pages: Iterable[Page]) -> ASGIApp:
    """Return the application.

    Args:
        studio: what pages work with.
        hosts: the values of the header `Host` that are the studio's own.
        pages: every page.
    """
    limiter = CapacityLimiter(_QUICK_THREADS)
    routes = [
        Route(
            page.path,
            _endpoint(studio, page, limiter if page.quick else None),
            methods=[page.method],
            name=f"{page.method} {page.path}",
        )
        for page in pages
    ]
    routes.append(Route("/static/{name}", _send_static, methods=["GET"]))

    async def show_missing(request: Request, error: Exception) -> Response:
        visit = Visit(studio, request, getattr(request.state, "session", None), Form([]))
        return await run_in_threadpool(_show_error, visit, Missing("there is no such page"))

    app = Starlette(routes=routes, exception_handlers={404: show_missing, 405: show_missing})
    return Guard(app, hosts=hosts, sessions=studio.sessions)


def _endpoint(studio: Studio, page: Page, limiter: CapacityLimiter | None) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        session: Session | None = request.state.session
        visit = Visit(studio, request, session, Form(list(request.query_params.multi_items())))
        try:
            if page.role == "custodian" and (session is None or session.role != "custodian"):
                raise Missing("there is no such page")
            if page.stream:
                return await page.show(visit)  # type: ignore[no-any-return]
            if page.method == "POST":
                visit = Visit(studio, request, session, await _read_form(request))
                if page.role != "open" and not holds_token(session, visit.form, request.headers):
                    raise Refused("this form is not from a page of this session; load the page again")
            with acting_as(None if session is None or session.token is None else session.who):
                return await run_sync(page.show, visit, limiter=limiter)
        except ClientDisconnect:
            return Response(status_code=400)
        except HTTPException:
            raise
        except Exception as error:
            return await run_in_threadpool(_show_error, visit, error)

    return answer


async def _read_form(request: Request) -> Form:
    """Read the fields of a form of bounded size."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused("this is not a form of the studio")
    body = bytearray()
    try:
        with fail_after(_FORM_SECONDS):
            async for block in request.stream():
                body += block
                if len(body) > _MOST_FORM:
                    raise InputError("the form is too large; nothing was changed")
    except TimeoutError:
        raise InputError("the form took too long to arrive; nothing was changed") from None
    try:
        return Form(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except (ValueError, UnicodeDecodeError):
        raise Refused("the form cannot be read; nothing was changed") from None


# -- What happened, what was spent, what to do next.


_NEXT = (
    (Missing, 404, "Go to the start, and choose from what is there."),
    (Refused, 403, "Load the page again, and repeat what you did."),
    (Conflict, 409, "Load the page again to see the newest state, and repeat your change there."),
    (BudgetExceeded, 409, "Choose a smaller epsilon, or ask whoever grants the budget for a larger grant."),
    (LedgerError, 503, "End the other program that holds the ledger, or wait for it; then load the page again."),
    (OutputError, 507, "Make room on the disk, or choose another folder; then try again."),
    (SchemaError, 400, "Go back, correct the column that the message names, and try again."),
    (InternalError, 500, "Load the page again. If it happens again, please report the line above."),
    (UnderstudyError, 400, "Go back, change what the message names, and try again."),
)


def _show_error(visit: Visit, error: Exception) -> Response:
    """Return the page about an error.

    **Privacy.** An unexpected error is described by its type and place: its message may quote a cell.
    """
    known = error if isinstance(error, UnderstudyError) else InternalError(describe_unexpected(error))
    status, advice = next((status, advice) for kind, status, advice in _NEXT if isinstance(known, kind))
    words = str(known)
    words = words[:1].upper() + words[1:]
    if visit.partial:
        return visit.page("error_part.html", status, words=words)
    back = visit.request.url.path if visit.request.method == "GET" else "/"
    return visit.page("error.html", status, words=words, spent=_describe_spending(visit), advice=advice, back=back)


def _describe_spending(visit: Visit) -> str:
    """Describe what the project of the address has spent, according to the ledger."""
    key = visit.request.path_params.get("project", "")
    if visit.session is None or visit.session.role != "custodian":
        return "Nothing was spent."
    try:
        return visit.studio.projects.get(key).spending(visit.studio.ledger).words if key else "Nothing was spent."
    except LedgerError:
        return "The ledger cannot be read at the moment, so this page cannot say. Nothing is spent without the ledger."
    except UnderstudyError:
        return "Nothing was spent."


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("understudy.studio"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals["version"] = version("understudy")
    environment.filters["number"] = lambda value: f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return environment


@cache
def _static_file(name: str) -> bytes:
    return (Path(__file__).parent / "static" / name).read_bytes()


def _send_static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        return Response("There is no such file.\n", 404, media_type="text/plain")
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(_static_file(name), media_type=_STATIC[name], headers=headers)


def close_studio(studio: Studio) -> None:
    """Stop what the studio started, except jobs: they continue."""
    studio.planner.close()
    studio.ledger.close()
