"""How often bounds hold, and how much larger than the true error they are.

    python benchmarks/bounds.py fire:1 adult:1 --runs 20 --data ../shared/data/aim --plot docs/guide/bounds.svg

For each table: the share of 95 % bounds that hold, the marginals (if any) where a binomial test rejects 95 %, and the
median of bound / true error for supported and other marginals (the AIM paper: 4.4 and 8.3). The true error is that of
the model's marginals, values merged as rare being one value, as the bounds are stated.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from aim import dense, table
from understudy.tabulate import marginals

Point = tuple[tuple[str, ...], bool, float, float]


def points(release: us.Release, frame: Any, schema: us.Schema) -> list[Point]:
    """Clique, supported, bound and true error, as shares of the rows."""
    found = [bound for bound in release.bounds() if bound.bound is not None]
    codes = {c: release.recoding.apply(c, array) for c, array in schema.encode(frame).codes.items()}
    cliques = [bound.clique for bound in found]
    tables = release.model.project_many(cliques)
    true = marginals(codes, release.model.domain, cliques)
    return [
        (c, b.supported, b.bound / len(frame), float(np.abs(dense(t) - tables[c].ravel()).sum()) / len(frame))
        for b, (c, t) in zip(found, true, strict=True)
    ]


def rejected(held: dict[Any, list[bool]]) -> list[Any]:
    """Marginals whose bounds failed more often than 95 % allows, by a binomial test at one in a thousand."""
    from scipy.stats import binom

    return [clique for clique, outcome in held.items() if binom.sf(outcome.count(False) - 1, len(outcome), 0.05) < 1e-3]


def svg(found: list[Point], title: str) -> str:
    """True error (across) against bound (up), both on logarithmic axes; below the line a bound would have failed."""
    low, high, size = -3.5, 0.7, 420

    def at(value: float) -> float:
        return 50 + (np.clip(np.log10(max(value, 1e-9)), low, high) - low) / (high - low) * (size - 70)

    ticks = [0.001, 0.01, 0.1, 1.0]
    marks = [
        f'<text x="{at(t):.1f}" y="{size - 22}" text-anchor="middle">{t:g}</text>'
        f'<text x="44" y="{size - at(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in ticks
    ]
    colour = {True: "#1b6ca8", False: "#d1793a"}
    dots = [
        f'<circle cx="{at(error):.1f}" cy="{size - at(bound):.1f}" r="2" fill="{colour[kind]}" fill-opacity="0.5"/>'
        for _, kind, bound, error in found
    ]
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
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', line, *dots, *marks, words, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="TABLE:EPSILON")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    parser.add_argument("--plot", type=Path, help="write a plot of the first case's first run")
    given = parser.parse_args()
    for case in given.cases:
        name, _, epsilon = case.partition(":")
        frame, schema = table(given.data, name)
        held: dict[Any, list[bool]] = defaultdict(list)
        ratios: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(given.runs):
            release = us.synthesize(frame, schema, epsilon=float(epsilon), delta=1e-9, mechanism="aim")
            found = points(release, frame, schema)
            if given.plot:
                given.plot.write_text(svg(found, f"{name}, epsilon {epsilon}"))
                given.plot = None
            for clique, supported, bound, error in found:
                held[clique].append(error <= bound)
                ratios[supported].append(bound / max(error, 1e-12))
        every = [ok for outcome in held.values() for ok in outcome]
        medians = {kind: f"{np.median(r):.2f} ({len(r)})" if r else "none" for kind, r in ratios.items()}
        print(
            f"{name} epsilon {epsilon}, {given.runs} runs: {np.mean(every):.5f} of {len(every)} bounds hold; "
            f"marginals rejected: {rejected(held) or 'none'}; "
            f"median bound/error: supported {medians[True]}, other {medians[False]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
