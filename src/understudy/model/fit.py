"""The result of a mechanism: a model, its measurements, and the generator that made it. Plain data, all released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.model.protocol import Model
from understudy.schema import Recoding

GeneratorName: TypeAlias = Literal["pgm", "gum", "rap"]
"""The generators that users choose between: a graphical model, gradual updates of rows, or relaxed projection."""

LossName: TypeAlias = Literal["likelihood", "printed"]
"""Weights of the squared residuals: 1/sigma^2, or 1/sigma as AIM prints it."""

_NAMES = (*get_args(GeneratorName), "tree", "product", "gem")


@dataclass(frozen=True)
class Generator:
    """How measurements become a model; see `model.generate.generate`.

    Attributes:
        name: "pgm", a graphical model (Private-PGM); "tree", the same model found faster where the measured cliques are
            little more than a tree; "gum", consistent tables and gradual updates of rows; "rap", rows of relaxed
            one-hot codes (relaxed projection); "gem", such rows made by a network; "product", independent columns.
        limit_mib: "gum" is used if the junction tree of a graphical model would be larger. None for no limit.
        as_printed: whether measurements are used as the papers print it: the counts of a column with an axis are not
            smoothed first.
        updates: how "gum" makes rows: one of `model.gum.UPDATES`.
        enough: "pgm" stops fitting as soon as the loss is at most this multiple of that of the noise alone.
        loss: the weights of measurements in the loss of a graphical model: "likelihood", 1/sigma^2, or "printed",
            1/sigma.

    Raises:
        SettingError: if the name is unknown or the limit is not a positive number.
    """

    name: str = "pgm"
    limit_mib: float | None = None
    as_printed: bool = False
    updates: str = "tree"
    enough: float = 0.0
    loss: LossName = "likelihood"

    def __post_init__(self) -> None:
        if self.name not in _NAMES:
            raise SettingError(
                f"generator: {self.name!r} is unknown; the choices are {', '.join(get_args(GeneratorName))}"
            )
        if self.limit_mib is not None and (not isinstance(self.limit_mib, int | float) or not self.limit_mib > 0):
            raise SettingError("generator: limit_mib must be a positive number of MiB; leave it out for no limit")

    def to_dict(self) -> dict[str, Any]:
        """Return the generator as plain data, without fields that have their default."""
        usual = asdict(Generator())
        return {k: v for k, v in asdict(self).items() if k in ("name", "limit_mib") or v != usual[k]}


@dataclass(frozen=True)
class Fit:
    """The result of a mechanism; everything in it is released.

    Attributes:
        model: the distribution over the (recoded) domain.
        measurements: the noisy marginals that the model was made from.
        recoding: which codes were merged; undone when rows are decoded.
        rounds: what error bounds need to know about the rounds of an adaptive mechanism, as plain data.
        generator: how the model was made of the measurements; None for a mechanism with a method of its own, whose
            releases have no replicates.
    """

    model: Model
    measurements: Sequence[Measurement]
    recoding: Recoding = field(default_factory=Recoding.identity)
    rounds: Sequence[Mapping[str, Any]] = ()
    generator: Generator | None = None
