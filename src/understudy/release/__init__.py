"""Releases: load, sample, answer queries, bound errors. Everything in a release is public."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from understudy.arguments import as_path
from understudy.release.archive import explain_damage, read_archive
from understudy.release.release import Release

if TYPE_CHECKING:
    from understudy.release.linked import LinkedRelease

__all__ = ["Release", "open_release"]


def open_release(path: str | PathLike[str]) -> Release | LinkedRelease:
    """Read the release of a single table or of linked tables.

    Raises:
        ReleaseError: if it is missing, damaged, altered, or of a newer format.
    """
    manifest, arrays = read_archive(as_path("path", path))
    if "parts" not in manifest:
        with explain_damage(path):
            return Release.from_manifest(manifest, arrays)
    from understudy.release.linked import LinkedRelease

    return LinkedRelease.load(path)
