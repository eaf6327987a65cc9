"""Everything that may leave the building: open, sample, answer, bounds."""

from understudy.release.artefact import Release

__all__ = ["Release"]
