"""A call of the marginal oracle on the processor and on a GPU, for trees of 80 and 800 MB on Adult.

    python benchmarks/gpu.py --data ../shared/data [--limits 80 800] [--calls 20] [--fit]

Without a GPU that cupy finds, only the processor is timed. A call writes potentials and reads the marginals of all
measured tables; on a GPU they travel there and back. `--fit` also fits each problem, as a mechanism does. mbi 2.0 on an
H200 needs 1.16 s (80 MB) and 3.04 s (800 MB) for 1,000 iterations, after 20 to 29 s of compiling.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from engine import ROWS, draw, read
from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.device import DevicePropagation, find_device
from understudy.model.estimate import estimate
from understudy.model.junction_tree import JunctionTree
from understudy.model.propagate import Propagation

NONE = np.empty(0, np.int64)


def time_calls(propagation: Propagation, calls: int) -> tuple[float, float]:
    """The best and the mean seconds of a call; the first one, which checks and allocates, does not count."""
    potentials = np.random.default_rng(0).normal(0.0, 0.1, propagation.size)
    seconds = []
    for _ in range(calls + 1):
        begin = time.perf_counter()
        propagation.marginals(potentials, ROWS, forbidden=NONE)
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:]), float(np.mean(seconds[1:]))


def show(domain: Domain, measurements: list[Measurement], calls: int, *, fit: bool) -> None:
    cliques = [m.clique for m in measurements]
    tree = JunctionTree.of(domain, cliques)
    kinds = {"processor": Propagation(tree, cliques, beliefs=False)}
    if (device := find_device()) is not None:
        kinds["GPU"] = DevicePropagation(tree, cliques, more=0, device=device)
    for name, propagation in kinds.items():
        best, mean = time_calls(propagation, calls)
        print(f"tree {tree.size_mib:.0f} MiB, {name}: {1e3 * best:.1f} ms a call at best, {1e3 * mean:.1f} in the mean")
        if isinstance(propagation, DevicePropagation):
            print(f"  still on the GPU: {propagation.is_on_device}")
    if fit:
        begin = time.perf_counter()
        model = estimate(domain, measurements, total=ROWS)
        seconds, report = time.perf_counter() - begin, model.report
        assert report is not None
        print(f"  fit: {seconds:.1f} s, {report.iterations} calls, loss {model.loss:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--limits", type=int, nargs="+", default=[80, 800])
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--fit", action="store_true")
    given = parser.parse_args()
    domain, columns = read(given.data / "adult_pgm", "adult")
    for measurements in draw(domain, columns, tuple(given.limits)).values():
        show(domain, measurements, given.calls, fit=given.fit)


if __name__ == "__main__":
    main()
