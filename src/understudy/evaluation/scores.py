"""`evaluate`: the published metrics on a real and a synthetic table, for the custodian only.

It reads files and engines, which `metric/` may not: metrics get tables in memory and cannot reach a source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from understudy.arguments import as_mapping, as_names, as_path, as_progress, as_whole
from understudy.errors import InputError, OutputError, SettingError
from understudy.evaluation.linked import evaluate_linked, report_linked
from understudy.files import write_text
from understudy.progress import Progress
from understudy.schema import Schema, frame_kind
from understudy.schema.custodian import mark_path
from understudy.schema.frames import to_frame
from understudy.schema.linked import LinkedSchema, load_any
from understudy.source.read import collect_table

if TYPE_CHECKING:
    from understudy.evaluation.attacks import Attacks
    from understudy.release import Release
    from understudy.release.linked import LinkedRelease

PARTIAL = ("nist_density", "nist_conjunctions", "nist_income", "nist_contest")
"""Metrics with a published rule for columns that the synthetic table lacks."""


def evaluate(
    real: Any,
    synthetic: Any,
    schema: Schema | LinkedSchema | str | PathLike[str],
    *,
    metrics: Sequence[str] | None = None,
    weight: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Mapping[str, Any],
) -> Any:
    """Score a synthetic table against the real one.

    Args:
        real: whatever `synthesize` takes. The rows are brought into memory: of a large table, give a sample.
        synthetic: the same; or a list of synthetic tables, whose scores are averaged.
        schema: the schema of both tables, or the path of its file. Linked tables have their own scores
            (docs/guide/linked.md): `real` and `synthetic` are then tables by name, or folders.
        metrics: names from the registry; None: all metrics that need no setting, and those whose settings are given.
        weight: a numeric column; the workload's totals and shares are then weighted by it.
        seed: for all sampling; the same tables, settings and seed give the same scores.
        progress: called with each `Step`.
        settings: by metric, a mapping of its settings: ``mgd={"tolerance": 5}``.

    Returns:
        A tidy frame of the kind of `real` (arrow for a path or an engine's table), one line for each score and part:
        ``metric``, ``kind`` ("score" for the score itself), ``name``, ``value``, ``better``, ``best``, ``note``.

    **Privacy.** Not differentially private: the scores are computed from real rows. They are for the custodian only and
    may not be published, or used to choose among releases, without a charge.

    Raises:
        InputError: if a table cannot be used; SchemaError and SettingError name the column or setting.
    """
    from understudy.metric import Rows
    from understudy.metric.registry import average, measure

    schema = schema if isinstance(schema, Schema | LinkedSchema) else load_any(schema)
    if isinstance(schema, LinkedSchema):
        if metrics is not None or weight is not None or set(settings) - {"group_queries"}:
            raise SettingError(
                "metrics, weight and settings cannot be chosen for linked tables, except the number of group queries: "
                "group_queries={'queries': 1000}; leave them out"
            )
        one = synthetic[0] if isinstance(synthetic, list | tuple) and len(synthetic) == 1 else synthetic
        many = as_mapping("group_queries", settings.get("group_queries", {}), example='{"queries": 1000}')
        queries = as_whole("queries", many.get("queries", 10_000), least=1)
        return pa.Table.from_pylist(evaluate_linked(real, one, schema, seed=as_whole("seed", seed), queries=queries))
    metrics = None if metrics is None else as_names("metrics", metrics)
    given = {name: as_mapping(name, values, example='mgd={"tolerance": 5}') for name, values in settings.items()}
    seed, report = as_whole("seed", seed), as_progress(progress)
    if weight is not None:
        if metrics is not None and "workload_error" not in metrics:
            raise SettingError("weight belongs to the metric workload_error; add it to the metrics")
        given["workload_error"] = given.get("workload_error", {}) | {"weight": weight}
    partial = metrics is not None and set(metrics) <= set(PARTIAL)
    rows = Rows.of(collect_table(real, schema), schema, what="real table")
    several = synthetic if isinstance(synthetic, list | tuple) else [synthetic]
    if not several:
        raise InputError("synthetic: the list of synthetic tables is empty; give at least one table")
    made = [Rows.of(collect_table(one, schema), schema, what="synthetic table", partial=partial) for one in several]
    each = [measure(rows, one, schema, metrics, given, seed=seed, progress=report) for one in made]
    scores = [average(scores) for scores in zip(*each, strict=True)]
    return to_frame(tidy(scores), "arrow" if isinstance(real, str | PathLike) else frame_kind(real))


def write_report(
    release: Release | LinkedRelease | str | PathLike[str],
    path: str | PathLike[str],
    *,
    real: Any = None,
    full: bool = False,
    weight: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    attacks: Attacks | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write the report about a release, as one HTML file.

    Args:
        release: the release, of one table or of linked tables, or the path of its file.
        path: the .html file. With `real` it becomes *.custodian-only.html.
        real: the real table or the linked ones, whatever `synthesize` takes, to compare with.
        full: whether scores use more of the rows, values and tables; it takes minutes.
        weight: a numeric column; weighted totals and shares are compared as well.
        settings: settings by metric.
        attacks: what `attack` found on the release, to show it as well.
        seed: of all random draws in a comparison.
        overwrite: replace a file of that name.
        progress: called with each `Step`.

    Returns:
        The path that was written.

    **Privacy.** Without `real`, post-processing of the release. With it, for the custodian only.

    Raises:
        OutputError: if the file exists already, or cannot be written.
        SettingError: for a path that does not end in .html, or an option that needs `real` or a single table.
    """
    from understudy.release import Release, open_release
    from understudy.release.linked import LinkedRelease
    from understudy.report import custodian_report, public_report

    chosen, target = full or weight is not None or bool(settings) or attacks is not None, as_path("path", path)
    if real is None and chosen:
        raise SettingError("weight, settings, attacks and full compare with the real table; give it as well (real)")
    if target.suffix != ".html":
        raise SettingError("a report is an .html file; give the output that ending")
    if real is None and mark_path(target) == target:
        raise SettingError("*.custodian-only.html is for reports with the real table; choose another output")
    target = target if real is None else mark_path(target)
    if target.exists() and not overwrite:
        raise OutputError(f"{target} already exists; choose another output, or replace it (overwrite=True, --force)")
    loaded = release if isinstance(release, Release | LinkedRelease) else open_release(release)
    if isinstance(loaded, LinkedRelease):
        if chosen:
            raise SettingError("weight, settings, attacks and full are not possible with linked tables; leave them out")
        page = report_linked(loaded, real, seed=seed)
    elif real is None:
        page = public_report(loaded)
    else:
        table, show = collect_table(real, loaded.schema), as_progress(progress)
        page = custodian_report(
            loaded, table, weight=weight, settings=settings, full=full, attacks=attacks, seed=seed, progress=show
        )
    write_text(page, target, private=real is not None)
    return target


def tidy(scores: Sequence[Any]) -> Any:
    """Make an arrow table of scores, one line for each score and part."""
    lines: list[dict[str, Any]] = []
    for score in scores:
        same = {"metric": score.metric, "better": score.better, "best": score.best}
        lines.append(
            same | {"kind": "score", "name": score.metric, "value": score.value, "note": " ".join(score.notes)}
        )
        lines += [same | {"kind": p.kind, "name": p.name, "value": p.value, "note": ""} for p in score.parts]
    text, number = pa.string(), pa.float64()
    kinds = {"metric": text, "kind": text, "name": text, "value": number, "better": text, "best": number, "note": text}
    return pa.table({name: pa.array([line[name] for line in lines], kind) for name, kind in kinds.items()})
