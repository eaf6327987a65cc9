"""The audit: how well two neighbouring tables can be told apart by what a mechanism releases, against its claim.

`audit` runs a mechanism many times on a worst-case pair of made-up tables (`pairs`) and tells runs on the one from runs
on the other by several statistics: the exact likelihood ratio of the gate's answers (`likelihood`), what the model and
the rows say about the target, and a discriminant learned from a fifth of the runs. From how often each is right follow
lower bounds that hold with a stated confidence; a mechanism whose lower bound exceeds its claim is broken. An audit
finds bugs. It proves nothing: a mechanism that passes may still leak in a way that nobody tried.

A `Trial` is the smallest audit: one event, fixed before the runs, for a stage of the gate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy import svg
from understudy.accounting import Budget, epsilon_of
from understudy.accounting.ceiling import Ceiling
from understudy.arguments import as_progress, as_whole
from understudy.errors import SettingError
from understudy.mechanism import Mechanism
from understudy.mechanism.registry import mechanism_classes
from understudy.metric.roc import (
    auc,
    auc_of_mu,
    binomial_tail,
    gaussian_power,
    mu_of_auc,
    proportion_high,
    proportion_low,
    roc,
)
from understudy.progress import Progress, Step
from understudy.testing import expect
from understudy.testing.pairs import (
    BATCH_SECONDS,
    LOOK_EVERY,
    MODEL,
    ROWS,
    STATISTICS,
    TOTAL,
    UNPAID,
    VALUE,
    Bench,
    Setup,
    Workers,
    choose_pair,
)
from understudy.testing.replay import RUNS as REPEATED
from understudy.testing.replay import Inspection, inspect_runs

ERROR = 1e-9
"""The probability with which an audit of a correct mechanism may fail by chance in a test."""

VERDICT_ERROR = 1e-6
"""The probability with which `audit` calls a correct mechanism broken or unexplained."""

SLACK = 1.02
"""Above theory by less than this factor is no finding: conversions and the discreteness of noise leave some slack."""

Verdict = Literal["consistent", "unexplained", "broken"]

_NORMAL = NormalDist()
_POWER = 0.95
_DELTA = 0.01
"""Where a budget in rho is compared by its epsilon, the delta at which."""


# -- Bounds: from statistics of runs on two tables to numbers that hold with a stated confidence.


@dataclass(frozen=True)
class Finding:
    """How well one statistic tells the tables apart.

    Attributes:
        name: the statistic.
        wins: pairs in which it was larger on the table with the target; ties by coin.
        pairs: the number of pairs.
        auc: the area under its ROC curve.
        mu: the same as the distance of two normal distributions, in standard deviations.
        mu_error: the standard error of `mu`.
        mu_low: a lower bound of mu, from the number of wins, exact.
        epsilon_low_gaussian: a lower bound of epsilon, if the trade-off is that of a Gaussian mechanism; 0 where delta
            is 0, for which there is none.
        epsilon_low: a lower bound of epsilon without that assumption, from one event chosen on a fifth of the pairs.
    """

    name: str
    wins: int
    pairs: int
    auc: float
    mu: float
    mu_error: float
    mu_low: float
    epsilon_low_gaussian: float
    epsilon_low: float

    def auc_low(self, error: float) -> float:
        """Return a lower bound of the area, too large with probability at most `error`."""
        return proportion_low(self.wins, self.pairs, error)

    def auc_high(self, error: float) -> float:
        """Return an upper bound of the area."""
        return proportion_high(self.wins, self.pairs, error)


def judge_statistic(
    name: str, out: NDArray[np.float64], inside: NDArray[np.float64], delta: float, error: float
) -> Finding:
    """Bound how well a statistic tells tables apart; values come in pairs of fresh runs, one on each table."""
    ties = np.random.default_rng().random(len(out)) < 0.5
    wins = int(((inside > out) | ((inside == out) & ties)).sum())
    area, spread = auc(out, inside)
    mu = mu_of_auc(area)
    density = _NORMAL.pdf(_NORMAL.inv_cdf(area)) if 0 < area < 1 else math.inf
    low = max(0.0, mu_of_auc(proportion_low(wins, len(out), error)))
    return Finding(
        name=name,
        wins=wins,
        pairs=len(out),
        auc=area,
        mu=mu,
        mu_error=math.sqrt(2) * spread / density,
        mu_low=low,
        epsilon_low_gaussian=epsilon_of_mu(low, delta) if delta else 0.0,
        epsilon_low=_bound_epsilon(out, inside, delta, error),
    )


def _bound_epsilon(out: NDArray[np.float64], inside: NDArray[np.float64], delta: float, error: float) -> float:
    """Bound epsilon from below by the event that looked best on the first fifth of the pairs, which is not reused."""
    fifth = max(1, len(out) // 5)
    best, threshold, one, other = -math.inf, math.inf, inside, out
    for above, below in ((inside, out), (-out, -inside)):  # a large value on one table, or a small one on the other
        cuts = np.quantile(np.concatenate([above[:fifth], below[:fifth]]), np.linspace(0.02, 0.98, 49))
        hits, alarms = ((side[:fifth] > cuts[:, np.newaxis]).mean(axis=1) for side in (above, below))
        low, high = hits - 2 * _spread(hits, fifth), alarms + 2 * _spread(alarms, fifth)
        found = np.log(np.maximum(low - delta, 1e-9) / high)
        place = int(found.argmax())
        if found[place] > best:
            best, threshold, one, other = float(found[place]), float(cuts[place]), above, below
    one, other = one[fifth:], other[fifth:]
    return epsilon_at_least(int((one > threshold).sum()), int((other > threshold).sum()), len(one), delta, error)


def _spread(shares: NDArray[np.float64], runs: int) -> NDArray[np.float64]:
    """Return the standard error of proportions; never zero."""
    found: NDArray[np.float64] = np.sqrt(np.maximum(shares * (1 - shares), 1 / runs) / runs)
    return found


def delta_of_mu(mu: float, epsilon: float) -> float:
    """Return the delta at epsilon of a mechanism with the trade-off of two normal distributions, mu apart.

    >>> round(delta_of_mu(1.0, 1.0), 6)
    0.126937
    """
    if mu == 0:
        return 0.0
    return _NORMAL.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * _NORMAL.cdf(-epsilon / mu - mu / 2)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the epsilon at delta of a mechanism with the trade-off of two normal distributions, mu apart.

    >>> round(epsilon_of_mu(0.43, 0.01), 5), round(epsilon_of_mu(1.0, 1e-5), 5)
    (0.75166, 4.37718)
    """
    if not math.isfinite(mu):
        return math.inf
    low, high = 0.0, mu * (mu / 2 + 40)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of_mu(mu, middle) > delta else (low, middle)
    return high if low else 0.0


def learn_discriminant(seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights of features, fitted on some pairs, whose weighted sum separates the tables best (Fisher 1936).

    Directions without noise count most: noise that was used twice cancels in a difference.
    """
    apart = seen[:, 1].mean(axis=0) - seen[:, 0].mean(axis=0)
    within = np.concatenate([seen[:, table] - seen[:, table].mean(axis=0) for table in (0, 1)])
    scale = np.maximum(within.std(axis=0), 1e-9)
    spread = np.cov(within / scale, rowvar=False) + 1e-6 * np.eye(len(scale))
    found: NDArray[np.float64] = np.linalg.solve(spread, apart / scale) / scale
    return found


# -- The audit.


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of an audit; made of made-up tables, so it may be published.

    Attributes:
        setup: the mechanism, its settings, the budget, the neighbour relation and the pair of tables.
        findings: what each statistic found.
        theory_mu: the mu that the budget's noise should have; for pure DP, the mu of the claim's own area.
        pair_mu: the mu that this pair of tables could show, from the trial runs.
        claim: the most that the claim allows an attacker.
        claim_epsilon: the claimed epsilon at `delta`.
        delta: the delta of all epsilons here.
        confidence: the confidence of the lower bounds in `findings`.
        verdict: see `decide`.
        reasons: why, in words.
        seconds: wall-clock time of the runs that count.
        interrupted: whether it was stopped before all pairs were run.
        curve: false and true positives of the likelihood ratio.
        inspection: what a close look at single runs found.
    """

    setup: Setup
    findings: Sequence[Finding]
    theory_mu: float
    pair_mu: float
    claim: Ceiling
    claim_epsilon: float
    delta: float
    confidence: float
    verdict: Verdict
    reasons: Sequence[str]
    seconds: float
    interrupted: bool
    curve: tuple[NDArray[np.float64], NDArray[np.float64]]
    inspection: Inspection | None = None

    @property
    def pairs(self) -> int:
        """How many pairs of runs there were."""
        return self.findings[0].pairs

    @property
    def power(self) -> float:
        """By how much mu would have to exceed theory to be found with probability 0.95; infinite for too few pairs."""
        limit = self.claim.auc
        if self.setup.budget.get("delta") != 0:
            limit = min(limit, auc_of_mu(SLACK * self.theory_mu))
        return (
            mu_of_auc(_smallest_detectable(limit, self.pairs, VERDICT_ERROR / _count_tests(self.findings)))
            - self.theory_mu
        )

    @property
    def power_text(self) -> str:
        """Which leaks this number of pairs can find, in words."""
        if math.isfinite(self.power):
            return f"A mu above theory by {self.power:.2g} would have been found with a probability of {_POWER}."
        return "So few pairs could not have found any leak by counting."

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        from understudy import __version__

        setup = self.setup
        return {
            "mechanism": setup.mechanism,
            "settings": dict(setup.settings),
            "budget": dict(setup.budget),
            "neighbours": {"max_rows": setup.max_rows, "rows_public": setup.rows_public},
            "tables": setup.pair,
            "pairs": self.pairs,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 1),
            "theory_mu": self.theory_mu,
            "pair_mu": self.pair_mu,
            "claim_auc": self.claim.auc,
            "claim_epsilon": self.claim_epsilon,
            "delta": self.delta,
            "confidence": self.confidence,
            "statistics": [
                {name: getattr(one, name) for name in _SHOWN} | {"pairs": one.pairs} for one in self.findings
            ],
            "inspection": None if self.inspection is None else asdict(self.inspection),
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "power": self.power if math.isfinite(self.power) else None,
            "version": __version__,
        }

    def text(self) -> str:
        """Describe the audit in a few lines."""
        stopped = " (interrupted)" if self.interrupted else ""
        lines = [
            f"{self.setup.mechanism}: {self.verdict}",
            f"  {self.pairs} pairs of runs in {self.seconds:.0f} s{stopped}, on the tables {self.setup.pair!r}; "
            f"theory mu {self.theory_mu:.3f}; claim epsilon {self.claim_epsilon:.3g} at delta {self.delta:g}",
            f"  {'statistic':<11} {'mu':>6} {'± s.e.':>7} {'mu at least':>12} {'epsilon at least: Gaussian, any':>33}",
        ]
        for one in self.findings:
            lines.append(
                f"  {one.name:<11} {one.mu:>6.3f} {one.mu_error:>7.3f} {one.mu_low:>12.3f} "
                f"{one.epsilon_low_gaussian:>25.2f}, {one.epsilon_low:.2f}"
            )
        lines += [f"  {reason}" for reason in self.reasons]
        if self.inspection is not None and not self.inspection.differed:
            lines.append(f"  {self.inspection.text()}")
        lines.append(f"  {self.power_text}")
        return "\n".join(lines)


_SHOWN = ("name", "wins", "auc", "mu", "mu_error", "mu_low", "epsilon_low_gaussian", "epsilon_low")


def _count_tests(findings: Sequence[Any]) -> int:
    """Return how many tests share an audit's error: an area and an epsilon of each statistic, and four more."""
    return 2 * len(findings) + 4


def _smallest_detectable(limit: float, pairs: int, error: float) -> float:
    """Return the smallest area whose lower bound exceeds a limit with a probability of 0.95; 1 where none does.

    >>> round(_smallest_detectable(0.5, 1000, 0.05), 3), _smallest_detectable(0.5, 10, 1e-7)
    (0.552, 1.0)
    """
    low, high = 0, pairs + 1  # the fewest wins whose lower bound exceeds the limit lie above `low`, at most at `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if binomial_tail(middle, pairs, limit) <= error else (middle, high)
    if high > pairs:
        return 1.0
    found, least = 1.0, limit
    for _ in range(40):
        area = (least + found) / 2
        least, found = (least, area) if binomial_tail(high, pairs, area) >= _POWER else (area, found)
    return found


def decide(
    findings: Sequence[Finding],
    claim: Ceiling,
    claim_epsilon: float,
    theory_mu: float | None,
    events: Sequence[float],
    error: float = VERDICT_ERROR,
    unpaid: float = 0.0,
    inspection: Inspection | None = None,
    delta: float = 0.0,
) -> tuple[Verdict, list[str]]:
    """Return the verdict of an audit.

    - *broken*: a lower bound exceeds the claim: the area under the curve, or epsilon; or runs that got the same answers
      on both tables differ too often. A mechanism that keeps its claim is called so with probability at most `error`:
      each of the bounds has its part of it.
    - *unexplained*: the likelihood ratio does better than the noise should allow; or another statistic does better than
      the likelihood ratio, or a run that got the same answers differs, so that something leaves that the gate did not
      answer; or an answer tells more than its charges allow; or noise was used twice. The claim may still hold. The
      first compares with Gaussian noise of the same rho: zCDP as such does not imply that, but a single count, choice
      or Laplace answer of that rho stays below it.
    - *consistent*: none of these.

    Args:
        findings: of each statistic; the likelihood ratio first.
        claim: what the guarantee allows.
        claim_epsilon: the claimed epsilon.
        theory_mu: the mu of the budget's noise; None where there is no such number, as under pure DP.
        events: for each finding, the lower bound of epsilon at an error of `error / _count_tests(findings)`.
        error: the error of the verdict.
        unpaid: the most by which the divergence of an answer exceeded its charges.
        inspection: what a close look at single runs found.
        delta: the claimed delta.
    """
    error /= _count_tests(findings)
    broken = [
        f"{one.name}: the area under the curve is at least {one.auc_low(error):.4f}; the claim allows {claim.auc:.4f}."
        for one in findings
        if one.auc_low(error) > claim.auc
    ] + [
        f"{one.name}: epsilon is at least {event:.3f}, and the claim is {claim_epsilon:.3f}."
        for one, event in zip(findings, events, strict=True)
        if event > claim_epsilon
    ]
    if inspection is not None and inspection.refutes(claim_epsilon, delta, error):
        broken.append(_describe_bypass(inspection))
    if broken:
        return "broken", broken
    exact = findings[0]
    odd = []
    if theory_mu is not None and mu_of_auc(exact.auc_low(error)) > SLACK * theory_mu:
        odd.append(f"mu is at least {mu_of_auc(exact.auc_low(error)):.3f}, and the noise explains {theory_mu:.3f}.")
    odd += [
        f"{one.name} tells the tables apart better than the gate's answers do: something bypasses the gate."
        for one in findings[1:]
        if one.auc_low(error) > exact.auc_high(error)
    ]
    if unpaid:
        odd.append(f"An answer tells the tables apart more than its charge allows: {unpaid:.3g} beyond 2 rho.")
    if inspection is not None and inspection.differed:
        odd.append(_describe_bypass(inspection))
    if inspection is not None and inspection.noise_is_reused(error):
        odd.append(
            f"Noise was used twice: {inspection.repeated} measurements have the noise of an earlier one of the same "
            f"run, and chance explains {inspection.expected:.2g}."
        )
    return ("unexplained", odd) if odd else ("consistent", ["No statistic exceeds the claim."])


def _describe_bypass(inspection: Inspection) -> str:
    return (
        f"The same answers of the gate gave another result on the other table in {inspection.differed} of "
        f"{inspection.runs} runs ({', '.join(inspection.where)}): something bypasses the gate."
    )


def audit(
    mechanism: str | Mechanism = "mst",
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    pairs: int | None = None,
    minutes: float = 10.0,
    jobs: int = 1,
    max_rows: int = 1,
    rows_public: bool = False,
    tables: str | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
    **settings: Any,
) -> Audit:
    """Measure how well a mechanism's releases tell two worst-case tables apart, and compare that with its claim.

    An interrupt ends the runs; the result is then of the pairs done.

    Args:
        mechanism: a mechanism's name, also one of another package; or the mechanism itself.
        epsilon: with `delta`, the claim; by default (1, 0.01). Delta 0 is pure DP.
        delta: see `epsilon`. A large delta makes an audit sharper: rare events need many runs to be seen.
        rho: the claim in zCDP, instead of epsilon.
        pairs: how many pairs of runs; by default as many as `minutes` allow, fixed after a few timed runs.
        minutes: about how long the runs may take.
        jobs: how many processes run pairs; needs a registered mechanism.
        max_rows: rows of one protected unit.
        rows_public: whether the number of rows is public, so that neighbours replace a unit.
        tables: the pair of made-up tables: lone, tie, crowd, link or parity (`testing.pairs.worst_pairs`); by default
            the one on which the mechanism's answers differ most.
        confidence: the confidence of the lower bounds, each by itself; verdicts have their own, `VERDICT_ERROR`.
        progress: called with each `Step`.
        settings: the mechanism's settings, when it is given by name.

    **Privacy.** Reads no data: the tables are made up. Nothing is charged, and the result may be published.

    >>> found = audit("independent", pairs=50)
    >>> found.verdict, found.pairs
    ('consistent', 50)

    Raises:
        SettingError: for an unknown mechanism or setting, and for numbers that make no sense.
    """
    report = as_progress(progress)
    setup, made = _set_up(mechanism, epsilon, delta, rho, max_rows, rows_public, settings)
    setup = replace(setup, pair=tables or "")
    jobs = as_whole("jobs", jobs, least=1)
    if made is not None and jobs > 1:
        raise SettingError("jobs: processes find a mechanism by its name; register it, or use jobs=1")
    if not 0 < confidence < 1:
        raise SettingError("confidence must be above 0 and below 1")
    if not 0 < minutes < math.inf:
        raise SettingError("minutes must be a positive number")
    report(Step("audit", None, f"{setup.mechanism}: choosing the tables"))
    bench, divergence = choose_pair(setup, made)
    report(Step("audit", None, f"{setup.mechanism}: repeating runs with the same answers"))
    inspection = inspect_runs(bench, REPEATED if pairs is None else min(REPEATED, as_whole("pairs", pairs, least=10)))
    each = _time_pair(bench)
    count = max(10, int(60 * minutes * jobs / each)) if pairs is None else as_whole("pairs", pairs, least=10)
    start, seen, interrupted = time.monotonic(), [], False
    try:
        size = max(1, min(round(BATCH_SECONDS / each), count // (4 * jobs) or 1))
        with Workers(bench, jobs) as workers:
            for batch in workers.batches(count, size):
                seen.append(batch)
                done = sum(map(len, seen))
                report(Step("audit", done / count, f"{setup.mechanism}: {done} of {count} pairs"))
    except KeyboardInterrupt:
        interrupted = True
    if sum(map(len, seen)) < 10:
        raise KeyboardInterrupt
    seconds = time.monotonic() - start
    return judge(bench, np.concatenate(seen), divergence, confidence, seconds, interrupted, inspection=inspection)


def _set_up(
    mechanism: str | Mechanism,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    max_rows: int,
    rows_public: bool,
    settings: dict[str, Any],
) -> tuple[Setup, Mechanism | None]:
    """Return the setup of an audit, and the mechanism itself if a process could not find it by its name."""
    if rho is None and epsilon is None:
        epsilon, delta = 1.0, 0.01 if delta is None else delta
    given = {"epsilon": epsilon, "delta": delta, "rho": rho}
    budget = {name: float(value) for name, value in given.items() if value is not None}
    Budget.of(**budget)
    made = None
    if isinstance(mechanism, Mechanism):
        if settings:
            raise SettingError(f"settings {', '.join(settings)}: a mechanism object has its own; leave them out")
        settings = mechanism.settings()
        made = None if mechanism_classes().get(mechanism.name) is type(mechanism) else mechanism
        mechanism = mechanism.name
    elif mechanism not in mechanism_classes():
        choices = ", ".join(sorted(mechanism_classes()))
        raise SettingError(f"mechanism {mechanism!r} is unknown; the choices are {choices}")
    return Setup(mechanism, settings, budget, as_whole("max_rows", max_rows, least=1), bool(rows_public)), made


def _time_pair(bench: Bench, runs: int = 5) -> float:
    """Return the seconds that a pair takes; the first, which may compile, does not count."""
    bench.pairs(1)
    start = time.perf_counter()
    bench.pairs(runs)
    return max(1e-4, (time.perf_counter() - start) / runs)


def judge(
    bench: Bench,
    seen: NDArray[np.float64],
    divergence: float,
    confidence: float = 0.95,
    seconds: float = 0.0,
    interrupted: bool = False,
    error: float = VERDICT_ERROR,
    inspection: Inspection | None = None,
) -> Audit:
    """Return the result of an audit, from the statistics of its pairs of runs.

    Args:
        bench: what was run.
        seen: by pair, table and number, as `Bench.pairs` returns them.
        divergence: of the pair, from the trial runs.
        confidence: of the lower bounds.
        seconds: how long the runs took.
        interrupted: whether they were stopped early.
        error: of the verdict.
        inspection: of single runs.
    """
    budget, receipt = bench.budget, bench.receipt()
    delta = _DELTA if budget.delta is None else float(budget.delta)
    claim_epsilon = epsilon_of(budget.rho, delta) if budget.epsilon is None else float(budget.epsilon)
    unpaid, values = float(seen[:, :, UNPAID].max()), seen[:, :, VALUE]
    looked = ~np.isnan(seen[:, 0, MODEL])
    answers = np.delete(seen, [UNPAID, MODEL, ROWS, TOTAL], axis=2)
    learning = max(1, len(seen) // 5)
    learned = answers[learning:] @ learn_discriminant(answers[:learning])
    columns = [values, *(seen[looked, :, place] for place in (MODEL, ROWS, TOTAL)), learned]
    named = [(name, (one[:, 0], one[:, 1])) for name, one in zip(STATISTICS, columns, strict=True)]
    findings = [judge_statistic(name, *values, delta, 1 - confidence) for name, values in named]
    events = [_bound_epsilon(*values, delta, error / _count_tests(named)) for _, values in named]
    claim = Ceiling.of(receipt)
    theory = mu_of_auc(claim.auc) if budget.pure else math.sqrt(2 * float(budget.rho))
    expected = None if budget.pure else theory
    verdict, reasons = decide(findings, claim, claim_epsilon, expected, events, error, unpaid, inspection, delta)
    return Audit(
        setup=bench.setup,
        findings=findings,
        theory_mu=theory,
        pair_mu=math.sqrt(divergence),
        claim=claim,
        claim_epsilon=claim_epsilon,
        delta=delta,
        confidence=confidence,
        verdict=verdict,
        reasons=reasons,
        seconds=seconds,
        interrupted=interrupted,
        curve=roc(values[:, 0], values[:, 1]),
        inspection=inspection,
    )


# -- The page of audits.


_BAND = 41  # points of the band of confidence


def audit_page(audits: Sequence[Audit]) -> str:
    """Render audits as one HTML page that needs nothing else: verdicts, trade-offs and statistics."""
    from understudy import __version__
    from understudy.report.page import load_template

    template = load_template("audit.html.j2", "understudy.testing")
    content = [{"audit": one, "chart": _draw(one), "corner": _draw(one, corner=True)} for one in audits]
    return f"{template.render(audits=content, version=__version__, every=LOOK_EVERY)}\n"


def _draw(audit: Audit, *, corner: bool = False) -> Any:
    """Return the trade-off: all of it, or the corner of few false positives."""
    most = 0.01 if corner else 1.0
    grid = np.linspace(0.0, most, 201)
    ceiling = audit.claim.power(grid)
    false, true = audit.curve
    shown = np.unique(np.searchsorted(false, np.linspace(0.0, most, 301), side="right") - 1)
    x, y = np.append(false[shown], most), np.append(true[shown], np.interp(most, false, true))
    bounds = _bounds(audit, most)
    curves = [
        svg.Curve("chance", grid.tolist(), grid.tolist()),
        svg.Curve("claim", grid.tolist(), ceiling.tolist()),
        svg.Curve("theory", grid.tolist(), gaussian_power(audit.theory_mu, grid).tolist()),
        *bounds,
        svg.Curve("seen", x.tolist(), y.tolist()),
    ]
    title = f"Trade-off of {audit.setup.mechanism}" + (", few false positives" if corner else "")
    highest = max(0.02, ceiling.max(), y.max(), *(max(one.y, default=0.0) for one in bounds))
    top = min(1.0, float(np.ceil(25 * highest)) / 25) if corner else 1.0  # four lines at whole percentages
    return svg.draw_tradeoff(title, curves, most=(most, top))


def _bounds(audit: Audit, most: float) -> list[svg.Curve]:
    """Return Clopper-Pearson bounds of the curve's points, both coordinates at once with 95 % confidence."""
    false, true = audit.curve
    runs = audit.pairs
    places = np.unique(np.searchsorted(false, np.linspace(0.0, min(1.0, 1.5 * most), _BAND), side="right") - 1)
    alarms, hits = np.rint(false[places] * runs).astype(int), np.rint(true[places] * runs).astype(int)
    low = [
        (proportion_high(int(a), runs, 0.0125), proportion_low(int(h), runs, 0.0125))
        for a, h in zip(alarms, hits, strict=True)
    ]
    high = [
        (proportion_low(int(a), runs, 0.0125), proportion_high(int(h), runs, 0.0125))
        for a, h in zip(alarms, hits, strict=True)
    ]
    return [svg.Curve("band", [x for x, _ in side], [y for _, y in side]) for side in (low, high)]


# -- One event on two tables: the audit of a stage of the gate.


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
        """Return a lower bound of the mechanism's epsilon, too large with probability at most `ERROR`."""
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
    """Return log((P(E | D) - delta) / P(E | D')), the first from below, the second from above, each with error / 2.

    >>> epsilon_at_least(0, 0, 1000, 0.0)
    0.0
    >>> round(epsilon_at_least(900, 100, 1000, 0.0), 2)  # log(9) = 2.2 from far more runs
    1.6
    """
    low, high = proportion_low(hits, runs, error / 2), proportion_high(alarms, runs, error / 2)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def p_value_bound(counts: ArrayLike, shares: ArrayLike) -> float:
    """Return the probability, at most, with which draws of this law have counts so far from it (in relative entropy).

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
