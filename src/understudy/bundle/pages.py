"""The bundle's templates, filled in."""

from __future__ import annotations

from importlib import resources
from typing import Any

from understudy.errors import InputError


def rendered(template: str, *, html: bool, **facts: Any) -> str:
    """A template of ours with these facts in it; in HTML the report's style is `style`.

    Raises:
        InputError: when jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise InputError("a bundle needs jinja2: pip install 'understudy[eval]'") from None
    folder, style = resources.files("understudy.bundle"), resources.files("understudy.report")
    environment = jinja2.Environment(autoescape=html, trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - Markdown
    environment.filters["rows"] = lambda value: f"{round(value):,}"
    # viewers of Markdown show HTML: titles and names are somebody's text, and stay text
    environment.filters["plain"] = lambda value: " ".join(str(value).replace("&", "&amp;").replace("<", "&lt;").split())
    text = (folder / "templates" / template).read_text("utf-8")
    if html:
        facts["style"] = (style / "templates" / "style.css").read_text("utf-8")
    page: str = environment.from_string(text).render(**facts)
    return page.rstrip() + "\n"
