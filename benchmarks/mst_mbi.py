"""Compare estimators on recorded measurement sets: run ``mst.py record DATA FOLDER`` first, then this with mbi 2.0.

python benchmarks/mst_mbi.py FOLDER [iterations]     in an environment that has mbi 2.0
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import jax
import mbi
import numpy as np
from mbi import estimation

jax.config.update("jax_enable_x64", True)


def main(folder: Path, iterations: int) -> None:
    print("| table | epsilon | our loss | mbi's loss | ratio | our seconds | mbi's seconds |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(folder.glob("set*.npz")):
        with np.load(path) as held:
            facts = json.loads(str(held["facts"]))
            values = [held[f"values{i}"] for i in range(len(facts["cliques"]))]
        domain = mbi.Domain(tuple(facts["sizes"]), tuple(facts["sizes"].values()))
        measured = [
            mbi.LinearMeasurement(np.asarray(y, float), tuple(clique), sigma)
            for y, clique, sigma in zip(values, facts["cliques"], facts["sigmas"], strict=True)
        ]
        started = time.perf_counter()
        model = estimation.MirrorDescent().estimate(domain, measured, known_total=facts["total"], iters=iterations)
        loss = sum(
            float(np.square((np.asarray(model.project(tuple(c)).datavector()) - y) / s).sum()) / 2
            for y, c, s in zip(values, facts["cliques"], facts["sigmas"], strict=True)
        )
        seconds = time.perf_counter() - started
        print(
            f"| {facts['table']} | {facts['epsilon']:g} | {facts['loss']:.6g} | {loss:.6g} "
            f"| {facts['loss'] / loss:.4f} | {facts['seconds']:.2f} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
