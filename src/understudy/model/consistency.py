"""Consistency: noisy tables that share columns are made to agree, and their counts non-negative (PrivSyn, PriView)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError
from understudy.measurement import Measurement, Scaling

Array = NDArray[np.float64]

_CLOSE = 1e-6
"""Tables agree, and are non-negative, when what is left over is below this share of the rows."""


_SURE = 1e-9
"""The variance of a count that is known to be 0, as a share of a measured one's."""


@dataclass(frozen=True, eq=False)
class Table:
    """Estimated counts of a clique, with the variance of each cell.

    Attributes:
        clique: the columns, in the domain's order.
        counts: the table, shaped by the domain.
        variance: the noise variance of each cell, in the same shape.
    """

    clique: Clique
    counts: Array
    variance: Array


def tables_of(domain: Domain, measurements: Sequence[Measurement]) -> list[Table]:
    """One table for each set of columns that was measured; repeated measurements are averaged by precision.

    Args:
        domain: the columns.
        measurements: identity measurements, or re-expressed ones, whose query is diagonal.

    Raises:
        InputError: for a measurement that does not fit, or with another query.
    """
    found: dict[Clique, list[Table]] = {}
    for measurement in measurements:
        measurement.check(domain)
        table = _table(domain, measurement)
        found.setdefault(table.clique, []).append(table)
    return [_averaged(tables) for tables in found.values()]


def consistent(
    tables: Sequence[Table],
    *,
    total: float | None = None,
    rounds: int = 500,
    forbidden: Mapping[Clique, NDArray[np.bool_]] | None = None,
) -> dict[Clique, Array]:
    """Non-negative tables of one common total that agree on what they share, near the given ones.

    Each round agrees on every shared set of columns, smaller sets first, then projects each table onto non-negative
    counts; agreement is by inverse variance, corrections are spread in proportion to it. The last step is a
    projection, so the counts are never negative; agreement is then within what that last step moved.

    Args:
        tables: the noisy tables, each set of columns once.
        total: the number of rows where it is known; else the inverse-variance mean of the tables' sums.
        rounds: at most this many rounds.
        forbidden: for a clique, the cells that cannot occur: they are 0 in every table that has the clique's columns.

    **Guarantees.** Deterministic; post-processing. Every table sums to the common total, which is at least 1.
    """
    if not tables:
        return {}
    masks = {table.clique: _mask(table.clique, table.counts.shape, forbidden or {}) for table in tables}
    tables = [table if masks[table.clique] is None else _emptied(table, masks[table.clique]) for table in tables]
    counts = {table.clique: table.counts for table in tables}
    shared = [_Shared(columns, tables) for columns in shared_sets(counts)]
    rows = total
    for _ in range(rounds):
        for part in shared:
            rows = part.agree(counts, rows)
        rows = max(1.0, 0.0 if rows is None else rows)
        moved = 0.0
        for clique, table in counts.items():
            counts[clique] = _projected(table, masks[clique], rows)
            moved = max(moved, float(np.abs(counts[clique] - table).sum()))
        if moved <= _CLOSE * rows:
            break
    return counts


def shared_sets(cliques: Iterable[Clique]) -> list[Clique]:
    """The empty set and every set of columns that two or more cliques have in common, subsets before supersets.

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


def norm_sub(values: NDArray[Any], total: float) -> Array:
    """Norm-Sub: the nearest non-negative vector that sums to `total` (Euclidean projection onto the scaled simplex).

    >>> norm_sub(np.array([5, 3, -2, 0.5]), 6.5).tolist()
    [4.25, 2.25, 0.0, 0.0]
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) and values.min() >= 0 and abs(values.sum() - total) <= 1e-12 * total:
        return values
    falling = np.sort(values)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    kept = np.flatnonzero(falling > shifts)
    projected: Array = np.maximum(values - shifts[kept[-1] if len(kept) else 0], 0.0)
    return projected


def _mask(
    clique: Clique, shape: tuple[int, ...], forbidden: Mapping[Clique, NDArray[np.bool_]]
) -> NDArray[np.bool_] | None:
    """The cells of a table that some rule forbids; None when none does."""
    found = None
    for columns, mask in forbidden.items():
        if set(columns) <= set(clique):
            order = [columns.index(column) for column in clique if column in columns]
            sizes = [size if column in columns else 1 for column, size in zip(clique, shape, strict=True)]
            spread = np.broadcast_to(mask.transpose(order).reshape(sizes), shape)
            found = spread if found is None else found | spread
    return found


def _emptied(table: Table, mask: Any) -> Table:
    """No rows in forbidden cells, which are as good as certain: corrections go elsewhere."""
    return Table(table.clique, np.where(mask, 0.0, table.counts), np.where(mask, _SURE, 1.0) * table.variance)


def _projected(table: Array, mask: NDArray[np.bool_] | None, rows: float) -> Array:
    if mask is None or mask.all():
        return norm_sub(table.reshape(-1), rows).reshape(table.shape)
    out = np.zeros(table.shape)
    out[~mask] = norm_sub(table[~mask], rows)
    return out


class _Shared:
    """One shared set of columns: which tables have it, along which axes, and with what weights."""

    def __init__(self, columns: Clique, tables: Sequence[Table]) -> None:
        members = [table for table in tables if set(columns) <= set(table.clique)]
        self._cliques = [table.clique for table in members]
        self._away = [_away(table.clique, columns) for table in members]
        sums = [table.variance.sum(axis=away) for table, away in zip(members, self._away, strict=True)]
        self._spread = [
            table.variance / np.expand_dims(variance, away)
            for table, away, variance in zip(members, self._away, sums, strict=True)
        ]
        precisions = [1 / variance for variance in sums]
        self._variance = 1 / np.sum(precisions, axis=0)
        self._weights = [precision * self._variance for precision in precisions]

    def agree(self, counts: dict[Clique, Array], rows: float | None) -> float | None:
        """Move every table to the weighted mean of their projections; the common total is what it returns."""
        sums = [counts[clique].sum(axis=away) for clique, away in zip(self._cliques, self._away, strict=True)]
        target = np.sum([weight * part for weight, part in zip(self._weights, sums, strict=True)], axis=0)
        if rows is None:
            rows = float(target)
        # weights that differ between cells may move the total that was agreed on first: give it back by variance
        target = target + (rows - target.sum()) * self._variance / self._variance.sum()
        for clique, away, part, spread in zip(self._cliques, self._away, sums, self._spread, strict=True):
            counts[clique] = counts[clique] + np.expand_dims(target - part, away) * spread
        return rows


def _away(clique: Clique, columns: Clique) -> tuple[int, ...]:
    return tuple(axis for axis, column in enumerate(clique) if column not in columns)


def _table(domain: Domain, measurement: Measurement) -> Table:
    scale = np.ones(len(measurement.values)) if measurement.query is None else _diagonal(measurement)
    shape = domain.shape(measurement.clique)
    counts, variance = (measurement.values / scale).reshape(shape), (measurement.sigma / scale).reshape(shape) ** 2
    clique = domain.canonical(measurement.clique)
    axes = [measurement.clique.index(column) for column in clique]
    return Table(clique, counts.transpose(axes), variance.transpose(axes))


def _diagonal(measurement: Measurement) -> Array:
    if isinstance(measurement.query, Scaling):
        return measurement.query.factors
    raise InputError(
        f"measurement of {measurement.clique}: tables are made consistent cell by cell, and this one answers other "
        "queries; use the graphical-model generator for it"
    )


def _averaged(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    variance = 1 / np.sum([1 / table.variance for table in tables], axis=0)
    counts = variance * np.sum([table.counts / table.variance for table in tables], axis=0)
    return Table(tables[0].clique, counts, variance)


def marginal(tables: Mapping[Clique, Array], columns: Clique) -> Array | None:
    """The counts of these columns, in this order, from the smallest table that covers them; None when none does."""
    covering = [clique for clique in tables if set(columns) <= set(clique)]
    if not covering:
        return None
    clique = min(covering, key=lambda clique: (tables[clique].size, clique))
    left = tables[clique].sum(axis=_away(clique, columns))
    kept = [column for column in clique if column in columns]
    return np.asarray(left.transpose([kept.index(column) for column in columns]))
