"""Synthetic rows from a calibrated tree: Algorithms 7 and 8 of "Winning the NIST Contest"."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.model.propagate import Propagation


def sample_rows(
    propagation: Propagation, rows: int, rng: np.random.Generator, *, rounding: bool
) -> dict[str, NDArray[Any]]:
    """Coded columns in the domain's order, made clique by clique from the root of the tree.

    Each new column is drawn given the columns of its clique that exist already. With `rounding`, every group of rows
    that agree on those gets each value as often as expected, up to rounding, in random order; without, each row is
    drawn independently. A cell of probability 0 never occurs.
    """
    from understudy.model.kernels.rows import draw_values

    domain = propagation.tree.domain
    made: dict[str, NDArray[np.int32]] = {}
    for position, clique in enumerate(propagation.tree.cliques):
        missing = [column for column in clique if column not in made]
        if not missing:
            continue
        steps = _steps(clique, missing, made)
        for table, given, column in _tables(propagation.belief(position), clique, steps):
            groups = np.zeros(rows, np.int64)
            for other in given:
                groups *= domain[other]
                groups += made[other]
            seed = np.uint64(rng.integers(0, 2**64, dtype=np.uint64))
            made[column] = np.empty(rows, np.int32)
            draw_values(groups, table.reshape(-1, domain[column]), seed, rounding, made[column])
    return {column: _compact(domain, column, made, rows) for column in domain}


def _steps(clique: Clique, missing: list[str], made: dict[str, Any]) -> list[tuple[Clique, str]]:
    """For each missing column of a clique, the columns it is drawn given."""
    known = [column for column in clique if column in made]
    return [((*known, *missing[:i]), column) for i, column in enumerate(missing)]


def _tables(
    table: NDArray[np.float64], clique: Clique, steps: list[tuple[Clique, str]]
) -> list[tuple[NDArray[np.float64], Clique, str]]:
    """The joint table of each step, its own column last; the last step's is the whole clique, the others its sums."""
    given, column = steps[-1]
    order = [clique.index(c) for c in (*given, column)]
    table = np.ascontiguousarray(table.transpose(order))
    found = []
    for given, column in reversed(steps):
        found.append((table, given, column))
        table = table.sum(axis=-1)
    return found[::-1]


def _compact(domain: Domain, column: str, made: dict[str, NDArray[np.int32]], rows: int) -> NDArray[Any]:
    """A column in the smallest unsigned type that holds its codes."""
    dtype = np.min_scalar_type(domain[column] - 1)
    return made[column].astype(dtype) if column in made else np.zeros(rows, dtype)
