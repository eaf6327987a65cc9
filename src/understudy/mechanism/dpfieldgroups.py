"""`dpfieldgroups`: joint histograms of groups of columns (Gardn999's entry in the 2018 NIST challenge).

docs/decisions/contest-entries.md lists unclear points of the source and our choices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.column_groups import ColumnGroups
from understudy.model.fit import Fit
from understudy.progress import Progress, Step, silent

_SURE = 2.0  # standard deviations of noise that a score must pass before columns are grouped


class DPFieldGroups(ColumnGroups):
    """Measure the marginal of each group of columns, remove counts below a threshold, draw groups independently.

    **Privacy.** Two questions to the gate: dependence scores, if groups are to be formed, and the marginals.

    Attributes:
        groups: columns that are measured together; must be public knowledge. Others are grouped by dependence.
        group_cells: the most cells of a group that is formed by dependence.
        choose: the part of the budget for the scores by which groups are formed; with 0, other columns stay single.
    """

    name = "dpfieldgroups"
    paper = "Bowen and Snoke 2021, Comparative Study (DPFieldGroups, Gardn999, 2018 NIST challenge)"
    when = "To compare with, or where it is known which columns belong together."

    choose: Annotated[float, Field(ge=0, lt=1)] = 0.1

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: no groups other than the given ones."""
        return {"choose": 0.0}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Form groups, measure their marginals, and finish."""
        groups, left = self.divide(table.domain), rho
        rest = [group for group in groups if group not in self.groups and table.domain.cells(group) > 1]
        pairs = [(*a, *b) for a, b in combinations(rest, 2) if table.domain.cells((*a, *b)) <= self.group_cells]
        if self.choose and pairs:
            progress(Step("select", None, "dependence of pairs"))
            sure = _SURE * table.dependence_noise(len(pairs), self.choose * rho)
            scores = table.dependence(pairs, rho=self.choose * rho)
            groups = merge_groups(table.domain, groups, scores, least=sure, cells=self.group_cells)
            left = rho - self.choose * rho
        progress(Step("measure", 0.5, f"{len(groups)} groups of columns"))
        return self.conclude(table, table.measure(groups, rho=left), progress=progress)

    def divide(self, domain: Domain) -> list[Clique]:
        """Return the groups of the settings, then single columns."""
        given = super().divide(domain)[: len(self.groups)]
        named = {column for group in given for column in group}
        return [*given, *((column,) for column in domain if column not in named)]

    def clean(self, measurement: Measurement) -> NDArray[np.float64]:
        """Set counts below the threshold to zero."""
        values = np.asarray(measurement.values, np.float64)
        return np.where(values >= threshold_of(measurement), values, 0.0).clip(min=0.0)


def threshold_of(measurement: Measurement) -> float:
    """Return the threshold 1.9 b log10(B) of a marginal of B cells with Laplace noise of scale b.

    An empty cell exceeds it with probability 0.5 B^(-1.9 / log 10); for Gaussian noise, the threshold has the same
    probability.

    >>> round(threshold_of(Measurement(("a",), np.zeros(1000), 39 * math.sqrt(2), noise="laplace")), 1)
    222.3
    """
    cells = len(measurement.values)
    if measurement.noise == "laplace":
        return 1.9 * measurement.sigma / math.sqrt(2) * math.log10(cells)
    return measurement.sigma * NormalDist().inv_cdf(1 - 0.5 * cells ** (-1.9 / math.log(10)))


def merge_groups(
    domain: Domain, groups: Sequence[Clique], scores: Mapping[Clique, float], *, least: float, cells: int
) -> list[Clique]:
    """Merge groups of columns, the most dependent pairs first, while they have at most this many cells.

    >>> domain = Domain(dict.fromkeys("abc", 3))
    >>> merge_groups(domain, [("a",), ("b",), ("c",)], {("a", "b"): 5.0, ("a", "c"): 9.0}, least=1.0, cells=9)
    [('a', 'c'), ('b',)]
    """
    home = {column: group for group in groups for column in group}
    for pair in sorted(scores, key=scores.__getitem__, reverse=True):
        one, other = home[pair[0]], home[pair[1]]
        if scores[pair] > least and one != other and domain.cells((*one, *other)) <= cells:
            home |= dict.fromkeys((*one, *other), (*one, *other))
    return list(dict.fromkeys(home.values()))
