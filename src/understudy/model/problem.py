"""The estimation problem: measurements as one vector of targets with weights, over the tables of a propagation.

`make_problem` merges the measurements of each clique, makes them consistent by closed-form least squares, and lays
targets, weights and general queries out as vectors; `descent.py` minimises the loss. `start_cold` and
`start_warm` are where the descent starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError
from understudy.measurement import Measurement, PermutedQuery, Query, weighted_mean
from understudy.model.device import make_propagation
from understudy.model.junction_tree import JunctionTree
from understudy.model.kernels.arguments import Weights
from understudy.model.propagate import Propagation

if TYPE_CHECKING:
    from understudy.model.graphical import GraphicalModel

Vector: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = NDArray[np.floating[Any]]
"""A vector in single or double precision."""


# The problem


@dataclass
class Problem:
    """Minimise `constant + 1/2 sum weights (answers - targets)^2` over the distributions of a propagation.

    The answers are all cells of the propagation's tables, then those of the general queries; cells that were not
    measured have weight 0. The unknown `x` has one entry for each answer: the potentials are `x` on the cells plus
    `query.T @ x` for each general query.

    Attributes:
        propagation: the marginal oracle.
        total: the number of rows.
        targets: what was measured; identity measurements made consistent with one another. In single precision, and
            so are the unknowns, if rounding is negligible compared to the noise.
        weights: 1/variance of each target.
        constant: the part of the loss that no distribution can change.
        general: for each general query its table, its answers' place, and the query.
        forbidden: positions of the cells of maximal tables that cannot occur.
        nothing: a loss that counts as 0, given the precision.
        logs: whether to work in the log domain throughout.
    """

    propagation: Propagation
    total: float
    targets: Numbers
    weights: Weights
    constant: float
    general: list[tuple[int, slice, Query]]
    forbidden: NDArray[np.int64]
    nothing: float
    logs: bool = False

    @property
    def room(self) -> Vector:
        """The array into which `answers` writes its results; every call overwrites it."""
        return self.propagation.room

    def new_unknowns(self) -> Numbers:
        """Return a new vector of unknowns `x`, all 0."""
        return np.zeros_like(self.targets)

    def answers(self, x: Numbers, *, moved: Callable[[Vector], None] | None = None, logs: bool = False) -> Vector:
        """Compute the model's answers in `room`, valid until the next call.

        Args:
            x: the unknowns.
            moved: a function that changes a double-precision copy of `x` before the answers are computed.
            logs: whether to work in the log domain.
        """
        marginals = self.propagation.marginals(
            partial(self._write_potentials, x, moved), self.total, forbidden=self.forbidden, logs=logs or self.logs
        )
        for table, place, query in self.general:
            self.room[place] = query @ marginals[self.propagation.slice_of(table)]
        return self.room

    def fold_potentials(self, x: Numbers) -> Vector:
        """Return potentials of the maximal tables with the distribution of `x`, valid until the next call."""
        return self.propagation.fold_potentials(partial(self._write_potentials, x, None))

    def loss(self, answers: Vector) -> float:
        """Return half the sum of squared residuals in units of the noise: minus the log-likelihood."""
        from understudy.model.kernels.descent import half_squares

        return self.constant + float(half_squares(self.weights, answers, self.targets))

    def _write_potentials(self, x: Numbers, moved: Callable[[Vector], None] | None, out: Vector) -> None:
        out[:] = x
        if moved is not None:
            moved(out)
        for table, place, query in self.general:
            out[self.propagation.slice_of(table)] += query.T @ out[place]


def make_problem(
    tree: JunctionTree,
    measurements: Sequence[Measurement],
    total: float,
    forbidden: Mapping[Clique, NDArray[np.bool_]],
    *,
    tolerance: float = 1e-3,
) -> Problem:
    """Make the problem of measurements: average those of each clique by precision and lay all out as vectors.

    At most one table of the measurements is copied at a time.
    """
    more = sum(len(m.values) for m in measurements if m.query is not None)
    propagation = make_propagation(tree, [*(m.clique for m in measurements), *forbidden], more=more)
    numbers = {clique: i for i, clique in enumerate(propagation.tables)}
    tables = _group_by_clique(propagation, [m for m in measurements if m.query is None])
    precision, nothing = choose_precision(measurements, tolerance)
    targets = np.zeros(propagation.size + more, precision)
    weights, constant = np.zeros(len(numbers)), 0.0
    for clique, fitted in reconcile_tables(tree.domain, tables, total):
        targets[propagation.slice_of(numbers[clique])] = fitted.ravel()
        weights[numbers[clique]] = tables[clique].weight
        constant += tables[clique].loss(fitted)
    general: list[tuple[int, slice, Query]] = []
    place = propagation.size
    for m in measurements:
        if m.query is not None:
            query = _reorder_query(m.query, _find_permutation(tree.domain, m.clique, propagation))
            where = slice(place, place + len(m.values))
            general.append((numbers[propagation.engine_order(m.clique)], where, query))
            targets[where] = m.values
            place = where.stop
    each = [*weights, *(m.sigma**-2 for m in measurements if m.query is not None)]
    ends = [*propagation.starts[1:], *(where.stop for _, where, _ in general)]
    return Problem(
        propagation,
        total,
        targets,
        Weights.of(np.array(ends, np.int64), np.array(each)),
        constant,
        general,
        _find_forbidden_cells(propagation, forbidden),
        nothing,
    )


def _group_by_clique(propagation: Propagation, measurements: Sequence[Measurement]) -> dict[Clique, MeasuredClique]:
    """Group the measurements by clique, in the engine's column order."""
    found: dict[Clique, MeasuredClique] = {}
    for m in measurements:
        clique = propagation.engine_order(m.clique)
        found.setdefault(clique, MeasuredClique(propagation.tree.domain, clique)).measurements.append(m)
    return found


def _find_permutation(domain: Domain, clique: Clique, propagation: Propagation) -> NDArray[np.int64]:
    """For each cell of a table in the engine's order, return its place in the table as measured."""
    places = np.arange(domain.cells(clique)).reshape(domain.shape(clique))
    order = propagation.engine_order(clique)
    single = [column for column in clique if column not in order]
    return places.transpose([clique.index(column) for column in [*single, *order]]).ravel()


def _reorder_query(query: Query, places: NDArray[np.int64]) -> Query:
    """Return the query on cells in the engine's order."""
    if np.array_equal(places, np.arange(len(places))):
        return query
    return PermutedQuery(query, places)


def _find_forbidden_cells(propagation: Propagation, forbidden: Mapping[Clique, NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Return the positions in the maximal tables of cells that a rule or mask forbids."""
    domain = propagation.tree.domain
    ruled_out = np.zeros(int(propagation.starts[propagation.factors]), bool)
    for clique, mask in forbidden.items():
        wanted = propagation.engine_order(clique)
        flat = np.asarray(mask, bool).ravel()[_find_permutation(domain, clique, propagation)]
        table = next(t for t in range(propagation.factors) if set(wanted) <= set(propagation.tables[t]))
        columns = propagation.tables[table]
        broadcast = flat.reshape([domain[column] if column in wanted else 1 for column in columns])
        whole = ruled_out[propagation.slice_of(table)].reshape(domain.shape(columns))
        whole |= broadcast
    return np.flatnonzero(ruled_out)


# Precision: single precision halves the memory of targets and unknowns; the marginal oracle uses double precision

_STRONGEST = 4e5  # largest signal for single precision: counts in standard deviations over the root of the tolerance
_ROUGHEST = 1e-3  # larger tolerances count as this one
_NOTHING = 1e-9  # a loss below this, in squared standard deviations of the noise, counts as 0
_DIGITS = 1e6  # relative precision to which single precision is trusted
_WIDEST = 1e25  # largest sigma for single precision, which ends at 1e38


def choose_precision(measurements: Sequence[Measurement], tolerance: float) -> tuple[type[np.floating[Any]], float]:
    """Choose single precision, unless the signal is so strong that steps would be lost in rounding.

    The length of a step is limited by the largest count times weight; its effect on the unknowns of the noisiest table
    must be far above the last digit of a potential. Answers of general queries overlap, which makes steps shorter.

    Returns:
        The precision, and the loss that counts as 0 in it.
    """
    general = any(m.query is not None for m in measurements)
    widest = max((m.sigma for m in measurements), default=1.0)
    largest = max((float(m.values.max(initial=0)) / m.sigma**2 for m in measurements), default=0.0)
    signal = widest * largest
    if general or widest >= _WIDEST or signal > _STRONGEST * min(tolerance, _ROUGHEST) ** 0.5:
        return np.float64, _NOTHING
    return np.float32, max(_NOTHING, (signal / _DIGITS) ** 2)


# Consistent targets: closed-form least squares, before counts are made non-negative

_MOST_WORK = 2e8  # additions for splitting all tables


@dataclass
class MeasuredClique:
    """All identity measurements of one clique, without copying them.

    Attributes:
        domain: the sizes of the columns.
        clique: the columns in one common order; columns with a single code may be left out.
        measurements: of the same columns, in any order.
    """

    domain: Domain
    clique: Clique
    measurements: list[Measurement] = field(default_factory=list)

    @property
    def weight(self) -> float:
        """1/variance of the mean."""
        return sum(m.sigma**-2 for m in self.measurements)

    def mean(self) -> Vector:
        """Return the precision-weighted mean of the measurements: a new array, which the caller may overwrite."""
        fresh = ((np.array(self._values(m), np.float64), m.sigma**-2) for m in self.measurements)
        return np.asarray(weighted_mean(fresh)[0])

    def loss(self, table: Vector) -> float:
        """Return half the squared distance of a table from all measurements, in units of their noise."""
        squares = 0.0
        for m in self.measurements:
            away = np.asarray(table - self._values(m))
            squares += m.sigma**-2 * float(np.square(away, out=away).sum())
        return 0.5 * squares

    def _values(self, measurement: Measurement) -> NDArray[Any]:
        """Return a measurement's values with the axes in the order of `clique`."""
        clique = measurement.clique
        order = [clique.index(column) for column in self.clique]
        single = [axis for axis, column in enumerate(clique) if column not in self.clique]
        turned = measurement.values.reshape(self.domain.shape(clique)).transpose([*single, *order])
        return turned.reshape(self.domain.shape(self.clique))


def reconcile_tables(
    domain: Domain, tables: Mapping[Clique, MeasuredClique], total: float
) -> Iterator[tuple[Clique, Vector]]:
    """Find the tables that agree with one another and with the total, nearest by weighted least squares.

    Each table splits into one part for every subset of its columns (summed over the others, centred along its own);
    parts of different subsets are orthogonal, so the part of a subset is the weighted mean over the tables that
    have it. Minimising the distance to the result is the same as minimising the distance to the noisy tables.

    Args:
        domain: the sizes of the columns.
        tables: the measurements of each clique, with the columns of all cliques in one common order.
        total: what every table must add up to.

    Yields:
        Each clique with its table; the tables as measured if splitting them would cost too much.
    """
    if sum(2.0 ** len(clique) * domain.cells(clique) for clique in tables) > _MOST_WORK:
        yield from ((clique, table.mean()) for clique, table in tables.items())
        return
    sums: dict[Clique, Vector] = {}
    weights: dict[Clique, float] = {}
    for clique, table in tables.items():
        for subset, part in _split(table.mean(), clique).items():
            mine = table.weight * domain.cells(subset) / domain.cells(clique)
            part *= mine
            sums[subset] = np.add(sums[subset], part, out=part) if subset in sums else part
            weights[subset] = weights.get(subset, 0.0) + mine
    for subset, weight in weights.items():
        sums[subset] /= weight
    sums[()] = np.array(total)
    for clique in tables:
        yield clique, _join(sums, clique, domain)


def _split(table: Vector, clique: Clique) -> dict[Clique, Vector]:
    """Split a table into its part for every subset of its columns; overwrites the table."""
    parts: dict[Clique, Vector] = {(): table}
    for column in clique:
        longer: dict[Clique, Vector] = {}
        for subset, part in parts.items():
            summed = part.sum(axis=len(subset), keepdims=True)
            longer[subset] = summed.squeeze(axis=len(subset))
            part -= summed / part.shape[len(subset)]
            longer[(*subset, column)] = part
        parts = longer
    return parts


def _join(parts: Mapping[Clique, Vector], clique: Clique, domain: Domain) -> Vector:
    """Join parts to a table: the inverse of `_split`."""
    subsets: dict[Clique, Vector] = {}
    for mask in range(2 ** len(clique)):
        subset = tuple(column for i, column in enumerate(clique) if mask >> i & 1)
        subsets[subset] = parts[subset].copy()
    for column in reversed(clique):
        shorter: dict[Clique, Vector] = {}
        for subset, part in subsets.items():
            if column not in subset:
                shorter[subset] = subsets[(*subset, column)]
                shorter[subset] += np.expand_dims(part, len(subset)) / domain[column]
        subsets = shorter
    return subsets[()]


# Starting points: the measured one-way tables, or an earlier model

_DEEP, _DEEPEST = 300.0, 60.0  # potentials below -300 are cut off at -60


def start_cold(problem: Problem, out: Numbers) -> Numbers:
    """Write the cold start to `out`: independent columns with the measured one-way tables."""
    out[:] = 0.0
    _place_one_ways(problem, out, set())
    return out


def start_warm(problem: Problem, model: GraphicalModel) -> Numbers:
    """Return the warm start: an earlier model's potentials, and measured one-way tables for columns it lacks.

    Tables that the model does not contain are scaled to their measurements if that lowers the loss: one step then
    learns most of what a new measurement says.

    Raises:
        InputError: if the model has another domain.
    """
    if model.domain != problem.propagation.tree.domain:
        raise InputError("warm_start is a model of another domain; leave it out or use the same domain")
    out = problem.new_unknowns()
    covered: set[str] = set()
    for clique, values in model.factors():
        if _place(problem, out, clique, _cut_off(values)):
            covered |= set(clique)
    _place_one_ways(problem, out, covered)
    known = [set(clique) for clique, _ in model.factors()]
    maximal = enumerate(problem.propagation.tables[: problem.propagation.factors])
    _scale(problem, out, [t for t, columns in maximal if not any(set(columns) <= clique for clique in known)])
    return out


def _place(problem: Problem, out: Numbers, clique: Clique, values: Vector) -> bool:
    """Add potentials to the smallest table that contains their clique; False if no table does."""
    fitting = [t for t, columns in enumerate(problem.propagation.tables) if set(clique) <= set(columns)]
    if fitting:
        _add(problem, out, fitting[-1], clique, values)
    return bool(fitting)


def _place_one_ways(problem: Problem, out: Numbers, covered: set[str]) -> None:
    """Add the logarithms of each column's counts, taken from the smallest measured table with the column."""
    propagation, domain = problem.propagation, problem.propagation.tree.domain
    smallest = {column: t for t, columns in enumerate(propagation.tables) for column in columns}
    measured = {
        column: t for t, columns in enumerate(propagation.tables) if _is_measured(problem, t) for column in columns
    }
    for column, table in measured.items():
        if column not in covered:
            columns = propagation.tables[table]
            counts = problem.targets[propagation.slice_of(table)].reshape(domain.shape(columns))
            sums = counts.sum(axis=tuple(i for i, other in enumerate(columns) if other != column))
            _add(problem, out, smallest[column], (column,), np.log(np.maximum(sums, 1.0)))


def _scale(problem: Problem, out: Numbers, tables: list[int]) -> None:
    """Move the potentials of measured tables to where each table, taken alone, would be fitted.

    Half a sigma is added to the targets and to the answers, because counts below the noise say little.
    """
    places = [(problem.propagation.slice_of(t), problem.weights.each[t]) for t in tables if _is_measured(problem, t)]
    if not places:
        return
    before = [out[place].copy() for place, _ in places]
    answers = problem.answers(out)
    loss = problem.loss(answers)
    for place, weight in places:
        half = 0.5 / math.sqrt(weight)
        out[place] += np.log((np.maximum(problem.targets[place], 0.0) + half) / (answers[place] + half))
    if not problem.loss(problem.answers(out)) < loss:
        for (place, _), values in zip(places, before, strict=True):
            out[place] = values


def _cut_off(values: Vector) -> Vector:
    """Return potentials relative to the largest; if some are very low, all are cut off at a floor.

    Cutting changes the distribution slightly, but repeated warm starts would otherwise push cells down without end.
    """
    lowered = values - values.max()
    floor = -_DEEPEST if lowered[np.isfinite(lowered)].min() < -_DEEP else -_DEEP
    shallow: Vector = np.maximum(lowered, floor)
    return shallow


def _is_measured(problem: Problem, table: int) -> bool:
    return bool(problem.weights.each[table] > 0.0)


def _add(problem: Problem, out: Numbers, table: int, clique: Clique, values: Vector) -> None:
    propagation, domain = problem.propagation, problem.propagation.tree.domain
    columns = propagation.tables[table]
    target = out[propagation.slice_of(table)].reshape(domain.shape(columns))
    target += values.reshape([domain[column] if column in clique else 1 for column in columns])
