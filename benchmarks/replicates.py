"""How often intervals made from replicates hold the truth.

    python benchmarks/replicates.py adult:0.1 fire:0.1 --runs 3 --replicates 10

For each run: a release by AIM, an estimate from its synthetic rows, and the spread of the same estimate over the
replicates; the interval is the estimate plus and minus Student's 97.5 % quantile times that spread. Estimates are the
shares of values of single columns and of cells of pairs of columns, those of at least 1 % of the true rows. Told is the
part of the intervals that hold the true share, for single columns, pairs that a measured marginal covers, and others;
and the median of the true error over the standard error, which would be 0.7 if the spread were all there is.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from aim import dense, table
from understudy.tabulate import marginals

COMMON = 0.01


def shares(frame: Any, schema: us.Schema) -> dict[tuple[str, ...], Any]:
    """Every table of one or two columns, as shares of the rows."""
    columns = list(schema.domain)
    cliques = [*((c,) for c in columns), *combinations(columns, 2)]
    counted = marginals(schema.encode(frame).codes, schema.domain, cliques)
    return {clique: dense(counts).astype(float) / len(frame) for clique, counts in counted}


def kind(clique: tuple[str, ...], measured: list[set[str]]) -> str:
    if len(clique) == 1:
        return "single columns"
    return "pairs measured together" if any(set(clique) <= m for m in measured) else "pairs not measured"


def scaled_errors(frame: Any, schema: us.Schema, epsilon: float, count: int) -> dict[str, list[float]]:
    """By kind of estimate, its true error in standard errors."""
    release = us.synthesize(frame, schema, epsilon=epsilon, delta=1e-9, mechanism="aim")
    measured = [set(m.clique) for m in release.measurements]
    true, made = shares(frame, schema), shares(release.sample(), schema)
    again = [shares(one, schema) for one in release.replicates(count)]
    found = defaultdict(list)
    for clique, truth in true.items():
        spread = np.std([one[clique] for one in again], axis=0, ddof=1)
        common = truth >= COMMON
        error = np.abs(made[clique] - truth)[common] / np.maximum(spread[common], 1e-12)
        found[kind(clique, measured)] += error.tolist()
    return found


def main() -> None:
    from scipy.stats import t

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="TABLE:EPSILON")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    given = parser.parse_args()
    wide = float(t.ppf(0.975, given.replicates - 1))
    for case in given.cases:
        name, _, epsilon = case.partition(":")
        frame, schema = table(given.data, name)
        every: dict[str, list[float]] = defaultdict(list)
        for number in range(given.runs):
            for what, errors in scaled_errors(frame, schema, float(epsilon), given.replicates).items():
                every[what] += errors
            told = "; ".join(
                f"{what} {np.mean(np.array(errors) <= wide):.3f} of {len(errors)}, median error "
                f"{np.median(errors):.2f} standard errors"
                for what, errors in sorted(every.items())
            )
            print(f"{name} epsilon {epsilon}, {number + 1} runs, {given.replicates} replicates: {told}", flush=True)


if __name__ == "__main__":
    main()
