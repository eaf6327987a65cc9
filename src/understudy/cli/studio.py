"""`studio`: the same work in a browser, on this machine."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.console import Json, LedgerAddress, print_result
from understudy.errors import OutputError, SettingError


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


# -- `--shortcut`: an icon that starts the studio by a double click, for people who do not use a terminal.


_NAME = "Understudy Studio"


def write_shortcut() -> tuple[Path, str]:
    """Write a file that starts the studio with this Python: on the desktop, or on Linux in the menu of applications.

    Returns:
        Its path, and how to use it.

    Raises:
        OutputError: if it cannot be written.
    """
    from understudy.files import describe_os_error

    path, text, words = make_shortcut(sys.platform, sys.executable)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        path.chmod(0o755)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({describe_os_error(error)}); start the studio from a terminal"
        ) from None
    return path, words


def make_shortcut(platform: str, python: str) -> tuple[Path, str, str]:
    """Return where the file belongs on a platform, its content, and how to use it.

    Args:
        platform: as `sys.platform`.
        python: the path of the interpreter.
    """
    from platformdirs import user_data_path, user_desktop_path

    import understudy.studio

    if platform == "win32":
        line = f'@"{python.replace("%", "%%")}" -m understudy studio\r\n'
        return user_desktop_path() / f"{_NAME}.cmd", line, "Double-click it on your desktop to start the studio."
    if platform == "darwin":
        quoted = python.replace("'", "'\\''")
        text = f"#!/bin/sh\nexec '{quoted}' -m understudy studio\n"
        return user_desktop_path() / f"{_NAME}.command", text, "Double-click it on your desktop to start the studio."
    escaped = "".join(f"\\\\{sign}" if sign in '"`$\\' else sign for sign in python).replace("%", "%%")
    lines = [
        "[Desktop Entry]",
        "Type=Application",
        f"Name={_NAME}",
        "Comment=Make a private stand-in for a sensitive table",
        f'Exec="{escaped}" -m understudy studio',
        f"Icon={Path(understudy.studio.__path__[0]) / 'static' / 'mark.svg'}",
        "Terminal=true",
        "Categories=Office;",
    ]
    folder = user_data_path() / "applications"
    return (
        folder / "understudy-studio.desktop",
        "\n".join(lines) + "\n",
        f"“{_NAME}” is in the menu of applications now.",
    )
