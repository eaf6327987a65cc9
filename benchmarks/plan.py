"""Does `understudy plan` come true? Predicted and real errors of measured tables, and how long a plan takes.

python benchmarks/plan.py errors DATA [--runs 20] [--tables adult,fire] [--mechanisms mst,aim] [--log FILE]
python benchmarks/plan.py speed

DATA holds NAME.csv.gz and NAME-domain.json of tables of codes. The error of a run: of every column (every pair of
columns) that some measured table holds, the mean absolute difference between the model's cells and the true ones, codes
merged as in the release; then the mean over columns (pairs). The prediction knows the domain and the number of rows to
two figures. `nist-mst` is given the table itself as its public table: the best one there could be. With --log each run
is written down as it ends, and what is there already is not run again. The numbers are in plan.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from understudy.accounting import Budget
from understudy.accounting.calibrate import certified_plan
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique
from understudy.gate import PrivateTable
from understudy.gate.selection import merged
from understudy.mechanism import mechanism_named
from understudy.mechanism.registry import MECHANISMS
from understudy.model.fit import Fit
from understudy.planning import default_delta, plan
from understudy.schema import Schema
from understudy.source import MemorySource

EPSILONS = (0.5, 1.0, 2.0)

Case = tuple[str, str, float]
"""A table, a mechanism and an epsilon."""


def fitted(source: MemorySource, name: str, budget: Budget) -> Fit:
    mechanism: Any = mechanism_named(name, **({"public": source} if name == "nist-mst" else {}))
    planned = None
    if hasattr(mechanism, "plan"):
        planned, budget = certified_plan(mechanism.plan(source.domain), budget, Neighbours())
    return mechanism.fit(PrivateTable(source, budget, plan=planned), rho=float(budget.capacity))


def error(fit: Fit, source: MemorySource, order: int) -> float | None:
    """The mean over covered columns (pairs) of the mean absolute cell error."""
    parts = {part for m in fit.measurements for part in combinations(source.domain.canonical(m.clique), order)}
    cliques: list[Clique] = sorted(parts)
    errors = []
    for clique, counts in source.counts(cliques):
        axes = [fit.recoding.maps.get(column) for column in clique]
        true = merged(counts, source.domain.shape(clique), axes)
        errors.append(np.abs(fit.model.project(clique).reshape(-1) - true).mean())
    return float(np.mean(errors)) if errors else None


def runs_of(source: MemorySource, case: Case, budget: Budget, runs: int, log: Path | None) -> list[list[float | None]]:
    """The errors of so many runs, those on the log first."""
    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    done = [line["errors"] for line in map(json.loads, lines) if line["case"] == list(case)]
    while len(done) < runs:
        fit = fitted(source, case[1], budget)
        done.append([error(fit, source, order) for order in (1, 2)])
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps({"case": case, "errors": done[-1]}) + "\n")
    return done


def errors(folder: Path, names: list[str], mechanisms: list[str], runs: int, log: Path | None) -> None:
    print(
        "| table | epsilon | mechanism | runs | one column: plan | real (se) | ratio | pair: plan | real (se) | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    worst = 1.0
    for name in names:
        sizes = json.loads((folder / f"{name}-domain.json").read_text())
        frame = pd.read_csv(folder / f"{name}.csv.gz")[list(sizes)]
        schema = Schema.from_domain(sizes)
        source, delta = MemorySource(frame, schema), default_delta(len(frame))
        expected = plan(schema, people=len(frame), epsilons=EPSILONS, mechanisms=mechanisms)
        for line in expected.lines:
            budget = Budget.of(epsilon=line.epsilon, delta=delta)
            done = runs_of(source, (name, line.mechanism, line.epsilon), budget, runs, log)
            cells = []
            told = (None, None) if line.expected is None else (line.expected.one_way, line.expected.two_way)
            for place, predicted in enumerate(told):
                real = [found[place] for found in done if found[place] is not None]
                if not real or predicted is None:
                    cells.append("- | - | -")
                    continue
                mean = float(np.mean(real))
                spread = f"{np.std(real, ddof=1) / len(real) ** 0.5:.2f}" if len(real) > 1 else "?"
                worst = max(worst, predicted / mean, mean / predicted)
                cells.append(f"{predicted:.2f} | {mean:.2f} ({spread}) | {predicted / mean:.2f}")
            told_runs = f"| {name} | {line.epsilon:g} | {line.mechanism} | {len(done)} |"
            print(f"{told_runs} {' | '.join(cells)} |", flush=True)
    print(f"\nworst ratio either way {worst:.2f} (limit 1.20 on Adult and Fire)")


def speed() -> None:
    """The command itself, started anew, for 100 columns."""
    sizes = np.random.default_rng(0).integers(2, 60, 100)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wide.yaml"
        Schema.from_domain({f"c{i}": int(size) for i, size in enumerate(sizes)}).save(path)
        command = [sys.executable, "-m", "understudy.cli", "plan", str(path), "--people", "~20000"]
        walls, processor = [], resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            walls.append(time.perf_counter() - started)
        processor = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - processor) / 5
    print(
        f"plan, 100 columns, 3 budgets: best of five {min(walls):.2f} s of wall time (limit 2), {processor:.2f} s CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["errors", "speed"])
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--tables", default="adult,fire")
    parser.add_argument("--mechanisms", default=",".join(sorted(MECHANISMS)))
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    if given.what == "speed":
        speed()
    else:
        errors(given.path, given.tables.split(","), given.mechanisms.split(","), given.runs, given.log)


if __name__ == "__main__":
    main()
