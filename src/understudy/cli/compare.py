"""`compare`: mechanisms side by side on a table, or a whole study from a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import (
    Json,
    LedgerAddress,
    Quiet,
    align_columns,
    parse_numbers,
    print_result,
    refuse_password,
    show_progress,
)
from understudy.cli.evaluate import parse_settings

if TYPE_CHECKING:
    from understudy.comparison import Comparison

_SHOWN = 40


def compare(
    data: Annotated[str, typer.Argument(help="The table, as for `synthesize`; or a study, a .yaml file.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results and page; continued if it exists.")
    ],
    schema: Annotated[Path | None, typer.Option("--schema", "-s", help="What is public about the columns.")] = None,
    mechanisms: Annotated[
        str | None, typer.Option(metavar="LIST", help="Mechanisms, such as mst,mst:paper,aim:max_mib=4. Default: auto.")
    ] = None,
    epsilon: Annotated[str | None, typer.Option(metavar="LIST", help="Budgets, such as 0.1,1,10. Default: 1.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of every epsilon. Default: 1e-9.")] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="all-3way, target:COLUMN, skewed:SEED or a .yaml file; repeatable. Default: all-3way."),
    ] = None,
    metrics: Annotated[str | None, typer.Option(metavar="LIST", help="Metrics. Default: workload_error.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="METRIC.NAME=VALUE", help="A metric's setting; repeatable.")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each case. Default: 1.")] = None,
    sets: Annotated[
        int | None, typer.Option(min=1, help="Synthetic tables of each run; scores are averaged. Default: 1.")
    ] = None,
    tables: Annotated[str | None, typer.Option(metavar="LIST", help="Only these tables of a study.")] = None,
    folder: Annotated[Path | None, typer.Option("--data", help="Folder with the tables of a study.")] = None,
    public: Annotated[
        bool | None, typer.Option("--public", help="Declare the table public: the runs then cost nothing.")
    ] = None,
    epsilon_total: Annotated[
        float | None, typer.Option(help="Without --public: the most that the whole grid may spend; it is charged.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop a run that takes longer, and continue.")] = None,
    memory: Annotated[
        float | None, typer.Option(metavar="MIB", help="Stop a run that needs more, and continue.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each core.")] = None,
    seed: Annotated[int | None, typer.Option(help="For synthetic rows and metrics, never for noise.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name in the ledger; by default the file's name.")] = None,
    ledger: LedgerAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run mechanisms side by side and score what they make.

    Writes results.parquet, results.csv and comparison.html. The same command continues after an interruption and
    repeats no finished run. On a table that is not declared public all runs are charged, and the files are
    custodian-only. Examples:

    understudy compare census.csv -s census.schema.yaml --public --mechanisms mst,aim --epsilon 0.1,1,10 --runs 5 -o out

    understudy compare examples/studies/aim-figure-1.yaml --data ../data -o figure-1
    """
    from understudy.comparison import compare as run_grid

    refuse_password(data)
    with show_progress(quiet=quiet or as_json) as progress:
        found = run_grid(
            data,
            schema,
            mechanisms=_split(mechanisms),
            epsilons=None if epsilon is None else parse_numbers("--epsilon", epsilon),
            delta=delta,
            workload=workload or None,
            metrics=_split(metrics),
            settings=parse_settings(setting) if setting else None,
            runs=runs,
            sets=sets,
            tables=_split(tables),
            folder=folder,
            output=output,
            public=public,
            epsilon_total=epsilon_total,
            seconds=seconds,
            memory_mib=memory,
            jobs=jobs,
            seed=seed,
            dataset=dataset,
            ledger=ledger,
            progress=progress,
        )
    lines = found.results.to_pylist()
    facts = {"folder": str(output), "custodian_only": not found.study.public, "results": lines}
    print_result(_format(found, output), facts, quiet=quiet, as_json=as_json)


def _split(text: str | None) -> list[str] | None:
    """Split a list at its commas, but not within brackets: ``aim:keep=[a, b],mst``."""
    if text is None:
        return None
    parts = [part.strip() for part in re.split(r",(?![^\[{(]*[\]})])", text)]
    return [part for part in parts if part]


def _format(found: Comparison, folder: Path) -> str:
    from understudy.comparison.page import collect_scores, summarize_scores

    table: list[tuple[str, ...]] = [("metric", "table", "workload", "mechanism", "epsilon", "mean", "least to largest")]
    table += summarize_scores(collect_scores(found))
    lines = align_columns(table[: _SHOWN + 1])
    if len(table) > _SHOWN + 1:
        lines.append(f"and {len(table) - _SHOWN - 1} more lines in results.csv")
    undone = {
        (line["table"], line["mechanism"], line["outcome"]): None
        for line in found.results.to_pylist()
        if line["outcome"] != "done"
    }
    lines += [f"Not done: {table}, {mechanism}: {why}" for table, mechanism, why in undone]
    page: Any = next(iter(folder.glob("comparison*.html")))
    return "\n".join([*lines, "", f"Page: {page}"])
