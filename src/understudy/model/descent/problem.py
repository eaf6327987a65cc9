"""What is to be estimated: measurements as one vector of targets with weights, over the tables of a propagation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement
from understudy.model.descent.least_squares import consistent_tables
from understudy.model.junction_tree import JunctionTree
from understudy.model.kernels.arguments import Weights
from understudy.model.propagate import Propagation
from understudy.query import Query, Reordered

Vector: TypeAlias = NDArray[np.float64]


@dataclass
class Problem:
    """Minimise `constant + 1/2 sum weights (answers - targets)^2` over the distributions of a propagation.

    The answers are all cells of the propagation's tables, then those of the general queries; cells that were not
    measured have weight 0. The unknown `x` has one entry for each answer: the potentials are `x` on the cells plus
    `query.T @ x` for each general query.

    Attributes:
        propagation: the marginal oracle.
        total: the number of rows.
        targets: what was measured; identity measurements made consistent with one another.
        weights: 1/variance of each target.
        constant: the part of the loss that no distribution can change.
        general: for each general query its table, its answers' place, and the query.
        forbidden: positions of the cells of maximal tables that cannot occur.
        logs: work in the log domain throughout.
    """

    propagation: Propagation
    total: float
    targets: Vector
    weights: Weights
    constant: float
    general: list[tuple[int, slice, Query]]
    forbidden: NDArray[np.int64]
    logs: bool = False

    @property
    def room(self) -> Vector:
        """Where `answers` puts its results; every call writes over it."""
        return self.propagation.room

    def potentials(self, x: Vector) -> Vector:
        """The potentials of all tables; a part of `x` where there are no general queries."""
        cells = x[: self.propagation.size]
        if not self.general:
            return cells
        out = cells.copy()
        for table, place, query in self.general:
            out[self.propagation.slice_of(table)] += query.T @ x[place]
        return out

    def answers(self, x: Vector, *, logs: bool = False) -> Vector:
        """The model's answers at `x`, in the room: valid until the next call."""
        marginals = self.propagation.marginals(
            self.potentials(x), self.total, forbidden=self.forbidden, logs=logs or self.logs
        )
        for table, place, query in self.general:
            self.room[place] = query @ marginals[self.propagation.slice_of(table)]
        return self.room

    def loss(self, answers: Vector) -> float:
        """Half the sum of squared residuals in units of the noise: minus the log-likelihood of Gaussian noise."""
        from understudy.model.kernels.descent import half_squares

        return self.constant + float(half_squares(self.weights, answers, self.targets))


def make_problem(
    tree: JunctionTree,
    measurements: Sequence[Measurement],
    total: float,
    forbidden: Mapping[Clique, NDArray[np.bool_]],
) -> Problem:
    """Merge the measurements of each clique by precision and lay everything out as vectors."""
    more = sum(len(m.values) for m in measurements if m.query is not None)
    propagation = Propagation(tree, [*(m.clique for m in measurements), *forbidden], more=more, beliefs=False)
    tables = {clique: i for i, clique in enumerate(propagation.tables)}
    merged, constant = _merged(propagation, [m for m in measurements if m.query is None])
    targets, weights = np.zeros(propagation.size + more), np.zeros(len(tables))
    for clique, fitted in consistent_tables(tree.domain, merged, total):
        values, weight = merged.pop(clique)
        targets[propagation.slice_of(tables[clique])] = fitted
        weights[tables[clique]] = weight
        constant += 0.5 * weight * float(np.square(fitted - values).sum())
    general: list[tuple[int, slice, Query]] = []
    place = propagation.size
    for m in measurements:
        if m.query is not None:
            query = _reordered(m.query, _permutation(tree.domain, m.clique, propagation))
            where = slice(place, place + len(m.values))
            general.append((tables[propagation.engine_order(m.clique)], where, query))
            targets[where] = m.values
            place = where.stop
    each = [*weights, *(m.sigma**-2 for m in measurements if m.query is not None)]
    ends = [*propagation.starts[1:], *(where.stop for _, where, _ in general)]
    return Problem(
        propagation,
        total,
        targets,
        Weights(np.array(ends, np.int64), np.array(each), np.empty(0, np.float32)),
        constant,
        general,
        _forbidden_cells(propagation, forbidden),
    )


def _merged(
    propagation: Propagation, measurements: Sequence[Measurement]
) -> tuple[dict[Clique, tuple[Vector, float]], float]:
    """One table and weight for each clique, in the engine's order; and the loss that merging leaves behind."""
    domain = propagation.tree.domain
    found: dict[Clique, list[tuple[Vector, float]]] = {}
    for m in measurements:
        clique = propagation.engine_order(m.clique)
        values = m.values.astype(np.float64)[_permutation(domain, m.clique, propagation)]
        found.setdefault(clique, []).append((values, m.sigma**-2))
    merged, left = {}, 0.0
    for clique, several in found.items():
        weight = sum(w for _, w in several)
        mean = sum((w * values for values, w in several[1:]), several[0][1] * several[0][0]) / weight
        left += 0.5 * sum(w * float(np.square(values - mean).sum()) for values, w in several)
        merged[clique] = mean, weight
    return merged, left


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
