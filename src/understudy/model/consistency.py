"""Consistency of noisy tables (PrivSyn, PriView): non-negative tables that agree on the columns they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError
from understudy.measurement import KroneckerQuery, Measurement, Scaling, weighted_mean

Array = NDArray[np.float64]
_ROUNDS, _FEWER, _CELLS = 500, 100, 250_000_000
"""The most rounds; fewer, but at least `_FEWER`, if the tables have so many cells that rounds would visit more."""
_CLOSE = 1e-6
"""Rounds end when they change no table by more than this share of the rows."""
_SURE = 1e-9
"""The variance of a cell that is known to be 0, relative to a measured cell."""


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """Noisy counts of a clique, with the variance of each cell.

    Attributes:
        clique: the columns, in the domain's order.
        counts: the table, shaped by the domain.
        variance: the noise variance of each cell, in the same shape.
    """

    clique: Clique
    counts: Array
    variance: Array


def average_tables(domain: Domain, measurements: Sequence[Measurement]) -> list[NoisyTable]:
    """Make one table for each measured clique; repeated measurements are averaged by precision.

    Args:
        domain: the columns.
        measurements: identity measurements, re-expressed ones, whose query is diagonal, or Kronecker queries that
            determine every cell: those become least-squares tables.

    Raises:
        InputError: if a measurement does not fit the domain or has another query.
    """
    found: dict[Clique, list[NoisyTable]] = {}
    for measurement in measurements:
        measurement.check(domain)
        table = _read_measurement(domain, measurement)
        found.setdefault(table.clique, []).append(table)
    return [_average(tables) for tables in found.values()]


def _read_measurement(domain: Domain, measurement: Measurement) -> NoisyTable:
    shape = domain.shape(measurement.clique)
    if isinstance(measurement.query, KroneckerQuery):
        counts, variance = (part.reshape(shape) for part in _solve_cells(measurement, measurement.query))
    else:
        scale = np.ones(len(measurement.values)) if measurement.query is None else _scale_factors(measurement)
        counts, variance = (measurement.values / scale).reshape(shape), (measurement.sigma / scale).reshape(shape) ** 2
    clique = domain.canonical(measurement.clique)
    axes = [measurement.clique.index(column) for column in clique]
    return NoisyTable(clique, counts.transpose(axes), variance.transpose(axes))


def _solve_cells(measurement: Measurement, query: KroneckerQuery) -> tuple[Array, Array]:
    """Return a Kronecker query's least-squares cells and their variances, by the pseudo-inverses of its factors."""
    factors = [factor.astype(np.float64) for factor in query.factors]
    if any(np.linalg.matrix_rank(factor) < factor.shape[1] for factor in factors):
        raise InputError(
            f"measurement of {measurement.clique}: its query does not determine all cells; use the "
            "graphical-model generator for it"
        )
    table = np.asarray(measurement.values, np.float64).reshape([factor.shape[0] for factor in factors])
    variance = np.array(measurement.sigma**2)
    for axis, inverse in enumerate(map(np.linalg.pinv, factors)):
        table = np.moveaxis(np.tensordot(inverse, table, axes=(1, axis)), 0, axis)
        variance = np.multiply.outer(variance, np.square(inverse).sum(axis=1))
    return table, variance


def _scale_factors(measurement: Measurement) -> Array:
    if isinstance(measurement.query, Scaling):
        return measurement.query.factors
    raise InputError(
        f"measurement of {measurement.clique}: only measurements of cells can be made consistent, and this "
        "one has a query; use the graphical-model generator for it"
    )


def _average(tables: Sequence[NoisyTable]) -> NoisyTable:
    counts, precision = weighted_mean((table.counts, 1 / table.variance) for table in tables)
    return NoisyTable(tables[0].clique, counts, 1 / precision)


def make_consistent(
    tables: Sequence[NoisyTable],
    *,
    total: float | None = None,
    forbidden: Mapping[Clique, NDArray[np.bool_]] | None = None,
) -> dict[Clique, Array]:
    """Find non-negative tables with one common total that agree on shared columns, near the given ones.

    Each round moves the tables to their precision-weighted mean on every shared set of columns, smaller sets first,
    spreading corrections in proportion to the variance, and then projects each table onto non-negative counts. The last
    step is a projection, so counts are never negative; tables agree up to what that step moved. That is 1e-6 of the
    rows or less unless the rounds run out: 500, or 100 of tables with millions of cells.

    Args:
        tables: the noisy tables, each set of columns once.
        total: the number of rows if known; else the precision-weighted mean of the tables' sums.
        forbidden: for a clique, the cells that cannot occur: they are 0 in every table that has the clique's columns.

    **Guarantees.** Deterministic; post-processing. Every table sums to the common total, which is at least 1.
    """
    if not tables:
        return {}
    masks = {table.clique: find_forbidden_cells(table.clique, table.counts.shape, forbidden or {}) for table in tables}
    tables = [table if masks[table.clique] is None else _empty_cells(table, masks[table.clique]) for table in tables]
    counts = {table.clique: table.counts.astype(np.float64) for table in tables}
    shared = [_SharedColumns(columns, tables) for columns in shared_sets(counts)]
    rows = total
    cells = sum(table.size for table in counts.values())
    for _ in range(min(_ROUNDS, max(_FEWER, _CELLS // cells))):
        for part in shared:
            rows = part.agree(counts, rows)
        rows = max(1.0, 0.0 if rows is None else rows)
        moved = 0.0
        for clique, table in counts.items():
            counts[clique] = _project(table, masks[clique], rows)
            moved = max(moved, float(np.abs(counts[clique] - table).sum()))
        if moved <= _CLOSE * rows:
            break
    return counts


def shared_sets(cliques: Iterable[Clique]) -> list[Clique]:
    """Return the empty set and every set of columns that two or more cliques share, subsets before supersets.

    >>> shared_sets([("a", "b"), ("a", "c"), ("a",)])
    [(), ('a',)]
    """
    given = [frozenset(clique) for clique in cliques]
    found: set[frozenset[str]] = {one & other for one, other in combinations(given, 2)} | {frozenset()}
    new = found
    while new:  # three tables may share less than any two of them
        new = {one & other for one in new for other in found} - found
        found = found | new
    return sorted((tuple(sorted(columns)) for columns in found), key=lambda columns: (len(columns), columns))


class _SharedColumns:
    """A shared set of columns: which tables have it, along which axes, and with what weights."""

    def __init__(self, columns: Clique, tables: Sequence[NoisyTable]) -> None:
        members = [table for table in tables if set(columns) <= set(table.clique)]
        self._cliques = [table.clique for table in members]
        self._summed_axes = [_summed_axes(table.clique, columns) for table in members]
        sums = [table.variance.sum(axis=away) for table, away in zip(members, self._summed_axes, strict=True)]
        self._spread = [
            _spread(table.variance, variance, away)
            for table, away, variance in zip(members, self._summed_axes, sums, strict=True)
        ]
        precisions = [1 / variance for variance in sums]
        self._variance = 1 / np.sum(precisions, axis=0)
        self._weights = [precision * self._variance for precision in precisions]

    def agree(self, counts: dict[Clique, Array], rows: float | None) -> float | None:
        """Move every table, in place, to the weighted mean of their projections; returns the common total."""
        sums = [counts[clique].sum(axis=away) for clique, away in zip(self._cliques, self._summed_axes, strict=True)]
        target = np.sum([weight * part for weight, part in zip(self._weights, sums, strict=True)], axis=0)
        if rows is None:
            rows = float(target)
        # weights that differ between cells may change the total: restore it, in proportion to the variance
        target = target + (rows - target.sum()) * self._variance / self._variance.sum()
        for clique, away, part, spread in zip(self._cliques, self._summed_axes, sums, self._spread, strict=True):
            counts[clique] += np.expand_dims(target - part, away) * spread
        return rows


def _spread(variance: Array, sums: Array, away: tuple[int, ...]) -> Array:
    """Return the parts of a correction that the cells take: one number if all cells are equally noisy."""
    first = variance.flat[0]
    return np.array(first / sums.flat[0]) if (variance == first).all() else variance / np.expand_dims(sums, away)


def norm_sub(values: NDArray[Any], total: float) -> Array:
    """Norm-Sub: find the nearest non-negative vector with sum `total` (projection onto the scaled simplex).

    >>> norm_sub(np.array([5, 3, -2, 0.5]), 6.5).tolist()
    [4.25, 2.25, 0.0, 0.0]
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) and values.min() >= 0 and abs(values.sum() - total) <= 1e-12 * total:
        return values
    positive, shift = values, 0.0
    while len(positive):  # the shift grows until it leaves all that it is computed from positive (Michelot)
        shift = (positive.sum() - total) / len(positive)
        left = positive[positive > shift]
        if len(left) == len(positive):
            break
        positive = left
    projected: Array = np.maximum(values - shift, 0.0)
    return projected


def _project(table: Array, mask: NDArray[np.bool_] | None, rows: float) -> Array:
    if mask is None or mask.all():
        return norm_sub(table.reshape(-1), rows).reshape(table.shape)
    out = np.zeros(table.shape)
    out[~mask] = norm_sub(table[~mask], rows)
    return out


def find_forbidden_cells(
    clique: Clique, shape: tuple[int, ...], forbidden: Mapping[Clique, NDArray[np.bool_]]
) -> NDArray[np.bool_] | None:
    """Return the cells of a table that some rule forbids; None if none does."""
    found = None
    for columns, mask in forbidden.items():
        if set(columns) <= set(clique):
            order = [columns.index(column) for column in clique if column in columns]
            sizes = [size if column in columns else 1 for column, size in zip(clique, shape, strict=True)]
            spread = np.broadcast_to(mask.transpose(order).reshape(sizes), shape)
            found = spread if found is None else found | spread
    return found


def _empty_cells(table: NoisyTable, mask: Any) -> NoisyTable:
    """Set forbidden cells to 0 with a tiny variance, so that corrections go to other cells."""
    return NoisyTable(table.clique, np.where(mask, 0.0, table.counts), np.where(mask, _SURE, 1.0) * table.variance)


def sum_smallest_table(tables: Mapping[Clique, Array], columns: Clique) -> Array | None:
    """Sum the smallest table that covers these columns, axes in this order; None if no table covers them."""
    covering = [clique for clique in tables if set(columns) <= set(clique)]
    if not covering:
        return None
    clique = min(covering, key=lambda clique: (tables[clique].size, clique))
    left = tables[clique].sum(axis=_summed_axes(clique, columns))
    kept = [column for column in clique if column in columns]
    return np.asarray(left.transpose([kept.index(column) for column in columns]))


def _summed_axes(clique: Clique, columns: Clique) -> tuple[int, ...]:
    return tuple(axis for axis, column in enumerate(clique) if column not in columns)
