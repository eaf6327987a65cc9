"""The gradual update method of PrivSyn: rows are edited until their marginals are near the consistent noisy ones.

`fit_gum` makes a `GumModel` of measurements; `consistency.py` makes their tables consistent. Rows are made in two
steps: a `RowPlan` draws columns along a tree of the tables, then `update` edits the rows of tables that the tree leaves
out, and `move_codes` moves numbers along their axis until they have the right distribution in each group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import ReleaseError, SettingError
from understudy.measurement import Measurement
from understudy.model.consistency import average_tables, make_consistent, sum_smallest_table
from understudy.model.graphical import GraphicalModel
from understudy.model.protocol import DAMAGED, Model

Array = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Updates:
    """How rows start, and how they are edited.

    Attributes:
        start: columns drawn along a "tree" of the tables, as independent "columns", or "uniform" ones.
        passes: the number of passes over the tables; an even number ends with copies, which disturb the others least.
        alpha: the step size of the first pass.
        decay: what the step size is multiplied by after every `period` passes.
        period: see `decay`.
        published: as in the papers: every table moves its whole error, amounts are rounded to the nearest number, and
            only a column that a pair alone has is appended at the end.
    """

    start: Literal["tree", "columns", "uniform"]
    passes: int
    alpha: float
    decay: float = 1.0
    period: int = 1
    published: bool = True


UPDATES = {
    "tree": Updates("tree", 10, 0.5, 0.8, published=False),
    "privsyn": Updates("columns", 50, 1.0, 0.84, 20),
    "dpsyn": Updates("uniform", 100, 0.2),
}
"""Ours, with fewer and smaller steps because the rows start from a tree of the tables; that of PrivSyn; and that of its
ancestor in the 2018 contest."""


# The model

_FEWEST_ROWS, _MOST_ROWS = 10_000, 1_000_000
"""Fewest and most rows of the cached sample that answers what no table covers."""


class GumModel(Model):
    """The model of PrivSyn: consistent tables, which need no junction tree, and rows made by gradual updates.

    Cells that the domain forbids are 0 in the tables and occur in no row.

    `project` uses a table that covers the columns if there is one. Columns that no table connects are independent.
    Everything else is counted in one sample of rows with a fixed seed, and has the error of a sample.

    Attributes:
        domain: the columns.
        total: the estimated number of rows.
        tables: consistent tables by clique.
        updates: how rows are made, one of `UPDATES`.
        axes: by column whose codes stand in order on an axis, how many do; others, such as missing values, follow.
    """

    kind: ClassVar[str] = "gum"

    def __init__(
        self,
        domain: Domain,
        total: float,
        tables: Mapping[Clique, Array],
        updates: str = "tree",
        axes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.domain = domain
        self.total = float(total)
        self.tables = dict(tables)
        self.updates = updates
        self.axes = dict(axes)

    def __repr__(self) -> str:
        return f"GumModel({len(self.domain)} columns, {len(self.tables)} tables)"

    def project(self, clique: Clique) -> Array:
        """Expected counts of a clique's cells, its axes in the clique's order."""
        clique = self.domain.check(clique)
        parts: dict[int, list[str]] = {}
        for column in clique:
            parts.setdefault(self._component[column], []).append(column)
        table = np.array(self.total)
        for columns in parts.values():
            table = np.multiply.outer(table, self._share(tuple(columns)))
        order = [column for columns in parts.values() for column in columns]
        return np.asarray(table.transpose([order.index(column) for column in clique]))

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Make synthetic rows as coded columns; the same generator state gives the same rows."""
        if rows == 0:
            return {column: np.zeros(0, np.min_scalar_type(size - 1)) for column, size in self.domain.items()}
        made = self._plan.run(self.domain, rows, rng)
        return repair_rows(self.domain, self.tables, made, rng) if self.domain.rules else made

    def condition(self, where: Mapping[str, int | Array]) -> NoReturn:
        """Not supported: the model is no distribution that can be conditioned.

        Raises:
            SettingError: always.
        """
        raise SettingError(
            "rows with given values cannot be drawn from this model: the gradual update method makes whole tables, not "
            "a distribution that can be conditioned. Sample more rows and keep those that fit, or make the release "
            "with generator='pgm' or another mechanism"
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return plain arrays: the cliques as column numbers, the tables end to end, the total and other updates."""
        index = {column: i for i, column in enumerate(self.domain)}
        other = {} if self.updates == "tree" else {"updates": np.array(list(UPDATES).index(self.updates))}
        if self.axes:
            found = sorted((index[column], places) for column, places in self.axes.items())
            other["axes"], other["places"] = (np.array(part, dtype=np.int64) for part in zip(*found, strict=True))
        return other | {
            "lengths": np.array([len(clique) for clique in self.tables], dtype=np.int64),
            "columns": np.array([index[column] for clique in self.tables for column in clique], dtype=np.int64),
            "counts": np.concatenate([np.zeros(0), *(table.reshape(-1) for table in self.tables.values())]),
            "total": np.array(self.total),
        }

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the model that `to_arrays` wrote.

        Raises:
            ReleaseError: if the arrays do not fit the domain.
        """
        damaged = ReleaseError(DAMAGED)
        try:
            lengths, columns = (np.asarray(arrays[name], dtype=np.int64) for name in ("lengths", "columns"))
            counts, total = np.asarray(arrays["counts"], dtype=np.float64), float(arrays["total"])
            names = np.array(list(domain), dtype=object)[columns]
            updates = list(UPDATES)[int(arrays.get("updates", 0))]
            numbers = np.asarray(arrays.get("axes", ()), dtype=np.int64)
            named = np.array(list(domain), dtype=object)[numbers]
            places = np.asarray(arrays.get("places", [domain[column] for column in named]), dtype=np.int64)
            axes = {str(column): int(codes) for column, codes in zip(named, places, strict=True)}
        except (KeyError, IndexError, TypeError, ValueError):
            raise damaged from None
        if any(not 0 < codes <= domain[column] for column, codes in axes.items()):
            raise damaged
        if (columns < 0).any() or (numbers < 0).any() or (lengths < 1).any() or lengths.sum() != len(columns):
            raise damaged
        cliques = [tuple(part) for part in np.split(names, np.cumsum(lengths)[:-1])] if len(lengths) else []
        if any(len(set(clique)) != len(clique) for clique in cliques) or len(set(cliques)) != len(cliques):
            raise damaged
        sizes = [domain.cells(clique) for clique in cliques]
        if counts.shape != (sum(sizes),) or not (counts >= 0).all() or not np.isfinite([counts.sum(), total]).all():
            raise damaged
        flat = np.split(counts, np.cumsum(sizes)[:-1]) if cliques else []
        shaped = {c: table.reshape(domain.shape(c)) for c, table in zip(cliques, flat, strict=True)}
        if any(table.sum() <= 0 for table in shaped.values()):
            raise damaged
        return cls(domain, total, shaped, updates, axes)

    def _share(self, columns: Clique) -> Array:
        found = sum_smallest_table(self.tables, columns)
        if found is None:
            found = self._count_sample(columns)
        share: Array = found / found.sum()
        return share

    def _count_sample(self, columns: Clique) -> Array:
        if len(columns) == 1:
            return np.ones(self.domain[columns[0]])
        shape = self.domain.shape(columns)
        cells = np.ravel_multi_index([self._rows[column] for column in columns], shape)
        return np.bincount(cells, minlength=self.domain.cells(columns)).reshape(shape).astype(np.float64)

    @cached_property
    def _plan(self) -> RowPlan:
        return RowPlan(self.domain, self.tables, UPDATES[self.updates], self.axes)

    @cached_property
    def _rows(self) -> Columns:
        return self.sample(int(np.clip(round(self.total), _FEWEST_ROWS, _MOST_ROWS)), np.random.default_rng(0))

    @cached_property
    def _component(self) -> dict[str, int]:
        """For each column, the number of its connected component: the columns that tables connect it to."""
        number = {column: i for i, column in enumerate(self.domain)}
        for clique in self.tables:
            joined = {number[column] for column in clique}
            number = {column: min(joined) if mine in joined else mine for column, mine in number.items()}
        return number


def fit_gum(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    updates: str = "tree",
    axes: Mapping[str, int] = MappingProxyType({}),
) -> GumModel:
    """Make a model of measurements by consistency and gradual updates.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; a column without a measurement is uniform.
        measurements: noisy marginals of any cliques, even if their junction tree would be too large.
        total: the number of rows if public; otherwise the precision-weighted mean of the tables' sums.
        updates: how rows are made, one of `UPDATES`.
        axes: by column whose codes stand in order on an axis, how many do.

    Raises:
        InputError: if a measurement does not fit the domain, or its query is not a scaling of cells.
    """
    tables = make_consistent(average_tables(domain, measurements), total=total, forbidden=domain.forbidden)
    tables |= make_rule_tables(domain, tables)
    rows = next((float(table.sum()) for table in tables.values()), 1.0 if total is None else float(total))
    return GumModel(domain, rows, tables, updates, axes)


# Drawing columns along a tree of tables


class RowPlan:
    """How rows are made from tables: which columns are drawn first, updated, and appended at the end.

    A column that only one table has is appended at the end: it is drawn from that table, given the table's other
    columns. The table is then replaced by its sum over that column, and the search is repeated until no such column is
    left. Tables that form a tree need no updates at all.

    The remaining columns are drawn first as if their tables formed a tree: each given columns that exist already, from
    the table with the most mutual information. Updates then correct what the tree leaves out. Other `Updates` start
    from independent columns.

    Attributes:
        components: sets of tables that share no column with each other, updated one after the other.
        started: for each component, how its columns are drawn at first.
        appended: how the other columns are drawn at the end.
    """

    def __init__(
        self,
        domain: Domain,
        tables: Mapping[Clique, Array],
        updates: Updates = UPDATES["tree"],
        axes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._updates, self._axes = updates, axes
        left = {frozenset(c): (c, t) for c, t in _maximal(tables).items()}
        appended: list[Draw] = []
        while column := _find_unshared_column(left, pairs=updates.published):
            clique, table = next(value for key, value in left.items() if column in key)
            del left[frozenset(clique)]
            given = tuple(other for other in clique if other != column)
            appended.append(Draw(column, given, np.moveaxis(table, clique.index(column), -1)))
            if len(given) > 1 and not any(set(given) <= key for key in left):
                left[frozenset(given)] = (given, table.sum(axis=clique.index(column)))
        self.components = _split_components(dict(left.values()))
        start = _order_draws if updates.start == "tree" else partial(_single_draws, updates.start)
        self.started = [start(domain, part) for part in self.components]
        known = {draw.column for draws in [*self.started, appended] for draw in draws}
        singles = [Draw(column, (), _one_way(domain, tables, column)) for column in domain if column not in known]
        self.appended = [*singles, *appended[::-1]]

    def run(self, domain: Domain, rows: int, rng: np.random.Generator, *, passes: int | None = None) -> Columns:
        """Make this many rows as coded columns."""
        made: Columns = {}
        for tables, draws in zip(self.components, self.started, strict=True):
            part: Columns = {}
            for draw in draws:
                part[draw.column] = draw.run(domain, part, rows, rng)
            update(part, tables, rng, passes=passes, updates=self._updates)
            made.update(move_codes(part, tables, self._axes, rng))
        for draw in self.appended:
            made[draw.column] = draw.run(domain, made, rows, rng)
        return {column: made[column] for column in domain}


@dataclass(frozen=True, eq=False)
class Draw:
    """How one column is drawn, given others.

    Attributes:
        column: the column to draw.
        given: the columns that it depends on.
        table: their joint table, `column` on the last axis.
    """

    column: str
    given: Clique
    table: Array

    def run(self, domain: Domain, made: Columns, rows: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw codes: in each group of rows that agree on `given`, the expected counts, rounded, in random order."""
        from understudy.model.kernels.rows import draw_values

        shape = domain.shape(self.given)
        groups = _cells(made, self.given, shape).astype(np.int64) if shape else np.zeros(rows, np.int64)
        weights = np.ascontiguousarray(self.table, dtype=np.float64).reshape(-1, domain[self.column])
        return draw_values(groups, weights, rng).astype(np.min_scalar_type(domain[self.column] - 1))


def _maximal(tables: Mapping[Clique, Array]) -> dict[Clique, Array]:
    """Return the tables of two or more columns that no other table covers."""
    sets = [set(clique) for clique in tables]
    return {
        clique: table
        for clique, table in tables.items()
        if len(clique) > 1 and not any(set(clique) < other for other in sets)
    }


def _find_unshared_column(left: Mapping[frozenset[str], Any], *, pairs: bool = False) -> str | None:
    """Return the first column, by name, that only one of the tables has; None if there is none.

    Args:
        left: the tables by their columns.
        pairs: whether the one table must be a pair.
    """
    seen: dict[str, int] = {}
    for columns in left:
        for column in columns:
            seen[column] = seen.get(column, 0) + 1
    large = {column for columns in left if len(columns) > 2 for column in columns} if pairs else set()
    return min((column for column, times in seen.items() if times == 1 and column not in large), default=None)


def _split_components(tables: Mapping[Clique, Array]) -> list[dict[Clique, Array]]:
    parts: list[dict[Clique, Array]] = []
    for clique, table in tables.items():
        near = [part for part in parts if any(set(clique) & set(other) for other in part)]
        parts = [part for part in parts if part not in near]
        parts.append({key: value for part in [*near, {clique: table}] for key, value in part.items()})
    return parts


def _order_draws(domain: Domain, tables: Mapping[Clique, Array]) -> list[Draw]:
    """Order the columns of connected tables for drawing, each given the drawn columns with most information about it.

    The first column is the one with the most mutual information in any table.
    """
    first = max(
        (_mutual_information(table, axis), clique[axis])
        for clique, table in tables.items()
        for axis in range(len(clique))
    )
    draws = [Draw(first[1], (), _one_way(domain, tables, first[1]))]
    while candidates := [draw for clique, table in tables.items() for draw in _possible_draws(clique, table, draws)]:
        draws.append(max(candidates, key=lambda draw: (_mutual_information(draw.table, len(draw.given)), draw.column)))
    return draws


def _single_draws(start: str, domain: Domain, tables: Mapping[Clique, Array]) -> list[Draw]:
    """Draw the columns of tables independently, by their counts or uniformly."""
    columns = domain.canonical({column for clique in tables for column in clique})
    even = start == "uniform"
    return [Draw(c, (), np.ones(domain[c]) if even else _one_way(domain, tables, c)) for c in columns]


def _possible_draws(clique: Clique, table: Array, draws: Sequence[Draw]) -> list[Draw]:
    """Return the possible next draws from one table: its missing columns, given those that are drawn already."""
    made = {draw.column for draw in draws}
    given = tuple(column for column in clique if column in made)
    found = []
    for column in clique if given else ():
        if column not in made:
            away = tuple(axis for axis, other in enumerate(clique) if other != column and other not in given)
            place = [other for other in clique if other == column or other in given].index(column)
            found.append(Draw(column, given, np.moveaxis(table.sum(axis=away), place, -1)))
    return found


def _mutual_information(table: Array, axis: int) -> float:
    """Mutual information between one column of a table and all others together, in nats."""
    share = np.moveaxis(table, axis, -1).reshape(-1, table.shape[axis])
    share = share / share.sum()
    product = np.multiply.outer(share.sum(axis=1), share.sum(axis=0))
    positive = share > 0
    return float((share[positive] * np.log(share[positive] / product[positive])).sum())


def _one_way(domain: Domain, tables: Mapping[Clique, Array], column: str) -> Array:
    table = sum_smallest_table(tables, (column,))
    return np.ones(domain[column]) if table is None else table


# Gradual updates


def update(
    columns: Columns,
    tables: Mapping[Clique, Array],
    rng: np.random.Generator,
    *,
    passes: int | None = None,
    updates: Updates = UPDATES["tree"],
) -> Columns:
    """Edit rows, in place, until their marginals are near the tables.

    Every pass visits the tables, the one with the largest error first. Rows of cells with too many rows are overwritten
    in one of two ways: by copies of rows of cells with too few, which keep the dependence on other columns, or by
    writing only the cell's values into them. Half of the rows are copies in even passes and all of them in odd passes;
    empty cells have no rows to copy. With many tables each moves only a part of its error, because rows that are
    copied again and again become clones of a few, and clones make columns dependent that no table joins.

    Args:
        columns: coded columns, all of one length; they are changed.
        tables: for each clique its table, of any scale.
        rng: source of all randomness.
        passes: number of passes, if it is to be another than that of `updates`.
        updates: how rows are edited.

    **Guarantees.** Post-processing. The same columns, tables and generator state give the same rows.
    """
    rows = len(next(iter(columns.values())))
    steps = [_Step(columns, clique, table, rows) for clique, table in tables.items()]
    state = rng.integers(0, 2**64, size=1, dtype=np.uint64)
    error = np.array([step.error() for step in steps])
    published = updates.published
    for t in range(updates.passes if passes is None else passes):
        # a table moves half its L1 distance; all tables together move every row at most once in a pass
        part = 1.0 if published else min(1.0, 2.0 / max(float(error.sum()), 1e-9))
        alpha = updates.alpha * updates.decay ** (t // updates.period)
        for index in np.argsort(-error, kind="stable"):
            error[index] = steps[index].run(alpha, 1.0 if t % 2 else 0.5, state, part=part, nearest=published)
    return columns


class _Step:
    """Updates of the rows by one table."""

    def __init__(self, columns: Columns, clique: Clique, table: Array, rows: int) -> None:
        self._columns, self._clique, self._shape = columns, clique, table.shape
        self._target = np.ascontiguousarray(table, dtype=np.float64).reshape(-1) * (rows / table.sum())
        self._rows = rows

    def error(self) -> float:
        """L1 distance between the rows' marginal and the table, as a share of the rows."""
        return self._distance(self._count()[1])

    def run(
        self, alpha: float, share: float, state: NDArray[np.uint64], *, part: float = 1.0, nearest: bool = False
    ) -> float:
        """Edit rows once by a part of the error; returns the L1 distance before, as a share of the rows."""
        from understudy.model.kernels import rows as kernels

        cells, have = self._count()
        removed, copied, written = (np.empty_like(have) for _ in range(3))
        target = have + part * (self._target - have)
        kernels.plan_changes(have, target, alpha, share, nearest, state, removed, copied, written)
        freed = np.empty(int(removed.sum()), np.int32)
        models = np.empty(int(copied.sum()), np.int32)
        kernels.pick_rows(cells, have.copy(), removed + copied, removed, state, freed, models)
        self._copy(models[: len(freed)], freed)
        self._write(np.repeat(np.arange(len(have)), written), freed[len(models) :], state)
        return self._distance(have)

    def _count(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the cell of each row, and the number of rows in each cell."""
        from understudy.model.kernels import rows as kernels

        cells, have = _cells(self._columns, self._clique, self._shape), np.empty(len(self._target), np.int64)
        kernels.count_rows(cells, have)
        return cells, have

    def _distance(self, have: NDArray[np.int64]) -> float:
        return float(np.abs(have - self._target).sum()) / self._rows

    def _copy(self, models: NDArray[np.int32], freed: NDArray[np.int32]) -> None:
        for column in self._columns.values():
            column[freed[: len(models)]] = column[models]

    def _write(self, cells: NDArray[np.int64], freed: NDArray[np.int32], state: NDArray[np.uint64]) -> None:
        from understudy.model.kernels import rows as kernels

        kernels.shuffle_values(cells, state)
        count = min(len(cells), len(freed))
        codes = np.unravel_index(cells[:count], self._shape)
        for column, code in zip(self._clique, codes, strict=True):
            self._columns[column][freed[:count]] = code


_MOVES = 3
"""How often `move_codes` visits the tables; chosen on two tables by means within groups (benchmarks/numbers.md)."""


def move_codes(
    columns: Columns, tables: Mapping[Clique, Array], axes: Mapping[str, int], rng: np.random.Generator
) -> Columns:
    """Give numbers, in place, the distribution that their tables have in each group of another column.

    Updates stop before they meet tables that contradict each other, near the independence that rows began with, so
    means within groups would be biased. Here the rows of a group keep their order along the axis, and each gets the
    code that has its rank in the table: most codes change little or not at all, and so do other tables. A table undoes
    a part of what another one of the same number did, so they are visited in turn, three times, the one with the most
    mutual information last. Rows without a number keep their code: it would change places with the largest numbers.
    Larger tables than pairs are left out.

    Args:
        columns: coded columns, all of one length; they are changed.
        tables: for each clique its table, of any scale.
        axes: by column whose codes stand in order on an axis, how many do. If both columns of a table have one, codes
            of the column with more codes move.
        rng: source of all randomness.
    """
    pairs = [(clique, table) for clique, table in tables.items() if len(clique) == 2 and axes.keys() & {*clique}]
    pairs.sort(key=lambda pair: _mutual_information(pair[1], 0))
    for clique, table in pairs * (_MOVES if len(pairs) > 1 else 1):
        axis = max((place for place in (0, 1) if clique[place] in axes), key=lambda place: table.shape[place])
        cells = np.moveaxis(table, axis, 1)[:, : axes[clique[axis]]]
        _move_by_table(columns, clique[axis], clique[1 - axis], cells, rng)
    return columns


def _move_by_table(columns: Columns, column: str, by: str, cells: Array, rng: np.random.Generator) -> None:
    """Give a column, in place, the distribution that each row of a table has; `by` is the column of groups.

    Rows whose code the table does not have are left out.
    """
    inside = np.flatnonzero(columns[column] < cells.shape[1])
    group = columns[by][inside].astype(np.int64)
    rows = np.bincount(group, minlength=len(cells))
    place = group * cells.shape[1] + columns[column][inside]
    place = place.astype(np.min_scalar_type(cells.size))  # cells of 16 bits are sorted by their digits, which is fast
    order = rng.permutation(len(group))
    order = order[np.argsort(place[order], kind="stable")]
    sums = np.cumsum(cells, axis=1)
    share = np.divide(sums, sums[:, -1:], out=np.zeros_like(sums), where=sums[:, -1:] > 0)
    until = np.floor(share * rows[:, None] + rng.random((len(cells), 1))).astype(np.int64)
    until[:, -1] = rows
    counts = np.diff(np.minimum(until, rows[:, None]), axis=1, prepend=0)
    codes = np.repeat(np.tile(np.arange(cells.shape[1]), len(cells)), counts.reshape(-1))
    kept = np.repeat(sums[:, -1] > 0, rows)  # a group that the table says is empty keeps its codes
    columns[column][inside[order[kept]]] = codes[kept]


def _cells(columns: Columns, clique: Clique, shape: tuple[int, ...]) -> NDArray[np.int32]:
    cells = columns[clique[0]].astype(np.int32)
    for column, size in zip(clique[1:], shape[1:], strict=True):
        cells *= size
        cells += columns[column]
    return cells


# Rules of the domain

_RAKING_ROUNDS = 100


def make_rule_tables(domain: Domain, tables: Mapping[Clique, Array]) -> dict[Clique, Array]:
    """Make a table for every rule whose columns no given table covers: independent columns, raked to allowed cells.

    Raking keeps the counts of the single columns as far as the rule allows.

    **Privacy.** Post-processing.
    """
    found = {}
    for clique, mask in domain.forbidden.items():
        if not any(set(clique) <= set(other) for other in tables):
            ones = [_one_way(domain, tables, column) for column in clique]
            found[clique] = _rake(mask, ones)
    return found


def _rake(mask: NDArray[np.bool_], ones: list[Array]) -> Array:
    """Fit the allowed cells to the counts of the single columns by iterative proportional fitting."""
    total = float(ones[0].sum())
    targets = [one * (total / one.sum()) for one in ones]
    table = np.where(mask, 0.0, reduce(np.multiply.outer, [target / total for target in targets]))
    table = table if table.sum() > 0 else np.where(mask, 0.0, 1.0)
    for _ in range(_RAKING_ROUNDS):
        for axis, target in enumerate(targets):
            sums = table.sum(axis=tuple(a for a in range(table.ndim) if a != axis))
            factor = np.divide(target, sums, out=np.zeros_like(target), where=sums > 0)
            scaled = table * factor.reshape([-1 if a == axis else 1 for a in range(table.ndim)])
            table = scaled if scaled.sum() > 0 else table
    raked: Array = table * (total / table.sum())
    return raked


def repair_rows(domain: Domain, tables: Mapping[Clique, Array], rows: Columns, rng: np.random.Generator) -> Columns:
    """Replace rows in forbidden cells by copies of other rows; the columns are changed and returned.

    If most rows are in forbidden cells, copies would be clones of a few rows. Then only the columns of the rules are
    drawn again, from the distribution that fits the counts of the single columns and obeys the rules.

    **Guarantees.** No row is in a forbidden cell afterwards.
    """
    broken = find_forbidden_rows(domain, rows)
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


def find_forbidden_rows(domain: Domain, rows: Columns) -> NDArray[np.bool_]:
    """Return which coded rows are in a forbidden cell."""
    broken = np.zeros(len(next(iter(rows.values()))), dtype=np.bool_)
    for clique, mask in domain.forbidden.items():
        broken |= mask[tuple(rows[column] for column in clique)]
    return broken
