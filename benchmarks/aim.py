"""AIM, or another mechanism, against the reference figures: workload error, CPU seconds and peak memory, as ratios.

    python benchmarks/aim.py titanic:1 adult:1 --runs 3 --data ../shared/data/aim --output benchmarks/aim.csv

Error is the AIM paper's (Definition 2) on the workload, of the sampled rows. The reference is an independent sketch of
the papers' AIM and MST on one core, without a privacy gate, at delta 1e-9. CPU seconds are those of fit plus sampling,
after a small warm-up run that compiles; wall-clock time on a shared machine says little.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("UNDERSTUDY_LEDGER", f"{tempfile.mkdtemp()}/ledger.db")

import numpy as np
import pandas as pd

import understudy as us
from understudy.tabulate import SparseCounts, marginals
from understudy.workload import Workload

REFERENCE = {  # AIM and the better of two MSTs, all-3way
    ("titanic", 0.1): (1.522, 1.278), ("titanic", 1.0): (0.653, 0.602), ("titanic", 10.0): (0.328, 0.378),
    ("nltcs", 0.1): (0.078, 0.288), ("nltcs", 1.0): (0.0136, 0.278), ("nltcs", 10.0): (0.0033, 0.282),
    ("adult", 0.1): (0.301, 0.316), ("adult", 1.0): (0.129, 0.182), ("adult", 10.0): (0.070, 0.166),
    ("salary", 0.1): (0.419, 0.501), ("salary", 1.0): (0.157, 0.403), ("salary", 10.0): (0.102, 0.380),
    ("fire", 0.1): (0.139, 0.225), ("fire", 1.0): (0.056, 0.153), ("fire", 10.0): (0.041, 0.145),
    ("msnbc", 0.1): (0.097, 0.117), ("msnbc", 1.0): (0.039, 0.104),
}  # fmt: skip


def table(data: Path, name: str) -> tuple[pd.DataFrame, us.Schema]:
    sizes = json.loads((data / f"{name}-domain.json").read_text())
    return pd.read_csv(data / f"{name}.csv.gz")[list(sizes)], us.Schema.from_domain(sizes)


def dense(counts: Any) -> np.ndarray[Any, Any]:
    return counts.dense() if isinstance(counts, SparseCounts) else counts


def workload_error(schema: us.Schema, real: Any, made: Any, workload: Workload) -> float:
    """Definition 2, by the true number of rows; a clique that a workload names twice counts as two of its k."""
    cliques, domain = list(workload), schema.domain
    true, synthetic = (marginals(schema.encode(frame).codes, domain, cliques) for frame in (real, made))
    rows = len(real)
    errors = (
        workload.weights[clique] * np.abs(dense(a) - dense(b)).sum()
        for (clique, a), (_, b) in zip(true, synthetic, strict=True)
    )
    return float(sum(errors) / (sum(workload.weights.values()) * rows))


def run(
    data: Path, name: str, epsilon: float, mechanism: str, workload: str, settings: dict[str, Any], delta: float = 1e-9
) -> dict[str, Any]:
    frame, schema = table(data, name)
    given = settings | ({"workload": workload} if mechanism in ("aim", "gaussian", "gem", "mwem", "rap") else {})
    begin, user = time.perf_counter(), time.process_time()
    release = us.synthesize(frame, schema, epsilon=epsilon, delta=delta, mechanism=mechanism, **given)
    made = release.sample()
    user, wall = time.process_time() - user, time.perf_counter() - begin
    return {
        "table": name,
        "epsilon": epsilon,
        "mechanism": mechanism,
        "workload": workload,
        "error": workload_error(schema, frame, made, Workload.parse(workload, schema.domain)),
        "cpu_seconds": round(user, 2),
        "wall_seconds": round(wall, 2),
        "rounds": sum("chosen" in entry for entry in release.rounds),
        "tree_mib": round(getattr(release.model, "size_mib", 0.0), 3),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def describe_row(rows: list[dict[str, Any]]) -> str:
    """The mean of the runs of one case, beside the reference."""
    first = rows[0]
    error, spread = np.mean([r["error"] for r in rows]), np.std([r["error"] for r in rows])
    known = REFERENCE.get((first["table"], first["epsilon"])) if first["workload"] == "all-3way" else None
    ratio = f" = {error / known[0]:.3f} x reference AIM, {error / known[1]:.3f} x reference MST" if known else ""
    cpu = np.mean([r["cpu_seconds"] for r in rows])
    return (
        f"{first['table']:8} epsilon {first['epsilon']:<5} {first['mechanism']:9} {first['workload']:10} "
        f"error {error:.4f} (sd {spread:.4f}, {len(rows)} runs){ratio}; {cpu:.1f} s CPU, "
        f"{first['rounds']} rounds, tree {first['tree_mib']} MiB, peak {max(r['peak_mib'] for r in rows)} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="TABLE:EPSILON")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mechanism", default="aim")
    parser.add_argument("--workload", default="all-3way")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    parser.add_argument("--output", type=Path, help="append every run to this CSV file")
    given = parser.parse_args()
    warm, schema = table(given.data, "titanic")
    us.synthesize(warm[:50], schema, epsilon=1.0, delta=1e-9, mechanism=given.mechanism, **given.settings).sample()
    for case in given.cases:
        name, _, epsilon = case.partition(":")
        rows = []
        for _ in range(given.runs):
            what = given.mechanism, given.workload, given.settings, given.delta
            rows.append(run(given.data, name, float(epsilon), *what))
            if given.output:
                new = not given.output.exists()
                with given.output.open("a", newline="") as file:
                    writer = csv.DictWriter(file, rows[-1], lineterminator="\n")
                    if new:
                        writer.writeheader()
                    writer.writerow(rows[-1])
        print(describe_row(rows), flush=True)


if __name__ == "__main__":
    main()
