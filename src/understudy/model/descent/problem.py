"""What is to be estimated: measurements as one vector of targets with weights, over the tables of a propagation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement
from understudy.model.descent.least_squares import MeasuredClique, consistent_tables
from understudy.model.descent.precision import precision_for
from understudy.model.junction_tree import JunctionTree
from understudy.model.kernels.arguments import Weights
from understudy.model.propagate import Propagation
from understudy.query import Query, Reordered

Vector: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = NDArray[np.floating[Any]]  # in single or double precision


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
            so are the unknowns, where rounding is nothing beside the noise.
        weights: 1/variance of each target.
        constant: the part of the loss that no distribution can change.
        general: for each general query its table, its answers' place, and the query.
        forbidden: positions of the cells of maximal tables that cannot occur.
        nothing: a loss that is as good as none, given the precision.
        logs: work in the log domain throughout.
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
        """Where `answers` puts its results; every call writes over it."""
        return self.propagation.room

    def new_unknowns(self) -> Numbers:
        """Room for `x`, all 0."""
        return np.zeros_like(self.targets)

    def answers(self, x: Numbers, *, moved: Callable[[Vector], None] | None = None, logs: bool = False) -> Vector:
        """The model's answers, in the room: valid until the next call.

        Args:
            x: the unknowns.
            moved: changes a copy of them in double precision, whose answers are wanted then.
            logs: work in the log domain from the start.
        """
        marginals = self.propagation.marginals(
            partial(self._write_potentials, x, moved), self.total, forbidden=self.forbidden, logs=logs or self.logs
        )
        for table, place, query in self.general:
            self.room[place] = query @ marginals[self.propagation.slice_of(table)]
        return self.room

    def folded(self, x: Numbers) -> Vector:
        """The potentials of the maximal tables that have the distribution of `x`: valid until the next call."""
        return self.propagation.folded(partial(self._write_potentials, x, None))

    def loss(self, answers: Vector) -> float:
        """Half the sum of squared residuals in units of the noise: minus the log-likelihood of Gaussian noise."""
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
    """Merge the measurements of each clique by precision and lay everything out as vectors.

    The measurements are read where they are: no more than one table of them is copied at a time.
    """
    more = sum(len(m.values) for m in measurements if m.query is not None)
    propagation = Propagation(tree, [*(m.clique for m in measurements), *forbidden], more=more, beliefs=False)
    numbers = {clique: i for i, clique in enumerate(propagation.tables)}
    tables = _tables(propagation, [m for m in measurements if m.query is None])
    precision, nothing = precision_for(measurements, tolerance)
    targets = np.zeros(propagation.size + more, precision)
    weights, constant = np.zeros(len(numbers)), 0.0
    for clique, fitted in consistent_tables(tree.domain, tables, total):
        targets[propagation.slice_of(numbers[clique])] = fitted.ravel()
        weights[numbers[clique]] = tables[clique].weight
        constant += tables[clique].loss(fitted)
    general: list[tuple[int, slice, Query]] = []
    place = propagation.size
    for m in measurements:
        if m.query is not None:
            query = _reordered(m.query, _permutation(tree.domain, m.clique, propagation))
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
        Weights(np.array(ends, np.int64), np.array(each), np.empty(0, np.uint8)),
        constant,
        general,
        _forbidden_cells(propagation, forbidden),
        nothing,
    )


def _tables(propagation: Propagation, measurements: Sequence[Measurement]) -> dict[Clique, MeasuredClique]:
    """What was measured of each clique, in the engine's order."""
    found: dict[Clique, MeasuredClique] = {}
    for m in measurements:
        clique = propagation.engine_order(m.clique)
        found.setdefault(clique, MeasuredClique(propagation.tree.domain, clique)).measurements.append(m)
    return found


def _permutation(domain: Domain, clique: Clique, propagation: Propagation) -> NDArray[np.int64]:
    """For each cell of a table in the engine's order, its place in the table as measured."""
    places = np.arange(domain.cells(clique)).reshape(domain.shape(clique))
    order = propagation.engine_order(clique)
    single = [column for column in clique if column not in order]
    return places.transpose([clique.index(column) for column in [*single, *order]]).ravel()


def _reordered(query: Query, places: NDArray[np.int64]) -> Query:
    """The query on cells in the engine's order."""
    if np.array_equal(places, np.arange(len(places))):
        return query
    return Reordered(query, places)


def _forbidden_cells(propagation: Propagation, forbidden: Mapping[Clique, NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Positions in the maximal tables that a forbidden cell of some clique rules out."""
    domain = propagation.tree.domain
    ruled_out = np.zeros(int(propagation.starts[propagation.factors]), bool)
    for clique, mask in forbidden.items():
        wanted = propagation.engine_order(clique)
        flat = np.asarray(mask, bool).ravel()[_permutation(domain, clique, propagation)]
        table = next(t for t in range(propagation.factors) if set(wanted) <= set(propagation.tables[t]))
        columns = propagation.tables[table]
        broadcast = flat.reshape([domain[column] if column in wanted else 1 for column in columns])
        whole = ruled_out[propagation.slice_of(table)].reshape(domain.shape(columns))
        whole |= broadcast
    return np.flatnonzero(ruled_out)
