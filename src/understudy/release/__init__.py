"""Everything that may leave the building: open, sample, answer, bounds."""

from understudy.release.release import Release

__all__ = ["Release"]
