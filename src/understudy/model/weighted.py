"""Weighted rows: public rows and rows of a private model, weighted so that their marginals fit the measurements.

The weights are p_i proportional to q_i exp(sum over measured cliques r of theta_r[cell of row i in r]): of all
distributions over these rows that fit as well, the one nearest to the prior weights q. See docs/decisions/public.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import ReleaseError
from understudy.measurement import Measurement, Scaling
from understudy.model.protocol import DAMAGED, Model, cannot_occur, read_chances

Array = NDArray[np.float64]
Codes = Mapping[str, NDArray[Any]]

_STEPS = 200  # of the descent; further steps would fit the noise
_HALVINGS = 30  # of a step that would raise the loss
_ENOUGH = 1e-4  # of the loss: a step that lowers it by less is the last


class WeightedRows(Model):
    """A distribution over given rows.

    Attributes:
        domain: the columns.
        total: the estimated number of rows.
    """

    kind: ClassVar[str] = "rows"

    def __init__(self, domain: Domain, total: float, codes: Codes, weights: Array) -> None:
        self.domain = domain
        self.total = float(total)
        self._codes = {column: codes[column] for column in domain}
        self._weights = weights / weights.sum()

    def __repr__(self) -> str:
        return f"WeightedRows({len(self.domain)} columns, {len(self._weights)} rows)"

    @property
    def effective_rows(self) -> float:
        """The effective number of rows, 1 / sum of squared weights; small if the rows fit badly."""
        return float(1 / np.square(self._weights).sum())

    def project(self, clique: Clique) -> Array:
        """Expected counts of a clique's cells, its axes in the clique's order."""
        clique = self.domain.check(clique)
        cells = find_cells(self._codes, self.domain, clique, len(self._weights))
        counts = np.bincount(cells, self._weights, minlength=self.domain.cells(clique))
        return np.asarray(self.total * counts).reshape(self.domain.shape(clique))

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Draw rows systematically: each appears its expected number of times, rounded up or down, in random order."""
        ends = np.cumsum(self._weights) * rows
        drawn = np.searchsorted(ends, np.arange(rows) + rng.random(), side="right")
        chosen = rng.permutation(np.minimum(drawn, len(ends) - 1))
        return {column: codes[chosen] for column, codes in self._codes.items()}

    def condition(self, where: Mapping[str, int | Array]) -> WeightedRows:
        """Return the model given what is known about some columns; see `Model.condition`."""
        weights = self._weights
        for column, chances in read_chances(self.domain, where).items():
            weights = weights * chances[self._codes[column]]
        if not weights.sum() > 0:
            raise cannot_occur(where)
        kept = np.flatnonzero(weights)
        codes = {column: array[kept] for column, array in self._codes.items()}
        return WeightedRows(self.domain, self.total * float(weights.sum()), codes, weights[kept])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return plain arrays: the codes column by column, the weights, and the total."""
        widest = np.min_scalar_type(max(self.domain.values()) - 1)
        codes = np.concatenate([array.astype(widest) for array in self._codes.values()])
        return {"codes": codes, "weights": self._weights, "total": np.array(self.total)}

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the model that `to_arrays` wrote.

        Raises:
            ReleaseError: if the arrays do not fit the domain.
        """
        damaged = ReleaseError(DAMAGED)
        codes, weights = np.asarray(arrays.get("codes", ())), np.asarray(arrays.get("weights", ()), np.float64)
        total = np.asarray(arrays.get("total", np.nan), np.float64)
        if weights.ndim != 1 or codes.shape != (len(domain) * len(weights),) or codes.dtype.kind not in "iu":
            raise damaged
        if total.shape != () or not np.isfinite(total) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
            raise damaged
        parts = dict(zip(domain, np.split(codes, len(domain)), strict=True))
        if any(part.min() < 0 or part.max() >= domain[column] for column, part in parts.items()):
            raise damaged
        return cls(domain, float(total), parts, weights)


def find_cells(codes: Codes, domain: Domain, clique: Clique, rows: int) -> NDArray[np.int64]:
    """Return for each row the number of its cell in the clique."""
    cells = np.zeros(rows, np.int64)
    for column in clique:
        cells = cells * domain[column] + codes[column]
    return cells


def find_possible(domain: Domain, codes: Codes, rows: int) -> NDArray[np.bool_]:
    """Return which rows satisfy all rules of the domain."""
    possible = np.ones(rows, np.bool_)
    for clique, forbidden in domain.forbidden.items():
        possible &= ~forbidden.reshape(-1)[find_cells(codes, domain, clique, rows)]
    return possible


def tilt(
    domain: Domain,
    codes: Codes,
    prior: Array,
    measurements: Sequence[Measurement],
    *,
    total: float,
    trust: float = 0.0,
) -> WeightedRows:
    """Weight rows so that their marginals fit measurements, as near to the prior weights as that allows.

    Minimises sum over r of |N M_r(p) - y_r|^2 / (2 sigma_r^2) + trust KL(p | q) by exponentiated gradient steps from
    the prior q, each halved until it lowers the loss.

    **Privacy.** Post-processing: it reads public rows, rows of a model, and measurements.

    Args:
        domain: the columns, with merged codes.
        codes: the rows.
        prior: their weights before tilting; they need not sum to 1.
        measurements: noisy marginals over the domain; those with another query than a scaling of cells are left out.
        total: N, the number of rows that the counts are about.
        trust: the number of rows of which the prior is a sample; with 0 only the measurements count.
    """
    rows = len(prior)
    terms = [
        _Term(m, find_cells(codes, domain, m.clique, rows), domain.cells(m.clique))
        for m in measurements
        if m.query is None or isinstance(m.query, Scaling)
    ]
    start = log = np.log(prior / prior.sum())
    weights = _normalise(log)

    def compare() -> tuple[list[Array], float]:
        """Return the residuals of the weights, and the loss."""
        found = [term.residual(weights, total) for term in terms]
        apart = trust * float(weights @ (np.log(np.maximum(weights, 1e-300)) - start))
        return found, sum(float(residual @ residual) for residual in found) / 2 + apart

    residuals, loss = compare()
    step = 1.0 / max(total**2 * sum(term.curvature for term in terms), 1e-300)
    for _ in range(_STEPS if terms else 0):
        gradient = trust * (log - start)
        for term, residual in zip(terms, residuals, strict=True):
            gradient += total * term.gradient(residual)[term.cells]
        before = loss
        for _ in range(_HALVINGS):
            moved = log - step * gradient
            weights = _normalise(moved)
            residuals, loss = compare()
            if loss <= before:
                break
            step /= 2
        if not loss <= before:  # even a tiny step does not lower the loss: the weights before it are optimal
            weights = _normalise(log)
            break
        log, step = moved, step * 2
        if before - loss < _ENOUGH * before:
            break
    return WeightedRows(domain, total, codes, weights)


class _Term:
    """One measurement of the loss: the cells of the rows in its table, and its noise."""

    def __init__(self, measurement: Measurement, cells: NDArray[np.int64], size: int) -> None:
        self.cells, self._size = cells, size
        self._values, self._sigma = np.asarray(measurement.values, np.float64), measurement.sigma
        self._scale = measurement.query.factors if isinstance(measurement.query, Scaling) else np.ones(size)
        self.curvature = float(np.square(self._scale).max()) / self._sigma**2

    def residual(self, weights: Array, total: float) -> Array:
        counts = total * np.bincount(self.cells, weights, minlength=self._size)
        return np.asarray((self._scale * counts - self._values) / self._sigma)

    def gradient(self, residual: Array) -> Array:
        return np.asarray(self._scale * residual / self._sigma)


def _normalise(log: Array) -> Array:
    weights = np.exp(log - log.max())
    return np.asarray(weights / weights.sum())
