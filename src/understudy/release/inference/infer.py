"""Compute estimates with valid confidence intervals from a release alone; see `Release.infer`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from understudy.domain import Clique
from understudy.errors import InputError, SettingError
from understudy.release.answer import Condition, check_confidence, parse_query, read_conditions
from understudy.release.inference.corrected import Array, CorrectedTables, Functions
from understudy.release.inference.formula import Variable, Variables
from understudy.release.inference.gap import EVIDENCE
from understudy.release.inference.selection import Choices, widen_sampling
from understudy.release.inference.statistics import (
    Estimates,
    Subpopulation,
    check_independence,
    estimate_correlation,
    estimate_linear,
    estimate_logistic,
    estimate_means,
)

if TYPE_CHECKING:
    from understudy.release.release import Release

Family = Literal["gaussian", "binomial"]
Target = Literal["table", "population"]

FUNCTIONS = {
    "mean": "mean(age), or mean(age) | sex for each group",
    "share": "share(sex=F, age=30..40), or share(income=high) | sex for each group",
    "corr": "corr(age, hours)",
    "chisq": "chisq(sex, income)",
}
"""The statistics that are not regressions, with an example of each."""

_CALL = re.compile(r"\s*(?P<function>[A-Za-z_]\w*)\s*\((?P<inner>[^~]*)\)\s*(?:\|\s*(?P<group>[^~|]+?)\s*)?", re.DOTALL)
_WITHIN = 0.2  # the least missed correlation among values that were merged into one
_ALONE = 0.05  # share of rows with other values from which on their correlation is used
_FELT = 0.1  # share of the variance due to unmeasured relations from which on a warning is given
_SHOWN = 4


@dataclass(frozen=True)
class Estimate:
    """An estimate.

    Attributes:
        term: what is estimated.
        estimate: the value; None if it cannot be seen under the noise.
        se: its standard error.
        low: the lower end of the confidence interval.
        high: the upper end.
        df: the degrees of freedom of Student's t on which the interval is based; None for the normal distribution.
        p: the p-value of the test that the value is 0; None if that makes no sense.
        privacy: the share of the variance that is due to the noise.
        sampling: the share due to drawing the rows from a population; 0 for the table itself.
        model: the share due to relations that were not measured.
    """

    term: str
    estimate: float | None
    se: float | None = None
    low: float | None = None
    high: float | None = None
    df: float | None = None
    p: float | None = None
    privacy: float | None = None
    sampling: float | None = None
    model: float | None = None


@dataclass(frozen=True)
class Inference:
    """Estimates with standard errors and confidence intervals.

    Attributes:
        statistic: what was asked.
        method: how it was computed.
        target: "table", the rows of the true table; or "population", from which they are a sample.
        confidence: the probability with which each interval holds, over the noise (and the sample).
        rows: the number of rows that it is based on; an estimate, unless public.
        lines: the estimates.
        warnings: what the intervals rest on that was not measured, and what could not be estimated.
    """

    statistic: str
    method: str
    target: Target
    confidence: float
    rows: float
    lines: tuple[Estimate, ...]
    warnings: tuple[str, ...] = ()

    @property
    def table(self) -> Any:
        """The estimates as a pandas frame; see `to_frame`."""
        return self.to_frame()

    def to_frame(self) -> Any:
        """Return the estimates as a pandas frame, one line for each term."""
        import pandas as pd

        return pd.DataFrame([asdict(line) for line in self.lines]).set_index("term")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        return asdict(self) | {"lines": [asdict(line) for line in self.lines], "warnings": list(self.warnings)}

    def __str__(self) -> str:
        return "\n".join(self._format())

    def _format(self) -> Iterator[str]:
        about = "the rows of the true table" if self.target == "table" else "the population of the rows"
        sure = f"{100 * self.confidence:.4g} % intervals"
        yield f"{self.statistic}: {self.method}, {sure} for {about} (about {self.rows:.0f} rows)"
        names = ("term", "estimate", "se", "low", "high", "df", "p", "privacy", "sampling", "model")
        cells = [list(names)]
        for line in self.lines:
            given = asdict(line)
            cells.append([line.term, *(_format_number(name, given[name], line.se) for name in names[1:])])
        wide = [max(len(row[i]) for row in cells) for i in range(len(names))]
        for row in cells:
            yield "  ".join([row[0].ljust(wide[0]), *(c.rjust(w) for c, w in zip(row[1:], wide[1:], strict=True))])
        for warning in self.warnings:
            yield f"Warning: {warning}"


def _format_number(name: str, value: float | None, se: float | None) -> str:
    if value is None:
        return "-"
    if name in ("privacy", "sampling", "model"):
        return f"{100 * value:.0f} %"
    if name == "p":
        return "<0.0001" if value < 1e-4 else f"{value:.4f}"
    if name == "df":
        return f"{value:.1f}"
    digits = 4
    if se and value and name != "se":  # down to the second digit of the standard error
        digits = max(4, min(15, math.floor(math.log10(abs(value))) - math.floor(math.log10(se)) + 2))
    return f"{value:.{digits}g}"


def infer(
    release: Release,
    statistic: str,
    *,
    family: Family | None = None,
    target: Target = "table",
    confidence: float = 0.95,
    where: str | Mapping[str, Any] | None = None,
    assume: float | None = None,
) -> Inference:
    """Estimate a statistic; see `Release.infer`."""
    _check_arguments(release, statistic, family, target, confidence, assume)
    try:
        return _infer(release, statistic, family, target, confidence, where, assume)
    except (ArithmeticError, np.linalg.LinAlgError):
        raise SettingError(
            f"{statistic!r} cannot be computed from this release: its numbers are too large or small; use fewer terms"
        ) from None


def _infer(
    release: Release,
    statistic: str,
    family: Family | None,
    target: Target,
    confidence: float,
    where: str | Mapping[str, Any] | None,
    assume: float | None,
) -> Inference:
    tables = release.corrected
    conditions = _read_where(release, where or {})
    variables = Variables(release.schema, tables, conditions)
    call = _CALL.fullmatch(statistic)
    if call is not None and call["function"] not in FUNCTIONS and "~" not in statistic:
        call = None
    if call is not None and call["function"] == "chisq":
        return _test_independence(release, statistic, variables, conditions, call, confidence)
    if call is not None:
        method, estimates = _estimate_call(release, variables, conditions, call)
    elif "~" in statistic:
        method, estimates = _estimate_regression(tables, variables, conditions, statistic, family)
    else:
        examples = "; ".join(["`income ~ age + C(sex)`", *FUNCTIONS.values()])
        raise SettingError(f"{statistic!r} is not a statistic; write one of: {examples}")
    lines, warnings = _combine(release, estimates, target, confidence, assume)
    cut = [] if method != "share of rows" or call is None else list(_find_cut_bins(release, call["inner"]))
    if call is not None and cut:
        lowest, highest = (
            _combine(release, _estimate_share(release, variables, conditions, call, kind), target, confidence, assume)[
                0
            ]
            for kind in ("inner", "outer")
        )
        lines = [replace(own, low=a.low, high=b.high) for own, a, b in zip(lines, lowest, highest, strict=True)]
        column, label = cut[0]
        warnings.append(
            f"the condition on {column} cuts through the bin {label}, within which nothing is known: the interval "
            "allows for none and for all of its rows, the standard error for neither"
        )
    return Inference(statistic, method, target, confidence, tables.rows, tuple(lines), tuple(warnings))


def _check_arguments(release: Release, statistic: Any, family: Any, target: Any, confidence: Any, assume: Any) -> None:
    check_confidence(confidence)
    if not isinstance(statistic, str):
        raise SettingError("give a statistic as text, such as 'income ~ age + C(sex)' or 'mean(age) | sex'")
    if family not in (None, "gaussian", "binomial"):
        raise SettingError("family must be 'gaussian' (least squares) or 'binomial' (logistic)")
    if target not in ("table", "population"):
        raise SettingError("target must be 'table' (the rows themselves) or 'population' (they are a sample of it)")
    if assume is not None and (not isinstance(assume, Real) or not 0 <= float(assume) <= 1):
        raise SettingError("assume must be a correlation between 0 and 1, such as 0.1")
    unit = release.schema.privacy_unit
    if target == "population" and unit.max_rows > 1:
        raise SettingError(
            f"target: rows of one {unit.column!r} are not independent, so the sampling error is not known; use "
            "target='table'"
        )
    try:
        import formulaic  # noqa: F401
        import scipy.stats  # noqa: F401
    except ImportError:
        raise InputError("inference needs formulaic and scipy: pip install 'understudy[infer]'") from None


# -- what is asked


def _estimate_regression(
    tables: CorrectedTables, variables: Variables, conditions: Sequence[Condition], text: str, family: Family | None
) -> tuple[str, Estimates]:
    design = variables.read_formula(text)
    logistic = (design.binary and family is None) or family == "binomial"
    if logistic and not design.binary:
        raise SettingError(
            f"family: response {design.response.names[0]!r} has other values than 0 and 1; use 'gaussian'"
        )
    rows = Subpopulation(tables, conditions, [variables[column] for column in design.columns])
    if logistic:
        return f"logistic regression of {design.response.names[0]}", estimate_logistic(rows, design)
    return f"least squares of {design.response.names[0]}", estimate_linear(rows, design)


def _estimate_call(
    release: Release,
    variables: Variables,
    conditions: Sequence[Condition],
    call: re.Match[str],
) -> tuple[str, Estimates]:
    function, tables = call["function"], release.corrected
    if function == "corr":
        pair = _read_columns(variables, call, 2)
        for variable in pair:
            _require_numbers(variable, function)
        return "correlation", estimate_correlation(Subpopulation(tables, conditions, pair), *pair)
    if function == "share":
        return "share of rows", _estimate_share(release, variables, conditions, call, "part")
    (variable,) = _read_columns(variables, call, 1)
    numbers = _require_numbers(variable, function)
    group = None if call["group"] is None else variables[_unquote(call["group"])]
    groups = [] if group is None else [group]
    rows = Subpopulation(tables, conditions, [variable, *groups])
    values: Functions = {(variable.name,): np.where(variable.missing, 0.0, np.nan_to_num(numbers))[None]}
    return "mean", estimate_means(rows, values, group, name=f"mean({variable.name})", share=False)


def _estimate_share(
    release: Release,
    variables: Variables,
    conditions: Sequence[Condition],
    call: re.Match[str],
    kind: Literal["part", "inner", "outer"],
) -> Estimates:
    """Estimate the share of rows with some values; of bins that a condition cuts count an even part, none or all."""
    tables = release.corrected
    group = None if call["group"] is None else variables[_unquote(call["group"])]
    asked = _read_conditions(release, call["inner"])
    part = np.ones(())
    for condition in sorted(asked, key=lambda c: list(tables.declared).index(c.column)):
        part = np.multiply.outer(part, getattr(condition, kind).astype(np.float64))
    names = tables.declared.canonical(condition.column for condition in asked)
    rows = Subpopulation(tables, conditions, [] if group is None else [group])
    return estimate_means(rows, {names: part[None]}, group, name=f"share({call['inner']})", share=True)


def _read_where(release: Release, query: str | Mapping[str, Any]) -> list[Condition]:
    """Read the conditions of `where`, after checking that they cut through no bin: within bins nothing is measured.

    Raises:
        SettingError: naming the column, and a bin as an example.
    """
    for column, label in _find_cut_bins(release, query):
        raise SettingError(
            f"where: the condition on column {column!r} cuts through the bin {label}, within which nothing is known; "
            "begin and end where bins do"
        )
    return _read_conditions(release, query)


def _read_conditions(release: Release, query: str | Mapping[str, Any]) -> list[Condition]:
    return read_conditions(release.schema, parse_query(query) if isinstance(query, str) else query)


def _find_cut_bins(release: Release, query: str | Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the bins, with their columns, of which conditions hold for a part."""
    columns = {column.name: column for column in release.schema.coded}
    for condition in _read_conditions(release, query):
        for code in np.flatnonzero(condition.inner != condition.outer):
            yield condition.column, columns[condition.column].code_labels()[code]


def _read_columns(variables: Variables, call: re.Match[str], count: int) -> list[Variable]:
    names = [_unquote(name) for name in call["inner"].split(",")]
    function = call["function"]
    if len(names) != count or len(set(names)) != count or (call["group"] and function in ("corr", "chisq")):
        raise SettingError(f"{function}: write {FUNCTIONS[function]}")
    return [variables[name] for name in names]


def _unquote(name: str) -> str:
    return name.strip().strip("`")


def _require_numbers(variable: Variable, function: str) -> Array:
    if variable.numbers is None:
        raise SettingError(
            f"{function}: column {variable.name!r} has no numbers; use share({variable.name}={variable.levels[0]}), or "
            f"chisq({variable.name}, ...) for a relation"
        )
    return variable.numbers


def _test_independence(
    release: Release,
    text: str,
    variables: Variables,
    conditions: Sequence[Condition],
    call: re.Match[str],
    confidence: float,
) -> Inference:
    tables, pair = release.corrected, _read_columns(variables, call, 2)
    names = tables.declared.canonical({v.name for v in pair} | {c.column for c in conditions})
    if not tables.is_measured(names):
        raise SettingError(
            f"chisq: {', '.join(map(repr, names))} were not measured together, so only the model's assumption "
            f"about their relation is known; {_remedy([names])}"
        )
    candidates = Choices(release, tables).candidates(names)
    found = check_independence(Subpopulation(tables, conditions, pair), *pair, candidates=candidates)
    shares = {"privacy": found.privacy, "sampling": 1 - found.privacy, "model": 0.0}
    line = Estimate(text, found.statistic, df=found.df, p=found.p, **shares)
    return Inference(text, "chi-square test of independence", "population", confidence, tables.rows, (line,))


# -- variances and intervals


def _combine(
    release: Release,
    estimates: Estimates,
    target: Target,
    confidence: float,
    assume: float | None,
) -> tuple[list[Estimate], list[str]]:
    """Add up the variances of the noise, of the model's gaps and of sampling, and make intervals of them."""
    tables = release.corrected
    found = tables.uncertainty(estimates.influence)
    noise = found.noise.diagonal()
    unmeasured = [clique for clique, variance in found.gaps.items() if not tables.is_measured(clique)]
    gap = np.zeros(len(noise))
    assumed = 0.0
    for clique in {*found.gaps, *found.merged}:
        left, within = found.gaps.get(clique), found.merged.get(clique)
        if not _matters(left, noise) and not _matters(within, noise):
            continue
        correlation = release.gaps.correlation(clique) if assume is None else assume
        if left is not None and _matters(left, noise):
            if correlation is None:
                raise SettingError(
                    f"the statistic rests on relations that were not measured ({_name_pairs(tables, [clique])}), and "
                    f"the release does not say how strong they may be; {_remedy([clique])}, or state a correlation "
                    "that you consider possible, as in assume=0.1 (--assume 0.1)"
                )
            assumed = max(assumed, correlation)
            gap = gap + correlation**2 * left
        if within is not None and _matters(within, noise):
            gap = gap + max(correlation or 0.0, _find_relation_within(release, clique)) ** 2 * within
    sampling = np.zeros(len(noise))
    if target == "population":
        columns = {column for clique in estimates.influence for column in clique}
        candidates = Choices(release, tables).candidates(columns)
        sampling = widen_sampling(noise + gap, tables.sampling(estimates.influence), candidates, confidence)
    total = noise + gap + sampling
    lines = [
        _make_line(name, float(value), float(v), float(n), float(s), float(g), estimates, confidence, tables.laplace)
        for name, value, v, n, s, g in zip(estimates.names, estimates.values, total, noise, sampling, gap, strict=True)
    ]
    return lines, [*estimates.notes, *_warn(tables, unmeasured, lines, assumed, assume)]


def _find_relation_within(release: Release, clique: Clique) -> float:
    """Return the correlation to assume among values that were merged: that of the others for numbers, at least 0.2."""
    tables = release.corrected
    variables = Variables(release.schema, tables)
    found = [_WITHIN]
    for pair in combinations(clique, 2):
        numbers = [variables[column].numbers for column in pair]
        alone = [~tables.is_merged(column) for column in pair]
        centred = []
        for axis, values in enumerate(numbers):
            if values is not None:
                alone[axis] &= np.isfinite(values)
                centred.append(values[alone[axis]])
        table = tables.spread(pair, tables.shares(pair))[np.ix_(*alone)]
        if len(centred) == 2 and table.sum() > _ALONE:
            table = table / table.sum()
            (x, of_x), (y, of_y) = ((v - m @ v, m) for v, m in zip(centred, (table.sum(1), table.sum(0)), strict=True))
            spread = float(of_x @ x**2) * float(of_y @ y**2)
            found.append(abs(float(x @ table @ y)) / math.sqrt(spread) if spread > 0 else 0.0)
    return max(found)


def _matters(variance: Array | None, noise: Array) -> bool:
    return variance is not None and bool((variance > 1e-9 * noise).any())


def _make_line(
    name: str,
    value: float,
    variance: float,
    noise: float,
    sampling: float,
    gap: float,
    estimates: Estimates,
    confidence: float,
    laplace: bool,
) -> Estimate:
    from scipy import stats

    if not math.isfinite(value):
        return Estimate(name, None)
    se = math.sqrt(variance)
    df = EVIDENCE * (variance / gap) ** 2 if gap > 0 else math.inf
    df = min(df, 1e9)
    reach = float(stats.t.ppf(0.5 + confidence / 2, df))
    z = abs(value) / se if se > 0 else math.inf
    p = 2 * float(stats.t.sf(z, df))
    if laplace:  # a single cell has longer tails than sums of many
        reach, p = max(reach, -math.log(1 - confidence) / math.sqrt(2)), max(p, math.exp(-math.sqrt(2) * z))
    ends = np.clip([value - reach * se, value + reach * se], estimates.lowest, estimates.highest)
    return Estimate(
        name,
        value,
        se,
        float(ends[0]),
        float(ends[1]),
        None if df >= 1e9 else df,
        p if estimates.tested else None,
        *((noise / variance, sampling / variance, gap / variance) if variance > 0 else (0.0, 0.0, 0.0)),
    )


def _warn(
    tables: CorrectedTables,
    unmeasured: Sequence[Clique],
    lines: Sequence[Estimate],
    correlation: float,
    assume: float | None,
) -> Iterator[str]:
    felt = any((line.model or 0.0) > _FELT for line in lines)
    if unmeasured and correlation:
        source = "assumed by the caller" if assume is not None else "as the release suggests"
        yield (
            f"rests on relations not measured: {_name_pairs(tables, unmeasured)}; allows for a missed correlation of "
            f"{correlation:.2g} ({source}); {_remedy(unmeasured)}"
        )
    elif felt:
        yield "part of the error is due to values that were merged as too rare to be measured with others"


def _name_pairs(tables: CorrectedTables, cliques: Sequence[Clique]) -> str:
    """Return the pairs that were not measured, or the cliques all of whose pairs were."""
    pairs = [pair for clique in cliques for pair in combinations(clique, 2) if not tables.is_measured(pair)]
    shown = list(dict.fromkeys(pairs or cliques))
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(f"({', '.join(clique)})" for clique in shown[:_SHOWN]) + more


def _remedy(cliques: Sequence[Clique]) -> str:
    asked = ", ".join(str(clique) for clique in list(dict.fromkeys(cliques))[:_SHOWN])
    return f"ask the custodian to measure them (mst: keep=[{asked}])"
