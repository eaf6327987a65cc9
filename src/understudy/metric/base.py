"""The parts of every metric: a table that can be counted, a score, and the entry of the registry.

A metric is a pure function of two tables, a schema, settings and a generator that returns a `Score`. Its settings are a
pydantic dataclass with the configuration `STRICT`: they are checked when they are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import ConfigDict, Field

from understudy.domain import Clique, Domain
from understudy.errors import InputError
from understudy.tabulate import Counts

Better: TypeAlias = Literal["lower", "higher"]
Positive: TypeAlias = Annotated[int, Field(ge=1)]
"""A setting that is a whole number of at least 1."""
STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
"""Settings take no other kind of value in place of their own, such as text for a number."""


@runtime_checkable
class Counted(Protocol):
    """A table that can be counted. Metrics of counts need nothing else, so a database can answer them as well.

    **Privacy.** Counts are exact: only the custodian may hold the real table as `Counted`.
    """

    @property
    def domain(self) -> Domain:
        """Its coded columns."""
        ...

    @property
    def rows(self) -> int:
        """The number of rows."""
        ...

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order of the cliques."""
        ...


@dataclass(frozen=True)
class Part:
    """A piece of a score.

    Attributes:
        kind: what it is a piece of: "norm", "marginal", "column", "model", "group", "cell", "sample", ...
        name: which one.
        value: its value, finite.
    """

    kind: str
    name: str
    value: float


@dataclass(frozen=True)
class Score:
    """The result of a metric.

    Attributes:
        metric: the metric's name in the registry.
        value: the score; always finite.
        better: whether lower or higher is better.
        best: the value of a perfect stand-in.
        parts: what it is made of, finest last.
        notes: what was sampled, left out or replaced, in words.

    **Privacy.** Computed from real rows: for the custodian only.
    """

    metric: str
    value: float
    better: Better
    best: float
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in [
            ("the score", self.value),
            *((f"{part.kind} {part.name}", part.value) for part in self.parts),
        ]:
            if not math.isfinite(value):
                raise InputError(
                    f"{self.metric}: {name} has no finite value; this is a bug in understudy; please report it"
                )

    def part(self, kind: str, name: str) -> float:
        """Return the value of one part.

        Raises:
            KeyError: if there is none.
        """
        for part in self.parts:
            if (part.kind, part.name) == (kind, name):
                return part.value
        raise KeyError((kind, name))


@dataclass(frozen=True)
class Metric:
    """An entry of the registry.

    Attributes:
        name: the name, the same everywhere.
        title: what people call it.
        measure: the function ``(real, synthetic, schema, settings, rng) -> Score``.
        settings: a frozen pydantic dataclass; its defaults are the metric's defaults.
        better: whether lower or higher is better.
        best: the value of a perfect stand-in.
        worst: the value of a useless stand-in, or None where there is no limit.
        meaning: one or two sentences for a reader who has never heard of it.
        rows: whether it needs `Rows`; otherwise anything `Counted` is enough.
        needs: settings without which it cannot run.
    """

    name: str
    title: str
    measure: Callable[[Any, Any, Any, Any, Any], Score]
    settings: type[Any]
    better: Better
    best: float
    worst: float | None
    meaning: str
    rows: bool = False
    needs: tuple[str, ...] = ()

    def score(self, value: float, parts: Iterable[Part] = (), notes: tuple[str, ...] = ()) -> Score:
        """Return a score of this metric."""
        return Score(self.name, float(value), self.better, self.best, tuple(parts), notes)
