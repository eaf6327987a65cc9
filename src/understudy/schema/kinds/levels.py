"""Generalisation levels of a column: city < state < country, age in 1, 5 and 10 years."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator


class Level(BaseModel):
    """A coarser way to tell a column's values apart; each level is coarser than the one before.

    Attributes:
        name: what the level is called ("state", "5 years").
        groups: for declared values: the members of each group, as values of the column or groups of the level before.
        rest: the group of every value that no group names.
        width: for numbers and times: the width of a group.
        edges: for numbers and times: where groups begin; the last one is open.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    groups: dict[str, tuple[bool | int | float | str, ...]] | None = None
    rest: str | None = None
    width: float | str | None = None
    edges: tuple[float | str, ...] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Level:
        if sum(given is not None for given in (self.groups, self.width, self.edges)) != 1:
            raise ValueError(f"level {self.name!r} takes exactly one of `groups`, `width` and `edges`; correct it")
        if self.rest is not None and self.groups is None:
            raise ValueError(f"level {self.name!r}: `rest` goes with `groups`; remove it")
        return self


@dataclass(frozen=True, eq=False)
class Generalisation:
    """A level worked out: which group each code of the column belongs to.

    Attributes:
        name: the level's name.
        groups: by code of the column, the group; missing reasons, nulls and unknown values stay apart.
        labels: what the groups are called.
    """

    name: str
    groups: NDArray[np.int64]
    labels: tuple[str, ...]


def group_values(
    level: Level, texts: Sequence[str], before: Generalisation | None
) -> tuple[NDArray[np.int64], list[str]]:
    """Groups of declared values.

    Raises:
        ValueError: naming the level and the remedy.
    """
    if level.groups is None:
        raise ValueError(f"level {level.name!r}: declared values are put into `groups`; list the members of each")
    labels = list(level.groups) + ([level.rest] if level.rest is not None and level.rest not in level.groups else [])
    group_of: dict[str, int] = {}
    for index, members in enumerate(level.groups.values()):
        for member in members:
            if group_of.setdefault(str(member), index) != index:
                raise ValueError(f"level {level.name!r} puts {str(member)!r} into two groups; name it once")
    known = set(texts) | (set(before.labels) if before else set())
    strange = [member for member in group_of if member not in known]
    if strange:
        raise ValueError(f"level {level.name!r} names {strange[0]!r}, which is no value of the column; correct it")
    rest = None if level.rest is None else labels.index(level.rest)
    result = []
    for code, text in enumerate(texts):
        parent = before.labels[before.groups[code]] if before else ""
        group = group_of.get(text, group_of.get(parent, rest))
        if group is None:
            raise ValueError(f"level {level.name!r} leaves out {text!r}; add it to a group, or name a `rest` group")
        result.append(group)
    return np.asarray(result, dtype=np.int64), labels


def group_intervals(
    level: Level, lower: NDArray[Any], last: NDArray[Any], edges: NDArray[Any], names: Sequence[str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Groups of bins and spikes by edges (ascending, the end of the last group left out).

    Raises:
        ValueError: when an edge cuts through a bin.
    """
    groups = np.clip(np.searchsorted(edges, lower, side="right") - 1, 0, None)
    if (np.clip(np.searchsorted(edges, last, side="right") - 1, 0, None) != groups).any():
        raise ValueError(f"level {level.name!r} cuts through a bin of the column; put its edges on edges of the bins")
    return groups.astype(np.int64), list(names)


def completed(
    level: Level, groups: NDArray[np.int64], labels: Sequence[str], specials: Sequence[str]
) -> Generalisation:
    """The level over all codes: groups without a member left out, special codes each in a group of their own."""
    used, groups = np.unique(groups, return_inverse=True)
    kept = [labels[index] for index in used.tolist()]
    extra = np.arange(len(specials)) + len(kept)
    return Generalisation(level.name, np.concatenate((groups, extra)).astype(np.int64), (*kept, *specials))


def nested(finer: Generalisation | None, coarser: Generalisation) -> None:
    """Refuse a level that splits a group of the level before.

    Raises:
        ValueError: naming the level and the remedy.
    """
    if finer is None:
        return
    pairs = {(int(a), int(b)) for a, b in zip(finer.groups, coarser.groups, strict=True)}
    if len(pairs) != len(set(finer.groups.tolist())):
        raise ValueError(f"level {coarser.name!r} splits a group of level {finer.name!r}; order levels finest first")
