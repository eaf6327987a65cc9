"""Means, percentiles and tails of synthetic rows: their bias, and their standard deviation between releases.

    python benchmarks/numeric.py run DATA RECORD [--tables bank,adult] [--mechanisms mst] [--epsilons 1] [--runs 20]
    python benchmarks/numeric.py show RECORD [RECORD ...] [--columns]

`run` makes releases as a new user does: the schema is drafted from the table (`--wide` also moves the upper bound of
every number and date, so that the axis is 1.5 times as long), everything else is a default. The statistics of every
numeric and time column are appended to RECORD, one line a column and release; releases that RECORD has are not
repeated. `show` prints, for each table, mechanism and epsilon, how many columns meet what is wanted; `--columns` prints
every column and pair.

Wanted: the bias of mean, median and 95th percentile is at most half the standard deviation between releases or 0.5 % of
the column's interquartile range (of its range between the 5th and 95th percentile where the quartiles are equal); with
`--wide` at most 0.1 % of the rows are beyond the true extremes. A bias that is measured with R releases has a standard
error of sd / sqrt(R), which is added to what is allowed. The same for pairs that a release measured: the mean of a
number in each group (of at most 12, with 1 % of the rows) and the correlation of two numbers (bias at most 0.005).

DATA holds the folders `raw` and `sdnist`. TUNING names the tables that were looked at while the estimate was worked
out; the others only check it. The results are in numbers.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import argparse
import csv
import itertools
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import understudy as us
from understudy.schema.axis import AxisColumn
from understudy.schema.draft import draft
from understudy.schema.text import Dialect

TUNING = ("bank", "adult")
CHECKING = ("diabetes", "german", "sd2011", "national", "hospital")
UNITS = {"hospital": {"column": "patient", "max_rows": 3}}
DECLARED = {"hospital": {"age": 150}}  # upper bounds that are declared with every table of this name
STATISTICS = ("mean", "q05", "q25", "median", "q75", "q95", "beyond")
SCORED = ("mean", "median", "q95")
WIDE = 1.5
FEW = 12
FIELDS = ("table", "mechanism", "epsilon", "wide", "run", "column", *STATISTICS)


# Tables


def bank(rows: int = 41_188) -> pd.DataFrame:
    """Rows like those of a bank's telephone campaign: long calls and many contacts are rare."""
    rng = np.random.default_rng(0)
    job = rng.choice(12, rows, p=np.array([25, 22, 16, 9, 7, 4, 4, 4, 3, 3, 2, 1]) / 100)
    age = np.rint(rng.gamma(14, 2.9, rows) + (job == 5) * 22).astype(int)
    age = np.where((age < 17) | (age > 98), rng.integers(25, 60, rows), age)
    duration = np.minimum(np.rint(rng.lognormal(5.19, 0.86, rows)), 4918).astype(int)
    outcome = rng.random(rows) < 1 / (1 + np.exp(4.2 - 1.0 * np.log1p(duration / 60)))
    contacts = np.minimum(rng.geometric(np.where(outcome, 0.49, 0.38)), 56)
    days = (rng.gamma(1.5, 220, rows) % 1095).astype(int)
    balance = np.where(rng.random(rows) < 0.08, 0, np.rint(rng.lognormal(6.1, 1.5, rows))).astype(int)
    return pd.DataFrame(
        {
            "job": [f"job {number}" for number in job],
            "age": age,
            "duration": duration,
            "contacts": contacts,
            "balance": np.minimum(balance, 102_127),
            "called": (np.datetime64("2008-05-01") + days).astype(str),
            "rate": np.round(rng.choice([1.25, 4.05, 4.96], rows, p=[0.3, 0.15, 0.55]) + rng.normal(0, 0.06, rows), 3),
            "outcome": np.where(outcome, "yes", "no"),
        }
    )


def hospital(patients: int = 8_000) -> pd.DataFrame:
    """Stays of patients, up to three each: a few have very high laboratory values, the oldest is 103."""
    rng = np.random.default_rng(1)
    patient = np.repeat(np.arange(patients), rng.integers(1, 4, patients))
    rows = len(patient)
    age = np.clip(np.rint(rng.normal(58, 20, patients)), 18, 103).astype(int)[patient]
    ward = rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])
    admission = np.datetime64("2019-01-01") + rng.integers(0, 1095, rows)
    stay = np.minimum(rng.geometric(np.array([0.3, 0.2, 0.15, 0.1])[ward]), 60)
    return pd.DataFrame(
        {
            "patient": [f"P{number:05d}" for number in patient],
            "sex": rng.choice(["F", "M"], patients)[patient],
            "age": age,
            "ward": np.array(["surgery", "medicine", "oncology", "intensive care"])[ward],
            "admission": admission.astype(str),
            "stay": stay,
            "crp": np.minimum(np.round(rng.lognormal(1.9 + 0.3 * ward, 1.2), 1), 480.0),
            "died": np.where(rng.random(rows) < 0.01 + 0.03 * ward, "yes", "no"),
        }
    )


def load(folder: Path, name: str) -> pd.DataFrame:
    """A table by its name; every cell as text, as `understudy` reads a file."""
    if name in ("bank", "hospital"):
        return {"bank": bank, "hospital": hospital}[name]().astype(str)
    if name == "german":
        frame = pd.read_csv(folder / "raw/german_credit.data.gz", sep=" ", header=None, dtype=str)
        return frame.set_axis([f"a{number + 1}" for number in range(frame.shape[1])], axis=1)
    paths = {
        "adult": "raw/adult_raw.csv.gz",
        "diabetes": "raw/diabetic_data.csv.gz",
        "sd2011": "raw/sd2011.csv.gz",
        "national": "sdnist/national2019.csv.gz",
        "ma": "sdnist/ma2019.csv.gz",
    }
    frame = pd.read_csv(folder / paths[name], dtype=str, keep_default_na=False)
    if name == "diabetes":  # 24 columns of medicines tell nothing about numbers
        kept = [*frame.columns[:24], "insulin", "change", "diabetesMed", "readmitted"]
        return frame[
            [c for c in kept if c not in ("encounter_id", "patient_nbr", "weight", "diag_1", "diag_2", "diag_3")]
        ]
    return frame


def drafted(frame: pd.DataFrame, wide: bool, name: str = "") -> us.Schema:
    """The schema that `understudy schema draft` proposes, accepted as it is."""
    content = draft(frame, list(frame.columns), Dialect(), UNITS.get(name, "row")).content
    for field in content["fields"]:
        field["understudy"]["status"] = "reviewed"
        if field["name"] in DECLARED.get(name, {}):
            field["constraints"]["maximum"] = DECLARED[name][field["name"]]
        elif wide and "maximum" in field.get("constraints", {}):
            _widen(field)
    return us.Schema.from_dict(content)


def _widen(field: dict[str, Any]) -> None:
    limits = field["constraints"]
    low, high = limits["minimum"], limits["maximum"]
    if not isinstance(low, str):
        wider = low + WIDE * (high - low)
        limits["maximum"] = int(wider) if field["type"] == "integer" else round(wider, 6)
        return
    start = pd.Timestamp(low)
    moved = start + WIDE * (pd.Timestamp(high) - start)
    limits["maximum"] = moved.strftime("%Y-%m-%d" if field["type"] == "date" else "%Y-%m-%dT%H:%M:%S")


# Statistics


def values(frame: pa.Table, schema: us.Schema) -> dict[str, np.ndarray]:
    """By column of numbers or times, the values in what people count in; nan for missing codes."""
    found = {}
    for column in schema.columns:
        if isinstance(column, AxisColumn):
            cells = frame[column.name].combine_chunks()
            units, _ = column.units(cells, schema.dialect)
            ordinary = column.encode(cells, schema.dialect)[column.name] < column.ordinary
            found[column.name] = np.where(ordinary, units / column.per_unit, np.nan)
    return found


def groups(frame: pa.Table, schema: us.Schema) -> dict[str, np.ndarray]:
    """By column of a few values, the codes."""
    numbers = {column.name for column in schema.columns if isinstance(column, AxisColumn)}
    names = [column.name for column in schema.coded if column.name not in numbers and column.size <= FEW]
    codes = schema.encode(frame).codes
    return {name: codes[name] for name in names}


def statistics(cells: np.ndarray, low: float, high: float) -> list[float]:
    """Mean, percentiles and the share beyond the extremes of the true values."""
    cells = cells[~np.isnan(cells)]
    if not len(cells):
        return [np.nan] * len(STATISTICS)
    percentiles = np.percentile(cells, (5, 25, 50, 75, 95))
    return [float(cells.mean()), *map(float, percentiles), float(((cells < low) | (cells > high)).mean())]


def conditionals(numbers: dict[str, np.ndarray], codes: dict[str, np.ndarray], pairs: set[Any]) -> dict[str, float]:
    """Means within groups and correlations, for pairs of columns in either order."""
    found = {}
    for one, other in sorted(pairs):
        if one in numbers and other in numbers:
            both = ~np.isnan(numbers[one] + numbers[other])
            if both.sum() > 2 and numbers[one][both].std() and numbers[other][both].std():
                found[f"{one} with {other}"] = float(np.corrcoef(numbers[one][both], numbers[other][both])[0, 1])
        elif one in numbers and other in codes:
            for code in np.flatnonzero(np.bincount(codes[other]) >= 0.01 * len(codes[other])):
                cells = numbers[one][codes[other] == code]
                if (~np.isnan(cells)).sum() >= 30:
                    found[f"{one} by {other}={code}"] = float(np.nanmean(cells))
    return found


def measured_pairs(release: us.Release) -> set[tuple[str, str]]:
    """Ordered pairs of columns that were measured together."""
    return {pair for m in release.measurements for pair in itertools.permutations(m.clique, 2)}


def truth(folder: Path, name: str) -> dict[str, list[float]]:
    """The true statistics of a table's columns."""
    frame = load(folder, name)
    exact = values(pa.Table.from_pandas(frame, preserve_index=False), drafted(frame, wide=False, name=name))
    return {column: statistics(cells, np.nanmin(cells), np.nanmax(cells)) for column, cells in exact.items()}


# Runs


def run(args: argparse.Namespace) -> None:
    """Make releases and record their statistics."""
    done = {tuple(line[field] for field in FIELDS[:5]) for line in read(args.record)}
    with args.record.open("a", newline="") as file, tempfile.TemporaryDirectory() as scratch:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(FIELDS)
        for name in args.tables:
            frame = load(args.data, name)
            schema = drafted(frame, args.wide, name)
            table = pa.Table.from_pandas(frame, preserve_index=False)
            exact = values(table, schema)
            ends = {column: (np.nanmin(cells), np.nanmax(cells)) for column, cells in exact.items()}
            true_groups = groups(table, schema)
            every = conditionals(exact, true_groups, set(itertools.permutations((*exact, *true_groups), 2)))
            if (name, "truth", "0", str(int(args.wide)), "0") not in done:
                record(writer, (name, "truth", 0, int(args.wide), 0), exact, ends, every)
            for number in range(args.runs):
                for mechanism in args.mechanisms:
                    for epsilon in args.epsilons:
                        case = (name, mechanism, f"{epsilon:g}", str(int(args.wide)), str(number))
                        if case in done:
                            continue
                        started = time.process_time()
                        made = release(table, schema, mechanism, epsilon, Path(scratch) / "ledger.db")
                        rows = made.sample(as_="arrow")
                        seconds = time.process_time() - started
                        numbers = values(rows, schema)
                        pairs = conditionals(numbers, groups(rows, schema), measured_pairs(made))
                        record(writer, case, numbers, ends, {p: v for p, v in pairs.items() if p in every})
                        file.flush()
                        print(*case, f"{seconds:.1f} s", flush=True)


def record(writer: Any, case: tuple[Any, ...], numbers: Any, ends: Any, pairs: dict[str, float]) -> None:
    """Write the lines of one release: a line a column, and a line for each conditional mean and correlation."""
    for column, cells in numbers.items():
        writer.writerow([*case, column, *(f"{v:.8g}" for v in statistics(cells, *ends[column]))])
    for pair, value in pairs.items():
        writer.writerow([*case, pair, f"{value:.8g}"])


def release(table: pa.Table, schema: us.Schema, mechanism: str, epsilon: float, ledger: Path) -> us.Release:
    """One release, with everything at its default."""
    ledger.unlink(missing_ok=True)
    return us.synthesize(table, schema, epsilon=epsilon, delta=1e-9, mechanism=mechanism, ledger=ledger)


# Results


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a record; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def show(args: argparse.Namespace) -> None:
    """Print a table for each record."""
    for path in args.records:
        lines = read(path)
        exact = {(x["table"], x["wide"], x["column"]): x for x in lines if x["mechanism"] == "truth"}
        cases: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
        for line in lines:
            if line["mechanism"] != "truth":
                case = tuple(line[field] for field in FIELDS[:4])
                cases[case][line["column"]].append(line)
        print(f"\n{path.name}\n")
        if not args.columns:
            heads = [
                "table",
                "mechanism",
                "epsilon",
                "wide",
                "releases",
                "columns",
                *SCORED,
                "inside",
                "pairs",
                "worst",
            ]
            print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
        for case, columns in sorted(cases.items()):
            _show_case(case, columns, {c: exact[case[0], case[3], c] for c in columns}, args.columns)


def _show_case(
    case: tuple[str, ...], columns: dict[str, list[dict[str, str]]], exact: dict[str, dict[str, str]], each: bool
) -> None:
    scores = {c: score(lines, exact[c]) for c, lines in columns.items() if exact[c]["q95"]}
    pairs = {c: score_pair(lines, exact) for c, lines in columns.items() if not exact[c]["q95"] and len(lines) >= 5}
    if each:
        print(
            "\n"
            + " ".join(case)
            + "\n| column | mean: truth, bias, sd | median | q95 | beyond % |\n"
            + "|---" * 5
            + "|"
        )
        for column, found in scores.items():
            texts = [f"{t:.5g}, {b:+.3g}, {sd:.2g}{'' if ok else ' **x**'}" for t, b, sd, ok in found[:-1]]
            print(f"| {column} | " + " | ".join(texts) + f" | {100 * found[-1][1]:.3f} |")
        for pair, (t, b, sd, ok) in pairs.items():
            print(f"| {pair} | {t:.5g}, {b:+.3g}, {sd:.2g}{'' if ok else ' **x**'} | | | |")
        return
    good = [sum(found[i][3] for found in scores.values()) for i in range(len(SCORED))]
    inside = sum(found[-1][1] <= 0.001 for found in scores.values())
    worst = max(
        ((abs(b) / sd if sd else 0.0, f"{c} {s} {b / (sd or 1):+.1f} sd") for c, found in scores.items()
         for s, (_, b, sd, ok) in zip(SCORED, found, strict=False) if not ok), default=(0.0, "")
    )  # fmt: skip
    releases = len(next(iter(columns.values())))
    met = f"{sum(found[3] for found in pairs.values())} of {len(pairs)}"
    cells = [*case, releases, len(scores), *good, inside, met, worst[1]]
    print("| " + " | ".join(map(str, cells)) + " |")


def score(lines: list[dict[str, str]], exact: dict[str, str]) -> list[tuple[float, float, float, bool]]:
    """Truth, bias, standard deviation and whether the bias is small enough, of the scored statistics and the tails."""
    return [judge([line[name] for line in lines], float(exact[name]), spread(exact)) for name in (*SCORED, "beyond")]


def score_pair(lines: list[dict[str, str]], exact: dict[str, dict[str, str]]) -> tuple[float, float, float, bool]:
    """The same of a conditional mean or a correlation."""
    pair = lines[0]["column"]
    scale = 1.0 if " with " in pair else spread(exact[pair.split(" by ")[0]])
    return judge([line["mean"] for line in lines], float(exact[pair]["mean"]), scale)


def judge(found: list[str], true: float, scale: float) -> tuple[float, float, float, bool]:
    """Truth, bias, standard deviation and whether the bias is small enough."""
    cells = np.array([float(text) for text in found])
    bias, sd = float(cells.mean()) - true, float(cells.std(ddof=1)) if len(cells) > 1 else 0.0
    return true, bias, sd, abs(bias) <= max(0.5 * sd, 0.005 * scale) + sd / np.sqrt(len(cells))


def spread(exact: dict[str, str]) -> float:
    """The interquartile range, or the range between the 5th and 95th percentile where it is 0."""
    return float(exact["q75"]) - float(exact["q25"]) or float(exact["q95"]) - float(exact["q05"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("data", type=Path)
    runs.add_argument("record", type=Path)
    runs.add_argument("--tables", type=lambda text: text.split(","), default=[*TUNING, *CHECKING])
    runs.add_argument("--mechanisms", type=lambda t: t.split(","), default=["independent", "mst", "aim", "privsyn"])
    runs.add_argument("--epsilons", type=lambda text: [*map(float, text.split(","))], default=[0.5, 1.0, 4.0])
    runs.add_argument("--runs", type=int, default=20)
    runs.add_argument("--wide", action="store_true")
    runs.set_defaults(call=run)
    shows = commands.add_parser("show")
    shows.add_argument("records", type=Path, nargs="+")
    shows.add_argument("--columns", action="store_true")
    shows.set_defaults(call=show)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
