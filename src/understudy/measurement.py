"""Noisy marginals, all that is ever learned from the rows, and how several of them are combined."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError
from understudy.query import Query


@dataclass(frozen=True, eq=False)
class Measurement:
    """``query @ marginal + noise``: a clique, its noisy values and the noise's standard deviation.

    Attributes:
        clique: the columns, in the order of the table's axes.
        values: the noisy answers, flat; for the identity query the clique's cells in C order.
        sigma: standard deviation of the noise on each value (for the discrete Gaussian: its parameter).
        query: None for the identity, else the linear query that was answered (a re-expressed measurement).
        noise: the law of the noise.

    **Privacy.** Plain data, already noisy: everything computed from it is post-processing.
    """

    clique: Clique
    values: NDArray[np.int64] | NDArray[np.float64]
    sigma: float
    query: Query | None = None
    noise: Literal["gaussian", "laplace"] = "gaussian"

    def __post_init__(self) -> None:
        if not isinstance(self.clique, Iterable):
            raise InputError("a measurement is about a tuple of columns, as in ('sex', 'age')")
        object.__setattr__(self, "clique", tuple(self.clique))
        values = np.asarray(self.values).reshape(-1)
        object.__setattr__(self, "values", values)
        given: object = self.sigma
        object.__setattr__(self, "sigma", float(given) if isinstance(given, Real) else math.nan)
        if not (np.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"measurement of {self.clique}: sigma must be a positive, finite number")
        if not np.issubdtype(values.dtype, np.number) or not np.isfinite(values).all():
            raise InputError(f"measurement of {self.clique}: values must be finite numbers")

    def check(self, domain: Domain) -> None:
        """Refuse a measurement that does not fit the domain.

        Raises:
            InputError: naming the clique and the two lengths that disagree.
        """
        cells = domain.cells(domain.check(self.clique))
        rows, columns = (cells, cells) if self.query is None else self.query.shape
        if columns != cells:
            raise InputError(f"measurement of {self.clique}: the query has {columns} columns, the table {cells} cells")
        if len(self.values) != rows:
            raise InputError(f"measurement of {self.clique}: {len(self.values)} values for {rows} answers")


Value = TypeVar("Value", float, NDArray[np.float64])


def weighted_mean(estimates: Iterable[tuple[Value, Any]]) -> tuple[Value, Any]:
    """Mean of independent estimates of one quantity, weighted by precision (1/variance), and its precision.

    This is the unbiased combination of least variance. A single estimate is returned as it is; numbers are summed
    exactly, tables one after the other, so that they are not all held at once.

    Args:
        estimates: pairs of a number or table and its precision: one number, or one for each cell. At least one pair.

    >>> weighted_mean([(100.0, 1.0), (106.0, 0.5)])
    (102.0, 1.5)
    """
    found: Iterator[tuple[Any, Any]] = iter(estimates)
    mean, precision = next(found)
    if isinstance(mean, float):
        return _mean_of_numbers([(mean, precision), *found])
    weighted = None
    for value, weight in found:
        weighted = (mean * precision if weighted is None else weighted) + value * weight
        precision = precision + weight
    return (mean if weighted is None else weighted / precision), precision


def _mean_of_numbers(pairs: Sequence[tuple[float, float]]) -> tuple[Any, Any]:
    if len(pairs) == 1:
        return pairs[0]
    precision = math.fsum(weight for _, weight in pairs)
    return math.fsum(value * weight for value, weight in pairs) / precision, precision


def combine(measurements: Sequence[Measurement]) -> tuple[NDArray[np.float64], float]:
    """Mean of identity measurements of one clique, weighted by precision, and the sigma of its cells.

    >>> mean, sigma = combine([Measurement(("a",), np.array([5, 1]), 2.0), Measurement(("a",), np.array([9, 1]), 2.0)])
    >>> mean.tolist(), round(sigma, 4)
    ([7.0, 1.0], 1.4142)
    """
    mean, precision = weighted_mean((np.asarray(m.values, np.float64), m.sigma**-2) for m in measurements)
    return mean, float(precision**-0.5)


def noisy_total(measurements: Iterable[Measurement]) -> float:
    """Number of rows by the weighted mean of the tables' sums; at least 1. Measurements with a query are left out.

    **Privacy.** Post-processing: the true number of rows is never used.

    >>> noisy_total([Measurement(("a",), np.array([60, 41]), 1.0), Measurement(("b",), np.array([99, 0]), 1.0)])
    100.0
    """
    tables = [m for m in measurements if m.query is None]
    if not tables:
        return 1.0
    return max(1.0, weighted_mean((float(m.values.sum()), 1 / (m.sigma**2 * len(m.values))) for m in tables)[0])
