"""MST and NIST-MST: accuracy, speed, selected trees and the effect of each setting. Prints Markdown with ratios.

python benchmarks/mst.py accuracy DATA [--runs 5] [--tables adult,fire]
python benchmarks/mst.py speed DATA
python benchmarks/mst.py trees DATA [--runs 5]
python benchmarks/mst.py choices DATA [--runs 5] [--tables titanic,adult]
python benchmarks/mst.py noise
python benchmarks/mst.py census SCHEMA [--rows 600000]
python benchmarks/mst.py record DATA FOLDER     (measurement sets for mst_mbi.py)

DATA holds NAME.csv.gz and NAME-domain.json of the AIM paper's six tables. One core; seconds are of processor time, so
that a busy machine does not change them much. The numbers are in mst.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import argparse
import json
import resource
import time
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.accounting import Budget
from understudy.accounting.convert import rho_of
from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.mechanism.base import one_way
from understudy.mechanism.mst import MST
from understudy.mechanism.nist_mst import NistMST, equation_5_1, maximum_spanning_tree, pair_information
from understudy.mechanism.spanning_tree import independent_pairs, spanning_tree
from understudy.release.rows import undo_merging
from understudy.schema import Recoding, Schema
from understudy.source import MemorySource
from understudy.tabulate import SparseCounts, marginals

DELTA = 1e-9
EPSILONS = (0.1, 1.0, 10.0)
REFERENCE = {  # the better of the two MST columns of an independent sketch of the paper, mean of 3 runs
    "titanic": (1.278, 0.602, 0.378),
    "nltcs": (0.288, 0.278, 0.282),
    "adult": (0.316, 0.182, 0.166),
    "salary": (0.501, 0.403, 0.380),
    "fire": (0.225, 0.153, 0.145),
    "msnbc": (0.117, 0.104, 0.104),
}
SECONDS = {"adult": 0.5, "fire": 1.0, "msnbc": 3.0}
SPLIT = {"split": (0.35, 0.1, 0.55)}
SIZED = SPLIT | {"size_power": 1 / 3}
PENALTY = SIZED | {"penalty": 0.5}
CHOICES = {  # settings beside the paper's, and whether merged values are undone evenly
    "the paper: thirds, equal noise, plain scores, even undoing": ({}, True),
    "+ split .35/.1/.55": (SPLIT, True),
    "+ noise by size (n^1/3)": (SIZED, True),
    "+ penalty 1/2": (PENALTY, True),
    "+ shrunk shares when undoing (the default)": (PENALTY, False),
    "the default with split .45/.1/.45": (PENALTY | {"split": (0.45, 0.1, 0.45)}, False),
    "the default with penalty 1": (PENALTY | {"penalty": 1.0}, False),
    "the default with threshold 2": (PENALTY | {"threshold": 2.0}, False),
}


class Table:
    """One table with its exact three-way marginals."""

    def __init__(self, folder: Path, name: str) -> None:
        sizes = json.loads((folder / f"{name}-domain.json").read_text())
        frame = pd.read_csv(folder / f"{name}.csv.gz")[list(sizes)]
        self.domain, self.rows, self.schema = Domain(sizes), len(frame), Schema.from_domain(sizes)
        self.source = MemorySource(frame, self.schema)
        self.codes = self._compact({column: frame[column].to_numpy() for column in sizes})
        self.triples = list(combinations(self.domain, 3))

    def _compact(self, codes: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {c: codes[c].astype(np.uint8 if size <= 256 else np.uint16) for c, size in self.domain.items()}

    @property
    def _truth(self) -> Iterator[tuple[Clique, Any]]:
        return marginals(self.codes, self.domain, self.triples)

    def error(self, codes: dict[str, NDArray[Any]]) -> float:
        """Definition 2 of the AIM paper, all three-way marginals with weight 1."""
        made = marginals(self._compact(codes), self.domain, self.triples)
        total = sum(_distance(a, b) for (_, a), (_, b) in zip(made, self._truth, strict=True))
        return total / len(self.triples) / self.rows


def _distance(first: Any, second: Any) -> float:
    if isinstance(first, SparseCounts):
        cells, place = np.unique(np.concatenate((first.cells, second.cells)), return_inverse=True)
        return float(np.abs(np.bincount(place, np.concatenate((first.counts, -second.counts)), len(cells))).sum())
    return float(np.abs(first - second).sum())


@cache
def load(folder: Path, name: str) -> Table:
    return Table(folder, name)


def made(table: Table, mechanism: Any, epsilon: float, *, even: bool = False) -> tuple[dict[str, NDArray[Any]], float]:
    """Synthetic codes and the processor seconds that fitting and sampling took, the gate included."""
    budget = Budget.of(epsilon=epsilon, delta=DELTA)
    started = time.process_time()
    fit = mechanism.fit(PrivateTable(table.source, budget), rho=float(budget.capacity))
    rng = np.random.default_rng()
    rows = fit.model.sample(max(1, round(fit.model.total)), rng)
    measured = () if even else fit.measurements
    codes = undo_merging(rows, fit.recoding, table.schema, measured, rng, "spread")
    return codes, time.process_time() - started


def accuracy(folder: Path, names: list[str], runs: int) -> None:
    made(load(folder, "titanic"), MST(), 1.0)  # compiled code is loaded once
    print("| table | epsilon | error | standard error | reference | ratio | seconds |\n|---|---|---|---|---|---|---|")
    worst = 0.0
    for name in names:
        table = load(folder, name)
        for epsilon, reference in zip(EPSILONS, REFERENCE[name], strict=True):
            results = [made(table, MST(), epsilon) for _ in range(runs)]
            errors = [table.error(codes) for codes, _ in results]
            ratio = float(np.mean(errors)) / reference
            worst = max(worst, ratio)
            spread, seconds = np.std(errors, ddof=1) / runs**0.5, np.median([taken for _, taken in results])
            print(
                f"| {name} | {epsilon:g} | {np.mean(errors):.4f} | {spread:.4f} | {reference:.3f} | {ratio:.3f} "
                f"| {seconds:.2f} |",
                flush=True,
            )
    print(f"\nworst ratio {worst:.3f} (limit 1.02)")


def speed(folder: Path) -> None:
    made(load(folder, "titanic"), MST(), 1.0)
    print("| table | rows | seconds (best of 3) | limit |\n|---|---|---|---|")
    for name, limit in SECONDS.items():
        table = load(folder, name)
        best = min(made(table, MST(), 1.0)[1] for _ in range(3))
        print(f"| {name} | {table.rows} | {best:.2f} | {limit} |", flush=True)


def trees(folder: Path, runs: int) -> None:
    """The paper's appendix: mutual information of chosen trees, best, private and random."""
    print("| tree | adult | fire |\n|---|---|---|")
    lines: dict[str, list[str]] = {}
    for name in ("adult", "fire"):
        table = load(folder, name)
        weights = pair_information(table.source)
        best = sum(weights[pair] for pair in maximum_spanning_tree(weights))
        lines.setdefault("best", []).append(f"{best:.3f}")
        for label, settings in (("the paper", MST.paper_settings()), ("default", {})):
            for epsilon in (0.3, 1.0, 8.0):
                budget = Budget.of(epsilon=epsilon, delta=DELTA)
                sums = []
                for _ in range(runs):
                    tree = chosen_tree(table, MST(**settings), float(budget.capacity), budget)
                    sums.append(sum(weights[pair] for pair in tree))
                mean = float(np.mean(sums))
                lines.setdefault(f"{label}, epsilon {epsilon:g}", []).append(f"{mean:.3f} ({mean / best:.1%})")
        rng = np.random.default_rng(0)
        random = [maximum_spanning_tree({pair: float(rng.random()) for pair in weights}) for _ in range(100)]
        mean = float(np.mean([sum(weights[pair] for pair in tree) for tree in random]))
        lines.setdefault("random", []).append(f"{mean:.3f} ({mean / best:.1%})")
    for label, cells in lines.items():
        print(f"| {label} | {' | '.join(cells)} |")


def chosen_tree(table: Table, mechanism: MST, rho: float, budget: Budget) -> list[Clique]:
    fit = mechanism.fit(PrivateTable(table.source, budget), rho=rho)
    return [tuple(step["chosen"]) for step in fit.rounds]


def choices(folder: Path, names: list[str], runs: int) -> None:
    header = " | ".join(f"{name} {epsilon:g}" for name in names for epsilon in EPSILONS)
    print(f"| settings | {header} |\n|---|{'---|' * len(names) * len(EPSILONS)}")
    for label, (settings, even) in CHOICES.items():
        cells = []
        for name in names:
            table = load(folder, name)
            for epsilon in EPSILONS:
                results = [
                    made(table, MST(**{**MST.paper_settings(), **settings}), epsilon, even=even) for _ in range(runs)
                ]
                cells.append(f"{np.mean([table.error(codes) for codes, _ in results]):.4f}")
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


def noise() -> None:
    print("| epsilon | equation 5.1 | tight | less noise |\n|---|---|---|---|")
    for epsilon in (0.3, 1.0, 8.0):
        paper, tight = equation_5_1(epsilon, 2e-12), rho_of(epsilon, 2e-12) ** -0.5
        print(f"| {epsilon:g} | {paper:.4f} | {tight:.4f} | {1 - tight / paper:.1%} |")


def census(path: Path, rows: int) -> None:
    """600,000 rows over the 98 columns of the 1940 census; half as many again stand for the public state."""
    schema = Schema.load(path)
    source, public = (MemorySource(census_rows(schema, n, seed), schema) for n, seed in ((rows, 1), (rows // 2, 2)))
    made_up = {"mst": MST(keep=FORCED), "nist-mst": NistMST(public=public, keep=FORCED)}
    for name, mechanism in made_up.items():
        budget = Budget.of(epsilon=1.0, delta=2e-12)
        started = time.process_time()
        fit = mechanism.fit(PrivateTable(source, budget), rho=float(budget.capacity))
        fitted = time.process_time() - started
        fit.model.sample(rows, np.random.default_rng(0))
        seconds, peak = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{name}: fit {fitted:.1f} s, with sampling {seconds:.1f} s (limit 30), peak {peak:.2f} GiB of the whole "
            f"process (limit 4), {len(fit.measurements)} measurements, tree {fit.model.size_mib:.1f} MiB, "
            f"converged {fit.model.report.converged}",
            flush=True,
        )


FORCED: tuple[tuple[Clique, float], ...] = (
    (("SEX", "CITY", "INCWAGE"), 6.0),
    (("SEX", "CITY"), 2.0),
    (("SEX", "INCWAGE"), 2.0),
    (("CITY", "INCWAGE"), 2.0),
)


def census_rows(schema: Schema, rows: int, seed: int) -> Any:
    """Coded rows decoded by the schema: see examples/nist1940/rows.py, which this follows."""
    import importlib.util

    path = Path(__file__).parent.parent / "examples" / "nist1940" / "rows.py"
    spec = importlib.util.spec_from_file_location("nist1940_rows", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.census_like(schema, rows, seed)


def record(folder: Path, output: Path) -> None:
    """Five recorded measurement sets with our loss on each, for a comparison of estimators."""
    output.mkdir(parents=True, exist_ok=True)
    for number, (name, epsilon) in enumerate(
        [("titanic", 1.0), ("nltcs", 1.0), ("adult", 0.1), ("adult", 1.0), ("salary", 0.1)]
    ):
        table = load(folder, name)
        budget = Budget.of(epsilon=epsilon, delta=DELTA)
        gate = PrivateTable(table.source, budget)
        half = float(budget.capacity) / 3
        ones = gate.measure(one_way(table.domain), rho=half)
        pairs = independent_pairs(table, ones)
        tree = spanning_tree(gate, pairs, rho=half, max_cells=10**6)
        measured = [*ones, *gate.measure(tree, rho=half)]
        started = time.perf_counter()
        fit = MST().finish(table.domain, measured, recoding=Recoding.identity())
        arrays = {f"values{i}": m.values for i, m in enumerate(measured)}
        facts = {
            "table": name,
            "epsilon": epsilon,
            "sizes": dict(table.domain),
            "cliques": [list(m.clique) for m in measured],
            "sigmas": [m.sigma for m in measured],
            "total": fit.model.total,
            "loss": sum(
                float(np.square((fit.model.project(m.clique).reshape(-1) - m.values) / m.sigma).sum()) / 2
                for m in measured
            ),
            "seconds": time.perf_counter() - started,
        }
        np.savez(output / f"set{number}.npz", facts=np.array(json.dumps(facts)), **arrays)
        print(f"{name} {epsilon:g}: our loss {facts['loss']:.6g} in {facts['seconds']:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "speed", "trees", "choices", "noise", "census", "record"])
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("output", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--tables", default="")
    given = parser.parse_args()
    names = given.tables.split(",") if given.tables else list(REFERENCE)
    match given.what:
        case "accuracy":
            accuracy(given.path, names, given.runs)
        case "speed":
            speed(given.path)
        case "trees":
            trees(given.path, given.runs)
        case "choices":
            choices(given.path, given.tables.split(",") if given.tables else ["titanic", "adult"], given.runs)
        case "noise":
            noise()
        case "census":
            census(given.path, given.rows)
        case "record":
            record(given.path, given.output)


if __name__ == "__main__":
    main()
