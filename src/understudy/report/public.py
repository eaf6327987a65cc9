"""Estimates in a release, their noise, and the values that are too weak to analyse. Public facts only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.metric.tables import Rows
from understudy.release import Release
from understudy.release.rows import find_members
from understudy.schema.column import Coded

CAUTION = 3.0
"""A count is called weak when it is below this multiple of its noise's standard deviation."""
_CELLS = 1 << 20
_BOUNDED_COLUMNS = 60


@dataclass(frozen=True, eq=False)
class MeasuredMarginal:
    """One measured marginal, with all its measurements combined.

    Attributes:
        clique: the columns.
        sigma: the standard deviation of the noise on each count.
        estimate: the model's expected counts, flat; None where the table is too large to write out.
        cells: how many counts it has.
    """

    clique: Clique
    sigma: float
    estimate: NDArray[np.float64] | None
    cells: int

    @property
    def weak(self) -> NDArray[np.bool_]:
        """Which counts are below `CAUTION` times their noise."""
        return np.zeros(0, np.bool_) if self.estimate is None else self.estimate < CAUTION * self.sigma

    def relative(self, total: float) -> float:
        """Return the expected share of rows that the noise alone would misplace, at most 1."""
        return min(1.0, self.cells * self.sigma * float(np.sqrt(2 / np.pi)) / (2 * max(total, 1.0)))


@dataclass(frozen=True)
class Weak:
    """Values of one column that are too weak to analyse.

    Attributes:
        column: the column's title.
        values: the values' labels, the largest estimate first.
        of: how many values the column has.
        limit: the count below which an estimate is weak.
    """

    column: str
    values: tuple[str, ...]
    of: int
    limit: float


def list_measured_marginals(release: Release) -> list[MeasuredMarginal]:
    """Return the measured tables, in the order of their first measurement; re-expressed ones are left out."""
    precision: dict[Clique, float] = defaultdict(float)
    cells: dict[Clique, int] = {}
    for measurement in release.measurements:
        if measurement.query is None and measurement.clique:
            precision[measurement.clique] += measurement.sigma**-2
            cells[measurement.clique] = len(measurement.values)
    found = []
    for clique, value in precision.items():
        small = cells[clique] <= _CELLS and all(name in release.model.domain for name in clique)
        small = small and release.model.domain.cells(clique) == cells[clique]
        estimate = np.asarray(release.model.project(clique)).reshape(-1) if small else None
        found.append(MeasuredMarginal(clique, float(value**-0.5), estimate, cells[clique]))
    return found


def count_by_model(release: Release, column: Coded) -> NDArray[np.float64]:
    """Estimate the rows of each merged code of a column by the model."""
    return np.maximum(release.model.project((column.name,)), 0.0)


def estimate_shares(release: Release, column: Coded, standin: Rows) -> NDArray[np.float64]:
    """Estimate the share of each code of a column by the model; with merged codes, by rows drawn from it."""
    if column.name in release.recoding.columns:
        return np.bincount(standin.codes[column.name], minlength=column.size) / standin.rows
    counts = count_by_model(release, column)
    return counts / max(float(counts.sum()), 1e-300)


def spread_on_axis(release: Release, column: Coded) -> NDArray[np.float64] | None:
    """Estimate the rows of each code where neighbours on an axis were merged for larger marginals; else None.

    The column's own noisy counts distinguish its codes.
    """
    if not release.recoding.intervals(column.name, release.schema.code_groups.axis(column.name)):
        return None
    members = find_members(release.recoding, release.schema, release.measurements)[column.name]
    return members.spread(count_by_model(release, column))


def bound_tables(release: Release) -> tuple[dict[Clique, float | None], int, int]:
    """Bound the share of misplaced rows (95 %) of every marginal of one or two columns; count pairs with and without.

    The bounds are the release's own, half their L1 distance; a table without one was not measured.
    """
    ways = ["all-1way"] + ["all-2way"] * (2 <= len(release.schema.domain) <= _BOUNDED_COLUMNS)
    found: dict[Clique, float | None] = {}
    for way in ways:
        for bound in release.bounds(way):
            found[bound.clique] = None if bound.share is None else min(1.0, bound.share / 2)
    pairs = [value for clique, value in found.items() if len(clique) == 2]
    return found, sum(value is not None for value in pairs), sum(value is None for value in pairs)


def find_noise(release: Release, column: Coded, tables: list[MeasuredMarginal]) -> float:
    """Return the sigma of the noise on a count of this column; 0 if its codes were merged or not measured."""
    if column.name in release.recoding.columns:
        return 0.0
    return next((table.sigma for table in tables if table.clique == (column.name,)), 0.0)


def list_weak_values(release: Release, tables: list[MeasuredMarginal]) -> list[Weak]:
    """List by column the values that were merged as too rare or whose estimate is weak."""
    measured = {table.clique[0]: table for table in tables if len(table.clique) == 1}
    found = []
    for column in release.schema.coded:
        names = [str(value) for value in release.merged.get(column.name, ())]
        table = measured.get(column.name)
        if table is not None:
            names += _list_weak_labels(release, column, table)
        if names:
            sigma = table.sigma if table is not None else 0.0
            found.append(Weak(column.title or column.name, tuple(names), column.size, CAUTION * sigma))
    return found


def _list_weak_labels(release: Release, column: Coded, table: MeasuredMarginal) -> list[str]:
    """List values with a weak estimate, the largest first; without merged values and the code of unknown values."""
    joined = spread_on_axis(release, column)
    table = table if joined is None else replace(table, estimate=joined)
    if table.estimate is None:
        return []
    groups = [[code] for code in range(column.size)]
    if column.name in release.recoding.columns and joined is None:
        groups = release.recoding.merged_codes(column.name)
    labels, unseen = column.code_labels(), column.other_code
    order = np.argsort(-table.estimate, kind="stable").tolist()
    kept = [groups[place][0] for place in order if table.weak[place] and len(groups[place]) == 1]
    kept = [code for code in kept if joined is None or code < column.ordinary]
    return [labels[code] for code in kept if code != unseen or code < column.ordinary]


def count_weak_cells(tables: list[MeasuredMarginal]) -> list[tuple[Clique, int, int, float]]:
    """Count the weak cells of every measured marginal of several columns: clique, weak cells, all cells, limit."""
    return [
        (table.clique, int(table.weak.sum()), table.cells, CAUTION * table.sigma)
        for table in tables
        if len(table.clique) > 1 and table.estimate is not None
    ]


def list_measured_pairs(release: Release) -> list[tuple[str, str]]:
    """List the pairs of columns that were measured together."""
    cliques = [measurement.clique for measurement in release.measurements]
    found = {(a, b) for clique in cliques for a in clique for b in clique if a < b}
    return sorted(found)
