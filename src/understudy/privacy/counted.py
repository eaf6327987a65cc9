"""Exact counts that the gate keeps, so that a table asked about in every round is counted once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique

ROOM = 1 << 26
"""The most cells kept: 256 MiB at four bytes a cell."""


class Counted:
    """Exact tables of one view of the rows; held by the gate alone.

    **Privacy.** Exact, hence private: nothing shows them. What is kept is decided by the tables' numbers of cells and
    the order in which they are asked for, both public; answers are the same whether a table is kept or not.

    Args:
        room: the most cells kept.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._tables: dict[Clique, NDArray[np.integer[Any]]] = {}

    def __repr__(self) -> str:
        return "Counted()"

    def get(self, clique: Clique) -> NDArray[np.integer[Any]] | None:
        """The table of a clique with its columns in this order, read-only; None when it is not kept."""
        return self._tables.get(clique)

    def put(self, clique: Clique, counts: NDArray[np.integer[Any]]) -> None:
        """Keep a copy while there is room; the first come stay."""
        if clique in self._tables or len(counts) > self._room:
            return
        self._room -= len(counts)
        narrow = len(counts) == 0 or int(counts.max()) <= np.iinfo(np.int32).max
        kept: NDArray[np.integer[Any]] = counts.astype(np.int32) if narrow else counts.astype(np.int64)
        kept.flags.writeable = False
        self._tables[clique] = kept
