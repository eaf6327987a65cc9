"""The command line: thin wrappers around the Python API. The commands are listed in `commands`."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any


def __getattr__(name: str) -> Any:
    """Return `app`, the application with all commands, which is loaded at its first use."""
    if name == "app":
        from understudy.cli.commands import app

        return app
    raise AttributeError(f"module 'understudy.cli' has no attribute {name!r}")


def main() -> None:
    """Run the command line; little is imported before this, so that an early interrupt shows no traceback."""
    if isinstance(sys.stdout, TextIOWrapper):  # a character that the terminal cannot show is written as its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from understudy.cli.commands import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted.\n")
        sys.exit(130)
