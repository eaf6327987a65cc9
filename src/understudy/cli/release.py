"""`sample` and `inspect`: what can be done with a release; all of it free."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, check_new_file, progress_shown, rows_output, tell
from understudy.cli.run import summary
from understudy.errors import OutputError, SettingError
from understudy.notice import ManyRows
from understudy.page import reason

if TYPE_CHECKING:
    from understudy.schema import Dialect


def sample(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    rows: Annotated[int | None, typer.Option("--rows", "-n", help="How many; by default the release says.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same release and seed give the same rows.")] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="A .csv or .parquet file, postgresql://HOST/DB?table=NAME, or - for the terminal."
        ),
    ] = "-",
    where: Annotated[
        str | None,
        typer.Option(help='Conditions that every row satisfies: "sex=F, age=30..40, city=Bonn|Ulm".'),
    ] = None,
    rare: Annotated[
        str | None,
        typer.Option(help="What stands for values too rare to tell apart: spread, other or hierarchy."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it is there.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make synthetic rows from a release. Costs no privacy, however often it is done.

    Any number of rows is written in bounded memory; the file or table appears when all of them are in it.

    understudy sample people.release --where "sex=F, age=30..40" -n 1000 -o women.csv
    """
    from understudy.release import Release
    from understudy.release.write import write_chunks, written_file
    from understudy.release.write_postgres import shown_place, written_table
    from understudy.schema.column import Dropped
    from understudy.source.place import refuse_password
    from understudy.synthesis.preflight import check_space

    loaded = Release.load(release)
    if output == "-" and as_json:
        raise SettingError("--json needs --output: rows and JSON cannot share the terminal")
    to_database = output.partition("://")[0] in ("postgresql", "postgres")
    if to_database:
        refuse_password(output)
    else:
        _check_rows_output(output, force=force)
    as_text = not to_database and not output.endswith(".parquet")
    if quiet or as_json:
        warnings.simplefilter("ignore", ManyRows)
    count, chunks = loaded.stream(rows, seed=seed, rare=rare, where=where, as_written=as_text)
    if output == "-":
        _to_terminal(chunks, count, loaded.schema.dialect)
        return
    if not to_database:
        check_space(Path(output).parent, count * len(loaded.schema.coded) // 8)
    place = written_table(output, force=force) if to_database else written_file(Path(output), loaded.schema.dialect)
    with progress_shown(quiet=quiet or as_json) as progress, place as opened:
        write_chunks(chunks, opened, count, progress=progress)
    named = shown_place(output) if to_database else output
    columns = sum(not isinstance(column, Dropped) for column in loaded.schema.columns)
    words = f"Rows: {named} ({count} synthetic rows of {columns} columns)"
    tell(words, {"rows": count, "output": named, "seed": seed}, quiet=quiet, as_json=as_json)


def inspect(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    as_json: Json = False,
) -> None:
    """Show a release: its receipt, and what was measured how well."""
    from understudy.release import Release

    loaded = Release.load(release)
    merged = loaded.merged
    measured: list[dict[str, Any]] = [
        {"clique": list(m.clique), "cells": len(m.values), "sigma": m.sigma} for m in loaded.measurements
    ]
    lines = [
        f"{release}: {loaded.mechanism}, {len(loaded.schema.domain)} columns, {loaded.default_rows} rows by default",
        "",
        loaded.receipt.text(),
        "",
        *([] if loaded.quality is None else [f"Workload error: {loaded.quality.text()}."]),
        *(f"Too rare to tell apart in {column}: {_some(values)}." for column, values in merged.items()),
        "Measured:",
        *(f"  {' x '.join(m['clique'])}: {m['cells']} cells, sigma {m['sigma']:.4g}" for m in measured),
    ]
    data = summary(loaded, release) | {"receipt": loaded.receipt.to_dict(), "measured": measured}
    data["merged"] = merged
    tell("\n".join(lines), data, as_json=as_json)


def _some(values: list[Any]) -> str:
    more = f" and {len(values) - 8} more" if len(values) > 8 else ""
    return ", ".join(str(value) for value in values[:8]) + more


def _to_terminal(chunks: Iterable[Any], count: int, dialect: Dialect) -> None:
    from understudy.release.write import write_chunks, written_stream

    try:
        write_chunks(chunks, written_stream(rows_output(), dialect), count)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the rows could not be written ({reason(error)})") from None


def _check_rows_output(output: str, *, force: bool) -> None:
    path = Path(output)
    if output == "-":
        return
    if path.suffix not in (".csv", ".parquet"):
        raise SettingError("--output: rows are written as .csv or .parquet; give the file one of these endings")
    check_new_file(path, force=force)
