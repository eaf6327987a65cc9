"""What every mechanism is: settings, a fit through the gate, and a finish from whatever was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, Protocol, runtime_checkable

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.model.protocol import Model
from understudy.progress import Progress, silent
from understudy.schema import Recoding


@dataclass(frozen=True)
class Fit:
    """What a mechanism made: everything in it is released.

    Attributes:
        model: the distribution over the (recoded) domain.
        measurements: the noisy marginals it was made from.
        recoding: which codes were merged; undone when rows are decoded.
        rounds: what later error bounds need of an adaptive mechanism: plain data, one mapping a round.
    """

    model: Model
    measurements: Sequence[Measurement]
    recoding: Recoding = field(default_factory=Recoding.identity)
    rounds: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Footprint:
    """What a run will need, worked out from the schema and the settings alone.

    Attributes:
        memory_bytes: the most memory the mechanism holds beside the coded rows.
        disk_bytes: the most room its measurements take when written down.
    """

    memory_bytes: int
    disk_bytes: int


@runtime_checkable
class Mechanism(Protocol):
    """A frozen, keyword-only dataclass of settings.

    **Privacy.** A mechanism touches rows only through the `PrivateTable` it is given; it draws no noise, keeps no
    account, prints nothing and opens no file. It may add `plan(domain) -> {clique: weight}` when all its measurements
    are fixed in advance: the gate then calibrates their Gaussian noise together by the exact privacy curve. Codes may
    be merged in between; an empty plan is none.
    """

    name: ClassVar[str]
    """The name in the registry, on the command line and in the release."""

    pure: ClassVar[bool]
    """Whether it can run under pure DP (delta = 0)."""

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Select and measure through the gate, then `finish`.

        Args:
            table: the rows behind the gate.
            rho: the share of the table's budget that may be spent.
            progress: told about each step.
        """
        ...

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """The best model of these measurements, at no cost; also what an interrupted run is finished by.

        Args:
            domain: the declared domain.
            measurements: any part of what `fit` would have measured, as the gate returned it.
            recoding: the merged codes that were in force for the last of them.
            total: the number of rows, where it is public.
            progress: told about each step.
        """
        ...

    def footprint(self, domain: Domain) -> Footprint:
        """What a run will need, before anything is spent."""
        ...


def check_numbers(*, at_least: int = 0, **settings: Any) -> None:
    """Refuse settings that are no finite numbers of at least so much.

    Raises:
        SettingError: naming the setting.
    """
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not at_least <= value < math.inf:  # type: ignore[operator]
            raise SettingError(f"{name}: give a number of at least {at_least}")


def one_way(domain: Domain) -> list[Clique]:
    """The cliques of single columns."""
    return [(column,) for column in domain]
