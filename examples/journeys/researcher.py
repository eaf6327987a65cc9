"""A researcher works in a notebook: from published dictionaries to a comparison of every mechanism.

    python examples/journeys/researcher.py OUT

Everything that the command line does is a function of `understudy`, and values show themselves in a notebook. The table
is made up, so its scores may be looked at freely: on real rows they are for the custodian only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from shell import understudy

import understudy as us

SCHEMA = us.Schema.from_domain({"a": 3, "b": 4, "c": 3, "d": 2})
DICTIONARIES = {
    "domain.json": {"a": 3, "b": 4, "c": 3, "d": 2},
    "nested-domain.json": {"a": {"type": "discrete", "domain": 3}},
    "dictionary.json": {"SEX": {"description": "Sex", "values": {"1": "Male", "2": "Female"}}},
    "nested.json": {"schema": {"AGEP": {"dtype": "int64", "min": 0, "max": 95}}},
}
"""Two forms of a benchmark's domain, and two of SDNist's data dictionary."""


def table(rows: int = 3000, seed: int = 4) -> pa.Table:
    """Four columns, each dependent on the one before."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, rows)
    b = (a + (rng.random(rows) < 0.3) * rng.integers(0, 4, rows)) % 4
    c = (b + (rng.random(rows) < 0.4) * rng.integers(0, 3, rows)) % 3
    d = ((a + c) % 2) ^ (rng.random(rows) < 0.2)
    return pa.table({"a": a, "b": b, "c": c, "d": d.astype(np.int64)})


def import_dictionaries(folder: Path) -> list[us.Schema]:
    """Make schemas of published dictionaries, without a row."""
    schemas = []
    for name, content in DICTIONARIES.items():
        (folder / name).write_text(json.dumps(content))
        understudy(folder, f"schema import {name} -o {name}.schema.yaml --unit row")
        schemas.append(us.Schema.load(folder / f"{name}.schema.yaml"))
    return schemas


def work_in_notebook(folder: Path) -> list[Any]:
    """Every step from a table to a comparison in Python; returns what the cells would show."""
    people = table()
    draft = us.draft(people, unit="row")
    schema = draft.accept()
    plan = us.plan(schema, people=3000, epsilons=[1.0], mechanisms=["mst"])
    release = us.synthesize(people, schema, epsilon=1.0, delta=1e-9, mechanism="mst", dataset="journey-notebook")
    us.write_report(release, folder / "report.html")
    us.make_bundle(release, folder / "bundle", rows=100, seed=1)
    grid = us.compare(people, schema, mechanisms=["mst", "independent"], epsilons=[0.5, 2.0], public=True, jobs=1)
    audit = us.audit("independent", pairs=100)
    print(audit.text())
    return [draft, schema, plan, release, release.receipt, release.answer("a=1"), release.plot("b"), grid, grid.plot()]


def compare_mechanisms(folder: Path) -> dict[str, float]:
    """The share of rows that each mechanism misplaces, in the mean of all pairs of columns."""
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


def main(folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    schemas = import_dictionaries(folder)
    shown = work_in_notebook(folder)
    return {"schemas": schemas, "shown": shown, "errors": compare_mechanisms(folder)}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "researcher-out"))
