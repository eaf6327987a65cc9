"""A statistician releases a hospital's stays. A patient may have several stays, and the patient is protected.

    python examples/journeys/hospital.py OUT

The file is as the hospital's system exports it: semicolons, decimal commas, dates in two forms, times of day, keys such
as C2021000017, and a diagnosis with hundreds of rare codes. The statistician drafts and reviews a schema, rehearses for
the ethics board, makes the release, and hands a bundle to analysts. At most three stays of a patient are counted.
"""

from __future__ import annotations

import csv
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np
from shell import understudy

import understudy as us

RUN = """
data: stays.csv
schema: stays.schema.yaml
budget: {epsilon: 4, delta: 1e-6}
mechanism: mst
outputs: {rows: csv, report: public, seed: 1}
"""
ANSWERS = ["patient:3", "d", "a", "b", "a", "a", "r"]
"""Who is protected; then drop the first column, accept the second, look at it again, accept, accept, and the rest."""


def write_stays(path: Path, patients: int = 1200) -> None:
    """Write made-up stays: most patients have one, some have nine."""
    rng = np.random.default_rng(2)
    common, rare = ["I21.0", "I50.1", "J44.0", "J44.1", "J18.9"], [f"Z{n // 10:02}.{n % 10}" for n in range(300)]
    number = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, delimiter=";")
        header = ["case", "patient", "sex", "admitted", "time", "diagnosis", "days", "cost", "alive", "discharged"]
        rows.writerow(header)
        for patient in range(patients):
            sex = rng.choice(["f", "m"])
            for _ in range(int(rng.integers(1, 4)) ** 2):
                number += 1
                day = date(2023, 1, 1) + timedelta(int(rng.integers(0, 365)))
                diagnosis = rng.choice(common) if rng.random() < 0.9 else rng.choice(rare)
                days = int(rng.geometric(0.15 if diagnosis[0] == "I" else 0.3))
                cost = f"{800 * days * rng.lognormal(0, 0.5):.2f}".replace(".", ",")
                time = f"{rng.integers(0, 24):02}:{rng.integers(0, 60):02}"
                alive = rng.choice(["Y", "N"], p=[0.95, 0.05])
                row = [f"C2021{number:06}", f"P{patient:05}", sex, f"{day:%d.%m.%Y}", time, diagnosis, days, cost]
                rows.writerow(
                    [*row, alive, f"{day + timedelta(days)} {rng.integers(8, 18):02}:{rng.integers(0, 60):02}:00"]
                )


def main(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    write_stays(folder / "stays.csv")
    (folder / "run.yaml").write_text(RUN)
    said = {"draft": understudy(folder, "schema draft stays.csv -o stays.schema.yaml")}
    said["review"] = understudy(folder, "schema review stays.schema.yaml", answers="\n".join(ANSWERS) + "\n")
    said["check"] = understudy(folder, "schema check stays.schema.yaml stays.csv")
    said["plan"] = understudy(folder, "plan stays.schema.yaml --people ~1200 --epsilon 4 --mechanism independent,mst")
    understudy(folder, "run run.yaml --rehearse -o rehearsal")
    # A delta of 1 % is a mistake: nobody confirms it, so nothing is read or spent.
    mistake = "synthesize stays.csv -s stays.schema.yaml --epsilon 4 --delta 0.01 -o stays.release"
    said["delta"] = understudy(folder, mistake, exit_code=3)
    said["run"] = understudy(folder, "run run.yaml -o release")
    for query in ("days>10", "diagnosis=J44*", "admitted=01.10.2023..31.12.2023", 'cost>"1000,50"', "time<06:00"):
        said[query] = understudy(folder, "answer release/stand-in.release", query)
    said["value"] = understudy(folder, "answer release/stand-in.release", "alive=true", exit_code=3)
    understudy(folder, "report release/stand-in.release --real stays.csv -o compared.html")
    understudy(folder, "bundle release/stand-in.release -o for-analysts --seed 1")
    print(us.Release.load(folder / "release" / "stand-in.release").receipt.text())
    return said


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospital-out"))
