"""What a prediction says."""

from __future__ import annotations

from dataclasses import dataclass

VISIBLE = 3.0
"""A group stands out from noise from so many standard deviations on."""


@dataclass(frozen=True)
class Expected:
    """What to expect of a mechanism.

    Attributes:
        one_way: the mean absolute error of a cell of one column, in rows.
        two_way: the same for a pair of columns that some measured table covers; None where there is none.
        group: the smallest group in one column that stands out from noise: three standard deviations of what all
            tables together tell of it.
        pair_group: the same for a group told by two columns, by the tables that cover them.
        pair_share: the summed error of a pair's table as a share of the rows; above 1 it says nothing.
        pairs: about how many pairs of columns measured tables cover.
    """

    one_way: float
    two_way: float | None
    group: float
    pair_group: float | None
    pair_share: float | None
    pairs: int = 0
