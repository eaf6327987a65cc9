"""`evaluate`: how good is the stand-in? For the custodian's eyes only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, check_new_file, progress_shown, set_value, tell
from understudy.errors import SettingError
from understudy.page import write_page

WARNING = (
    "For the custodian only: these scores are computed from real rows and are not differentially private. They may not "
    "be published, or used to choose among releases, without paying for it."
)


def evaluate(
    real: Annotated[Path, typer.Argument(help="The sensitive table: .csv, .csv.gz or .parquet.")],
    synthetic: Annotated[Path, typer.Argument(help="The synthetic table, with the same columns.")],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="What is public about the columns.")],
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", help="A metric; repeatable. Default all.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="METRIC.NAME=VALUE", help="A metric's setting; repeatable.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="A numeric column to weight totals and shares by.")] = None,
    seed: Annotated[int, typer.Option(help="For everything that is drawn.")] = 0,
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

    path = None if output is None else mark_path(output)
    if path is not None:
        check_new_file(path, force=True)
    with progress_shown(quiet=quiet or as_json) as progress:
        frame = score(
            real,
            synthetic,
            schema,
            metrics=metric,
            weight=weight,
            seed=seed,
            progress=progress,
            **parsed_settings(setting or []),
        )
    data = {"custodian_only": WARNING, "seed": seed, "scores": _nested(frame.to_pylist())}
    if path is not None:
        write_page(json.dumps(data, indent=2) + "\n", path, private=True)
    words = _words(data) + ("" if path is None else f"\n\nScores: {path}")
    tell(words, data, quiet=quiet, as_json=as_json)


def parsed_settings(settings: list[str]) -> dict[str, dict[str, Any]]:
    """``METRIC.NAME=VALUE`` options as settings by metric; values are YAML.

    Raises:
        SettingError: for an option that is not written so.
    """
    parsed: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, mark, value = setting.partition("=")
        metric, dot, name = key.partition(".")
        if not mark or not dot or not metric.isidentifier() or not name.isidentifier():
            raise SettingError("--set takes METRIC.NAME=VALUE, for example --set mgd.tolerance=5")
        parsed.setdefault(metric, {})[name] = set_value(key, value)
    return parsed


def _nested(lines: list[dict[str, Any]]) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for line in lines:
        if line["kind"] == "score":
            kept = {key: line[key] for key in ("value", "better", "best", "note")}
            scores[line["metric"]] = kept | {"parts": []}
        else:
            scores[line["metric"]]["parts"].append({key: line[key] for key in ("kind", "name", "value")})
    return scores


def _words(data: dict[str, Any]) -> str:
    width = max(len(name) for name in data["scores"])
    lines = [data["custodian_only"], ""]
    for name, score in data["scores"].items():
        lines.append(f"{name:<{width}}  {score['value']:>12.6g}   {score['better']} is better, best {score['best']:g}")
    return "\n".join(lines)
