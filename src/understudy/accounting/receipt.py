"""The receipt: the guarantee, its assumptions, and every charge, as data and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pydantic import TypeAdapter

from understudy.accounting.budget import Account, Budget
from understudy.accounting.charge import DISCOVERIES, Charge
from understudy.accounting.exact import float_above, format_up
from understudy.accounting.neighbours import Neighbours
from understudy.arguments import html_table
from understudy.errors import InputError

_PROOFS = {
    "zcdp": "charges add up as rho of zero-concentrated differential privacy, converted once by the tightest rule",
    "pld": "all measurements were fixed in advance; their privacy-loss distribution was computed, rounded upwards",
    "pure": "charges add up as epsilon; there is no delta",
}

NOT_PROMISED = (
    "secrecy of the run's duration, or of anything else observed on the machine while it ran",
    "protection against a malicious custodian, or one who declares private facts as public in the schema",
    "protection of groups larger than the unit stated above, such as a household, beyond group privacy",
    "secrecy of statistics about the population as a whole",
)


@dataclass(frozen=True)
class Receipt:
    """The account of a run's privacy; part of the release, all of it public.

    Attributes:
        budget: the run's budget and guarantee.
        charges: every charge, exact.
        neighbours: who is protected, and the neighbour relation.
        facts: the origin of each column's facts: public, reviewed or discovered.
        noise: which sampler drew the noise.
        insecure: True if the run used seeded noise for a test; such a release protects nobody.
        rehearsal: True if the rows were made from the schema alone; such a release is about nobody.
        mechanism: the mechanism, and the reason if `auto` chose it.

    **Guarantees.** The release satisfies the budget's (epsilon, delta) for any adaptive choices of the mechanism: the
    filter bounds the charges by the budget. The stated guarantee is the budget's, not the possibly smaller sum.
    """

    budget: Budget
    charges: tuple[Charge, ...]
    neighbours: Neighbours
    facts: Mapping[str, str] = field(default_factory=dict)
    noise: str = "exact"
    insecure: bool = False
    rehearsal: bool = False
    mechanism: str = ""

    @property
    def rho(self) -> float:
        """The sum of the charges, in zCDP."""
        return float_above(self.exact_rho)

    @property
    def exact_rho(self) -> Fraction:
        """The same, exactly."""
        return sum((charge.rho for charge in self.charges), Fraction(0))

    @property
    def epsilon(self) -> float | None:
        """The guaranteed epsilon, or None for a budget stated as rho alone."""
        return None if self.budget.epsilon is None else float_above(self.budget.epsilon)

    @property
    def delta(self) -> float | None:
        """The guaranteed delta, or None for a budget stated as rho alone."""
        return None if self.budget.delta is None else float_above(self.budget.delta)

    def guarantee(self) -> str:
        """Describe the guarantee in one line."""
        if self.rehearsal:
            return "NONE: a rehearsal on rows made from the schema alone; it is about nobody, and nothing was spent"
        if self.insecure:
            return "NONE: made in test mode with seeded noise; it protects nobody and must not be released"
        if self.epsilon is None or self.delta is None:
            return f"{format_up(float_above(self.budget.rho))}-zCDP"
        if self.budget.pure:
            return f"epsilon = {format_up(self.epsilon)} (pure differential privacy, delta = 0)"
        return f"(epsilon = {format_up(self.epsilon)}, delta = {format_up(self.delta)})-differential privacy"

    def __repr__(self) -> str:
        return f"<Receipt: {self.guarantee()}, {len(self.charges)} charges>"

    def _repr_html_(self) -> str:
        split = [line.partition(": ") for line in self.text().splitlines()]
        lines = [(label, words) if words and "." not in label else ("", label + colon + words)
                 for label, colon, words in split]  # fmt: skip
        return html_table("Receipt", (), lines)

    def text(self) -> str:
        """Describe the receipt in plain words."""
        facts = sorted(set(self.facts.values()))
        lines = [
            f"Guarantee: {self.guarantee()}.",
            f"Who is protected: {self.neighbours.describe()}.",
            *([f"Mechanism: {self.mechanism}."] if self.mechanism else []),
            f"Why it holds: {_PROOFS[self.budget.proof]}; the noise is integer and drawn exactly ({self.noise}).",
            f"Spent: {self._format_spent()}, in {len(self.charges)} charges.",
            *self._for_quality(),
            *(f"Facts that are {origin}: {_names(self.facts, origin)}." for origin in facts),
            *self._list_discoveries(),
            "It covers this run alone. Other releases about the same people add up: their epsilons and deltas add.",
            "Not promised: " + "; ".join(NOT_PROMISED) + ".",
        ]
        return "\n".join(lines)

    def _for_quality(self) -> list[str]:
        """Return one line for the cost of the measured quality."""
        paid = [charge for charge in self.charges if charge.what == "quality"]
        if not paid:
            return []
        cost = format_up(float_above(self.budget.cost(paid)))
        return [f"Of this, {cost} in {self._currency} measured how good the result is (workload error)."]

    def _list_discoveries(self) -> list[str]:
        """Return one line for each fact that was discovered."""
        lines: dict[tuple[str, str], list[Charge]] = {}
        for charge in self.charges:
            if charge.what in DISCOVERIES:
                lines.setdefault((charge.what, charge.about[0][0]), []).append(charge)
        return [
            f"Discovered: the {what} of {column} for {self._price(paid)}." for (what, column), paid in lines.items()
        ]

    def _price(self, charges: Sequence[Charge]) -> str:
        price = f"{self._currency} {format_up(float_above(self.budget.cost(charges)))}"
        if charges[0].threshold is None:
            return price
        delta = format_up(float_above(sum((charge.delta for charge in charges), Fraction(0))))
        return f"{price} and delta {delta} (values of at least {charges[0].threshold} rows, noise included)"

    def _format_spent(self) -> str:
        spent, most = self.budget.cost(self.charges), self.budget.capacity
        return f"{format_up(float_above(spent))} of {format_up(float_above(most))} in {self._currency}"

    @property
    def _currency(self) -> str:
        return "epsilon" if self.budget.pure else "rho"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; fractions as text."""
        data: dict[str, Any] = _RECEIPT.dump_python(
            self,
            mode="json",
            exclude={
                "charges": True,
                "budget": {"rho_stated"},
                "neighbours": set[str]() if self.neighbours.tables else {"tables"},
                "rehearsal": not self.rehearsal,
            },
        )
        return {"guarantee": self.guarantee(), **data, "charges": [charge.to_dict() for charge in self.charges]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Receipt:
        """Read the result of `to_dict`.

        Raises:
            BudgetExceeded: if the charges exceed the budget, which no run writes.
            InputError: if something is missing or has the wrong type.
        """
        try:
            made = _RECEIPT.validate_python(data)
            Account(made.budget).pay(made.charges)
        except (ValueError, ArithmeticError):
            raise InputError("this is not a receipt; give the unaltered result of `receipt.to_dict()`") from None
        return made


_RECEIPT = TypeAdapter(Receipt)


def _names(facts: Mapping[str, str], origin: str) -> str:
    return ", ".join(column for column, value in facts.items() if value == origin)
