"""Releases: load, sample, answer queries, bound errors. Everything in a release is public."""

from understudy.release.release import Release

__all__ = ["Release"]
