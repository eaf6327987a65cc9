"""The best estimate of every column by itself, in closed form: where nothing but single columns was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.tree.noisy_tables import implied_rows, measured_tables

Array = NDArray[np.float64]


def fitted_one_ways(
    domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None
) -> tuple[dict[str, Array], float]:
    """Non-negative counts of each column with one common sum, nearest to what was measured; and that sum.

    Nearest is least squares by precision. A column without a measurement is uniform. What `estimate` finds in
    hundreds of steps for the same measurements is here exact: columns have nothing in common but the number of rows.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns.
        measurements: tables of single columns, possibly re-expressed by `compress`; others are ignored.
        total: the number of rows where it is public; else the mean of the columns' sums, by precision.

    >>> ages = Measurement(("age",), np.array([50, 2, 40, -4]), 2.0)
    >>> counts, rows = fitted_one_ways(Domain({"age": 4, "sex": 2}), [ages])
    >>> counts["age"].round(3).tolist(), counts["sex"].tolist(), rows
    ([48.667, 0.667, 38.667, 0.0], [44.0, 44.0], 88.0)
    """
    tables = measured_tables(domain, [m for m in measurements if len(m.clique) == 1])
    rows = float(total) if total is not None else implied_rows(tables)
    fitted = {column: np.full(size, rows / size) for column, size in domain.items()}
    for (column,), table in tables.items():
        fitted[column] = nearest(table.values, np.broadcast_to(table.precision, table.values.shape), rows)
    return fitted, rows


def nearest(values: Array, precision: Array, total: float) -> Array:
    """The non-negative vector of this sum that is nearest by weighted squares: max(0, value - shift / precision).

    >>> nearest(np.array([5.0, 3.0, -2.0]), np.array([1.0, 2.0, 1.0]), 5.0).tolist()
    [3.0, 2.0, 0.0]
    """
    order = np.argsort(-values * precision, kind="stable")
    ordered, spread = values[order], 1.0 / precision[order]
    shifts = (np.cumsum(ordered) - total) / np.cumsum(spread)
    kept = np.flatnonzero(ordered > shifts * spread)
    shift = shifts[kept[-1]] if len(kept) else shifts[0]
    result: Array = np.maximum(values - shift / precision, 0.0)
    return result
