"""The audit: a lower bound of epsilon, measured on two neighbouring tables, which must not exceed the claim.

If a mechanism is (epsilon, delta)-DP then P(E | D) <= exp(epsilon) P(E | D') + delta for every event E. Two proportions
are estimated with Clopper-Pearson bounds, so the epsilon computed from them is too large with probability at most the
stated error rate. The event is fixed before the runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from understudy.testing import expect

ERROR = 1e-9
"""The probability with which an audit of a correct mechanism may fail by chance."""


@dataclass(frozen=True)
class Trial:
    """Two neighbouring tables, what is run on them, and the event that distinguishes them.

    Attributes:
        present: whether the event happened in one fresh run on the table with the unit.
        absent: the same on the table without it.
        epsilon: the claim.
        delta: the claim's delta.
        runs: how often each is run.
    """

    present: Callable[[], bool]
    absent: Callable[[], bool]
    epsilon: float
    delta: float
    runs: int

    def lower_bound(self) -> float:
        """A lower bound of the mechanism's epsilon, too large with probability at most `ERROR`."""
        hits = sum(bool(self.present()) for _ in range(self.runs))
        alarms = sum(bool(self.absent()) for _ in range(self.runs))
        return epsilon_at_least(hits, alarms, self.runs, self.delta)


def check_claim(trial: Trial) -> None:
    """Check that the measured lower bound does not exceed the claim.

    Raises:
        AssertionError: with both numbers.
    """
    bound = trial.lower_bound()
    expect(bound <= trial.epsilon, f"measured epsilon of at least {bound:.3g}, claimed {trial.epsilon:.3g}")


def epsilon_at_least(hits: int, alarms: int, runs: int, delta: float, error: float = ERROR) -> float:
    """log((P(E | D) - delta) / P(E | D')), the first from below and the second from above, each with error / 2.

    >>> epsilon_at_least(0, 0, 1000, 0.0)
    0.0
    >>> round(epsilon_at_least(900, 100, 1000, 0.0), 2)  # log(9) = 2.2 from far more runs
    1.6
    """
    from scipy.stats import beta

    low = float(beta.ppf(error / 2, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.isf(error / 2, alarms + 1, runs - alarms)) if alarms < runs else 1.0
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def p_value_bound(counts: ArrayLike, shares: ArrayLike) -> float:
    """The probability, at most, with which draws of this law have counts so far from it (in relative entropy).

    It holds for every number of draws and every law, however rare its cells: if n draws fall into k cells and D is the
    relative entropy of their observed shares to the law's, then ``P(n D >= g) <= exp(k - 1 - g) (g / (k - 1))^(k - 1)``
    for every g above k - 1 (R. Agrawal, Finite-sample concentration of the multinomial in relative entropy, IEEE
    Transactions on Information Theory, 2020). A chi-square test is only asymptotic, which is not good enough at 10^-9.

    Args:
        counts: how many draws fell into each cell.
        shares: the probability of each cell under the law, adding up to 1.

    >>> p_value_bound([520, 480], [0.5, 0.5]), p_value_bound([620, 380], [0.5, 0.5]) < 1e-10
    (1.0, True)
    """
    seen, law = np.asarray(counts, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    used = seen > 0
    if len(seen) < 2 or not (law[used] > 0).all():
        return 1.0 if len(seen) < 2 else 0.0
    entropy = float((seen[used] * np.log(seen[used] / (seen.sum() * law[used]))).sum())
    free = len(seen) - 1
    return math.exp(free - entropy + free * math.log(entropy / free)) if entropy > free else 1.0
