"""Privacy budgets, and the filter that enforces them, in exact rationals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Real
from threading import Lock, RLock
from typing import Literal

from understudy.accounting.charge import Charge
from understudy.accounting.convert import epsilon_of, rho_of
from understudy.accounting.exact import Exact, float_above, to_fraction
from understudy.errors import BudgetExceeded, SettingError

Proof = Literal["zcdp", "pure", "pld"]
"""The composition theorem of a budget: zero-concentrated DP, pure DP, or the exact discrete-Gaussian curve."""

_SLACK = Fraction(1, 10**9)
"""A share that exceeds the rest by at most this part of the budget is a rounding error, and gets the rest."""


@dataclass(frozen=True)
class Budget:
    """A privacy budget: what the filter enforces (`rho`, or `epsilon` when pure) and what that guarantees.

    Attributes:
        proof: "zcdp" (charges add up as rho), "pure" (charges add up as epsilon, delta = 0), or "pld" (one batch of
            measurements fixed in advance, certified by the discrete Gaussian's privacy-loss distribution).
        rho: the sum that charges may reach under "zcdp" and "pld".
        epsilon: the guarantee, or None if only rho was given.
        delta: the guarantee's delta, or None if only rho was given.
        discovery_delta: the part of delta set aside for the discovery of values.
        rho_stated: whether the custodian stated rho itself; charges then never exceed it.

    **Guarantees.** Under "zcdp" rho is the largest value whose tightest known conversion, at `delta - discovery_delta`,
    stays within epsilon: charges that sum to (rho, discovery_delta) of approximate zCDP are (epsilon, delta)-DP.
    """

    proof: Proof
    rho: Exact
    epsilon: Exact | None
    delta: Exact | None
    discovery_delta: Exact = Fraction(0)
    rho_stated: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        discovery_delta: float = 0.0,
    ) -> Budget:
        """Make a budget from (epsilon, delta), from epsilon with delta = 0 (pure DP), or from rho.

        >>> float(Budget.of(epsilon=1.0, delta=1e-9).rho)  # doctest: +ELLIPSIS
        0.01497305...
        >>> Budget.of(epsilon=1.0, delta=0).proof
        'pure'

        Raises:
            SettingError: naming the argument that is missing, contradictory or out of range.
        """
        if rho is not None:
            return cls._from_rho(rho, epsilon, delta, _number("discovery_delta", discovery_delta))
        if epsilon is None:
            raise SettingError("no budget was given: give epsilon and delta, such as 1 and 1e-6 (or rho)")
        epsilon = _positive("epsilon", epsilon)
        if delta is None:
            raise SettingError(
                "delta is missing: give it together with epsilon; 0 means pure DP, a usual choice is 1e-9"
            )
        delta, discovery_delta = _number("delta", delta), _number("discovery_delta", discovery_delta)
        if not (0 <= delta < 1):
            raise SettingError("delta must be at least 0 and below 1; a usual choice is 1e-9, and 0 means pure DP")
        if not (0 <= discovery_delta <= delta) or (discovery_delta and discovery_delta == delta):
            raise SettingError("the delta set aside for discovery must be smaller than delta")
        exact_epsilon, exact_delta = Fraction(epsilon), Fraction(delta)
        if delta == 0:
            return cls("pure", exact_epsilon**2 / 2, exact_epsilon, exact_delta)
        rho = rho_of(epsilon, _delta_without_discovery(delta, discovery_delta))
        if not 0 < rho < math.inf:
            raise SettingError("epsilon or delta is too small or too large to calibrate noise; a usual epsilon is 1")
        return cls("zcdp", Fraction(rho), exact_epsilon, exact_delta, Fraction(discovery_delta))

    @classmethod
    def _from_rho(cls, rho: float, epsilon: float | None, delta: float | None, discovery_delta: float) -> Budget:
        if epsilon is not None:
            raise SettingError("rho and epsilon were both given; give one of them (delta may be given with rho)")
        rho = _positive("rho", rho)
        if delta is None:
            if discovery_delta:
                raise SettingError("delta is missing: give it together with rho; discovering values needs a part of it")
            return cls("zcdp", Fraction(rho), None, None, rho_stated=True)
        delta = _number("delta", delta)
        if not (0 < delta < 1):
            raise SettingError("delta given with rho must be above 0 and below 1: a rho budget is never pure DP")
        if not 0 <= discovery_delta < delta:
            raise SettingError("the delta set aside for discovery must be smaller than delta")
        epsilon = epsilon_of(rho, _delta_without_discovery(delta, discovery_delta))
        if math.isinf(epsilon):
            raise SettingError("rho is so large that it protects nothing; a usual rho is 0.1")
        exact = Fraction(epsilon), Fraction(delta), Fraction(discovery_delta)
        return cls("zcdp", Fraction(rho), *exact, rho_stated=True)

    @property
    def pure(self) -> bool:
        """Whether charges add up as epsilon, with delta = 0."""
        return self.proof == "pure"

    @property
    def capacity(self) -> Fraction:
        """The amount that mechanisms divide among their steps: epsilon of a pure budget, rho of any other."""
        return self.epsilon if self.pure and self.epsilon is not None else self.rho

    def cost(self, charges: Iterable[Charge]) -> Fraction:
        """Return the sum of charges, in the same unit."""
        if self.pure:
            return sum((charge.epsilon or Fraction(0) for charge in charges), Fraction(0))
        return sum((charge.rho for charge in charges), Fraction(0))

    def certify(self, rho: Fraction) -> Budget:
        """Return the budget of measurements fixed in advance, calibrated by the exact curve, which cost `rho`.

        The sum of many different sigmas is a fraction of thousands of digits; it is rounded up to a float.
        """
        return replace(self, proof="pld", rho=Fraction(float_above(rho)))


def _delta_without_discovery(delta: float, discovery_delta: float) -> float:
    """Return delta less discovery's part, rounded down: approximate zCDP adds its delta to that of the conversion."""
    return math.nextafter(delta - discovery_delta, 0.0) if discovery_delta else delta


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(f"{name} must be a number, such as 1 or 1e-9") from None


def _positive(name: str, value: float) -> float:
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise SettingError(f"{name} must be a positive, finite number")
    return number


class Account:
    """The privacy filter of one run: it adds up charges exactly and refuses a charge that would exceed the budget.

    **Guarantees.** The charges it has accepted never sum to more than the budget, in rho, in delta and (pure budgets)
    in epsilon, even if several threads charge it. There is no refund.
    """

    def __init__(self, budget: Budget) -> None:
        if not isinstance(budget, Budget):
            raise SettingError("budget: give a budget, such as Budget.of(epsilon=1, delta=1e-9)")
        self._budget = budget
        self._charges: list[Charge] = []
        self._spent = self._delta = Fraction(0)
        self._lock = Lock()
        self.lock = RLock()  # held by the thread whose question is being answered

    @property
    def budget(self) -> Budget:
        """The budget; read-only."""
        return self._budget

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every accepted charge, in order."""
        return tuple(self._charges)

    @property
    def spent(self) -> Fraction:
        """The sum of the charges, in the budget's own unit."""
        return self._spent

    @property
    def remaining(self) -> Fraction:
        """The rest of the budget, in its own unit."""
        return self.budget.capacity - self.spent

    def share(self, amount: float | Fraction) -> Fraction:
        """Return the exact amount that a call may spend if it asks for `amount`.

        A request that overshoots by a rounding error (a billionth of the budget) gets exactly what is left.

        Raises:
            SettingError: if the amount is not positive.
            BudgetExceeded: if it is more than what is left.
        """
        if isinstance(amount, bool) or not isinstance(amount, Real) or not 0 < amount < math.inf:
            raise SettingError("a share of the budget must be a positive, finite number")
        exact, left = to_fraction(amount), self.remaining
        if exact > left + self.budget.capacity * _SLACK or left <= 0:
            raise BudgetExceeded(
                f"this step asks for {float_above(exact):.6g} of a budget of {float_above(self.budget.capacity):.6g}, "
                f"and {float_above(max(left, Fraction(0))):.6g} is left; nothing was read"
            )
        return min(exact, left)

    def pay(self, charges: Iterable[Charge]) -> None:
        """Accept these charges together, or none of them.

        Raises:
            BudgetExceeded: if rho, delta or epsilon would exceed the budget, or a charge is negative.
        """
        charges = tuple(charges)
        if any(min(charge.rho, charge.delta, charge.epsilon or 0) < 0 for charge in charges):  # of a forged file
            raise BudgetExceeded("a charge must not be negative: budget is never refunded; nothing was read")
        if self.budget.pure and any(charge.epsilon is None or charge.delta for charge in charges):
            raise BudgetExceeded("a pure-DP budget (delta = 0) cannot pay for this noise; give a delta above 0")
        with self._lock:
            spent = self._spent + self.budget.cost(charges)
            delta = self._delta + sum((charge.delta for charge in charges), Fraction(0))
            if spent > self.budget.capacity:
                raise BudgetExceeded("these charges would exceed the budget; nothing was read")
            if delta > self.budget.discovery_delta:
                raise BudgetExceeded("these charges would exceed the delta set aside for discovery; nothing was read")
            self._spent, self._delta = spent, delta
            self._charges.extend(charges)
