"""`studio`: the same work in a browser, on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.console import Json, LedgerAddress, print_result
from understudy.errors import SettingError


def studio(
    host: Annotated[
        str, typer.Option(help="Address to listen on. Beyond this machine, everybody needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.")] = 0,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name under which browsers reach the studio, such as that of a proxy; repeatable."),
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Where projects are kept; default: your data folder.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="With --host: a folder of tables that may be named by path; repeatable."),
    ] = None,
    ledger: LedgerAddress = None,
    memory: Annotated[
        float | None, typer.Option(help="Memory that one job may use, in GiB; default: three quarters of all.")
    ] = None,
    hours: Annotated[float, typer.Option(help="Time that one job may take, in hours.")] = 24.0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open the browser.")] = True,
    shortcut: Annotated[
        bool, typer.Option("--shortcut", help="Write an icon that starts the studio by a double click, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Work in the browser: from a table to a release.

    Serves on this machine only and prints an address that works once. Jobs go on if the browser is closed.
    """
    for module in ("starlette", "uvicorn", "python_multipart"):
        if find_spec(module) is None:
            raise SettingError("the studio needs more packages: pip install 'understudy[studio]'")
    from understudy.studio.jobs import Limits
    from understudy.studio.server import serve
    from understudy.studio.shortcut import write_shortcut

    if shortcut:
        path, words = write_shortcut()
        print_result(f"Written: {path}\n{words}", {"shortcut": str(path)}, as_json=as_json)
        return

    if hours <= 0 or (memory is not None and memory <= 0):
        raise SettingError("--memory and --hours must be above 0")
    limits = Limits(seconds=hours * 3600)
    if memory is not None:
        limits = Limits(memory_bytes=int(memory * 2**30), seconds=hours * 3600)
    serve(
        host=host,
        port=port,
        names=name or (),
        folder=folder,
        data=data or (),
        ledger=ledger,
        limits=limits,
        browser=browser,
        announce=lambda words, told: print_result(words, told, as_json=as_json),
    )
