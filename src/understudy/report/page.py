"""The HTML report: collects its content as plain values, then renders one template with its style inside."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy import svg
from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.metric.base import Counted, Metric, Score
from understudy.metric.registry import choose_metrics, get_metric, has_sklearn, measure
from understudy.metric.tables import Rows, clique_text, is_ordered
from understudy.metric.workload import Settings as WorkloadSettings
from understudy.metric.workload import workload_error
from understudy.progress import Progress, Step, silent
from understudy.release import Release
from understudy.report.guide import render_guide
from understudy.report.public import (
    CAUTION,
    MeasuredMarginal,
    bound_tables,
    count_weak_cells,
    estimate_shares,
    find_noise,
    list_measured_marginals,
    list_measured_pairs,
    list_weak_values,
)
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import ListedColumn
from understudy.schema.column import Coded
from understudy.schema.numeric import Numeric
from understudy.schema.temporal import Temporal
from understudy.tabulate import to_dense

_SAMPLE = 100_000
_SHOWN = 24
_PARTS = 12  # of each kind of a score
_FAR = 0.05  # of the rows: a column that differs by more is called bad


def public_report(release: Release) -> str:
    """Render the report of a release as one HTML page: public facts only, always the same bytes.

    **Privacy.** Made of the release alone: post-processing.
    """
    content = _collect_content(release, _sample_standin(release), None)
    return f"{load_template('report.html.j2').render(content, custodian=False)}\n"


def custodian_report(
    release: Release,
    real: Any,
    *,
    weight: str | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    full: bool = False,
    attacks: Any = None,
    seed: int = 0,
    progress: Progress = silent,
) -> str:
    """Render the report that compares the stand-in with the real table.

    Args:
        release: the release.
        real: a frame of the real rows.
        weight: a numeric column; weighted totals and shares are compared as well.
        settings: settings by metric.
        full: whether scores use more of the rows, values and tables; it takes minutes.
        attacks: the result of `attack` on the release, or None.
        seed: for all random draws.
        progress: called at each step.

    **Privacy.** Not differentially private: for the custodian only. Every printed page says so.

    Raises:
        InputError: if the table cannot be used.
        SettingError: if `full` needs a package that is not installed.
    """
    template = load_template("report.html.j2")
    if full and not has_sklearn():
        raise SettingError("--full needs scikit-learn: pip install 'understudy[eval]'")
    schema = release.schema
    rows = Rows.of(real, schema, what="real table")
    standin = _sample_standin(release)
    facts = _collect_content(release, standin, rows)
    placed = score_on_scale(rows, standin, schema, settings=settings, full=full, seed=seed, progress=progress)
    progress(Step("evaluate", 1.0, "writing the report"))
    names = [column.name for column in schema.coded]
    two = WorkloadSettings(
        cliques=tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])[:2000] or ((names[0],),)
    )
    found = workload_error(rows, standin, schema, two, np.random.default_rng(seed))
    marginals = [(part.name, part.value) for part in found.parts if part.kind == "marginal"]
    extra: dict[str, Any] = {"custodian": True, "seed": seed, "scores": [_describe_score(item) for item in placed]}
    extra["without_sklearn"] = not has_sklearn()
    extra["verdict"] = _judge(facts["columns"], marginals, placed)
    extra["attacks"] = None if attacks is None else attacks.to_dict() | {"chart": _draw_attacks(attacks)}
    extra |= {"script": _SCRIPT, "script_hash": _hash_script(_SCRIPT), "weighted": None}
    extra |= {"two_ways": _describe_two_ways(marginals, facts), "groups": compare_groups(standin, rows, schema)}
    if weight is not None:
        one_way = WorkloadSettings(cliques=tuple((name,) for name in names), weight=weight)
        score = workload_error(rows, standin, schema, one_way, np.random.default_rng(seed))
        extra["weighted"] = {
            "column": weight,
            "real": score.part("total", "real"),
            "standin": score.part("total", "synthetic"),
            "columns": [(part.name, part.value) for part in score.parts if part.kind == "marginal"],
        }
    return f"{template.render(facts | extra)}\n"


def _judge(columns: list[dict[str, Any]], pairs: list[tuple[str, float]], scores: list[ScaledScore]) -> list[str]:
    """Say in three sentences what is good and what is bad: single columns, pairs, and scores."""
    ranked = sorted(columns, key=lambda column: column["distance"] or 0.0)
    far = [column for column in ranked if (column["distance"] or 0.0) > _FAR]
    worst = ranked[-1]
    sentences = [
        f"Single columns: {len(ranked) - len(far)} of {len(ranked)} agree with the real table up to "
        f"{svg.percent(_FAR)} of the rows; the worst is {worst['name']} ({svg.percent(worst['distance'] or 0.0)})."
    ]
    if pairs:
        good = sum(value <= 2 * _FAR for _, value in pairs)
        sentences.append(
            f"Pairs of columns: {good} of {len(pairs)} agree up to {svg.percent(2 * _FAR)} of the rows; the worst is "
            f"{pairs[0][0]} ({svg.percent(pairs[0][1])})."
        )
    lost = [item.metric.title for item in scores if not _is_close(item)]
    words = f"Scores: {len(scores) - len(lost)} of {len(scores)} are as good as those of half the real rows, or nearer "
    words += "to them than to the worse ones of shuffled columns"
    sentences.append(words + (f"; not {', '.join(lost[:4])}{' and others' if len(lost) > 4 else ''}." if lost else "."))
    return sentences


def _is_close(item: ScaledScore) -> bool:
    """Return whether a score is as good as that of half the real table, or nearer to it than to the shuffled columns'.

    Where columns hardly depend on each other, shuffled columns are better than half the table, and no bad reference.
    """
    errors = (abs(score.value - item.metric.best) for score in (item.score, item.halves, item.independent))
    value, halves, shuffled = errors
    return value <= (halves + max(halves, shuffled)) / 2


def _sample_standin(release: Release) -> Rows:
    """Sample the release, always the same rows; as text, because numeric columns cannot hold tokens for missing."""
    rows = min(max(release.default_rows, 1), _SAMPLE)
    return Rows.of(release.sample(rows, seed=0, as_="arrow", as_written=True), release.schema, what="stand-in")


def _collect_content(release: Release, standin: Rows, real: Rows | None) -> dict[str, Any]:
    tables = list_measured_marginals(release)
    total = max(float(release.model.total), 1.0)
    joined = list_measured_pairs(release)
    bounds, bounded, unbounded = bound_tables(release)
    names = [column.name for column in release.schema.coded]
    weak = list_weak_values(release, tables)
    joint = count_weak_cells(tables)
    binned = None if real is None else bin_rows(real, release.schema)
    numbers = summarize_columns(release.schema, standin, real, binned)
    return {
        "title": release.title,
        "guide": render_guide(),
        "release": release,
        "receipt": replace(release.receipt, facts=dict(sorted(release.receipt.facts.items()))),
        "settings": sorted(release.settings.items()),
        "odds": None if release.receipt.epsilon is None else math.exp(min(release.receipt.epsilon, 50.0)),
        "total": total,
        "columns": [_describe_column(release, column, tables, standin, real) for column in release.schema.coded],
        "numbers": numbers,
        "statistics": list(dict.fromkeys(line.name for _, lines in numbers for line in lines)),
        "weak": weak,
        "weak_values": sum(len(item.values) for item in weak),
        "joint": joint,
        "caution": CAUTION,
        "limit": CAUTION * max((table.sigma for table in tables), default=0.0),
        "tables": _describe_tables(tables, total, bounds),
        "pairs_bounded": bounded,
        "pairs_unbounded": unbounded,
        "pairs": _describe_pairs(standin, real, names, _find_faint(release.schema, standin, tables, total)),
        "hidden_columns": max(0, len(names) - MOST),
        "edges": joined,
        "graph": _draw_graph(names, joined),
        "sample_rows": standin.rows,
    }


def _describe_column(
    release: Release, column: Coded, tables: list[MeasuredMarginal], standin: Rows, real: Rows | None
) -> dict[str, Any]:
    share = estimate_shares(release, column, standin)
    noise = 2 * find_noise(release, column, tables) / max(float(release.model.total), 1.0)
    truth = None
    if real is not None:
        truth = np.bincount(real.codes[column.name], minlength=len(share)) / real.rows
    return describe_shares(column, share, truth, noise=noise)


def describe_shares(
    column: Coded, share: NDArray[np.float64], truth: NDArray[np.float64] | None, *, noise: float = 0.0
) -> dict[str, Any]:
    """Draw the distribution of a column, and return its chart with what belongs to it.

    Args:
        column: the column.
        share: the stand-in's share of each code.
        truth: the real shares, for the custodian.
        noise: two standard deviations of the noise of a share; 0 if it is not known.
    """
    labels = column.code_labels()
    bars = [
        svg.Bar(label, float(share[code]), noise, None if truth is None else float(truth[code]))
        for code, label in enumerate(labels)
    ]
    in_order = is_ordered(column)
    ordinary, special = bars[: column.ordinary], bars[column.ordinary :]
    many = column.needs_histogram if isinstance(column, AxisColumn) else len(ordinary) > 12
    shown = ordinary if in_order and many else _select_largest(bars)
    return {
        "name": column.name,
        "title": column.title,
        "chart": svg.draw_distribution(
            f"Distribution of {column.name}",
            shown,
            ordered=in_order,
            edges=column.axis_edges() if shown is ordinary and isinstance(column, AxisColumn) else None,
        ),
        "special": [bar for bar in special if shown is ordinary and (bar.share > 0.0005 or (bar.real or 0) > 0)],
        "distance": None if truth is None else float(np.abs(share - truth).sum() / 2),
    }


def _select_largest(bars: list[svg.Bar]) -> list[svg.Bar]:
    """Return all bars, or the largest ones and one bar for the others."""
    bars = [bar for bar in bars if bar.share > 0 or bar.real]
    if len(bars) <= _SHOWN:
        return bars or [svg.Bar("nothing", 0.0)]
    order = sorted(bars, key=lambda bar: (-bar.share, bar.label))
    kept, rest = order[: _SHOWN - 1], order[_SHOWN - 1 :]
    real = sum(bar.real or 0.0 for bar in rest) if rest[0].real is not None else None
    return [*kept, svg.Bar(f"{len(rest)} other values", sum(bar.share for bar in rest), 0.0, real)]


def _describe_tables(
    tables: list[MeasuredMarginal], total: float, bounds: Mapping[Clique, float | None]
) -> dict[str, Any]:
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


def _find_faint(
    schema: Schema, standin: Rows, tables: list[MeasuredMarginal], total: float
) -> dict[str, NDArray[np.bool_]]:
    """Mark the values of text columns that are too rare to be told from the noise of the column's counts.

    A few rows of two such values, which may not exist at all, would look like a strong association.
    """
    limits = {table.clique[0]: CAUTION * table.sigma for table in tables if len(table.clique) == 1}
    listed = [(column.name,) for column in schema.coded if isinstance(column, ListedColumn) and column.name in limits]
    found = {}
    for (name,), counts in standin.counts(listed):
        found[name] = to_dense(counts).ravel() * (total / max(standin.rows, 1)) < limits[name]
    return found


def _describe_pairs(
    standin: Rows, real: Rows | None, names: list[str], faint: Mapping[str, NDArray[np.bool_]]
) -> dict[str, Any] | None:
    shown = names[:MOST]
    if len(shown) < 2:
        return None
    made = measure_associations(standin, shown, faint)
    found: dict[str, Any] = {"standin": svg.draw_heatmap("Associations in the stand-in", shown, made.tolist())}
    found["strengths"] = {}
    if real is not None:
        truth = measure_associations(real, shown, faint)
        found["real"] = svg.draw_heatmap("Associations in the real table", shown, truth.tolist())
        lower = [(i, j) for i in range(len(shown)) for j in range(i)]
        lower.sort(key=lambda at: -abs(truth[at] - made[at]))
        found["gaps"] = [(shown[j], shown[i], float(truth[i, j]), float(made[i, j])) for i, j in lower[:6]]
        found["strengths"] = {clique_text((shown[j], shown[i])): (truth[i, j], made[i, j]) for i, j in lower}
    return found


def _describe_two_ways(marginals: list[tuple[str, float]], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe every pair of columns: its distance, both associations where known, and whether it was measured."""
    measured = {frozenset(pair) for pair in facts["edges"]}
    names = [column["name"] for column in facts["columns"]]
    known = {clique_text(pair): frozenset(pair) in measured for pair in combinations(names, 2)}
    strengths = (facts["pairs"] or {}).get("strengths", {})
    return [
        {"name": name, "distance": value, "measured": known.get(name, False), "association": strengths.get(name)}
        for name, value in marginals
    ]


def _draw_graph(names: list[str], joined: list[tuple[str, str]]) -> Any:
    place = {name: number for number, name in enumerate(names)}
    drawn = [(place[a], place[b]) for a, b in joined if a in place and b in place]
    return svg.draw_graph("Columns that were measured together", names, drawn) if drawn and len(names) <= 120 else None


def _draw_attacks(attacks: Any) -> Any:
    """Return the mean ROC curve of each membership attack below the ceiling of the guarantee."""
    grid = np.linspace(0.0, 1.0, 101)
    kinds = {"measurements": "seen", "rows": "rows", "density": "density"}
    drawn = [svg.Curve(kinds[name], x.tolist(), y.tolist()) for name, (x, y) in attacks.curves.items() if name in kinds]
    claim = svg.Curve("claim", grid.tolist(), attacks.claim.power(grid).tolist())
    return svg.draw_tradeoff("Membership attacks", [svg.Curve("chance", [0.0, 1.0], [0.0, 1.0]), claim, *drawn])


def _describe_score(item: ScaledScore) -> dict[str, Any]:
    values = [score.value for score in (item.score, item.halves, item.independent)]
    picture = svg.draw_scale(f"{item.metric.title} on its scale", values[0], values[1], values[2], item.metric.best)
    worst = "" if item.metric.worst is None else f", worst {_format_number(item.metric.worst)}"
    ends = f"{item.metric.better} is better: best {_format_number(item.metric.best)}{worst}"
    shown = [part for part in item.score.parts if part.kind not in ("marginal", "cell")]
    kinds = dict.fromkeys(part.kind for part in shown)
    parts = [part for kind in kinds for part in [part for part in shown if part.kind == kind][:_PARTS]]
    return {
        "metric": item.metric,
        "score": item.score,
        "halves": item.halves,
        "independent": item.independent,
        "chart": picture,
        "ends": ends,
        "parts": parts,
    }


def load_template(name: str, package: str = "understudy.report") -> Any:
    """Load a template of a package, which may include the report's; values in HTML templates are escaped."""
    import jinja2

    loader = jinja2.ChoiceLoader([jinja2.PackageLoader(home) for home in (package, "understudy.report")])
    environment = jinja2.Environment(
        loader=loader,
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = svg.percent
    environment.filters["rows"] = lambda value: f"{round(value):,}"
    environment.filters["figure"] = _format_number
    environment.filters["short"] = lambda value: f"{value:g}".replace("e-0", "e-")
    # viewers of Markdown show HTML, and titles and names are foreign text, so it is escaped
    environment.filters["plain"] = lambda value: " ".join(str(value).replace("&", "&amp;").replace("<", "&lt;").split())
    return environment.get_template(name)


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# -- Numeric columns in a few statistics; what binning changed is shown separately from what privacy changed.


_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}
_DAY = 86_400_000_000
_LONG = 100 * _DAY
"""Statistics of moments on a longer axis are shown as days."""


_SCRIPT = (Path(__file__).parent / "templates" / "tables.js").read_text(encoding="utf-8")
"""Sorts and searches the tables of the custodian's report; without it they are plain tables."""


def _hash_script(script: str) -> str:
    """Return the hash by which the page's security policy allows this script and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


# Subgroups: rows with one value of a column

_MOST_VALUES = 12  # of a column whose values are subgroups
_MOST_GROUPED = 12  # columns whose values are subgroups


@dataclass(frozen=True)
class Group:
    """How the stand-in's rows with one value of a column agree with the real ones.

    Attributes:
        name: the column and its value.
        rows: the real rows.
        real: their share of the real table.
        standin: the same of the stand-in.
        distance: the share of the subgroup's rows that would have to change, in the mean of the other columns.
        worst: the other column with the largest distance.
        worst_distance: its distance.
    """

    name: str
    rows: int
    real: float
    standin: float
    distance: float
    worst: str
    worst_distance: float


def compare_groups(standin: Rows, real: Rows, schema: Schema) -> list[Group]:
    """Compare the other columns within subgroups: the values of columns that have few; the largest distance first.

    **Privacy.** Not differentially private: for the custodian only.
    """
    others = [column for column in schema.coded if column.size > 1][:MOST]
    grouping = sorted((column for column in others if column.ordinary <= _MOST_VALUES), key=lambda column: column.size)
    groups = []
    for column in grouping[:_MOST_GROUPED]:
        sizes = [_count_pair(table, column, column).diagonal() for table in (real, standin)]
        inside = {other.name: _compare_within(standin, real, column, other) for other in others if other is not column}
        for code, label in enumerate(column.code_labels()):
            if inside and sizes[0][code] > 0:
                share, made = (float(size[code] / max(size.sum(), 1)) for size in sizes)
                distances = {name: float(found[code]) for name, found in inside.items()}
                worst = max(distances, key=distances.__getitem__)
                mean = sum(distances.values()) / len(distances)
                name = f"{column.name} = {label}"
                groups.append(Group(name, int(sizes[0][code]), share, made, mean, worst, distances[worst]))
    return sorted(groups, key=lambda group: (-group.distance, group.name))


def _count_pair(table: Rows, first: Coded, second: Coded) -> NDArray[np.int64]:
    codes = table.codes[first.name].astype(np.int64) * second.size + table.codes[second.name]
    return np.bincount(codes, minlength=first.size * second.size).reshape(first.size, second.size)


def _compare_within(standin: Rows, real: Rows, column: Coded, other: Coded) -> NDArray[np.float64]:
    """Return distances of the distributions of `other`, by value of `column`; 1 where the stand-in has no such row."""
    made, truth = (_count_pair(table, column, other) for table in (standin, real))
    shares = [counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) for counts in (made, truth)]
    distances: NDArray[np.float64] = np.abs(shares[0] - shares[1]).sum(axis=1) / 2
    return np.where(made.sum(axis=1) > 0, distances, 1.0)


@dataclass(frozen=True)
class Statistic:
    """One statistic of a column, formatted.

    Attributes:
        name: which statistic.
        standin: its value in the stand-in.
        real: its value in the real table, else "".
        binned: its value in the real table after binning, else "".
        binning: the change due to binning, else "".
        privacy: the further change due to noise and model, else "".
    """

    name: str
    standin: str
    real: str = ""
    binned: str = ""
    binning: str = ""
    privacy: str = ""


def bin_rows(real: Rows, schema: Schema) -> Rows:
    """Code and decode the real rows: a stand-in without any noise or model."""
    return Rows.of(schema.decode(real.codes, np.random.default_rng(0)), schema)


def summarize_columns(
    schema: Schema, standin: Rows, real: Rows | None = None, binned: Rows | None = None
) -> list[tuple[AxisColumn, list[Statistic]]]:
    """Compute the statistics of every numeric column."""
    found = []
    for column in schema.coded:
        if isinstance(column, AxisColumn):
            tables = [table for table in (standin, real, binned) if table is not None]
            stats = [_compute_statistics(column, table.units[column.name]) for table in tables]
            names = [name for name in stats[0] if name != "share missing" or any(stat[name] for stat in stats)]
            found.append((column, [_make_statistic(column, name, [stat[name] for stat in stats]) for name in names]))
    return found


def _compute_statistics(column: AxisColumn, units: NDArray[np.float64]) -> dict[str, float | None]:
    there = units[~np.isnan(units)]
    found: dict[str, float | None] = dict.fromkeys(("mean", "spread", *_QUANTILES))
    if len(there):
        quantiles = np.quantile(there, list(_QUANTILES.values()), method="inverted_cdf")
        found = {"mean": float(there.mean()), "spread": float(there.std())}
        found |= dict(zip(_QUANTILES, map(float, quantiles), strict=True))
    spikes = column.axis.lower[column.axis.spike] if column.spikes else np.zeros(0)
    if len(spikes):
        found["share at spikes"] = float(np.isin(units, spikes).mean())
    found["share missing"] = float(np.isnan(units).mean())
    return found


def _make_statistic(column: AxisColumn, name: str, values: list[float | None]) -> Statistic:
    texts = [_format_value(column, name, value) for value in values]
    if len(values) < 3:
        return Statistic(name, texts[0])
    return Statistic(
        name,
        texts[0],
        texts[1],
        texts[2],
        _format_change(column, name, values[1], values[2]),
        _format_change(column, name, values[2], values[0]),
    )


def _format_value(column: AxisColumn, name: str, value: float | None) -> str:
    if value is None:
        return "none"
    if name.startswith("share"):
        return f"{100 * value:.1f} %"
    if isinstance(column, Numeric):
        return _format_figures(value / 10 ** (column.decimals or 0))
    if name == "spread" or (column.kind == "duration" and not _is_clock(column)):
        return _format_length(column, value)
    days = column.kind == "datetime" and column.bounds[1] - column.bounds[0] > _LONG
    return column.format_unit(round(value))[: 10 if days else 16]


def _format_change(column: AxisColumn, name: str, before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    gap = after - before
    if name.startswith("share"):
        return f"{100 * gap:+.1f} pp"
    if isinstance(column, Numeric):
        return _format_figures(gap / 10 ** (column.decimals or 0), sign=True, figures=2)
    return _format_length(column, gap, sign=True, figures=2)


def _is_clock(column: AxisColumn) -> bool:
    """Return whether a column holds times of day."""
    return isinstance(column, Temporal) and column.kind == "duration" and column.pattern is not None


def _format_length(column: AxisColumn, length: float, *, sign: bool = False, figures: int = 4) -> str:
    """Format a length of time in days; of times of day in minutes."""
    unit, word = (1, "days") if column.kind == "date" else (_DAY, "days")
    if _is_clock(column):
        unit, word = _DAY // 1440, "min"
    return f"{_format_figures(length / unit, sign=sign, figures=figures)} {word}"


def _format_figures(value: float, *, sign: bool = False, figures: int = 4) -> str:
    """Format a number with `figures` significant figures and thousands separators.

    >>> _format_figures(12345.678), _format_figures(0.012345), _format_figures(0.0, sign=True), _format_figures(3.0)
    ('12,346', '0.01235', '0', '3')
    """
    if abs(value) < 1e-12:
        return "0"
    digits = max(0, figures - 1 - int(np.floor(np.log10(abs(value)))))
    text = f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# -- Association of pairs of columns: Cramér's V, corrected for the bias of large tables.


MOST = 24
"""The most columns that fit on a page; the first ones are shown."""
_CELLS = 1 << 22


def measure_associations(
    table: Counted, columns: list[str], faint: Mapping[str, NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Compute a symmetric matrix of values between 0 (independent) and 1 (one column determines the other).

    Args:
        table: the rows.
        columns: the columns.
        faint: by column, the codes whose rows are left out.
    """
    matrix = np.eye(len(columns))
    cliques = [(a, b) for a, b in combinations(columns, 2) if table.domain.cells((a, b)) <= _CELLS]
    for (a, b), counts in table.counts(cliques):
        cells = to_dense(counts).reshape(table.domain.shape((a, b))).astype(np.float64)
        cells = cells[~faint[a]] if a in faint else cells
        value = cramers_v(cells[:, ~faint[b]] if b in faint else cells)
        one, other = columns.index(a), columns.index(b)
        matrix[one, other] = matrix[other, one] = value
    return matrix


def cramers_v(counts: NDArray[np.float64]) -> float:
    """Compute bias-corrected Cramér's V (Bergsma); 0 where a column has a single value.

    >>> cramers_v(np.array([[50.0, 0.0], [0.0, 50.0]])), cramers_v(np.array([[25.0, 25.0], [25.0, 25.0]]))
    (1.0, 0.0)
    """
    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    total, (rows, columns) = float(counts.sum()), counts.shape
    if total < 2 or min(rows, columns) < 2:
        return 0.0
    expected = np.outer(counts.sum(1), counts.sum(0)) / total
    phi = float(((counts - expected) ** 2 / expected).sum()) / total
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (total - 1))
    rows_, columns_ = rows - (rows - 1) ** 2 / (total - 1), columns - (columns - 1) ** 2 / (total - 1)
    return float(min(1.0, np.sqrt(phi / max(min(rows_ - 1, columns_ - 1), 1e-9))))


# -- Scores on a reference scale: between two halves of the real table and independent columns.


FULL: dict[str, dict[str, Any]] = {
    "workload_error": {"most": 150},
    "pmse": {"rows": 10_000, "cross_validated": False},
    "pmse_ratio": {"rows": 10_000, "cross_validated": False},
    "specks": {"rows": 10_000, "cross_validated": False},
    "ml_efficacy": {"rows": 10_000},
}
"""A report computes every metric three times, so the slow ones take fewer rows than `evaluate` does, and no folds."""

SAMPLED: dict[str, dict[str, Any]] = {
    "workload_error": {"most": 100},
    "pmse": {"rows": 2_000, "terms": 10, "models": ("logistic",), "cross_validated": False},
    "pmse_ratio": {"rows": 2_000, "terms": 10, "models": ("logistic",), "cross_validated": False},
    "specks": {"rows": 2_000, "terms": 10, "models": ("logistic",), "cross_validated": False},
    "mgd": {"most": 40, "cells": 10_000},
    "ml_efficacy": {"rows": 3_000},
    "range_queries": {"queries": 500},
    "disclosure": {"rows": 20_000},
}
"""The settings of a report that is made in half a minute: scores of samples of the rows, values and tables."""


@dataclass(frozen=True)
class ScaledScore:
    """A score with its reference values.

    Attributes:
        metric: the metric.
        score: the stand-in's score.
        halves: the score of one half of the real table against the other.
        independent: the score of the real table with every column shuffled by itself.
    """

    metric: Metric
    score: Score
    halves: Score
    independent: Score


def score_on_scale(
    real: Rows,
    standin: Rows,
    schema: Schema,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    full: bool = False,
    seed: int = 0,
    progress: Progress = silent,
) -> list[ScaledScore]:
    """Compute every metric that can run three times: for the stand-in and for both references.

    The settings that are not given are `SAMPLED`, or `FULL` with `full`. Without scikit-learn, `ml_efficacy` cannot run
    and is left out.

    **Privacy.** Scores are made of real rows: for the custodian only.
    """
    given = {name: dict(values) for name, values in (settings or {}).items()}
    names = [name for name in choose_metrics(None, given) if name in given or name != "ml_efficacy" or has_sklearn()]
    for name in names:
        given[name] = (FULL if full else SAMPLED).get(name, {}) | given.get(name, {})
    rng = np.random.default_rng([seed, 2])
    one, other = real.split(rng)
    tables = {"stand-in": (real, standin), "halves": (one, other), "independent": (real, shuffle_columns(real, rng))}
    columns = []
    for place, (word, (left, right)) in enumerate(tables.items()):

        def report_step(step: Step, place: int = place, word: str = word) -> None:
            progress(replace(step, fraction=(place + (step.fraction or 0)) / 3, detail=f"{step.detail} ({word})"))

        columns.append(measure(left, right, schema, names, given, seed=seed, progress=report_step))
    return [ScaledScore(get_metric(name), *row) for name, *row in zip(names, *columns, strict=True)]


def shuffle_columns(real: Rows, rng: np.random.Generator) -> Rows:
    """Shuffle every column of the real table independently: exact one-way marginals and no association."""
    codes: dict[str, NDArray[Any]] = {}
    units = dict(real.units)
    for column in real.schema.coded:
        order = rng.permutation(real.rows)
        codes |= {part: real.codes[part][order] for part in column.parts}
        if column.name in units:
            units[column.name] = units[column.name][order]
    return replace(real, codes=codes, units=units)
