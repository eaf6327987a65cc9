"""The public report about a release of linked tables: the tree, numbers of children, what was measured, and limits."""

from __future__ import annotations

from html import escape

import numpy as np

from understudy.arguments import html_table
from understudy.release.linked import LinkedRelease

_STYLE = "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}td,th{padding:.2em .8em}"
_MOST_LINES = 200


def linked_report(release: LinkedRelease) -> str:
    """Return the report as one HTML page.

    **Privacy.** Post-processing of the release.
    """
    parts = [
        f"<h1>{escape(release.title)}</h1>",
        f"<p>{escape(release.receipt.guarantee())}</p>",
        _tree(release),
        *(_children(release, name) for name in release.schema.links),
        *(_list_measured(release, name) for name in release.parts),
        "<h2>What these rows do not show</h2>",
        "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in release.notes) + "</ul>",
        "<h2>Receipt</h2>",
        *(f"<p>{escape(line)}</p>" for line in release.receipt.text().splitlines()),
    ]
    head = f'<meta charset="utf-8"><title>{escape(release.title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _tree(release: LinkedRelease) -> str:
    schema = release.schema
    lines = []
    for name, one in schema.tables.items():
        link = schema.links.get(name)
        belongs = "" if link is None else f"{link.parent}, at most {link.max_children} rows for each of its rows"
        order = "" if link is None else ", ".join(link.order) or "none (random)"
        lines.append((name, len(one.domain), belongs, order))
    return html_table("Tables", ("table", "columns", "belongs to", "order"), lines)


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
    return html_table(f"{name} per row of {link.parent}{which}", ("number", "share"), lines)


def _range(codes: list[int]) -> str:
    return str(codes[0]) if len(codes) == 1 else f"{min(codes)} to {max(codes)}"


def _list_measured(release: LinkedRelease, name: str) -> str:
    part = release.parts[name]
    unit = part.schema.privacy_unit.max_rows
    several = [one for one in part.measurements if len(one.clique) > 1]
    lines = [(" x ".join(one.clique), len(one.values), f"{one.sigma / unit:.3g}") for one in several[:_MOST_LINES]]
    title = f"Relations measured in {name} ({len(several)})"
    return html_table(title, ("columns", "cells", "noise (units)"), lines)
