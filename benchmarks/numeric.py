"""Means, percentiles and tails of synthetic rows: their bias, and their standard deviation between releases.

    python benchmarks/numeric.py run DATA RECORD [--tables bank,adult] [--mechanisms mst] [--epsilons 1] [--runs 20]
    python benchmarks/numeric.py show RECORD [RECORD ...] [--columns]

`run` makes releases as a new user does: the schema is drafted from the table (`--wide` also moves the upper bound of
every number and date, so that the axis is 1.5 times as long), everything else is a default. The statistics of every
numeric and time column are appended to RECORD, one line a column and release; releases that RECORD has are not
repeated. `show` prints, for each table, mechanism and epsilon, how many columns meet what is wanted, and then each bias
that is above the limit with certainty; `--columns` prints every column and pair.

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
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import t as student

import understudy as us
from understudy.measurement import combine
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
ROWS = 130
FEW = 12
SURE = 0.99
FIELDS = ("table", "mechanism", "epsilon", "wide", "run", "column", *STATISTICS, "enough")


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
                name = f"{min(one, other)} with {max(one, other)}"
                found[name] = float(np.corrcoef(numbers[one][both], numbers[other][both])[0, 1])
        elif one in numbers and other in codes:
            for code in np.flatnonzero(np.bincount(codes[other]) >= 0.01 * len(codes[other])):
                cells = numbers[one][codes[other] == code]
                if (~np.isnan(cells)).sum() >= 30:
                    found[f"{one} by {other}={code}"] = float(np.nanmean(cells))
    return found


def measured_pairs(release: us.Release) -> set[tuple[str, str]]:
    """Ordered pairs of columns that were measured together."""
    return {pair for m in release.measurements for pair in itertools.permutations(m.clique, 2)}


def enough_rows(release: us.Release, codes: dict[str, np.ndarray]) -> dict[str, bool]:
    """By column of numbers or times, whether the table has enough rows for an estimate that leaves its ends empty.

    The rows of the m codes beyond an extreme are known with a standard deviation of sqrt(m) times that of a code. The
    noise is that of the column's own measurements.
    """
    found = {}
    for column in release.schema.columns:
        own = [m for m in release.measurements if m.clique == (column.name,) and m.query is None]
        own = [m for m in own if len(m.values) == release.schema.domain[column.name]]
        if isinstance(column, AxisColumn) and own:
            taken = codes[column.name][codes[column.name] < column.ordinary]
            empty = np.sqrt(taken.min()) + np.sqrt(column.ordinary - 1 - taken.max())
            found[column.name] = bool(len(codes[column.name]) >= ROWS * empty * combine(own)[1])
    return found


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
            true_codes, true_groups = schema.encode(table).codes, groups(table, schema)
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
                        pairs = {pair: value for pair, value in pairs.items() if pair in every}
                        record(writer, case, numbers, ends, pairs, enough_rows(made, true_codes))
                        file.flush()
                        print(*case, f"{seconds:.1f} s", flush=True)


def record(
    writer: Any,
    case: tuple[Any, ...],
    numbers: Any,
    ends: Any,
    pairs: dict[str, float],
    enough: Mapping[str, bool] = MappingProxyType({}),
) -> None:
    """Write the lines of one release: a line a column, and a line for each conditional mean and correlation."""
    for column, cells in numbers.items():
        found = [f"{value:.8g}" for value in statistics(cells, *ends[column])]
        writer.writerow([*case, column, *found, int(enough[column]) if column in enough else ""])
    for pair, value in pairs.items():
        writer.writerow([*case, pair, f"{value:.8g}"])


def release(table: pa.Table, schema: us.Schema, mechanism: str, epsilon: float, ledger: Path) -> us.Release:
    """One release, with everything at its default."""
    ledger.unlink(missing_ok=True)
    return us.synthesize(table, schema, epsilon=epsilon, delta=1e-9, mechanism=mechanism, ledger=ledger)


# Results


class Bias(NamedTuple):
    """The bias of one statistic.

    Attributes:
        true: its true value.
        bias: the mean over releases, less the true value.
        deviation: the standard deviation between releases.
        limit: the largest bias that is wanted.
        releases: how many releases there are.
    """

    true: float
    bias: float
    deviation: float
    limit: float
    releases: int

    @property
    def met(self) -> bool:
        """Whether the bias is at most the limit and a standard error."""
        return abs(self.bias) <= self.limit + self.deviation / np.sqrt(self.releases)

    def surely_above(self, tail: float) -> bool:
        """Return whether a lower confidence bound, which fails with this probability, is above the limit.

        Half a standard deviation that is estimated too has the variance of 1/8 of that of a mean.
        """
        own = self.limit <= 0.5 * self.deviation
        error = self.deviation * np.sqrt((1.125 if own else 1.0) / self.releases)
        quantile = float(student.isf(tail, self.releases - 1)) if self.releases > 1 else np.inf
        return bool(error > 0 and abs(self.bias) - quantile * error > self.limit)

    def __str__(self) -> str:
        return f"{self.true:.5g}, {self.bias:+.3g}, {self.deviation:.2g}{'' if self.met else ' **x**'}"


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a record; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def show(args: argparse.Namespace) -> None:
    """Print a table of all records, and what is above the limit with certainty."""
    lines = [line for path in args.records for line in read(path)]
    exact = {(x["table"], x["wide"], x["column"]): x for x in lines if x["mechanism"] == "truth"}
    cases: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["mechanism"] != "truth":
            cases[tuple(line[field] for field in FIELDS[:4])][line["column"]].append(line)
    scores = {case: score(columns, exact, case) for case, columns in sorted(cases.items())}
    if args.columns:
        for case, found in scores.items():
            _show_columns(case, found, cases[case])
        return
    judged = [bias for found in scores.values() for statistics in found.values() for bias in statistics.values()]
    tail = (1 - SURE) / max(len(judged), 1)
    tallies = (*SCORED, "inside", "with enough rows", "pairs")
    heads = (*FIELDS[:4], "releases", "columns", *tallies)
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    together = np.zeros((6, 2), np.int64)
    for case, found in scores.items():
        counts = _count(found, cases[case])
        together += counts
        releases = max(map(len, cases[case].values()))
        texts = [str(counts[0][1]), *(str(met) for met, _ in counts[:4]), *(f"{a} of {b}" for a, b in counts[4:6])]
        print("| " + " | ".join([*case, str(releases), *texts]) + " |")
    of = zip(tallies, together.tolist(), strict=True)
    print("\nTogether: " + ", ".join(f"{name} {a} of {b}" for name, (a, b) in of))
    print(f"\nAbove the limit with certainty, of {len(judged)} biases:")
    for case, found in scores.items():
        for column, statistics in found.items():
            for name, bias in statistics.items():
                if bias.surely_above(tail):
                    print(f"{' '.join(case)}: {name} of {column} {bias} ({abs(bias.bias) / bias.deviation:.1f} sd)")


def score(
    columns: dict[str, list[dict[str, str]]], exact: dict[tuple[str, ...], dict[str, str]], case: tuple[str, ...]
) -> dict[str, dict[str, Bias]]:
    """The biases of a case: those of every column, and of pairs that at least five releases measured."""
    found = {}
    for name, lines in columns.items():
        true = exact[case[0], case[3], name]
        if true["q95"]:
            found[name] = {s: judge([x[s] for x in lines], float(true[s]), spread(true)) for s in SCORED}
        elif len(lines) >= 5:
            scale = 1.0 if " with " in name else spread(exact[case[0], case[3], name.split(" by ")[0]])
            found[name] = {"pair": judge([x["mean"] for x in lines], float(true["mean"]), scale)}
    return found


def judge(found: list[str], true: float, scale: float) -> Bias:
    """The bias of values of releases; the scale is the range of which 0.5 % are allowed."""
    cells = np.array([float(text) for text in found])
    sd = float(cells.std(ddof=1)) if len(cells) > 1 else 0.0
    return Bias(true, float(cells.mean()) - true, sd, max(0.5 * sd, 0.005 * scale), len(cells))


def beyond(lines: list[dict[str, str]]) -> float:
    """The mean share of rows beyond the extremes."""
    return float(np.mean([float(line["beyond"]) for line in lines]))


def _count(found: dict[str, dict[str, Bias]], columns: dict[str, list[dict[str, str]]]) -> np.ndarray:
    """How many, of how many: each scored statistic; columns inside; those of columns with enough rows; pairs."""
    own = [name for name, statistics in found.items() if "pair" not in statistics]
    pairs = [statistics["pair"].met for statistics in found.values() if "pair" in statistics]
    inside = {name: beyond(columns[name]) <= 0.001 for name in own}
    large = [name for name in own if all(line.get("enough") == "1" for line in columns[name])]
    met = [sum(found[name][s].met for name in own) for s in SCORED]
    return np.array(
        [*((count, len(own)) for count in met), (sum(inside.values()), len(own)),
         (sum(inside[name] for name in large), len(large)), (sum(pairs), len(pairs))]
    )  # fmt: skip


def _show_columns(
    case: tuple[str, ...], found: dict[str, dict[str, Bias]], columns: dict[str, list[dict[str, str]]]
) -> None:
    print("\n" + " ".join(case) + "\n| column | mean: truth, bias, sd | median | q95 | beyond % |\n" + "|---" * 5 + "|")
    for name, statistics in found.items():
        tail = "" if "pair" in statistics else f"{100 * beyond(columns[name]):.3f}"
        cells = [str(bias) for bias in statistics.values()]
        print(f"| {name} | " + " | ".join([*cells, *([""] * (3 - len(cells))), tail]) + " |")


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
