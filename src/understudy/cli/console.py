"""What commands share: words for people, JSON for scripts, progress in a terminal, values of settings, new outputs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.errors import OutputError, SettingError
from understudy.page import reason
from understudy.progress import Progress, Step, silent

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON object.")]
LedgerAddress = Annotated[
    str | None, typer.Option("--ledger", metavar="FILE|URL", help="The ledger; default: UNDERSTUDY_LEDGER, else yours.")
]


def tell(words: str, data: Mapping[str, Any], *, quiet: bool = False, as_json: bool = False) -> None:
    """Say what a command did: `data` as one JSON object, or `words`, or nothing.

    Raises:
        OutputError: when it cannot be written, as into a file on a full disk.
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
        raise OutputError(f"the answer could not be written ({reason(error)})") from None


def set_value(name: str, text: str) -> Any:
    """What `--set NAME=TEXT` means: a value as YAML writes it.

    Raises:
        SettingError: when it is no YAML.
    """
    import yaml

    from understudy.notation import read_yaml

    try:
        return read_yaml(text)
    except yaml.YAMLError:
        raise SettingError(f"--set {name}: the value cannot be read; write a number, a word or [a, b]") from None


def check_new_file(path: Path, *, force: bool) -> None:
    """Refuse an output that is there already, or whose folder is not.

    Raises:
        OutputError: saying what to do.
    """
    if path.exists() and not force:
        raise OutputError(f"{path} is there already; choose another output or add --force")
    if not path.parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist; make it first")


@contextmanager
def progress_shown(*, quiet: bool) -> Iterator[Progress]:
    """A progress callback that draws on a terminal's error stream and says nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    clocks = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *clocks)
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(step: Step) -> None:
            bar.update(task, description=f"{step.stage}: {step.detail}"[:100], completed=step.fraction or 0)
            bar.update(task, total=None if step.fraction is None else 1.0)

        yield show
