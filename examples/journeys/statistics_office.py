"""A statistics office publishes a survey with weights and codes for missing answers.

    python examples/journeys/statistics_office.py OUT

The interviewers' codes (-9 refused, -8 does not apply) are declared with their reasons and come back in the rows. A
share of the budget measures the workload error, so that the public report can state it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

import understudy as us
from understudy.run import run

SCHEMA = """
title: Living conditions survey
fields:
- {name: region, type: string, categories: [North, East, South, West]}
- {name: age, type: integer, constraints: {minimum: 16, maximum: 99}, understudy: {bins: 12}}
- name: employment
  type: string
  categories: [employed, unemployed, inactive]
  understudy: {missing: {"-9": refused}}
- name: income
  type: integer
  constraints: {minimum: 0, maximum: 10000}
  understudy: {bins: 10, spikes: [0], missing: {"-9": refused, "-8": not_applicable}}
- {name: weight, type: number, constraints: {minimum: 0.2, maximum: 5}, understudy: {bins: 12, decimals: 2}}
understudy: {privacy_unit: row}
"""
RUN = """
data: survey.csv
schema: survey.schema.yaml
dataset: living-conditions
budget: {epsilon: 1, delta: 1e-9}
mechanism: mst
keep: [[region, employment]]
workload: all-2way
quality: 5%
outputs: {rows: csv, report: public, seed: 1}
"""


def survey(rows: int = 4000) -> pa.Table:
    """A made-up survey: the old are inactive, the inactive are not asked for wages, some refuse."""
    rng = np.random.default_rng(1)
    age = rng.integers(16, 90, rows)
    employment = np.where(
        age > 66, "inactive", rng.choice(["employed", "unemployed", "inactive"], rows, p=[0.8, 0.06, 0.14])
    )
    income = np.where(employment == "employed", rng.gamma(4, 600, rows).astype(int).clip(0, 10000), 0)
    income = np.where(employment == "inactive", -8, np.where(rng.random(rows) < 0.08, -9, income))
    employment = np.where(rng.random(rows) < 0.02, "-9", employment)
    region = rng.choice(["North", "East", "South", "West"], rows, p=[0.2, 0.3, 0.4, 0.1])
    weight = np.round(rng.uniform(0.5, 2.0, rows) * np.where(region == "West", 2.0, 1.0), 2)
    return pa.table({"region": region, "age": age, "employment": employment, "income": income, "weight": weight})


def main(folder: Path) -> dict[str, float]:
    folder.mkdir(parents=True, exist_ok=True)
    pa_csv.write_csv(survey(), folder / "survey.csv")
    (folder / "survey.schema.yaml").write_text(SCHEMA)
    (folder / "run.yaml").write_text(RUN)
    done = run(folder / "run.yaml", folder / "release")
    print(json.dumps(dict(done.summary), indent=2))
    # for the custodian: totals and shares weighted as the survey's own tables are
    schema = us.Schema.load(folder / "survey.schema.yaml")
    made = folder / "release" / "rows.csv"
    scores = us.evaluate(folder / "survey.csv", made, schema, metrics=["workload_error"], weight="weight").to_pylist()
    refused = pa_csv.read_csv(made)["income"].to_pylist().count(-9) / done.summary["default_rows"]
    return {"weighted error": scores[0]["value"], "refused": refused, "high": done.summary["quality"]["interval"][1]}


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else "statistics-office-out")))
