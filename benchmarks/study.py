"""Write the tables of the studies' pages from their records: means over the runs there are.

    python benchmarks/study.py

A page states which table belongs where, by the study, the metric and a part of its score:

    <!-- table: aim-figure-1 workload_error -->
    <!-- table: bowen-snoke-match-2 specks "cart, cross-validated" rank -->
    <!-- table: bowen-snoke-match-2 ranks nist_contest "specks: cart, cross-validated" -->
    <!-- table: aim-figure-2 ratios workload_error -->
    <!-- table: aim-figure-1 runs -->
    <!-- table: field published workload_error -->
    <!-- end -->

Columns are budgets. Words after the score add to that: `rank`, the mean rank over the budgets; `runs`, how many runs a
mean has; `mean`, the mean over the budgets; `error`, one minus a score of a million; `wide`, columns are tables and
budgets, with the median of processor seconds on Adult at epsilon 1 and the largest memory. `ranks` has a column for
each score, mean ranks over tables and budgets; `ratios` has the errors of all mechanisms as ratios to those of the
first, as on the page of a comparison; `runs` counts the runs of a study and adds up their processor seconds;
`published` has errors divided by those of a reference, beside the AIM paper's.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

from understudy.comparison.page import Scores, measure_ratios
from understudy.metric.registry import get_metric
from understudy.yaml_json import read_yaml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "benchmarks" / "field.md", *sorted((ROOT / "docs" / "study").glob("*.md"))]
PLACE = re.compile(r"(?<=\n)<!-- table: (.*?) -->\n.*?<!-- end -->\n", re.DOTALL)

REFERENCE = {  # an independent implementation of the printed algorithms, means of one to three runs
    "aim:paper": (1.522, 0.653, 0.328, 0.078, 0.0136, 0.0033, 0.301, 0.129, 0.070, 0.419, 0.157, 0.102),
    "mst:paper": (1.410, 0.609, 0.398, 0.288, 0.278, 0.283, 0.338, 0.186, 0.166, 0.515, 0.407, 0.380),
}
"""By mechanism the error of each case, in the order of the study."""

PUBLISHED = {"privmrf:paper": 1.3, "mst:paper": 2.6, "mwem:paper": 1.5, "privbayes:paper:generator=pgm": 2.2,
             "rap:paper": 5.6, "gem": 2.0}  # fmt: skip
"""How many times AIM's error these have by the AIM paper's text, which ran GEM with whole marginals: averages over six
tables and nine budgets."""


class Record:
    """The runs of a study that ended, by table, mechanism and budget."""

    def __init__(self, study: str) -> None:
        content = read_yaml((ROOT / "examples" / "studies" / f"{study}.yaml").read_text())
        told = content["mechanisms"]
        known = {text: label for label, text in told.items()} if isinstance(told, dict) else {one: one for one in told}
        self.runs: dict[tuple[str, str, float], list[dict[str, Any]]] = defaultdict(list)
        for line in (ROOT / "docs" / "study" / study / "record.jsonl").read_text().splitlines():
            run = json.loads(line) if line else {}
            if run.get("outcome") == "done":
                table, _, mechanism, epsilon, _ = run["cell"]
                self.runs[table, known.get(mechanism, mechanism), epsilon].append(run)
        few, cases = content.get("runs_of", {}), len(content["epsilons"]) * len(content.get("workloads", [1]))
        self.planned = cases * sum(few.get(label, content["runs"]) for label in known.values())  # of each table
        found = [{key[place] for key in self.runs} for place in range(3)]
        self.tables = [name for name in content["tables"] if name in found[0]]
        self.mechanisms = [label for label in known.values() if label in found[1]]
        self.epsilons = sorted(found[2])

    def value(self, table: str, label: str, epsilon: float, metric: str, part: str) -> float | None:
        """Return the mean of a score, or of a part of it."""
        runs = self.runs.get((table, label, epsilon), [])
        values = [run["scores"][metric][part] for run in runs if isinstance(run["scores"].get(metric), dict)]
        return mean(values) if values else None


def make_table(study: str, metric: str, *words: str) -> str:
    """Return one table as Markdown."""
    if metric == "runs":
        return make_counts(Record(study))
    if metric == "ranks":
        return make_ranks(Record(study), words)
    if metric == "ratios":
        return make_ratios(Record(study), *words)
    if metric == "published":
        return make_published(Record(study), *words)
    flags = {"rank", "runs", "mean", "error", "wide"}
    part, told = next((word for word in words if word not in flags), ""), flags & set(words)
    record = Record(study)

    def read(table: str, label: str, epsilon: float) -> float | None:
        value = record.value(table, label, epsilon, metric, part)
        return 1 - value / 1e6 if value is not None and "error" in told else value

    title = f"{metric}, {part}" if part else metric
    return make_wide(record, read) if "wide" in told else make_budgets(record, read, title, told)


Read = Callable[[str, str, float], float | None]


def make_wide(record: Record, read: Read) -> str:
    """Return a table with a column for each table and budget."""
    cases = [(table, epsilon) for table in record.tables for epsilon in record.epsilons]
    lines = [["mechanism", *(f"{table} {epsilon:g}" for table, epsilon in cases), "s", "MiB"]]
    for label in record.mechanisms:
        seconds = [run["seconds"] for run in record.runs.get(("adult", label, 1.0), [])]
        memory = [run["peak_mib"] for key, runs in record.runs.items() if key[1] == label for run in runs]
        values = [show(read(table, label, epsilon)) for table, epsilon in cases]
        lines.append([f"`{label}`", *values, f"{median(seconds):.1f}" if seconds else "", f"{max(memory):.0f}"])
    return to_markdown(lines)


def make_published(record: Record, metric: str) -> str:
    """Return errors divided by those of a reference, beside the averages of the AIM paper: geometric means."""
    cases = [(table, epsilon) for table in record.tables for epsilon in record.epsilons]
    lines = [["mechanism", "divided by", "cases", "geometric mean", "published", "ratio"]]

    def divide(label: str, reference: str) -> list[float]:
        found = [record.value(table, label, epsilon, metric, "") for table, epsilon in cases]
        return [one / other for one, other in zip(found, REFERENCE[reference], strict=True) if one is not None]

    for label in REFERENCE:
        own = divide(label, label)
        lines.append([f"`{label}`", "its own reference", str(len(own)), "", "", f"{geometric_mean(own):.2f}"])
    for label, average in PUBLISHED.items():
        if found := divide(label, "aim:paper"):
            times = geometric_mean(found)
            told = [str(len(found)), f"{times:.2f}", f"{average}", f"{times / average:.2f}"]
            lines.append([f"`{label}`", "AIM's reference", *told])
    return to_markdown(lines)


def make_budgets(record: Record, read: Read, title: str, told: set[str]) -> str:
    """Return a table with a column for each budget; several tables follow each other."""
    extra = [word for word in ("mean", "rank", "runs") if word in told]
    lines = [[title, *(f"{epsilon:g}" for epsilon in record.epsilons), *extra]]
    for table in record.tables:
        if len(record.tables) > 1:
            lines.append([f"**{table}**", *[""] * (len(lines[0]) - 1)])
        labels = [label for label in record.mechanisms if any(key[:2] == (table, label) for key in record.runs)]
        scores = {label: [read(table, label, epsilon) for epsilon in record.epsilons] for label in labels}
        ranks = rank_rows(scores, lower="error" in told or get_metric(title.split(",")[0]).better == "lower")
        for label in sorted(labels, key=ranks.__getitem__) if "rank" in told else labels:
            known = [value for value in scores[label] if value is not None]
            runs = [len(record.runs.get((table, label, epsilon), [])) for epsilon in record.epsilons]
            counts = sorted({number for number in runs if number})
            told_by = {
                "mean": show(mean(known)) if len(known) == len(runs) else "",
                "rank": f"{ranks[label]:.2f}",
                "runs": " to ".join(str(number) for number in dict.fromkeys((counts[0], counts[-1]))),
            }
            lines.append([label, *map(show, scores[label]), *(told_by[word] for word in extra)])
    return to_markdown(lines)


def make_counts(record: Record) -> str:
    """Return how many runs of the study's file there are by table, and their processor seconds."""
    lines = [["table", "mechanisms", "runs that ended", "of", "fit and sampling, s", "scoring, s"]]
    for table in record.tables:
        runs = [run for key, some in record.runs.items() if key[0] == table for run in some]
        found = len({key[1] for key in record.runs if key[0] == table})
        seconds = [f"{sum(run[kind] for run in runs):,.0f}" for kind in ("seconds", "scoring_seconds")]
        lines.append([table, f"{found}", f"{len(runs)}", f"{record.planned}", *seconds])
    return to_markdown(lines)


def make_ranks(record: Record, scores: Sequence[str]) -> str:
    """Return the mean ranks over tables and budgets, a column for each score; sorted by the first."""
    cases = [(table, epsilon) for table in record.tables for epsilon in record.epsilons]
    ranks = []
    for score in scores:
        metric, _, part = score.partition(": ")
        found = {one: [record.value(t, one, e, metric, part) for t, e in cases] for one in record.mechanisms}
        ranks.append(rank_rows(found, lower=get_metric(metric).better == "lower"))
    labels = sorted(record.mechanisms, key=ranks[0].__getitem__)
    return to_markdown([["mean rank", *scores], *([one, *(f"{each[one]:.2f}" for each in ranks)] for one in labels)])


def make_ratios(record: Record, metric: str) -> str:
    """Return the ratios of errors to those of the study's first mechanism: mean, least, largest, combined t-test."""
    scores = Scores(get_metric(metric).better)
    for (table, label, epsilon), runs in record.runs.items():
        scores.values[(table, ""), label, epsilon] = [run["scores"][metric][""] for run in runs]
    found = {one.mechanism: one for one in measure_ratios(scores, record.mechanisms[0])}
    lines = [[f"{metric} / {record.mechanisms[0]}", "cases", "mean", "least", "largest", "p"]]
    for one in (found[label] for label in record.mechanisms if label in found):
        numbers = [f"{value:.2f}" for value in (one.mean, min(one.ratios), max(one.ratios))]
        chance = "" if one.p_value is None else f"{one.p_value:.2g}"
        lines.append([one.mechanism, f"{len(one.ratios)}", *numbers, chance])
    return to_markdown(lines)


def rank_rows(scores: dict[str, list[float | None]], *, lower: bool) -> dict[str, float]:
    """Return the mean rank of each row over the columns; the best is 1."""
    found: dict[str, list[int]] = {label: [] for label in scores}
    for column in zip(*scores.values(), strict=True):
        known = [value if lower else -value for value in column if value is not None]
        for label, value in zip(scores, column, strict=True):
            if value is not None:
                found[label].append(1 + sum(other < (value if lower else -value) for other in known))
    return {label: mean(ranks) for label, ranks in found.items()}


def show(value: float | None) -> str:
    """Return a number with three digits, or whole if it is large; an empty text for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 or not value else f"{value:#.3g}"


def to_markdown(lines: list[list[str]]) -> str:
    rows = [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join([rows[0], "|---" * len(lines[0]) + "|\n", *rows[1:]])


def fill(text: str) -> str:
    """Return a page with its tables made anew."""

    def replace(place: re.Match[str]) -> str:
        return f"<!-- table: {place[1]} -->\n{make_table(*shlex.split(place[1]))}<!-- end -->\n"

    return PLACE.sub(replace, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill(page.read_text()))
