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
from numpy.typing import NDArray

from understudy.model.problem import Problem, Vector

_DIFFERENCE = 1e-5
_MORE_STEPS = 8
_HELD = 1e30  # by single precision, with room for sums
_MOST_ENTRIES = 5_000_000  # of a basis, 20 MB, or an eighth of the tree: long vectors make do with fewer directions
_SETTLED = 0.3  # an eigenvalue counts as found when its error is below this part of it
_SHORTEST = 1 / 16  # eigenvalues are brought down to this part of the largest at most
_LONGEST = 0.5  # of a step's change of a potential, while shortening is trusted: eigenvalues hold nearby only


@dataclass
class Metric:
    """Weights, less `shortened` of each direction of `basis`; all of it as the oracle is near `x`.

    Attributes:
        weights: the diagonal.
        curvature: the largest eigenvalue of covariance times metric.
        basis: stiff directions as rows, orthogonal in the inner product of the weights.
        shortened: how much of each direction is taken off.
    """

    weights: Vector
    curvature: float
    basis: NDArray[np.float32]
    shortened: Vector

    def measure(self, answers: Vector, targets: Vector) -> tuple[float, Vector]:
        """Half the squared residual in this metric, and the residual's part along each stiff direction."""
        from understudy.model.descent_kernels import parts

        found = np.empty(len(self.shortened))
        squares = parts(self.basis, self.weights, answers, targets, found)
        return float(squares - 0.5 * np.sum(self.shortened * found * found)), found


def metric_at(
    problem: Problem, x: Vector, answers: Vector, weights: Vector, directions: int, *, scratch: Vector
) -> Metric:
    """The metric of these weights at `x`, shortened along at most this many directions: Lanczos' method.

    Costs a call of the oracle for each direction and a few more. Writes over the scratch.
    """
    from understudy.model.descent_kernels import extremes

    expected, leap = extremes(weights, answers, problem.targets, problem.total)
    unit = float(weights.max(initial=0.0)) or 1.0  # single precision holds the basis: weights near 1, whatever sigma
    most = max(_MOST_ENTRIES, problem.propagation.tree.cells // 2) // len(x)
    directions = min(directions, max(0, most - _MORE_STEPS))
    eigenvalues, errors, vectors, basis = _lanczos(problem, x, answers, weights, unit, directions, scratch)
    eigenvalues, errors = eigenvalues * unit, errors * unit
    largest = max(float(eigenvalues.max(initial=0.0)), expected) or 1.0
    found = (errors <= _SETTLED * eigenvalues) & (eigenvalues > _SHORTEST * largest)
    order = [k for k in np.argsort(-eigenvalues) if found[k]][:directions]
    if not order or eigenvalues[order[0]] < 0.8 * expected or leap > _LONGEST * eigenvalues[order[-1]]:
        return Metric(weights, largest, np.empty((0, len(x)), np.float32), np.empty(0))
    return _shortened(weights, unit, eigenvalues[order], basis, vectors[:, order])


def _shortened(
    weights: Vector, unit: float, eigenvalues: Vector, basis: NDArray[np.float32], vectors: Vector
) -> Metric:
    from understudy.model.descent_kernels import rotate

    curvature, width = float(eigenvalues[-1]), len(eigenvalues) - 1
    rotate(basis, np.ascontiguousarray(vectors[:, :-1]))
    return Metric(weights, curvature, basis[:width], (1.0 - curvature / eigenvalues[:-1]) / unit)


def _lanczos(
    problem: Problem, x: Vector, answers: Vector, weights: Vector, unit: float, directions: int, trial: Vector
) -> tuple[Vector, Vector, Vector, NDArray[np.float32]]:
    """Eigenvalues of covariance times weights, bounds on their errors, eigenvectors in a basis, and the basis.

    Without directions only the eigenvalues count: then each image is made orthogonal to the last two of the basis
    alone, which is all the theory asks for, and no others are kept. Images live in the oracle's own room.
    """
    from understudy.model.descent_kernels import half_squares, parts, subtract

    steps = directions + _MORE_STEPS
    rows = steps if directions else 2
    basis = np.empty((rows, len(x)), np.float32)
    diagonal: list[float] = []
    beside: list[float] = []
    image = np.subtract(answers, problem.targets, out=problem.propagation.room)
    size = math.sqrt(2.0 * half_squares(weights, image, None) / unit)
    for step in range(steps):
        if not size > 1e-8 * max(diagonal, default=0.0):
            break
        if step:
            beside.append(size)
        image /= size
        if not _largest(image) < _HELD:
            break
        basis[step % rows] = image
        np.multiply(weights, image, out=trial)
        epsilon = _DIFFERENCE / _largest(trial)
        trial *= epsilon
        trial += x
        image = problem.answers(trial)
        image -= answers
        image /= epsilon * unit
        last = basis[: step + 1]
        found = np.empty(len(last))
        for again in (False, True):
            parts(last, weights, image, None, found)
            found /= unit
            subtract(last, found, image)
            if not again:
                diagonal.append(float(found[step % rows]))
        size = math.sqrt(2.0 * half_squares(weights, image, None) / unit)
    steps = len(diagonal)
    if steps == 0:
        return np.empty(0), np.empty(0), np.empty((0, 0)), basis
    coupled = np.diag(beside[: steps - 1], 1)
    eigenvalues, vectors = np.linalg.eigh(np.diag(diagonal) + coupled + coupled.T)
    return eigenvalues, size * np.abs(vectors[-1]), vectors, basis[:steps]


def _largest(vector: Vector) -> float:
    return float(max(vector.max(), -vector.min()))
