"""Draw some columns of a model row by row, given the codes of others.

`Model.condition` takes one condition for all rows; here every row has its own. The columns are drawn one after another:
first the one that depends most on what is known. A column is drawn from the model's marginal of that column and of the
known columns that it depends on directly, or through columns that are not drawn yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.model.graphical import GraphicalModel
from understudy.model.protocol import Model

MOST_GIVEN, MOST_DRAWN, MOST_CELLS = 8, 3, 2_000_000
"""The most columns that a column is drawn given, those that were drawn before among them even if the model relates them
only through others, and the most cells of their marginal. Chosen on households (benchmarks/linked.md)."""


def row_groups(
    given: Clique, known: Mapping[str, NDArray[Any]], domain: Mapping[str, int], rows: int
) -> NDArray[np.int64]:
    """Return the line of each row in a marginal of known columns and one more."""
    groups = np.zeros(rows, np.int64)
    for column in given:
        groups *= domain[column]
        groups += np.asarray(known[column], np.int64)
    return groups


def plan_draws(model: Model, wanted: Sequence[str]) -> list[tuple[str, Clique, NDArray[np.float64]]]:
    """Return how columns are drawn given all others, in order.

    Args:
        model: the model.
        wanted: the columns to draw.

    Returns:
        For each step the column, the columns that it is drawn given, and the shares of its codes, one line for each
        combination of theirs.

    **Privacy.** Post-processing of a model.
    """
    domain, left = model.domain, list(wanted)
    have = [column for column in domain if column not in wanted]
    information = _mutual_information(model, have, left)
    neighbours = _neighbours(model)
    choices: list[tuple[str, Clique]] = []
    while left:
        # the most dependent column first: what it depends on is known, and it tells about the others
        column = max(left, key=lambda one: (max((information[one][k] for k in have), default=0.0), -left.index(one)))
        left.remove(column)
        reach = set(have) if neighbours is None else _reachable(column, neighbours, set(left))
        by_information = sorted(have, key=lambda k: -information[column][k])
        drawn = [k for k in by_information if k in wanted][:MOST_DRAWN]
        given: list[str] = []
        for one in (*drawn, *(k for k in by_information if k in reach and k not in drawn)):
            if len(given) < MOST_GIVEN and domain.cells((*given, one, column)) <= MOST_CELLS:
                given.append(one)
        choices.append((column, tuple(given)))
        have.append(column)
    tables = model.project_many([(*given, column) for column, given in choices])
    return [
        (column, given, _shares(np.asarray(tables[(*given, column)], np.float64).reshape(-1, domain[column])))
        for column, given in choices
    ]


def _shares(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares of each line; lines without weight, which other models may ask for, get the column's."""
    table = np.maximum(table, 0.0)
    totals = table.sum(axis=1, keepdims=True)
    empty = totals <= 1e-300
    return np.ascontiguousarray(np.where(empty, table.sum(axis=0), table) / np.where(empty, totals.sum(), totals))


def _mutual_information(model: Model, known: Sequence[str], wanted: Sequence[str]) -> dict[str, dict[str, float]]:
    pairs = [(column, other) for column in wanted for other in known]
    pairs += [(a, b) for i, a in enumerate(wanted) for b in wanted[i + 1 :]]
    found: dict[str, dict[str, float]] = {column: {} for column in wanted}
    for (a, b), table in model.project_many(pairs).items():
        value = _information(np.asarray(table, np.float64).reshape(model.domain.shape((a, b))))
        found[a][b] = value
        if b in found:
            found[b][a] = value
    return found


def _information(table: NDArray[np.float64]) -> float:
    share = np.maximum(table, 0.0) / max(table.sum(), 1e-300)
    product = np.outer(share.sum(axis=1), share.sum(axis=0))
    inside = (share > 0) & (product > 0)  # products of tiny shares may be 0
    return float((share[inside] * np.log(share[inside] / product[inside])).sum())


def _neighbours(model: Model) -> dict[str, set[str]] | None:
    """Return which columns share a factor of the model; None if it is not known."""
    if not isinstance(model, GraphicalModel):
        return None
    found: dict[str, set[str]] = {column: set() for column in model.domain}
    for clique, _ in model.factors():
        for column in clique:
            found[column].update(clique)
    return found


def _reachable(column: str, neighbours: dict[str, set[str]], through: set[str]) -> set[str]:
    """Return the columns joined to a column directly, or through columns that are not drawn yet."""
    seen, todo = {column}, [column]
    while todo:
        for other in neighbours[todo.pop()] - seen:
            seen.add(other)
            if other in through:
                todo.append(other)
    return seen
