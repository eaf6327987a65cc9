"""A researcher compares every mechanism on one table.

    python examples/journeys/researcher.py OUT

The table is made up, so its scores may be looked at freely: on real rows they are for the custodian only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import understudy as us

SCHEMA = us.Schema.from_domain({"a": 3, "b": 4, "c": 3, "d": 2})


def table(rows: int = 3000, seed: int = 4) -> pa.Table:
    """Four columns, each dependent on the one before."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, rows)
    b = (a + (rng.random(rows) < 0.3) * rng.integers(0, 4, rows)) % 4
    c = (b + (rng.random(rows) < 0.4) * rng.integers(0, 3, rows)) % 3
    d = ((a + c) % 2) ^ (rng.random(rows) < 0.2)
    return pa.table({"a": a, "b": b, "c": c, "d": d.astype(np.int64)})


def main(folder: Path) -> dict[str, float]:
    folder.mkdir(parents=True, exist_ok=True)
    people, older = table(), table(seed=5)
    errors: dict[str, float] = {}
    # `older` is last year's table, which was published. `dp-wgan` is to take no longer than the others.
    for name in us.MECHANISMS:
        settings = {"nist-mst": {"public": older}, "dp-wgan": {"rounds": 30}}.get(name, {})
        release = us.synthesize(
            people, SCHEMA, epsilon=1.0, delta=1e-9, mechanism=name, dataset="journey-researcher",
            output=folder / f"{name}.release", **settings,
        )  # fmt: skip
        stand_in = release.sample(len(people), seed=1)
        found = us.evaluate(people, stand_in, SCHEMA, metrics=["workload_error"], workload_error={"ways": [2]})
        errors[name] = found.to_pylist()[0]["value"] / 2
    for name, error in sorted(errors.items(), key=lambda item: item[1]):
        print(f"{name:<12} {error:.4f} of rows misplaced, mean over all pairs")
    return errors


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "researcher-out"))
