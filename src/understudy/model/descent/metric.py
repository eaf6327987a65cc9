"""The metric of the descent: weights, with the stiffest directions shortened.

A step is limited by the largest eigenvalue of covariance times weights. A dozen eigenvalues stand far above the rest:
the main effects that many measured tables share, and the largest cells. Shortening the metric along their
eigenvectors allows steps several times as long, and hardly moves the minimum: where the descent comes to rest, the
residual has no part along a direction that the model can follow.

A stiff direction is in proportion to the counts, so nearly all of it lies on the few cells where most people are: on
one in 128 it has 98 to 99.9 % of its square. The search keeps to these.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.model.descent.problem import Numbers, Problem, Vector
from understudy.model.kernels.arguments import Basis, Directions, Weights

_DIFFERENCE = 1e-5  # of a potential, at a probe
_COARSER = 1e-4  # where the answers before it are known in single precision
_MORE_STEPS = 8
_FEW, _SHARE = 1024, 128  # cells that directions lie on: so many, or one in so many if that is more
_SETTLED = 0.3  # an eigenvalue counts as found when its error is below this part of it
_SHORTEST = 1 / 16  # eigenvalues are brought down to this part of the largest at most
_FURTHEST = 1e6  # that a step may move a potential: undoing a longer one would lose digits
_LONGEST = 0.5  # of a step's change of a potential, while shortening is trusted: eigenvalues hold nearby only


class Stride(NamedTuple):
    """How long a step is, and the two momenta: along the way so far, and over the plain step."""

    step: float
    along: float
    over: float


@dataclass
class Metric:
    """Weights, less `shortened` of each stiff direction; all of it as the oracle is near `x`.

    Attributes:
        weights: the diagonal.
        curvature: the largest eigenvalue of covariance times metric.
        stiff: directions, orthogonal in the inner product of the weights; their values are weighted already.
        shortened: how much of each direction is taken off.
    """

    weights: Weights
    curvature: float
    stiff: Directions
    shortened: Vector

    def measure(self, answers: Vector, targets: Numbers) -> tuple[float, Vector]:
        """Half the squared residual in this metric, and the residual's part along each stiff direction."""
        from understudy.model.kernels.descent import half_squares, parts

        found = np.empty(len(self.shortened))
        places = self.stiff.places
        parts(self.stiff.rows, answers[places] - targets[places], found)
        squares = half_squares(self.weights, answers, targets)
        return float(squares - 0.5 * np.sum(self.shortened * found * found)), found

    def descend(
        self, x: Numbers, beyond: NDArray[np.float32], answers: Vector, targets: Numbers, found: Vector, *, by: Stride
    ) -> None:
        """Move `x`, whose answers these are, one accelerated step; `found` is what `measure` told.

        `beyond` is how far the last such step went beyond a plain one, and afterwards how far this one did.
        """
        from understudy.model.kernels.descent import descend, subtract

        descend(x, beyond, self.weights, answers, targets, *by)
        if len(found):
            less, places = np.zeros(len(self.stiff.places)), self.stiff.places
            subtract(self.stiff.rows, by.step * self.shortened * found, less)
            x[places] -= (1.0 + by.along + by.over) * less
            beyond[places] -= (by.along + by.over) * less


def metric_at(problem: Problem, x: Numbers, weights: Weights, directions: int, *, enough: float = 0.0) -> Metric:
    """The metric of these weights at `x`, shortened along at most this many directions: Lanczos' method.

    The oracle's room must hold the answers at `x`, and does so again afterwards. Costs a call of the oracle for each
    direction and nine more, or fewer where the curvature is `enough` when known to that part of it.
    """
    from understudy.model.kernels.descent import extremes

    expected, leap = extremes(weights, problem.room, problem.targets, problem.total)
    found = _shortened(problem, x, weights, directions, expected, leap) if directions else None
    if found is None:
        found = _plain(weights, _largest_eigenvalue(problem, x, weights, enough), expected, leap)
    return found


def _plain(weights: Weights, largest: float, expected: float, leap: float) -> Metric:
    """The metric of the weights alone; the curvature is at least what the targets and the longest step ask for."""
    nowhere = Directions(np.empty(0, np.int64), np.empty((0, 0)))
    return Metric(weights, max(largest, expected, leap / _FURTHEST) or 1.0, nowhere, np.empty(0))


def _shortened(
    problem: Problem, x: Numbers, weights: Weights, directions: int, expected: float, leap: float
) -> Metric | None:
    """The metric with stiff directions shortened, if they can be trusted; None where not even the largest was found."""
    places = _heaviest(weights, problem.room)
    eigenvalues, errors, vectors, rows = _stiffest(problem, x, weights, places, directions + _MORE_STEPS)
    settled = errors <= _SETTLED * eigenvalues
    if not settled[-1:].any():
        return None
    largest = float(eigenvalues[-1])
    found = settled & (eigenvalues > _SHORTEST * max(largest, expected, leap / _FURTHEST))
    order = [k for k in np.argsort(-eigenvalues) if found[k]][:directions]
    if not order or largest < 0.8 * expected or leap > _LONGEST * eigenvalues[order[-1]]:
        return _plain(weights, largest, expected, leap)
    curvature = float(eigenvalues[order[-1]])
    turned = np.einsum("jk,ji->ki", vectors[:, order[:-1]], rows)
    turned *= weights.at(places)
    return Metric(weights, curvature, Directions(places, turned), 1.0 - curvature / eigenvalues[order[:-1]])


def _heaviest(weights: Weights, answers: Vector) -> NDArray[np.int64]:
    """Where stiff directions have most of their length: the answers that are large in units of their noise."""
    few = min(len(answers), max(_FEW, len(answers) // _SHARE))
    tables = [slice(*ends) for ends in itertools.pairwise([0, *weights.ends.tolist()])]
    sizes = np.empty(len(answers), np.float32)
    for table, weight in zip(tables, weights.each, strict=True):
        sizes[table] = _in_noise(answers[table], weight)
    sizes.partition(len(sizes) - few)
    least = sizes[len(sizes) - few]
    del sizes
    found = [
        table.start + np.flatnonzero(_in_noise(answers[table], weight) >= least)
        for table, weight in zip(tables, weights.each, strict=True)
    ]
    return np.concatenate(found)[:few]


def _in_noise(answers: Vector, weight: float) -> NDArray[np.float32]:
    sizes: NDArray[np.float32] = np.abs(answers, dtype=np.float32)
    sizes *= np.float32(math.sqrt(weight))
    return sizes


def _stiffest(
    problem: Problem, x: Numbers, weights: Weights, places: NDArray[np.int64], steps: int
) -> tuple[Vector, Vector, Vector, Vector]:
    """Eigenvalues of covariance times weights, estimates of their errors, eigenvectors in a basis, and the basis.

    All vectors are 0 but for these places; an image's part elsewhere is left out, and counts as an error.
    """
    from understudy.model.kernels.descent import half_squares, parts, subtract

    mine, base = weights.at(places), problem.room[places]
    around = problem.room.astype(np.float32)
    rows = np.empty((steps, len(places)))
    diagonal: list[float] = []
    beside: list[float] = []
    outside: list[float] = []
    eigenpairs = np.empty(0), np.empty(0), np.empty((0, 0))
    image = base - problem.targets[places]
    size = math.sqrt(np.sum(mine * image**2))
    for step in range(steps):
        if not 1e-8 * max(diagonal, default=0.0) < size < math.inf:
            break
        if step:
            beside.append(size)
        np.divide(image, size, out=rows[step])
        change = mine * rows[step]
        epsilon = _DIFFERENCE / float(np.abs(change).max())
        change *= epsilon
        found = problem.answers(x, moved=partial(_add, places, change))
        image = (found[places] - base) / epsilon
        everywhere = 2.0 * half_squares(weights, found, around) / epsilon**2
        outside.append(math.sqrt(max(0.0, everywhere - np.sum(mine * image**2))))
        parallel = np.empty(step + 1)
        for again in (False, True):  # once leaves errors that the next steps would enlarge
            parts(rows, mine * image, parallel)
            subtract(rows, parallel, image)
            if not again:
                diagonal.append(float(parallel[-1]))
        size = math.sqrt(np.sum(mine * image**2))
        eigenpairs = _eigenpairs(diagonal, beside, size)
    problem.answers(x)
    eigenvalues, errors, vectors = eigenpairs
    elsewhere = np.sqrt(np.square(outside) @ vectors**2) if outside else errors
    return eigenvalues, np.hypot(errors, elsewhere), vectors, rows[: len(diagonal)]


def _add(places: NDArray[np.int64], change: Vector, vector: Vector) -> None:
    vector[places] += change


def _largest_eigenvalue(problem: Problem, x: Numbers, weights: Weights, enough: float) -> float:
    """The largest eigenvalue of covariance times weights.

    Each image is made orthogonal to the last two alone, which is all the theory asks for, no others are kept, and the
    search ends when an eigenvalue is known well enough: the largest, if the residual has much of its direction.
    """
    from understudy.model.kernels.descent import change, half_squares, part_along, shift, store, take_off

    basis = Basis.empty(2, len(x))
    diagonal: list[float] = []
    beside: list[float] = []
    eigenvalues = np.zeros(1)
    answers, image = problem.room.astype(np.float32), problem.room
    change(image, problem.targets, 1.0)
    size = math.sqrt(2.0 * half_squares(weights, image, None))
    for step in range(_MORE_STEPS):
        if not 1e-8 * max(diagonal, default=0.0) < size < math.inf:
            break
        if step:
            beside.append(size)
        epsilon = _COARSER / store(basis, step % 2, weights, image, size)
        image = problem.answers(x, moved=partial(shift, weights, basis, step % 2, epsilon))
        change(image, answers, epsilon)
        diagonal.append(float(part_along(basis, step % 2, weights, image)))
        take_off(basis, step % 2, diagonal[-1], image)
        if step:
            take_off(basis, (step + 1) % 2, size, image)
        size = math.sqrt(2.0 * half_squares(weights, image, None))
        eigenvalues, errors, _ = _eigenpairs(diagonal, beside, size)
        if errors[-1] <= enough * eigenvalues[-1]:
            break
    problem.answers(x)
    return float(eigenvalues[-1])


def _eigenpairs(diagonal: list[float], beside: list[float], size: float) -> tuple[Vector, Vector, Vector]:
    """Eigenvalues of Lanczos' matrix, smallest first, bounds on their errors by the next step's size, eigenvectors."""
    coupled = np.diag(beside, 1)
    eigenvalues, vectors = np.linalg.eigh(np.diag(diagonal) + coupled + coupled.T)
    return eigenvalues, size * np.abs(vectors[-1]), vectors
