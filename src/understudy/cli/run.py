"""`synthesize`, `run`, `rehearse`, `resume`, `runs`, `mechanisms`: from rows to a release.

`synthesize` is long because every option is a parameter; what it does is one call.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import Json, LedgerAddress, Quiet, parse_value, print_result, refuse_password, show_progress
from understudy.errors import SettingError

if TYPE_CHECKING:
    from understudy.release import Release
    from understudy.release.linked import LinkedRelease
    from understudy.run import Outcome


MechanismName = Annotated[
    str, typer.Option("--mechanism", "-m", help="The mechanism; `understudy mechanisms` lists them.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A mechanism's setting; repeatable.")
]
Quality = Annotated[
    str | None, typer.Option(metavar="SHARE", help="Keep this part of the budget, e.g. 5%, to measure the error.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Accept a large delta without being asked.")]

_WORDS = {
    "made": "Made from the table",
    "resumed": "Finished an interrupted run; the run is counted once",
    "completed": "The run was already finished; missing outputs were made again and nothing was spent",
    "unchanged": "Already finished; nothing was done or spent",
}


def synthesize(
    schema: Annotated[Path, typer.Option("--schema", "-s", help="The schema: what is public about the columns.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The release file to make; never overwritten.")],
    data: Annotated[
        str | None,
        typer.Argument(
            help="The sensitive table: .csv, .parquet, .sav, .dta, .xlsx; a folder or 'pattern'; a database URL."
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER or NAME=PATH", help="Linked tables: a folder of them, or each by name."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget; smaller protects more.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="The delta that goes with epsilon, e.g. 1e-9; 0 is pure DP.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="Budget in zCDP, instead of epsilon.")] = None,
    mechanism: MechanismName = "auto",
    paper: Annotated[
        bool, typer.Option("--paper", help="Run the mechanism as published; --set still changes a setting.")
    ] = False,
    setting: Settings = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B[:WEIGHT]", help="A clique that is always measured, with a weight; repeatable."),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(help="A similar table that you declare public; testing whether it helps costs 3 %."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Which marginals matter (aim): all-3way, target:COLUMN, or a .yaml file.")
    ] = None,
    generator: Annotated[
        str | None, typer.Option(help="How rows are made from the measurements: pgm (a graphical model), gum or rap.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Default number of rows of `sample`. It is published: do not give the exact count."),
    ] = None,
    quality: Quality = None,
    discovery_share: Annotated[
        float, typer.Option(help="Share of the budget for facts that the schema leaves to discovery.")
    ] = 0.1,
    dataset: Annotated[str | None, typer.Option(help="Name in the ledger; by default the file's name.")] = None,
    noise: Annotated[str, typer.Option(help="Noise sampler: exact or opendp.")] = "exact",
    query: Annotated[
        Path | None,
        typer.Option(metavar="FILE.sql", help="A SELECT instead of a table; of files, from `data`."),
    ] = None,
    temp_dir: Annotated[
        Path | None, typer.Option(help="Folder for temporary files of database engines; they are removed at the end.")
    ] = None,
    ledger: LedgerAddress = None,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a release: a private stand-in for a table.

    Checks everything it can before spending anything. Examples:

    understudy synthesize people.csv -s people.schema.yaml --epsilon 1 --delta 1e-9 -o people.release

    understudy synthesize 'postgresql://host/db?table=people' -s people.schema.yaml --rho 0.1 -o people.release

    understudy synthesize --tables clinic/ -s clinic.schema.yaml --epsilon 1 --delta 1e-9 -o clinic.release
    """
    from understudy.run.pipeline import dataset_name
    from understudy.run.pipeline import synthesize as make_release
    from understudy.source.place import read_query

    place = parse_tables(data, tables or [])
    for one in place.values() if isinstance(place, dict) else [place]:
        refuse_password(one)
    dataset = dataset or dataset_name(next(iter(place.values())) if isinstance(place, dict) else place)
    _confirm_delta(delta, yes=yes)
    known = _find_ledger(ledger)
    with show_progress(quiet=quiet or as_json) as progress:
        release = make_release(
            place,
            schema,
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            mechanism=mechanism,
            paper=paper,
            rows=rows,
            progress=progress,
            output=output,
            dataset=dataset,
            noise=noise,
            quality=quality,
            discovery_share=discovery_share,
            public=public,
            query=None if query is None else read_query(query),
            temp_dir=temp_dir,
            ledger=ledger,
            **parse_settings(setting or []) | _collect_settings(keep or [], workload=workload, generator=generator),
        )
    _print_release(release, output, dataset, known, quiet=quiet, as_json=as_json)


def run(
    file: Annotated[Path, typer.Argument(help="The run file (YAML): data, schema, budget, mechanism, outputs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to fill.")],
    quality: Quality = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Rehearse on rows made from the schema; costs nothing.")
    ] = False,
    ledger: LedgerAddress = None,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make release, rows and report in one step, from one file.

    A second call makes only what is missing: a finished run costs nothing, an interrupted run is never charged twice.
    """
    from understudy.run import run as run_file
    from understudy.run.file import RunFile

    budget = RunFile.load(file).content.get("budget")
    if isinstance(budget, Mapping) and not rehearse:
        _confirm_delta(budget.get("delta"), yes=yes)
    known = _find_ledger(ledger)
    with show_progress(quiet=quiet or as_json) as progress:
        outcome = run_file(file, output, quality=quality, rehearse=rehearse, progress=progress, ledger=ledger)
    facts = {"status": outcome.status, **outcome.summary} | ({} if rehearse else {"ledger": known[0]})
    words = _format_outcome(outcome) + ("" if rehearse else f"\n{_format_ledger(*known)}")
    print_result(words, facts, quiet=quiet, as_json=as_json)


def parse_tables(data: str | None, tables: list[str]) -> str | dict[str, str]:
    """Return the place of the table, or of linked tables: a folder, or a place for each name.

    Raises:
        SettingError: if both or none are given, or some tables have no name.
    """
    if (data is None) == (not tables):
        raise SettingError("give either a table or --tables for linked tables, such as --tables clinic/")
    if data is not None:
        return data
    named = [one.partition("=") for one in tables]
    if len(tables) == 1 and not named[0][1]:
        return tables[0]
    if not all(mark and name and place for name, mark, place in named):
        raise SettingError("--tables: give a folder, or --tables NAME=PATH for each table")
    return {name: place for name, _, place in named}


_LARGE_DELTA = 1e-3


def _confirm_delta(delta: Any, *, yes: bool) -> None:
    """Ask whether a large delta is meant: with that probability, the guarantee says nothing.

    Raises:
        SettingError: where nobody can answer.
    """
    if yes or not isinstance(delta, int | float) or not _LARGE_DELTA < delta < 1:
        return
    words = f"delta {delta:g} is large: of every 1,000 people, the whole rows of {1000 * delta:,.0f} might leak"
    if not sys.stdin.isatty():
        raise SettingError(f"{words}; use one below 1 / (10 x people), such as 1e-6, or add --yes. Nothing was spent")
    typer.confirm(f"{words}. Go on?", abort=True, err=True)


def _find_ledger(address: str | None) -> tuple[str, bool]:
    """Return the address of the ledger that a run uses, and whether it exists before the run."""
    from understudy.ledger import Ledger

    ledger = Ledger(address)
    return ledger.address, ledger.exists


def _format_ledger(address: str, existed: bool) -> str:
    """Return the line that names the ledger, so that nobody starts a second one in another home folder unnoticed."""
    return f"Ledger: {address}" + ("" if existed else " (new: it knows of no earlier spending)")


def rehearse(
    schema: Annotated[Path, typer.Argument(help="The schema; the table itself is not needed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to fill.")] = Path("rehearsal-out"),
    epsilon: Annotated[float, typer.Option(help="The budget that the real run would have.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The delta that goes with epsilon.")] = 1e-9,
    mechanism: MechanismName = "auto",
    rows: Annotated[
        int | None,
        typer.Option(help="Rows to make up. Default: as declared, or 1000 (20000 with discovery)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the made-up rows.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Rehearse a whole run on rows made from a schema alone. Costs nothing; all output is marked."""
    from understudy.run import rehearse as rehearse_run

    with show_progress(quiet=quiet or as_json) as progress:
        outcome = rehearse_run(
            schema, output, epsilon=epsilon, delta=delta, mechanism=mechanism, rows=rows, seed=seed, progress=progress
        )
    print_result(_format_outcome(outcome), {"status": outcome.status, **outcome.summary}, quiet=quiet, as_json=as_json)


def resume(
    run: Annotated[str, typer.Argument(help="The run, or the beginning of its identifier; see `understudy runs`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The release file; default: the output of the run.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The table, if it was moved since.")] = None,
    ledger: LedgerAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run; it is counted once.

    The run keeps its measurements and makes only those that are missing. If the table is gone, the release is made
    from what was measured. Costs nothing more.
    """
    from understudy.ledger import Ledger
    from understudy.run import run as run_file
    from understudy.run.folder import find_run_file
    from understudy.run.pipeline import resume as resume_run

    book = Ledger(ledger)
    known = book.find(run)
    place = known.spec.get("place", {})
    with show_progress(quiet=quiet or as_json) as progress:
        file = find_run_file(known, book) if output is None and data is None else None
        if file is not None:
            quality = place.get("quality")
            outcome = run_file(file, place["folder"], quality=quality, progress=progress, ledger=ledger)
            print_result(
                _format_outcome(outcome), {"status": outcome.status, **outcome.summary}, quiet=quiet, as_json=as_json
            )
            return
        if output is None and "release" not in place:
            raise SettingError(
                "--output: name the release file; the run file is missing or was changed, or the run had none"
            )
        target = output or Path(place["release"])
        release = resume_run(run, data=data, output=target, progress=progress, ledger=ledger)
    words = [f"Release: {target}", f"Guarantee: {release.receipt.guarantee()}", "The run is counted once."]
    print_result("\n".join([*words, *release.notes]), summarize_file(release, target), quiet=quiet, as_json=as_json)


def runs(
    dataset: Annotated[str | None, typer.Argument(help="One dataset; default: all.")] = None,
    ledger: LedgerAddress = None,
    as_json: Json = False,
) -> None:
    """List the runs in the ledger. Continue an unfinished run with `understudy resume`."""
    from understudy.accounting.exact import float_above
    from understudy.ledger import Ledger

    found, lines = [], []
    for one in Ledger(ledger).reservations(dataset):
        epsilon = None if one.budget.epsilon is None else float_above(one.budget.epsilon)
        rho, time = float_above(one.budget.rho), one.time.isoformat(timespec="seconds")
        cost = f"rho {rho:.4g}" if epsilon is None else f"epsilon {epsilon:.4g}"
        lines.append(
            f"{one.run}  {time[:16]}  {one.state:<10}  {one.answers:>4} answers  {cost}  {one.dataset}  ({one.who})"
        )
        row = {"run": one.run, "dataset": one.dataset, "state": one.state, "answers": one.answers, "time": time}
        found.append(row | {"epsilon": epsilon, "rho": rho, "who": one.who})
    print_result("\n".join(lines) or "No run is in the ledger.", {"runs": found}, as_json=as_json)


def mechanisms(as_json: Json = False) -> None:
    """List the mechanisms, their papers and settings.

    `auto`, the default, chooses between adaptive, mst and independent.
    """
    from understudy.mechanism.registry import mechanism_classes

    rows = {name: _describe_mechanism(chosen) for name, chosen in sorted(mechanism_classes().items())}
    lines = [
        f"{name}: {row['summary']}\n"
        + (f"    when: {row['when']}\n" if row["when"] else "")
        + f"    paper: {row['paper'] or 'none'}\n"
        f"    pure DP: {'yes' if row['pure'] else 'no'}; settings: {', '.join(row['settings']) or 'none'}"
        for name, row in rows.items()
    ]
    print_result("\n".join(lines), rows, as_json=as_json)


def _format_outcome(outcome: Outcome) -> str:
    facts: Any = outcome.summary
    done = "Made from the schema alone" if facts["rehearsal"] and outcome.status == "made" else _WORDS[outcome.status]
    lines = [f"{done}.", f"Release: {facts['release']}"]
    lines += [f"Rows: {path}" for path in facts["rows"]]
    lines += [f"Report{' (for the custodian only)' * (k == 'custodian')}: {p}" for k, p in facts["reports"].items()]
    if facts.get("quality"):
        low, high = facts["quality"]["interval"]
        lines.append(f"Workload error: {100 * low:.3g} % to {100 * high:.3g} % of rows misplaced (95 % interval)")
    lines += facts.get("notes", [])
    return "\n".join([*lines, f"Guarantee: {facts['guarantee']}"])


def summarize_file(release: Release | LinkedRelease, path: Path) -> dict[str, Any]:
    """Summarize a release and the file it is in, for scripts."""
    from understudy.release import Release
    from understudy.release.release import summarize

    return {"release": str(path), **(summarize(release) if isinstance(release, Release) else release.summary())}


def _print_release(
    release: Release | LinkedRelease, path: Path, dataset: str, ledger: tuple[str, bool], *, quiet: bool, as_json: bool
) -> None:
    from understudy.ledger import Ledger

    data = summarize_file(release, path)
    words = [f"Release: {path}", f"Mechanism: {release.receipt.mechanism}"]
    words.append(f"Guarantee: {release.receipt.guarantee()}")
    if not release.receipt.insecure:
        spent = Ledger(ledger[0]).total(dataset)
        words += [f"Spent on {dataset!r} so far: {spent}", _format_ledger(*ledger)]
        data |= {"ledger": ledger[0]}
        data |= {"dataset": dataset, "spent": {"runs": spent.runs, "rho": spent.rho, "epsilon": spent.epsilon}}
    quality = getattr(release, "quality", None)
    words += [] if quality is None else [f"Workload error: {quality.text()}"]
    words += release.notes
    rows = "rows.csv" if hasattr(release, "quality") else "a-folder"
    words.append(f"Rows: understudy sample {path} -o {rows}")
    print_result("\n".join(words), data, quiet=quiet, as_json=as_json)


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` options into settings of a mechanism; values are YAML.

    Raises:
        SettingError: for an option that is not written so.
    """
    parsed = {}
    for setting in settings:
        name, mark, value = setting.partition("=")
        if not mark or not name.isidentifier():
            raise SettingError("--set takes NAME=VALUE, for example --set rounds=10")
        parsed[name] = parse_value(name, value)
    return parsed


def _collect_settings(keep: list[str], **options: Any) -> dict[str, Any]:
    """Collect the settings that have options of their own."""
    given = {name: value for name, value in options.items() if value is not None}
    return given | ({"keep": [_parse_keep(text) for text in keep]} if keep else {})


def _parse_keep(text: str) -> tuple[list[str], float]:
    """Parse `sex,city:6` into a clique and its weight; a colon without a number after it belongs to the column."""
    names, mark, weight = text.rpartition(":")
    try:
        number = float(weight) if mark else 1.0
    except ValueError:
        names, number = text, 1.0
    columns = [name.strip() for name in (names if mark and names else text).split(",")]
    if not all(columns):
        raise SettingError("--keep takes columns and a weight, for example --keep sex,city,income:6")
    return columns, number


def _describe_mechanism(chosen: Any) -> dict[str, Any]:
    from understudy.mechanism.registry import setting_names

    summary = (chosen.__doc__ or "").strip().splitlines()[0]
    return {
        "summary": summary,
        "when": chosen.when,
        "paper": chosen.paper,
        "pure": chosen.pure,
        "settings": setting_names(chosen),
    }
