"""Unpenalised logistic regression that counts its parameters: what the null of pMSE needs and libraries do not give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_STEPS = 25  # as many as R's glm takes; where labels separate, chances have then reached 0 or 1 to nine digits
_ALIASED = 1e-9


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted regression.

    Attributes:
        used: the terms that are no combination of earlier ones.
        centre: means of the used terms.
        scale: standard deviations of the used terms.
        weights: the intercept, then the coefficients of the centred and scaled terms.
    """

    used: NDArray[np.int64]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def parameters(self) -> int:
        """Estimated coefficients, the intercept included: aliased terms do not count."""
        return len(self.weights)

    def chance(self, terms: NDArray[np.float64]) -> NDArray[np.float64]:
        """The chance of label 1 for each row."""
        scaled = (terms[:, self.used] - self.centre) / self.scale
        return _sigmoid(self.weights[0] + scaled @ self.weights[1:])


def fit_logistic(terms: NDArray[np.float64], labels: NDArray[np.bool_]) -> Logistic:
    """Maximum likelihood by Newton's method, after leaving out terms that are aliased.

    >>> fit = fit_logistic(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 1, 0, 1], bool))
    >>> fit.parameters
    2
    """
    centre, scale = terms.mean(0), terms.std(0)
    used = np.flatnonzero(scale > 1e-12 * np.maximum(np.abs(centre), 1.0))
    matrix = (terms[:, used] - centre[used]) / scale[used]
    kept = _independent(matrix)
    used, matrix = used[kept], matrix[:, kept]
    matrix = np.column_stack((np.ones(len(matrix)), matrix))
    return Logistic(used, centre[used], scale[used], _newton(matrix, labels.astype(np.float64)))


def _independent(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Columns that no others explain, by Cholesky with pivoting on their correlations."""
    left = matrix.T @ matrix / max(len(matrix), 1)
    diagonal, kept = np.ones(len(left)), list[int]()
    factor = np.zeros((0, len(left)))
    for column in range(len(left)):
        if diagonal[column] <= _ALIASED:
            continue
        row = (left[column] - factor[:, column] @ factor) / np.sqrt(diagonal[column])
        factor = np.vstack((factor, row))
        diagonal = diagonal - row**2
        kept.append(column)
    return np.asarray(kept, dtype=np.int64)


def _newton(matrix: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.zeros(matrix.shape[1])
    weights[0] = np.log(labels.mean() / (1 - labels.mean()))
    deviance = np.inf
    for _ in range(_STEPS):
        chance = _sigmoid(matrix @ weights)
        now = -2 * float(np.log(np.maximum(np.where(labels > 0, chance, 1 - chance), 1e-300)).sum())
        if abs(deviance - now) <= 1e-8 * (abs(now) + 0.1):
            break
        deviance = now
        spread = np.maximum(chance * (1 - chance), 1e-10)
        curvature = (matrix * spread[:, None]).T @ matrix
        weights = weights + np.linalg.solve(curvature, matrix.T @ (labels - chance))
    return weights


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(values, -40.0, 40.0)))
    return result
