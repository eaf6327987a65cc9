"""`run` and `rehearse`: from a run file, or a schema alone, to release, rows and report in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, progress_shown, tell

if TYPE_CHECKING:
    from understudy.journey import Outcome

_WORDS = {
    "made": "Made from the table",
    "resumed": "Finished what an interrupted attempt had begun; the book counts one run",
    "completed": "The release was there; what was missing beside it is made; nothing was spent",
    "unchanged": "Already finished; nothing was done or spent",
}


def run(
    file: Annotated[Path, typer.Argument(help="The run file (YAML): data, schema, budget, mechanism, outputs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to fill.")],
    quality: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Keep this part of the budget, e.g. 5%, to measure the error.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Practise on rows made from the schema; costs nothing.")
    ] = False,
    over_limit: Annotated[
        bool, typer.Option("--over-limit", help="Go on where the run passes the dataset's yearly limit.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make release, rows and report in one step, from one file.

    Run again, it does only what is missing: a finished run costs nothing, an interrupted one is never paid twice.
    """
    from understudy.journey import run as run_file

    with progress_shown(quiet=quiet or as_json) as progress:
        outcome = run_file(file, output, quality=quality, rehearse=rehearse, over_limit=over_limit, progress=progress)
    tell(_words(outcome), {"status": outcome.status, **outcome.summary}, quiet=quiet, as_json=as_json)


def rehearse(
    schema: Annotated[Path, typer.Argument(help="What is public about a table; the table itself is not needed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to fill.")] = Path("rehearsal-out"),
    epsilon: Annotated[float, typer.Option(help="The budget that the real run would have.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Beside epsilon.")] = 1e-9,
    mechanism: Annotated[str, typer.Option("--mechanism", "-m", help="See `understudy mechanisms`.")] = "mst",
    rows: Annotated[
        int | None,
        typer.Option(help="Rows to make up. Default: as declared, or 1000 (20000 where facts are bought)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="For the made-up rows.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Practise the whole journey on rows made from a schema alone. Costs nothing; all it makes is marked."""
    from understudy.journey import rehearse as rehearse_run

    with progress_shown(quiet=quiet or as_json) as progress:
        outcome = rehearse_run(
            schema, output, epsilon=epsilon, delta=delta, mechanism=mechanism, rows=rows, seed=seed, progress=progress
        )
    tell(_words(outcome), {"status": outcome.status, **outcome.summary}, quiet=quiet, as_json=as_json)


def _words(outcome: Outcome) -> str:
    facts: Any = outcome.summary
    done = "Made from the schema alone" if facts["rehearsal"] and outcome.status == "made" else _WORDS[outcome.status]
    lines = [f"{done}.", f"Release: {facts['release']}"]
    lines += [f"Rows: {path}" for path in facts["rows"]]
    lines += [f"Report{' (for the custodian only)' * (k == 'custodian')}: {p}" for k, p in facts["reports"].items()]
    if facts.get("quality"):
        low, high = facts["quality"]["interval"]
        lines.append(f"Workload error: {100 * low:.3g} % to {100 * high:.3g} % of rows misplaced (95 % interval)")
    return "\n".join([*lines, f"Guarantee: {facts['guarantee']}"])
