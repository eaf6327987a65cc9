"""A model to start estimation from: measured tables multiplied out as conditionals, one column after another.

Estimation from one-way tables alone needs thousands of steps where there is much data and little noise. A spanning tree
has a good guess in closed form: each pair's table, divided by one of its margins, says how the next column depends on
the one before. Starting there takes 3 to 15 times fewer steps and ends at a lower loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement
from understudy.model import GraphicalModel, JunctionTree, estimate
from understudy.model.consistency import norm_sub
from understudy.progress import Progress, silent
from understudy.query import Scaling

CLOSE, COARSE = 1e-5, 5e-4
"""How closely models are fitted, relative: the small ones, whose steps cost little, and the largest."""

_SMALL_CELLS = 1 << 16
_FLOOR = 1.0  # rows: what a cell that came out empty starts with


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
    start = tree_start(domain, measurements)
    return estimate(domain, measurements, total=total, warm_start=start, tolerance=tolerance, progress=progress)


def tree_start(domain: Domain, measurements: Sequence[Measurement]) -> GraphicalModel:
    """The product of conditionals of the measured tables: exact for a tree without noise, a guess for anything else.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; one that no measurement names is uniform.
        measurements: tables, possibly re-expressed by `compress`; those with other queries are ignored.
    """
    tables = {m.clique: _table(m, domain) for m in measurements if m.query is None or isinstance(m.query, Scaling)}
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


def _table(measurement: Measurement, domain: Domain) -> NDArray[np.float64]:
    values = np.asarray(measurement.values, dtype=np.float64)
    if isinstance(measurement.query, Scaling):
        values = values / measurement.query.factors
    counts = norm_sub(values, max(float(values.sum()), 1.0))
    return np.maximum(counts, _FLOOR).reshape(domain.shape(measurement.clique))
