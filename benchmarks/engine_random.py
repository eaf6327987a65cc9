"""Where `estimate` stops on random problems of every signal-to-noise ratio, beside a far tighter fit of the same.

    python benchmarks/engine_random.py

Each problem has 4 to 8 columns, their one-way tables, up to 13 pairs and triples, 10^3 to 10^7 rows, sigma 1 to 1000.
Prints for each the calls of the marginal oracle at the default tolerance of 1e-3 and how far the loss is above that of
a fit with tolerance 1e-6 (20 seconds at most).
"""

from __future__ import annotations

import itertools

import numpy as np

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.estimate import estimate
from understudy.model.junction_tree import JunctionTree

PROBLEMS = 70
LARGEST_MIB = 1.5


def draw(seed: int) -> tuple[Domain, list[Measurement], float, float]:
    """Rows of a mixture of five groups, counted, scaled and noised; with the number of rows and sigma."""
    rng = np.random.default_rng(seed)
    domain = Domain({f"c{i}": int(rng.integers(2, 14)) for i in range(int(rng.integers(4, 9)))})
    total, sigma, drawn = 10 ** rng.uniform(3, 7), 10 ** rng.uniform(0, 3), 20_000
    group, columns = rng.integers(0, 5, drawn), {}
    for column in domain:
        shares = rng.dirichlet(np.full(domain[column], 0.5), 5).cumsum(axis=1)
        columns[column] = np.minimum((shares[group] < rng.random(drawn)[:, None]).sum(axis=1), domain[column] - 1)
    pool = [c for k in (2, 3) for c in itertools.combinations(domain, k) if domain.cells(c) < 3000]
    chosen = [pool[i] for i in rng.permutation(len(pool))[: int(rng.integers(3, 14))]]
    measurements = []
    for clique in [*((column,) for column in domain), *chosen]:
        places = np.ravel_multi_index([columns[c] for c in clique], domain.shape(clique))
        counts = np.bincount(places, minlength=domain.cells(clique)) * (total / drawn)
        measurements.append(Measurement(clique, counts + rng.normal(0, sigma, counts.size), sigma))
    return domain, measurements, total, sigma


def main() -> None:
    gaps, calls = [], []
    for seed in range(PROBLEMS):
        domain, measurements, total, sigma = draw(seed)
        if JunctionTree.of(domain, [m.clique for m in measurements]).size_mib > LARGEST_MIB:
            continue
        model = estimate(domain, measurements, total=total)
        best = min(model.loss, estimate(domain, measurements, total=total, tolerance=1e-6, max_seconds=20.0).loss)
        assert model.report is not None
        gaps.append(model.loss / best - 1 if best > 1e-6 else 0.0)
        calls.append(model.report.iterations)
        print(f"{seed:3} {total / sigma:12,.0f} rows a sigma: {calls[-1]:5} calls, {gaps[-1]:.3%} above", flush=True)
    print(
        f"{len(gaps)} problems: median {np.median(calls):.0f} calls; {np.median(gaps):.3%} above in the median, ",
        end="",
    )
    print(f"{max(gaps):.3%} at most")


if __name__ == "__main__":
    main()
