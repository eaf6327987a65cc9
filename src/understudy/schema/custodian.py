"""Outputs for the custodian only: which they are, and how they are marked.

**Privacy.** They are made from the private rows without noise. They are never part of a release, and are marked in
their content and in their file name.
"""

from __future__ import annotations

from pathlib import Path

from understudy.files import check_file_name

MARK = "CUSTODIAN ONLY: made from the private rows, without noise. Do not share."
"""The first line of every such output."""

SUFFIX = "custodian-only"
"""The mark in the file name."""

OUTPUTS = {
    "schema draft": "a proposed schema: bounds, values and missing codes seen in the rows",
    "schema check": "counts of unknown, clipped and missing values; means and quartiles before and after binning",
    "evaluate": "scores of a synthetic table against the real one (always named *.custodian-only.*)",
    "compare": "scores of mechanisms on a table that is not declared public (always named *.custodian-only.*)",
    "report --real": "the report that compares the release with the real table (always named *.custodian-only.html)",
    "attack": "how well members and values of the real table are guessed (always named *.custodian-only.json)",
}
"""What each command reveals about the rows."""


def mark_path(path: Path) -> Path:
    """Add the mark to a file name: ``people.yaml`` becomes ``people.custodian-only.yaml``.

    >>> mark_path(Path("people.yaml")).name
    'people.custodian-only.yaml'

    Raises:
        OutputError: if the path does not name a file.
    """
    if f".{SUFFIX}" in check_file_name(path).name:
        return path
    return path.with_name(f"{path.stem}.{SUFFIX}{path.suffix}")


def unmark_path(path: Path) -> Path:
    """Remove the mark from a file name, for a schema without drafts."""
    return path.with_name(path.name.replace(f".{SUFFIX}", ""))


def find_marked(path: Path) -> Path:
    """Return the path, or its marked form if only that exists, so that a draft is found under its plain name."""
    try:
        return mark_path(path) if not path.exists() and mark_path(path).exists() else path
    except OSError:  # the name is too long for a file
        return path
