"""The page of a comparison: scores against epsilon, ranks, error against time, and every number as a table."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from statistics import NormalDist, fmean, median, variance
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from understudy import svg
from understudy.arguments import html_table
from understudy.comparison.study import DONE, parse_mechanism
from understudy.errors import SettingError
from understudy.mechanism.registry import mechanism_classes
from understudy.metric.base import Metric
from understudy.metric.registry import get_metric
from understudy.report.page import load_template

if TYPE_CHECKING:
    from understudy.comparison.grid import Comparison

Case = tuple[str, str]
"""A table and a workload."""


@dataclass
class Scores:
    """The scores of one metric, of the runs that have one.

    Attributes:
        better: "lower" or "higher".
        values: by case, mechanism and epsilon, one of each run.
        seconds: the processor seconds of the same runs.
        tried: the cases, mechanisms and epsilons that were run, with or without a score.
    """

    better: str = "lower"
    values: dict[tuple[Case, str, float], list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[tuple[Case, str, float], list[float]] = field(default_factory=lambda: defaultdict(list))
    tried: set[tuple[Case, str, float]] = field(default_factory=set)

    def means(self, case: Case, epsilon: float) -> dict[str, float]:
        """Return the mean score of each mechanism."""
        return {m: fmean(values) for (c, m, e), values in self.values.items() if c == case and e == epsilon}


def collect_scores(comparison: Comparison, part: str = "") -> dict[str, Scores]:
    """Return the scores by metric, or one part of them."""
    scores: dict[str, Scores] = {}
    for line in comparison.results.to_pylist():
        if line["part"] == part:
            one = scores.setdefault(line["metric"], Scores(get_metric(line["metric"]).better))
            key = (line["table"], line["workload"]), line["mechanism"], line["epsilon"]
            one.tried.add(key)
            if line["value"] is not None:
                one.values[key].append(line["value"])
                one.seconds[key].append(line["seconds"])
    return {metric: one for metric, one in scores.items() if one.values}


def rank_mechanisms(scores: Scores) -> dict[str, float]:
    """Return the mean rank of each mechanism over the cases and budgets in which it was run; 1 is the best.

    Equal scores share a rank. A mechanism that was run without a score is the last of the case.
    """
    names = list(dict.fromkeys(mechanism for _, mechanism, _ in scores.values))
    ranks: dict[str, list[float]] = {name: [] for name in names}
    for case, epsilon in dict.fromkeys((case, epsilon) for case, _, epsilon in scores.values):
        means = scores.means(case, epsilon)
        sign = 1 if scores.better == "lower" else -1
        for name in names:
            if name not in means:
                ranks[name] += [float(len(names))] if (case, name, epsilon) in scores.tried else []
                continue
            ahead = sum(sign * other < sign * means[name] for other in means.values())
            equal = sum(other == means[name] for other in means.values())
            ranks[name].append(ahead + (equal + 1) / 2)
    return {name: fmean(each) for name, each in ranks.items()}


@dataclass(frozen=True)
class ScoreRatio:
    """The scores of a mechanism divided by those of another, over all cases and budgets that both have.

    Attributes:
        mechanism: whose scores are divided.
        ratios: the ratios of mean scores.
        mean: their geometric mean.
        p_value: of the one-sided test that the ratio is above 1: Welch's t-test in every case, combined by Stouffer's
            method; None where no case has two runs of both.
    """

    mechanism: str
    ratios: tuple[float, ...]
    mean: float
    p_value: float | None


def measure_ratios(scores: Scores, baseline: str) -> list[ScoreRatio]:
    """Return how much larger the scores of each mechanism are than the baseline's, as in Figure 2 of the AIM paper."""
    found = []
    for name in dict.fromkeys(mechanism for _, mechanism, _ in scores.values):
        shared = [
            (values, scores.values[case, baseline, epsilon])
            for (case, mechanism, epsilon), values in scores.values.items()
            if mechanism == name != baseline and (case, baseline, epsilon) in scores.values
        ]
        shared = [(ours, theirs) for ours, theirs in shared if min(*ours, *theirs) > 0]
        if not shared:
            continue
        ratios = [fmean(ours) / fmean(theirs) for ours, theirs in shared]
        tests = [z for ours, theirs in shared if (z := compare_means(ours, theirs)) is not None]
        p_value = 0.5 * math.erfc(math.fsum(tests) / math.sqrt(2 * len(tests))) if tests else None
        mean = math.exp(fmean(map(math.log, ratios)))
        found.append(ScoreRatio(name, tuple(ratios), mean, p_value))
    return found


def compare_means(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return Welch's t-test that one mean is larger than another, as a standard normal value; None without a spread."""
    if min(len(ours), len(theirs)) < 2:
        return None
    parts = [variance(values) / len(values) for values in (ours, theirs)]
    if not sum(parts):
        return None
    t = (fmean(ours) - fmean(theirs)) / math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(p**2 / (len(v) - 1) for p, v in zip(parts, (ours, theirs), strict=True))
    tail = max(_student_tail(abs(t), freedom), 1e-300)
    return math.copysign(-NormalDist().inv_cdf(tail), t)


def _student_tail(t: float, freedom: float) -> float:
    """Return P(T > t) of Student's distribution, t >= 0: half of an incomplete beta function, by Simpson's rule.

    With T = sqrt(freedom) tan(angle), the density of the angle is proportional to cos(angle)^(freedom - 1).
    """
    start, steps = math.atan(t / math.sqrt(freedom)), 2000
    width = (math.pi / 2 - start) / steps
    heights = [math.cos(start + width * place) ** (freedom - 1) for place in range(steps)] + [
        0.0 if freedom > 1 else 1.0
    ]
    area = width / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]))
    logarithm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(math.pi)
    return min(0.5, float(area * math.exp(logarithm)))


def find_front(places: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the mechanisms that no other beats in both coordinates, lower being better; the fastest first.

    >>> find_front({"a": (1, 5), "b": (2, 3), "c": (3, 4), "d": (4, 1)})
    ['a', 'b', 'd']
    """
    front, best = [], float("inf")
    for name, (_, error) in sorted(places.items(), key=lambda item: item[1]):
        if error < best:
            front.append(name)
            best = error
    return front


def draw_scores(comparison: Comparison, metric: str, table: str, part: str = "") -> svg.Chart:
    """Return the chart of a metric, or a part of it, on a table and its first workload, as a drawing that stands alone.

    Raises:
        SettingError: when there is no such score.
    """
    scores = collect_scores(comparison, part).get(metric)
    cases = [] if scores is None else [case for case, _, _ in scores.values if case[0] == table]
    if scores is None or not cases:
        words = f"part {part!r} of the score" if part else "score"
        raise SettingError(f"no run has a {words} of {metric!r} on {table!r}")
    return svg.Chart.standalone(_curves(comparison, metric, scores, cases[0], part, keyed=True))


def draw_all(comparison: Comparison) -> Iterator[tuple[str, svg.Chart]]:
    """Yield the chart of every metric on every table and workload, each with a name for its file."""
    for metric, scores in collect_scores(comparison).items():
        cases = dict.fromkeys(case for case, _, _ in scores.values)
        several = len({workload for _, workload in cases}) > 1
        for table, workload in cases:
            name = "-".join([metric, table, *([workload] if several else [])])
            chart = _curves(comparison, metric, scores, (table, workload), keyed=True)
            yield re.sub(r"[^\w-]+", "-", name), svg.Chart.standalone(chart)
        if ratios := _ratio_chart(scores, _labels(comparison)[0], get_metric(metric).title):
            yield f"{metric}-ratios", svg.Chart.standalone(ratios)


def comparison_page(comparison: Comparison) -> str:
    """Render a comparison as one HTML page that needs nothing else."""
    study, scores = comparison.study, collect_scores(comparison)
    names = _labels(comparison)
    cases = list(dict.fromkeys(case for one in scores.values() for case, _, _ in one.values))
    content = {
        "version": version("understudy"),
        "custodian": not study.public,
        "tables": list(dict.fromkeys(case[0] for case in cases)),
        "facts": _describe_runs(comparison),
        "versions": "; ".join(dict.fromkeys(comparison.results["version"].to_pylist())),
        "names": [(svg.draw_key(place), name) for place, name in enumerate(names)],
        "sources": _describe_mechanisms(comparison),
        "metrics": [(name, get_metric(name)) for name in scores],
        "cases": [_describe_case(comparison, case, scores) for case in cases],
        "ranks": _rank_table(names, scores),
        "ratios": _ratio_tables(names, scores),
        "failures": _failures(comparison),
    }
    return f"{load_template('comparison.html.j2', 'understudy.comparison').render(content)}\n"


def score_table(comparison: Comparison) -> str:
    """Return the mean scores as an HTML table, for notebooks."""
    lines = summarize_scores(collect_scores(comparison))
    head = ("metric", "table", "workload", "mechanism", "epsilon", "mean", "from least to largest")
    return html_table("Scores", head, lines)


def summarize_scores(scores: Mapping[str, Scores]) -> list[tuple[str, ...]]:
    """Return a line for each metric, case, mechanism and budget: the mean, and the least and largest of the runs."""
    return [
        (metric, *case, mechanism, f"{epsilon:g}", _show(fmean(v), 4), f"{_show(min(v), 4)} to {_show(max(v), 4)}")
        for metric, one in scores.items()
        for (case, mechanism, epsilon), v in one.values.items()
    ]


def _labels(comparison: Comparison) -> list[str]:
    """Return the mechanisms that were run, in the study's order."""
    run = list(dict.fromkeys(comparison.results["mechanism"].to_pylist()))
    return sorted(run, key=lambda name: [*comparison.study.mechanisms, name].index(name))


def _describe_runs(comparison: Comparison) -> list[tuple[str, str]]:
    names = ("table", "workload", "mechanism", "epsilon", "run")
    runs = {tuple(line[name] for name in names) for line in comparison.results.to_pylist()}
    counts = sorted(set(Counter(run[:-1] for run in runs).values()))
    budgets = sorted({epsilon for *_, epsilon, _ in runs})
    several = f"{len(budgets)}, from {budgets[0]:g} to {budgets[-1]:g}" if len(budgets) > 3 else ""
    return [
        ("Runs", f"{len(runs):,}"),
        ("Epsilon", several or ", ".join(f"{epsilon:g}" for epsilon in budgets)),
        ("Delta", f"{comparison.study.delta:g}"),
        ("Runs of each case", " to ".join(f"{count}" for count in dict.fromkeys((counts[0], counts[-1])))),
    ]


def _describe_mechanisms(comparison: Comparison) -> list[tuple[str, str, str]]:
    """List each label, what was run, and where it was published."""
    lines = []
    for label, text in comparison.study.mechanisms.items():
        chosen = mechanism_classes().get(parse_mechanism(text)[0])
        lines.append((label, text, "" if chosen is None else chosen.paper or ""))
    return lines


def _describe_case(comparison: Comparison, case: Case, scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Return the charts and numbers of one table and workload."""
    drawn = [
        {
            "metric": get_metric(name),
            "chart": _curves(comparison, name, one, case),
            "table": _numbers(comparison, one, case),
        }
        for name, one in scores.items()
        if any(key[0] == case for key in one.values)
    ]
    first = next(iter(scores))
    epsilons = sorted({epsilon for c, _, epsilon in scores[first].values if c == case})
    middle = epsilons[len(epsilons) // 2] if epsilons else None
    front = None if middle is None else _front_chart(comparison, first, scores[first], case, middle)
    return {"table": case[0], "workload": case[1], "scores": drawn, "front": front}


def _curves(
    comparison: Comparison, metric: str, scores: Scores, case: Case, part: str = "", *, keyed: bool = False
) -> Markup:
    series = []
    for name in _labels(comparison):
        lines = sorted((epsilon, values) for (c, m, epsilon), values in scores.values.items() if (c, m) == (case, name))
        series.append(svg.Series(name, [(epsilon, fmean(v), min(v), max(v)) for epsilon, v in lines]))
    series = [one for one in series if one.points] if keyed else series
    shown = ", ".join([get_metric(metric).title, *([part] if part else [])])
    better = "more is better" if scores.better == "higher" else "less is better"
    words = {"x_words": "epsilon", "y_words": f"{shown} ({better})"}
    return svg.draw_lines(f"{shown} against epsilon, {case[0]}", series, keyed=keyed, **words)


def _numbers(comparison: Comparison, scores: Scores, case: Case) -> dict[str, Any]:
    """Return the means, with the best of each budget marked, and the seconds of a run."""
    epsilons = sorted({epsilon for c, _, epsilon in scores.values if c == case})
    choose = min if scores.better == "lower" else max
    best = {epsilon: choose(scores.means(case, epsilon).values()) for epsilon in epsilons}
    rows = []
    for name in [name for name in _labels(comparison) if any(key[:2] == (case, name) for key in scores.tried)]:
        cells, times, means = [], list[float](), list[float]()
        for epsilon in epsilons:
            values = scores.values.get((case, name, epsilon), [])
            spread = f"{_show(min(values), 3)} to {_show(max(values), 3)}" if len(values) > 1 else ""
            mean = fmean(values) if values else None
            words = None if mean is None else _show(mean, 4)
            cells.append({"mean": words, "spread": spread, "best": mean is not None and mean == best[epsilon]})
            means += [] if mean is None else [mean]
            times += scores.seconds.get((case, name, epsilon), [])
        overall = _show(fmean(means), 4) if len(means) == len(epsilons) > 1 else ""
        rows.append({"name": name, "cells": cells, "overall": overall, "seconds": median(times) if times else None})
    return {"epsilons": epsilons, "rows": rows}


def _show(value: float, digits: int) -> str:
    """Return a score with so many digits, and all whole digits of a large one."""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _front_chart(comparison: Comparison, metric: str, scores: Scores, case: Case, epsilon: float) -> dict[str, Any]:
    """Return a chart of error and seconds at one budget, with the mechanisms that no other beats in both."""
    names = _labels(comparison)
    sign = 1 if scores.better == "lower" else -1
    places = {
        name: (max(median(scores.seconds[case, name, epsilon]), 1e-3), fmean(values))
        for name in names
        if (values := scores.values.get((case, name, epsilon)))
    }
    front = find_front({name: (seconds, sign * error) for name, (seconds, error) in places.items()})
    series = []
    for name in names:
        values = scores.values.get((case, name, epsilon), [])
        series.append(svg.Series(name, [(*places[name], min(values), max(values))] if values else []))
    title = get_metric(metric).title
    words = {"x_words": "seconds of processor time, fit and sampling", "y_words": title}
    chart = svg.draw_points(f"{title} against time, {case[0]}", series, [names.index(name) for name in front], **words)
    return {"chart": chart, "names": front, "epsilon": epsilon, "metric": title}


def _rank_table(names: Sequence[str], scores: Mapping[str, Scores]) -> list[tuple[str, list[float | None]]]:
    ranks = {metric: rank_mechanisms(one) for metric, one in scores.items()}
    lines: list[tuple[str, list[float | None]]] = [
        (name, [each.get(name) for each in ranks.values()]) for name in names
    ]
    return sorted(lines, key=lambda line: fmean([rank if rank is not None else len(names) for rank in line[1]] or [0]))


def _ratio_tables(
    names: Sequence[str], scores: Mapping[str, Scores]
) -> list[tuple[Metric, str, list[ScoreRatio], Markup | None]]:
    """Compare every mechanism with the first one, by each metric of which less is better, with a chart."""
    made = (
        (get_metric(name), names[0], measure_ratios(one, names[0]), _ratio_chart(one, names[0], get_metric(name).title))
        for name, one in scores.items()
        if one.better == "lower"
    )
    return [table for table in made if table[2]]


def _ratio_chart(scores: Scores, baseline: str, title: str) -> Markup | None:
    """Return a box for the ratios of each mechanism, as in Figure 2a of the AIM paper."""
    boxes = [(one.mechanism, one.ratios) for one in measure_ratios(scores, baseline)]
    if scores.better != "lower" or not boxes:
        return None
    words = f"{title} / {baseline}: least, quartiles, largest"
    return svg.boxes(f"{title}: ratios", boxes, x_words=words, at=1.0)


def _failures(comparison: Comparison) -> list[tuple[str, str, str, str, int]]:
    """Return the runs and scores that failed: table, mechanism, epsilon, why, and how many."""
    counted: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for line in comparison.results.to_pylist():
        if line["outcome"] != DONE and line["part"] == "":
            counted[line["table"], line["mechanism"], f"{line['epsilon']:g}", line["outcome"]] += 1
    return [(*key, number) for key, number in counted.items()]
