"""`adaptive` against AIM: workload error and CPU seconds on the six tables of the AIM paper and on wider ones.

    python benchmarks/beyond.py adult:1 stroke:1 --runs 5 --mechanisms adaptive aim --data ../shared/data
    python benchmarks/beyond.py ma2019:1:ma2018 ma2019:1:shuffled:ma2018 --mechanisms mst     # beside a public table
    python benchmarks/beyond.py --table

Error is the AIM paper's (Definition 2) on all three-way marginals, of the sampled rows, delta 1e-9; on tables of more
than 20 columns on 500 triples drawn with a fixed seed. CPU seconds are those of fit plus sampling, single-threaded,
after small runs that compile. Every run is appended to beyond.csv at once, and runs that are there are not repeated, so
the same command continues what `--seconds` ended. `--table` prints the means.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import time
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import understudy as us
from aim import table as aim_table
from aim import workload_error
from understudy.workload import Workload

HERE = Path(__file__).parent
FOLDERS = {"stroke": ("wide", "stroke"), "acs": ("nist2020", "acs_temporal_match2")}
EXCERPTS = {"ma2018": "ma2019", "ma2019": "ma2019", "national2019": "national2019"}
YEARS = {f"acs-year-{code}": code for code in range(7)}  # the years of ACS, each a table
BINS = 20
NARROW, DRAWN, MOST_CELLS = 20, 500, 3_000_000


def table(data: Path, name: str) -> tuple[pd.DataFrame, us.Schema]:
    if name in EXCERPTS:
        return excerpt(data / "sdnist", name, EXCERPTS[name])
    if name in YEARS:
        frame, schema = table(data, "acs")
        part = frame[frame["YEAR"] == YEARS[name]].drop(columns="YEAR").reset_index(drop=True)
        return part, us.Schema.from_domain({column: schema.domain[column] for column in part})
    folder, file = FOLDERS.get(name, ("aim", name))
    return aim_table(data / folder, file)


def excerpt(folder: Path, name: str, dictionary: str) -> tuple[pd.DataFrame, us.Schema]:
    """A table of sdnist, coded by a published dictionary: a code for every value, BINS for numbers, one for the rest.

    Bins are equal in the square root of the distance from the least number, so that incomes have more than one.
    """
    columns = json.loads((folder / f"{dictionary}.json").read_text())["schema"]
    frame = pd.read_csv(folder / f"{name}.csv.gz", dtype=str, keep_default_na=False)
    codes, sizes = {}, {}
    for column, facts in columns.items():
        if "values" in facts:
            known = {str(value): code for code, value in enumerate(facts["values"])}
            sizes[column] = len(known) + 1
            codes[column] = frame[column].map(known).fillna(len(known)).astype(int)
        else:
            part = (pd.to_numeric(frame[column], errors="coerce") - facts["min"]) / (facts["max"] - facts["min"])
            sizes[column] = BINS + 1
            binned = np.floor(BINS * np.sqrt(part.clip(0, 1))).clip(upper=BINS - 1)
            codes[column] = binned.fillna(BINS).astype(int)
    return pd.DataFrame(codes), us.Schema.from_domain(sizes)


def triples(schema: us.Schema) -> Workload:
    """All triples of a narrow table, drawn ones of a wide one."""
    domain = schema.domain
    if len(domain) <= NARROW:
        return Workload.all_kway(domain, 3)
    rng, columns = np.random.default_rng(0), list(domain)
    drawn = {
        tuple(columns[i] for i in sorted(rng.choice(len(columns), 3, replace=False).tolist())) for _ in range(DRAWN)
    }
    return Workload.of(domain, sorted(clique for clique in drawn if domain.cells(clique) <= MOST_CELLS))


def public_table(data: Path, name: str) -> pd.DataFrame | None:
    """A public table, none, or a biased one if the name begins with a kind of bias.

    `shuffled:` makes its columns independent, `part:` keeps the rows in the upper half of its largest column, and
    `half:` replaces every second row by values drawn at random.
    """
    kind, _, base = name.rpartition(":")
    if not base:
        return None
    frame, schema = table(data, base)
    rng = np.random.default_rng(0)
    if kind == "shuffled":
        return pd.DataFrame({c: rng.permutation(frame[c]) for c in frame})
    if kind == "part":
        widest = max(schema.domain, key=schema.domain.__getitem__)
        return frame[frame[widest] > frame[widest].median()]
    if kind == "half":
        wrong = np.arange(len(frame)) % 2 == 1
        return pd.DataFrame(
            {c: np.where(wrong, rng.integers(0, schema.domain[c], len(frame)), frame[c]) for c in frame}
        )
    return frame


def run(data: Path, name: str, epsilon: float, mechanism: str, public: str = "") -> dict[str, Any]:
    frame, schema = table(data, name)
    beside = public_table(data, public)
    wide = {"workload": "all-2way"} if mechanism == "aim" and len(schema.domain) > NARROW else {}
    begin = time.process_time()
    release = us.synthesize(frame, schema, epsilon=epsilon, delta=1e-9, mechanism=mechanism, public=beside, **wide)
    made = release.sample()
    seconds = time.process_time() - begin
    return {
        "table": name,
        "epsilon": epsilon,
        "mechanism": mechanism,
        "public": public,
        "error": workload_error(schema, frame, made, triples(schema)),
        "cpu_seconds": round(seconds, 2),
        "measurements": len(release.measurements),
        "tree_mib": round(getattr(release.model, "size_mib", 0.0), 3),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def append(row: dict[str, Any], path: Path) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def spread(errors: pd.Series[float]) -> str:
    """The mean, its standard error where there are several runs, and the number of runs."""
    beside = f" ± {errors.sem():.2g}" if len(errors) > 1 else ""
    return f"{errors.mean():.4g}{beside} ({len(errors)})"


def tell(path: Path) -> None:
    """Print a Markdown table of the means, each beside AIM's, and one of runs beside a public table."""
    runs = pd.read_csv(path, keep_default_na=False)
    ratios, times = [], []
    print("| table | epsilon | adaptive (runs) | AIM (runs) | ratio | CPU s | AIM's | ratio | tree MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, epsilon), group in runs.groupby(["table", "epsilon"]):
        ours, theirs = (
            group[(group.mechanism == mechanism) & (group.public == "")] for mechanism in ("adaptive", "aim")
        )
        if ours.empty or theirs.empty:
            continue
        ratios.append(ours.error.mean() / theirs.error.mean())
        times.append(ours.cpu_seconds.mean() / theirs.cpu_seconds.mean())
        print(
            f"| {name} | {epsilon:g} | {spread(ours.error)} | {spread(theirs.error)} | {ratios[-1]:.3f} "
            f"| {ours.cpu_seconds.mean():.2f} | {theirs.cpu_seconds.mean():.2f} | {times[-1]:.2f} "
            f"| {ours.tree_mib.max():.2g} |"
        )
    mean = [float(np.exp(np.mean(np.log(values)))) for values in (ratios, times)]
    print(f"\nGeometric means of the {len(ratios)} ratios: error {mean[0]:.3f}, CPU seconds {mean[1]:.3f}.\n")
    beside = runs[runs.groupby(["table", "epsilon", "mechanism"]).public.transform("nunique") > 1]
    for (name, epsilon, mechanism), group in beside.groupby(["table", "epsilon", "mechanism"]):
        alone = group[group.public == ""].error.mean()
        for public, some in group.groupby("public"):
            ratio = some.error.mean() / alone
            print(f"| {name} | {epsilon:g} | {mechanism} | {public or 'none'} | {spread(some.error)} | {ratio:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="TABLE:EPSILON[:PUBLIC]")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mechanisms", nargs="+", default=["adaptive", "aim"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=HERE / "beyond.csv")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after this processor time")
    parser.add_argument("--table", action="store_true", help="print what was measured so far")
    given = parser.parse_args()
    if given.cases:
        for mechanism in given.mechanisms:
            run(given.data, "titanic", 10.0, mechanism)  # compiles
    done = Counter[tuple[str, float, str, str]]()
    if given.output.exists():
        old = pd.read_csv(given.output, keep_default_na=False)
        done.update(zip(old.table, old.epsilon, old.mechanism, old.public, strict=True))
    for count, case, mechanism in product(range(given.runs), given.cases, given.mechanisms):
        name, epsilon, *public = case.split(":", 2)
        cell = name, float(epsilon), mechanism, "".join(public)
        if done[cell] > count or time.process_time() > given.seconds:
            continue
        row = run(given.data, *cell)
        done[cell] += 1
        append(row, given.output)
        print(row, flush=True)
    if given.table:
        tell(given.output)


if __name__ == "__main__":
    main()
