"""Progress reporting: long work passes `Step` values, made of public facts only, to a callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Step:
    """A report of how far a running job is.

    Attributes:
        stage: the kind of work: "read", "discover", "measure", "select", "estimate", "sample", "write", "evaluate".
        fraction: how much of the stage is done, 0 to 1, or None if unknown.
        detail: a few words; made of settings and released values only, never of the rows.
    """

    stage: str
    fraction: float | None = None
    detail: str = ""


Progress: TypeAlias = Callable[[Step], None]
"""A callback that receives every `Step`."""


def silent(step: Step) -> None:
    """Report nothing: the default callback."""
