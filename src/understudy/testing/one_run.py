"""The audit of one run with many canaries, for mechanisms that take too long to be run thousands of times.

Canary i is a row with code i in every column. A fair coin decides whether each is in the table; after one release, the
auditor guesses the coins that it is most certain of. Under differential privacy few guesses are right beyond half of
them, with a probability that follows from epsilon and delta (Steinke, Nasr and Jagielski 2023) or from the whole
trade-off curve (Mahloujifar, Melis and Chaudhuri 2024). One run shows less than many: expect a bound of half the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Budget, Neighbours, epsilon_of
from understudy.accounting.calibrate import certify_plan
from understudy.arguments import as_progress, as_whole
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism import Fit, Mechanism, make_mechanism
from understudy.mechanism.registry import setting_names
from understudy.metric.roc import binomial_tail
from understudy.progress import Progress, Step
from understudy.schema import Schema
from understudy.testing.audit import SLACK, VERDICT_ERROR, Verdict
from understudy.testing.tables import CodedSource

_NORMAL = NormalDist()
_MANY, _FEW = 20_000, 300
_OTHERS = 60
"""Rows of each code that are there in any case, so that no code is rare enough to be merged with others."""
_ROOM = 1 << 30
_RARE = 1e-12
"""The delta at which a claim of rho is judged: with delta 1e-7 and thousands of canaries, no number of right guesses
would be too many at the error of a verdict."""


@dataclass(frozen=True)
class OneRun:
    """The result of an audit of one run.

    Attributes:
        mechanism: what was run.
        settings: with which settings.
        budget: with which budget.
        canaries: rows whose presence was decided by a coin.
        guesses: coins that were guessed.
        right: guesses that were right.
        theory_mu: the mu that the budget's noise should have.
        mu_low: a lower bound of mu, if the trade-off is that of a Gaussian mechanism.
        epsilon_low: a lower bound of epsilon, at the claim's delta or at 1e-12 where the claim is a rho; 0 where delta
            is too large for so many canaries.
        confidence: the confidence of both bounds.
        verdict: see `testing.audit.decide`.
    """

    mechanism: str
    settings: Mapping[str, Any]
    budget: Mapping[str, float]
    canaries: int
    guesses: int
    right: int
    theory_mu: float
    mu_low: float
    epsilon_low: float
    confidence: float
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        from understudy import __version__

        return asdict(self) | {"one_run": True, "version": __version__}

    def text(self) -> str:
        """Describe the audit in a few lines."""
        return (
            f"{self.mechanism}: {self.verdict}\n"
            f"  one run with {self.canaries} canaries: {self.right} of {self.guesses} guesses were right\n"
            f"  mu at least {self.mu_low:.3f} (theory {self.theory_mu:.3f}), epsilon at least {self.epsilon_low:.2f}, "
            f"with confidence {self.confidence:g}"
        )


def audit_once(
    mechanism: str | Mechanism = "mst",
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    canaries: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    **settings: Any,
) -> OneRun:
    """Audit a mechanism by one run on a made-up table with many canaries.

    Args:
        mechanism: a mechanism's name, or the mechanism itself.
        epsilon: with `delta`, the claim; by default (1, 1e-7).
        delta: must be far below 1 / canaries for a bound of epsilon.
        rho: the claim in zCDP, instead of epsilon.
        canaries: how many; by default 20,000 where the mechanism has room for so many codes, else 300.
        confidence: of the lower bounds.
        progress: called with each `Step`.
        settings: the mechanism's settings, when it is given by name.

    **Privacy.** Reads no data: the table is made up. Nothing is charged, and the result may be published.

    Raises:
        SettingError: for an unknown mechanism or setting.
    """
    if rho is None and epsilon is None:
        epsilon, delta = 1.0, 1e-7 if delta is None else delta
    given = {"epsilon": epsilon, "delta": delta, "rho": rho}
    stated = {name: float(value) for name, value in given.items() if value is not None}
    budget = Budget.of(**stated)
    made = _make(mechanism, settings)
    count = _fit_canaries(made) if canaries is None else as_whole("canaries", canaries, least=100)
    if not 0 < confidence < 1:
        raise SettingError("confidence must be above 0 and below 1")
    as_progress(progress)(Step("audit", None, f"{made.name}: one run with {count} canaries"))
    coins = np.random.default_rng().random(count) < 0.5
    fit, spent = _run(made, budget, coins)
    scores = score_canaries(fit, count)
    guesses = min(400, max(100, count // 10))
    sure = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    right = int(((scores[sure] > 0) == coins[sure]).sum())
    theory = math.sqrt(2 * float(spent.rho))
    error, at = 1 - confidence, _RARE if budget.delta is None else float(budget.delta)
    claims = [] if budget.epsilon is None else [(float(budget.epsilon), at)]
    claims += [] if budget.pure else [(epsilon_of(spent.rho, _RARE), _RARE)]
    part = VERDICT_ERROR / 3
    return OneRun(
        mechanism=made.name,
        settings=settings,
        budget=stated,
        canaries=count,
        guesses=guesses,
        right=right,
        theory_mu=theory,
        mu_low=bound_mu(count, guesses, right, error),
        epsilon_low=bound_epsilon(count, guesses, right, at, error),
        confidence=confidence,
        verdict="broken"
        if any(bound_epsilon(count, guesses, right, rare, part) > claim for claim, rare in claims)
        else "unexplained"
        if not budget.pure and bound_mu(count, guesses, right, part) > SLACK * theory
        else "consistent",
    )


def _make(mechanism: str | Mechanism, settings: dict[str, Any]) -> Mechanism:
    if isinstance(mechanism, str) and "public" in setting_names(mechanism):
        settings = {"public": CodedSource({"a": 2, "b": 2}, [[0, 0], [1, 1]])} | settings
    return make_mechanism(mechanism, **settings)


def _fit_canaries(mechanism: Mechanism) -> int:
    """Return as many canaries as the mechanism has room for."""
    try:
        needed = mechanism.footprint(Domain({"a": _MANY, "b": _MANY})).memory_bytes
    except SettingError:
        return _FEW
    return _MANY if needed < _ROOM else _FEW


def _run(mechanism: Mechanism, budget: Budget, coins: NDArray[np.bool_]) -> tuple[Fit, Budget]:
    codes = np.repeat(np.arange(len(coins)), _OTHERS + coins)
    rows: Any = np.stack([codes, codes], axis=1)
    source = CodedSource({"a": len(coins), "b": len(coins)}, rows)
    ready = mechanism.prepare(Schema.from_domain({"a": len(coins), "b": len(coins)}))
    plan, budget = certify_plan(ready.plan(source.domain), budget, Neighbours())
    return ready.fit(PrivateTable(source, budget, plan=plan), rho=float(budget.capacity)), budget


def score_canaries(fit: Fit, canaries: int) -> NDArray[np.float64]:
    """Return how much each canary's measured cells lie above the middle between its presence and its absence."""
    scores = np.zeros(canaries)
    for one in fit.measurements:
        if one.query is None:
            cells, alone = _find_cells(one, fit, canaries)
            scores[alone] += (one.values[cells[alone]] - _OTHERS - 0.5) / one.sigma**2
    return scores


def _find_cells(one: Measurement, fit: Fit, canaries: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the cell of each canary in a measurement, and whether no other canary is in it."""
    declared = len(one.values) == canaries ** len(one.clique)
    codes = [np.arange(canaries) if declared else fit.recoding.apply(c, np.arange(canaries)) for c in one.clique]
    sizes = [int(axis.max()) + 1 for axis in codes]
    cells = np.ravel_multi_index([axis.astype(np.int64) for axis in codes], sizes) if codes else np.zeros(canaries, int)
    _, place, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return cells, counts[place] == 1


def bound_epsilon(canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Return a lower bound of epsilon from how many guesses were right (Steinke, Nasr and Jagielski 2023).

    >>> round(bound_epsilon(100, 100, 75, 0.0, 0.05), 6), round(bound_epsilon(1000, 200, 180, 1e-5, 0.05), 6)
    (0.702214, 1.796285)
    """
    low, high = 0.0, 50.0
    if p_value(canaries, guesses, right, 0.0, delta) > error:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(canaries, guesses, right, middle, delta) <= error else (low, middle)
    return low


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the probability, at most, with which an (epsilon, delta)-DP mechanism lets so many guesses be right.

    >>> round(p_value(1000, 200, 180, 1.7, 1e-5), 6)
    0.018098
    """
    chance = 1 / (1 + math.exp(-epsilon))
    base = binomial_tail(right, guesses, chance)
    if delta == 0:
        return base
    steps = ((binomial_tail(right - i, guesses, chance) - base) / i for i in range(1, right + 1))
    return min(1.0, base + 2 * canaries * delta * max(0.0, *steps))


def bound_mu(canaries: int, guesses: int, right: int, error: float) -> float:
    """Return a lower bound of mu from how many guesses were right (Mahloujifar, Melis and Chaudhuri 2024).

    >>> round(bound_mu(100, 100, 75, 0.05), 6), round(bound_mu(1000, 200, 180, 0.05), 6)
    (0.404312, 0.698201)
    """
    if not _refutes(canaries, guesses, right, 0.0, error):
        return 0.0
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _refutes(canaries, guesses, right, middle, error) else (low, middle)
    return low


def _refutes(canaries: int, guesses: int, right: int, mu: float, error: float) -> bool:
    """Return whether so many right guesses have a probability below `error` under the trade-off of mu."""
    reached, wrong = error * right / canaries, error * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        most = _NORMAL.cdf(_NORMAL.inv_cdf(reached) - mu) if 0 < reached < 1 else float(reached >= 1)
        more = max(wrong, most)
        reached = min(1.0, reached + (more - wrong) * i / (guesses - i))
        wrong = more
    return reached + wrong > guesses / canaries
