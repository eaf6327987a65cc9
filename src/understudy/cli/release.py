"""Commands on a release: `sample`, `inspect`, `answer`, `bounds`, `infer` and `bundle`. None of them costs privacy."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import urlsplit

import typer

from understudy.cli.console import (
    Json,
    Quiet,
    check_new_file,
    get_rows_output,
    print_result,
    refuse_password,
    show_progress,
)
from understudy.cli.run import summarize_file
from understudy.errors import ManyRows, SettingError
from understudy.files import could_not_write

if TYPE_CHECKING:
    from understudy.release.bounds import Bound
    from understudy.release.linked import LinkedRelease
    from understudy.schema import Dialect
    from understudy.schema.linked import LinkedSchema

ReleaseFile = Annotated[Path, typer.Argument(help="A release file.")]
Rows = Annotated[int | None, typer.Option("--rows", "-n", help="Number of rows; default: the release's own.")]


def sample(
    release: ReleaseFile,
    rows: Rows = None,
    seed: Annotated[int | None, typer.Option(help="The same release and seed give the same rows.")] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A .csv or .parquet file, postgresql://HOST/DB?table=NAME, or - for the terminal; for linked tables "
            "a folder, a .duckdb file or postgresql://HOST/DB.",
        ),
    ] = "-",
    kind: Annotated[str, typer.Option("--format", help="Files of linked tables: csv or parquet.")] = "csv",
    where: Annotated[
        str | None,
        typer.Option(help='Conditions that every row satisfies: "sex=F, age=30..40, city=Bonn|Ulm".'),
    ] = None,
    rare: Annotated[
        str | None,
        typer.Option(help="How values that were merged as rare are written: spread, other, hierarchy, even or counts."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make synthetic rows from a release. Costs no privacy, no matter how often.

    Any number of rows is written in bounded memory; the file or table appears once all of them are written.

    understudy sample people.release --where "sex=F, age=30..40" -n 1000 -o women.csv
    """
    from understudy.files import check_space
    from understudy.release import Release, open_release
    from understudy.schema.column import Dropped
    from understudy.sink.files import open_file, write_chunks

    loaded = open_release(release)
    if not isinstance(loaded, Release):
        if rare is not None:
            raise SettingError("--rare is not possible with linked tables yet; leave it out")
        options: dict[str, Any] = {"seed": seed, "where": where}
        _sample_tables(loaded, output, rows, options, kind, force=force, quiet=quiet, as_json=as_json)
        return
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
        _write_to_terminal(chunks, count, loaded.schema.dialect)
        return
    if to_database:
        from understudy.sink.postgres import describe_table, open_table

        place, named = open_table(output, force=force), describe_table(output)
    else:
        check_space(Path(output).parent, count * len(loaded.schema.coded) // 8)
        place, named = open_file(Path(output), loaded.schema.dialect), output
    with show_progress(quiet=quiet or as_json) as progress, place as opened:
        write_chunks(chunks, opened, count, progress=progress)
    columns = sum(not isinstance(column, Dropped) for column in loaded.schema.columns)
    words = f"Rows: {named} ({count} synthetic rows of {columns} columns)"
    print_result(words, {"rows": count, "output": named, "seed": seed}, quiet=quiet, as_json=as_json)


def _sample_tables(
    release: LinkedRelease,
    output: str,
    rows: int | None,
    options: dict[str, Any],
    kind: str,
    *,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    from understudy.sink.linked import check_target, write_tables, write_to_database

    to_database = output.partition("://")[0] in ("postgresql", "postgres")
    if output == "-" or ("://" in output and not to_database):
        raise SettingError("--output: linked tables are written to a folder, a .duckdb file, or postgresql://HOST/DB")
    named, files = output, list[Path]()
    if to_database:
        refuse_password(output)
        tables = release.sample(rows, **options)
        write_to_database(tables, release.schema, output, force=force)
        named = urlsplit(output).path.lstrip("/") or "the database"
    else:
        path = Path(output)
        check_target(path, force=force)
        tables = release.sample(rows, as_written=kind == "csv" and path.suffix != ".duckdb", **options)
        files = write_tables(tables, release.schema, path, kind=cast(Any, kind), force=force)
    counts = {name: table.num_rows for name, table in tables.items()}
    words = f"Rows: {named} ({', '.join(f'{count} of {name}' for name, count in counts.items())})"
    data = {"rows": counts, "output": named, "files": [str(file) for file in files], "seed": options["seed"]}
    print_result(words, data, quiet=quiet, as_json=as_json)


def inspect(
    release: ReleaseFile,
    as_json: Json = False,
) -> None:
    """Show a release: its receipt, its measurements and their noise."""
    from understudy.release import Release, open_release

    loaded = open_release(release)
    if not isinstance(loaded, Release):
        _inspect_tables(loaded, release, as_json=as_json)
        return
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
        *(f"Merged as too rare in {column}: {_list_some(values)}." for column, values in merged.items()),
        *loaded.notes,
        "Measured:",
        *(f"  {' x '.join(m['clique'])}: {m['cells']} cells, sigma {m['sigma']:.4g}" for m in measured),
    ]
    data = summarize_file(loaded, release) | {"receipt": loaded.receipt.to_dict(), "measured": measured}
    data["merged"] = merged
    print_result("\n".join(lines), data, as_json=as_json)


def _inspect_tables(release: LinkedRelease, path: Path, *, as_json: bool) -> None:
    measured: dict[str, list[dict[str, Any]]] = {
        name: [{"clique": list(m.clique), "cells": len(m.values), "sigma": m.sigma} for m in part.measurements]
        for name, part in release.parts.items()
    }
    lines = [
        f"{path}: linked tables by {release.mechanism}, {release.default_rows} {release.schema.root} by default",
        *_draw_tree(release.schema, release.schema.root),
        "",
        release.receipt.text(),
        "",
        *release.notes,
    ]
    for name, found in measured.items():
        lines.append(
            f"Measured in {name} (in parts of 1/{release.parts[name].schema.privacy_unit.max_rows} of a unit):"
        )
        lines += [f"  {' x '.join(m['clique'])}: {m['cells']} cells, sigma {m['sigma']:.4g}" for m in found]
    data = summarize_file(release, path) | {"receipt": release.receipt.to_dict(), "measured": measured}
    print_result("\n".join(lines), data, as_json=as_json)


def _draw_tree(schema: LinkedSchema, table: str, depth: int = 0) -> list[str]:
    link = schema.links.get(table)
    cap = "" if link is None else f", at most {link.max_children} for each row of {link.parent}"
    line = f"{'  ' * depth}{table}: {len(schema.tables[table].domain)} columns{cap}"
    return [line, *(more for child in schema.children(table) for more in _draw_tree(schema, child, depth + 1))]


def _list_some(values: list[Any]) -> str:
    more = f" and {len(values) - 8} more" if len(values) > 8 else ""
    return ", ".join(str(value) for value in values[:8]) + more


def _write_to_terminal(chunks: Iterable[Any], count: int, dialect: Dialect) -> None:
    from understudy.sink.files import open_stream, write_chunks

    try:
        write_chunks(chunks, open_stream(get_rows_output(), dialect), count)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise could_not_write("the rows", error) from None


def _check_rows_output(output: str, *, force: bool) -> None:
    path = Path(output)
    if output == "-":
        return
    if path.suffix not in (".csv", ".parquet"):
        raise SettingError("--output: rows are written as .csv or .parquet; give the file one of these endings")
    check_new_file(path, force=force)


# -- `answer` and `bounds`: how far to trust a release.


_LARGEST_DISTANCE = 2.0
"""The largest possible distance of two tables, as a share of the rows; a bound may exceed it."""

Confidence = Annotated[float, typer.Option(help="Probability with which each result holds.")]


def answer(
    release: ReleaseFile,
    query: Annotated[str, typer.Argument(help='Conditions that must all hold: "sex=F, age=30..40, city=Bonn|Ulm".')],
    confidence: Confidence = 0.95,
    share: Annotated[bool, typer.Option("--share", help="Answer with a share of the rows instead of a count.")] = False,
    per: Annotated[
        str | None, typer.Option(help="Linked tables: count rows of this table that have such a row below them.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the rows that satisfy conditions, with an interval.

    The count is the model's; the interval contains the true count with the stated confidence. Costs no privacy. A range
    includes both ends and may be open (`age=65..`, `age>=65`, `age>64`); `icd=J4*` means all values that begin with J4;
    an empty condition (`city=`) means an empty cell; double quotes keep special characters in a value
    (`dose="2,5 mg"`). Example:

    understudy answer people.release "sex=F, age=30..40"

    For linked tables: understudy answer clinic.release "patients.sex=F, #visits=3.."; with columns of other tables,
    rows of the stand-in are counted, and no bound is known.
    """
    from understudy.release import Release, open_release

    loaded = open_release(release)
    if isinstance(loaded, Release):
        if per is not None:
            raise SettingError("--per: the release has a single table; leave it out")
        found = loaded.answer(query, confidence=confidence, share=share)
    else:
        found = loaded.answer(query, confidence=confidence, share=share, per=per)
    number = "{:.4g}" if share else "{:.0f}"
    lines = [f"{number.format(found.value)} by the model"]
    if found.high is None:
        counted = f" ({found.source} were counted)" if found.source.startswith("the rows of") else ""
        lines.append(f"No bound is known for this query{counted}.")
    else:
        ends = f"{number.format(found.low)} to {number.format(found.high)}"
        without = "" if found.left_out is None else f" (without {found.left_out})"
        lines.append(f"{ends} in the true table{without}, with confidence {confidence:g} (from {found.source})")
    print_result("\n".join(lines), asdict(found), as_json=as_json)


def bounds(
    release: ReleaseFile,
    workload: Annotated[
        str | None,
        typer.Option(help="Which marginals: all-2way, target:COLUMN or a .yaml file; default: the release's own."),
    ] = None,
    confidence: Confidence = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Make all bounds hold together with that probability.")
    ] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Show only this many, the widest bounds first.")] = None,
    as_json: Json = False,
) -> None:
    """Show how far each marginal can be from the true one.

    Costs no privacy. The bound is on the sum of absolute differences over the cells, as a share of the rows: 0 means an
    exact marginal, 2 a marginal that has nothing in common with the true one. Marginals without a bound are counted;
    `--json` lists them last.
    """
    from understudy.release import open_release

    found = open_release(release).bounds(workload, confidence=confidence, simultaneous=simultaneous)
    found = sorted(found, key=lambda bound: math.inf if bound.share is None else -bound.share)
    known = [bound for bound in found if bound.share is not None]
    lines = [_format_bound(bound) for bound in known[:top]]
    lines.append(f"{len(known)} of {len(found)} marginals have a bound (confidence {confidence:g}).")
    if len(known) < len(found):
        lines.append("Nothing is known about the others; --json lists them.")
    print_result("\n".join(lines), {"bounds": [asdict(bound) for bound in found[:top]]}, as_json=as_json)


def _format_bound(bound: Bound) -> str:
    source = "measured" if bound.source == "measured" else "from a selection"
    text = "2 or more, which excludes nothing" if (bound.share or 0.0) >= _LARGEST_DISTANCE else f"{bound.share:.3g}"
    return f"{' x '.join(bound.clique)}: {text} ({source})"


# -- `infer`: estimates with intervals.


def infer(
    release: ReleaseFile,
    statistic: Annotated[
        str,
        typer.Argument(
            help="A formula ('income ~ age + C(sex)'), 'mean(age) | sex', 'share(sex=F)', 'corr(age, hours)' or "
            "'chisq(sex, region)'."
        ),
    ],
    family: Annotated[
        str | None,
        typer.Option(help="gaussian (least squares) or binomial (logistic); default: binomial for two values."),
    ] = None,
    population: Annotated[
        bool,
        typer.Option("--population", help="The rows are a sample: intervals for the population instead of the table."),
    ] = False,
    confidence: Confidence = 0.95,
    where: Annotated[str | None, typer.Option(help='Only rows that satisfy conditions: "sex=F, age=30..40".')] = None,
    assume: Annotated[
        float | None,
        typer.Option(
            help="Strongest correlation that may have been missed between columns not measured together. Default: "
            "estimated."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate a statistic with a confidence interval.

    Uses the measurements and the model, no synthetic rows, and costs no privacy. Put a column's name between backticks
    if it has spaces or other marks, and the statistic between single quotes. Example:

    understudy infer people.release 'income ~ age + C(sex)' --population

    For linked tables: statistics of the root's columns and numbers of children, such as 'mean(#visits) | patients.sex'.
    """
    from understudy.release import open_release

    found = open_release(release).infer(
        statistic,
        family=cast(Any, family),
        target="population" if population else "table",
        confidence=confidence,
        where=where,
        assume=assume,
    )
    print_result(str(found), found.to_dict(), as_json=as_json)


# -- `bundle`: the folder that analysts get.


def bundle(
    release: ReleaseFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make; must be new or empty.")],
    rows: Rows = None,
    seed: Annotated[int | None, typer.Option(help="The same release and seed give the same rows.")] = None,
    formats: Annotated[
        str, typer.Option("--format", help="Any of csv, parquet, dta (Stata), sav (SPSS).")
    ] = "csv,parquet",
    mark: Annotated[bool, typer.Option("--mark", help="Add a column `synthetic` that is 1 in every row.")] = False,
    replicates: Annotated[
        int, typer.Option(help="Replicate tables to add, to explore how much results vary; 20 is usual.")
    ] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the folder that analysts get: rows, codebook, report.

    A README says what is safe to compute. Costs no privacy. Example:

    understudy bundle people.release -o people-for-analysts --format csv,parquet,sav
    """
    from understudy.bundle import make_bundle

    with show_progress(quiet=quiet or as_json) as progress:
        made = make_bundle(
            release,
            output,
            rows=rows,
            seed=seed,
            formats=[name.strip() for name in formats.split(",") if name.strip()],
            mark=mark,
            replicates=replicates,
            progress=progress,
        )
    words = [f"Bundle: {made.folder} ({made.rows} synthetic rows)", *(f"  {name}" for name in made.files)]
    if made.quoted:
        words.append(
            f"Cells that look like formulas begin with an apostrophe in rows.csv: columns {', '.join(made.quoted)}."
        )
    data = {"bundle": str(made.folder), "files": list(made.files), "rows": made.rows, "seed": made.seed}
    data |= {"quoted": {name: list(values) for name, values in made.quoted.items()}}
    data |= {"renamed": {name: dict(found) for name, found in made.renamed.items()}}
    print_result("\n".join(words), data, quiet=quiet, as_json=as_json)
