"""The interface of all models, the kinds of model by name, and the report of a fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError


class Model(Protocol):
    """A distribution over the coded domain, scaled to an (estimated) number of rows.

    **Privacy.** Post-processing: made of measurements only; this layer cannot import the gate or the sources.
    """

    kind: ClassVar[str]
    """The name under which a release stores the model."""

    domain: Domain
    """The columns and their sizes."""

    total: float
    """The sum of its expected counts; never the true number of rows unless that was declared public."""

    def project(self, clique: Clique) -> NDArray[np.float64]:
        """Expected counts of a clique's cells, its axes in the clique's order."""
        ...

    def project_many(self, cliques: Iterable[Clique]) -> dict[Clique, NDArray[np.float64]]:
        """Expected counts of many cliques."""
        return {clique: self.project(clique) for clique in cliques}

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Draw synthetic rows as coded columns; the same generator state gives the same rows."""
        ...

    def condition(self, where: Mapping[str, int | NDArray[np.float64]]) -> Model:
        """Return the model given, for some columns, a code or the probability that a row of each code fits.

        Raises:
            InputError: if the combination cannot occur.
            SettingError: if the model cannot be conditioned.
        """
        ...

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything needed to build the model again, as plain arrays."""
        ...

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the model that `to_arrays` wrote.

        Raises:
            ReleaseError: if the arrays do not fit the domain.
        """
        ...


def read_chances(domain: Domain, where: Mapping[str, int | NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Return what `Model.condition` is given as probabilities: by column, that a row of each code fits.

    Raises:
        SchemaError: if a column is unknown.
        InputError: if a code is outside the column, or the probabilities do not fit its codes.
    """
    found = {}
    for column in domain.check(tuple(where)):
        size, chances = domain[column], np.asarray(where[column], np.float64)
        if chances.ndim == 0:
            if not 0 <= chances < size:
                raise InputError(f"column {column!r}: code {where[column]} is not in 0..{size - 1}")
            chances = np.where(np.arange(size) == chances, 1.0, 0.0)
        if chances.shape != (size,) or not ((chances >= 0.0) & (chances <= 1.0)).all():
            raise InputError(f"column {column!r}: give a probability for each of its {size} codes")
        found[column] = chances
    return found


def cannot_occur(where: Iterable[str]) -> InputError:
    """Return the error to raise if no row of a model has the given values."""
    return InputError(f"the given values of {', '.join(where)} cannot occur together in this model")


DAMAGED = "the model's arrays do not fit the schema; the release file is damaged"
"""The message of `Model.from_arrays` for arrays that do not fit."""


_CLASSES = {
    "product": "product.ProductModel",
    "graphical": "graphical.GraphicalModel",
    "gum": "gum.GumModel",
    "relaxed": "relaxed.RelaxedModel",
    "rows": "weighted.WeightedRows",
}


class _Models(Mapping[str, type[Model]]):
    """The classes of models by kind, each loaded when it is first used, because a release needs only one of them."""

    def __getitem__(self, kind: str) -> type[Model]:
        module, _, name = _CLASSES[kind].partition(".")
        model: type[Model] = getattr(import_module(f"understudy.model.{module}"), name)
        return model

    def __contains__(self, kind: object) -> bool:
        return kind in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


MODELS: Mapping[str, type[Model]] = _Models()
"""The kinds of model that a release can hold, by the name that it stores."""


@dataclass(frozen=True)
class FitReport:
    """How an estimation ended.

    Attributes:
        loss: half the sum of squared residuals in units of the noise, over all measurements.
        iterations: number of calls of the marginal oracle.
        gap: the remaining relative decrease of the loss, predicted from the last iterations.
        seconds: wall-clock time.
        converged: whether the gap fell below the tolerance.
        warning: why the fit did not converge, or empty. Such a model is usable, but not the best fit.
    """

    loss: float
    iterations: int
    gap: float
    seconds: float
    converged: bool
    warning: str = ""

    def to_array(self) -> NDArray[np.float64]:
        """Return the report as numbers, without the time, so that equal fits give equal arrays."""
        numbers = [self.loss, self.iterations, self.gap, 0.0, self.converged]
        return np.array([*numbers, *self.warning.encode()], np.float64)

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> FitReport:
        """Build the report that `to_array` wrote."""
        loss, iterations, gap, seconds, converged = map(float, array[:5])
        warning = bytes(int(number) for number in array[5:]).decode()
        return cls(loss, int(iterations), gap, seconds, bool(converged), warning)
