"""What a mechanism hands over: a model, what it was made from, and how. Data only; everything in it is released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.model.protocol import Model
from understudy.schema import Recoding

GeneratorName: TypeAlias = Literal["pgm", "gum"]
"""The generators that users choose between: a graphical model, or gradual updates of rows."""

_NAMES = (*get_args(GeneratorName), "tree", "product")


@dataclass(frozen=True)
class Generator:
    """How measurements become a model; see `model.generate.generate`.

    Attributes:
        name: "pgm", a graphical model (Private-PGM); "tree", the same model found faster where the measured cliques are
            little more than a tree; "gum", consistent tables and gradual updates of rows; "product", independent
            columns.
        limit_mib: where the junction tree of a graphical model would be larger, "gum" is used. None for no limit.

    Raises:
        SettingError: for an unknown name, or a limit that is no positive number.
    """

    name: str = "pgm"
    limit_mib: float | None = None

    def __post_init__(self) -> None:
        if self.name not in _NAMES:
            raise SettingError(f"generator: {self.name!r} is unknown; the choices are {', '.join(_NAMES[:2])}")
        if self.limit_mib is not None and (not isinstance(self.limit_mib, int | float) or not self.limit_mib > 0):
            raise SettingError("generator: limit_mib must be a positive number of MiB; leave it out for no limit")

    def to_dict(self) -> dict[str, Any]:
        """The generator as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Fit:
    """What a mechanism made: everything in it is released.

    Attributes:
        model: the distribution over the (recoded) domain.
        measurements: the noisy marginals it was made from.
        recoding: which codes were merged; undone when rows are decoded.
        rounds: what later error bounds need of an adaptive mechanism: plain data, one mapping a round.
        generator: how the model was made of the measurements; None for a mechanism that has a way of its own, of
            which a release has no replicates.
    """

    model: Model
    measurements: Sequence[Measurement]
    recoding: Recoding = field(default_factory=Recoding.identity)
    rounds: Sequence[Mapping[str, Any]] = ()
    generator: Generator | None = None
