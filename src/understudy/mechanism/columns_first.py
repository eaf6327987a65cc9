"""Base class of mechanisms that first measure every column, and merge rare codes before they measure anything else."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, noisy_total
from understudy.mechanism.base import Mechanism, NotNegative, Positive
from understudy.mechanism.compress import compress
from understudy.progress import Progress, Step, silent

_FEW_CODES = 8  # columns of fewer codes need a second measurement less: they have little to merge
_FOR_ROWS = 0.01  # the part of the budget for the number of rows, if nothing else was measured
_LONG = 10  # codes; longer columns with a previous value are merged by the noise of their first measurement
_LEAST_SHARE = 0.002  # a second measurement with a smaller part of the budget is skipped


class ColumnsFirst(Mechanism):
    """Base of mechanisms that measure every column once or twice before they select marginals.

    Attributes:
        first: the part of the budget for a first measurement of every column; 0 for none, and then no codes are merged.
        second: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
    """

    first: Annotated[float, Field(ge=0, lt=1)] = 0.05
    second: Annotated[float, Field(ge=0, lt=1)] = 0.35
    precise: Positive = 0.03
    threshold: NotNegative = 2.0

    def __post_init__(self) -> None:
        if not self.first + self.second <= 0.9:
            raise SettingError(
                f"{self.name}: first and second must not exceed 0.9 of the budget together; give one of them less"
            )

    def measure_columns(
        self,
        table: PrivateTable,
        columns: Sequence[Clique],
        *,
        rho: float,
        part: float = 1.0,
        second_if_noisy: float | None = None,
        again: Collection[str] | None = None,
        alike: Mapping[str, str] | None = None,
        progress: Progress = silent,
    ) -> tuple[list[Measurement], list[tuple[int, float]], float, PrivateTable]:
        """Measure columns, twice if they have too many codes for the number of rows; merge rare codes.

        Args:
            table: the private table.
            columns: the cliques of single columns to measure.
            rho: the budget of the whole run.
            part: the part of `first` that is used.
            second_if_noisy: replaces `second` if the noise of columns would exceed the rows even with the whole budget.
            again: the columns that may be measured a second time; by default all of them.
            alike: columns whose codes are merged by the counts of another one, as in `compress`. If that one is long,
                its codes need as many rows as if it were measured once, as most tables of several columns are.
            progress: called before the first measurement.

        Returns:
            The measurements; for both steps, the number of measurements and their part of the budget; what is left of
            the budget; and the table with rare codes merged.
        """
        if not self.first:
            return [], [], rho, table
        progress(Step("measure", 0.0, "one-way marginals"))
        first, second = self.first * part, self.second
        sizes = {r: table.domain.cells(r) ** (1 / 3) for r in columns}
        raw = table.measure(columns, rho=first * rho, weights=sizes if second else None)
        stages = [(len(raw), first)]
        noisy = raw if again is None else [one for one in raw if one.clique[0] in again]
        wanted = _needed_budgets(table, noisy, self.precise)
        needed = math.fsum(wanted.values())
        if second_if_noisy is not None and self.precise * (needed / rho) ** (1 / table.weight_power) > 1:
            second = second_if_noisy
        if second * rho < needed:
            spend, sizes = second * rho, {r: sizes[r] for r in wanted}
        else:
            spend, sizes = needed, {r: math.sqrt(need) for r, need in wanted.items()}
        if spend > _LEAST_SHARE * rho:
            raw += table.measure(sizes, rho=spend, weights=sizes)
            stages.append((len(sizes), spend / rho))
        left = rho - math.fsum(rho * share for _, share in stages)
        if self.threshold:
            long = {own for own in (alike or {}).values() if table.domain[own] > _LONG}
            noise = {one.clique[0]: one.sigma for one in raw[: len(columns)] if one.clique[0] in long}
            groups, threshold = table.code_groups, self.threshold
            table = table.recode(compress(table.domain, raw, groups, threshold=threshold, alike=alike, noise=noise))
        return raw, stages, left, table


def _needed_budgets(table: PrivateTable, ones: Sequence[Measurement], precise: float) -> dict[Clique, float]:
    """Return for each column the budget at which its noise is this share of the noisy number of rows."""
    rows = noisy_total(ones) if ones else 0.0
    wanted = {}
    for one in ones:
        enough = precise * max(1.0, _FEW_CODES / len(one.values)) * rows
        target = enough / (math.sqrt(2 / math.pi) * len(one.values))
        if target < one.sigma and len(one.values) > 1:
            wanted[one.clique] = table.rho_for(target)
    return wanted


def measure_rows(table: PrivateTable, measured: Sequence[Measurement], rho: float) -> tuple[list[Measurement], float]:
    """Measure the smallest column if nothing gives the number of rows: it is not public, and nothing was measured.

    Returns:
        The measurements, and what is left of `rho`.
    """
    if measured or table.rows_public is not None:
        return list(measured), rho
    smallest = min(table.domain, key=table.domain.__getitem__)
    return table.measure([(smallest,)], rho=_FOR_ROWS * rho), (1 - _FOR_ROWS) * rho
