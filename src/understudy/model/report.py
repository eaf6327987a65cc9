"""How an estimation ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FitReport:
    """How an estimation ended.

    Attributes:
        loss: half the sum of squared residuals in units of the noise, over all measurements.
        iterations: calls of the marginal oracle.
        gap: the loss still to be gained, relative, as predicted from the last iterations.
        seconds: wall-clock time.
        converged: whether the gap fell below the tolerance.
        warning: what went wrong, or empty. A model that did not converge is usable, but not the best fit.
    """

    loss: float
    iterations: int
    gap: float
    seconds: float
    converged: bool
    warning: str = ""

    def to_array(self) -> NDArray[np.float64]:
        """As numbers, without the time: equal fits are written down equally."""
        numbers = [self.loss, self.iterations, self.gap, 0.0, self.converged]
        return np.array([*numbers, *self.warning.encode()], np.float64)

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> FitReport:
        """The report that `to_array` wrote down."""
        loss, iterations, gap, seconds, converged = map(float, array[:5])
        warning = bytes(int(number) for number in array[5:]).decode()
        return cls(loss, int(iterations), gap, seconds, bool(converged), warning)
