"""`evaluate`, `attack` and `report`: evaluate a release. Results computed from real rows are custodian-only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.console import (
    Json,
    Quiet,
    check_new_file,
    parse_value,
    print_result,
    refuse_password,
    show_progress,
)
from understudy.errors import SettingError
from understudy.files import write_text

MetricSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="METRIC.NAME=VALUE", help="A metric's setting; repeatable.")
]
WARNING = (
    "For the custodian only: these scores are computed from real rows and are not differentially private. Do not "
    "publish them, or choose among releases by them: the guarantee does not cover it."
)


def evaluate(
    real: Annotated[str, typer.Argument(help="The sensitive table: a file, folder, 'pattern' or database URL.")],
    synthetic: Annotated[
        list[str], typer.Argument(help="The synthetic table, with the same columns; of several, scores are averaged.")
    ],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="The schema: what is public about the columns.")],
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="A metric; repeatable. Default: all.")
    ] = None,
    setting: MetricSettings = None,
    weight: Annotated[str | None, typer.Option(help="A numeric column to weight totals and shares by.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the scores as JSON, marked custodian-only.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score a synthetic table against the real one. For the custodian only.

    For example: understudy evaluate people.csv rows.csv -s people.schema.yaml -o scores.json
    """
    from understudy.evaluation import evaluate as score
    from understudy.schema.custodian import mark_path

    refuse_password(real)
    for table in synthetic:
        refuse_password(table)
    path = None if output is None else mark_path(output)
    if path is not None:
        check_new_file(path, force=True)
    with show_progress(quiet=quiet or as_json) as progress:
        frame = score(
            real,
            synthetic,
            schema,
            metrics=metric,
            weight=weight,
            seed=seed,
            progress=progress,
            **parse_settings(setting or []),
        )
    data = {"custodian_only": WARNING, "seed": seed, "scores": _nest_scores(frame.to_pylist())}
    if path is not None:
        write_text(json.dumps(data, indent=2) + "\n", path, private=True)
    words = _format_scores(data) + ("" if path is None else f"\n\nScores: {path}")
    print_result(words, data, quiet=quiet, as_json=as_json)


def parse_settings(settings: list[str]) -> dict[str, dict[str, Any]]:
    """Parse ``METRIC.NAME=VALUE`` options into settings by metric; values are YAML.

    Raises:
        SettingError: for an option that is not written so.
    """
    parsed: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, mark, value = setting.partition("=")
        metric, dot, name = key.partition(".")
        if not mark or not dot or not metric.isidentifier() or not name.isidentifier():
            raise SettingError("--set takes METRIC.NAME=VALUE, for example --set mgd.tolerance=5")
        parsed.setdefault(metric, {})[name] = parse_value(key, value)
    return parsed


def _nest_scores(lines: list[dict[str, Any]]) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for line in lines:
        if line["kind"] == "score":
            kept = {key: line[key] for key in ("value", "better", "best", "note")}
            scores[line["metric"]] = kept | {"parts": []}
        else:
            scores[line["metric"]]["parts"].append({key: line[key] for key in ("kind", "name", "value")})
    return scores


def _format_scores(data: dict[str, Any]) -> str:
    width = max(len(name) for name in data["scores"])
    lines = [data["custodian_only"], ""]
    for name, score in data["scores"].items():
        lines.append(f"{name:<{width}}  {score['value']:>12.6g}   {score['better']} is better, best {score['best']:g}")
    return "\n".join(lines)


# -- `attack`: guess who was in the table, for the custodian only.


Holdout = Annotated[
    Path | None, typer.Option(help="Rows that were not in the table: the release itself is attacked with them.")
]
Secrets = Annotated[list[str] | None, typer.Option("--secret", help="A column to guess; repeatable. Default: all.")]
Minutes = Annotated[float, typer.Option(help="About how long runs on parts of the table may take.")]


def attack(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    real: Annotated[Path, typer.Option("--real", help="The real table that the release was made from.")],
    holdout: Holdout = None,
    secret: Secrets = None,
    minutes: Minutes = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the choice of rows.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the results as JSON, marked custodian-only.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Attack a release as a test; for the custodian only.

    Runs the mechanism again on parts of the real table, in memory, and attacks these runs; nothing is
    charged, because these runs are not released. Example:

    understudy attack people.release --real people.csv -o attacks.json
    """
    from understudy.evaluation import attack as run_attack
    from understudy.schema.custodian import mark_path

    path = None if output is None else mark_path(output)
    if path is not None:
        check_new_file(path, force=True)
    with show_progress(quiet=quiet or as_json) as progress:
        found = run_attack(
            release, real, holdout=holdout, secrets=secret or (), minutes=minutes, seed=seed, progress=progress
        )
    data = found.to_dict()
    if path is not None:
        write_text(json.dumps(data, indent=2) + "\n", path, private=True)
    words = _format_attacks(data) + ("" if path is None else f"\n\nAttacks: {path}")
    print_result(words, data, quiet=quiet, as_json=as_json)


def _format_attacks(data: dict[str, Any]) -> str:
    lines = [
        data["custodian_only"],
        "",
        f"{'membership, 95 % intervals':<55} {'area under curve':>20} {'advantage':>23}",
    ]
    for one in data["membership"]:
        area, gain = (f"{mean:.3f} ({low:.3f}, {high:.3f})" for mean, low, high in (one["auc"], one["advantage"]))
        lines.append(f"  {one['attack'] + ', ' + one['targets']:<52} {area:>21} {gain:>23}")
    limits = data["ceiling"]
    lines.append(f"  {'an attacker who knows every other row':<52} {data['full_knowledge']:>6.3f}")
    lines.append(f"  {'the guarantee allows at most':<52} {limits['auc']:>6.3f} {limits['advantage']:>23.3f}")
    if (found := data["attributes"]) is not None:
        mean, low, high = found["advantage"]
        lines.append(
            f"attributes: {found['inside']:.3f} of guesses are right with the row, {found['outside']:.3f} without it; "
            f"difference {mean:.3f} ({low:.3f}, {high:.3f}); the guarantee allows {found['ceiling']:.3f}"
        )
    return "\n".join([*lines, *data["notes"]])


# -- `report`: one HTML file about a release; with the real rows, for the custodian only.


def report(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html file to make.")] = Path("report.html"),
    real: Annotated[
        str | None,
        typer.Option("--real", help="The real table to compare with; the report becomes *.custodian-only.html."),
    ] = None,
    attacks: Annotated[
        bool, typer.Option("--attacks", help="With --real: also attack the release; takes about a minute more.")
    ] = False,
    holdout: Holdout = None,
    secret: Secrets = None,
    minutes: Minutes = 1.0,
    weight: Annotated[str | None, typer.Option(help="A numeric column to weight totals and shares by.")] = None,
    setting: MetricSettings = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compute the scores from more rows, values and marginals; takes minutes.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random draws in a comparison.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a report about a release, as one HTML file.

    It works offline, on paper and on a phone. Without --real it holds public information only. With --real it is for
    the custodian only.
    """
    from understudy.evaluation import attack as run_attack
    from understudy.evaluation import write_report
    from understudy.release import Release, open_release
    from understudy.schema.custodian import mark_path

    if real is None and (weight is not None or setting or attacks or full):
        raise SettingError("--weight, --set, --attacks and --full need the real table; add --real TABLE")
    if not attacks and (holdout is not None or secret):
        raise SettingError("--holdout and --secret belong to --attacks; add it")
    if real is not None:
        refuse_password(real)
    marked = mark_path(output)
    check_new_file(output if real is None else marked, force=force)
    loaded, result = open_release(release), None
    with show_progress(quiet=quiet or as_json) as progress:
        if attacks:
            if not isinstance(loaded, Release):
                raise SettingError("--attacks is not possible with linked tables; leave it out")
            secrets = secret or ()
            result = run_attack(
                loaded, real, holdout=holdout, secrets=secrets, minutes=minutes, seed=seed, progress=progress
            )
        path = write_report(
            loaded,
            output,
            real=real,
            full=full,
            weight=weight,
            settings=parse_settings(setting or []),
            attacks=result,
            seed=seed,
            overwrite=force,
            progress=progress,
        )
    words = f"Report: {path}" + ("" if real is None else f"\n{WARNING}")
    print_result(words, {"report": str(path), "custodian_only": real is not None}, quiet=quiet, as_json=as_json)
