"""Marginals of small models by variable elimination, in plain numpy.

One marginal of a small model takes milliseconds this way; importing numba and calibrating a junction tree takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError

MOST_CELLS = 2**18
"""The most cells of all tables of an elimination; numpy then takes a few milliseconds."""


def plan_elimination(domain: Domain, cliques: Iterable[Clique], wanted: Clique = ()) -> Clique | None:
    """Find an order in which to sum out all columns but the wanted ones; None if that is too much for plain numpy.

    The order is greedy. A column whose neighbours are joined already comes first: its table is no larger than those of
    the cliques. If there is none, the column with the smallest table comes next.
    """
    neighbours: dict[str, set[str]] = {}
    for clique in cliques:
        for column in clique:
            neighbours.setdefault(column, set()).update(clique)
    left, order, cells = [column for column in neighbours if column not in wanted], [], domain.cells(wanted)
    while left and cells <= MOST_CELLS:
        joined_already = (c for c in left if all(neighbours[c] <= neighbours[other] for other in neighbours[c]))
        column = next(joined_already, None) or min(left, key=lambda c: domain.cells(tuple(neighbours[c])))
        left.remove(column)
        order.append(column)
        joined = neighbours.pop(column) - {column}
        cells += domain.cells((*joined, column))
        for other in joined:
            neighbours[other] |= joined
            neighbours[other].remove(column)
    return tuple(order) if cells <= MOST_CELLS else None


def eliminate(
    domain: Domain, potentials: Mapping[Clique, NDArray[np.float64]], order: Clique, wanted: Clique
) -> NDArray[np.float64]:
    """Compute the probabilities of a clique's cells, its axes in the clique's order.

    Works with logarithms, so that nothing underflows.

    Args:
        domain: the columns.
        potentials: by clique, a table with its axes in the clique's order; minus infinity if a cell is impossible.
        order: all columns of the cliques but the wanted ones, in the order in which to sum them out.
        wanted: the columns of the result.

    Raises:
        InputError: if no cell of the domain is possible.
    """
    tables = list(potentials.items())
    for column in order:
        mine = [(clique, table) for clique, table in tables if column in clique]
        tables = [(clique, table) for clique, table in tables if column not in clique]
        rest = tuple(dict.fromkeys(c for clique, _ in mine for c in clique if c != column))
        product = _add_tables(domain, mine, (*rest, column))
        top = product.max(axis=-1)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            tables.append((rest, np.log(np.exp(product - top[..., None]).sum(axis=-1)) + top))
    found = _add_tables(domain, tables, wanted)
    if not np.isfinite(found.max()):
        raise InputError("the forbidden cells leave no possible row; allow at least one")
    shares: NDArray[np.float64] = np.exp(found - found.max())
    shares /= shares.sum()
    return shares


def _add_tables(
    domain: Domain, tables: Iterable[tuple[Clique, NDArray[np.float64]]], columns: Clique
) -> NDArray[np.float64]:
    """Add tables of some of these columns, each repeated along the other columns."""
    total = np.zeros(domain.shape(columns))
    for clique, table in tables:
        axes = sorted(range(len(clique)), key=lambda i: columns.index(clique[i]))
        total += (
            table.reshape(domain.shape(clique))
            .transpose(axes)
            .reshape([domain[c] if c in clique else 1 for c in columns])
        )
    return total
