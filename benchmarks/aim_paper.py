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
from html import escape
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


WIDE, HIGH, LEFT, TOP = 260, 220, 44, 28  # of a panel, and where its axes begin


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten within the range, with 2 and 5 times these where there are few."""
    tens = [10.0**k for k in range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)]
    steps = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
    return [step * ten for ten in tens for step in steps if low <= step * ten * 1.0001 and step * ten <= high * 1.0001]


def panel(name: str, x0: int, y0: int, mine: dict[tuple[str, float], float]) -> list[str]:
    """One table and workload: a line for each mechanism."""
    epsilons, errors = sorted({epsilon for _, epsilon in mine}), list(mine.values())
    spans = [(min(v), max(*v, 1.01 * min(v))) for v in (epsilons, errors)]

    def x(epsilon: float) -> float:
        return x0 + LEFT + np.log(epsilon / spans[0][0]) / np.log(spans[0][1] / spans[0][0]) * (WIDE - LEFT - 20)

    def y(error: float) -> float:
        return y0 + HIGH - 36 - np.log(error / spans[1][0]) / np.log(spans[1][1] / spans[1][0]) * (HIGH - 36 - TOP)

    parts = [f'<text x="{x0 + WIDE / 2}" y="{y0 + 16}" text-anchor="middle" font-weight="bold">{escape(name)}</text>']
    for tick in ticks(*spans[0]):
        parts.append(f'<text x="{x(tick):.1f}" y="{y0 + HIGH - 20}" text-anchor="middle">{tick:g}</text>')
    for tick in ticks(*spans[1]):
        parts.append(f'<text x="{x0 + LEFT - 6}" y="{y(tick) + 3:.1f}" text-anchor="end">{tick:g}</text>')
        ends = f'x1="{x0 + LEFT}" x2="{x0 + WIDE - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"'
        parts.append(f'<line {ends} stroke="#dddddd"/>')
    for mechanism in sorted({mechanism for mechanism, _ in mine}):
        line = sorted((epsilon, error) for (one, epsilon), error in mine.items() if one == mechanism)
        points = [(x(epsilon), y(error)) for epsilon, error in line]
        colour = COLOURS.get(mechanism, "#000000")
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" fill="{colour}"/>' for px, py in points]
    return parts


def plot(found: dict[tuple[str, ...], list[float]]) -> str:
    """An SVG of panels, a row for each table, without a plotting library."""
    order = {name: i for i, name in enumerate(("all-3way", "target", "skewed"))}
    tables = sorted({key[0] for key in found})
    parts = []
    for name, workload in sorted({key[:2] for key in found}):
        x0, y0 = order.get(workload.partition(":")[0], 0) * WIDE, 24 + tables.index(name) * HIGH
        mine = {(k[2], float(k[3])): float(np.mean(errors)) for k, errors in found.items() if k[:2] == (name, workload)}
        parts += panel(f"{name}, {workload}", x0, y0, mine)
    words = "".join(f'<tspan fill="{COLOURS[m]}" dx="14">{m}</tspan>' for m in sorted({key[2] for key in found}))
    legend = f'<text x="10" y="18" font-size="12">workload error by epsilon, mean of the runs:{words}</text>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * WIDE}" height="{24 + len(tables) * HIGH}"'
    body = ['<rect width="100%" height="100%" fill="white"/>', legend, *parts, "</svg>\n"]
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
