"""A noisy marginal: all that is ever learned from the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Literal

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
