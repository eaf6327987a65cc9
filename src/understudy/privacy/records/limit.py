"""A yearly limit of what all runs about one dataset may spend together: set by its custodian, kept beside the book."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from understudy.accounting.budget import Budget
from understudy.accounting.convert import epsilon_of
from understudy.accounting.exact import float_above, float_below, fraction_of, upwards
from understudy.errors import SettingError

YEAR = timedelta(days=365)
DELTA = 1e-6
"""The delta at which a limit's epsilon is understood unless it says so."""

_USED = re.compile(r"(?<=') \((?:one row|at most \d+ rows) of each used\)(?=; the guarantee)")


@dataclass(frozen=True)
class Limit:
    """What the runs of any 365 days may spend: epsilon at a delta, or rho.

    Attributes:
        epsilon: the most epsilon, or None.
        delta: the delta of that epsilon.
        rho: the most rho, or None.
    """

    epsilon: float | None = None
    delta: float = DELTA
    rho: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.epsilon, self.rho) if value is not None]
        if len(given) != 1 or not (isinstance(given[0], int | float) and 0 < given[0] < math.inf):
            raise SettingError("a limit is a positive epsilon (at a delta) or a positive rho; give one of them")
        if not (isinstance(self.delta, int | float) and 0 < self.delta < 1):
            raise SettingError("the delta of a limit lies above 0 and below 1")

    def __str__(self) -> str:
        if self.rho is not None:
            return f"rho {self.rho:g} in any 365 days"
        return f"epsilon {self.epsilon:g} at delta {self.delta:g} in any 365 days"

    def used(self, entries: Iterable[Mapping[str, Any]]) -> float:
        """What these entries of the book come to, in the limit's own unit.

        **Guarantees.** Never too little. For an epsilon the smaller of two valid bounds is taken: what the sum of the
        rhos means at the limit's delta (less what was set aside for purchases), and the sum of the runs' own epsilons
        where their deltas sum to no more than the limit's. Infinity where neither holds, and where the runs protect
        different units: what one row may lose is no bound of what a person with many rows does. Each bound holds also
        where later budgets were chosen by what earlier runs had shown; the smaller of both does then at twice the
        delta, because it may be the one or the other as the earlier runs turn out.
        """
        listed = list(entries)
        if not listed:
            return 0.0
        if len(units(listed)) > 1:
            return math.inf
        rho = _sum(listed, "rho")
        if self.rho is not None:
            return float_above(rho)
        rest = float_below(Fraction(self.delta) - _sum(listed, "purchase_delta"))
        bounds = [epsilon_of(float_above(rho), rest)] if rest > 0 else []
        if all(entry["epsilon"] is not None for entry in listed) and _sum(listed, "delta") <= Fraction(self.delta):
            bounds.append(float_above(_sum(listed, "epsilon")))
        return min(bounds, default=math.inf)

    @property
    def most(self) -> float:
        """The number that `used` may reach."""
        return float(self.rho if self.rho is not None else self.epsilon or 0.0)

    def passed(self, entries: Iterable[Mapping[str, Any]], budget: Budget, dataset: str, unit: str) -> str | None:
        """What is wrong when a run of this budget comes on top of the past year's entries; None where it fits."""
        together = [*entries, entry_of(budget, unit)]
        if len(units(together)) > 1:
            return (
                f"with this run, those of a year about {dataset!r} protect different units, and their sum is a "
                f"guarantee for none of them; its limit is {self}. Protect the same unit in all"
            )
        then = self.used(together)
        if then <= self.most * (1 + 1e-9):  # five runs of 0.1 are no more than 0.5, whatever their last bits say
            return None
        shown = upwards(then) if math.isfinite(then) else "more than can be told"
        name = "rho" if self.rho is not None else "epsilon"
        return f"with this run, {dataset!r} would come to {name} {shown}; its limit is {self}"

    def to_json(self) -> str:
        """The limit as its file holds it."""
        return json.dumps({"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}) + "\n"


def units(entries: Iterable[Mapping[str, Any]]) -> set[str]:
    """Whom these entries protect. How many rows of a unit were used decides about noise, not about who is protected."""
    return {_USED.sub("", str(entry.get("protects"))) for entry in entries}


def entry_of(budget: Budget, unit: str) -> dict[str, Any]:
    """A budget, and who is protected by it, as the book writes them down."""
    entry = {
        "proof": budget.proof,
        "rho": str(budget.rho),
        "epsilon": None if budget.epsilon is None else str(budget.epsilon),
        "delta": None if budget.delta is None else str(budget.delta),
    }
    entry |= {"purchase_delta": str(budget.purchase_delta)} if budget.purchase_delta else {}
    return entry | {"protects": unit}


def past_year(entries: Iterable[Mapping[str, Any]], now: datetime | None = None) -> list[Mapping[str, Any]]:
    """The entries of the last 365 days; one without a readable time counts.

    A page is only ever added to: an entry is no older than those before it. One that a clock was wrong for, set back to
    1970 when its battery was empty, counts as long as the one before. A run that was gone on with counts from then
    on: its last answers were given then.
    """
    now = now or datetime.now(UTC)
    latest, recent = datetime.min.replace(tzinfo=UTC), []
    for entry in entries:
        time = _time(entry)
        latest = max(latest, time) if time is not None and time <= now else latest
        last = _time({"time": entry.get("last")}) or latest
        if time is None or max(time, latest, last) >= now - YEAR:
            recent.append(entry)
    return recent


def _time(entry: Mapping[str, Any]) -> datetime | None:
    try:
        time = datetime.fromisoformat(entry["time"])
    except (KeyError, TypeError, ValueError):
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _sum(entries: Iterable[Mapping[str, Any]], name: str) -> Fraction:
    return sum((fraction_of(entry.get(name) or "0") for entry in entries), Fraction(0))
