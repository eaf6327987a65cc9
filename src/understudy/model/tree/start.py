"""A model to start estimation from: fitted tables multiplied out as conditionals, one column after another.

Estimation from one-way tables alone needs thousands of steps where there is much data and little noise. The tables of
a spanning tree can be fitted first, all at once: each one, divided by one of its margins, then says how the next column
depends on the one before, and their product is the model. Estimation started there is done in some fifty steps,
however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement
from understudy.model.estimate import estimate
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.model.tree.nearest_tables import nearest_tables
from understudy.model.tree.noisy_tables import implied_rows, measured_tables
from understudy.progress import Progress, silent

CLOSE, COARSE = 1e-5, 5e-4
"""How closely models are fitted, relative: the small ones, whose steps cost little, and the largest."""

_SMALL_CELLS = 1 << 16


def tree_fit(
    domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None, progress: Progress = silent
) -> GraphicalModel:
    """The graphical model of a few more tables than a tree, fitted as closely as its size makes affordable.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns.
        measurements: tables, possibly re-expressed by `compress`.
        total: the number of rows where it is public.
        progress: told about each step.
    """
    cells = JunctionTree.of(domain, [m.clique for m in measurements]).cells
    tolerance = min(COARSE, CLOSE * max(1.0, cells / _SMALL_CELLS) ** 2)
    start = tree_start(domain, measurements, total=total)
    return estimate(domain, measurements, total=total, warm_start=start, tolerance=tolerance, progress=progress)


def tree_start(domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None) -> GraphicalModel:
    """The best model of tables that form a tree, in closed form but for a few steps; a guess for anything else.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; one that no measurement names is uniform.
        measurements: tables, possibly re-expressed by `compress`; those with other queries are ignored.
        total: the number of rows where it is public.
    """
    measured = measured_tables(domain, measurements)
    tables = nearest_tables(domain, measured, implied_rows(measured) if total is None else total)
    potentials: dict[Clique, NDArray[np.float64]] = {}
    seen: set[str] = set()
    while clique := _next(tables, seen):
        table = tables.pop(clique)
        fresh = tuple(axis for axis, column in enumerate(clique) if column not in seen)
        potentials[clique] = np.log(table / table.sum(axis=fresh, keepdims=True))
        seen.update(clique)
    return GraphicalModel(domain, potentials or {(): np.zeros(())}, total=1.0)


def _next(tables: dict[Clique, NDArray[np.float64]], seen: set[str]) -> Clique | None:
    """The table that says most about new columns: most columns known already, then fewest new ones."""
    useful = [clique for clique in tables if not seen.issuperset(clique)]
    known = {clique: len(seen.intersection(clique)) for clique in useful}
    return max(useful, key=lambda clique: (known[clique], known[clique] - len(clique)), default=None)
