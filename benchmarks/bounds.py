"""How often bounds hold, marginal by marginal, and how much larger than the true error they are.

    python benchmarks/bounds.py adult:1 fire:0.1 --runs 100 --record bounds-runs.csv --output benchmarks/bounds.csv
    python benchmarks/bounds.py adult:1 --runs 5 --plot docs/guide/bounds.svg

Each run asks for the 95 % bounds of every marginal of one, two and three columns and compares them with the true error:
that of the model's marginals, values merged as rare being one value, as the bounds are stated. Told are the bounds that
held; the marginals where a one-sided binomial test rejects "holds in at least 95 % of the runs", at a level of 5 % for
each marginal alone and at 5 % for all of them together (Bonferroni); and the median of bound / true error for measured
and other three-way marginals (the AIM paper: 4.4 and 8.3). With `--record` every run is appended to that file and runs
that are in it are not repeated; `--output` writes one line a marginal.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from aim import dense, table
from understudy.tabulate import marginals

CONFIDENCE = 0.95
LEVEL = 0.05  # of the binomial test


@dataclass(frozen=True)
class Point:
    """One bound of one run, and the error it is about, as shares of the rows."""

    clique: tuple[str, ...]
    supported: bool
    bound: float
    error: float

    @property
    def held(self) -> bool:
        """Whether the error is within the bound."""
        return self.error <= self.bound


def points(release: us.Release, frame: Any, schema: us.Schema) -> list[Point]:
    """Every marginal of up to three columns that has a bound."""
    asked = [bound for k in (1, 2, 3) for bound in release.bounds(f"all-{k}way", confidence=CONFIDENCE)]
    found = [bound for bound in asked if bound.bound is not None]
    codes = {c: release.recoding.apply(c, array) for c, array in schema.encode(frame).codes.items()}
    cliques = [bound.clique for bound in found]
    tables = release.model.project_many(cliques)
    true = marginals(codes, release.model.domain, cliques)
    rows = len(frame)
    return [
        Point(c, b.supported, b.bound / rows, float(np.abs(dense(t) - tables[c].ravel()).sum()) / rows)
        for b, (c, t) in zip(found, true, strict=True)
    ]


def recorded(path: Path | None, name: str, epsilon: str) -> list[list[Point]]:
    """The runs of this case that are in the file."""
    runs: dict[str, list[Point]] = defaultdict(list)
    if path and path.exists():
        with path.open(newline="") as file:
            for row in csv.reader(file):
                if row[:2] == [name, epsilon]:
                    supported, bound, error = row[4] == "1", float(row[5]), float(row[6])
                    runs[row[2]].append(Point(tuple(row[3].split("|")), supported, bound, error))
    return list(runs.values())


def record(path: Path, name: str, epsilon: str, number: int, found: list[Point]) -> None:
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for p in found:
            writer.writerow(
                [name, epsilon, number, "|".join(p.clique), int(p.supported), f"{p.bound:.6g}", f"{p.error:.6g}"]
            )


def by_marginal(runs: list[list[Point]]) -> dict[tuple[str, ...], list[Point]]:
    found: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for run in runs:
        for point in run:
            found[point.clique].append(point)
    return found


def p_value(outcome: list[Point]) -> float:
    """The chance of so many failures or more, did the bound hold in just 95 % of the runs."""
    from scipy.stats import binom

    return float(binom.sf(sum(not p.held for p in outcome) - 1, len(outcome), 1 - CONFIDENCE))


def describe_points(name: str, epsilon: str, runs: list[list[Point]]) -> str:
    """One case in words."""
    each = by_marginal(runs)
    every = [p for run in runs for p in run]
    values = {clique: p_value(outcome) for clique, outcome in each.items()}
    alone = [clique for clique, value in values.items() if value < LEVEL]
    together = [clique for clique, value in values.items() if value < LEVEL / len(values)]
    lines = [
        f"{name} epsilon {epsilon}, {len(runs)} runs: {sum(p.held for p in every)} of {len(every)} bounds hold, "
        f"of {len(each)} marginals ({sum(len(o) == len(runs) for o in each.values())} have one in every run); "
        f"most failures of one marginal: {max(sum(not p.held for p in outcome) for outcome in each.values())}",
        f"  rejected by the binomial test, each alone at {LEVEL}: {alone or 'none'}; "
        f"all together at {LEVEL}: {together or 'none'}",
    ]
    for k in (1, 2, 3):
        for supported in (True, False):
            kind = [p for p in every if len(p.clique) == k and p.supported == supported]
            if kind:
                ratio = np.median([p.bound / max(p.error, 1e-12) for p in kind])
                closest = max(p.error / p.bound for p in kind)
                word = "measured" if supported else "not measured"
                lines.append(
                    f"  {k}-way, {word} ({len(kind)}): median bound/error {ratio:.2f}, most error/bound {closest:.3f}"
                )
    return "\n".join(lines)


def summary(name: str, epsilon: str, runs: list[list[Point]]) -> list[list[Any]]:
    """By marginal: runs with a bound, runs where it was measured, failures, largest error / bound, medians."""
    return [
        [
            name,
            epsilon,
            "|".join(clique),
            len(outcome),
            sum(p.supported for p in outcome),
            sum(not p.held for p in outcome),
            f"{max(p.error / p.bound for p in outcome):.3f}",
            f"{np.median([p.error for p in outcome]):.4g}",
            f"{np.median([p.bound for p in outcome]):.4g}",
        ]
        for clique, outcome in sorted(by_marginal(runs).items(), key=lambda item: (len(item[0]), item[0]))
    ]


def svg(found: list[Point], title: str) -> str:
    """True error (across) against bound (up), both on logarithmic axes; below the line a bound would have failed."""
    low, high, size = -2.6, 0.7, 420

    def at(value: float) -> float:
        return 50 + (np.clip(np.log10(max(value, 1e-9)), low, high) - low) / (high - low) * (size - 70)

    ticks = [0.01, 0.1, 1.0]
    marks = [
        f'<text x="{at(t):.1f}" y="{size - 22}" text-anchor="middle">{t:g}</text>'
        f'<text x="44" y="{size - at(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in ticks
    ]
    grid = [
        f'<line x1="50" x2="{size - 20}" y1="{size - at(t):.1f}" y2="{size - at(t):.1f}" stroke="#e5e5e5"/>'
        f'<line y1="20" y2="{size - 50}" x1="{at(t):.1f}" x2="{at(t):.1f}" stroke="#e5e5e5"/>'
        for t in ticks
    ]
    dots = []
    for supported, colour in ((False, "#d1793a"), (True, "#1b6ca8")):
        places = [(at(p.error), size - at(p.bound)) for p in found if p.supported == supported]
        dots += [f'<g fill="{colour}" fill-opacity="0.5">']
        dots += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in places] + ["</g>"]
    line = f'<line x1="50" y1="{size - 50}" x2="{size - 20}" y2="20" stroke="#888" stroke-dasharray="4"/>'
    words = (
        f'<text x="{size / 2}" y="14" text-anchor="middle">{title}</text>'
        f'<text x="{size / 2}" y="{size - 4}" text-anchor="middle">true error (share of rows)</text>'
        f'<text x="12" y="{size / 2}" text-anchor="middle" transform="rotate(-90 12 {size / 2})">95 % bound</text>'
        f'<text x="{size - 24}" y="{size - 78}" text-anchor="end" fill="#1b6ca8">measured</text>'
        f'<text x="{size - 24}" y="{size - 62}" text-anchor="end" fill="#d1793a">not measured</text>'
    )
    font = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" {font}>'
    return "\n".join(
        [head, '<rect width="100%" height="100%" fill="white"/>', *grid, line, *dots, *marks, words, "</svg>\n"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="TABLE:EPSILON")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    parser.add_argument("--record", type=Path, help="append every run to this file; go on from what is in it")
    parser.add_argument("--output", type=Path, help="write one line a marginal to this CSV file")
    parser.add_argument(
        "--plot", type=Path, help="write a plot of the three-way marginals of the first case's first five runs"
    )
    given = parser.parse_args()
    lines: list[list[Any]] = []
    for case in given.cases:
        name, _, epsilon = case.partition(":")
        frame, schema = table(given.data, name)
        runs = recorded(given.record, name, epsilon)
        for number in range(len(runs), given.runs):
            release = us.synthesize(frame, schema, epsilon=float(epsilon), delta=1e-9, mechanism="aim")
            runs.append(points(release, frame, schema))
            if given.record:
                record(given.record, name, epsilon, number, runs[-1])
        if given.plot:
            shown = [p for run in runs[:5] for p in run if len(p.clique) == 3]
            given.plot.write_text(svg(shown, f"{name}, epsilon {epsilon}, {min(5, len(runs))} runs"))
            given.plot = None
        print(describe_points(name, epsilon, runs), flush=True)
        lines += summary(name, epsilon, runs)
    if given.output:
        with given.output.open("w", newline="") as file:
            head = "table,epsilon,marginal,runs,measured,failures,largest_ratio,median_error,median_bound"
            csv.writer(file, lineterminator="\n").writerows([head.split(","), *lines])


if __name__ == "__main__":
    main()
