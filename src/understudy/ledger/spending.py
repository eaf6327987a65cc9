"""Grants, reservations, and the total of several reservations about the same people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Literal

from understudy.accounting import Budget, epsilon_of
from understudy.accounting.exact import float_above, float_below, format_up, parse_fraction
from understudy.errors import SettingError

YEAR = timedelta(days=365)
DELTA = 1e-6
"""The delta of a grant's epsilon unless the grant states one."""

State = Literal["unfinished", "finished", "cancelled"]

_ROWS_USED = re.compile(
    r"(?<=') \((?:(?:one row|at most \d+ rows) of each|(?:(?:, )?at most \d+ of '[\w-]+')+) used\)(?=; the guarantee)"
)  # of one table, or of each of linked tables


@dataclass(frozen=True)
class Reservation:
    """The budget that one run reserved.

    Attributes:
        run: the run's identifier.
        dataset: the dataset.
        budget: the run's whole budget. It counts in full, even if the run did not finish.
        unit: who is protected, in words.
        time: when it was made.
        last: the time of the last answer; a yearly grant counts the run from then on.
        who: the user.
        grants: the numbers of the grants it draws on.
        state: "unfinished", "finished" or "cancelled".
        answers: how many answers are on record.
    """

    run: str
    dataset: str
    budget: Budget
    unit: str
    time: datetime
    last: datetime
    who: str
    grants: tuple[int, ...] = ()
    state: State = "unfinished"
    answers: int = 0


@dataclass(frozen=True)
class Total:
    """The total of several runs about the same people.

    Attributes:
        runs: the number of runs.
        rho: the sum in zCDP.
        epsilon: the smaller of two valid bounds at `delta`; None if a run has no epsilon and no run has a delta.
        delta: the delta of that epsilon.
        mixed: whether the runs protect different units; the total is then not a guarantee.
    """

    runs: int
    rho: float
    epsilon: float | None
    delta: float | None
    mixed: bool = False

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        note = "; the runs protect different units, so this total is a guarantee for none of them" if self.mixed else ""
        if self.epsilon is None:
            return f"{runs}, rho {format_up(self.rho)} in total{note}"
        if self.runs > 1:
            note += "; for budgets fixed in advance (if later budgets were chosen after seeing earlier results, the "
            note += "delta doubles)"
        return f"{runs}, epsilon {format_up(self.epsilon)} in total at delta {format_up(self.delta or 0.0)}{note}"


def add_up(reservations: Iterable[Reservation]) -> Total:
    """Add up reservations.

    **Guarantees.** The result is the smaller of two valid bounds: the rhos are summed and converted once, at the sum of
    the deltas minus the deltas set aside for discovery; or the epsilons and deltas are summed. Each bound by itself
    also holds if later budgets were chosen after seeing earlier results (a privacy filter); the smaller of the two then
    holds at twice the delta.
    """
    counted = [one for one in reservations if one.state != "cancelled"]
    rho = float_above(sum((one.budget.rho for one in counted), Fraction(0)))
    stated = [one.budget for one in counted if one.budget.epsilon is not None]
    delta = sum((budget.delta or Fraction(0) for budget in stated), Fraction(0))
    aside = sum((one.budget.discovery_delta for one in counted), Fraction(0))
    rest = float_below(delta - aside)
    bounds = [epsilon_of(rho, rest)] if rest > 0 and delta < 1 else []
    if counted and len(stated) == len(counted):
        bounds.append(float_above(sum((budget.epsilon or Fraction(0) for budget in stated), Fraction(0))))
    epsilon = min(bounds, default=None)
    return Total(len(counted), rho, epsilon, None if epsilon is None else float_above(delta), len(_units(counted)) > 1)


@dataclass(frozen=True)
class Grant:
    """Permission to spend: an amount of epsilon at a delta, or of rho, in total or in any 365 days.

    Attributes:
        dataset: the dataset; runs about datasets derived from it draw on the grant as well.
        epsilon: the most epsilon, or None.
        delta: the delta of that epsilon.
        rho: the most rho, or None.
        per: "all" for a total, "year" for any 365 days.
        to: who may draw on it: "anyone", "user:NAME", "group:NAME" or "token:DIGEST".
        number: the number of its entry in the ledger.
        revoked: whether it was revoked; what was drawn on it stands.
    """

    dataset: str
    epsilon: float | None = None
    delta: float = DELTA
    rho: float | None = None
    per: Literal["all", "year"] = "all"
    to: str = "anyone"
    number: int = 0
    revoked: bool = False

    def __post_init__(self) -> None:
        given = [value for value in (self.epsilon, self.rho) if value is not None]
        if len(given) != 1 or not (isinstance(given[0], int | float) and 0 < given[0] < math.inf):
            raise SettingError("grant: give either a positive epsilon (with a delta) or a positive rho")
        if not (isinstance(self.delta, int | float) and 0 < self.delta < 1):
            raise SettingError("grant: delta must lie between 0 and 1, such as 1e-6")
        if self.per not in ("all", "year"):
            raise SettingError("grant: per must be 'all' or 'year'")
        if self.to != "anyone" and not re.fullmatch(r"(user|group|token):\S(.{0,98}\S)?", self.to):
            raise SettingError("grant: to must be 'anyone', 'user:NAME', 'group:NAME' or a token")

    def __str__(self) -> str:
        amount = f"rho {self.rho:g}" if self.rho is not None else f"epsilon {self.epsilon:g} at delta {self.delta:g}"
        to = "a token" if self.to.startswith("token:") else self.to
        return f"{amount} {'in any 365 days' if self.per == 'year' else 'in total'} to {to}"

    @property
    def amount(self) -> float:
        """The most that may be drawn, in the grant's own unit."""
        return float(self.rho if self.rho is not None else self.epsilon or 0.0)

    def amount_used(self, drawn: Iterable[Reservation], now: datetime) -> float:
        """Return the total of the reservations that count towards this grant at `now`, in the grant's own unit.

        **Guarantees.** Never too small; see `add_up` for the two bounds. Infinite if neither bound applies, or if the
        runs protect different units: a guarantee for rows is not a guarantee for people with several rows.
        """
        return self._sum(self._current(drawn, now))

    def refusal(self, drawn: Iterable[Reservation], new: Reservation) -> str | None:
        """Return why `new` cannot draw on this grant in addition to `drawn`; None if it can."""
        together = [*self._current(drawn, new.time), new]
        total = self._sum(together)
        if total <= self.amount * (1 + 1e-9):  # five runs of 0.1 are allowed by 0.5, despite rounding
            return None
        if len(_units(together)) > 1:
            return (
                f"the runs about {self.dataset!r} would protect different units, and their sum would be a guarantee "
                f"for none of them (grant {self.number}: {self}); protect the same unit in every run"
            )
        unit, shown = (
            "rho" if self.rho is not None else "epsilon",
            format_up(total) if total < math.inf else "too much",
        )
        return f"{self.dataset!r} would reach {unit} {shown}; grant {self.number} allows {self}"

    def _current(self, drawn: Iterable[Reservation], now: datetime) -> list[Reservation]:
        counted = [one for one in drawn if one.state != "cancelled"]
        return [one for one in counted if self.per == "all" or max(one.time, one.last) >= now - YEAR]

    def _sum(self, counted: Sequence[Reservation]) -> float:
        if not counted:
            return 0.0
        if len(_units(counted)) > 1:
            return math.inf
        rho = sum((one.budget.rho for one in counted), Fraction(0))
        if self.rho is not None:
            return float_above(rho)
        rest = float_below(Fraction(self.delta) - sum((one.budget.discovery_delta for one in counted), Fraction(0)))
        bounds = [epsilon_of(float_above(rho), rest)] if rest > 0 else []
        delta = sum((one.budget.delta or Fraction(0) for one in counted), Fraction(0))
        if all(one.budget.epsilon is not None for one in counted) and delta <= Fraction(self.delta):
            bounds.append(float_above(sum((one.budget.epsilon or Fraction(0) for one in counted), Fraction(0))))
        return min(bounds, default=math.inf)


def budget_to_dict(budget: Budget) -> dict[str, Any]:
    """Return a budget as plain data, with fractions as text so that they stay exact."""
    return {
        "proof": budget.proof,
        "rho": str(budget.rho),
        "epsilon": None if budget.epsilon is None else str(budget.epsilon),
        "delta": None if budget.delta is None else str(budget.delta),
        "discovery_delta": str(budget.discovery_delta),
    }


def budget_from_dict(data: Mapping[str, Any]) -> Budget:
    """Read the result of `budget_to_dict`.

    Raises:
        ValueError: for numbers that no run reserves.
    """
    numbers = {name: data.get(name) for name in ("rho", "epsilon", "delta", "discovery_delta")}
    numbers["discovery_delta"] = data.get("discovery_delta", data.get("purchase_delta"))  # the name in older ledgers
    exact = {name: None if text is None else parse_fraction(text) for name, text in numbers.items()}
    if exact["rho"] is None or any(number is not None and number < 0 for number in exact.values()):
        raise ValueError("a reservation is never negative")
    if (exact["epsilon"] is None) != (exact["delta"] is None):
        raise ValueError("epsilon and delta go together")
    aside = exact["discovery_delta"] or Fraction(0)
    return Budget(data.get("proof", "zcdp"), exact["rho"], exact["epsilon"], exact["delta"], aside)


def _units(reservations: Iterable[Reservation]) -> set[str]:
    """Return the units that the reservations protect. The number of rows per unit changes the noise, not the unit."""
    return {_ROWS_USED.sub("", one.unit) for one in reservations}
