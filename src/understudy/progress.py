"""How long work tells where it is: plain values passed to a callable, public facts only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Step:
    """One piece of news from a running job.

    Attributes:
        stage: what is being done: "read", "discover", "measure", "select", "estimate", "sample", "write", "evaluate".
        fraction: how much of the stage is done, 0 to 1, or None when that cannot be known.
        detail: a few words; made of settings and released values only, never of the rows.
    """

    stage: str
    fraction: float | None = None
    detail: str = ""


Progress: TypeAlias = Callable[[Step], None]


def silent(step: Step) -> None:
    """The progress callback that says nothing."""
