"""The last line of every command: errors become one clear sentence and an exit code, never a traceback or a value."""

from __future__ import annotations

import errno
import json
import os
import secrets
import sys
import traceback
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from understudy.cli.console import escaped_output
from understudy.errors import Notice, SettingError, UnderstudyError

INTERRUPTED, OUR_FAULT, USAGE = 130, 70, 2
_NAMING = {
    errno.ENAMETOOLONG: "the name of a file is too long; choose a shorter one",
    errno.EACCES: "a file or folder that the command names cannot be reached: this user may not enter a folder of its "
    "path; choose another, or change who may",
}
"""What the system says of a path that was given, where nothing before found it out."""


class Guarded(TyperGroup):
    """A command group whose commands cannot end in a traceback.

    **Privacy.** An unexpected error is shown as an id, its type and a place in the code: its message, its cause and the
    variables around it may hold values of the table and are never printed. What is printed cannot steer the terminal.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line with all that it prints made printable, help and wrong usage included."""
        with escaped_output():
            return super().main(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and explain what went wrong."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = partial(_noted, set())
                warnings.simplefilter("always", Notice)
                return super().invoke(ctx)
        except UnderstudyError as error:
            _explain(type(error).__name__, str(error))
            raise typer.Exit(error.exit_code) from None
        except (KeyboardInterrupt, typer.Abort) as interrupt:  # the second: at a question
            _explain("Interrupted", " ".join(["interrupted.", *getattr(interrupt, "__notes__", [])]))
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise typer.Exit(0) from None
        except Exception as error:
            if type(error).__module__.startswith(("typer", "click")):
                if "--json" in sys.argv and getattr(error, "exit_code", None) == USAGE:
                    _explain("UsageError", error.format_message())  # type: ignore[attr-defined]
                    raise typer.Exit(USAGE) from None
                raise
            if isinstance(error, OSError) and error.errno in _NAMING:
                _explain("SettingError", _NAMING[error.errno])
                raise typer.Exit(SettingError.exit_code) from None
            _explain("InternalError", _unexpected(error))
            raise typer.Exit(OUR_FAULT) from None
        finally:
            _let_go()


def _noted(said: set[str], message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """Our own warnings as one line, once a command.

    **Privacy.** Those of other libraries are not shown: they may quote a cell, and some appear for some tables only.
    """
    if not issubclass(category, Notice):
        return
    if str(message) not in said and "--quiet" not in sys.argv and "-q" not in sys.argv:
        said.add(str(message))
        sys.stderr.write(json.dumps({"note": str(message)}) + "\n" if "--json" in sys.argv else f"note: {message}\n")


def _let_go() -> None:
    """Drop what cannot be written: Python would try once more when it ends, and fail in its own words and exit code."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(error: Exception) -> str:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "understudy" in Path(frame.filename).parts
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    return (
        f"something went wrong that we did not foresee (error {secrets.token_hex(4)}: {type(error).__name__} at "
        f"{place}). Please report this line; it holds nothing of your table"
    )


def _explain(kind: str, message: str) -> None:
    if "--json" in sys.argv:
        sys.stderr.write(json.dumps({"error": kind, "message": message}) + "\n")
    else:
        line = message.replace("\n", "\\n")  # a name with an end of line in it cannot look like a line of ours
        sys.stderr.write(f"error: {line}\n")
