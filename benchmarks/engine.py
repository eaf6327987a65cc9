"""The inference engine against mbi 2.0 on the same measurements; prints seconds, losses and ratios.

    python benchmarks/engine.py --data ../shared/data --peer /path/to/python-with-mbi --sizes 1 8

Three problems on Adult (14 columns, 54 noisy marginals) with junction trees of about 1, 8 and 80 MB; strong signals;
a 40-round sequence like AIM's; many small projections; a wide tree; sampling; memory. The peer runs in a process of
its own, with its defaults (1000 iterations), and its compilation counts, because its users pay it for every new
structure. On a busy machine read the CPU seconds: ours is single-threaded, so they are what a quiet one would take.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import functools
import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa

import understudy as us
from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.descent import minimise
from understudy.model.estimate import estimate
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.model.problem import Problem, make_problem

ROWS = 48842.0
TOLERANCE = 1e-4
Point = tuple[float, float, int, float]
BEST = {"1": 102309.0, "8": 138319.0, "80": 970558.0, "8, sigma 2": 132815.0, "8, 20 x rows": 132612.0}

PEER = """
import sys, time, json
import numpy as np
begin = time.perf_counter()
import mbi
from mbi import Domain, LinearMeasurement
from mbi.estimation import MirrorDescent
loaded = time.perf_counter()
data = np.load(sys.argv[1])
sizes = json.loads(str(data["sizes"]))
cliques = json.loads(str(data["cliques"]))
total = float(data["total"])
found = [LinearMeasurement(data[f"v{i}"], tuple(c), float(data["sigmas"][i])) for i, c in enumerate(cliques)]
domain = Domain(list(sizes), list(sizes.values()))
start, spent = time.perf_counter(), time.process_time()
model = MirrorDescent().estimate(domain, found, known_total=total)
tables = [np.asarray(model.project(tuple(c)).datavector(), float) for c in cliques]
seconds, cpu = time.perf_counter() - start, time.process_time() - spent
loss = sum(0.5 * float(np.sum(((t - data[f"v{i}"]) / data["sigmas"][i]) ** 2)) for i, t in enumerate(tables))
print(json.dumps({"seconds": seconds, "cpu": cpu, "import": loaded - begin, "loss": loss}))
"""


def read(folder: Path, name: str) -> tuple[Domain, dict[str, Any]]:
    domain = Domain(json.loads((folder / f"{name}-domain.json").read_text()))
    with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    return domain, {column: np.array([int(float(row[column])) for row in rows]) for column in domain}


def exact(domain: Domain, columns: dict[str, Any], clique: tuple[str, ...]) -> Any:
    places = np.ravel_multi_index([columns[c] for c in clique], domain.shape(clique))
    return np.bincount(places, minlength=domain.cells(clique)).astype(float)


def chordal_mib(domain: Domain, cliques: list[tuple[str, ...]]) -> float:
    """The tree size by which the problems were drawn: networkx's completion, whatever ours finds."""
    graph = nx.Graph()
    graph.add_nodes_from(domain)
    for clique in cliques:
        graph.add_edges_from(itertools.combinations(clique, 2))
    completed, _ = nx.complete_to_chordal_graph(graph)
    return sum(domain.cells(c) for c in nx.find_cliques(completed)) * 8 / 2**20


def draw(domain: Domain, columns: dict[str, Any], limits: tuple[int, ...] = (1, 8, 80)) -> dict[str, list[Measurement]]:
    """Problems by their limit in MB: 14 one-way tables and 40 random two- and three-way ones within it."""
    rng = np.random.default_rng(0)
    pool = [c for k in (2, 3) for c in itertools.combinations(domain, k) if domain.cells(c) < 2e6]
    found = {}
    for limit in limits:
        cliques: list[tuple[str, ...]] = [(column,) for column in domain]
        for _ in range(40):
            for _ in range(50):
                clique = pool[rng.integers(len(pool))]
                if chordal_mib(domain, [*cliques, clique]) <= limit:
                    cliques.append(clique)
                    break
        tables = []
        for clique in cliques:
            sigma = 20.0 if len(clique) == 1 else 30.0
            counts = exact(domain, columns, clique)
            tables.append(Measurement(clique, counts + rng.normal(0, sigma, counts.size), sigma))
        found[str(limit)] = tables
    return found


def stronger(domain: Domain, columns: dict[str, Any], measurements: list[Measurement]) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    quiet = [Measurement(m.clique, exact(domain, columns, m.clique), 2.0) for m in measurements]
    quiet = [Measurement(m.clique, m.values + rng.normal(0, 2.0, m.values.size), 2.0) for m in quiet]
    rng = np.random.default_rng(7)
    many = [
        Measurement(m.clique, 20 * exact(domain, columns, m.clique) + rng.normal(0, m.sigma, m.values.size), m.sigma)
        for m in measurements
    ]
    return {"8, sigma 2": (quiet, ROWS), "8, 20 x rows": (many, 20 * ROWS)}


def prepared(domain: Domain, measurements: list[Measurement], total: float) -> Problem:
    tree = JunctionTree.of(domain, [m.clique for m in measurements])
    return make_problem(tree, measurements, total, {}, tolerance=TOLERANCE)


def ours(domain: Domain, measurements: list[Measurement], total: float) -> list[Point]:
    """Wall-clock and CPU seconds (set-up included), oracle calls and loss along the way, down to a gap of 1e-4."""
    begin, spent = time.perf_counter(), time.process_time()
    problem = prepared(domain, measurements, total)
    trace = []

    def watch(calls: int, loss: float) -> None:
        trace.append((time.perf_counter() - begin, time.process_time() - spent, calls, loss))

    minimise(problem, tolerance=TOLERANCE, max_seconds=None, watch=watch)
    return trace


def first(trace: list[Point], loss: float) -> Point | None:
    return next((point for point in trace if point[3] <= loss), None)


def peer(python: str, domain: Domain, measurements: list[Measurement], total: float) -> dict[str, float] | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        tables = {f"v{i}": m.values for i, m in enumerate(measurements)}
        cliques, sigmas = json.dumps([m.clique for m in measurements]), [m.sigma for m in measurements]
        np.savez(path, sizes=json.dumps(dict(domain)), cliques=cliques, sigmas=sigmas, total=total, **tables)
        done = subprocess.run([python, "-c", PEER, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  peer failed or mbi is not installed for {python}: {done.stderr.strip().splitlines()[-1:]}")
        return None
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def compare(name: str, domain: Domain, measurements: list[Measurement], total: float, python: str | None) -> None:
    trace = ours(domain, measurements, total)
    best = min(BEST.get(name, np.inf), *(point[3] for point in trace))
    words = []
    for gap in (1e-2, 1e-3):
        at = first(trace, best * (1 + gap))
        words.append(f"{gap:.1%}: {at[0]:.2f} s ({at[1]:.2f} s CPU), {at[2]} calls" if at else f"{gap:.1%}: no")
    per_call = 1e3 * trace[-1][1] / trace[-1][2]
    print(f"{name:>14} MB  ours within {'; '.join(words)}; {per_call:.2f} ms CPU a call", flush=True)
    theirs = peer(python, domain, measurements, total) if python else None
    if theirs:
        at = first(trace, theirs["loss"])
        ratio = f"{theirs['seconds'] / at[0]:.0f} x (CPU {theirs['cpu'] / at[1]:.0f} x)" if at else "never"
        mine = f"{at[0]:.3f} s ({at[1]:.3f} s CPU)" if at else "no"
        print(
            f"{'':>17}  mbi {theirs['seconds']:.1f} s ({theirs['cpu']:.1f} s CPU; {theirs['import']:.1f} s of import "
            f"not counted) to {theirs['loss']:.0f}; ours to that loss {mine}: {ratio}",
            flush=True,
        )


def aim_like(domain: Domain, columns: dict[str, Any]) -> None:
    """One-way tables, then 40 rounds: size of every candidate's tree, all candidates' marginals, one measurement."""
    rng = np.random.default_rng(3)
    pool = [c for k in (2, 3) for c in itertools.combinations(domain, k) if domain.cells(c) <= 2e5]

    def measure(clique: tuple[str, ...], sigma: float) -> Measurement:
        counts = exact(domain, columns, clique)
        return Measurement(clique, counts + rng.normal(0, sigma, counts.size), sigma)

    found = [measure((c,), 94.0) for c in domain]
    model, spent = estimate(domain, found, total=ROWS), {"sizes": 0.0, "queries": 0.0, "estimates": 0.0}
    calls = 0
    for turn in range(40):
        begin = time.process_time()
        sizes = model.tree.size_mib_with(pool)
        sized = time.process_time()
        model.project_many(pool)
        asked = time.process_time()
        fitting = [c for c, size in zip(pool, sizes, strict=True) if size <= (turn + 1) / 40]
        found.append(measure(fitting[rng.integers(len(fitting))], 94.0 if turn < 20 else 47.0))
        drawn = time.process_time()
        model = estimate(domain, found, total=ROWS, warm_start=model, tolerance=0.05)  # as AIM does
        calls += model.report.iterations if model.report else 0
        for part, seconds in (("sizes", sized - begin), ("queries", asked - sized)):
            spent[part] += seconds
        spent["estimates"] += time.process_time() - drawn
    parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in spent.items())
    print(f"AIM-like, 40 rounds, {len(pool)} candidates: {sum(spent.values()):.1f} s CPU ({parts}, {calls} calls)")


def small_queries() -> None:
    rng = np.random.default_rng(0)
    domain = Domain({f"n{i}": 2 for i in range(16)})
    triples = list(itertools.combinations(domain, 3))
    for number in (14, 40):
        chosen = [triples[i] for i in rng.permutation(len(triples))[:number]]
        model = GraphicalModel(domain, {c: rng.normal(0, 1, (2, 2, 2)) for c in chosen}, total=100.0)
        begin = time.process_time()
        model.project_many([*triples, *itertools.combinations(domain, 2)])
        print(f"680 marginals of 16 binary columns, {number} cliques: {1e3 * (time.process_time() - begin):.0f} ms CPU")


def wide_tree() -> None:
    rng = np.random.default_rng(0)
    domain = Domain({f"c{i}": int(rng.integers(2, 30)) for i in range(110)})
    pairs = [(f"c{rng.integers(i)}", f"c{i}") for i in range(1, 110)]
    shares = {c: rng.dirichlet(np.ones(domain[c])) for c in domain}
    cliques = [*((c,) for c in domain), *pairs]
    tables = [
        5000 * np.prod(np.ix_(*(shares[c] for c in q)), axis=0).ravel()
        if len(q) == 1
        else 5000 * np.outer(shares[q[0]], shares[q[1]]).ravel()
        for q in cliques
    ]
    found = [Measurement(q, t + rng.normal(0, 40, t.size), 40.0) for q, t in zip(cliques, tables, strict=True)]
    begin = time.process_time()
    model = estimate(domain, found)
    print(f"110 columns in a tree: {time.process_time() - begin:.2f} s CPU, {model.report}")
    every = list(itertools.combinations(domain, 2))
    begin = time.process_time()
    model.tree.size_mib_with(every)
    print(f"size preview of {len(every)} pairs on them: {time.process_time() - begin:.2f} s CPU")


def real_wide_tree(folder: Path) -> None:
    """What MST measures on the stroke table, 110 columns, estimated once more."""
    if not (folder / "stroke.csv.gz").is_file():
        print(f"no stroke table in {folder}: not measured")
        return
    domain, columns = read(folder, "stroke")
    schema = us.Schema.from_domain(dict(domain))
    release = us.synthesize(pa.table(columns), schema, epsilon=1.0, delta=1e-9, mechanism="mst", dataset="benchmark")
    measurements = re_express_all(domain, release.measurements, release.recoding)
    begin = time.process_time()
    model = estimate(release.model.domain, measurements)
    print(f"MST's {len(measurements)} tables of stroke: {time.process_time() - begin:.2f} s CPU, {model.report}")


def growth(domain: Domain, problems: dict[str, list[Measurement]]) -> None:
    """Peak memory in trees: a whole `estimate`, then what stores a tree clique's table or walks through the tree.

    The kernels are loaded before. The measurements themselves are the caller's and not counted, unless said.
    """
    for name, measurements in problems.items():
        cells = JunctionTree.of(domain, [m.clique for m in measurements]).cells
        given = sum(m.values.size for m in measurements)
        fit = functools.partial(estimate, domain, measurements, total=ROWS, max_seconds=10.0)
        asked, model = peak(fit)
        model.sample(10, np.random.default_rng(0))
        largest = max(model.tree.cliques, key=domain.cells)
        whole, _ = peak(functools.partial(model.project, largest))
        rows, _ = peak(functools.partial(model.sample, 10_000, np.random.default_rng(0)))
        pairs, _ = peak(functools.partial(model.project_many, list(itertools.combinations(domain, 2))))
        one, _ = peak(lambda model=model: [model.project(pair).sum() for pair in itertools.combinations(domain, 2)])
        del model
        taken = resident(fit)
        trees = [size / 8 / cells for size in (asked, asked + 8 * given, taken, whole, rows, one, pairs)]
        print(
            f"{name:>3} MB: estimating {trees[0]:.2f} trees ({asked / 2**20:.0f} MiB), with the measurements "
            f"{trees[1]:.2f}, the process grew by {trees[2]:.2f}; the largest tree clique's table {trees[3]:.2f}, "
            f"sampling {trees[4]:.2f}, pairs one by one {trees[5]:.2f}, at once {trees[6]:.2f}; "
            f"{cells:,} cells in the tree, {given:,} measured"
        )


def peak(work: Callable[[], Any]) -> tuple[int, Any]:
    """How many bytes Python and numpy held at most, and the result."""
    tracemalloc.start()
    result = work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most, result


def resident(work: Callable[[], object]) -> float:
    """By how many bytes the process grew at most; NaN where the system does not tell."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what earlier work has freed would hide new needs
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):
        return float("nan")
    before = status("VmRSS")
    work()
    return 1024.0 * (status("VmHWM") - before)


def status(entry: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(entry)).split()[1])


def sampling(domain: Domain, measurements: list[Measurement]) -> None:
    model = estimate(domain, measurements, total=ROWS)
    model.sample(1000, np.random.default_rng(0))
    begin = time.process_time()
    model.sample(1_000_000, np.random.default_rng(0))
    print(f"sampling 1,000,000 rows x {len(domain)} columns: {time.process_time() - begin:.2f} s CPU")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    options.add_argument("--peer", default=os.environ.get("UNDERSTUDY_PEER"), help="a Python with mbi 2.0 installed")
    options.add_argument("--sizes", nargs="*", default=["1", "8", "80"], choices=["1", "8", "80"])
    chosen = options.parse_args()
    if not (chosen.data / "adult_pgm").is_dir():
        sys.exit(f"no adult_pgm folder in {chosen.data}; say where it is with --data")
    if not chosen.peer:
        print("no peer: give --peer or UNDERSTUDY_PEER to compare with mbi; ours alone follows")
    domain, columns = read(chosen.data / "adult_pgm", "adult")
    problems = draw(domain, columns)
    begin = time.perf_counter()
    estimate(domain, problems["1"][:14], total=ROWS)
    print(f"(loading the kernels, or compiling them the first time: {time.perf_counter() - begin:.1f} s, not counted)")
    for name in chosen.sizes:
        compare(name, domain, problems[name], ROWS, chosen.peer)
    for name, (measurements, total) in stronger(domain, columns, problems["8"]).items():
        compare(name, domain, measurements, total, None)
    aim_like(domain, columns)
    small_queries()
    wide_tree()
    real_wide_tree(chosen.data / "wide")
    sampling(domain, problems["8"])
    growth(domain, {name: problems[name] for name in chosen.sizes})


if __name__ == "__main__":
    main()
