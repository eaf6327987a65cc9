"""The guide for analysts as a part of the report: `docs/guide/analysts.md`, which the wheel has beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

_NAME = "analysts.md"


@cache
def render_guide() -> str:
    """Return the guide as HTML whose first heading, of level 2, has the id `analysts`.

    Links to other pages of the documentation become plain text: a report is read without them.
    """
    tokens = MarkdownIt("commonmark").enable("table").parse(_find_guide().read_text(encoding="utf-8"))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1:]) + 1}"
        token.children = [c for c in token.children or () if c.type not in ("link_open", "link_close")]
    next(token for token in tokens if token.type == "heading_open").attrSet("id", "analysts")
    text: str = MarkdownIt("commonmark").enable("table").renderer.render(tokens, MarkdownIt().options, {})
    wide = '<div class="wide" tabindex="0" role="region" aria-label="Table of the guide"><table>'
    text = text.replace("<table>", wide).replace("</table>", "</table></div>")
    return text.replace("<pre>", '<pre tabindex="0">')


def _find_guide() -> Path:
    """Return the guide of an installed package, or that of the repository where the package is used from there."""
    installed = Path(__file__).with_name(_NAME)
    return installed if installed.exists() else Path(__file__).parents[3] / "docs" / "guide" / _NAME
