"""A hospital releases its stays. A patient may have several stays, and the patient is protected.

    python examples/journeys/hospital.py OUT

The journey is rehearsed first, on rows made from the schema: the ethics board sees report and rows before any patient's
data is touched. At most three stays of a patient are counted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

import understudy as us
from understudy.run import run

SCHEMA = """
title: Stays
fields:
- {name: patient_id, understudy: {kind: id}}
- {name: ward, type: string, categories: [surgery, medicine, children, maternity]}
- {name: sex, type: string, categories: [f, m]}
- {name: days, type: integer, constraints: {minimum: 0, maximum: 60}, understudy: {bins: 12}}
- {name: emergency, type: boolean, trueValues: ["yes"], falseValues: ["no"]}
- {name: note, understudy: {kind: drop}}
understudy: {privacy_unit: {column: patient_id, max_rows: 3}}
"""
RUN = """
data: stays.csv
schema: stays.schema.yaml
budget: {epsilon: 2, delta: 1e-9}
mechanism: mst
outputs: {rows: [csv, parquet], report: public, seed: 1}
"""


def stays(patients: int = 1500) -> pa.Table:
    """Made-up stays: most patients have one, some have nine."""
    rng = np.random.default_rng(2)
    patient = np.repeat(np.arange(patients), rng.integers(1, 4, patients) ** 2)
    rows = len(patient)
    sex = rng.choice(["f", "m"], patients)[patient]
    ward = rng.choice(["surgery", "medicine", "children"], rows, p=[0.4, 0.5, 0.1])
    ward = np.where((sex == "f") & (rng.random(rows) < 0.2), "maternity", ward)
    days = np.where(ward == "maternity", rng.poisson(3, rows), rng.geometric(0.15, rows)).clip(0, 60)
    emergency = np.where(rng.random(rows) < np.where(ward == "surgery", 0.5, 0.2), "yes", "no")
    columns = {"patient_id": patient, "ward": ward, "sex": sex, "days": days, "emergency": emergency}
    return pa.table(columns | {"note": ["free text that never leaves"] * rows})


def main(folder: Path) -> us.Release:
    folder.mkdir(parents=True, exist_ok=True)
    pa_csv.write_csv(stays(), folder / "stays.csv")
    (folder / "stays.schema.yaml").write_text(SCHEMA)
    (folder / "run.yaml").write_text(RUN)
    run(folder / "run.yaml", folder / "rehearsal", rehearse=True)
    done = run(folder / "run.yaml", folder / "release")
    release = us.Release.load(done.summary["release"])
    print(release.receipt.text())
    print("stays on surgery:", release.answer({"ward": "surgery"}))
    return release


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospital-out"))
