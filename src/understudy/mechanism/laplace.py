"""`laplace`: the joint marginal of all columns with noise; the baseline of the MGD paper (Li et al. 2022)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from understudy.measurement import Measurement
from understudy.mechanism.base import Count
from understudy.mechanism.column_groups import ColumnGroups, clip_negative


class Laplace(ColumnGroups):
    """Measure the joint marginal of all columns, set negative counts to zero, draw rows from it.

    If it would have more than `group_cells` cells, columns are divided, in the order of the schema, into independent
    groups. The noise is Laplace under pure DP, as in the paper; otherwise Gaussian.

    **Privacy.** One question to the gate; the groups follow from the schema and the settings.

    Attributes:
        groups: columns that are measured together; other columns are grouped in the order of the schema.
        group_cells: the most cells of a group that is formed in the order of the schema.
    """

    name = "laplace"
    paper = "Li, Wang, Dang and Li 2022, MGD (the baseline Laplace)"
    when = "To compare with, or for a table of so few cells that all of them can be measured."

    group_cells: Count = 1_000_000

    def clean(self, measurement: Measurement) -> NDArray[np.float64]:
        """Set negative counts to zero."""
        return clip_negative(measurement.values)
