"""Refuse requests that are not the user's own: wrong host, other sites, no session, no CSRF token.

Every response gets headers that forbid framing, sniffing, caching, inline scripts and any request to another server.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.ledger.ledger import Role

SESSION_SECONDS = 12 * 3600
"""A session that is not used for this long has ended."""

_MOST_SESSIONS = 1000
_TRIES, _TRIES_SECONDS = 10, 60.0
_OPEN = ("/login", "/launch")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"
"""A report is a page of its own: it runs no script, and only a page of the studio may show it in a frame."""

_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


@dataclass
class Session:
    """A signed-in browser.

    Attributes:
        role: what the session may do.
        who: the name under which the ledger records it.
        name: the name shown on pages.
        token: the token of its holder, for jobs that it starts; None for the user who started the studio.
        csrf: a secret that every form of the session carries.
        used: when it was last used.
    """

    role: Role
    who: str
    name: str
    token: str | None = None
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used: float = field(default_factory=time.monotonic)


class Sessions:
    """The sessions of a studio, in memory: they end when the studio stops.

    Args:
        secure: whether the cookie is for TLS only.
        launch: a secret that opens one custodian's session, once; None where everybody needs a token.
    """

    def __init__(self, *, secure: bool = False, launch: str | None = None) -> None:
        self.secure, self._launch = secure, launch
        self.cookie = "__Host-understudy" if secure else "understudy"
        self._sessions: dict[str, Session] = {}
        self._failures: list[float] = []
        self._lock = threading.Lock()

    def find(self, key: str | None) -> Session | None:
        """Return the session of a cookie, if it has not ended."""
        with self._lock:
            session = self._sessions.get(key or "")
            if session is None or time.monotonic() - session.used > SESSION_SECONDS:
                self._sessions.pop(key or "", None)
                return None
            session.used = time.monotonic()
            return session

    def open(self, session: Session, response: Response) -> Response:
        """Open a session under a new key, which a browser cannot choose, and set its cookie."""
        key = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[min(self._sessions, key=lambda known: self._sessions[known].used)]
            self._sessions[key] = session
        response.set_cookie(self.cookie, key, path="/", httponly=True, samesite="strict", secure=self.secure)
        return response

    def close(self, key: str | None, response: Response) -> Response:
        """End a session."""
        with self._lock:
            self._sessions.pop(key or "", None)
        response.delete_cookie(self.cookie, path="/", httponly=True, samesite="strict", secure=self.secure)
        return response

    def close_all(self, who: str) -> None:
        """End every session of a holder, whose token was revoked."""
        with self._lock:
            for key in [key for key, session in self._sessions.items() if session.who == who]:
                del self._sessions[key]

    def use_launch(self, given: str) -> bool:
        """Return whether this is the launch secret, which is then invalid."""
        with self._lock:
            if self._launch is None or not compare_digest(self._launch.encode(), given.encode()):
                return False
            self._launch = None
            return True

    def count_failure(self) -> None:
        """Count a wrong token."""
        with self._lock:
            self._failures.append(time.monotonic())

    @property
    def busy(self) -> bool:
        """Whether too many wrong tokens were given in the last minute."""
        with self._lock:
            self._failures = [when for when in self._failures if time.monotonic() - when < _TRIES_SECONDS]
            return len(self._failures) >= _TRIES


class Guard:
    """Middleware: checks every request before a page sees it, and adds headers to every response.

    Args:
        app: the application.
        hosts: the values of `Host` that are the studio's own; every other is refused, so that a site whose name was
            pointed at this machine (DNS rebinding) cannot use it.
        sessions: the sessions.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], sessions: Sessions) -> None:
        self._app, self._hosts, self._sessions = app, hosts, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the studio has no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        answer = self._check(request)
        await (self._app if answer is None else answer)(scope, receive, send_guarded)

    def _check(self, request: Request) -> Response | None:
        """Return the refusal of a request; None if it may pass."""
        if request.headers.get("host", "").lower() not in self._hosts:
            return _refuse("This address is not the studio's own. Open the address that the studio printed.", 421)
        if request.method not in ("GET", "HEAD", "POST"):
            return _refuse("This method is not used here.", 405)
        if not _is_same_site(request):
            return _refuse("This request came from another site and was refused.", 403)
        path = request.url.path
        session = self._sessions.find(request.cookies.get(self._sessions.cookie))
        request.state.session = session
        if session is None and path not in _OPEN and not path.startswith("/static/"):
            if request.method == "POST" or "hx-request" in request.headers:
                return _refuse("The session has ended. Sign in again; nothing was changed.", 401)
            return RedirectResponse("/login", 303)
        return None


def _is_same_site(request: Request) -> bool:
    """Return whether the headers state that one of our own pages sent the request.

    A link on another site may lead here (a navigation without a body); nothing else may come from there.
    """
    site = request.headers.get("sec-fetch-site")
    if request.method != "POST":
        follows = request.headers.get("sec-fetch-mode") == "navigate"
        follows &= request.headers.get("sec-fetch-dest") == "document"
        return site in (None, "same-origin", "none") or follows
    origin = request.headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2].lower() == request.headers.get("host", "").lower()
    return site in (None, "same-origin")


def holds_token(session: Session | None, form: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
    """Return whether a form or a header has the CSRF token of the session."""
    given = headers.get("x-csrf-token") or form.get("csrf")
    return session is not None and isinstance(given, str) and compare_digest(given.encode(), session.csrf.encode())


def _refuse(words: str, status: int) -> Response:
    return Response(f"{words}\n", status, media_type="text/plain; charset=utf-8")
