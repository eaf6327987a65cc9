"""Every mechanism of the registry on four tables and three budgets: error, CPU seconds and ratios to known figures.

    python benchmarks/field.py --data ../shared/data/aim            # run what is missing, then print the tables
    python benchmarks/field.py --data ../shared/data/aim --only mst,dpsyn --mode paper
    python benchmarks/field.py --print                              # the tables alone

Error is that of the AIM paper (Definition 2) on all three-way marginals, of the sampled rows; for `gaussian` in paper
mode, of its raw answers. Results are added to benchmarks/field.csv run by run; a run that is there is not made again.
`subsample` is no mechanism: it is a random part of the real rows, which protects nobody, to read the scale by.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("UNDERSTUDY_LEDGER", f"{tempfile.mkdtemp()}/ledger.db")

import numpy as np

import understudy as us
from aim import REFERENCE, dense, table, workload_error
from understudy.mechanism import MECHANISMS
from understudy.tabulate import marginals
from understudy.workload import Workload

RESULTS = Path(__file__).with_name("field.csv")
FIELDS = ("mechanism", "mode", "table", "epsilon", "run", "error", "cpu_seconds", "peak_mib")
TABLES, EPSILONS, PARTS = ("titanic", "nltcs", "adult", "salary"), (0.1, 1.0, 10.0), (0.01, 0.1, 0.5)
LEFT_OUT = {"nist-mst"}  # chooses its marginals from a public table, and these four have none
SLOW = ("adaptive", "mwem", "aim")  # run last
KNOWN = {  # figures of others: reference AIM and MST, dpmm's PrivBayes
    **{("aim", *case): aim for case, (aim, _) in REFERENCE.items()},
    **{("mst", *case): mst for case, (_, mst) in REFERENCE.items()},
    ("privbayes", "nltcs", 1.0): 0.249,
}
WORKLOADS = ("aim", "mwem", "gaussian", "adaptive", "gem", "rap")
"""Mechanisms that are told the workload on which they are scored."""


def settings_of(name: str, mode: str) -> dict[str, Any]:
    """What a mechanism is told beside the mode; `gaussian` answers triples only where answers are what is scored."""
    if name == "gaussian":
        return {"workload": "all-3way"} if mode == "paper" else {}
    return {"workload": "all-3way"} if name in WORKLOADS else {}


def run(data: Path, name: str, mode: str, case: str, epsilon: float) -> tuple[float, float]:
    """One run: error and CPU seconds of fit and sampling."""
    frame, schema = table(data, case)
    workload = Workload.parse("all-3way", schema.domain)
    begin = time.process_time()
    settings = settings_of(name, mode)
    release = us.synthesize(
        frame, schema, epsilon=epsilon, delta=1e-9, mechanism=name, paper=mode == "paper", **settings
    )
    made = release.sample()
    seconds = time.process_time() - begin
    if release.settings.get("raw"):
        return raw_error(frame, schema, release, workload), seconds
    return workload_error(schema, frame, made, workload), seconds


def raw_error(frame: Any, schema: us.Schema, release: us.Release, workload: Workload) -> float:
    """Definition 2 of the noisy answers themselves; a marginal without an answer is answered by zeros."""
    answers = {m.clique: m.values for m in release.measurements}
    true = marginals(schema.encode(frame).codes, schema.domain, list(workload))
    errors = [workload.weights[r] * float(np.abs(dense(counts) - answers.get(r, 0)).sum()) for r, counts in true]
    return sum(errors) / (sum(workload.weights.values()) * len(frame))


def subsample(data: Path, case: str, part: float) -> float:
    """The error of a random part of the real rows, scaled up to all of them."""
    frame, schema = table(data, case)
    codes = schema.encode(frame).codes
    chosen = np.random.default_rng(0).random(len(frame)) < part
    workload = Workload.parse("all-3way", schema.domain)
    cliques = list(workload)
    true = marginals(codes, schema.domain, cliques)
    some = marginals({column: array[chosen] for column, array in codes.items()}, schema.domain, cliques)
    scale = len(frame) / max(1, chosen.sum())
    errors = [np.abs(dense(a) - scale * dense(b)).sum() for (_, a), (_, b) in zip(true, some, strict=True)]
    return float(np.mean(errors)) / len(frame)


def done() -> list[dict[str, str]]:
    """The runs that are recorded."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def record(**row: Any) -> None:
    """Add a run to the results."""
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024})


def run_missing(given: argparse.Namespace) -> None:
    """Make the runs that are not recorded yet, fast mechanisms first."""
    known = {(r["mechanism"], r["mode"], r["table"], r["epsilon"], r["run"]) for r in done()}
    for case, part in product(TABLES, PARTS):
        if ("subsample", str(part), case, "", "0") not in known:
            row = {"mechanism": "subsample", "mode": part, "table": case, "epsilon": "", "run": 0}
            record(**row, error=round(subsample(given.data, case, part), 5), cpu_seconds="")
    names = [name for name in MECHANISMS if name not in LEFT_OUT and (not given.only or name in given.only)]
    warm, schema = table(given.data, "titanic")
    for mode, name in product(
        given.mode, sorted(names, key=lambda name: (name in SLOW, SLOW.index(name) if name in SLOW else 0, name))
    ):
        if mode == "paper" and not MECHANISMS[name].paper:
            continue
        paper = mode == "paper"
        us.synthesize(warm[:50], schema, epsilon=1.0, delta=1e-9, mechanism=name, paper=paper).sample()  # compiles
        for number, case, epsilon in product(range(given.runs), TABLES, EPSILONS):
            if (name, mode, case, str(epsilon), str(number)) in known:
                continue
            error, seconds = run(given.data, name, mode, case, epsilon)
            row = {"mechanism": name, "mode": mode, "table": case, "epsilon": epsilon, "run": number}
            record(**row, error=round(error, 5), cpu_seconds=round(seconds, 2))
            print(f"{name:14} {mode:7} {case:8} {epsilon:<5} {error:.4f} {seconds:7.1f} s", flush=True)


def print_tables() -> None:
    """Error and CPU seconds of every mechanism, one table of each mode; ratios to known figures below."""
    rows = done()
    cases = list(product(TABLES, EPSILONS))
    for mode in ("default", "paper"):
        mine = [row for row in rows if row["mode"] == mode]
        names = sorted({row["mechanism"] for row in mine})
        print(f"\n### {mode.capitalize()}\n\n| mechanism | {' | '.join(f'{t} {e:g}' for t, e in cases)} |")
        print(f"|{'---|' * (len(cases) + 1)}")
        for name in names:
            cells = []
            for case in cases:
                found = [
                    row for row in mine if row["mechanism"] == name and (row["table"], float(row["epsilon"])) == case
                ]
                error, seconds = (
                    np.mean([float(r[key]) for r in found or [{key: "nan"}]]) for key in ("error", "cpu_seconds")
                )
                ratio = f", {error / KNOWN[name, *case]:.2f}x" if found and (name, *case) in KNOWN else ""
                cells.append(f"{error:.3f} ({seconds:.1f} s{ratio})" if found else "")
            print(f"| {name} | {' | '.join(cells)} |")
    print("\n### Random part of the real rows (not private)\n")
    for part in PARTS:
        found = [f"{r['table']} {float(r['error']):.3f}" for r in rows if r["mode"] == str(part)]
        print(f"- {part:.0%}: {', '.join(found)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="mechanisms, by comma")
    parser.add_argument("--mode", type=lambda text: text.split(","), default=["default", "paper"])
    parser.add_argument("--print", action="store_true", dest="shown", help="print the tables of recorded runs alone")
    given = parser.parse_args()
    if not given.shown:
        run_missing(given)
    print_tables()


if __name__ == "__main__":
    main()
