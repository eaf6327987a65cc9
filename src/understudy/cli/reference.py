"""`reference`: one page of all commands and options, written from the help itself so that they cannot differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer


def reference(ctx: typer.Context) -> None:
    """Print the reference page of the command line."""
    root: Any = ctx.find_root()
    sys.stdout.write("\n".join(_page(root.command, root)).rstrip() + "\n")


def _page(command: Any, ctx: Any) -> Iterator[str]:
    yield "# The command line"
    yield ""
    yield "Written by `make docs` from the commands' own help."
    yield from _section(command, ctx, "understudy")


def _section(command: Any, parent: Any, name: str) -> Iterator[str]:
    ctx = type(parent)(command, info_name=name, terminal_width=100, max_content_width=100)
    yield from ("", f"## `{name}`", "", "```", command.get_help(ctx).strip(), "```")
    for child in getattr(command, "commands", {}).values():
        if not child.hidden:
            yield from _section(child, ctx, f"{name} {child.name}")
