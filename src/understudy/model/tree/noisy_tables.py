"""What was measured, as one table for each clique: values and precisions, whatever was merged or measured twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement
from understudy.query import Scaling

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A noisy table, its columns in the order of the domain.

    Attributes:
        values: the cells.
        precision: 1/variance of each; of one cell where it is the same everywhere.
    """

    values: Array
    precision: Array

    @property
    def rows(self) -> tuple[float, float]:
        """The number of rows by this table, and the variance of that."""
        variance = np.broadcast_to(1.0 / self.precision, self.values.shape)
        return float(self.values.sum()), float(variance.sum())


def measured_tables(domain: Domain, measurements: Sequence[Measurement]) -> dict[Clique, Table]:
    """By clique, in the order of the domain, the mean of its measurements by precision.

    Re-expressed tables are understood; measurements with other queries are left out.
    """
    found: dict[Clique, Table] = {}
    for measurement in measurements:
        if measurement.query is None or isinstance(measurement.query, Scaling):
            clique, table = _table(domain, measurement)
            found[clique] = _mean(found[clique], table) if clique in found else table
    return found


def implied_rows(tables: Mapping[Clique, Table]) -> float:
    """The number of rows by every table, weighted by how precisely it tells; at least 1."""
    told = [table.rows for table in tables.values()]
    precision = sum(1.0 / variance for _, variance in told)
    return max(1.0, sum(rows / variance for rows, variance in told) / precision) if told else 1.0


def _table(domain: Domain, measurement: Measurement) -> tuple[Clique, Table]:
    measurement.check(domain)
    values, precision = np.asarray(measurement.values, np.float64), np.full(1, measurement.sigma**-2)
    if isinstance(measurement.query, Scaling):
        values, precision = values / measurement.query.factors, precision * measurement.query.factors**2
    clique = tuple(column for column in domain if column in measurement.clique)
    shape, order = domain.shape(measurement.clique), [measurement.clique.index(column) for column in clique]
    values = values.reshape(shape).transpose(order)
    precision = precision.reshape(shape if len(precision) > 1 else [1] * len(shape)).transpose(order)
    return clique, Table(values, precision)


def _mean(one: Table, other: Table) -> Table:
    precision = one.precision + other.precision
    return Table((one.precision * one.values + other.precision * other.values) / precision, precision)
