"""Accuracy and speed of PrivSyn beside other mechanisms on coded tables, in one table of results.

Run ``python benchmarks/privsyn.py [--tables adult,fire,msnbc] [--mechanisms independent,privsyn] [--epsilons 0.1,1,10]
[--repeats 1] [--data ../shared/data/aim] [--set name=value]``. The error is that of the AIM paper, Definition 2: the
mean over all two-way (three-way) marginals of the L1 distance between real and synthetic counts, divided by the number
of real rows, the synthetic table with as many rows as the mechanism makes. Delta is 1e-9; noise is the product's own.
Times are processor seconds without imports; the first run of a kernel compiles it.

``python benchmarks/privsyn.py --speed ROWS`` makes up a table of 16 columns instead and tells time and memory.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import time
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Budget
from understudy.domain import Clique, CodeGroups, Domain
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.release.rows import undo_merging
from understudy.schema import PrivacyUnit, Schema
from understudy.tabulate import Counts, SparseCounts, marginals

Codes = dict[str, NDArray[Any]]


class CodedSource:
    """Coded columns as a source, without a schema."""

    unit, code_groups = PrivacyUnit(), CodeGroups()
    rows_public = rows_used = None

    def __init__(self, codes: Codes, domain: Domain) -> None:
        self._codes, self.domain = codes, domain

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Exact counts."""
        return marginals(self._codes, self.domain, cliques)


def load(folder: Path, name: str) -> tuple[Codes, Domain]:
    import pandas as pd

    frame = pd.read_csv(folder / f"{name}.csv.gz")
    sizes = json.loads((folder / f"{name}-domain.json").read_text())
    domain = Domain({column: sizes[column] for column in frame.columns})
    return {c: frame[c].to_numpy().astype(np.min_scalar_type(domain[c] - 1)) for c in domain}, domain


def made_up(rows: int, columns: int = 16) -> tuple[Codes, Domain]:
    """Rows of columns that depend on two of their predecessors."""
    rng = np.random.default_rng(0)
    sizes = [2, 2, 5, 6, 7, 9, 10, 15, 16, 16, 42, 85, 99, 100, 99, 50][:columns]
    codes = [rng.integers(sizes[0], size=rows)]
    for i, size in enumerate(sizes[1:], 1):
        near = codes[max(0, i - 1)] * 3 + codes[max(0, i - 3)] * 5
        codes.append((near + rng.geometric(0.3, rows)) % size)
    domain = Domain({f"c{i:02}": size for i, size in enumerate(sizes)})
    return {c: codes[i].astype(np.uint8) for i, c in enumerate(domain)}, domain


def distance(one: Counts, other: Counts, cells: int) -> float:
    if not isinstance(one, SparseCounts) and not isinstance(other, SparseCounts):
        return float(np.abs(one - other).sum())
    parts = [
        (part.cells, part.counts) if isinstance(part, SparseCounts) else (np.arange(cells), part)
        for part in (one, other)
    ]
    where, at = np.unique(np.concatenate([parts[0][0], parts[1][0]]), return_inverse=True)
    signed = np.concatenate([parts[0][1], -parts[1][1]])
    return float(np.abs(np.bincount(at, weights=signed, minlength=len(where))).sum())


def workload_error(real: Codes, synthetic: Codes, domain: Domain, k: int) -> float:
    cliques = list(combinations(domain, k))
    rows = len(next(iter(real.values())))
    pairs = zip(marginals(real, domain, cliques), marginals(synthetic, domain, cliques), strict=True)
    return float(np.mean([distance(a, b, domain.cells(clique)) / rows for (clique, a), (_, b) in pairs]))


def run(
    codes: Codes, domain: Domain, name: str, epsilon: float, settings: dict[str, Any], seed: int
) -> dict[str, float]:
    mechanism = make_mechanism(name, **settings)
    budget = Budget.of(epsilon=epsilon, delta=1e-9)
    start = time.process_time()
    table = PrivateTable(CodedSource(codes, domain), budget)
    fit = mechanism.fit(table, rho=float(budget.capacity))
    fitted = time.process_time()
    rng = np.random.default_rng(seed)
    merged = fit.model.sample(max(1, round(fit.model.total)), rng)
    rows = undo_merging(merged, fit.recoding, Schema.from_domain(domain), fit.measurements, rng, "spread")
    done = time.process_time()
    return {
        "two": workload_error(codes, rows, domain, 2),
        "three": workload_error(codes, rows, domain, 3),
        "fit": fitted - start,
        "sample": done - fitted,
        "tables": len(fit.measurements),
    }


def speed(rows: int) -> None:
    """Fit and sample a made-up table; memory is what the process held at most beside the coded table (Linux)."""
    run(*made_up(2000), "privsyn", 10.0, {}, 0)  # compiles
    codes, domain = made_up(rows)
    table = sum(column.nbytes for column in codes.values())
    before = _held("VmRSS", reset=True)
    start = time.process_time()
    budget = Budget.of(epsilon=1.0, delta=1e-9)
    fit = make_mechanism("privsyn").fit(PrivateTable(CodedSource(codes, domain), budget), rho=float(budget.capacity))
    fitted, used = time.process_time(), _held("VmHWM") - before
    made = fit.model.sample(rows, np.random.default_rng(0))
    done, peak = time.process_time(), _held("VmHWM") - before
    tables = len(fit.measurements)
    print(
        f"{rows} rows x {len(made)} columns, {tables} tables: fit {fitted - start:.1f} s, sample {done - fitted:.1f} s"
    )
    print(f"coded table {table / 2**20:.0f} MiB; at most beside it: fit {used / 2**20:.0f} MiB, ", end="")
    print(f"sample {peak / 2**20:.0f} MiB ({peak / table:.1f} x the coded table, the rows made included)")


def _held(name: str, *, reset: bool = False) -> int:
    if reset:
        ctypes.CDLL(None).malloc_trim(0)  # what is free but still held would hide what is needed
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="adult,fire,msnbc")
    parser.add_argument("--mechanisms", default="independent,privsyn")
    parser.add_argument("--epsilons", default="0.1,1,10")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data/aim")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--speed", type=int, metavar="ROWS")
    options = parser.parse_args()
    if options.speed:
        speed(options.speed)
        return
    settings = {key: json.loads(value) for key, value in (item.split("=", 1) for item in options.set)}
    print("| table | epsilon | mechanism | all-2way | all-3way | fit s | sample s | tables |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.tables.split(","):
        codes, domain = load(options.data, name)
        for epsilon in map(float, options.epsilons.split(",")):
            for mechanism in options.mechanisms.split(","):
                mine = settings if mechanism == "privsyn" else {}
                found = [run(codes, domain, mechanism, epsilon, mine, seed) for seed in range(options.repeats)]
                mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
                print(
                    f"| {name} | {epsilon:g} | {mechanism} | {mean['two']:.4f} | {mean['three']:.4f} "
                    f"| {mean['fit']:.1f} | {mean['sample']:.1f} | {mean['tables']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
