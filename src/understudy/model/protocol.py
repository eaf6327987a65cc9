"""What every model is: a distribution over the coded domain that answers, samples and can be written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain


class Model(Protocol):
    """A distribution over the coded domain, scaled to an (estimated) number of rows.

    **Privacy.** Post-processing: made of measurements alone; this layer cannot import the rows or the gate.
    """

    kind: ClassVar[str]
    """The name under which a release stores the model."""

    @property
    def domain(self) -> Domain:
        """The columns it is about, coded."""
        ...

    @property
    def total(self) -> float:
        """The number of rows its expected counts add up to; never the true one unless that was declared public."""
        ...

    def project(self, clique: Clique) -> NDArray[np.float64]:
        """Expected counts of a clique's cells, shaped by the domain in the order asked."""
        ...

    def project_many(self, cliques: Iterable[Clique]) -> dict[Clique, NDArray[np.float64]]:
        """The same for many cliques, sharing the work."""
        ...

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Coded columns of synthetic rows; the same generator state gives the same rows."""
        ...

    def condition(self, where: Mapping[str, int | NDArray[np.float64]]) -> Model:
        """The model given a code of a column, or the chance with which a row of each of its codes fits.

        Raises:
            InputError: for a combination that cannot occur.
            SettingError: for a model that is no distribution.
        """
        ...

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything needed to build it again, as plain arrays."""
        ...

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model that `to_arrays` wrote down.

        Raises:
            ReleaseError: when the arrays do not fit the domain.
        """
        ...


# ----------------------------------------------------------------------------------------------------
# How an estimation ended.


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
