"""The artefact: what may leave the building, its file, and the partial file that a paid run leaves when interrupted."""

from understudy.release.artefact import Release
from understudy.release.partial import Partial, read_partial

__all__ = ["Partial", "Release", "read_partial"]
