"""The meaning of epsilon and delta: the most that an attacker can learn, and a delta that is small enough for a table.

Under (epsilon, delta) differential privacy, a test of whether somebody's record was used has a true positive rate of at
most e^epsilon times its false positive rate, plus delta. The odds of any prior belief therefore grow by a factor of at
most e^epsilon, except in an event of probability delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from understudy.errors import SettingError

LARGEST = 1e-6
"""The largest default delta, also for few people."""


@dataclass(frozen=True)
class Odds:
    """The most that a release reveals about one person, to an attacker who knows everything about all others.

    Attributes:
        factor: the largest factor by which the odds of a belief about the person can grow.
        coin: the largest probability of guessing right if it was 1/2 before.
        tenth: the same if it was 1/10 before.
        except_with: the probability that the guarantee fails.
    """

    factor: float
    coin: float
    tenth: float
    except_with: float

    def text(self) -> str:
        """Return the meaning in one sentence."""
        rest = f", except with probability {self.except_with:g}" if self.except_with else ""
        return (
            f"A belief about one person held at 50 % becomes at most {_percent(self.coin)}, one held at 10 % at most "
            f"{_percent(self.tenth)}: the odds grow at most {self.factor:.3g}-fold{rest}."
        )


def odds_of(epsilon: float, delta: float) -> Odds:
    """Return what (epsilon, delta) means as an attacker's odds.

    **Guarantees.** `coin` is the best accuracy that any test can have, (e^epsilon + delta) / (1 + e^epsilon); `tenth`
    follows from the growth of the odds, with delta added.

    >>> round(odds_of(1.0, 0.0).coin, 3), round(odds_of(1.0, 0.0).tenth, 3)
    (0.731, 0.232)
    """
    factor = math.exp(min(epsilon, 700.0))
    coin, tenth = (min(1.0, _posterior(factor, prior) + delta) for prior in (1 / 2, 1 / 10))
    return Odds(factor, coin, tenth, delta)


def default_delta(people: int) -> float:
    """Return the default delta: the largest power of ten that is at most 1 / (10 people), and at most 1e-6.

    A mechanism that publishes each record with probability delta satisfies the definition. With a delta of at most
    1 / (10 people), even that mechanism publishes at most a tenth of a record on average.

    >>> default_delta(20_000), default_delta(305_000)
    (1e-06, 1e-07)
    """
    return min(LARGEST, float(f"1e{math.floor(math.log10(1 / (10 * people)))}"))


def check_delta(delta: Any, people: int) -> float:
    """Return a delta that is small enough for this number of people.

    Raises:
        SettingError: if it is not; the message names the largest delta.
    """
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 <= float(delta) < 1:
        raise SettingError("delta must be a number of at least 0 and below 1; 0 means pure DP")
    number = float(delta)
    if number > 1 / (10 * people):
        raise SettingError(
            f"delta {number:g} is too large for about {people} people: it must be at most 1 / (10 people), "
            f"{1 / (10 * people):.1g}; without it, {default_delta(people):g} is used"
        )
    return number


def _posterior(factor: float, prior: float) -> float:
    odds = factor * prior / (1 - prior)
    return odds / (1 + odds)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
