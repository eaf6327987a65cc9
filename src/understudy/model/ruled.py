"""Rows and tables held to what the domain forbids, for models that are not a single distribution."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.model.graphical import GraphicalModel
from understudy.model.gum.consistency import marginal

Array = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]

_RAKES = 100


def rule_tables(domain: Domain, tables: Mapping[Clique, Array]) -> dict[Clique, Array]:
    """A table for every rule whose columns no given table covers: independent columns, fitted to what is allowed.

    Raking keeps the columns' own counts as far as the rule lets it. **Privacy.** Post-processing.
    """
    found = {}
    for clique, mask in domain.forbidden.items():
        if not any(set(clique) <= set(other) for other in tables):
            ones = [_one_way(domain, tables, column) for column in clique]
            found[clique] = _raked(mask, ones)
    return found


def broken_rows(domain: Domain, rows: Columns) -> NDArray[np.bool_]:
    """Which coded rows are in a forbidden cell."""
    broken = np.zeros(len(next(iter(rows.values()))), dtype=np.bool_)
    for clique, mask in domain.forbidden.items():
        broken |= mask[tuple(rows[column] for column in clique)]
    return broken


def mended(domain: Domain, tables: Mapping[Clique, Array], rows: Columns, rng: np.random.Generator) -> Columns:
    """The rows, those in a forbidden cell replaced by copies of others; the columns are changed.

    Where most rows are broken, copies would be clones of a few: then the columns of the rules are drawn anew for them,
    from the distribution that fits the columns' own counts and obeys the rules.

    **Guarantees.** No row is in a forbidden cell afterwards.
    """
    broken = broken_rows(domain, rows)
    bad, good = np.flatnonzero(broken), np.flatnonzero(~broken)
    if not len(bad):
        return rows
    if len(good) >= len(bad):
        models = good[rng.integers(0, len(good), len(bad))]
        for array in rows.values():
            array[bad] = array[models]
        return rows
    columns = domain.canonical({column for clique in domain.forbidden for column in clique})
    shares: dict[Clique, Array] = {
        (column,): np.log(np.maximum(_one_way(domain, tables, column), 1e-9)) for column in columns
    }
    drawn = GraphicalModel(domain.project(columns), shares, total=1.0).sample(len(bad), rng)
    for column, codes in drawn.items():
        rows[column][bad] = codes
    return rows


def _one_way(domain: Domain, tables: Mapping[Clique, Array], column: str) -> Array:
    found = marginal(tables, (column,))
    return np.ones(domain[column]) if found is None else found


def _raked(mask: NDArray[np.bool_], ones: list[Array]) -> Array:
    """Iterative proportional fitting of the allowed cells to the columns' own counts."""
    total = float(ones[0].sum())
    targets = [one * (total / one.sum()) for one in ones]
    table = np.where(mask, 0.0, reduce(np.multiply.outer, [target / total for target in targets]))
    table = table if table.sum() > 0 else np.where(mask, 0.0, 1.0)
    for _ in range(_RAKES):
        for axis, target in enumerate(targets):
            sums = table.sum(axis=tuple(a for a in range(table.ndim) if a != axis))
            factor = np.divide(target, sums, out=np.zeros_like(target), where=sums > 0)
            scaled = table * factor.reshape([-1 if a == axis else 1 for a in range(table.ndim)])
            table = scaled if scaled.sum() > 0 else table
    raked: Array = table * (total / table.sum())
    return raked
