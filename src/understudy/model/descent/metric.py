"""The metric of the descent: weights, with the stiffest directions shortened.

A step is limited by the largest eigenvalue of covariance times weights. A dozen eigenvalues stand far above the rest:
the main effects that many measured tables share, and the largest cells. Shortening the metric along their
eigenvectors allows steps several times as long, and hardly moves the minimum: where the descent comes to rest, the
residual has no part along a direction that the model can follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from understudy.model.descent.problem import Problem, Vector
from understudy.model.kernels.arguments import Basis

_DIFFERENCE = 1e-5
_MORE_STEPS = 8
_MOST_CODES = 8_000_000  # of a basis, 16 MB, or an eighth of the tree: long vectors make do with fewer directions
_SETTLED = 0.3  # an eigenvalue counts as found when its error is below this part of it
_SHORTEST = 1 / 16  # eigenvalues are brought down to this part of the largest at most
_FURTHEST = 1e6  # that a step may move a potential: undoing a longer one would lose digits
_LONGEST = 0.5  # of a step's change of a potential, while shortening is trusted: eigenvalues hold nearby only


@dataclass
class Metric:
    """Weights, less `shortened` of each direction of `basis`; all of it as the oracle is near `x`.

    Attributes:
        weights: the diagonal.
        curvature: the largest eigenvalue of covariance times metric.
        basis: stiff directions, orthogonal in the inner product of the weights.
        shortened: how much of each direction is taken off.
    """

    weights: Vector
    curvature: float
    basis: Basis
    shortened: Vector

    def measure(self, answers: Vector, targets: Vector) -> tuple[float, Vector]:
        """Half the squared residual in this metric, and the residual's part along each stiff direction."""
        from understudy.model.kernels.descent import parts

        found = np.empty(len(self.shortened))
        squares = parts(self.basis, self.weights, answers, targets, found)
        return float(squares - 0.5 * np.sum(self.shortened * found * found)), found


def metric_at(
    problem: Problem,
    x: Vector,
    answers: Vector,
    weights: Vector,
    directions: int,
    *,
    scratch: Vector,
    enough: float = 0.0,
) -> Metric:
    """The metric of these weights at `x`, shortened along at most this many directions: Lanczos' method.

    Costs a call of the oracle for each direction and eight more, or fewer where the curvature is `enough` when known to
    that part of it. Writes over the scratch.
    """
    from understudy.model.kernels.descent import extremes

    expected, leap = extremes(weights, answers, problem.targets, problem.total)
    most = max(_MOST_CODES, problem.propagation.tree.cells // 2) // len(x)
    directions = min(directions, max(0, most - _MORE_STEPS))
    eigenvalues, errors, vectors, basis = _lanczos(problem, x, answers, weights, directions, scratch, enough)
    largest = max(float(eigenvalues.max(initial=0.0)), expected, leap / _FURTHEST) or 1.0
    found = (errors <= _SETTLED * eigenvalues) & (eigenvalues > _SHORTEST * largest)
    order = [k for k in np.argsort(-eigenvalues) if found[k]][:directions]
    if not order or eigenvalues[order[0]] < 0.8 * expected or leap > _LONGEST * eigenvalues[order[-1]]:
        return Metric(weights, largest, Basis.empty(0, len(x)), np.empty(0))
    return _shortened(weights, eigenvalues[order], basis, vectors[:, order])


def _shortened(weights: Vector, eigenvalues: Vector, basis: Basis, vectors: Vector) -> Metric:
    from understudy.model.kernels.descent import rotate

    curvature, width = float(eigenvalues[-1]), len(eigenvalues) - 1
    rotate(basis, np.ascontiguousarray(vectors[:, :-1]))
    return Metric(weights, curvature, basis.first(width), 1.0 - curvature / eigenvalues[:-1])


def _lanczos(
    problem: Problem, x: Vector, answers: Vector, weights: Vector, directions: int, trial: Vector, enough: float
) -> tuple[Vector, Vector, Vector, Basis]:
    """Eigenvalues of covariance times weights, bounds on their errors, eigenvectors in a basis, and the basis.

    Without directions only the largest eigenvalue counts: then each image is made orthogonal to the last two of the
    basis alone, which is all the theory asks for, no others are kept, and the search ends when an eigenvalue is known
    well enough: the largest, if the residual has much of its direction. Images live in the oracle's own room.
    """
    from understudy.model.kernels.descent import change, half_squares, parts, probe, store, subtract

    steps = directions + _MORE_STEPS
    rows = steps if directions else 2
    basis = Basis.empty(rows, len(x))
    diagonal: list[float] = []
    beside: list[float] = []
    eigenpairs = np.empty(0), np.empty(0), np.empty((0, 0))
    image = np.subtract(answers, problem.targets, out=problem.propagation.room)
    size = math.sqrt(2.0 * half_squares(weights, image, None))
    for step in range(steps):
        if not 1e-8 * max(diagonal, default=0.0) < size < math.inf:
            break
        if step:
            beside.append(size)
        epsilon = _DIFFERENCE / store(basis, step % rows, weights, image, size)
        probe(x, weights, image, epsilon, trial)
        image = problem.answers(trial)
        change(image, answers, epsilon)
        last = basis.first(step + 1)
        found = np.empty(len(last.codes))
        for again in (False, True) if directions else (False,):  # once leaves errors that the next steps would enlarge
            parts(last, weights, image, None, found)
            subtract(last, found, image)
            if not again:
                diagonal.append(float(found[step % rows]))
        size = math.sqrt(2.0 * half_squares(weights, image, None))
        eigenvalues, errors, _ = eigenpairs = _eigenpairs(diagonal, beside, size)
        if not directions and errors[-1] <= enough * eigenvalues[-1]:
            break
    return *eigenpairs, basis.first(len(diagonal))


def _eigenpairs(diagonal: list[float], beside: list[float], size: float) -> tuple[Vector, Vector, Vector]:
    """Eigenvalues of Lanczos' matrix, smallest first, bounds on their errors by the next step's size, eigenvectors."""
    coupled = np.diag(beside, 1)
    eigenvalues, vectors = np.linalg.eigh(np.diag(diagonal) + coupled + coupled.T)
    return eigenvalues, size * np.abs(vectors[-1]), vectors
