"""The grid of the AIM paper's section 6: tables x workloads x epsilons x mechanisms, as a tidy file and a plot.

    python benchmarks/aim_paper.py                                   # a small grid: minutes
    python benchmarks/aim_paper.py --tables titanic adult salary msnbc fire nltcs --workloads all-3way target skewed \
        --epsilons 0.01 0.0316 0.1 0.316 1 3.16 10 31.6 100 --runs 5  # the paper's: days

Every run is appended to the CSV file at once; runs that are in it already are not repeated (`--runs 0`: tell what is
there). Printed is the mean error of everything in the file, AIM's beside the reference (of all-3way) and beside our own
MST. The plot has one panel for each table and workload: error against epsilon, both axes logarithmic.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from aim import REFERENCE, run, table

TARGETS = {"adult": "income>50K", "titanic": "Survived"}
COLOURS = {"aim": "#c1272d", "mst": "#1b6ca8", "mwem": "#d1793a", "independent": "#888888", "gaussian": "#4d9221"}


def workload_text(data: Path, name: str, kind: str) -> str:
    """`target` becomes the paper's column, or one fixed by the table's name; `skewed` has a fixed seed."""
    if kind != "target":
        return "skewed:0" if kind == "skewed" else kind
    columns = list(table(data, name)[1].domain)
    wanted = TARGETS.get(name, "")
    return f"target:{wanted if wanted in columns else columns[len(name) % len(columns)]}"


def done(path: Path) -> dict[tuple[str, ...], list[float]]:
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found[row["table"], row["workload"], row["mechanism"], row["epsilon"]].append(float(row["error"]))
    return found


def append(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def plot(found: dict[tuple[str, ...], list[float]]) -> str:
    """An SVG of panels, without a plotting library."""
    panels = sorted({key[:2] for key in found})
    width, height, across = 260, 220, min(3, len(panels))
    parts = []
    for number, panel in enumerate(panels):
        x0, y0 = number % across * width, number // across * height
        mine = {key[2:]: float(np.mean(errors)) for key, errors in found.items() if key[:2] == panel}
        xs = np.log10([float(epsilon) for _, epsilon in mine])
        ys = np.log10(list(mine.values()))
        span = [(v.min(), max(np.ptp(v), 1e-9)) for v in (xs, ys)]
        parts.append(f'<text x="{x0 + 130}" y="{y0 + 16}" text-anchor="middle">{panel[0]}, {panel[1]}</text>')
        for side, value in ((0, ys.max()), (1, ys.min())):
            parts.append(f'<text x="{x0 + 4}" y="{y0 + 34 + side * 150}">{10**value:.2g}</text>')
        for mechanism in sorted({name for name, _ in mine}):
            line = sorted((float(e), error) for (name, e), error in mine.items() if name == mechanism)
            points = [
                (
                    x0 + 40 + (np.log10(e) - span[0][0]) / span[0][1] * 190,
                    y0 + 180 - (np.log10(error) - span[1][0]) / span[1][1] * 150,
                )
                for e, error in line
            ]
            colour = COLOURS.get(mechanism, "#000000")
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            parts.append(f'<text x="{points[-1][0] - 4:.1f}" y="{points[-1][1] - 4:.1f}" text-anchor="end" '
                         f'fill="{colour}">{mechanism}</text>')  # fmt: skip
        epsilons = sorted({float(e) for _, e in mine})
        parts.append(f'<text x="{x0 + 40}" y="{y0 + 200}">epsilon {epsilons[0]:g} to {epsilons[-1]:g}</text>')
    rows = -(-len(panels) // across)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{across * width}" height="{rows * height}"'
    body = ['<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"]
    return "\n".join([f'{head} font-family="sans-serif" font-size="10">', *body])


def mean(errors: list[float]) -> str:
    """The mean with its standard error and the number of runs."""
    if not errors:
        return ""
    spread = f" ± {np.std(errors, ddof=1) / len(errors) ** 0.5:.2g}" if len(errors) > 1 else ""
    return f"{np.mean(errors):.4g}{spread} ({len(errors)})"


def told(found: dict[tuple[str, ...], list[float]]) -> str:
    """A line for each table, workload and epsilon."""
    lines = [
        "| table | workload | epsilon | aim | mst | independent | mwem | aim / reference aim | aim / mst |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, workload, epsilon in sorted({(k[0], k[1], k[3]) for k in found}, key=lambda k: (*k[:2], float(k[2]))):
        errors = {m: found.get((name, workload, m, epsilon), []) for m in ("aim", "mst", "independent", "mwem")}
        known = REFERENCE.get((name, float(epsilon))) if workload == "all-3way" else None
        ratios = [known[0] if known else None, float(np.mean(errors["mst"])) if errors["mst"] else None]
        own = [f"{np.mean(errors['aim']) / other:.3f}" if other and errors["aim"] else "" for other in ratios]
        lines.append(f"| {' | '.join([name, workload, epsilon, *map(mean, errors.values()), *own])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["titanic"])
    parser.add_argument("--workloads", nargs="+", default=["all-3way", "target", "skewed"])
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--mechanisms", nargs="+", default=["aim", "mst", "mwem", "independent"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/aim_paper.csv"))
    parser.add_argument("--plot", type=Path, default=Path("benchmarks/aim_paper.svg"))
    given = parser.parse_args()
    warm, schema = table(given.data, "titanic")
    for mechanism in given.mechanisms if given.runs else []:
        us.synthesize(warm[:50], schema, epsilon=1.0, delta=1e-9, mechanism=mechanism).sample()
    for name in given.tables:
        for kind in given.workloads:
            workload = workload_text(given.data, name, kind)
            for mechanism in given.mechanisms:
                for epsilon in given.epsilons:
                    have = len(done(given.output)[name, workload, mechanism, epsilon])
                    for _ in range(have, given.runs):
                        row = run(given.data, name, float(epsilon), mechanism, workload, {})
                        append(given.output, row | {"epsilon": epsilon})
                        print(f"{name} {workload} {mechanism} epsilon {epsilon}: {row['error']:.4f}", flush=True)
    given.plot.write_text(plot(done(given.output)))
    print(told(done(given.output)))


if __name__ == "__main__":
    main()
