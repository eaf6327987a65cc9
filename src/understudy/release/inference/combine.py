"""Published rules that combine the estimates of several synthetic tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from understudy.errors import InputError, SettingError
from understudy.release.answer import check_confidence

Rule = Literal["reiter", "raghunathan", "replicates"]

CONDITIONS = {
    "reiter": "every table keeps the values of true rows that were not synthesised (partially synthetic data), without "
    "noise; rows of a release are not such data",
    "raghunathan": "every table is drawn from the posterior of the model given the rows (fully synthetic data), and "
    "the model holds",
    "replicates": "the tables are `release.replicates`, the estimate is that of the release, and all relations that "
    "matter were measured; about the population; exploratory: relations that the model lacks are not covered",
}
"""Under which conditions each rule holds."""


@dataclass(frozen=True)
class Combined:
    """An estimate from several tables.

    Attributes:
        estimate: the mean of the estimates, or the given centre.
        se: its standard error.
        low: the lower end of the confidence interval.
        high: the upper end.
        df: the degrees of freedom of Student's t on which the interval is based.
        condition: when the rule holds, in words.
    """

    estimate: float
    se: float
    low: float
    high: float
    df: float
    condition: str


def combine(
    estimates: Sequence[float],
    variances: Sequence[float] | None = None,
    *,
    rule: Rule,
    centre: float | None = None,
    confidence: float = 0.95,
) -> Combined:
    """Combine the estimates of m synthetic tables by a published rule.

    With b the variance of the estimates and u the mean of their own variances, the variance is

    * "reiter" (Reiter 2003): u + b/m, with (m-1)(1 + mu/b)^2 degrees of freedom;
    * "raghunathan" (Raghunathan, Reiter and Rubin 2003): (1 + 1/m)b - u, with (m-1)(1 - u/((1 + 1/m)b))^2;
    * "replicates": (1 + 1/m)b, with m-1, about `centre`, the release's own estimate.

    The rules do not know of the noise that protects the rows: none of them is valid for rows of a release, except
    "replicates" under its conditions. `Release.infer` is, for the statistics that it has.

    Args:
        estimates: the estimate from each table; at least 2.
        variances: its usual squared standard error in each table; not needed by "replicates".
        rule: "reiter", "raghunathan" or "replicates"; `Combined.condition` says when it holds.
        centre: the estimate from the release's rows, for "replicates".
        confidence: the probability that the interval is to hold with.

    Raises:
        SettingError: for too few estimates, an unknown rule, or a variance that is negative.

    >>> found = combine([1.0, 1.2, 0.9, 1.1], [0.01] * 4, rule="reiter")
    >>> round(found.estimate, 2), round(found.se**2, 6), round(found.df, 2)
    (1.05, 0.014167, 34.68)
    """
    try:
        from scipy import stats
    except ImportError:
        raise InputError("combining estimates needs scipy: pip install 'understudy[infer]'") from None
    check_confidence(confidence)
    if rule not in CONDITIONS:
        raise SettingError(f"rule: {rule!r} is unknown; use {', '.join(CONDITIONS)}")
    values = _read_numbers("estimates", estimates)
    m, b = len(values), float(np.var(values, ddof=1))
    value = float(values.mean())
    if rule == "replicates":
        if centre is None or not math.isfinite(centre):
            raise SettingError("centre: give the estimate from the release's own rows")
        value, variance, df = float(centre), (1 + 1 / m) * b, float(m - 1)
    else:
        own = _read_numbers("variances", variances)
        if len(own) != m or (own < 0).any():
            raise SettingError("variances: give the squared standard error of each estimate, 0 or more")
        variance, df = _apply_rule(rule, m, b, float(own.mean()))
    se = math.sqrt(variance)
    reach = float(stats.t.ppf(0.5 + confidence / 2, df)) * se if se > 0 else 0.0
    return Combined(value, se, value - reach, value + reach, df, CONDITIONS[rule])


def _apply_rule(rule: Rule, m: int, b: float, u: float) -> tuple[float, float]:
    """Return the variance of the combined estimate and its degrees of freedom."""
    if rule == "reiter":
        return u + b / m, (m - 1) * (1 + m * u / b) ** 2 if b > 0 else math.inf
    between = (1 + 1 / m) * b
    if between <= u:
        raise SettingError(
            "raghunathan: the variance is negative, as happens with few tables; make more tables, or use another rule"
        )
    return between - u, (m - 1) * (1 - u / between) ** 2


def _read_numbers(option: str, given: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        values = np.array(math.nan)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise SettingError(f"{option}: give at least two finite numbers, one for each table")
    return values
