"""What choosing between the model and public rows costs, by the part of the budget for an error and the least gain.

    python benchmarks/public_choice.py ma2019:1:ma2018 ma2019:1:shuffled:ma2018 --runs 6
    python benchmarks/public_choice.py acs-year-6:1:shuffled:acs-year-5 --runs 3

Cases are those of `beyond.py`. A run of `adaptive` makes the candidates of `run/public.py`; their errors are computed
without noise, on pairs as the choice does and on triples. The choice is then repeated 4,000 times with noise. Printed
is the mean error on triples of what was chosen, divided by that of the mechanism alone with the whole budget (an error
is taken to be inversely proportional to the root of the budget). Codes that a run merged count as one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import beyond
import understudy as us
from understudy.accounting import Budget
from understudy.mechanism import Fit
from understudy.run import pipeline, public
from understudy.run.quality import Rating

SHARES, GAINS, DRAWN = (0.01, 0.0075, 0.005), (0.0, 0.05, 0.1), 150


def fit_candidates(data: Path, name: str, epsilon: float, beside: str) -> tuple[list[Fit], us.Schema]:
    """Run `adaptive` beside a public table and return what its choice is between."""
    frame, schema = beyond.table(data, name)
    found: list[Fit] = []

    def keep(table: object, fit: Fit, rows: public.PublicRows, schema: us.Schema, *_: object) -> Fit:
        found.extend([fit, *public._weigh(fit, rows, schema, None)])
        return fit

    chosen, pipeline.choose_model = pipeline.choose_model, keep
    try:
        options = {"epsilon": epsilon, "delta": 1e-9, "mechanism": "adaptive"}
        us.synthesize(frame, schema, public=beyond.public_table(data, beside), **options)
    finally:
        pipeline.choose_model = chosen
    return found, schema


def measure(data: Path, name: str, candidates: list[Fit], schema: us.Schema) -> np.ndarray:
    """Return the errors of each candidate on pairs and on triples, as parts of the rows."""
    frame = beyond.table(data, name)[0]
    domain, recoding = candidates[0].model.domain, candidates[0].recoding
    codes = {column: recoding.apply(column, frame[column].to_numpy()).astype(np.int64) for column in domain}
    pairs, triples = list(Rating(0.01).tables(domain)[0]), list(beyond.triples(schema).weights)[:DRAWN]

    def distance(fit: Fit, clique: tuple[str, ...]) -> float:
        cells = np.ravel_multi_index([codes[column] for column in clique], domain.shape(clique))
        counts = np.bincount(cells, minlength=domain.cells(clique))
        return float(np.abs(counts - np.asarray(fit.model.project(clique)).reshape(-1)).sum() / len(frame))

    return np.array([[np.mean([distance(fit, r) for r in some]) for some in (pairs, triples)] for fit in candidates])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="TABLE:EPSILON:PUBLIC")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| case | " + " | ".join(f"{share:g}, {gain:g}" for share in SHARES for gain in GAINS) + " |")
    for case in given.cases:
        name, number, beside = case.split(":", 2)
        rho, rows = float(Budget.of(epsilon=float(number), delta=1e-9).rho), len(beyond.table(given.data, name)[0])
        runs = [
            measure(given.data, name, *fit_candidates(given.data, name, float(number), beside))
            for _ in range(given.runs)
        ]
        alone = float(np.mean([errors[0, 1] for errors in runs]))  # with less than the whole budget, as the others
        ratios = []
        for share in SHARES:
            noise = rng.normal(size=(len(runs), 4000, public.CANDIDATES)) / (2 * share * rho) ** 0.5 / rows
            less = (1 - public.CANDIDATES * share) ** 0.5
            for gain in GAINS:
                limit = np.where(np.arange(public.CANDIDATES) == 0, 1 - gain, 1.0)
                chosen = [
                    errors[((errors[:, 0] + drawn) * limit).argmin(axis=1), 1].mean()
                    for errors, drawn in zip(runs, noise, strict=True)
                ]
                ratios.append(float(np.mean(chosen)) / less / alone)
        print(f"| {case} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |", flush=True)


if __name__ == "__main__":
    main()
