"""Start the studio: bind the address, open the browser, serve until interrupted."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h11
import uvicorn
from platformdirs import user_data_path
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from understudy.errors import OutputError, SettingError
from understudy.ledger import Ledger
from understudy.studio.app import Studio, close_studio, make_app
from understudy.studio.guard import Sessions
from understudy.studio.jobs import Jobs, Limits
from understudy.studio.pages import PAGES
from understudy.studio.planner import Planner
from understudy.studio.project import Projects
from understudy.studio.results import RESULTS
from understudy.studio.uploads import UploadLimits


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    names: Sequence[str] = (),
    folder: Path | None = None,
    data: Sequence[Path] = (),
    ledger: str | None = None,
    limits: Limits | None = None,
    uploads: UploadLimits | None = None,
    browser: bool = True,
    announce: Callable[[str, Mapping[str, Any]], None] = lambda words, told: None,
) -> None:
    """Serve the studio until it is interrupted. Running jobs then continue.

    Args:
        host: the address to listen on. Beyond this machine, or with a name, everybody needs a token of the ledger, and
            cookies are for TLS only: put a proxy with TLS in front.
        port: the port; 0 for a free one.
        names: further names under which browsers reach the studio, such as that of the proxy.
        folder: where projects are kept; by default in the user's data folder.
        data: folders with tables that may be named by path if the studio is not local.
        ledger: the address of the ledger.
        limits: what a job may use.
        uploads: what an upload may be.
        browser: whether to open the browser.
        announce: called once with what the user should see, in words and as data.

    Raises:
        SettingError: if the address cannot be used, or nobody could sign in.
        OutputError: if the folder cannot be used.
    """
    local = is_loopback(host) and not names  # a name means that a proxy serves other machines
    if not local:
        _check_reachable(host, port, names, ledger)
    limits = limits or Limits()
    projects = Projects(folder or user_data_path("understudy") / "studio")
    with _bind(host, port) as listener:
        port = listener.getsockname()[1]
        launch = secrets.token_urlsafe(32) if local else None
        studio = Studio(
            projects=projects,
            sessions=Sessions(secure=not local, launch=launch),
            jobs=Jobs(projects, ledger, limits),
            planner=Planner(limits),
            ledger_address=ledger,
            local=local,
            roots=tuple(path.resolve() for path in data),
            uploads=uploads or UploadLimits(),
        )
        address = None if launch is None else _launch_address(host, port, launch)
        announce(_describe_start(host, port, address), {"address": address, "host": host, "port": port})
        if browser and address is not None:
            webbrowser.open(address)
        try:
            app = make_app(studio, list_hosts(host, port, names, local=local), (*PAGES, *RESULTS))
            make_server(app).run(sockets=[listener])
        except KeyboardInterrupt:
            pass
        finally:
            close_studio(studio)


def _check_reachable(host: str, port: int, names: Sequence[str], ledger: str | None) -> None:
    """Refuse to listen beyond this machine where nobody could sign in."""
    if not any(not token.revoked for token in Ledger(ledger).tokens()):
        raise SettingError(
            "beyond this machine everybody needs a token, and the ledger has none yet; make one with "
            "`understudy ledger token --role custodian --name NAME`"
        )
    if not list_hosts(host, port, names, local=False):
        raise SettingError("--name: say under which name browsers reach the studio, such as --name studio.example.org")


def _launch_address(host: str, port: int, launch: str) -> str:
    return f"http://{'localhost' if host in ('127.0.0.1', '::1') else host}:{port}/launch?key={launch}"


def _describe_start(host: str, port: int, address: str | None) -> str:
    """Return the message that the user sees."""
    if address is None:
        return (
            f"The studio listens on {host}, port {port}. Everybody signs in with a token.\n"
            "Put a proxy with TLS in front of it: browsers send its cookies over TLS only."
        )
    return (
        f"The studio is open at {address}\n"
        "The address works once and on this machine only. Stop the studio with Ctrl+C."
    )


class HeaderTimeout(H11Protocol):
    """HTTP on one connection, which is closed if the header of a request takes too long to arrive."""

    seconds = 15.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first header."""
        super().connection_made(transport)
        self._watch_header()

    def data_received(self, data: bytes) -> None:
        """Handle what arrived; begin to wait with the first byte of a header, and stop with its last."""
        super().data_received(data)
        self._watch_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _watch_header(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def make_server(app: ASGIApp, protocol: type[HeaderTimeout] = HeaderTimeout) -> uvicorn.Server:
    """Return the server of an application. It writes no log, so that nobody can forge a line in it."""
    config = uvicorn.Config(
        app,
        http=protocol,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        limit_concurrency=512,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "studio.example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def list_hosts(host: str, port: int, names: Sequence[str], *, local: bool) -> frozenset[str]:
    """Return the values of the header `Host` that are the studio's own."""
    own = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host} if local else set()
    own |= set() if local or host in ("0.0.0.0", "::") else {host}  # noqa: S104 - not an address to bind
    found = {f"{name}:{port}" for name in own} | set(names)
    return frozenset(name.lower() for name in found | (own if port == 80 else set()))


def _bind(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise SettingError("--port: give a number from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
        return listener
    except socket.gaierror:
        raise SettingError(f"--host {host}: there is no such address; give one of this machine") from None
    except OSError as error:
        raise OutputError(
            f"the address {host}, port {port}, cannot be used ({error.strerror}); choose another with --port"
        ) from None
