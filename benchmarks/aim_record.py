"""Record what AIM measured in whole runs, with our loss on it, for a comparison of estimators.

    python benchmarks/aim_record.py FOLDER titanic:1 nltcs:1 adult:0.1 adult:1 fire:0.1
    python benchmarks/mst_mbi.py FOLDER 1000         in an environment that has mbi 2.0

Each run is kept as the measurements over the merged codes, our estimate's loss at the mechanism's own tolerance (the
model that was released) and at a tolerance of 1e-6 from scratch (two minutes at most), and the processor seconds of
both estimates from scratch. The loss is half the sum of squared residuals over sigma squared, of the same measurements
and the same total.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from aim import table
from understudy.measurement import Measurement, Scaling
from understudy.model.estimate import estimate
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel

TIGHT = 1e-6
LONGEST = 120.0  # seconds for a tight estimate


def factors(measurement: Measurement) -> Any:
    """What each cell of the marginal is multiplied with: 1, or less where codes were merged."""
    if measurement.query is None:
        return np.ones(len(measurement.values))
    assert isinstance(measurement.query, Scaling)
    return measurement.query.factors


def loss(model: GraphicalModel, measured: Sequence[Measurement]) -> float:
    """Half the sum of squared residuals, in standard deviations of the noise."""
    tables = model.project_many(list({m.clique: None for m in measured}))
    residuals = [(tables[m.clique].ravel() * factors(m) - m.values) / m.sigma for m in measured]
    return sum(float(np.square(r).sum()) for r in residuals) / 2


def timed(domain: Any, measured: Sequence[Measurement], **settings: Any) -> tuple[float, float]:
    """The loss of an estimate from scratch, and its processor seconds."""
    begin = time.process_time()
    model = estimate(domain, measured, **settings)
    return loss(model, measured), time.process_time() - begin


def record(data: Path, folder: Path, number: int, case: str) -> None:
    name, _, epsilon = case.partition(":")
    frame, schema = table(data, name)
    release = us.synthesize(frame, schema, epsilon=float(epsilon), delta=1e-9, mechanism="aim")
    model = release.model
    measured = re_express_all(schema.domain, release.measurements, release.recoding)
    scratch, seconds = timed(model.domain, measured, total=model.total)
    tight, tight_seconds = timed(model.domain, measured, total=model.total, tolerance=TIGHT, max_seconds=LONGEST)
    facts = {
        "table": name,
        "epsilon": float(epsilon),
        "sizes": dict(model.domain),
        "cliques": [list(m.clique) for m in measured],
        "sigmas": [m.sigma for m in measured],
        "total": model.total,
        "loss": loss(model, measured),
        "scratch": scratch,
        "seconds": seconds,
        "tight": tight,
        "tight_seconds": tight_seconds,
    }
    arrays = {f"values{i}": m.values for i, m in enumerate(measured)}
    arrays |= {f"factors{i}": factors(m) for i, m in enumerate(measured)}
    np.savez(folder / f"set{number}.npz", facts=np.array(json.dumps(facts)), **arrays)
    print(
        f"{case}: {len(measured)} measurements, tree of {model.size_mib:.2g} MiB; our loss {facts['loss']:.7g} as "
        f"released, {scratch:.7g} from scratch in {seconds:.1f} s, {tight:.7g} in {tight_seconds:.1f} s at {TIGHT:g}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="+", help="TABLE:EPSILON")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(given.cases):
        record(given.data, given.folder, number, case)


if __name__ == "__main__":
    main()
