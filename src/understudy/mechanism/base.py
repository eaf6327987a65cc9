"""The base class of mechanisms: settings, a fit through the gate, and a finish from the measurements.

A mechanism is a subclass of `Mechanism` with its settings as annotated fields and a `fit`:

```python
class Mine(Mechanism):
    \"\"\"Measures every column with half of the budget, and every pair with the rest.\"\"\"

    name = "mine"
    ones: Share = 0.5

    def fit(self, table, *, rho, progress=silent):
        ones = table.measure(one_way(table.domain), rho=self.ones * rho)
        pairs = table.measure(combinations(table.domain, 2), rho=(1 - self.ones) * rho)
        return self.conclude(table, [*ones, *pairs], progress=progress)
```

Everything else has a default here. A package offers its mechanism under the entry point `understudy.mechanisms`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import combinations
from typing import Annotated, Any, ClassVar, Self, TypeAlias, dataclass_transform, get_type_hints

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as validated_dataclass

from understudy.arguments import plain_setting, setting_error
from understudy.domain import NO_GROUPS, Clique, CodeGroups, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.model.fit import Fit, Generator
from understudy.model.generate import generate
from understudy.model.protocol import Model
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding, Schema

Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]
"""A part of the budget, between 0 and 1."""

Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Footprint:
    """The memory and disk that a run needs, computed from the schema and the settings alone.

    Attributes:
        memory_bytes: the most memory that the mechanism uses, without the coded rows.
        disk_bytes: the most disk space that its measurements need.
    """

    memory_bytes: int
    disk_bytes: int


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, Field))
class Mechanism(ABC):
    """Base of all mechanisms: a frozen, keyword-only dataclass of settings, each validated against its type.

    **Privacy.** A mechanism reads rows only through the `PrivateTable` it is given; it draws no noise, keeps no
    account, prints nothing and opens no file.

    Raises:
        SettingError: if a setting is unknown or has a wrong value; the message names it.
    """

    name: ClassVar[str]
    """The name in the registry, on the command line and in the release."""

    paper: ClassVar[str | None] = None
    """Where it was published; None for a mechanism without a paper."""

    when: ClassVar[str] = ""
    """When to use it, in one sentence."""

    pure: ClassVar[bool] = True
    """Whether it can run under pure DP (delta = 0)."""

    generator: str = "pgm"
    """The generator that makes the model; a mechanism that lets users choose has a setting of this name."""

    workload: str | None = None
    """The marginals that matter, if there is a setting of this name; the quality of a run is measured on them."""

    rare: str | None = None
    """How merged values are written, if there is a setting of this name; `Release.sample` names the rules."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        validated_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))(cls)
        validate = cls.__init__

        def initialise(self: Mechanism, **settings: Any) -> None:
            try:
                validate(self, **{name: plain_setting(value) for name, value in settings.items()})
            except ValidationError as error:
                kinds = get_type_hints(cls, include_extras=True)
                known = {setting.name: kinds[setting.name] for setting in fields(cls)}  # type: ignore[arg-type]
                raise setting_error(cls.name, known, error) from None

        cls.__init__ = initialise  # type: ignore[assignment, method-assign]

    @abstractmethod
    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Select and measure through the gate, then `conclude`.

        Args:
            table: the private table.
            rho: the share of the table's budget that may be spent.
            progress: called with each step.
        """

    def finish(
        self,
        domain: Domain,
        measurements: Sequence[Measurement],
        *,
        recoding: Recoding,
        groups: CodeGroups = NO_GROUPS,
        total: float | None = None,
        progress: Progress = silent,
    ) -> Fit:
        """Fit the model to these measurements, at no privacy cost; this also finishes an interrupted run.

        Args:
            domain: the declared domain.
            measurements: any part of the measurements of `fit`, as the gate returned them.
            recoding: the merged codes of the last measurement.
            groups: which columns have an axis; by default none.
            total: the number of rows, if it is public.
            progress: called with each step.
        """
        if (own := self.own_model(domain, measurements, recoding, total)) is not None:
            progress(Step("estimate", 1.0, "the mechanism's own model"))
            return Fit(own, measurements, recoding)
        return generate(
            self.make_generator(),
            domain,
            measurements,
            recoding=recoding,
            groups=groups,
            total=total,
            progress=progress,
        )

    def own_model(
        self, domain: Domain, measurements: Sequence[Measurement], recoding: Recoding, total: float | None
    ) -> Model | None:
        """Return the model of a mechanism that needs no generator; by default None."""
        return None

    def conclude(
        self,
        table: PrivateTable,
        measurements: Sequence[Measurement],
        *,
        rounds: Sequence[Mapping[str, Any]] = (),
        progress: Progress = silent,
    ) -> Fit:
        """Finish a run: fit the model to all of its measurements.

        Args:
            table: the private table, with the final merged codes.
            measurements: all measurements, as the gate returned them.
            rounds: the release's record of selections and rounds.
            progress: called with each step.
        """
        fit = self.finish(
            table.declared_domain,
            measurements,
            recoding=table.recoding,
            groups=table.code_groups,
            total=table.rows_public,
            progress=progress,
        )
        return replace(fit, rounds=rounds)

    def make_generator(self) -> Generator:
        """Return the generator that the settings name."""
        return Generator(self.generator)

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the settings with which it is the published mechanism; empty if the defaults are."""
        return {}

    @classmethod
    def as_published(cls, **settings: Any) -> Self:
        """Return the published mechanism; given settings have precedence over those of the paper.

        Raises:
            SettingError: if the mechanism has no paper, or a setting is wrong.
        """
        if cls.paper is None:
            raise SettingError(
                f"paper: {cls.name} has no paper to follow; leave `paper` out, or choose another mechanism"
            )
        return cls(**cls.paper_settings() | settings)

    def settings(self) -> dict[str, Any]:
        """Return the settings by name."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    # Optional methods of some mechanisms.

    def plan(self, domain: Domain) -> dict[Clique, float]:
        """Return all measurements with their weights if they are fixed in advance; else none.

        The gate then calibrates their Gaussian noise together by the exact privacy curve. `fit` measures exactly these,
        with these weights; codes may be merged in between.
        """
        return {}

    def prepare(self, schema: Schema) -> Self:
        """Return the mechanism with what it learns from public tables, but without their rows.

        Raises:
            InputError: before anything is spent: settings do not fit the schema, or a source cannot be read.
        """
        return self

    def public_tables(self) -> dict[str, Any]:
        """Return the tables that the custodian declares public, by the name that the receipt gives them.

        A table is a frame, a path or a source; None once `prepare` has learned from it.
        """
        return {}

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory and disk that a run needs; by default a few copies of planned marginals or all pairs."""
        cliques = self.plan(domain) or [*one_way(domain), *combinations(domain, 2)]
        cells = sum(map(domain.cells, cliques))
        return Footprint(memory_bytes=100 * cells + (64 << 20), disk_bytes=16 * cells + 512 * (len(cliques) + 1))


def one_way(domain: Domain) -> list[Clique]:
    """Return the cliques of single columns."""
    return [(column,) for column in domain]
