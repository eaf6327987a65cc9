"""Audit every registered mechanism with many pairs of runs, and one with half its noise; write the table of audit.md.

    python benchmarks/audit.py                               # every mechanism, 20,000 pairs each (hours)
    python benchmarks/audit.py gem rap --pairs 5000          # these, with fewer
    python benchmarks/audit.py aim --seconds 200             # at most so long; the next call continues
    python benchmarks/audit.py --halved independent --pairs 4000   # with half the noise: must be called broken
    python benchmarks/audit.py --table                       # runs nothing; judges what is kept and writes the table

The numbers of all pairs are kept in `.audit/`, in a folder for this version of the package, and the next call continues
them: `--seconds` divides hours into parts. Decide on the number of pairs before the first call. A line of an older
version stays in the table, with its version, until a line of this version has as many pairs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

import understudy as us
from understudy.accounting import Budget
from understudy.gate import PrivateTable
from understudy.mechanism.registry import mechanism_classes
from understudy.testing.audit import Audit, judge
from understudy.testing.pairs import Bench, Setup, Workers, choose_pair, worst_pairs
from understudy.testing.replay import Inspection, inspect_runs

HERE = Path(__file__).parent
CODE = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(us.__file__).parent.rglob("*.py"))))
KEPT = HERE / ".audit" / CODE.hexdigest()[:12]
FIELDS = ("name", "tables", "pairs", "theory", "mu", "error", "low", "model", "rows", "total", "learned",
          "epsilon_gaussian", "epsilon", "claim_auc", "auc_low", "differed", "verdict", "cpu", "version")  # fmt: skip
BEGIN, END = "<!-- table -->\n", "<!-- end -->\n"
HALVED, AGAIN = ", noise halved", ", second series"
BATCH = 50


def read_version() -> str:
    """The commit of this version of the package, kept beside its numbers; a plus sign for changes after the commit."""
    kept = KEPT / "version"
    if not kept.exists():
        git = ["git", "-C", str(HERE.parent)]
        log = subprocess.run(
            [*git, "log", "-1", "--format=%h", "--", "src"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"], check=False).returncode
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(log.stdout.strip() + "+" * changed)
    return kept.read_text()


class Progress:
    """The pairs of one line of the table that were run so far, kept in a file."""

    def __init__(self, label: str, tables: str = "") -> None:
        self.label, self.path = label, KEPT / f"{label}.npz"
        self.seen, self.cpu = np.empty((0, 2, 0)), 0.0
        if self.path.exists():
            with np.load(self.path) as kept:
                self.seen, self.cpu, self.divergence = kept["seen"], float(kept["cpu"]), float(kept["divergence"])
                setup = Setup(**json.loads(str(kept["setup"])))
                self.inspection = Inspection(**json.loads(str(kept["inspection"])))
            pair = next(one for one in worst_pairs(Budget.of(**setup.budget)) if one.name == setup.pair)
            self.bench = Bench(setup, pair)
        else:
            self.bench, self.divergence = choose_pair(Setup(label.partition(",")[0], pair=tables))
            self.inspection = inspect_runs(self.bench)

    def run(self, pairs: int, seconds: float, jobs: int) -> None:
        """Run pairs until there are so many, or for so long."""
        start, cpu, found = time.monotonic(), sum(os.times()[:4]), [self.seen] if len(self.seen) else []
        with Workers(self.bench, jobs) as workers:
            for batch in workers.batches(pairs - len(self.seen), BATCH):
                found.append(batch)
                if time.monotonic() - start > seconds:
                    break
        self.seen, self.cpu = np.concatenate(found), self.cpu + sum(os.times()[:4]) - cpu
        KEPT.mkdir(parents=True, exist_ok=True)
        told = {"setup": asdict(self.bench.setup), "inspection": asdict(self.inspection)}
        written = {name: json.dumps(value) for name, value in told.items()}
        np.savez(self.path, seen=self.seen, cpu=self.cpu, divergence=self.divergence, **written)

    def judge(self) -> Audit:
        """The result so far."""
        return judge(self.bench, self.seen, self.divergence, inspection=self.inspection)


@contextmanager
def half_the_noise() -> Iterator[None]:
    """In this process alone."""
    draw = PrivateTable._draw
    with patch.object(PrivateTable, "_draw", lambda t, c, n: draw(t, replace(c, scale=c.scale / 2), n)):
        yield


def line(label: str, made: Progress) -> dict[str, str]:
    found = made.judge()
    exact, model, rows, total, learned = found.findings
    numbers = {
        "theory": found.theory_mu, "mu": exact.mu, "error": exact.mu_error, "low": exact.mu_low, "model": model.mu,
        "rows": rows.mu, "total": total.mu, "learned": learned.mu, "epsilon_gaussian": exact.epsilon_low_gaussian,
        "epsilon": exact.epsilon_low, "claim_auc": found.claim.auc, "auc_low": exact.auc_low(0.05),
    }  # fmt: skip
    told = {"name": label, "tables": found.setup.pair, "pairs": str(found.pairs), "verdict": found.verdict}
    if found.inspection is not None:
        told["differed"] = f"{found.inspection.differed} of {found.inspection.runs}"
    told |= {"cpu": f"{made.cpu:.0f}", "version": read_version()}
    return told | {key: f"{value:.3f}" for key, value in numbers.items()}


def with_longer(lines: list[dict[str, str]], path: Path) -> list[dict[str, str]]:
    """These lines, and those of the file that have more pairs, so of another version; by name, the longest first."""
    pairs = {one["name"]: int(one["pairs"]) for one in lines}
    with path.open(newline="") as file:
        longer = [one for one in csv.DictReader(file) if int(one["pairs"]) > pairs.get(one["name"], 0)]
    return sorted([*lines, *longer], key=lambda one: (one["name"], -int(one["pairs"])))


def write(lines: list[dict[str, str]], path: Path, page: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(lines)
    table = ["|" + "|".join(FIELDS).replace("_", " ") + "|", "|" + "-|" * len(FIELDS)]
    table += ["|" + "|".join(one[key] for key in FIELDS) + "|" for one in lines]
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(before + BEGIN + "\n".join(table) + "\n" + END + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mechanisms", nargs="*")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument(
        "--tables", default="", help="the pair of tables; by default the one on which answers differ most"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--halved", action="store_true", help="halve the noise")
    parser.add_argument("--again", action="store_true", help="a second series, on a line of its own")
    parser.add_argument("--table", action="store_true", help="write the table of what is kept, and run nothing")
    given = parser.parse_args()
    start = time.monotonic()
    for name in [] if given.table else given.mechanisms or sorted(mechanism_classes()):
        left = given.seconds - (time.monotonic() - start)
        if left <= 0:
            break
        with half_the_noise() if given.halved else nullcontext():
            progress = Progress(name + HALVED * given.halved + AGAIN * given.again, given.tables)
            if len(progress.seen) < given.pairs:
                progress.run(given.pairs, left, 1 if given.halved else given.jobs)
            print(progress.judge().text(), f"\n  {progress.cpu:.0f} processor seconds", flush=True)
    if kept := sorted(path.stem for path in KEPT.glob("*.npz")):
        lines = with_longer([line(label, Progress(label)) for label in kept], HERE / "audit.csv")
        write(lines, HERE / "audit.csv", HERE / "audit.md")


if __name__ == "__main__":
    main()
