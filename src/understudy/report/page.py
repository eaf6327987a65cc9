"""The page: facts gathered into plain values, then one template with its style inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np

from understudy.domain import Clique
from understudy.errors import InputError
from understudy.metric.tables import Rows, is_ordered
from understudy.metric.workload import Settings as WorkloadSettings
from understudy.metric.workload import workload
from understudy.progress import Progress, Step, silent
from understudy.release import Release
from understudy.report import svg
from understudy.report.associations import MOST, associations
from understudy.report.numbers import binned_rows, summaries
from understudy.report.public import (
    CAUTION,
    Measured,
    bounds_known,
    edges,
    joint_cells,
    measured_tables,
    noise_of,
    shares,
    weak_values,
)
from understudy.report.scores import Placed, placed_scores
from understudy.schema.column import Coded
from understudy.schema.labels import axis_ends, code_labels

_SAMPLE = 100_000
_SHOWN = 24


def public_report(release: Release) -> str:
    """The report of a release as one HTML page: public facts only, and the same bytes every time.

    **Privacy.** Made of the release alone: post-processing.

    Raises:
        InputError: when jinja2 is not installed.
    """
    return _render(_facts(release, _standin(release), None) | {"custodian": False})


def custodian_report(
    release: Release,
    real: Any,
    *,
    weight: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> str:
    """The report with the real table beside the stand-in.

    Args:
        release: the release.
        real: a frame of the real rows.
        weight: a numeric column; weighted totals and shares are compared as well.
        settings: settings by metric.
        seed: for everything that is drawn.
        progress: told about each step.

    **Privacy.** Not differentially private: for the custodian only. Every printed page says so.

    Raises:
        InputError: when the table cannot be used, or jinja2 is not installed.
    """
    _environment()
    schema = release.schema
    rows = Rows.of(real, schema, what="real table")
    standin = _standin(release)
    facts = _facts(release, standin, rows)
    placed = placed_scores(rows, standin, schema, settings=settings, seed=seed, progress=progress)
    progress(Step("evaluate", 1.0, "writing the report"))
    names = [column.name for column in schema.coded]
    two = WorkloadSettings(
        cliques=tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])[:2000] or ((names[0],),)
    )
    found = workload(rows, standin, schema, two, np.random.default_rng(seed))
    marginals = [(part.name, part.value) for part in found.parts if part.kind == "marginal"]
    extra: dict[str, Any] = {"custodian": True, "seed": seed, "scores": [_score(item) for item in placed]}
    half = (len(marginals) + 1) // 2  # no table is listed twice
    extra |= {"worst": marginals[: min(half, 8)], "best": marginals[half:][::-1][:8], "weighted": None}
    if weight is not None:
        one_way = WorkloadSettings(cliques=tuple((name,) for name in names), weight=weight)
        score = workload(rows, standin, schema, one_way, np.random.default_rng(seed))
        extra["weighted"] = {
            "column": weight,
            "real": score.part("total", "real"),
            "standin": score.part("total", "synthetic"),
            "columns": [(part.name, part.value) for part in score.parts if part.kind == "marginal"],
        }
    return _render(facts | extra)


def _standin(release: Release) -> Rows:
    """Rows of the release, always the same ones; as text, for a column of numbers cannot hold a word for missing."""
    rows = min(max(release.default_rows, 1), _SAMPLE)
    return Rows.of(release.sample(rows, seed=0, as_="arrow", as_written=True), release.schema, what="stand-in")


def _facts(release: Release, standin: Rows, real: Rows | None) -> dict[str, Any]:
    tables = measured_tables(release)
    total = max(float(release.model.total), 1.0)
    joined = edges(release)
    bounds, bounded, unbounded = bounds_known(release)
    names = [column.name for column in release.schema.coded]
    weak = weak_values(release, tables)
    joint = joint_cells(tables)
    binned = None if real is None else binned_rows(real, release.schema)
    numbers = summaries(release.schema, standin, real, binned)
    return {
        "title": release.schema.title or "A stand-in",
        "release": release,
        "receipt": replace(release.receipt, facts=dict(sorted(release.receipt.facts.items()))),
        "settings": sorted(release.settings.items()),
        "odds": None if release.receipt.epsilon is None else math.exp(min(release.receipt.epsilon, 50.0)),
        "total": total,
        "columns": [_column(release, column, tables, standin, real) for column in release.schema.coded],
        "numbers": numbers,
        "statistics": list(dict.fromkeys(line.name for _, lines in numbers for line in lines)),
        "weak": weak,
        "weak_values": sum(len(item.values) for item in weak),
        "joint": joint,
        "caution": CAUTION,
        "limit": CAUTION * max((table.sigma for table in tables), default=0.0),
        "tables": _precision(tables, total, bounds),
        "pairs_bounded": bounded,
        "pairs_unbounded": unbounded,
        "pairs": _pairs(standin, real, names),
        "hidden_columns": max(0, len(names) - MOST),
        "edges": joined,
        "graph": _graph(names, joined),
        "sample_rows": standin.rows,
    }


def _column(
    release: Release, column: Coded, tables: list[Measured], standin: Rows, real: Rows | None
) -> dict[str, Any]:
    share = shares(release, column, standin)
    noise = 2 * noise_of(release, column, tables) / max(float(release.model.total), 1.0)
    labels = code_labels(column)
    truth = None
    if real is not None:
        truth = np.bincount(real.codes[column.name], minlength=len(share)) / real.rows
    bars = [
        svg.Bar(label, float(share[code]), noise, None if truth is None else float(truth[code]))
        for code, label in enumerate(labels)
    ]
    in_order = is_ordered(column)
    ordinary, special = bars[: column.ordinary], bars[column.ordinary :]
    shown = ordinary if in_order and len(ordinary) > 12 else _largest(bars)
    return {
        "name": column.name,
        "title": column.title,
        "chart": svg.distribution(
            f"Distribution of {column.name}",
            shown,
            ordered=in_order,
            ends=axis_ends(column) if shown is ordinary else None,
        ),
        "special": [bar for bar in special if shown is ordinary and (bar.share > 0.0005 or (bar.real or 0) > 0)],
        "distance": None if truth is None else float(np.abs(share - truth).sum() / 2),
    }


def _largest(bars: list[svg.Bar]) -> list[svg.Bar]:
    """All bars, or the largest ones and the rest taken together."""
    bars = [bar for bar in bars if bar.share > 0 or bar.real]
    if len(bars) <= _SHOWN:
        return bars or [svg.Bar("nothing", 0.0)]
    order = sorted(bars, key=lambda bar: (-bar.share, bar.label))
    kept, rest = order[: _SHOWN - 1], order[_SHOWN - 1 :]
    real = sum(bar.real or 0.0 for bar in rest) if rest[0].real is not None else None
    return [*kept, svg.Bar(f"{len(rest)} other values", sum(bar.share for bar in rest), 0.0, real)]


def _precision(tables: list[Measured], total: float, bounds: Mapping[Clique, float | None]) -> dict[str, Any]:
    lines = [
        {
            "name": " x ".join(table.clique),
            "cells": table.cells,
            "sigma": table.sigma,
            "share": table.sigma / total,
            "misplaced": table.relative(total),
            "bound": bounds.get(table.clique),
        }
        for table in tables
    ]
    lines.sort(key=lambda line: (line["misplaced"], line["name"]))
    return {"all": lines, "best": lines[:5], "worst": lines[::-1][:5]}


def _pairs(standin: Rows, real: Rows | None, names: list[str]) -> dict[str, Any] | None:
    shown = names[:MOST]
    if len(shown) < 2:
        return None
    made = associations(standin, shown)
    found: dict[str, Any] = {"standin": svg.heatmap("Associations in the stand-in", shown, made.tolist())}
    if real is not None:
        truth = associations(real, shown)
        found["real"] = svg.heatmap("Associations in the real table", shown, truth.tolist())
        lower = [(i, j) for i in range(len(shown)) for j in range(i)]
        lower.sort(key=lambda at: -abs(truth[at] - made[at]))
        found["gaps"] = [(shown[j], shown[i], float(truth[i, j]), float(made[i, j])) for i, j in lower[:6]]
    return found


def _graph(names: list[str], joined: list[tuple[str, str]]) -> Any:
    place = {name: number for number, name in enumerate(names)}
    drawn = [(place[a], place[b]) for a, b in joined if a in place and b in place]
    return svg.graph("Columns that were measured together", names, drawn) if drawn and len(names) <= 60 else None


def _score(item: Placed) -> dict[str, Any]:
    values = [score.value for score in (item.score, item.halves, item.independent)]
    picture = svg.scale(f"{item.metric.title} on its scale", values[0], values[1], values[2], item.metric.best)
    worst = "" if item.metric.worst is None else f", worst {_plain(item.metric.worst)}"
    ends = f"{item.metric.better} is better: best {_plain(item.metric.best)}{worst}"
    parts = [part for part in item.score.parts if part.kind not in ("marginal", "cell")][:12]
    return {
        "metric": item.metric,
        "score": item.score,
        "halves": item.halves,
        "independent": item.independent,
        "chart": picture,
        "ends": ends,
        "parts": parts,
    }


def _environment() -> Any:
    try:
        import jinja2
    except ImportError:
        raise InputError("reports need jinja2: pip install 'understudy[eval]'") from None
    folder = resources.files("understudy.report") / "templates"
    loader = jinja2.FunctionLoader(lambda name: (folder / name).read_text("utf-8"))
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = svg.percent
    environment.filters["rows"] = lambda value: f"{round(value):,}"
    environment.filters["figure"] = _plain
    environment.filters["short"] = lambda value: f"{value:g}".replace("e-0", "e-")
    return environment


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _render(facts: dict[str, Any]) -> str:
    text: str = _environment().get_template("report.html.j2").render(**facts)
    return text + ("" if text.endswith("\n") else "\n")
