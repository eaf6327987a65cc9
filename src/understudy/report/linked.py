"""The report about a release of linked tables: the tree, numbers of children, what was measured, and limits.

For the custodian, it also has the scores of the stand-in, and real values beside synthetic ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from understudy.arguments import html_table
from understudy.release.linked import LinkedRelease

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;overflow-wrap:break-word}"
    "table{border-collapse:collapse;margin:1.5em 0}caption{text-align:left;font-weight:600}"
    "td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top;border-bottom:1px solid #d5dae0}"
    ".mark{background:#8c1d18;color:#fff;padding:.5em 1em;position:sticky;top:0}.wide{overflow-x:auto}"
)
_MARK = (
    '<p class="mark" role="note"><strong>For the custodian only.</strong> Made from the real rows, without noise. Do '
    "not publish its scores, or choose among releases by them: the guarantee does not cover it.</p>"
)
_MOST_LINES = 200


@dataclass(frozen=True)
class LinkedComparison:
    """Scores of linked synthetic tables, and values of the real tables beside synthetic ones.

    **Privacy.** As private as the rows: for the custodian only.

    Attributes:
        scores: each score's name, value, and the best value it can have.
        tables: tables of values, each a title, the heads of its columns, and its lines.
    """

    scores: Sequence[tuple[str, float, float]]
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]]


def linked_report(release: LinkedRelease, comparison: LinkedComparison | None = None) -> str:
    """Return the report as one HTML page.

    Args:
        release: the release.
        comparison: the comparison with the real tables; the page is then for the custodian only, and says so.

    **Privacy.** Without a comparison, post-processing of the release.
    """
    parts = [
        *([] if comparison is None else [_MARK]),
        f"<h1>{escape(release.title)}</h1>",
        f"<p>{escape(release.receipt.guarantee())}</p>",
        *([] if comparison is None else _compare(comparison)),
        _tree(release),
        *(_children(release, name) for name in release.schema.links),
        *(_list_measured(release, name) for name in release.parts),
        "<h2>What these rows do not show</h2>",
        "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in release.notes) + "</ul>",
        "<h2>Receipt</h2>",
        *(f"<p>{escape(line)}</p>" for line in release.receipt.text().splitlines()),
    ]
    title = f"{release.title}{'' if comparison is None else ' (for the custodian only)'}"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _compare(comparison: LinkedComparison) -> list[str]:
    scores = [(name, f"{value:.3f}", f"{best:g}") for name, value, best in comparison.scores]
    found = ["<h2>Compared with the real tables</h2>", _wide("Scores", ("score", "value", "best"), scores)]
    return found + [_wide(*table) for table in comparison.tables] + ["<h2>The release</h2>"]


def _wide(title: str, head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Return a table that scrolls by itself where the page is narrow."""
    return f'<div class="wide">{html_table(title, head, lines)}</div>'


def _tree(release: LinkedRelease) -> str:
    schema = release.schema
    lines = []
    for name, one in schema.tables.items():
        link = schema.links.get(name)
        belongs = "" if link is None else f"{link.parent}, at most {link.max_children} rows for each of its rows"
        order = "" if link is None else ", ".join(link.order) or "none (random)"
        lines.append((name, len(one.domain), belongs, order))
    return _wide("Tables", ("table", "columns", "belongs to", "order"), lines)


def _children(release: LinkedRelease, name: str) -> str:
    """The number of children per parent: what the model expects, from noisy counts."""
    link = release.schema.links[name]
    above = release.schema.virtual_tables[release.schema.root]
    part = release.parts[release.schema.root]
    if link.parent != release.schema.root:
        part = release.parts[f"first({link.parent})"]
    column = f"#{name}"
    merged = np.asarray(part.model.project((column,)), np.float64)
    groups = (
        part.recoding.merged_codes(column) if column in part.recoding.columns else [[i] for i in range(len(merged))]
    )
    total = max(float(merged.sum()), 1e-9)
    lines = [(_range(codes), f"{100 * count / total:.1f} %") for codes, count in zip(groups, merged, strict=True)]
    which = "" if link.parent == above.table else f" (first {link.parent} of each parent)"
    return _wide(f"{name} per row of {link.parent}{which}", ("number", "share"), lines)


def _range(codes: list[int]) -> str:
    return str(codes[0]) if len(codes) == 1 else f"{min(codes)} to {max(codes)}"


def _list_measured(release: LinkedRelease, name: str) -> str:
    part = release.parts[name]
    unit = part.schema.privacy_unit.max_rows
    several = [one for one in part.measurements if len(one.clique) > 1]
    lines = [(" x ".join(one.clique), len(one.values), f"{one.sigma / unit:.3g}") for one in several[:_MOST_LINES]]
    title = f"Relations measured in {name} ({len(several)})"
    return _wide(title, ("columns", "cells", "noise (units)"), lines)
