"""`bundle`: the folder that analysts get."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.console import Json, Quiet, progress_shown, tell


def bundle(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make; must be new or empty.")],
    rows: Annotated[int | None, typer.Option("--rows", "-n", help="How many; by default the release says.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same release and seed give the same rows.")] = None,
    formats: Annotated[str, typer.Option("--format", help="Of csv, parquet, dta (Stata), sav (SPSS).")] = "csv,parquet",
    mark: Annotated[bool, typer.Option("--mark", help="Add a column `synthetic` that is 1 in every row.")] = False,
    replicates: Annotated[int, typer.Option(help="Replicate tables to add, for standard errors; 20 is usual.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the folder that analysts get: rows, codebook, report.

    With a page that says what is safe to compute. Costs no privacy. Example:

    understudy bundle people.release -o people-for-analysts --format csv,parquet,sav
    """
    from understudy.bundle import make_bundle
    from understudy.release import Release

    loaded = Release.load(release)
    with progress_shown(quiet=quiet or as_json) as progress:
        made = make_bundle(
            loaded,
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
        words.append(f"Values a spreadsheet would run got an apostrophe in rows.csv: columns {', '.join(made.quoted)}.")
    data = {"bundle": str(made.folder), "files": list(made.files), "rows": made.rows, "seed": made.seed}
    data |= {"quoted": {name: list(values) for name, values in made.quoted.items()}}
    data |= {"renamed": {name: dict(found) for name, found in made.renamed.items()}}
    tell("\n".join(words), data, quiet=quiet, as_json=as_json)
