"""The outputs that may show private values: which they are, and how they are marked.

**Privacy.** They are made from the private rows without noise. They are for the custodian's eyes, never
part of a release, and marked in their content and in the name of their file.
"""

from __future__ import annotations

from pathlib import Path

from understudy.page import named

MARK = "CUSTODIAN ONLY: made from the private rows, without noise. Do not share."
"""The first line of every such output."""

SUFFIX = "custodian-only"
"""The part of the file name that says so."""

OUTPUTS = {
    "schema draft": "a proposed schema: bounds, values and missing codes seen in the rows",
    "schema check": "counts of unknown, clipped and missing values; means and quartiles before and after binning",
    "evaluate": "scores of a synthetic table against the real one (always named *.custodian-only.*)",
    "report --real": "the report with the real table beside the stand-in (always named *.custodian-only.html)",
}
"""Command by command, what it shows of the rows."""


def mark_path(path: Path) -> Path:
    """The path with the mark in its name: ``people.yaml`` becomes ``people.custodian-only.yaml``.

    >>> mark_path(Path("people.yaml")).name
    'people.custodian-only.yaml'

    Raises:
        OutputError: for what names no file.
    """
    if f".{SUFFIX}" in named(path).name:
        return path
    return path.with_name(f"{path.stem}.{SUFFIX}{path.suffix}")


def unmark_path(path: Path) -> Path:
    """The path without the mark, for a schema in which nothing is a draft any more."""
    return path.with_name(path.name.replace(f".{SUFFIX}", ""))


def find_marked(path: Path) -> Path:
    """The path, or its marked form where only that exists, so that a draft is found under the name that was asked."""
    try:
        return mark_path(path) if not path.exists() and mark_path(path).exists() else path
    except OSError:  # a name longer than a file's can be
        return path
