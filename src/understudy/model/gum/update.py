"""The gradual update method (PrivSyn): a random table is edited until its counts are the consistent ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.model.gum.consistency import marginal

Array = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]

_PASSES, _ALPHA, _DECAY = 10, 0.5, 0.8
"""Passes over the tables, and their step size alpha_t = 0.5 * 0.8 ^ t: fewer and smaller steps than in the paper,
because the rows start from a tree of the tables."""


@dataclass(frozen=True, eq=False)
class Draw:
    """One column drawn given others.

    Attributes:
        column: the column.
        given: the columns it is drawn given.
        table: their common table, the column last.
    """

    column: str
    given: Clique
    table: Array

    def run(self, domain: Domain, made: Columns, rows: int, rng: np.random.Generator) -> NDArray[Any]:
        """Its codes: in each group of rows that agree on `given`, counts as expected, rounded, in random order."""
        from understudy.model.kernels.sampling import deal

        shape = domain.shape(self.given)
        groups = _cells(made, self.given, shape).astype(np.int64) if shape else np.zeros(rows, np.int64)
        weights = np.ascontiguousarray(self.table, dtype=np.float64).reshape(-1, domain[self.column])
        out = np.empty(rows, np.int32)
        seed: Any = rng.integers(0, 2**64, dtype=np.uint64)
        deal(groups, weights, seed, True, out)
        return out.astype(np.min_scalar_type(domain[self.column] - 1))


class Plan:
    """How rows are made from tables: which columns are appended at the end, and what is left for updates.

    A column that only one table has is drawn from that table given its other columns once those exist, so the table
    leaves the updates in favour of its sum over that column; again and again, until no such column is left. Tree-shaped
    sets of tables need no update at all.

    The other columns start as if the tables formed a tree: each is drawn given columns that exist already, from the
    table in which they tell most about it. Updates then mend what the tree leaves out.

    Attributes:
        components: sets of tables that share no column with each other, updated one after the other.
        started: how the columns of each of them are drawn at first.
        appended: how the other columns are drawn at the end.
    """

    def __init__(self, domain: Domain, tables: Mapping[Clique, Array]) -> None:
        left = {frozenset(c): (c, t) for c, t in _maximal(tables).items()}
        appended: list[Draw] = []
        while column := _lonely(left):
            clique, table = next(value for key, value in left.items() if column in key)
            del left[frozenset(clique)]
            given = tuple(other for other in clique if other != column)
            appended.append(Draw(column, given, np.moveaxis(table, clique.index(column), -1)))
            if len(given) > 1 and not any(set(given) <= key for key in left):
                left[frozenset(given)] = (given, table.sum(axis=clique.index(column)))
        self.components = _components(dict(left.values()))
        self.started = [_tree(domain, part) for part in self.components]
        known = {draw.column for draws in [*self.started, appended] for draw in draws}
        singles = [Draw(column, (), _one_way(domain, tables, column)) for column in domain if column not in known]
        self.appended = [*singles, *appended[::-1]]

    def run(self, domain: Domain, rows: int, rng: np.random.Generator, *, passes: int = _PASSES) -> Columns:
        """Coded columns of this many rows."""
        made: Columns = {}
        for tables, draws in zip(self.components, self.started, strict=True):
            part: Columns = {}
            for draw in draws:
                part[draw.column] = draw.run(domain, part, rows, rng)
            made.update(update(part, tables, rng, passes=passes))
        for draw in self.appended:
            made[draw.column] = draw.run(domain, made, rows, rng)
        return {column: made[column] for column in domain}


def update(columns: Columns, tables: Mapping[Clique, Array], rng: np.random.Generator, *, passes: int) -> Columns:
    """Edit rows, in place, until their counts are near the tables.

    Every pass visits the tables, the worst first. For each, rows of cells with too many are overwritten: by copies of
    rows of cells with too few, which keeps what the copied rows say about other columns, or by writing the cell's
    values into them. Half of the rows are copies in even passes, all in odd ones; empty cells are always written.
    Many tables move only a part of what they would: rows copied over and over become clones of a few, and clones tie
    columns together that no table joins.

    Args:
        columns: coded columns, all of one length; they are changed.
        tables: for each clique its table, of any scale.
        rng: draws everything.
        passes: how many; an even number ends with copies, which disturb the other tables least.

    **Guarantees.** Post-processing. The same columns, tables and generator state give the same rows.
    """
    rows = len(next(iter(columns.values())))
    steps = [_Step(columns, clique, table, rows) for clique, table in tables.items()]
    state = rng.integers(0, 2**64, size=1, dtype=np.uint64)
    error = np.array([step.error() for step in steps])
    for t in range(passes):
        # half the distance is what a table would move: all tables together at most every row once in a pass
        part = min(1.0, 2.0 / max(float(error.sum()), 1e-9))
        for index in np.argsort(-error, kind="stable"):
            error[index] = steps[index].run(_ALPHA * _DECAY**t, 1.0 if t % 2 else 0.5, state, part=part)
    return columns


class _Step:
    """One table against the rows."""

    def __init__(self, columns: Columns, clique: Clique, table: Array, rows: int) -> None:
        self._columns, self._clique, self._shape = columns, clique, table.shape
        self._target = np.ascontiguousarray(table, dtype=np.float64).reshape(-1) * (rows / table.sum())
        self._rows = rows

    def error(self) -> float:
        """The L1 distance of the rows to the table, as a share of the rows."""
        have = np.bincount(_cells(self._columns, self._clique, self._shape), minlength=len(self._target))
        return float(np.abs(have - self._target).sum()) / self._rows

    def run(self, alpha: float, share: float, state: NDArray[np.uint64], *, part: float = 1.0) -> float:
        """Edit rows once, by a part of what is missing; the L1 distance before, as a share of the rows."""
        from understudy.model.kernels import gum as kernels

        cells = _cells(self._columns, self._clique, self._shape)
        have = np.bincount(cells, minlength=len(self._target))
        removed, copied, written = (np.empty_like(have) for _ in range(3))
        kernels.plan(have, have + part * (self._target - have), alpha, share, state, removed, copied, written)
        freed = np.empty(int(removed.sum()), np.int32)
        models = np.empty(int(copied.sum()), np.int32)
        kernels.pick(cells, have, removed, copied, state, freed, models)
        self._copy(models[: len(freed)], freed)
        self._write(np.repeat(np.arange(len(have)), written), freed[len(models) :], state)
        return float(np.abs(have - self._target).sum()) / self._rows

    def _copy(self, models: NDArray[np.int32], freed: NDArray[np.int32]) -> None:
        for column in self._columns.values():
            column[freed[: len(models)]] = column[models]

    def _write(self, cells: NDArray[np.int64], freed: NDArray[np.int32], state: NDArray[np.uint64]) -> None:
        from understudy.model.kernels import gum as kernels

        kernels.shuffle(cells, state)
        count = min(len(cells), len(freed))
        codes = np.unravel_index(cells[:count], self._shape)
        for column, code in zip(self._clique, codes, strict=True):
            self._columns[column][freed[:count]] = code


def _cells(columns: Columns, clique: Clique, shape: tuple[int, ...]) -> NDArray[np.int32]:
    cells = columns[clique[0]].astype(np.int32)
    for column, size in zip(clique[1:], shape[1:], strict=True):
        cells *= size
        cells += columns[column]
    return cells


def _one_way(domain: Domain, tables: Mapping[Clique, Array], column: str) -> Array:
    table = marginal(tables, (column,))
    return np.ones(domain[column]) if table is None else table


def _maximal(tables: Mapping[Clique, Array]) -> dict[Clique, Array]:
    """Tables of two columns or more that no other table covers: the ones that decide."""
    sets = [set(clique) for clique in tables]
    return {
        clique: table
        for clique, table in tables.items()
        if len(clique) > 1 and not any(set(clique) < other for other in sets)
    }


def _lonely(left: Mapping[frozenset[str], Any]) -> str | None:
    """A column that only one of the tables has; of the last in line, so that pairs go before what hangs on them."""
    seen: dict[str, int] = {}
    for columns in left:
        for column in columns:
            seen[column] = seen.get(column, 0) + 1
    return min((column for column, times in seen.items() if times == 1), default=None)


def _tree(domain: Domain, tables: Mapping[Clique, Array]) -> list[Draw]:
    """An order in which to draw connected columns, each given those of one table that tell most about it.

    The first is the column that some table tells most about.
    """
    first = max(
        (_information(table, axis), clique[axis]) for clique, table in tables.items() for axis in range(len(clique))
    )
    draws = [Draw(first[1], (), _one_way(domain, tables, first[1]))]
    while candidates := [draw for clique, table in tables.items() for draw in _next(clique, table, draws)]:
        draws.append(max(candidates, key=lambda draw: (_information(draw.table, len(draw.given)), draw.column)))
    return draws


def _next(clique: Clique, table: Array, draws: Sequence[Draw]) -> list[Draw]:
    """The columns that this table can add: each given the table's columns that are drawn already."""
    made = {draw.column for draw in draws}
    given = tuple(column for column in clique if column in made)
    found = []
    for column in clique if given else ():
        if column not in made:
            away = tuple(axis for axis, other in enumerate(clique) if other != column and other not in given)
            place = [other for other in clique if other == column or other in given].index(column)
            found.append(Draw(column, given, np.moveaxis(table.sum(axis=away), place, -1)))
    return found


def _information(table: Array, axis: int) -> float:
    """Mutual information between one column of a table and the others together, in nats."""
    share = np.moveaxis(table, axis, -1).reshape(-1, table.shape[axis])
    share = share / share.sum()
    product = np.multiply.outer(share.sum(axis=1), share.sum(axis=0))
    positive = share > 0
    return float((share[positive] * np.log(share[positive] / product[positive])).sum())


def _components(tables: Mapping[Clique, Array]) -> list[dict[Clique, Array]]:
    parts: list[dict[Clique, Array]] = []
    for clique, table in tables.items():
        near = [part for part in parts if any(set(clique) & set(other) for other in part)]
        parts = [part for part in parts if part not in near]
        parts.append({key: value for part in [*near, {clique: table}] for key, value in part.items()})
    return parts
