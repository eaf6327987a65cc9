"""The guide for analysts as a part of the report: `docs/guide/analysts.md`, which the wheel has beside this file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

_NAME = "analysts.md"
_LINKED, _BOTH = "## Linked tables", "## Reporting results"


@cache
def render_guide(*, linked: bool = False) -> str:
    """Return the guide as HTML whose first heading, of level 2, has the id `analysts`.

    Links to other pages of the documentation become plain text: a report is read without them.

    Args:
        linked: whether the report is about linked tables: only what holds for them is returned, else all the rest.
    """
    text = _choose_sections(_find_guide().read_text(encoding="utf-8"), linked=linked)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1:]) + 1}"
        token.children = [c for c in token.children or () if c.type not in ("link_open", "link_close")]
    next(token for token in tokens if token.type == "heading_open").attrSet("id", "analysts")
    page: str = MarkdownIt("commonmark").enable("table").renderer.render(tokens, MarkdownIt().options, {})
    wide = '<div class="wide" tabindex="0" role="region" aria-label="Table of the guide"><table>'
    page = page.replace("<table>", wide).replace("</table>", "</table></div>")
    return page.replace("<pre>", '<pre tabindex="0">')


def _choose_sections(text: str, *, linked: bool) -> str:
    """Return the sections of the guide that hold for one table, or for linked tables."""
    before, about_linked, both = re.split(f"^(?={_LINKED}$|{_BOTH}$)", text, flags=re.MULTILINE)
    if not linked:
        return before + both
    title, body = before.split("\n", 1)[0], about_linked.removeprefix(_LINKED)
    return f"{title}\n{body}{both}"


def _find_guide() -> Path:
    """Return the guide of an installed package, or that of the repository where the package is used from there."""
    installed = Path(__file__).with_name(_NAME)
    return installed if installed.exists() else Path(__file__).parents[3] / "docs" / "guide" / _NAME
