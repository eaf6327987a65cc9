"""Draw the rows of linked tables as codes, from parents to children.

The root's rows come from its model. The first child of each parent is drawn from `first(T)`, the second, third and so
on from `next(T)`, column by column, each given what is known: ancestors, the first and the previous sibling, columns
drawn before (`model/conditional.py`).

**Calibration.** A model of `next(T)` has its own, noisy distribution of the known columns, and does not account for
codes that the order of siblings excludes. If columns were drawn from its conditional distributions alone, errors of
pairs would exceed the noise, and add up from sibling to sibling. Chances of codes are therefore multiplied by factors,
one for each code and each code of a known column, such that drawn rows have the model's distribution of each column,
and of each column given each single known one that it was measured with (iterative proportional fitting on made-up
rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.model.conditional import plan_draws, row_groups
from understudy.release.rows import RowMaker, check_size, find_members, resolve_unknown
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.linked import LinkedSchema, VirtualColumn, VirtualTable, gap_codes
from understudy.schema.rules import Dependency

if TYPE_CHECKING:
    from understudy.release.release import Release

_ROWS_AT_A_TIME = 1 << 16
_TRIES = 40  # of drawing rows that break a rule of their table
_UNITS, _MOST_ROWS = 5_000, 20_000  # made-up units, and rows of one virtual table, that factors are fitted on
_ROUNDS, _PASSES = 6, 2  # of proportional fitting; of drawing further siblings and fitting again
_LARGEST_FACTOR = 20.0
_LEAST_WEIGHT = 1e-12  # of the largest: rows of which all codes weigh less are drawn evenly


@dataclass(eq=False)
class DrawnRows:
    """The synthetic rows of a table as codes; siblings are together and in order.

    Attributes:
        codes: one array by coded column, and `#child` for each child table.
        parents: the place of each row's parent in the parent table.
        numbers: the place of each row among its siblings, from 0.
        values: an arrow table of the rows without keys, if their values were drawn as well.
    """

    codes: dict[str, NDArray[Any]]
    parents: NDArray[np.int64]
    numbers: NDArray[np.int64]
    values: Any = None


@dataclass(frozen=True, eq=False)
class DrawStep:
    """The distribution from which one column is drawn.

    Attributes:
        column: the column.
        given: the known columns that it is drawn given.
        table: the weight of each code, for each combination of their codes.
        alone: the model's distribution of the column.
        targets: by known columns that were measured with it, the model's distribution of the column given these alone,
            one line for each combination of their codes.
        ordered: whether its codes are declared ones, limited by the order of siblings; else they are merged ones.
        factors: by known columns that are not all among `given`, factors of these weights for each combination.
    """

    column: VirtualColumn
    given: Clique
    table: NDArray[np.float64]
    alone: NDArray[np.float64]
    targets: Mapping[Clique, NDArray[np.float64]]
    ordered: bool
    factors: Mapping[Clique, NDArray[np.float64]] = field(default_factory=dict)

    def chances(
        self, known: Mapping[str, NDArray[Any]], domain: Mapping[str, int], allowed: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        """Return the chance of each code for each row, among those that are allowed; even where none has weight."""
        rows = len(next(iter(known.values())))
        chances = self.table[row_groups(self.given, known, domain, rows)]
        for columns, factor in self.factors.items():
            chances *= factor[row_groups(columns, known, domain, rows)]
        if allowed is not None:
            chances = np.where(allowed, chances, 0.0)
        totals = chances.sum(axis=1, keepdims=True)
        if (empty := np.flatnonzero(totals <= _LEAST_WEIGHT * self.table.max())).size:
            chances[empty] = 1.0 if allowed is None else allowed[empty]
            totals[empty] = chances[empty].sum(axis=1, keepdims=True)
        chances /= totals
        return chances


DrawSteps = Mapping[str, list[DrawStep]]
"""How the own columns of each virtual table but the root are drawn, in order."""


def calibrate(schema: LinkedSchema, parts: Mapping[str, Release]) -> DrawSteps:
    """Return how columns are drawn, so that drawn rows have the pairs of columns that the models have.

    **Privacy.** Post-processing of models.
    """
    steps = {name: _find_steps(one, parts[name], schema) for name, one in schema.virtual_tables.items()}
    del steps[schema.root]
    drawing = Drawing(schema, parts, steps, _UNITS, np.random.default_rng(0))
    drawing.draw_root()
    for name in schema.links:
        first, further = f"first({name})", f"next({name})"
        drawing.start(name)
        steps[first] = drawing.fit_factors(first)
        drawing.draw_siblings(name, 0)
        plain = steps.get(further, [])
        for _ in range(_PASSES if plain else 0):
            drawing.draw_further(name)
            steps[further] = drawing.fit_factors(further, plain)
        drawing.draw_further(name)
    return steps


class Drawing:
    """A draw of the rows of all tables, as codes of their schemas.

    Args:
        schema: the linked tables.
        parts: the release of each virtual table.
        steps: how columns are drawn; may be changed while rows are drawn.
        rows: the number of rows of the root.
        rng: draws them.
        maker: makes the root's rows; by default without conditions.
    """

    def __init__(
        self,
        schema: LinkedSchema,
        parts: Mapping[str, Release],
        steps: DrawSteps,
        rows: int,
        rng: np.random.Generator,
        maker: RowMaker | None = None,
    ) -> None:
        self._schema, self._parts, self._steps, self._count, self._rng = schema, parts, steps, rows, rng
        self._maker = maker or RowMaker(parts[schema.root])
        self._tables: dict[str, DrawnRows] = {}
        self._sizes: dict[str, NDArray[np.int64]] = {}
        self._members = {
            name: find_members(one.recoding, one.schema, one.measurements, one.settings.get("rare"))
            for name, one in parts.items()
        }

    def draw(self) -> dict[str, DrawnRows]:
        """Draw all tables."""
        self.draw_root()
        for name in self._schema.links:
            self.start(name)
            self.draw_siblings(name, 0)
            self.draw_further(name)
        return self._tables

    def draw_root(self) -> None:
        """Draw the root's rows with their numbers of children."""
        root = self._schema.root
        virtual, prefix = self._schema.virtual_tables[root], f"{root}."
        rows = self._maker.rows(self._count, self._rng)
        encoded = virtual.schema.encode(rows).codes
        codes = {column.part: encoded[column.name] for column in virtual.columns}
        rows = rows.drop_columns([name for name in rows.column_names if name.startswith("#")])
        rows = rows.rename_columns([name.removeprefix(prefix) for name in rows.column_names])
        self._tables[root] = DrawnRows(codes, np.arange(self._count), np.zeros(self._count, np.int64), rows)

    def start(self, name: str) -> None:
        """Make room for the children of all parents; their columns are not drawn yet."""
        link = self._schema.links[name]
        sizes = self._sizes[name] = self._tables[link.parent].codes[f"#{name}"].astype(np.int64)
        check_size(int(sizes.sum()), len(self._schema.tables[name].columns))
        parents = np.repeat(np.arange(len(sizes)), sizes)
        numbers = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kinds = self._schema.own_parts(name)
        codes = {part: np.zeros(len(parents), np.min_scalar_type(size - 1)) for part, size in kinds.items()}
        self._tables[name] = DrawnRows(codes, parents, numbers)

    def draw_further(self, name: str) -> None:
        """Draw the second children, the third, and so on."""
        for number in range(1, self._schema.links[name].max_children):
            self.draw_siblings(name, number)

    def draw_siblings(self, name: str, number: int) -> None:
        """Draw the children with this number, counted from 0, of all parents that have one.

        Rows whose codes break a rule are drawn again; a few may be left.
        """
        sizes, schema = self._sizes[name], self._schema.tables[name]
        rows = (np.cumsum(sizes) - sizes)[sizes > number] + number
        for _ in range(_TRIES):
            if not len(rows):
                return
            self._draw_rows(name, number, rows)
            rows = rows[_obey_rules(schema, self._tables[name].codes, rows, self._rng)]

    def _draw_rows(self, name: str, number: int, rows: NDArray[np.int64]) -> None:
        sizes = self._sizes[name][self._tables[name].parents[rows]]
        virtual = self._schema.virtual_tables[f"{'first' if number == 0 else 'next'}({name})"]
        known, rank = self._find_known_codes(virtual, rows), self._schema.order_rank(name)
        due = sizes - number - 1
        recoding, members = self._parts[virtual.name].recoding, self._members[virtual.name]
        for step in self._steps[virtual.name]:
            target, allowed = step.column, None
            before = None if number == 0 else self._tables[name].codes[target.part][rows - 1].astype(np.int64)
            if step.ordered and rank is not None:
                allowed = rank, *self._find_room(name, rank, before, due)
            drawn: NDArray[Any] = _draw_codes(step, known, self._domain(virtual), allowed, self._rng)
            if step.ordered:
                known[target.name] = recoding.apply(target.name, drawn.astype(np.uint32))
            else:
                known[target.name] = drawn
                drawn = members[target.name].draw(drawn, self._rng) if target.name in members else drawn
                if target.gap:
                    drawn = self._close_gap(name, target, drawn.astype(np.int64), before, due)
            self._tables[name].codes[target.part][rows] = drawn

    def fit_factors(self, name: str, steps: list[DrawStep] | None = None) -> list[DrawStep]:
        """Return the steps of a virtual table with calibrated tables, fitted on the rows drawn so far.

        Known columns come from these rows; own columns are drawn again, by the new tables.
        """
        virtual = self._schema.virtual_tables[name]
        steps, table = self._steps[name] if steps is None else steps, self._tables[virtual.table]
        rows = np.flatnonzero((table.numbers == 0) == (virtual.kind == "first"))
        if not len(rows):
            return steps
        units = self._units(virtual.table)[rows]
        weights = (1 / np.maximum(np.bincount(units), 1))[units]
        if len(rows) > _MOST_ROWS:
            some = np.sort(self._rng.choice(len(rows), _MOST_ROWS, replace=False))
            rows, weights = rows[some], weights[some]
        known, rank, fitted = self._find_known_codes(virtual, rows), self._schema.order_rank(virtual.table), []
        due = self._sizes[virtual.table][table.parents[rows]] - table.numbers[rows] - 1
        for step in steps:
            allowed = None
            if step.ordered and rank is not None:
                before = None if virtual.kind == "first" else table.codes[step.column.part][rows - 1].astype(np.int64)
                low, high = self._find_room(virtual.table, rank, before, due)
                allowed = (rank >= low[:, None]) & (rank <= high[:, None])
            made, drawn = _fit_step(step, known, weights, allowed, self._domain(virtual), self._rng)
            if step.ordered:
                drawn = self._parts[name].recoding.apply(step.column.name, drawn.astype(np.uint32))
            known[step.column.name] = drawn
            fitted.append(made)
        return fitted

    def _domain(self, virtual: VirtualTable) -> Mapping[str, int]:
        return self._parts[virtual.name].model.domain

    def _units(self, name: str) -> NDArray[np.int64]:
        place = self._tables[name].parents
        while (name := self._schema.links[name].parent) != self._schema.root:
            place = self._tables[name].parents[place]
        return place

    def _find_known_codes(self, virtual: VirtualTable, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the merged codes of the columns that are not drawn."""
        recoding = self._parts[virtual.name].recoding
        return {
            column.name: recoding.apply(column.name, self._find_codes(column, virtual, rows))
            for column in virtual.columns
            if column.role != "own"
        }

    def _find_codes(self, column: VirtualColumn, virtual: VirtualTable, rows: NDArray[np.int64]) -> NDArray[Any]:
        place, current = rows, virtual.table
        if column.role == "first":
            place = rows - self._tables[current].numbers[rows]
        elif column.role == "prev":
            place = rows - 1
        while current != column.table:
            place = self._tables[current].parents[place]
            current = self._schema.links[current].parent
        if column.part == "#" and column.groups is not None:
            return column.groups[np.minimum(self._tables[current].numbers[place], len(column.groups) - 1)]
        codes = self._tables[current].codes[column.part][place]
        return codes if column.groups is None else column.groups[codes]

    def _find_room(
        self, name: str, rank: NDArray[np.int64], before: NDArray[np.int64] | None, due: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lowest and highest place in the order that each row may take.

        With a strict order, every child still due needs a place of its own; missing values are used only if the values
        of the axis do not suffice.
        """
        link = self._schema.links[name]
        last = len(rank) - 1
        low = np.zeros(len(due), np.int64) if before is None else rank[before] + (1 if link.strict else 0)
        if not link.strict:
            return low, np.full(len(due), last)
        column = self._schema.tables[name].column(link.order[0])
        ordinary = column.ordinary if isinstance(column, AxisColumn) else last + 1
        most = np.where(low + due < ordinary, ordinary - 1, last)
        return low, most - due

    def _close_gap(
        self,
        name: str,
        column: VirtualColumn,
        gaps: NDArray[np.int64],
        before: NDArray[np.int64] | None,
        due: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return codes at these distances from the codes before, cut at the maximum."""
        assert before is not None  # noqa: S101 - only further siblings have gaps
        link, size = self._schema.links[name], self._schema.own_parts(name)[column.part]
        declared = self._schema.tables[name].column(column.part)
        assert isinstance(declared, AxisColumn)  # noqa: S101 - only these have gaps
        edges, ordinary = gap_codes(size), declared.ordinary
        missing = gaps == len(edges) - 1
        gaps = np.minimum(gaps, len(edges) - 2)
        length = edges[gaps] + (self._rng.random(len(gaps)) * (edges[gaps + 1] - edges[gaps])).astype(np.int64)
        codes = np.minimum(before + np.maximum(length, int(link.strict)), ordinary - 1)
        if link.strict:
            low, high = self._find_room(name, np.arange(size), before, due)
            return np.clip(codes, low, np.maximum(high, low))
        codes = np.where(missing & (size > ordinary), ordinary, codes)
        return np.where(before >= ordinary, before, codes)


def _obey_rules(
    schema: Schema, codes: dict[str, NDArray[Any]], rows: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Set stated values in these rows, and return which of them break a rule nevertheless, by their codes."""
    broken = np.zeros(len(rows), np.bool_)
    if not schema.rules:
        return broken
    mine = {part: codes[part][rows] for part in schema.domain}
    mine |= resolve_unknown(schema, {name for rule in schema.rules for name in rule.columns}, mine, rng)
    for rule in schema.rules:
        stated = rule.stated_codes(schema) if isinstance(rule, Dependency) else None
        if stated is not None and isinstance(rule, Dependency):
            wanted = stated[mine[rule.given[0]]]
            mine[rule.determines] = np.where(wanted >= 0, wanted, mine[rule.determines])
    for part, values in mine.items():
        codes[part][rows] = values
    for rule in schema.rules:
        broken |= rule.find_broken(schema, mine)
    return broken


def _find_steps(virtual: VirtualTable, part: Release, schema: LinkedSchema) -> list[DrawStep]:
    """Return the steps of a virtual table as its model has them."""
    if virtual.kind == "root":
        return []
    own = {column.name: column for column in virtual.columns if column.role == "own"}
    link, rank = schema.links[virtual.table], schema.order_rank(virtual.table)
    members = find_members(part.recoding, part.schema, part.measurements, part.settings.get("rare"))
    found, plan = list[DrawStep](), plan_draws(part.model, list(own))
    known = [column.name for column in virtual.columns if column.role != "own"]
    measured = dict.fromkeys(one.clique for one in part.measurements)
    for name, given, table in plan:
        column, size = own[name], part.model.domain[name]
        cliques = [tuple(one for one in known if one in clique) for clique in measured if name in clique]
        pairs = [(one,) for one in known if any(one in clique for clique in cliques)]
        tied = [*dict.fromkeys(one for one in cliques if len(one) > 1), *pairs]
        marginals = part.model.project_many([(name,), *((*one, name) for one in tied)])
        tables = [table, *(np.maximum(one, 0.0).reshape(-1, size) for one in marginals.values())]
        ordered = rank is not None and column.part == link.order[0] and not column.gap
        if ordered:
            tables = [_spread(one, name, part, members) for one in tables]
        table, alone, *others = (one / np.maximum(one.sum(axis=1, keepdims=True), 1e-300) for one in tables)
        found.append(DrawStep(column, given, table, alone[0], dict(zip(tied, others, strict=True)), ordered))
        known.append(name)
    return found


def _spread(table: NDArray[np.float64], column: str, part: Release, members: Mapping[str, Any]) -> NDArray[np.float64]:
    """Spread the weights of merged codes over the declared ones."""
    if column not in members:
        return table
    found = members[column]
    chances = np.zeros(found.size)
    np.add.at(chances, found.codes, found.chances)
    merged = part.recoding.maps[column] if column in part.recoding.columns else np.arange(found.size)
    return np.asarray(table[:, merged] * chances)


def _fit_step(
    step: DrawStep,
    known: Mapping[str, NDArray[Any]],
    weights: NDArray[np.float64],
    allowed: NDArray[np.bool_] | None,
    domain: Mapping[str, int],
    rng: np.random.Generator,
) -> tuple[DrawStep, NDArray[np.int64]]:
    """Return a step with factors that meet its targets on these rows, and a code for each row."""
    chances = step.chances(known, domain, allowed)
    targets = {**step.targets, (): step.alone[None, :]}  # last: without it, errors of siblings would add up
    groups = {one: row_groups(one, known, domain, len(weights)) for one in targets}
    factors = {one: np.ones_like(target) for one, target in targets.items()}
    for _ in range(_ROUNDS):
        for one, target in targets.items():
            have = _sum_groups(groups[one], chances * weights[:, None], len(target))
            want = target * have.sum(axis=1, keepdims=True)
            ratio = np.divide(want, have, out=np.ones_like(have), where=have > 1e-9)
            ratio = np.clip(ratio * factors[one], 1 / _LARGEST_FACTOR, _LARGEST_FACTOR) / factors[one]
            factors[one] *= ratio
            chances *= ratio[groups[one]]
            chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
    drawn, sizes = _draw(chances, rng), [domain[one] for one in step.given]
    table = step.table.reshape(*sizes, -1)
    for columns in [one for one in factors if set(one) <= set(step.given)]:
        order = sorted(columns, key=step.given.index)
        factor = factors.pop(columns).reshape(*(domain[one] for one in columns), -1)
        factor = np.moveaxis(factor, [columns.index(one) for one in order], range(len(order)))
        shape = [domain[one] if one in columns else 1 for one in step.given]
        table = table * factor.reshape(*shape, -1)
    table = table.reshape(step.table.shape)
    table /= np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
    return replace(step, table=table, factors=factors), drawn


def _sum_groups(groups: NDArray[np.int64], values: NDArray[np.float64], many: int) -> NDArray[np.float64]:
    """Return the sums of the lines of each group."""
    return np.stack([np.bincount(groups, column, minlength=many) for column in values.T], axis=1)


def _draw_codes(
    step: DrawStep,
    known: Mapping[str, NDArray[Any]],
    domain: Mapping[str, int],
    room: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw a code for each row.

    Args:
        step: how.
        known: the codes of known columns.
        domain: the sizes of all columns.
        room: the place of each code in the order of siblings, and the lowest and highest one of each row.
        rng: draws them.
    """
    count = len(next(iter(known.values())))
    out = np.empty(count, np.int64)
    for start in range(0, count, _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        allowed = None
        if room is not None:
            rank, low, high = room
            allowed = (rank >= low[rows, None]) & (rank <= high[rows, None])
        out[rows] = _draw(step.chances({one: code[rows] for one, code in known.items()}, domain, allowed), rng)
    return out


def _draw(chances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a code for each row by its chances."""
    ends = np.cumsum(chances, axis=1)
    return np.asarray((ends <= rng.random(len(ends))[:, None] * ends[:, -1:]).sum(axis=1), np.int64)
