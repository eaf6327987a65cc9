"""Does `understudy plan` come true? Predicted and real errors and advice, and how long a plan takes.

python benchmarks/plan.py errors DATA [--runs 20] [--tables adult,fire] [--mechanisms mst,aim] [--log FILE]
python benchmarks/plan.py advice DATA [--runs 1] [--tables adult,fire] [--mechanisms independent,mst,adaptive]
python benchmarks/plan.py drafted DATA [--runs 4] [--tables bank,hospital] [--mechanisms mst,aim] [--log FILE]
python benchmarks/plan.py accuracy DATA [--runs 10] [--tables adult,ma2018] [--mechanisms independent,mst]
python benchmarks/plan.py evenness DATA [--tables adult]
python benchmarks/plan.py dependence DATA [--tables adult,fire]
python benchmarks/plan.py trials DATA [--tables adult,fire] [--mechanisms nist-mst] [--runs 12]
python benchmarks/plan.py speed

DATA holds NAME.csv.gz and NAME-domain.json of tables of codes; a table without a domain file is coded here, each column
by its values, or by 32 equal bins where it has more than 100 of them. The error of a run: of every column (every pair
of columns) that some measured table holds, the mean absolute difference between the model's cells and the true ones,
codes merged as in the release; then the mean over columns (pairs). The prediction knows the domain and the number of
rows to two figures. `nist-mst` is given the table itself as its public table: the best one there could be. With --log
each run is written down as it ends, and what already exists is not run again. `advice` compares the mechanism that a
plan recommends with the one that misplaces fewest rows: the part of the rows in the wrong cell of a pair, over all
pairs, measured or not. `drafted` takes the tables of numeric.py with the schemas that are drafted for them, and makes
releases at epsilon 1, each in a process of its own: errors, covered pairs, the metric `numbers`, and the memory of the
process beyond what it had once the table was read. `accuracy` runs mechanisms with the epsilon that groups of 200
people within 10 % need by a plan. `evenness` runs `gaussian` on made-up tables with the columns of a real one, as even
as a plan takes them to be, as the table's own columns, and as the columns of each other table in DATA. `dependence`
compares how closely columns depend on each other in real and in made-up tables; `trials` runs mechanisms at epsilon 1
on more made-up tables than a plan does. The numbers are in plan.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa

from understudy.accounting import Budget
from understudy.accounting.calibrate import certify_plan
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.gate.selection import merge_codes
from understudy.mechanism import make_mechanism
from understudy.mechanism.registry import MECHANISMS
from understudy.mechanism.spanning_tree import Components
from understudy.model.fit import Fit
from understudy.planning import Accuracy, Line, default_delta, made_up, plan, predict
from understudy.planning.made_up import MadeUpSource
from understudy.planning.plan import MECHANISMS as COMPARED
from understudy.planning.plan import round_people
from understudy.planning.predict import CLOSE, COLUMNS, ROWS, Expected, PlannedTable
from understudy.schema import Schema
from understudy.source import MemorySource, Source

EPSILONS = (0.5, 1.0, 2.0)
SIZES = (2, 6, 16)

Case = tuple[str, str, float]
"""A table, a mechanism and an epsilon."""


def fitted(source: Source, name: str, budget: Budget) -> Fit:
    mechanism: Any = make_mechanism(name, **({"public": source} if name == "nist-mst" else {}))
    weights, planned = mechanism.plan(source.domain), None
    if weights:
        planned, budget = certify_plan(weights, budget, Neighbours())
    return mechanism.fit(PrivateTable(source, budget, plan=planned), rho=float(budget.capacity))


def error(fit: Fit, source: Source, order: int) -> float | None:
    """The mean over covered columns (pairs) of the mean absolute cell error."""
    parts = {part for m in fit.measurements for part in combinations(source.domain.canonical(m.clique), order)}
    cliques: list[Clique] = sorted(parts)
    errors = []
    for clique, counts in source.counts(cliques):
        axes = [fit.recoding.maps.get(column) for column in clique]
        true = merge_codes(counts, source.domain.shape(clique), axes)
        errors.append(np.abs(fit.model.project(clique).reshape(-1) - true).mean())
    return float(np.mean(errors)) if errors else None


def misplaced(fit: Fit, source: MemorySource) -> float:
    """The part of the rows in the wrong cell of a pair of columns, over all pairs; merged codes share rows evenly."""
    rows, wrong = 0, []
    for clique, counts in source.counts(list(combinations(source.domain, 2))):
        shape = source.domain.shape(clique)
        true = merge_codes(counts, shape, [None, None]).reshape(shape)
        table = fit.model.project(clique)
        for axis, codes in enumerate(fit.recoding.maps.get(column) for column in clique):
            if codes is not None:
                table = np.moveaxis(np.moveaxis(table, axis, -1)[..., codes] / np.bincount(codes)[codes], -1, axis)
        rows = true.sum()
        wrong.append(np.abs(table - true).sum() / 2)
    return float(np.mean(wrong) / rows)


def runs_of(source: MemorySource, case: Case, budget: Budget, runs: int, log: Path | None) -> list[dict[str, Any]]:
    """Errors, covered pairs and misplaced rows of so many runs, those on the log first."""
    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    done = [line for line in map(json.loads, lines) if line["case"] == list(case)]
    while len(done) < runs:
        fit = fitted(source, case[1], budget)
        pairs = {part for m in fit.measurements for part in combinations(source.domain.canonical(m.clique), 2)}
        found = {"errors": [error(fit, source, order) for order in (1, 2)], "pairs": len(pairs)}
        done.append({"case": case, **found, "misplaced": misplaced(fit, source)})
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    return done


def opened(folder: Path, name: str) -> tuple[dict[str, int], pd.DataFrame]:
    """The sizes of the columns of a table, and its codes."""
    frame = pd.read_csv(folder / f"{name}.csv.gz", low_memory=False)
    domain = folder / f"{name}-domain.json"
    if domain.exists():
        sizes = json.loads(domain.read_text())
        return sizes, frame[list(sizes)]
    coded = {}
    for column in frame:
        values = frame[column].astype(str)
        if values.nunique() > 100:
            numbers = pd.to_numeric(values, errors="coerce")
            coded[column] = pd.cut(numbers, 32, labels=False).fillna(32).astype(int)
        else:
            coded[column] = pd.Series(pd.factorize(values, sort=True)[0])
    return {column: int(codes.max()) + 1 for column, codes in coded.items()}, pd.DataFrame(coded)


def errors(folder: Path, names: list[str], mechanisms: list[str], runs: int, log: Path | None) -> None:
    print("| table | mechanism | runs | columns: real error | plan / real | pairs: real error | plan / real |")
    print("|---|---|---|---|---|---|---|")
    found: list[tuple[str, float, str]] = []
    for name in names:
        sizes, frame = opened(folder, name)
        schema = Schema.from_domain(sizes)
        source, delta = MemorySource(frame, schema), default_delta(len(frame))
        expected = plan(schema, people=len(frame), epsilons=EPSILONS, mechanisms=mechanisms)
        for mechanism in mechanisms:
            lines = {line.epsilon: line.expected for line in expected.lines if line.mechanism == mechanism}
            done = {
                epsilon: runs_of(source, (name, mechanism, epsilon), Budget.of(epsilon=epsilon, delta=delta), runs, log)
                for epsilon in EPSILONS
            }
            cells = [name, mechanism, str(min(map(len, done.values())))]
            for order in (0, 1):
                real = {epsilon: mean_of([run["errors"][order] for run in done[epsilon]]) for epsilon in EPSILONS}
                marks = [mark(lines[epsilon], order, real[epsilon]) for epsilon in EPSILONS]
                found += [(mechanism, *ratio) for ratio in marks if ratio is not None]
                cells.append(", ".join("-" if mean is None else f"{mean:.3g}" for mean in real.values()))
                cells.append(", ".join("-" if ratio is None else ratio[1] for ratio in marks))
            print(f"| {' | '.join(cells)} |", flush=True)
    worst = {name: max(max(r, 1 / r) for m, r, _ in found if m == name) for name in mechanisms}
    print("\nWorst ratio either way:", "; ".join(f"`{name}` {ratio:.2f}" for name, ratio in worst.items()) + ".")
    missed = sum(text.startswith("!") for *_, text in found)
    ranges = sum(text[0] in "(!" for *_, text in found)
    print(f"{len(found)} numbers, {ranges} of them shown as ranges, {missed} of which miss the real error.")


def mark(expected: Expected, order: int, real: float | None) -> tuple[float, str] | None:
    """The prediction divided by the real error; in brackets where a range is shown that holds it, else with a !."""
    predicted, ends = (
        (expected.two_way, expected.two_way_range) if order else (expected.one_way, expected.one_way_range)
    )
    if predicted is None or ends is None or real is None:
        return None
    ratio = predicted / real
    if ends[1] <= CLOSE * predicted:
        return ratio, f"{ratio:.2f}"
    return ratio, f"({ratio:.2f})" if ends[0] <= real <= ends[1] else f"!{ratio:.2f}"


def evenness(folder: Path, name: str, trials: int = 12) -> None:
    """Errors of `gaussian` at epsilon 1 on made-up tables with the columns of a real one."""
    tables = {path.name.split(".")[0] for path in folder.glob("*.csv.gz")}
    known = {table: entropies(*opened(folder, table)) for table in sorted(tables)}
    sizes, frame = opened(folder, name)
    budget = Budget.of(epsilon=1.0, delta=default_delta(len(frame)))
    rng = np.random.default_rng(0)
    as_even: dict[str, list[list[float] | None]] = {"a plan's": [None] * trials}
    as_even["its own"] = [[entropy for _, entropy in known.pop(name)]] * trials
    for table, columns in known.items():
        chosen = [[alike(columns, size, rng) for size in sizes.values()] for _ in range(4)]
        as_even[f"those of {table}"] = list(chosen)
    print("| columns as even as | made-up tables | error of a column: mean | lowest, highest | of a pair |")
    print("|---|---|---|---|---|")
    rest: list[list[float]] = []
    for label, cases in as_even.items():
        found = []
        for seed, case in enumerate(cases):
            source = MadeUpSource(Domain(sizes), made_up_as_even(np.random.default_rng(seed), sizes, len(frame), case))
            fit = fitted(source, "gaussian", budget)
            found.append([error(fit, source, order) or 0.0 for order in (1, 2)])
        rest += found if label.startswith("those") else []
        print_errors(label, found)
    print_errors(f"those of all {len(known)}", rest)


def print_errors(label: str, found: list[list[float]]) -> None:
    means, columns = np.mean(found, axis=0), [column for column, _ in found]
    print(
        f"| {label} | {len(found)} | {means[0]:.1f} | {min(columns):.1f}, {max(columns):.1f} | {means[1]:.1f} |",
        flush=True,
    )


def entropies(sizes: dict[str, int], frame: pd.DataFrame) -> list[tuple[int, float]]:
    """The size of each column, and its entropy as a part of the largest possible one."""
    found = []
    for column, size in sizes.items():
        shares = np.bincount(frame[column], minlength=size) / len(frame)
        entropy = -np.sum(shares * np.log(np.maximum(shares, 1e-300)))
        found.append((size, float(entropy / np.log(max(size, 2)))))
    return found


def alike(columns: list[tuple[int, float]], size: int, rng: np.random.Generator) -> float:
    """The entropy of a random column of about this size (2, to 6, to 16, more codes), or of any if there is none."""
    near = [entropy for other, entropy in columns if bisect_left(SIZES, other) == bisect_left(SIZES, size)]
    return float(rng.choice(near or [entropy for _, entropy in columns]))


def made_up_as_even(
    rng: np.random.Generator, sizes: dict[str, int], rows: int, entropies: list[float] | None
) -> dict[str, Any]:
    """Rows of a plan; with `entropies`, its columns have these instead of those that a plan draws."""
    if entropies is None:
        return made_up.made_up_codes(rng, sizes, rows)
    powers = made_up.EVENNESS * np.array(list(sizes.values())) ** -0.2
    wanted = 1 - (1 - np.clip(np.array(entropies) / made_up.EVENEST, 0, 1 - 1e-6)) ** (1 / powers)
    drawn = [wanted, made_up._quantiles(rng, sizes, made_up._STEPS[1])]
    with patch.object(made_up, "_quantiles", lambda *_: drawn.pop(0)):
        return made_up.made_up_codes(rng, sizes, rows)


def dependence(folder: Path, names: list[str], tables: int = 4) -> None:
    """How strongly columns depend on each other, in real tables and in made-up ones of the same shape."""
    print(
        "| table | best tree: distance | information | determined columns | cells that occur |\n|---|---|---|---|---|"
    )
    every = []
    for name in names:
        sizes, frame = opened(folder, name)
        sizes = {column: size for column, size in sizes.items() if size > 1}
        by_size = sorted(sizes, key=lambda column: sizes[column])
        most = min(len(sizes), COLUMNS)
        sizes = {column: sizes[column] for column in (by_size[int((i + 0.5) * len(sizes) / most)] for i in range(most))}
        rows = min(len(frame), ROWS)
        real = frame.sample(rows, random_state=0)
        made = [made_up.made_up_codes(np.random.default_rng(seed), sizes, rows) for seed in range(tables)]
        both = [
            measure_dependence(sizes, real, rows),
            np.mean([measure_dependence(sizes, codes, rows) for codes in made], axis=0),
        ]
        every.append(both)
        print(f"| {name} | " + " | ".join(f"{one:.2f}, {other:.2f}" for one, other in zip(*both, strict=True)) + " |")
    mean = np.mean(every, axis=0)
    print("| mean | " + " | ".join(f"{one:.2f}, {other:.2f}" for one, other in zip(*mean, strict=True)) + " |")


def measure_dependence(sizes: dict[str, int], table: Any, rows: int) -> list[float]:
    """Distance, information and occurring cells of the best tree of pairs, and how many columns others determine.

    The distance is the mean one from independence (L1), the information the mean part of the smaller entropy; columns
    count that another one determines to nine tenths. Codes of fewer than 60 in 40,000 rows are merged.
    """
    codes = {}
    for column, size in sizes.items():
        counts = np.bincount(table[column], minlength=size)
        frequent = counts >= 60 * rows / ROWS
        merged = np.where(frequent, np.cumsum(frequent), 0)[np.asarray(table[column])]
        codes[column] = np.unique(merged, return_inverse=True)[1]
    entropy = {column: entropy_of(np.bincount(found) / rows) for column, found in codes.items()}
    found = {}
    for one, other in combinations([column for column in codes if entropy[column] > 0], 2):
        width = codes[other].max() + 1
        joint = np.bincount(codes[one] * width + codes[other], minlength=(codes[one].max() + 1) * width) / rows
        joint = joint.reshape(-1, width)
        alone = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        information = entropy[one] + entropy[other] - entropy_of(joint.reshape(-1))
        occur = (joint > 0).mean() / (1 - np.exp(-rows * alone)).mean()
        found[one, other] = (np.abs(joint - alone).sum(), information, occur)
    components = Components(Domain(sizes), [])
    tree = [pair for pair in sorted(found, key=lambda pair: -found[pair][0]) if components.join(pair)]
    shares = [found[pair][1] / min(entropy[column] for column in pair) for pair in tree]
    large = [column for column in codes if entropy[column] > 0.05]
    determined = [max(found[p][1] for p in found if column in p) > 0.9 * entropy[column] for column in large]
    columns = [np.mean([found[pair][0] for pair in tree]), np.mean(shares), np.mean(determined)]
    return [*map(float, columns), float(np.mean([found[pair][2] for pair in tree]))]


def entropy_of(shares: Any) -> float:
    return -float(np.sum(shares * np.log(np.maximum(shares, 1e-300))))


def trials(folder: Path, names: list[str], mechanisms: list[str], number: int = 12) -> None:
    """Errors at epsilon 1 on more made-up tables than a plan uses."""
    print("| table | mechanism | made-up tables | columns: mean | lowest, highest | pairs: mean | lowest, highest |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        sizes, frame = opened(folder, name)
        people = round_people(len(frame))
        table = PlannedTable.of(Schema.from_domain(sizes), people)
        budget = Budget.of(epsilon=1.0, delta=default_delta(people))
        for mechanism in mechanisms:
            with patch.object(predict, "TABLES", number):
                done = [predict._run_trial(mechanism, table, budget, 1.0, seed) for seed in range(number)]
            cells = [
                f"{predict._geometric_mean(e):.1f} | {min(e):.1f}, {max(e):.1f}" for e in predict._errors(done) if e
            ]
            print(f"| {name} | {mechanism} | {number} | {' | '.join(cells)} |", flush=True)


def draft_table(folder: Path, name: str) -> tuple[Schema, pd.DataFrame, int]:
    """A table of numeric.py, its drafted schema, and how many people it is about."""
    import numeric

    frame = numeric.load(folder, name)
    schema = numeric.drafted(frame, wide=False, name=name)
    unit = schema.privacy_unit.column
    return schema, frame, len(frame) if unit is None else frame[unit].nunique()


def release_of(folder: Path, name: str, mechanism: str) -> dict[str, Any]:
    """Make a release at epsilon 1, and compare it with the table."""
    import psutil

    import understudy as us
    from understudy.metric import METRICS, Rows

    schema, frame, people = draft_table(folder, name)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    plan(Schema.from_domain({"a": 3, "b": 3, "c": 3}), people=1000, mechanisms=[mechanism])  # loads compiled code
    before, started = psutil.Process().memory_info().rss, time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        made = us.synthesize(
            table, schema, mechanism=mechanism, epsilon=1.0, delta=default_delta(people), ledger=Path(scratch) / "l.db"
        )
    peak, seconds = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time() - started
    source = MemorySource(table, schema)
    pairs = {part for m in made.measurements for part in combinations(source.domain.canonical(m.clique), 2)}
    rows = [Rows.of(frame, schema) for frame in (table, made.sample(seed=0))]
    metric = METRICS["numbers"]
    score = metric.measure(*rows, schema, metric.settings(), np.random.default_rng(0))
    columns = {part.name: part.value for part in score.parts if part.kind == "column"}
    errors = [error(made, source, order) for order in (1, 2)]
    return {"errors": errors, "pairs": len(pairs), "numbers": score.value, "columns": columns} | {
        "memory": peak - before,
        "seconds": seconds,
    }


def drafted(folder: Path, names: list[str], mechanisms: list[str], runs: int, log: Path | None) -> None:
    head = (
        "table | mechanism | runs | one column: plan | real | ratio | pair: plan | real | ratio | pairs: plan | real | "
    )
    head += "numbers: plan | real | ratio | a column's numbers: median, worst ratio | MiB: plan | real"
    print(f"| {head} |\n|{head.count('|') * '---|'}---|")
    for name in names:
        schema, _, people = draft_table(folder, name)
        expected = plan(schema, people=people, epsilons=[1.0], mechanisms=mechanisms)
        for line in expected.lines:
            case = [name, line.mechanism, 1.0]
            lines = log.read_text().splitlines() if log is not None and log.exists() else []
            done = [found for found in map(json.loads, lines) if found["case"] == case]
            while len(done) < runs:
                with get_context("spawn").Pool(1) as pool:
                    done.append({"case": case} | pool.apply(release_of, (folder, name, line.mechanism)))
                if log is not None:
                    with log.open("a") as file:
                        file.write(json.dumps(done[-1]) + "\n")
            print(f"| {name} | {line.mechanism} | {len(done)} | {' | '.join(drafted_cells(line, done))} |", flush=True)


def drafted_cells(line: Line, done: list[dict[str, Any]]) -> list[str]:
    """What was planned beside the mean of the releases, and the ratio."""
    found = line.expected
    cells = []
    for place, predicted in enumerate((found.one_way, found.two_way)):
        real = [run["errors"][place] for run in done if run["errors"][place] is not None]
        cells += compared(predicted, real)
    cells += [str(found.pairs), f"{np.mean([run['pairs'] for run in done]):.0f}"]
    cells += compared(found.numbers, [run["numbers"] for run in done], digits=3)
    ratios = []
    for column, errors in found.statistics.items():
        real = float(np.mean([run["columns"][column] for run in done]))
        ratios.append(float(np.mean([min(e, 1.0) for e in errors.values()])) / max(real, 1e-6))
    if ratios:
        cells.append(f"{np.median(ratios):.2f}, {max(ratios, key=lambda ratio: abs(np.log(ratio))):.2f}")
    memory = "-" if line.memory_bytes is None else f"{line.memory_bytes / 2**20:.0f}"
    return [*cells, memory, f"{np.mean([run['memory'] for run in done]) / 2**20:.0f}"]


def compared(predicted: float | None, real: list[float], digits: int = 1) -> list[str]:
    """A prediction, the mean of real runs, and the ratio."""
    cells = [f"{number:.{digits}f}" if number is not None else "-" for number in (predicted, np.mean(real or [np.nan]))]
    ratio = f"{predicted / np.mean(real):.2f}" if predicted is not None and real else "-"
    return [*cells, ratio]


def accuracy(folder: Path, names: list[str], mechanisms: list[str], runs: int, text: str = "200:10%") -> None:
    """Of real groups of 150 to 300 people, the part that is right within 20 people at the epsilon that a plan names."""
    wish = Accuracy.parse(text)
    print("| table | mechanism | groups of | epsilon: plan | groups | right within 20 (wanted: 95 %) | 95 % within |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        sizes, frame = opened(folder, name)
        schema = Schema.from_domain(sizes)
        source, delta = MemorySource(frame, schema), default_delta(len(frame))
        needed = plan(schema, people=len(frame), mechanisms=mechanisms, accuracy=wish).needed
        for mechanism, both in needed.items():
            for order, epsilon in zip((1, 2), both, strict=True):
                if epsilon is None:
                    continue
                off: list[Any] = []
                for _ in range(runs):
                    fit = fitted(source, mechanism, Budget.of(epsilon=epsilon, delta=delta))
                    off += group_errors(fit, source, order, wish.people)
                found = np.concatenate(off)
                words = "one column" if order == 1 else "a measured pair"
                right, within = 100 * np.mean(found <= wish.within * wish.people), np.quantile(found, 0.95)
                about = f"{name} | {mechanism} | {words} | {epsilon:g} | {len(found) // runs}"
                print(f"| {about} | {right:.0f} % | {within:.0f} |", flush=True)


def group_errors(fit: Fit, source: MemorySource, order: int, people: int) -> list[Any]:
    """Of covered columns (pairs), the errors of all cells with about so many rows."""
    parts = {part for m in fit.measurements for part in combinations(source.domain.canonical(m.clique), order)}
    found = []
    for clique, counts in source.counts(sorted(parts)):
        shape = source.domain.shape(clique)
        true = merge_codes(counts, shape, [None] * order)
        table = fit.model.project(clique)
        for axis, codes in enumerate(fit.recoding.maps.get(column) for column in clique):
            if codes is not None:
                table = np.moveaxis(np.moveaxis(table, axis, -1)[..., codes] / np.bincount(codes)[codes], -1, axis)
        about = (true >= 0.75 * people) & (true < 1.5 * people)
        found.append(np.abs(table.reshape(-1) - true)[about])
    return found


def mean_of(real: list[float | None]) -> float | None:
    """The mean of the errors that there are."""
    known = [error for error in real if error is not None]
    return float(np.mean(known)) if known else None


def advice(folder: Path, names: list[str], mechanisms: list[str], runs: int, log: Path | None) -> None:
    print(
        f"| table | epsilon | {' | '.join(mechanisms)} | recommended | really best |\n|{(4 + len(mechanisms)) * '---|'}"
    )
    for name in names:
        sizes, frame = opened(folder, name)
        schema = Schema.from_domain(sizes)
        source, delta = MemorySource(frame, schema), default_delta(len(frame))
        expected = plan(schema, people=len(frame), epsilons=EPSILONS, mechanisms=mechanisms)
        lines = {(line.mechanism, line.epsilon): line.expected for line in expected.lines}
        for epsilon in EPSILONS:
            cells, real = [], {}
            for mechanism in mechanisms:
                budget = Budget.of(epsilon=epsilon, delta=delta)
                done = runs_of(source, (name, mechanism, epsilon), budget, runs, log)
                real[mechanism] = float(np.mean([run["misplaced"] for run in done]))
                cells.append(f"{lines[mechanism, epsilon].misplaced:.3f} / {real[mechanism]:.3f}")
            best = min(real, key=lambda mechanism: real[mechanism])
            print(
                f"| {name} | {epsilon:g} | {' | '.join(cells)} | {expected.recommended[epsilon][0]} | {best} |",
                flush=True,
            )


def speed() -> None:
    """The command itself, started anew, for 100 columns."""
    sizes = np.random.default_rng(0).integers(2, 60, 100)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wide.yaml"
        Schema.from_domain({f"c{i}": int(size) for i, size in enumerate(sizes)}).save(path)
        command = [sys.executable, "-m", "understudy", "plan", str(path), "--people", "~20000"]
        walls, processor = [], resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            walls.append(time.perf_counter() - started)
        processor = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - processor) / 5
    print(
        f"plan, 100 columns, 3 budgets: best of five {min(walls):.2f} s of wall time (limit 5), {processor:.2f} s CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=["errors", "advice", "drafted", "accuracy", "evenness", "dependence", "trials", "speed"]
    )
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--tables", default="adult,fire")
    parser.add_argument("--mechanisms", help="by default all of them; of advice, what a plan compares")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    chosen = given.mechanisms.split(",") if given.mechanisms else None
    if given.what == "speed":
        speed()
    elif given.what == "advice":
        advice(given.path, given.tables.split(","), chosen or list(COMPARED), given.runs, given.log)
    elif given.what == "drafted":
        drafted(given.path, given.tables.split(","), chosen or list(COMPARED), given.runs, given.log)
    elif given.what == "accuracy":
        accuracy(given.path, given.tables.split(","), chosen or list(COMPARED), given.runs)
    elif given.what == "evenness":
        for name in given.tables.split(","):
            evenness(given.path, name)
    elif given.what == "dependence":
        dependence(given.path, given.tables.split(","))
    elif given.what == "trials":
        trials(given.path, given.tables.split(","), chosen or ["nist-mst", "mst"], given.runs)
    else:
        errors(given.path, given.tables.split(","), chosen or sorted(MECHANISMS), given.runs, given.log)


if __name__ == "__main__":
    main()
