"""Measurements: noisy marginals, which are all that is ever learned from the rows, and their algebra.

`Measurement` is the value. `weighted_mean`, `combine` and `noisy_total` are the only places where measurements are
averaged. `Query` and its implementations describe measurements that do not answer a table's cells themselves;
`Critic` is the network of a question about gradients.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError, SettingError


@dataclass(frozen=True, eq=False)
class Measurement:
    """A noisy marginal, ``query @ marginal + noise``: a clique, its values and the standard deviation of the noise.

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
            raise InputError("a measurement needs a tuple of columns, such as ('sex', 'age')")
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
        """Check that the measurement fits the domain.

        Raises:
            InputError: naming the clique and the two lengths that disagree.
        """
        cells = domain.cells(domain.check(self.clique))
        rows, columns = (cells, cells) if self.query is None else self.query.shape
        if columns != cells:
            raise InputError(f"measurement of {self.clique}: its query has {columns} columns for {cells} cells")
        if len(self.values) != rows:
            raise InputError(f"measurement of {self.clique}: {len(self.values)} values for {rows} answers")


# Combining measurements

Value = TypeVar("Value", float, NDArray[np.float64])


def weighted_mean(estimates: Iterable[tuple[Value, Any]]) -> tuple[Value, Any]:
    """Average independent estimates of one quantity, weighted by precision (1/variance).

    This is the unbiased combination of least variance. A single estimate is returned unchanged. Numbers are summed
    exactly, tables one after the other, so that they are not all in memory at once.

    Args:
        estimates: pairs of a number or table and its precision: one number, or one for each cell. At least one pair.

    Returns:
        The mean and its precision.

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
    """Average identity measurements of one clique, weighted by precision; returns the mean and the sigma of its cells.

    >>> mean, sigma = combine([Measurement(("a",), np.array([5, 1]), 2.0), Measurement(("a",), np.array([9, 1]), 2.0)])
    >>> mean.tolist(), round(sigma, 4)
    ([7.0, 1.0], 1.4142)
    """
    mean, precision = weighted_mean((np.asarray(m.values, np.float64), m.sigma**-2) for m in measurements)
    return mean, float(precision**-0.5)


def noisy_total(measurements: Iterable[Measurement]) -> float:
    """Estimate the number of rows by the weighted mean of the tables' sums, at least 1; queries are left out.

    **Privacy.** Post-processing: the true number of rows is never used.

    >>> noisy_total([Measurement(("a",), np.array([60, 41]), 1.0), Measurement(("b",), np.array([99, 0]), 1.0)])
    100.0
    """
    tables = [m for m in measurements if m.query is None]
    if not tables:
        return 1.0
    return max(1.0, weighted_mean((float(m.values.sum()), 1 / (m.sigma**2 * len(m.values))) for m in tables)[0])


# Linear queries on a table's cells

_ENTRIES_AT_A_TIME = 1 << 22


class Query(Protocol):
    """A linear query on a clique's flattened cells: `query @ cells` answers it and `query.T @ values` is its adjoint.

    numpy arrays are queries, and so are scipy's sparse arrays and linear operators.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of answers and number of cells."""
        ...

    @property
    def T(self) -> Any:
        """The adjoint."""
        ...

    def __matmul__(self, cells: Any, /) -> Any:
        """Return the answers for these cells."""
        ...


@dataclass(frozen=True, eq=False)
class Scaling:
    """The query that multiplies each cell by its own factor, as for a table whose codes were merged."""

    factors: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of answers and number of cells, which are equal."""
        return len(self.factors), len(self.factors)

    @property
    def T(self) -> Scaling:
        """A scaling is its own adjoint."""
        return self

    def __matmul__(self, cells: Any, /) -> Any:
        """Return the answers for a vector of cells."""
        return self.factors * cells


_MOST_ENTRY = 1 << 20
_MOST_FACTORS = 32  # axes of an array


def _largest_column(matrix: NDArray[np.int64], power: int) -> int:
    """Return the largest column sum of absolute entries to a power, exact also where 64 bits would overflow."""
    step = ((1 << 63) - 1) // int(np.abs(matrix).max()) ** power  # this many rows have a sum of 64 bits
    parts = [(np.abs(matrix[i : i + step]) ** power).sum(axis=0) for i in range(0, len(matrix), step)]
    return max(map(sum, zip(*(part.tolist() for part in parts), strict=True)))


@dataclass(frozen=True, eq=False)
class KroneckerQuery:
    """The Kronecker product of whole-number matrices, in the order of a clique's columns; its sensitivity is exact.

    Rational matrices become whole numbers by their common denominator: a factor changes answers and noise alike.

    Attributes:
        factors: the matrices; the product of their numbers of columns is the clique's number of cells.

    Raises:
        InputError: for a matrix without rows or of other things than whole numbers, or products of entries above 2^20.

    >>> query = KroneckerQuery((np.array([[1, 0], [0, 1], [1, 1]]), np.array([[1, -1]])))
    >>> (query @ np.array([5, 2, 1, 1])).tolist(), query.shape, query.column_squared, query.column_sum
    ([3, 0, 3], (3, 4), 2, 2)
    """

    factors: tuple[NDArray[np.int64], ...]

    def __post_init__(self) -> None:
        given = [np.asarray(factor) for factor in self.factors]
        if not given or any(f.ndim != 2 or not f.size or f.dtype.kind not in "iu" for f in given):
            raise InputError("a query is a product of matrices of whole numbers, each with at least one row and column")
        if len(given) > _MOST_FACTORS:
            raise InputError(f"a query is a product of at most {_MOST_FACTORS} matrices; use cliques of fewer columns")
        largest = math.prod(max(abs(int(f.min())), abs(int(f.max()))) for f in given)
        if not 0 < largest <= _MOST_ENTRY:
            raise InputError(
                f"a query needs an entry other than 0, and none above {_MOST_ENTRY}; scale the matrix down"
            )
        factors = tuple(factor.astype(np.int64) for factor in given)
        for factor in factors:
            factor.flags.writeable = False
        object.__setattr__(self, "factors", factors)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of answers and number of cells."""
        return math.prod(f.shape[0] for f in self.factors), math.prod(f.shape[1] for f in self.factors)

    @property
    def T(self) -> KroneckerQuery:
        """The adjoint."""
        return KroneckerQuery(tuple(factor.T for factor in self.factors))

    @property
    def column_squared(self) -> int:
        """The largest sum of squares of a column."""
        return math.prod(_largest_column(factor, 2) for factor in self.factors)

    @property
    def column_sum(self) -> int:
        """The largest absolute sum of a column."""
        return math.prod(_largest_column(factor, 1) for factor in self.factors)

    @property
    def negative(self) -> bool:
        """Whether a factor has negative entries."""
        return any(bool((factor < 0).any()) for factor in self.factors)

    @property
    def digest(self) -> str:
        """The SHA-256 of the matrices."""
        shapes = repr([factor.shape for factor in self.factors]).encode()
        return hashlib.sha256(shapes + b"".join(f.astype("<i8").tobytes() for f in self.factors)).hexdigest()

    def __matmul__(self, cells: Any, /) -> Any:
        """Return the answers for a vector of cells; whole numbers stay exact."""
        table = np.asarray(cells)
        exact = table.dtype.kind in "iu"
        table = table.astype(np.int64 if exact else np.float64).reshape([f.shape[1] for f in self.factors])
        for axis, factor in enumerate(self.factors if exact else self._floats):
            table = np.moveaxis(np.tensordot(factor, table, axes=(1, axis)), 0, axis)
        return table.reshape(-1)

    @cached_property
    def _floats(self) -> tuple[NDArray[np.float64], ...]:
        return tuple(factor.astype(np.float64) for factor in self.factors)


class Cell(NamedTuple):
    """One cell of a clique's marginal.

    Attributes:
        clique: the columns.
        number: its place, from 0, in the order of the clique's flattened cells.
    """

    clique: Clique
    number: int

    def query(self, domain: Domain) -> KroneckerQuery:
        """Return the query that counts the rows in this cell; its factors have a single 1.

        >>> [factor.tolist() for factor in Cell(("a", "b"), 4).query(Domain({"a": 2, "b": 3})).factors]
        [[[0, 1]], [[0, 1, 0]]]
        """
        shape = domain.shape(self.clique)
        codes = np.unravel_index(self.number, shape)
        return KroneckerQuery(
            tuple((np.arange(size) == code).astype(np.int64)[None, :] for size, code in zip(shape, codes, strict=True))
        )


@dataclass(frozen=True, eq=False)
class SparseQuery:
    """A query as a sparse matrix, given by its entries, so that any query can be saved.

    >>> query = SparseQuery.of(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]))
    >>> query @ np.array([3.0, 4.0, 5.0]), query.T @ np.array([1.0, 1.0])
    (array([ 7., 10.]), array([1., 1., 2.]))
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, query: Query) -> SparseQuery:
        """Find the entries of any query by answering it for one block of cells after another."""
        answers, cells = query.shape
        width = max(1, _ENTRIES_AT_A_TIME // max(answers, 1))
        parts = []
        for start in range(0, cells, width):
            stop = min(start + width, cells)
            block = np.asarray(query @ np.eye(cells, stop - start, -start))
            rows, columns = np.nonzero(block)
            parts.append((rows, columns + start, block[rows, columns]))
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls(rows, columns, values, (answers, cells))

    @property
    def T(self) -> SparseQuery:
        """The adjoint."""
        return SparseQuery(self.columns, self.rows, self.values, self.shape[::-1])

    def __matmul__(self, cells: Any, /) -> Any:
        """Return the answers for a vector of cells."""
        return np.bincount(self.rows, self.values * np.asarray(cells)[self.columns], self.shape[0])


@dataclass(frozen=True, eq=False)
class PermutedQuery:
    """A query on permuted cells: cell i of the new order is cell `places[i]` of the old one."""

    query: Query
    places: NDArray[np.int64]
    adjoint: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of answers and number of cells."""
        return self.query.shape[::-1] if self.adjoint else self.query.shape

    @property
    def T(self) -> PermutedQuery:
        """The adjoint."""
        return PermutedQuery(self.query, self.places, not self.adjoint)

    def __matmul__(self, vector: Any, /) -> Any:
        """Return the answers for cells in the new order (adjoint: cells in the new order)."""
        if self.adjoint:
            return np.asarray(self.query.T @ vector)[self.places]
        cells = np.empty(len(self.places))
        cells[self.places] = vector
        return self.query @ cells


# A network whose gradient is asked for.


SLOPE = 0.01
"""The slope of the leaky ReLU below zero."""

_LARGEST_WEIGHT = 1e6  # keeps every intermediate value finite
_LARGEST_CRITIC = 1 << 24  # weights of a critic: an answer of 128 MiB


@dataclass(frozen=True, eq=False)
class Critic:
    """A network with one hidden layer that scores rows; its weights are public.

    Attributes:
        lines: for each code of each column, column after column, its weights (codes x H).
        bias: the bias of the hidden layer (H).
        output: the weights of the output (H).
    """

    lines: NDArray[np.float32]
    bias: NDArray[np.float32]
    output: NDArray[np.float32]

    @property
    def arrays(self) -> tuple[NDArray[np.float32], ...]:
        """All weights."""
        return self.lines, self.bias, self.output

    def check(self, domain: Domain) -> None:
        """Check sizes and values.

        Raises:
            SettingError: naming what is wrong; nothing was spent.
        """
        width = len(self.bias)
        if self.lines.shape != (sum(domain.values()), width) or self.output.shape != (width,) or not width:
            raise SettingError("critic: give weights for each code of each column, and a bias and an output as wide")
        if sum(array.size for array in self.arrays) > _LARGEST_CRITIC:
            raise SettingError(f"critic: it has more than {_LARGEST_CRITIC} weights; use fewer hidden units")
        if not all((np.abs(array) <= _LARGEST_WEIGHT).all() for array in self.arrays):  # false for NaN
            raise SettingError(f"critic: every weight must be finite and at most {_LARGEST_WEIGHT:g}")

    @property
    def digest(self) -> str:
        """The SHA-256 of the weights."""
        return hashlib.sha256(b"".join(array.astype("<f4").tobytes() for array in self.arrays)).hexdigest()
