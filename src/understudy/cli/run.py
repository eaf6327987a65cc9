"""`synthesize`, `resume`, `mechanisms`: from rows to a release.

`synthesize` is long because every option is a parameter; what it does is one call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, progress_shown, set_value, tell
from understudy.errors import SettingError

if TYPE_CHECKING:
    from understudy.release import Release


def synthesize(
    data: Annotated[
        str,
        typer.Argument(
            help="The sensitive table: .csv, .parquet, .sav, .dta, .xlsx; a folder or 'pattern'; a database URL."
        ),
    ],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="What is public about its columns.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The release file to make; never overwritten.")],
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget; smaller protects more.")] = None,
    delta: Annotated[float | None, typer.Option(help="Beside epsilon, e.g. 1e-9; 0 is pure DP.")] = None,
    rho: Annotated[float | None, typer.Option(help="Budget in zCDP, instead of epsilon.")] = None,
    mechanism: Annotated[str, typer.Option("--mechanism", "-m", help="See `understudy mechanisms`.")] = "mst",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A mechanism's setting; repeatable.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B[:WEIGHT]", help="Columns whose joint table is always measured; repeatable."),
    ] = None,
    public: Annotated[Path | None, typer.Option(help="A table you declare public (nist-mst); never charged.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Which marginals matter (aim): all-3way, target:COLUMN, or a .yaml file.")
    ] = None,
    generator: Annotated[
        str | None, typer.Option(help="What makes rows of the measurements: pgm, a graphical model; or gum.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Rows that `sample` makes by default; published, so not the table's own count.")
    ] = None,
    quality: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Keep this part of the budget, e.g. 5%, to measure the error.")
    ] = None,
    discovery_share: Annotated[
        float, typer.Option(help="Part of the budget that buys what the schema wants discovered.")
    ] = 0.1,
    dataset: Annotated[str | None, typer.Option(help="Name in the book; by default the file's name.")] = None,
    noise: Annotated[str, typer.Option(help="Noise sampler: exact or opendp.")] = "exact",
    query: Annotated[
        Path | None, typer.Option(metavar="FILE.sql", help="A SELECT to read instead of a table; files are `data`.")
    ] = None,
    temp_dir: Annotated[
        Path | None, typer.Option(help="Where engines may put files while they work; removed in the end.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a release: a private stand-in for a table.

    Checks everything it can before spending anything. Examples:

    understudy synthesize people.csv -s people.schema.yaml --epsilon 1 --delta 1e-9 -o people.release

    understudy synthesize 'postgresql://host/db?table=people' -s people.schema.yaml --rho 0.1 -o people.release
    """
    from understudy.source.place import read_query, refuse_password
    from understudy.synthesis.road import dataset_name
    from understudy.synthesis.road import synthesize as make_release

    refuse_password(data)
    with progress_shown(quiet=quiet or as_json) as progress:
        release = make_release(
            data,
            schema,
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            mechanism=mechanism,
            rows=rows,
            progress=progress,
            output=output,
            dataset=dataset,
            noise=noise,
            quality=quality,
            discovery_share=discovery_share,
            query=None if query is None else read_query(query),
            temp_dir=temp_dir,
            **_parsed(setting or []) | _given(keep or [], public=public, workload=workload, generator=generator),
        )
    _report(release, output, dataset or dataset_name(data), quiet=quiet, as_json=as_json)


def resume(
    partial: Annotated[Path, typer.Argument(help="The .partial file that the interrupted run left.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The release file to make.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Finish an interrupted run from what it had measured. Spends nothing and reads no rows."""
    from understudy.synthesis.interrupted import resume as resume_run

    target = output or partial.with_name(partial.name.removesuffix(".partial"))
    if target == partial:
        raise SettingError("say where the release goes with --output: the file's name does not end in .partial")
    with progress_shown(quiet=quiet or as_json) as progress:
        release = resume_run(partial, output=target, progress=progress)
    words = f"Release: {target}\nGuarantee: {release.receipt.guarantee()}\nNothing more was spent."
    tell(words, summary(release, target), quiet=quiet, as_json=as_json)


def mechanisms(as_json: Json = False) -> None:
    """List the mechanisms and their settings."""
    from understudy.mechanism.registry import mechanism_classes

    rows = {name: _described(chosen) for name, chosen in sorted(mechanism_classes().items())}
    lines = [
        f"{name}: {row['summary']}\n"
        f"    pure DP: {'yes' if row['pure'] else 'no'}; settings: {', '.join(row['settings']) or 'none'}"
        for name, row in rows.items()
    ]
    tell("\n".join(lines), rows, as_json=as_json)


def summary(release: Release, path: Path) -> dict[str, Any]:
    """What a script wants to know about a release and where it is."""
    from understudy.release.facts import facts

    return {"release": str(path), **facts(release)}


def _report(release: Release, path: Path, dataset: str, *, quiet: bool, as_json: bool) -> None:
    from understudy.privacy.records.book import Book

    data = summary(release, path)
    words = [f"Release: {path}", f"Guarantee: {release.receipt.guarantee()}"]
    if not release.receipt.insecure:
        spent = Book().spent(dataset)
        words.append(f"Spent on {dataset!r} so far: {spent}")
        data |= {"dataset": dataset, "book": {"runs": spent.runs, "rho": spent.rho, "epsilon": spent.epsilon}}
    words += [] if release.quality is None else [f"Workload error: {release.quality.text()}"]
    words.append(f"Rows: understudy sample {path} -o rows.csv")
    tell("\n".join(words), data, quiet=quiet, as_json=as_json)


def _parsed(settings: list[str]) -> dict[str, Any]:
    parsed = {}
    for setting in settings:
        name, mark, value = setting.partition("=")
        if not mark or not name.isidentifier():
            raise SettingError("--set takes NAME=VALUE, for example --set rounds=10")
        parsed[name] = set_value(name, value)
    return parsed


def _given(keep: list[str], **options: Any) -> dict[str, Any]:
    """The settings that have options of their own."""
    given = {name: value for name, value in options.items() if value is not None}
    return given | ({"keep": [_kept(text) for text in keep]} if keep else {})


def _kept(text: str) -> tuple[list[str], float]:
    """`sex,city:6` as a clique and its weight; a colon that no number follows belongs to the column."""
    names, mark, weight = text.rpartition(":")
    try:
        number = float(weight) if mark else 1.0
    except ValueError:
        names, number = text, 1.0
    columns = [name.strip() for name in (names if mark and names else text).split(",")]
    if not all(columns):
        raise SettingError("--keep takes columns and a weight, for example --keep sex,city,income:6")
    return columns, number


def _described(chosen: Any) -> dict[str, Any]:
    from understudy.mechanism.registry import setting_names

    summary = (chosen.__doc__ or "").strip().splitlines()[0]
    return {"summary": summary, "pure": chosen.pure, "settings": setting_names(chosen)}
