"""What a release says about itself: estimates, their noise, and what they are too weak for. Public facts only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.metric.labels import code_labels
from understudy.release import Release
from understudy.schema.coded import Coded

CAUTION = 3.0
"""A count is called weak when it is below this multiple of its noise's standard deviation."""
_CELLS = 1 << 20


@dataclass(frozen=True, eq=False)
class Measured:
    """One measured table, all its measurements taken together.

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
        """The expected share of rows that the noise alone would misplace, at most 1."""
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


def measured_tables(release: Release) -> list[Measured]:
    """The measured tables, in the order of their first measurement; re-expressed ones are left out.

    Error bounds for tables that were not measured belong beside these, once a release offers them.
    """
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
        found.append(Measured(clique, float(value**-0.5), estimate, cells[clique]))
    return found


def merged_labels(release: Release, column: Coded) -> list[str]:
    """What a column's codes are called after merging: values that became one are named together."""
    labels = code_labels(column)
    if column.name not in release.recoding.columns:
        return labels
    return [_together([labels[code] for code in group]) for group in release.recoding.merged(column.name)]


def _together(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} rare others"


def shares(release: Release, column: Coded) -> NDArray[np.float64]:
    """The model's share of each code of a column; merged codes spread evenly, as sampling does."""
    counts = np.asarray(release.model.project((column.name,)), dtype=np.float64).reshape(-1)
    maps = release.recoding.maps
    if column.name in maps:
        groups = maps[column.name]
        counts = (counts / np.maximum(np.bincount(groups, minlength=len(counts)), 1))[groups]
    counts = np.maximum(counts, 0.0)
    return counts / max(float(counts.sum()), 1e-300)


def noise_of(release: Release, column: Coded, tables: list[Measured]) -> float:
    """The standard deviation of a count of this column, where it was measured one by one; else 0."""
    if column.name in release.recoding.columns:
        return 0.0
    return next((table.sigma for table in tables if table.clique == (column.name,)), 0.0)


def weak_values(release: Release, tables: list[Measured]) -> list[Weak]:
    """By column, the values whose estimated count is weak; columns without any are left out."""
    columns = {column.name: column for column in release.schema.coded}
    found = []
    for table in tables:
        if len(table.clique) != 1 or table.clique[0] not in columns or not table.weak.any() or table.estimate is None:
            continue
        column = columns[table.clique[0]]
        labels = merged_labels(release, column)
        unseen = column.other_code if labels and len(labels) == column.size else None
        order = [
            p
            for p in np.argsort(-table.estimate, kind="stable")
            if table.weak[p] and (p != unseen or p < column.ordinary)
        ]
        if not order:
            continue  # only the code of unknown values is weak: nobody would analyse that
        names = tuple(labels[place] for place in order)
        found.append(Weak(column.title or column.name, names, table.cells, CAUTION * table.sigma))
    return found


def joint_cells(release: Release, tables: list[Measured]) -> list[tuple[Clique, int, int, float]]:
    """By measured table of several columns: the clique, its weak cells, all its cells, and the limit."""
    return [
        (table.clique, int(table.weak.sum()), table.cells, CAUTION * table.sigma)
        for table in tables
        if len(table.clique) > 1 and table.estimate is not None
    ]


def edges(release: Release) -> list[tuple[str, str]]:
    """Pairs of columns that were measured together, or that the model joins in one of its cliques."""
    cliques = [measurement.clique for measurement in release.measurements]
    found = {(a, b) for clique in cliques for a in clique for b in clique if a < b}
    return sorted(found)
