"""The coding of a column written out as data: values, intervals and divisors, so that any engine can compile it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Scalar: TypeAlias = str | int | float | bool | None
What: TypeAlias = Literal["value", "interval", "multiple", "missing", "null", "unknown"]


@dataclass(frozen=True)
class Entry:
    """One code of one part of a column.

    A cell is coded by the first entry of the part that fits, tried in this order: ``missing`` (the cell is this token,
    or, on a numeric axis, the number or time that the token writes), ``null`` (the cell is empty, or holds a token of a
    plain null), ``value`` (equal), ``interval`` (``lower <= x < upper`` after clipping into the range that the entries
    cover; one with ``closed`` also contains ``upper``), ``unknown`` (everything else). A part of ``multiple`` entries
    divides the cell's rest by each ``value`` in turn: the first that divides it wins, and ``value`` None stands for
    "none of them".

    Attributes:
        part: the name of the coded column, as in the domain.
        code: the code.
        what: how the entry is tested.
        value: the value, the missing token, or the divisor. Dates, datetimes and durations are whole numbers (days,
            microseconds, microseconds).
        lower: an interval's lower end.
        upper: an interval's upper end.
        closed: whether the interval contains its upper end.
        label: what people call it.
    """

    part: str
    code: int
    what: What
    value: Scalar = None
    lower: float | int | None = None
    upper: float | int | None = None
    closed: bool = False
    label: str | None = None


def compact(size: int) -> type[np.uint8] | type[np.uint16] | type[np.uint32]:
    """The smallest unsigned type that holds codes ``0 .. size-1``."""
    return np.uint8 if size <= 1 << 8 else np.uint16 if size <= 1 << 16 else np.uint32


DROP = -1
"""The code of a cell whose column says ``on_unknown: drop_row``: its row is not kept."""

Codes: TypeAlias = NDArray[np.int32]
"""Codes during encoding; `DROP` marks rows that are not kept."""
