"""The report about a release of linked tables: the tree, numbers of children, columns, what was measured, and limits.

For the custodian, it also has the scores of the stand-in, and real values beside synthetic ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy import svg
from understudy.measurement import weighted_mean
from understudy.release.linked import LinkedRelease
from understudy.release.linked_rows import DrawnRows
from understudy.release.release import Release
from understudy.report.guide import render_guide
from understudy.report.page import describe_shares, load_template
from understudy.report.public import list_measured_marginals
from understudy.schema.linked import VirtualTable

_UNITS = 20_000  # rows of the root that charts are drawn from
_FAR = 0.05  # of the rows: a column that differs by more is called bad

SCORES = {
    "cardinality": "the numbers of rows per parent",
    "child pairs": "pairs of columns of the table",
    "parent-child": "pairs of a column and one of the parent's",
    "k-hop": "pairs of a column and one of a table further above",
    "sibling": "pairs of columns of two rows of one parent",
    "consecutive": "pairs of columns of a row and the next one of its parent",
    "lag-1": "the correlation of a column with that of the previous row of its parent",
    "query error": "numbers of parents with conditions on themselves and on one or two of their rows",
    "detection": "whether a logistic regression distinguishes real from synthetic rows with their children",
}
"""What each score of `metric/linked.py` compares."""

_MUST_HOLD = ("unique keys", "references", "caps", "order")


@dataclass(frozen=True)
class LinkedComparison:
    """Scores of linked synthetic tables, and shares in the real tables.

    **Privacy.** As private as the rows: for the custodian only.

    Attributes:
        scores: each score's name, value, and the best value it can have.
        columns: by table and coded column, the real share of each code.
        children: by child table, the real share of parents with each number of children.
        lags: by child table, the real and the synthetic correlation of columns with those of the previous sibling.
    """

    scores: Sequence[tuple[str, float, float]]
    columns: Mapping[str, Mapping[str, NDArray[np.float64]]]
    children: Mapping[str, NDArray[np.float64]]
    lags: Mapping[str, Sequence[tuple[str, float, float]]]


def linked_report(release: LinkedRelease, comparison: LinkedComparison | None = None) -> str:
    """Return the report as one HTML page.

    Args:
        release: the release.
        comparison: the comparison with the real tables; the page is then for the custodian only, and says so.

    **Privacy.** Without a comparison, post-processing of the release.
    """
    units = min(max(release.default_rows, 1), _UNITS)
    drawn, schema, receipt = release.draw(units, seed=0), release.schema, release.receipt
    columns = {name: _describe_columns(release, name, drawn[name], comparison) for name in schema.tables}
    content = {
        "title": release.title,
        "guide": render_guide(linked=True),
        "release": release,
        "schema": schema,
        "receipt": replace(receipt, facts=dict(sorted(receipt.facts.items()))),
        "settings": sorted(release.settings.items()),
        "odds": None if receipt.epsilon is None else math.exp(min(receipt.epsilon, 50.0)),
        "tree": _describe_tree(release, schema.root),
        "children": [_describe_children(release, name, drawn, comparison) for name in schema.links],
        "columns": columns,
        "measured": [_list_measured(release, virtual) for virtual in schema.virtual_tables.values()],
        "measurements": sum(len(part.measurements) for part in release.parts.values()),
        "sample_rows": units,
        "custodian": comparison is not None,
    }
    content |= {} if comparison is None else _compare(comparison, columns)
    return f"{load_template('linked.html.j2').render(content)}\n"


def _describe_tree(release: LinkedRelease, name: str) -> dict[str, Any]:
    """Return a table, how its rows belong to its parent, and the tables below it."""
    schema, link = release.schema, release.schema.links.get(name)
    order = [] if link is None else list(zip(link.order, link.descending, strict=True))
    return {
        "name": name,
        "columns": [column.name for column in schema.tables[name].coded],
        "link": link,
        "order": ", ".join(f"{column}{' (descending)' if down else ''}" for column, down in order),
        "below": [_describe_tree(release, child) for child in schema.children(name)],
    }


def _describe_children(
    release: LinkedRelease, name: str, drawn: Mapping[str, DrawnRows], comparison: LinkedComparison | None
) -> dict[str, Any]:
    """Return the shares of parents with each number of children: noisy, synthetic and, for the custodian, real.

    Noisy counts are those of the root, or of the first row of each parent: the weights of the others are not those of
    rows.
    """
    link, schema = release.schema.links[name], release.schema
    size, near = link.max_children + 1, link.parent == schema.root
    part = release.parts[schema.root if near else f"first({link.parent})"]
    parents = drawn[link.parent]
    share = np.bincount(parents.codes[f"#{name}"], minlength=size) / max(len(parents.parents), 1)
    noisy, noise = _noisy_shares(part, f"#{name}", size)
    real = None if comparison is None else comparison.children[name]
    bars = [
        svg.Bar(str(many), float(share[many]), 0.0, None if real is None else float(real[many])) for many in range(size)
    ]
    return {
        "name": name,
        "parent": link.parent,
        "near": near,
        "chart": svg.draw_distribution(f"{name} per row of {link.parent}", bars, ordered=True),
        "lines": [
            (many, None if noisy is None else noisy[many], share[many], None if real is None else real[many])
            for many in range(size)
        ],
        "noise": noise,
    }


def _noisy_shares(part: Release, column: str, size: int) -> tuple[NDArray[np.float64] | None, float]:
    """Return the measured shares of a column's codes, and the standard deviation of their noise; None if merged."""
    found = [
        (np.asarray(one.values, np.float64), one.sigma**-2)
        for one in part.measurements
        if one.clique == (column,) and one.query is None and len(one.values) == size
    ]
    if not found:
        return None, 0.0
    values, precision = weighted_mean(found)
    total = max(float(values.sum()), 1e-9)
    return values / total, float(precision) ** -0.5 / total


def _describe_columns(
    release: LinkedRelease, name: str, rows: DrawnRows, comparison: LinkedComparison | None
) -> list[dict[str, Any]]:
    found = []
    for column in release.schema.tables[name].coded:
        share = np.bincount(rows.codes[column.name], minlength=column.size) / max(len(rows.parents), 1)
        truth = None if comparison is None else comparison.columns[name][column.name]
        found.append(describe_shares(column, share, truth))
    return found


def _list_measured(release: LinkedRelease, virtual: VirtualTable) -> dict[str, Any]:
    """Return the relations that were measured in a virtual table, the most precise first; noise in units."""
    part = release.parts[virtual.name]
    unit = part.schema.privacy_unit.max_rows
    tables = [one for one in list_measured_marginals(part) if len(one.clique) > 1]
    link = release.schema.links.get(virtual.table)
    above = "" if link is None else link.parent
    words = {
        "root": f"Rows of {virtual.table}, with their numbers of children",
        "first": f"The first row of {virtual.table} of each row of {above}",
        "next": f"Further rows of {virtual.table}: given the rows above, the first and the previous one",
    }[virtual.kind]
    lines = [(" x ".join(one.clique), one.cells, one.sigma / unit) for one in tables]
    total = max(float(part.model.total) / unit, 1.0)
    return {"words": words, "total": total, "lines": sorted(lines, key=lambda line: (line[2] * line[1], line[0]))}


def _compare(comparison: LinkedComparison, columns: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return what is good and what is bad, and the scores."""
    kept, scores = [], []
    for name, value, best in comparison.scores:
        kind, _, table = name.removesuffix(")").partition("(")
        if kind in _MUST_HOLD:
            kept.append((name, value))
        else:
            scores.append((kind, table, value, best, SCORES.get(kind, "")))
    broken = [f"{name}: {svg.percent(value)}" for name, value in kept if value < 1]
    holds = "Keys, references, caps and orders hold in all rows." if not broken else f"Broken: {'; '.join(broken)}."
    ranked = sorted(
        ((column["distance"] or 0.0, f"{name}.{column['name']}") for name, some in columns.items() for column in some)
    )
    good = sum(distance <= _FAR for distance, _ in ranked)
    verdict = [holds]
    if ranked:
        verdict.append(
            f"Single columns: {good} of {len(ranked)} agree with the real tables up to {svg.percent(_FAR)} of the "
            f"rows; the worst is {ranked[-1][1]} ({svg.percent(ranked[-1][0])})."
        )
    plain = [one for one in scores if one[0] not in ("query error", "detection")]
    if plain:
        kind, table, value, _, _ = min(plain, key=lambda one: one[2])
        verdict.append(f"Relations: the lowest score is that of {kind} ({table}), {value:.3f} of 1.")
    return {"verdict": verdict, "scores": scores, "lags": comparison.lags}
