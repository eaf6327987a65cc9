"""Closed-form and Newton fits for measured tables that form a tree, and starting points for estimation from them.

Estimation by descent from one-way tables needs thousands of steps where there is much data and little noise. The tables
of a tree can be fitted directly: find the non-negative tables with common margins nearest to the measured ones
(`nearest_tables`, Newton's method on the dual), divide each by one of its margins, and multiply the conditionals. The
number of Newton steps depends on the shape of the tree, not on the number of rows. For cliques that are little more
than a tree the result is a starting point from which estimation takes about fifty steps (`fit_tree`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement, Scaling, weighted_mean
from understudy.model.consistency import find_forbidden_cells
from understudy.model.estimate import estimate
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.progress import Progress, silent

Array = NDArray[np.float64]


# Models of a tree

CLOSE, COARSE = 1e-5, 5e-4
"""Relative tolerance of the fit: for small models, whose steps cost little, and for the largest."""
_SMALL_CELLS = 1 << 16


def fit_tree(
    domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None, progress: Progress = silent
) -> GraphicalModel:
    """Fit the graphical model of tables that are little more than a tree, as closely as its size allows.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns.
        measurements: tables, possibly re-expressed by `compress`.
        total: the number of rows, if public.
        progress: called with each step.
    """
    cells = JunctionTree.of(domain, [m.clique for m in measurements]).cells
    tolerance = min(COARSE, CLOSE * max(1.0, cells / _SMALL_CELLS) ** 2)
    start = start_tree(domain, measurements, total=total)
    return estimate(domain, measurements, total=total, warm_start=start, tolerance=tolerance, progress=progress)


def start_tree(domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None) -> GraphicalModel:
    """Fit tables that form a tree directly; for other tables the model is only a starting point.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; a column without a measurement is uniform.
        measurements: tables, possibly re-expressed by `compress`; those with other queries are ignored.
        total: the number of rows, if public.
    """
    measured = average_measurements(domain, measurements)
    tables = nearest_tables(domain, measured, estimate_rows(measured) if total is None else total)
    potentials: dict[Clique, NDArray[np.float64]] = {}
    seen: set[str] = set()
    while clique := _next_clique(tables, seen):
        table = tables.pop(clique)
        fresh = tuple(axis for axis, column in enumerate(clique) if column not in seen)
        potentials[clique] = np.log(table / table.sum(axis=fresh, keepdims=True))
        seen.update(clique)
    return GraphicalModel(domain, potentials or {(): np.zeros(())}, total=1.0)


def _next_clique(tables: dict[Clique, NDArray[np.float64]], seen: set[str]) -> Clique | None:
    """Return the next table to multiply: most columns known already, then fewest new ones; None at the end."""
    useful = [clique for clique in tables if not seen.issuperset(clique)]
    known = {clique: len(seen.intersection(clique)) for clique in useful}
    return max(useful, key=lambda clique: (known[clique], known[clique] - len(clique)), default=None)


# Measured tables: one for each clique, with values and precisions


@dataclass(frozen=True)
class MeasuredTable:
    """All measurements of one clique as one noisy table, its columns in the domain's order.

    Attributes:
        values: the cells.
        precision: 1/variance of each cell; a single number (with all axes of length 1) if it is the same for all.
    """

    values: Array
    precision: Array

    @property
    def rows(self) -> tuple[float, float]:
        """The number of rows implied by this table, and its variance."""
        variance = np.broadcast_to(1.0 / self.precision, self.values.shape)
        return float(self.values.sum()), float(variance.sum())


def average_measurements(domain: Domain, measurements: Sequence[Measurement]) -> dict[Clique, MeasuredTable]:
    """Average the measurements of each clique by precision; the columns are in the domain's order.

    Re-expressed measurements are included; measurements with other queries are left out.
    """
    found: dict[Clique, list[tuple[Array, Array]]] = {}
    for measurement in measurements:
        if measurement.query is None or isinstance(measurement.query, Scaling):
            clique, values, precision = _read_measurement(domain, measurement)
            found.setdefault(clique, []).append((values, precision))
    return {clique: MeasuredTable(*weighted_mean(tables)) for clique, tables in found.items()}


def _read_measurement(domain: Domain, measurement: Measurement) -> tuple[Clique, Array, Array]:
    measurement.check(domain)
    values, precision = np.asarray(measurement.values, np.float64), np.full(1, measurement.sigma**-2)
    if isinstance(measurement.query, Scaling):
        values, precision = values / measurement.query.factors, precision * measurement.query.factors**2
    clique = tuple(column for column in domain if column in measurement.clique)
    shape, order = domain.shape(measurement.clique), [measurement.clique.index(column) for column in clique]
    values = values.reshape(shape).transpose(order)
    precision = precision.reshape(shape if len(precision) > 1 else [1] * len(shape)).transpose(order)
    return clique, values, precision


def estimate_rows(tables: Mapping[Clique, MeasuredTable]) -> float:
    """Estimate the number of rows by the precision-weighted mean of the tables' sums; at least 1."""
    found = [(rows, 1.0 / variance) for rows, variance in (table.rows for table in tables.values())]
    return max(1.0, weighted_mean(found)[0]) if found else 1.0


# Single columns, in closed form


def fit_one_ways(
    domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None
) -> tuple[dict[str, Array], float]:
    """Fit each column by itself: non-negative counts with one common sum, nearest to the measurements.

    Nearest is precision-weighted least squares. A column without a measurement is uniform. The result is exact, where
    `estimate` takes hundreds of steps: single columns share nothing but the number of rows.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns.
        measurements: tables of single columns, possibly re-expressed by `compress`; others are ignored.
        total: the number of rows if public; else the precision-weighted mean of the columns' sums.

    Returns:
        The counts of each column, and their common sum.

    >>> ages = Measurement(("age",), np.array([50, 2, 40, -4]), 2.0)
    >>> counts, rows = fit_one_ways(Domain({"age": 4, "sex": 2}), [ages])
    >>> counts["age"].round(3).tolist(), counts["sex"].tolist(), rows
    ([48.667, 0.667, 38.667, 0.0], [44.0, 44.0], 88.0)
    """
    tables = average_measurements(domain, [m for m in measurements if len(m.clique) == 1])
    rows = float(total) if total is not None else estimate_rows(tables)
    fitted = {column: np.full(size, rows / size) for column, size in domain.items()}
    for (column,), table in tables.items():
        fitted[column] = nearest_counts(table.values, np.broadcast_to(table.precision, table.values.shape), rows)
    return fitted, rows


def nearest_counts(values: Array, precision: Array, total: float) -> Array:
    """Find the nearest non-negative vector with this sum, by weighted squares: max(0, value - shift / precision).

    >>> nearest_counts(np.array([5.0, 3.0, -2.0]), np.array([1.0, 2.0, 1.0]), 5.0).tolist()
    [3.0, 2.0, 0.0]
    """
    order = np.argsort(-values * precision, kind="stable")
    ordered, spread = values[order], 1.0 / precision[order]
    shifts = (np.cumsum(ordered) - total) / np.cumsum(spread)
    kept = np.flatnonzero(ordered > shifts * spread)
    shift = shifts[kept[-1]] if len(kept) else shifts[0]
    result: Array = np.maximum(values - shift / precision, 0.0)
    return result


# Nearest consistent tables: Newton's method on the dual

_CLOSE = 1e-5  # standard deviations: how far apart linked margins may stay
_MOST_STEPS, _MOST_HALVINGS = 50, 20
_GAIN = 1e-6  # of the loss: stop at steps that gain less; estimation does the rest
_ROUGH = 0.1  # relative error of the linear systems in the first steps
_EMPTY_PART = 1e-7  # of the loss: what all empty cells may cost together
_FLAT = 1e-3  # standard deviations: an empty cell counts as at least this sure to be empty


def nearest_tables(domain: Domain, tables: Mapping[Clique, MeasuredTable], total: float) -> dict[Clique, Array]:
    """Find positive tables with this total and common margins, nearest to the given ones by weighted least squares.

    Margins agree along a tree of the largest cliques; if the cliques form a tree, they agree everywhere. Cells that
    the domain forbids within one clique are empty. Other empty cells get a negligible positive count.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: the columns.
        tables: as `average_measurements` gives them.
        total: the sum of every table.

    Returns:
        The tables of the largest cliques; tables of cliques within them are margins of these.

    >>> domain = Domain({"a": 2, "b": 2})
    >>> ab, a = np.array([[5.0, 3.0], [1.0, -3.0]]), np.array([8.0, 0.0])
    >>> tables = {("a", "b"): MeasuredTable(ab, np.ones((2, 2))), ("a",): MeasuredTable(a, np.ones(2))}
    >>> nearest_tables(domain, tables, 8.0)[("a", "b")].round(2).tolist()
    [[4.86, 2.86], [0.29, 0.0]]
    """
    parts, aims = _link_tables(domain, tables, total)
    prices, loss = _solve_dual(list(parts.values()), aims)
    cells = sum(part.table.values.size for part in parts.values())
    return {clique: part.positive(prices, _EMPTY_PART * loss / cells) for clique, part in parts.items() if part.bounded}


@dataclass(frozen=True)
class _DualTable:
    """One table of the problem. Given the prices of its links (the dual variables), its cells have a closed form."""

    table: MeasuredTable
    bounded: bool
    barred: NDArray[np.bool_] | None
    ends: list[End]

    @cached_property
    def spread(self) -> Array:
        spread = 1.0 / self.table.precision
        return spread if self.barred is None else np.where(self.barred, 0.0, spread)

    @cached_property
    def values(self) -> Array:
        return self.table.values if self.barred is None else np.where(self.barred, 0.0, self.table.values)

    def cells(self, prices: Array) -> Array:
        free: Array = self.values - self.spread * add_prices(self.ends, prices)
        return np.maximum(free, 0.0, out=free) if self.bounded else free

    def active(self, cells: Array) -> Array:
        """Return how far each cell moves for a unit change of its price; 0 for empty cells."""
        return np.where(cells > 0.0, self.spread, 0.0) if self.bounded else self.spread

    def loss(self, cells: Array) -> float:
        off = cells - self.values
        off *= off
        off *= self.table.precision
        return 0.5 * float(off.sum())

    def positive(self, prices: Array, afford: float) -> Array:
        """Return the cells, each empty one with a count that costs `afford`: the surer it is empty, the smaller."""
        cells = self.cells(prices)
        sure = add_prices(self.ends, prices) - self.table.precision * self.table.values
        sure = np.maximum(sure, _FLAT * np.sqrt(self.table.precision), out=sure)
        if self.barred is not None:
            sure[self.barred] = sure.max() / _FLAT
        return np.where(cells > 0.0, cells, afford / sure)


def _solve_dual(parts: list[_DualTable], aims: Array) -> tuple[Array, float]:
    """Solve the dual problem; returns the price of each link at the optimum, and the loss there.

    The dual is concave and piecewise quadratic and takes a few steps of Newton's method, the first as if cells could be
    negative.
    """
    spreads = [part.spread for part in parts]
    diagonal = _add_all_margins(parts, spreads, len(aims), 2)
    whole = np.where(diagonal == 0.0, 1.0, diagonal)
    coupling = Coupling([(part.table.values.shape, part.ends) for part in parts])
    broken = _add_all_margins(parts, [part.values for part in parts], len(aims)) - aims
    prices = coupling.step(spreads, diagonal, whole, broken, _ROUGH / max(1.0, _largest_violation(broken, whole)))
    cells = [part.cells(prices) for part in parts]
    worth = _dual_objective(parts, cells, prices, aims)
    for _ in range(_MOST_STEPS):
        broken = _add_all_margins(parts, cells, len(aims)) - aims
        far = _largest_violation(broken, whole)
        if far <= _CLOSE:
            break
        active = [part.active(table) for part, table in zip(parts, cells, strict=True)]
        diagonal = _add_all_margins(parts, active, len(aims), 2)
        move = coupling.step(active, diagonal, whole, broken, _ROUGH * min(1.0, 10.0 * far))
        for size in 0.5 ** np.arange(_MOST_HALVINGS):
            trial = prices + size * move
            cells = [part.cells(trial) for part in parts]
            found = _dual_objective(parts, cells, trial, aims)
            if found >= worth + 1e-4 * size * float(broken @ move):
                break
        else:
            break
        gained, prices, worth = found - worth, trial, found
        if gained <= _GAIN * worth:
            break
    return prices, max(worth, 1.0)


def _largest_violation(broken: Array, whole: Array) -> float:
    """Return the largest violation of a link, in standard deviations."""
    return float(np.abs(broken * whole**-0.5).max(initial=0.0))


def _dual_objective(parts: list[_DualTable], cells: list[Array], prices: Array, aims: Array) -> float:
    """Return the dual objective."""
    broken = _add_all_margins(parts, cells, len(aims)) - aims
    return sum(part.loss(table) for part, table in zip(parts, cells, strict=True)) + float(prices @ broken)


def _add_all_margins(parts: list[_DualTable], cells: list[Array], links: int, power: int = 1) -> Array:
    out = np.zeros(links)
    for part, table in zip(parts, cells, strict=True):
        add_margins(part.ends, np.broadcast_to(table, part.table.values.shape), out, power)
    return out


def _link_tables(
    domain: Domain, tables: Mapping[Clique, MeasuredTable], total: float
) -> tuple[dict[Clique, _DualTable], Array]:
    """Link the tables; returns them with what the margins of each link must add up to: 0, or the total."""
    largest = [clique for clique in tables if not any(set(clique) < set(other) for other in tables)]
    parts = {
        clique: _DualTable(
            table, clique in largest, find_forbidden_cells(clique, domain.shape(clique), domain.forbidden), []
        )
        for clique, table in tables.items()
    }
    aims: list[Array] = []
    place = 0
    for onto, ends in _links(tables, largest):
        where = slice(place, place := place + domain.cells(onto))
        aims.append(np.full(domain.cells(onto), 0.0 if len(ends) > 1 else total))
        for clique, sign in zip(ends, (1.0, -1.0), strict=False):
            shape = tuple(domain[column] if column in onto else 1 for column in clique)
            summed = tuple(axis for axis, column in enumerate(clique) if column not in onto)
            parts[clique].ends.append(End(where, shape, summed, sign))
    return parts, np.concatenate(aims) if aims else np.zeros(0)


def _links(
    tables: Mapping[Clique, MeasuredTable], largest: list[Clique]
) -> Iterator[tuple[Clique, tuple[Clique, ...]]]:
    """Yield the links: a margin with the two tables that must share it, and for the total one table of each tree."""
    group = {clique: number for number, clique in enumerate(largest)}
    linked: set[tuple[Clique, Clique]] = set()
    shared = [(tuple(c for c in one if c in other), one, other) for one, other in combinations(largest, 2)]
    for onto, one, other in sorted((link for link in shared if link[0]), key=lambda link: -len(link[0])):
        if group[one] == group[other]:
            continue
        group = {clique: group[one] if number == group[other] else number for clique, number in group.items()}
        if onto not in tables:
            yield onto, (one, other)
            continue
        for clique in (one, other):
            if (clique, onto) not in linked:
                linked.add((clique, onto))
                yield onto, (clique, onto)
    done = {*largest, *(onto for _, onto in linked)}
    for onto in (clique for clique in tables if clique not in done):
        yield onto, (next(clique for clique in largest if set(onto) < set(clique)), onto)
    for clique in {group[clique]: clique for clique in largest}.values():
        yield (), (clique,)


# The linear system of a Newton step

_LARGE, _FEW = 2048, 2  # a table with more cells and more link ends would fill the matrix: it is applied directly
_MOST_INNER = 100  # steps of conjugate gradients
_SINGULAR = 1e-10  # relative to the diagonal without empty cells


@dataclass(frozen=True)
class End:
    """One side of a link: a margin of a table that must equal the margin of another table, or the total.

    Attributes:
        prices: the place of the link's cells among those of all links.
        shape: the shape of the margin, with axes of length 1 for columns that are summed out.
        summed: the axes of the table that are summed out.
        sign: 1 or -1: whether the margin is added to the link or subtracted.
    """

    prices: slice
    shape: tuple[int, ...]
    summed: tuple[int, ...]
    sign: float


def add_prices(ends: Sequence[End], prices: Array) -> Array:
    """Add up the prices of the links at a table for each of its cells; the result can be broadcast."""
    total = np.zeros(())
    for end in ends:
        price = prices[end.prices].reshape(end.shape)
        total = total + price if end.sign > 0.0 else total - price
    return total


def add_margins(ends: Sequence[End], cells: Array, out: Array, power: int = 1) -> None:
    """Add a table's margins to its links, multiplied by the sign of each end to this power."""
    for end in ends:
        margin = (np.add.reduce(cells, axis=end.summed) if end.summed else cells).reshape(-1)
        if end.sign**power > 0.0:
            out[end.prices] += margin
        else:
            out[end.prices] -= margin


class Coupling:
    """The matrix of a Newton step: how cells of links are coupled by the table cells that they share.

    Args:
        tables: the shape of each table, and its link ends.
    """

    def __init__(self, tables: Sequence[tuple[tuple[int, ...], Sequence[End]]]) -> None:
        self._tables = tables
        sizes = [(math.prod(shape), len(ends)) for shape, ends in tables]
        self._large = [number for number, (cells, ends) in enumerate(sizes) if cells > _LARGE and ends > _FEW]
        self._blocks: list[tuple[int, tuple[int, ...], tuple[int, ...], float]] = []
        rows, columns = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for number, (shape, ends) in enumerate(tables):
            for one, other in combinations(ends, 2) if number not in self._large else ():
                lost = tuple(axis for axis in one.summed if axis in other.summed)
                block = tuple(1 if axis in lost else size for axis, size in enumerate(shape))
                self._blocks.append((number, shape, lost, one.sign * other.sign))
                rows.append(np.broadcast_to(_places(one), block).ravel())
                columns.append(np.broadcast_to(_places(other), block).ravel())
        self._rows, self._columns = np.concatenate(rows), np.concatenate(columns)

    def step(self, active: Sequence[Array], diagonal: Array, whole: Array, broken: Array, tolerance: float) -> Array:
        """Solve for the change of the prices by conjugate gradients.

        A link whose cells are all empty is treated as if none were.

        Args:
            active: for each table, how far its cells move for a unit change of their price.
            diagonal: the diagonal of the matrix.
            whole: the diagonal if no cell were empty.
            broken: the violation of each link.
            tolerance: relative error of the solution.
        """
        from understudy.model.kernels.descent import add_products

        values = self._values(active)
        more = np.where(diagonal > _SINGULAR * whole, _SINGULAR * whole, whole)
        diagonal, alone = diagonal + more, diagonal + more
        for number in self._large:
            shape, ends = self._tables[number]
            add_margins(ends, -np.broadcast_to(active[number], shape), alone, 2)
        move, residual = np.zeros(len(broken)), broken.copy()
        direction = scaled = residual / diagonal
        size = float(residual @ scaled)
        enough = tolerance**2 * size
        for _ in range(_MOST_INNER):
            if size <= enough:
                break
            image = alone * direction
            add_products(self._rows, self._columns, values, direction, image)
            for number in self._large:
                shape, ends = self._tables[number]
                add_margins(ends, np.broadcast_to(active[number] * add_prices(ends, direction), shape), image)
            step = size / float(direction @ image)
            move += step * direction
            residual -= step * image
            scaled = residual / diagonal
            size, before = float(residual @ scaled), size
            direction = scaled + size / before * direction
        return move

    def _values(self, active: Sequence[Array]) -> Array:
        """Return the off-diagonal entries of the matrix, in the order of `_rows` and `_columns`."""
        out, place = np.empty(len(self._rows)), 0
        for number, shape, lost, sign in self._blocks:
            block = np.add.reduce(np.broadcast_to(active[number], shape), axis=lost) if lost else active[number]
            cells = np.broadcast_to(block, [size for axis, size in enumerate(shape) if axis not in lost])
            np.multiply(cells.reshape(-1), sign, out=out[place : place + cells.size])
            place += cells.size
        return out


def _places(end: End) -> NDArray[np.int32]:
    return np.arange(end.prices.start, end.prices.stop, dtype=np.int32).reshape(end.shape)
