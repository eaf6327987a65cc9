"""The gradual update method (PrivSyn): a random table is edited until its counts are the consistent ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import ReleaseError, SettingError
from understudy.measurement import Measurement
from understudy.model.consistency import consistent, marginal, tables_of
from understudy.model.graphical import GraphicalModel

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
        from understudy.model.kernels.rows import deal

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
        from understudy.model.kernels import rows as kernels

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
        from understudy.model.kernels import rows as kernels

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


# ----------------------------------------------------------------------------------------------------
# Rows and tables held to what the domain forbids, for models that are not a single distribution.


_RAKES = 100


def rule_tables(domain: Domain, tables: Mapping[Clique, Array]) -> dict[Clique, Array]:
    """A table for every rule whose columns no given table covers: independent columns, fitted to what is allowed.

    Raking keeps the columns' own counts as far as the rule lets it. **Privacy.** Post-processing.
    """
    found = {}
    for clique, mask in domain.forbidden.items():
        if not any(set(clique) <= set(other) for other in tables):
            ones = [_ruled_one_way(domain, tables, column) for column in clique]
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
        (column,): np.log(np.maximum(_ruled_one_way(domain, tables, column), 1e-9)) for column in columns
    }
    drawn = GraphicalModel(domain.project(columns), shares, total=1.0).sample(len(bad), rng)
    for column, codes in drawn.items():
        rows[column][bad] = codes
    return rows


def _ruled_one_way(domain: Domain, tables: Mapping[Clique, Array], column: str) -> Array:
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


# ----------------------------------------------------------------------------------------------------
# The model of PrivSyn: consistent tables, and rows made by the gradual update method.


_FEWEST, _MOST = 10_000, 1_000_000
"""How many rows the cached run has that answers what no table covers."""


class GumModel:
    """Consistent tables that need not fit into a tree; any set of them can be sampled from.

    What the domain forbids is 0 in the tables and in no row.

    `project` answers from a table that covers the columns, else, for columns that no table connects, by independence,
    and else by counting the rows of one run with a fixed seed: such an answer has the error of a sample.

    Args:
        domain: the columns.
        total: the estimated number of rows.
        tables: consistent tables by clique.
    """

    kind: ClassVar[str] = "gum"

    def __init__(self, domain: Domain, total: float, tables: Mapping[Clique, Array]) -> None:
        self._domain = domain
        self._total = float(total)
        self._tables = dict(tables)

    def __repr__(self) -> str:
        return f"GumModel({len(self._domain)} columns, {len(self._tables)} tables)"

    @property
    def domain(self) -> Domain:
        """The columns, coded."""
        return self._domain

    @property
    def total(self) -> float:
        """The estimated number of rows."""
        return self._total

    @property
    def tables(self) -> dict[Clique, Array]:
        """The consistent tables, by clique."""
        return dict(self._tables)

    def project(self, clique: Clique) -> Array:
        """Expected counts of a clique's cells, in the order asked."""
        clique = self._domain.check(clique)
        parts: dict[int, list[str]] = {}
        for column in clique:
            parts.setdefault(self._component[column], []).append(column)
        table = np.array(self._total)
        for columns in parts.values():
            table = np.multiply.outer(table, self._share(tuple(columns)))
        order = [column for columns in parts.values() for column in columns]
        return np.asarray(table.transpose([order.index(column) for column in clique]))

    def project_many(self, cliques: Iterable[Clique]) -> dict[Clique, Array]:
        """The same for many cliques."""
        return {clique: self.project(clique) for clique in cliques}

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Coded columns of synthetic rows by the gradual update method; the same generator state, the same rows."""
        if rows == 0:
            return {column: np.zeros(0, np.min_scalar_type(size - 1)) for column, size in self._domain.items()}
        made = self._plan.run(self._domain, rows, rng)
        return mended(self._domain, self._tables, made, rng) if self._domain.rules else made

    def condition(self, where: Mapping[str, int | Array]) -> NoReturn:
        """Refused: see the error.

        Raises:
            SettingError: always.
        """
        raise SettingError(
            "rows with given values cannot be drawn from this model: the gradual update method makes whole tables, not "
            "a distribution that can be conditioned. Sample more rows and keep those that fit, or make the release "
            "with generator='pgm' or another mechanism"
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The cliques as numbers of columns, the tables end to end, and the total."""
        index = {column: i for i, column in enumerate(self._domain)}
        return {
            "lengths": np.array([len(clique) for clique in self._tables], dtype=np.int64),
            "columns": np.array([index[column] for clique in self._tables for column in clique], dtype=np.int64),
            "counts": np.concatenate([np.zeros(0), *(table.reshape(-1) for table in self._tables.values())]),
            "total": np.array(self._total),
        }

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model that `to_arrays` wrote.

        Raises:
            ReleaseError: when the arrays do not fit the domain.
        """
        damaged = ReleaseError("the model's arrays do not fit the schema; the release file is damaged")
        try:
            lengths, columns = (np.asarray(arrays[name], dtype=np.int64) for name in ("lengths", "columns"))
            counts, total = np.asarray(arrays["counts"], dtype=np.float64), float(arrays["total"])
            names = np.array(list(domain), dtype=object)[columns]
        except (KeyError, IndexError, TypeError, ValueError):
            raise damaged from None
        if (columns < 0).any() or (lengths < 1).any() or lengths.sum() != len(columns):
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
        return cls(domain, total, shaped)

    def _share(self, columns: Clique) -> Array:
        found = marginal(self._tables, columns)
        if found is None:
            found = self._counted(columns)
        share: Array = found / found.sum()
        return share

    def _counted(self, columns: Clique) -> Array:
        if len(columns) == 1:
            return np.ones(self._domain[columns[0]])
        shape = self._domain.shape(columns)
        cells = np.ravel_multi_index([self._rows[column] for column in columns], shape)
        return np.bincount(cells, minlength=self._domain.cells(columns)).reshape(shape).astype(np.float64)

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self._domain, self._tables)

    @cached_property
    def _rows(self) -> Columns:
        return self.sample(int(np.clip(round(self._total), _FEWEST, _MOST)), np.random.default_rng(0))

    @cached_property
    def _component(self) -> dict[str, int]:
        """For each column the number of the set of columns that tables connect it to."""
        number = {column: i for i, column in enumerate(self._domain)}
        for clique in self._tables:
            joined = {number[column] for column in clique}
            number = {column: min(joined) if mine in joined else mine for column, mine in number.items()}
        return number


def gum_of(domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None) -> GumModel:
    """The model that fits any mechanism's measurements by consistency and gradual updates, instead of inference.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; one that no measurement names comes out uniform.
        measurements: noisy marginals of any cliques, also ones that no junction tree could hold.
        total: the number of rows where it is public; otherwise the inverse-variance mean of the tables' sums.

    Raises:
        InputError: a measurement that does not fit, or that answers other queries than cells.
    """
    tables = consistent(tables_of(domain, measurements), total=total, forbidden=domain.forbidden)
    tables |= rule_tables(domain, tables)
    rows = next((float(table.sum()) for table in tables.values()), 1.0 if total is None else float(total))
    return GumModel(domain, rows, tables)
