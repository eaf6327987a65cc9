"""Code shared by all commands: output as text or JSON, progress, values of settings, error handling.

Everything that a command prints passes through `escape_output`: a column name in a stranger's release may hold control
characters that clear a terminal, change its title or reverse the order of letters.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from understudy.arguments import holds_password
from understudy.errors import Notice, OutputError, SettingError, UnderstudyError, describe_unexpected
from understudy.files import could_not_write
from understudy.progress import Progress, progress_bar, silent

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
LedgerAddress = Annotated[
    str | None,
    typer.Option("--ledger", metavar="FILE|URL", help="Ledger to use; default: UNDERSTUDY_LEDGER, else your own."),
]


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls of terminals, but for tabs and ends of lines
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # changes of the direction of writing
    "\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"  # ends of lines, invisible or halved signs
)


def escape_controls(text: str) -> str:
    r"""Escape control characters and changes of writing direction; tabs and line ends stay.

    >>> escape_controls("a\x1b[2Jb\u202e\tc")
    'a\\x1b[2Jb\\u202e\tc'
    """
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode-escape").decode(), text)


class _Escaped:
    """A text stream that escapes what is written to it or to its `buffer`; everything else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self.unescaped = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)

    @property
    def buffer(self) -> _EscapedBytes:
        return _EscapedBytes(self.unescaped.buffer)

    def write(self, text: str) -> int:
        self.unescaped.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


class _EscapedBytes:
    """A binary stream that escapes the UTF-8 text written to it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> int:
        self._stream.write(escape_controls(self._decoder.decode(bytes(data))).encode())
        return len(data)


@contextmanager
def escape_output() -> Iterator[None]:
    """Escape everything that is written to the standard streams inside the block."""
    before = sys.stdout, sys.stderr
    out, err = (None if stream is None else _Escaped(stream) for stream in before)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def get_rows_output() -> Any:
    """Return the standard output for rows: unchanged for files and programs, escaped on a terminal."""
    return sys.stdout.buffer if sys.stdout.isatty() else get_unescaped(sys.stdout).buffer


def get_unescaped(stream: Any) -> Any:
    """Return a standard stream without escaping, for control characters of our own."""
    return getattr(stream, "unescaped", stream)


def print_result(words: str, data: Mapping[str, Any], *, quiet: bool = False, as_json: bool = False) -> None:
    """Print the result of a command: `data` as one JSON object, or `words`, or nothing.

    Raises:
        OutputError: if it cannot be written, as into a file on a full disk.
    """
    text = json.dumps(data, indent=2) if as_json else "" if quiet else words.rstrip()
    if not text or sys.stdout is None:  # None: started without a standard output
        return
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise could_not_write("the result", error) from None


def parse_value(name: str, text: str) -> Any:
    """Parse the value of `--set NAME=TEXT`, written as YAML.

    Raises:
        SettingError: if it is no YAML.
    """
    import yaml

    from understudy.yaml_json import read_yaml

    try:
        return read_yaml(text)
    except yaml.YAMLError:
        raise SettingError(f"--set {name}: the value cannot be read; write a number, a word or [a, b]") from None


def parse_numbers(option: str, text: str) -> list[float]:
    """Parse a list of numbers such as ``0.5,1,2``.

    Raises:
        SettingError: naming the option.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"{option} takes numbers, for example {option} 0.5,1,2") from None


def align_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of text in which every column of a table is as wide as its widest cell."""
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table]


def refuse_password(address: str) -> None:
    """Refuse a password in a URL on the command line: every user of the machine can see it in the process list.

    Raises:
        SettingError: naming the places where a password belongs.
    """
    if holds_password(address):
        raise SettingError(
            "a password on the command line can be seen by every user of this machine; remove it from the URL and put "
            "it into PGPASSWORD, ~/.pgpass or a service file (?service=NAME). Treat it as leaked and change it"
        )


def check_new_file(path: Path, *, force: bool) -> None:
    """Refuse an output that already exists, or whose folder is not.

    Raises:
        OutputError: saying what to do.
    """
    if path.exists() and not force:
        raise OutputError(f"{path} already exists; choose another output or add --force")
    if not path.parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist; create it first")


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Progress]:
    """Show progress on the error stream if it is a terminal; yields the callback."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    # The bar's own control characters must reach the terminal; texts in it are escaped here.
    with progress_bar(file=get_unescaped(sys.stderr)) as show:
        yield lambda step: show(replace(step, detail=escape_controls(step.detail)))


# -- Errors: every one becomes one clear sentence and an exit code, never a traceback or a value.


INTERRUPTED, OUR_FAULT, USAGE = 130, 70, 2
_NAMING = {
    errno.ENAMETOOLONG: "the name of a file is too long; choose a shorter one",
    errno.EACCES: "a file or folder given to the command cannot be reached: this user may not enter a folder of its "
    "path; choose another, or change the permissions",
}
"""Messages for operating system errors about a given path that no earlier check found."""


class CommandGroup(TyperGroup):
    """A command group that turns every error into one line and an exit code, never a traceback.

    **Privacy.** An unexpected error is shown as an id, its type and a place in the code: its message, its cause and the
    variables around it may hold values of the table and are never printed. Printed text cannot control the terminal.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _name_values(self)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line with all output escaped, help and usage errors included."""
        with escape_output():
            return super().main(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and explain what went wrong."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = partial(_print_notice, set())
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
            _explain("InternalError", describe_unexpected(error))
            raise typer.Exit(OUR_FAULT) from None
        finally:
            _drop_output()


_VALUES: dict[Any, str] = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}
_VALUES_OF = {"accept": "COLUMN", "mechanism": "NAME", "people": "N", "unit": "row|COLUMN:K", "where": "CONDITIONS"}
_VALUES_OF |= dict.fromkeys(("dataset", "name", "parent"), "NAME")


def _name_values(command: Any) -> None:
    """Name the values of options in the help by plain words, and those of arguments by the argument's own name.

    Typer would show Python's types, such as ``<list[str]>``.
    """
    for child in getattr(command, "commands", {}).values():
        _name_values(child)
    kinds = get_type_hints(command.callback) if command.callback else {}
    for one in command.params:
        if one.param_type_name == "argument":
            one.display_type_rich = lambda ctx: None
        elif one.metavar is None and one.name in kinds:
            kind = kinds[one.name]
            while get_origin(kind) in (UnionType, Union, list):  # of one kind of value, with or without None
                kind = next(part for part in get_args(kind) if part is not NoneType)
            usual = "|".join(get_args(kind)) if get_origin(kind) is Literal else _VALUES.get(kind)
            one.metavar = _VALUES_OF.get(one.name, usual)


def _print_notice(printed: set[str], message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning of ours as one line, once per command.

    **Privacy.** Those of other libraries are not shown: they may quote a cell, and some appear for some tables only.
    """
    if not issubclass(category, Notice):
        return
    if str(message) not in printed and "--quiet" not in sys.argv and "-q" not in sys.argv:
        printed.add(str(message))
        sys.stderr.write(json.dumps({"note": str(message)}) + "\n" if "--json" in sys.argv else f"note: {message}\n")


def _drop_output() -> None:
    """Drop output that cannot be written: Python would try again at exit, and fail with its own message."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(kind: str, message: str) -> None:
    if "--json" in sys.argv:
        sys.stderr.write(json.dumps({"error": kind, "message": message}) + "\n")
    else:
        line = message.replace("\n", "\\n")  # a name that contains a line end cannot imitate a line of ours
        sys.stderr.write(f"error: {line}\n")
