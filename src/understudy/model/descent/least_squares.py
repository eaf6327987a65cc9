"""Closed-form least squares: the consistent tables nearest to noisy ones, before non-negativity is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain

Vector: TypeAlias = NDArray[np.float64]
_MOST_WORK = 2e8


def consistent_tables(
    domain: Domain, tables: Mapping[Clique, tuple[Vector, float]], total: float
) -> Iterator[tuple[Clique, Vector]]:
    """The tables that agree with one another and with the total, nearest by weighted least squares.

    Each table splits into one part for every subset of its columns (summed over the others, centred along its own);
    parts of different subsets are orthogonal, so every subset's part is simply the weighted mean over the tables
    that have it. Minimising the distance to the result is the same as minimising the distance to the noisy tables.

    Args:
        domain: the sizes of the columns.
        tables: for each clique, with all cliques' columns in one common order, its flat table and weight (1/variance).
        total: what every table must add up to.

    Yields:
        Each clique with its flat table; the tables given, unchanged, where splitting them would cost too much.
    """
    if sum(2.0 ** len(clique) * len(values) for clique, (values, _) in tables.items()) > _MOST_WORK:
        yield from [(clique, values) for clique, (values, _) in tables.items()]
        return
    sums: dict[Clique, Vector] = {}
    weights: dict[Clique, float] = {}
    for clique, (values, weight) in tables.items():
        for subset, part in _split(values.reshape(domain.shape(clique)), clique).items():
            mine = weight * domain.cells(subset) / domain.cells(clique)
            part *= mine
            sums[subset] = np.add(sums[subset], part, out=part) if subset in sums else part
            weights[subset] = weights.get(subset, 0.0) + mine
    for subset, weight in weights.items():
        sums[subset] /= weight
    sums[()] = np.array(total)
    for clique in list(tables):
        yield clique, _join(sums, clique, domain).ravel()


def _split(table: Vector, clique: Clique) -> dict[Clique, Vector]:
    """The part of a table for every subset of its columns."""
    parts: dict[Clique, Vector] = {(): table.copy()}
    for column in clique:
        longer: dict[Clique, Vector] = {}
        for subset, part in parts.items():
            summed = part.sum(axis=len(subset), keepdims=True)
            longer[subset] = summed.squeeze(axis=len(subset))
            longer[(*subset, column)] = part - summed / part.shape[len(subset)]
        parts = longer
    return parts


def _join(parts: Mapping[Clique, Vector], clique: Clique, domain: Domain) -> Vector:
    """The table with these parts: the inverse of `_split`."""
    subsets: dict[Clique, Vector] = {}
    for mask in range(2 ** len(clique)):
        subset = tuple(column for i, column in enumerate(clique) if mask >> i & 1)
        subsets[subset] = parts[subset]
    for column in reversed(clique):
        shorter: dict[Clique, Vector] = {}
        for subset, part in subsets.items():
            if column not in subset:
                centred = subsets[(*subset, column)]
                shorter[subset] = centred + np.expand_dims(part, len(subset)) / domain[column]
        subsets = shorter
    return subsets[()]
