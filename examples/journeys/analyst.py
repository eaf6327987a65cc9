"""An analyst receives a bundle: rows, a codebook, a report and a release. She never sees the real table.

    python examples/journeys/analyst.py OUT

She asks the release for counts with intervals, draws columns, and estimates means and a regression with standard errors
that include the noise. Where a package is missing, the message says how to install it.
"""

from __future__ import annotations

import csv
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
from shell import understudy

import understudy as us
from understudy.errors import InputError

SCHEMA = """
title: Health survey
fields:
- {name: sex, type: string, categories: [F, M]}
- {name: age, type: integer, constraints: {minimum: 18, maximum: 95}, understudy: {bins: 20}}
- {name: interviewed, type: date, format: "%d.%m.%Y", constraints: {minimum: 2023-01-01, maximum: 2023-12-31}}
- {name: icd, type: string, categories: [I21, I50, J18, J44, none]}
- {name: smoker, type: boolean, trueValues: ["Y"], falseValues: ["N"]}
understudy: {privacy_unit: row}
"""


def receive_bundle(folder: Path, rows: int = 4000) -> Path:
    """What the custodian did: a release of a made-up survey, and the bundle for analysts."""
    rng = np.random.default_rng(5)
    age = rng.integers(18, 90, rows)
    day = (np.datetime64("2023-01-01") + rng.integers(0, 365, rows)).astype(object)
    columns = {
        "sex": rng.choice(["F", "M"], rows),
        "age": age,
        "interviewed": [f"{one:%d.%m.%Y}" for one in day],
        "icd": np.where(rng.random(rows) < age / 200, rng.choice(["I21", "I50", "J18", "J44"], rows), "none"),
        "smoker": np.where(rng.random(rows) < 0.5 - age / 250, "Y", "N"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "survey.schema.yaml").write_text(SCHEMA)
    schema = us.Schema.load(folder / "survey.schema.yaml")
    release = us.synthesize(pa.table(columns), schema, epsilon=4, delta=1e-6, mechanism="mst", dataset="survey")
    us.make_bundle(release, folder / "bundle", seed=1)
    return folder / "bundle"


def main(folder: Path) -> dict[str, object]:
    bundle = receive_bundle(folder)
    readme = (bundle / "README.md").read_text()
    with (bundle / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    print(readme[:400], f"... {len(rows)} rows, the first: {rows[0]}", sep="\n")
    said = {
        query: understudy(bundle, "answer stand-in.release", query)
        for query in ("age>64", "icd=J*", "interviewed>=01.07.2023", "smoker=Y, sex=F")
    }
    understudy(bundle, "bounds stand-in.release")
    understudy(bundle, "sample stand-in.release -n 3 --seed 1", "--where", "smoker=Y")
    release = us.Release.load(bundle / "stand-in.release")
    release.plot("age").save(folder / "age.svg")
    has_infer = all(find_spec(name) for name in ("pandas", "formulaic", "scipy"))
    try:
        estimates = str(release.infer("mean(age) | sex"))
    except InputError as missing:
        estimates = str(missing)
    print(estimates)
    said["regression"] = understudy(bundle, "infer stand-in.release", "age ~ C(sex)", exit_code=0 if has_infer else 3)
    return {"readme": readme, "rows": rows, "estimates": estimates, **said}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "analyst-out"))
