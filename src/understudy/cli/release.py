"""`sample` and `inspect`: what can be done with a release; all of it free."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, tell
from understudy.cli.run import summary
from understudy.errors import OutputError, SettingError
from understudy.release import Release
from understudy.schema import Dialect
from understudy.written import write_csv, write_rows


def sample(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    rows: Annotated[int | None, typer.Option("--rows", "-n", help="How many; by default the release says.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same release and seed give the same rows.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="A .csv or .parquet file; - is the terminal.")] = "-",
    rare: Annotated[
        str | None,
        typer.Option(help="What stands for values too rare to tell apart: spread, other or hierarchy."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it is there.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make synthetic rows from a release. Costs no privacy, however often it is done."""
    loaded = Release.load(release)
    if output == "-" and as_json:
        raise SettingError("--json needs --output: rows and JSON cannot share the terminal")
    _check_rows_output(output, force=force)
    as_csv = not output.endswith(".parquet")
    _warn_of_many(loaded, rows, quiet=quiet or as_json)
    table = loaded.sample(rows, seed=seed, as_="arrow", rare=rare, as_written=as_csv)
    if output == "-":
        _to_terminal(table, loaded.schema.dialect)
        return
    write_rows(table, Path(output), loaded.schema.dialect)
    words = f"Rows: {output} ({table.num_rows} synthetic rows of {table.num_columns} columns)"
    tell(words, {"rows": table.num_rows, "output": output, "seed": seed}, quiet=quiet, as_json=as_json)


def inspect(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    as_json: Json = False,
) -> None:
    """Show what a release holds: the receipt, the columns, what was measured and how noisy it is."""
    loaded = Release.load(release)
    measured: list[dict[str, Any]] = [
        {"clique": list(m.clique), "cells": len(m.values), "sigma": m.sigma} for m in loaded.measurements
    ]
    lines = [
        f"{release}: {loaded.mechanism}, {len(loaded.schema.domain)} columns, {loaded.default_rows} rows by default",
        "",
        loaded.receipt.text(),
        "",
        *(f"Too rare to tell apart in {column}: {_some(values)}." for column, values in loaded.merged.items()),
        "Measured:",
        *(f"  {' x '.join(m['clique'])}: {m['cells']} cells, sigma {m['sigma']:.4g}" for m in measured),
    ]
    data = summary(loaded, release) | {"receipt": loaded.receipt.to_dict(), "measured": measured}
    data["merged"] = loaded.merged
    tell("\n".join(lines), data, as_json=as_json)


def _some(values: list[Any]) -> str:
    more = f" and {len(values) - 8} more" if len(values) > 8 else ""
    return ", ".join(str(value) for value in values[:8]) + more


def _to_terminal(table: Any, dialect: Dialect) -> None:
    try:
        write_csv(table, sys.stdout.buffer, dialect)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the rows could not be written ({error.strerror or 'input/output error'})") from None


        *([] if loaded.quality is None else [f"Workload error: {loaded.quality.text()}."]),
def _warn_of_many(release: Release, rows: int | None, *, quiet: bool) -> None:
    most = None if rows is None or quiet else release.most_rows
    if most is not None and rows is not None and rows > most:
        words = f"note: the true table has at most about {most:.0f} rows; more synthetic ones add no evidence, and"
        sys.stderr.write(f"{words} standard errors computed from them are too small\n")


def _check_rows_output(output: str, *, force: bool) -> None:
    path = Path(output)
    if output == "-":
        return
    if path.suffix not in (".csv", ".parquet"):
        raise SettingError("--output: rows are written as .csv or .parquet; give the file one of these endings")
    if path.exists() and not force:
        raise OutputError(f"{path} is there already; choose another output or add --force")
    if not path.parent.is_dir():
        raise OutputError(f"the folder {path.parent} does not exist; make it first")
