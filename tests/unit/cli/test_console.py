"""What commands print: no name or value of a stranger's file steers the terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app, console
from understudy.cli.console import CommandGroup, escape_controls, show_progress
from understudy.progress import Step

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]\r\x7f\u2066\u2028"
COLUMN, VALUE = f"sex{EVIL}", f"f{EVIL}"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A release, a schema and a table whose names and values are made to steer a terminal."""
    folder = tmp_path_factory.mktemp("evil")
    fields = [
        {"name": COLUMN, "type": "string", "categories": ["m", VALUE, "x", "y"], "understudy": {"other": f"o{EVIL}"}},
        {"name": "n", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
        {"name": f"draft{EVIL}", "type": "integer", "constraints": {"minimum": 0, "maximum": 1}},
    ]
    content = {"title": EVIL, "fields": fields, "understudy": {"privacy_unit": "row"}}
    (folder / "s.schema.json").write_text(json.dumps(content))
    rows = {COLUMN: ["m", VALUE] * 50, "n": list(range(10)) * 10, f"draft{EVIL}": [0, 1] * 50}
    frame = pl.DataFrame(rows)
    frame.write_parquet(folder / "t.parquet")
    us.synthesize(frame, us.Schema.load(folder / "s.schema.json"), epsilon=8.0, delta=1e-6).save(folder / "r.release")
    content["fields"] = [*fields[:2], fields[2] | {"understudy": {"status": "draft"}}]
    (folder / "draft.schema.json").write_text(json.dumps(content))
    return {"release": folder / "r.release", "schema": folder / "s.schema.json", "table": folder / "t.parquet"} | {
        "draft": folder / "draft.schema.json",
        "new": folder,
    }


COMMANDS = {
    "inspect": ("inspect", "{release}"),
    "bounds": ("bounds", "{release}"),
    "answer": ("answer", "{release}", "n=1..3"),
    "answer, wrong": ("answer", "{release}", f"{COLUMN}=nobody{EVIL}"),
    "answer, unknown": ("answer", "{release}", f"{EVIL}=1"),
    "sample, wrong": ("sample", "{release}", "--where", f"{EVIL}=1"),
    "bundle": ("bundle", "{release}", "-o", "{new}/bundle", "--seed", "1"),
    "check": ("schema", "check", "{schema}", "{table}"),
    "review": ("schema", "review", "{draft}", "-o", "{new}/reviewed.json"),
    "review, wrong": ("schema", "review", "{draft}", "-o", "{new}/again.json", "--accept", EVIL),
    "plan": ("plan", "{schema}", "--people", "1000", "--epsilon", "1", "-m", "independent"),
    "no such file": ("inspect", f"{{new}}/{EVIL}"),
    "wrong usage": (f"inspect{EVIL}",),
    "wrong option": ("inspect", f"--{EVIL}"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_no_name_or_value_steers_the_terminal(files: dict[str, Path], case: str) -> None:
    arguments = [part.format(**files) if "{" in part else part for part in COMMANDS[case]]
    result = CliRunner().invoke(app, arguments, input="row\n" + "a\n" * 5)
    assert result.output
    assert not STEERS.search(result.stdout)
    assert not STEERS.search(result.stderr)
    if case in ("inspect", "bounds", "check", "review", "answer, wrong", "wrong usage"):
        assert r"\u202e[red]" in result.output  # shown, as what it is


def test_a_command_of_tomorrow_cannot_forget() -> None:
    application = typer.Typer(cls=CommandGroup)

    @application.callback()
    def _every() -> None:
        """Groups alone have commands."""

    @application.command()
    def forgetful() -> None:
        sys.stdout.write(EVIL)
        sys.stderr.writelines([EVIL])
        print(EVIL)
        typer.echo(EVIL)
        typer.echo(EVIL, err=True)
        typer.secho(EVIL, err=True)
        sys.stdout.buffer.write(EVIL.encode() + b"\xff\x1b")
        raise us.errors.SettingError(f"{EVIL}\nline")

    result = CliRunner().invoke(application, ["forgetful"])
    assert result.exit_code == 3
    assert r"\x1b]0;owned" in result.stdout
    assert result.stderr.splitlines()[-1].endswith(r"\nline")
    assert not STEERS.search(result.stdout)
    assert not STEERS.search(result.stderr)


def test_tabs_lines_and_letters_of_all_scripts_stay() -> None:
    text = "a\tb\nZürich 東京 Πάτρα עברית عربى می‌خواهم 👩‍🔬"
    assert escape_controls(text) == text
    assert escape_controls("\ud800") == r"\ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither rich's own markup nor a control sign of a name is understood."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    with console.escape_output(), show_progress(quiet=False) as progress:
        progress(Step("measure", 0.5, f"[blink]x[/blink] {EVIL}"))
    shown = terminal.getvalue()
    assert "[blink]x[/blink]" in shown
    assert r"\x1b]0;owned\x07" in shown
    assert "\x1b]0;" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_rows_are_exact_in_a_pipe_and_printable_on_a_terminal(files: dict[str, Path]) -> None:
    import pty

    command = [sys.executable, "-m", "understudy", "sample", str(files["release"]), "-n", "50", "--seed", "1"]
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert COLUMN.encode() in piped
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
        assert process.wait() == 0
    os.close(ours)
    rows = shown.decode().replace("\r\n", "\n")  # the terminal's own ends of lines
    assert rows == escape_controls(piped.decode())
    assert not STEERS.search(rows)


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 1 << 16)
    except OSError:  # how Linux says that the other side is closed
        return b""
