"""The best estimate of every column by itself, in closed form: where nothing but single columns was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.query import Scaling

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
    means = _means(domain, measurements)
    rows = float(total) if total is not None else _rows(means)
    uniform = {column: np.full(size, rows / size) for column, size in domain.items() if column not in means}
    fitted = {column: nearest(values, precision, rows) for column, (values, precision) in means.items()}
    return {column: uniform[column] if column in uniform else fitted[column] for column in domain}, rows


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


def _means(domain: Domain, measurements: Sequence[Measurement]) -> dict[str, tuple[Array, Array]]:
    """By column the mean of its measurements, and the precision of each cell."""
    sums: dict[str, tuple[Array, Array]] = {}
    for measurement in measurements:
        scaled = isinstance(measurement.query, Scaling)
        if len(measurement.clique) == 1 and (scaled or measurement.query is None):
            measurement.check(domain)
            values = np.asarray(measurement.values, np.float64)
            factors = measurement.query.factors if isinstance(measurement.query, Scaling) else np.ones(len(values))
            precision = (factors / measurement.sigma) ** 2
            before, known = sums.get(measurement.clique[0], (np.zeros(len(values)), np.zeros(len(values))))
            sums[measurement.clique[0]] = before + precision * values / factors, known + precision
    return {column: (total / precision, precision) for column, (total, precision) in sums.items()}


def _rows(means: dict[str, tuple[Array, Array]]) -> float:
    """The number of rows by every column, weighted by how precisely it tells."""
    precision = {column: 1.0 / float((1.0 / cells).sum()) for column, (_, cells) in means.items()}
    weighted = sum(precision[column] * float(values.sum()) for column, (values, _) in means.items())
    return max(1.0, weighted / sum(precision.values())) if means else 1.0
