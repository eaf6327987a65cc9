"""Compare estimators on recorded measurement sets with mbi 2.0, of MST or of AIM.

python benchmarks/mst.py record DATA FOLDER                  five sets of MST, or
python benchmarks/aim_record.py FOLDER titanic:1 adult:1     sets of AIM; then
python benchmarks/mst_mbi.py FOLDER [iterations]             in an environment that has mbi 2.0
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import mbi
import numpy as np
from mbi import estimation
from mbi.marginal_loss import WeightedQuery

jax.config.update("jax_enable_x64", True)


def measurement(y: Any, clique: list[str], sigma: float, factors: Any) -> Any:
    """One recorded marginal; factors other than 1 are those of merged codes."""
    if (factors == 1).all():
        return mbi.LinearMeasurement(np.asarray(y, float), tuple(clique), sigma)
    return mbi.LinearMeasurement(np.asarray(y, float), tuple(clique), sigma, WeightedQuery(np.asarray(factors)))


def main(folder: Path, iterations: int) -> None:
    print(
        "| table | epsilon | our loss | ours, tight | mbi's loss | ratio | ratio, tight | our seconds | mbi's seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for path in sorted(folder.glob("set*.npz")):
        with np.load(path) as held:
            facts = json.loads(str(held["facts"]))
            values = [held[f"values{i}"] for i in range(len(facts["cliques"]))]
            factors = [held.get(f"factors{i}", np.ones(len(y))) for i, y in enumerate(values)]
        domain = mbi.Domain(tuple(facts["sizes"]), tuple(facts["sizes"].values()))
        sets = list(zip(values, facts["cliques"], facts["sigmas"], factors, strict=True))
        started = time.process_time()
        model = estimation.MirrorDescent().estimate(
            domain, [measurement(*given) for given in sets], known_total=facts["total"], iters=iterations
        )
        loss = sum(
            float(np.square((np.asarray(model.project(tuple(c)).datavector()) * f - y) / s).sum()) / 2
            for y, c, s, f in sets
        )
        seconds = time.process_time() - started
        tight = facts.get("tight", facts["loss"])
        print(
            f"| {facts['table']} | {facts['epsilon']:g} | {facts['loss']:.7g} | {tight:.7g} | {loss:.7g} "
            f"| {facts['loss'] / loss:.5f} | {tight / loss:.5f} | {facts['seconds']:.2f} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
