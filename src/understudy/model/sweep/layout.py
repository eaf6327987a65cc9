"""Where tables lie in the workspace: two that are never needed at the same time may share a place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_EVER = 2**62


@dataclass
class _Stay:
    """From which step to which a table needs its cells, both included; its place, or None while that is open."""

    cells: int
    first: int
    last: int
    start: int | None


@dataclass
class Layout:
    """Tables of a schedule, known by a number: from 0 up its place, given from outside; below 0 its place is open."""

    _stays: dict[int, _Stay] = field(default_factory=dict)

    def given(self, number: int, cells: int) -> None:
        """A table that is there before the first step."""
        self._stays[number] = _Stay(cells, -1, -1, number)

    def new(self, cells: int) -> int:
        """A table whose place is open; returns its number."""
        number = -len(self._stays) - 1
        self._stays[number] = _Stay(cells, _EVER, -1, None)
        return number

    def use(self, number: int, cells: int, step: int) -> None:
        """A step reads or writes a table; steps come in order."""
        stay = self._stays.setdefault(number, _Stay(cells, step, step, number))
        stay.first, stay.last = min(stay.first, step), max(stay.last, step)

    def keep(self, number: int) -> None:
        """A table is still wanted after the last step."""
        self._stays[number].last = _EVER

    def settle(self) -> tuple[dict[int, int], int]:
        """The places of all tables, and the end of the workspace: the largest first, each as low as it can be.

        **Guarantees.** Tables that are needed at a common step do not overlap, unless their places were given so.
        """
        stays = sorted(self._stays.values(), key=lambda stay: (stay.start is None, -stay.cells))
        taken = np.empty((len(stays), 4), np.int64)
        for count, stay in enumerate(stays):
            if stay.start is None:
                first, last, starts, ends = taken[:count].T
                beside = (first <= stay.last) & (last >= stay.first)
                stay.start = _lowest(starts[beside], ends[beside], stay.cells)
            taken[count] = stay.first, stay.last, stay.start, stay.start + stay.cells
        places = {number: stay.start or 0 for number, stay in self._stays.items()}
        return places, int(taken[:, 3].max(initial=0))


def _lowest(starts: NDArray[np.int64], ends: NDArray[np.int64], cells: int) -> int:
    """The lowest place for so many cells that no interval touches."""
    order = np.argsort(starts)
    reached = np.maximum.accumulate(np.concatenate([[0], ends[order]]))
    room = np.concatenate([starts[order], [_EVER]]) - reached
    return int(reached[np.argmax(room >= cells)])
