"""`pfr`: histograms of groups of columns, denoised (pfr's entry, the winner of matches 1 and 2 of the 2018 challenge).

No code was published: this is our interpretation of the description (docs/decisions/contest-entries.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.measurement import Measurement
from understudy.mechanism.base import NotNegative
from understudy.mechanism.column_groups import ColumnGroups
from understudy.model.consistency import norm_sub


class PFR(ColumnGroups):
    """Measure the marginal of each group of columns, remove counts that are probably noise, draw groups independently.

    Declare columns that are functions of others as dependencies, and impossible combinations as rules of the schema.

    **Privacy.** One question to the gate; the groups follow from the schema and the settings.

    Attributes:
        groups: columns that are measured together; must be public knowledge. Others are grouped in schema order.
        group_cells: the most cells of a group that is formed in the order of the schema.
        dropped: a marginal whose mean count is below this many standard deviations of its noise is uniform.
    """

    name = "pfr"
    paper = "Bowen and Snoke 2021, Comparative Study (pfr, 2018 NIST challenge)"
    when = "To compare with, or for columns whose combinations are mostly empty."

    dropped: NotNegative = 1.0

    def weigh(self, groups: Sequence[Clique], power: int) -> dict[Clique, float]:
        """Return weights with which a group's part of the budget is proportional to its number of columns."""
        return {group: len(group) ** (1 / power) for group in groups}

    def clean(self, measurement: Measurement) -> NDArray[np.float64]:
        """Remove counts of cells that are assumed empty; all counts if the noise hides the marginal."""
        values = np.asarray(measurement.values, np.float64)
        hidden = len(values) > 1 and values.mean() < self.dropped * measurement.sigma
        return np.zeros(len(values)) if hidden else denoise(values)


def denoise(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set as many of the smallest counts to zero as cells are assumed empty, and keep the sum.

    An empty cell is negative with probability 1/2, so twice the number of negative cells are assumed empty.

    >>> denoise(np.array([50.0, 3.0, -2.0, 30.0, 2.0, -3.0])).tolist()
    [50.0, 0.0, 0.0, 30.0, 0.0, 0.0]
    """
    empty = min(len(values), 2 * int((values < 0).sum()))
    kept = np.argsort(-values, kind="stable")[: len(values) - empty]
    out = np.zeros(len(values))
    total = math.fsum(values)
    if len(kept) and total > 0:
        out[kept] = norm_sub(values[kept], total)
    return out
