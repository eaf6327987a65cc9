"""Discovery: the error of a discovered schema against a declared one, on UCI Adult. Prints Markdown tables with ratios.

python benchmarks/discovery.py error TABLE SCHEMA [--runs 5] [--epsilon 1] [--share 0.1] [--types]
python benchmarks/discovery.py quantiles TABLE SCHEMA [--runs 20]

TABLE is the raw table (CSV), SCHEMA its declared schema. `error` makes releases with the declared schema and with one
in which everything is discovered, codes both by the declared schema, and compares their workload errors. `quantiles`
compares two ways to discover bins at the same cost. One core. The numbers are in discovery.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import argparse
import math
import tempfile
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import understudy as us
from understudy.discovery.search import Search
from understudy.measurement import Measurement
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.file import parse_field
from understudy.source import read_table
from understudy.tabulate import SparseCounts, marginals

DELTA = 1e-9


def discovered(declared: Schema, *, types: bool) -> Schema:
    """The same table with everything discovered; with `types` given, or discovered too."""
    fields = []
    for column in declared.columns:
        number = isinstance(column, AxisColumn)
        ours = {"bounds": "discover", "bins": "discover"} if number else {"values": "discover"}
        typed = {"type": column.kind if number else "string", "understudy": ours}
        fields.append({"name": column.name} | ({"type": "discover"} if types else typed))
    return Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})


class Truth:
    """The exact marginals of the real table in the declared coding."""

    def __init__(self, frame: Any, schema: Schema) -> None:
        self.schema = schema
        self.codes = schema.encode(frame).codes
        self.rows = len(next(iter(self.codes.values())))

    def error(self, frame: Any, k: int) -> float:
        """The mean over all k-way marginals of the L1 distance, as a share of the rows (AIM, Definition 2)."""
        cliques = list(combinations(self.schema.domain, k))
        made = marginals(self.schema.encode(frame).codes, self.schema.domain, cliques)
        real = marginals(self.codes, self.schema.domain, cliques)
        total = sum(_distance(a, b) for (_, a), (_, b) in zip(made, real, strict=True))
        return total / len(cliques) / self.rows


def _distance(first: Any, second: Any) -> float:
    if isinstance(first, SparseCounts) or isinstance(second, SparseCounts):
        cells, place = np.unique(np.concatenate((first.cells, second.cells)), return_inverse=True)
        return float(np.abs(np.bincount(place, np.concatenate((first.counts, -second.counts)), len(cells))).sum())
    return float(np.abs(first.astype(np.int64) - second).sum())


def compare(args: argparse.Namespace) -> None:
    """Workload errors of both schemas."""
    declared = replace(Schema.load(args.schema), rules=())
    frame = read_table(args.table, declared)
    truth = Truth(frame, declared)
    schemas = {"declared": declared, "discovered": discovered(declared, types=False)}
    if args.types:
        schemas["types discovered too"] = discovered(declared, types=True)
    print("| mechanism | schema | 2-way error | ratio | 3-way error | ratio | codes |")
    print("|---|---|---|---|---|---|---|")
    for mechanism in args.mechanisms.split(","):
        first: tuple[float, float] | None = None
        for name, schema in schemas.items():
            errors, codes = [], []
            for _ in range(args.runs):
                release = us.synthesize(
                    frame, schema, epsilon=args.epsilon, delta=DELTA, mechanism=mechanism, discovery_share=args.share
                )
                rows = release.sample(truth.rows, seed=1, as_="arrow")
                errors.append((truth.error(rows, 2), truth.error(rows, 3)))
                codes.append(sum(release.schema.domain.values()))
            two, three = np.mean(errors, axis=0).tolist()
            first = first or (two, three)
            print(
                f"| {mechanism} | {name} | {two:.4f} | {two / first[0]:.3f} | {three:.4f} | {three / first[1]:.3f} "
                f"| {np.mean(codes):.0f} |",
                flush=True,
            )


def quantiles(args: argparse.Namespace) -> None:
    """The part of the rows that each method's bins misplace, coded and decoded, in the declared coding."""
    declared = Schema.load(args.schema)
    table = read_table(args.table, declared)
    rho = 7.5e-5
    print("| column | tree | recursive exponential mechanism, 32 bins | 64 bins | 128 bins |")
    print("|---|---|---|---|---|")
    for name in ("age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week"):
        column = declared.column(name)
        assert isinstance(column, AxisColumn)
        units, valid = column.units(table[name].combine_chunks(), declared.dialect)
        values = np.sort(units[valid])
        lost: dict[int, list[float]] = {}
        for seed in range(args.runs):
            rng = np.random.default_rng(seed)
            lost.setdefault(0, []).append(_misplaced(column, values, _tree(name, values, rho, rng), rng))
            for bins in (32, 64, 128):
                edges = _recursive(values, bins, 0, 1 << 21, rho, rng)
                lost.setdefault(bins, []).append(_misplaced(column, values, edges, rng))
        print(f"| {name} | " + " | ".join(f"{np.mean(losses):.3f}" for losses in lost.values()) + " |", flush=True)


def _misplaced(column: AxisColumn, values: NDArray[Any], edges: NDArray[Any], rng: np.random.Generator) -> float:
    """L1 distance of the declared one-way tables, before and after values are drawn evenly within their bins."""
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    low, high = edges[place], edges[place + 1]
    drawn = low + (rng.random(len(values)) * (high - low)).astype(np.int64)
    before, after = (np.bincount(column.axis.encode(v), minlength=column.axis.size) for v in (values, drawn))
    return float(np.abs(before - after).sum() / len(values))


def _tree(name: str, values: NDArray[Any], rho: float, rng: np.random.Generator) -> NDArray[Any]:
    """The product's method, with simulated noise."""
    ours = {"bounds": "discover", "bins": "discover"}
    column: Any = parse_field({"name": name, "type": "integer", "understudy": ours}, 0)
    search = Search(column)
    sigma = math.sqrt(search.rounds / (2 * rho))
    for _ in range(search.rounds):
        probe = search.probe()
        counts = np.diff(np.searchsorted(values, np.append(probe.axis.lower, probe.axis.upper[-1])))
        noisy = np.zeros(probe.size)
        noisy[: probe.axis.size] = counts + np.rint(rng.normal(0, sigma, len(counts)))
        if not search.learn(probe, Measurement((name,), noisy, sigma)):
            break
    facts = search.result(100)
    if "bins" not in facts:
        return np.arange(facts["minimum"], facts["maximum"] + 2)
    return np.append(np.asarray(facts["bins"]["edges"][:-1], dtype=np.int64), facts["maximum"] + 1)


def _recursive(
    values: NDArray[Any], bins: int, low: int, high: int, rho: float, rng: np.random.Generator
) -> NDArray[Any]:
    """Approximate quantiles (Kaplan, Schnapp and Stemmer 2022): medians of medians by the exponential mechanism."""
    depth = max(1, math.ceil(math.log2(bins)))
    epsilon = math.sqrt(8 * rho / depth)
    edges = {low, high}

    def split(part: NDArray[Any], first: int, last: int, left: int) -> None:
        if left == 0 or last - first < 2:
            return
        inner = np.clip(part, first, last)
        points = np.concatenate(([first], inner, [last]))
        widths = np.diff(points)
        ranks = np.arange(len(widths))
        score = -np.abs(ranks - len(part) / 2) * epsilon / 2 + np.log(np.maximum(widths, 1e-300))
        chosen = int(np.argmax(score + rng.gumbel(size=len(score))))
        cut = int(rng.integers(points[chosen], max(points[chosen + 1], points[chosen] + 1)))
        cut = min(max(cut, first + 1), last - 1)
        edges.add(cut)
        split(part[part < cut], first, cut, left - 1)
        split(part[part >= cut], cut, last, left - 1)

    split(values, low, high, depth)
    return np.asarray(sorted(edges))


def main() -> None:
    """Run one comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["error", "quantiles"])
    parser.add_argument("table", type=Path)
    parser.add_argument("schema", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--mechanisms", default="mst")
    parser.add_argument("--types", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNDERSTUDY_LEDGER"] = f"{folder}/ledger.db"
        (compare if args.what == "error" else quantiles)(args)


if __name__ == "__main__":
    main()
