"""`demo`: make a stand-in for a real table, from start to finish."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, print_result, show_progress
from understudy.cli.run import summarize_file
from understudy.errors import InputError, OutputError
from understudy.progress import Progress

if TYPE_CHECKING:
    from understudy.release import Release

DATASET = "demo-randhie"


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to fill; if it is not empty, a numbered one beside it.")
    ] = Path("demo-out"),
    epsilon: Annotated[float, typer.Option(help="Privacy budget.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta that goes with epsilon.")] = 1e-9,
    mechanism: Annotated[
        str, typer.Option("--mechanism", "-m", help="The mechanism; `understudy mechanisms` lists them.")
    ] = "auto",
    reports: Annotated[bool, typer.Option("--reports/--no-reports", help="Whether to write the reports.")] = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a stand-in for a real table, and report on it.

    The table has 20,190 rows of the RAND health insurance experiment.
    """
    from understudy.run.pipeline import synthesize
    from understudy.schema import Schema
    from understudy.sink.files import write_rows

    table = _load_real_table()
    schema = Schema.load(Path(__file__).with_name("randhie.schema.yaml"))
    folder = _make_folder(output)
    path, rows = folder / "randhie.release", folder / "synthetic.csv"
    schema.save(folder / "randhie.schema.yaml")
    with show_progress(quiet=quiet or as_json) as progress:
        release = synthesize(
            table,
            schema,
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            output=path,
            dataset=DATASET,
            progress=progress,
        )
        pages = _write_reports(folder, release, table, progress) if reports else {}
    write_rows(release, rows)
    words = (
        f"A stand-in for the RAND health insurance experiment (real rows, {len(schema.domain)} columns) is ready.\n"
        f"  synthetic rows  {rows}\n"
        f"  release         {path}      (understudy inspect {path})\n"
        f"  schema          {folder / 'randhie.schema.yaml'}\n"
        f"Spent now: {release.receipt.guarantee()}\n{_describe_spent()}"
    )
    words += "".join(f"\n{name:<38} {page}" for name, page in pages.items())
    data = summarize_file(release, path) | {"synthetic": str(rows), "reports": [str(page) for page in pages.values()]}
    print_result(words, data, quiet=quiet, as_json=as_json)


def _describe_spent() -> str:
    """Return what was spent so far. On a machine where others tried the demo, it says why there are more runs."""
    from understudy.ledger import Ledger

    spent = Ledger().total(DATASET)
    if spent.runs == 1:
        return f"Spent on {DATASET!r} so far: {spent}"
    earlier = "an earlier demo" if spent.runs == 2 else f"{spent.runs - 1} earlier demos"
    return f"With {earlier} on this computer, about the same people: {spent} (understudy ledger show {DATASET})"


def _write_reports(folder: Path, release: Release, table: Any, progress: Progress) -> dict[str, Path]:
    """Write both reports: the public one, and the custodian's, which compares with the real rows."""
    from understudy.evaluation import write_report

    public = write_report(release, folder / "report.html")
    private = write_report(release, folder / "report.html", real=table, progress=progress)
    return {"Open the report in a browser:": public, "For the custodian, with the real rows:": private}


def _load_real_table() -> Any:
    try:
        from statsmodels.datasets import randhie
    except ImportError:
        raise InputError("the demo's table needs statsmodels: pip install 'understudy[demo]'") from None
    return randhie.load_pandas().data


def _make_folder(folder: Path) -> Path:
    """Return the folder if it is new or empty, else the first free numbered name: earlier demos are kept."""
    for number in range(1, 1000):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        if not candidate.exists() or (candidate.is_dir() and not any(candidate.iterdir())):
            try:
                candidate.mkdir(parents=True, exist_ok=True)
            except OSError:
                raise OutputError(f"the folder {candidate} cannot be made; choose another with --output") from None
            return candidate
    raise OutputError(f"{folder} and 998 numbered folders like it already exist; choose another with --output")
