"""Audit every registered mechanism with many pairs of runs, and mistakes made on purpose; write the table of audit.md.

    python benchmarks/audit.py                         # every mechanism, 20,000 pairs each (hours)
    python benchmarks/audit.py independent mst         # these
    python benchmarks/audit.py --halved independent    # with half the noise: must be called broken

Each result replaces the line of its name in `audit.csv`, so that a run can be stopped and continued; the table between
the marks in `audit.md` is written again after each.
"""

from __future__ import annotations

import argparse
import csv
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import understudy as us
from understudy.gate import PrivateTable
from understudy.mechanism.registry import mechanism_classes
from understudy.testing.audit import Audit

HERE = Path(__file__).parent
FIELDS = ("name", "tables", "pairs", "theory", "mu", "error", "low", "model", "rows", "learned", "epsilon_gaussian",
          "epsilon", "claim_auc", "auc_low", "verdict", "cpu")  # fmt: skip
BEGIN, END = "<!-- table -->\n", "<!-- end -->\n"


def line(name: str, found: Audit, cpu: float) -> dict[str, str]:
    exact, model, rows, learned = found.findings
    numbers = {
        "theory": found.theory_mu, "mu": exact.mu, "error": exact.mu_error, "low": exact.mu_low, "model": model.mu,
        "rows": rows.mu, "learned": learned.mu, "epsilon_gaussian": exact.epsilon_low_gaussian,
        "epsilon": exact.epsilon_low, "claim_auc": found.claim.auc, "auc_low": exact.auc_low(0.05),
    }  # fmt: skip
    told = {"name": name, "tables": found.setup.pair, "pairs": str(found.pairs), "verdict": found.verdict}
    return told | {key: f"{value:.3f}" for key, value in numbers.items()} | {"cpu": f"{cpu:.0f}"}


def read(path: Path) -> dict[str, dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def write(lines: dict[str, dict[str, str]], path: Path, page: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(lines[name] for name in sorted(lines))
    table = ["|" + "|".join(FIELDS).replace("_", " ") + "|", "|" + "-|" * len(FIELDS)]
    table += ["|" + "|".join(lines[name][key] for key in FIELDS) + "|" for name in sorted(lines)]
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(before + BEGIN + "\n".join(table) + "\n" + END + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mechanisms", nargs="*")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--halved", action="store_true", help="halve the noise; in this process alone")
    given = parser.parse_args()
    halved = PrivateTable._draw
    for name in given.mechanisms or sorted(mechanism_classes()):
        start = sum(os.times()[:4])
        if given.halved:
            with patch.object(PrivateTable, "_draw", lambda t, c, n: halved(t, replace(c, scale=c.scale / 2), n)):
                found = us.audit(name, pairs=given.pairs)
        else:
            found = us.audit(name, pairs=given.pairs, jobs=given.jobs)
        cpu = sum(os.times()[:4]) - start
        print(found.text(), f"\n  {cpu:.0f} processor seconds", flush=True)
        label = f"{name}, noise halved" if given.halved else name
        write(read(HERE / "audit.csv") | {label: line(label, found, cpu)}, HERE / "audit.csv", HERE / "audit.md")


if __name__ == "__main__":
    main()
