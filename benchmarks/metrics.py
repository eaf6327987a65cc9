"""How long the metrics take, and how each of them falls or rises with epsilon.

python benchmarks/metrics.py [aemc] [ordinal] [hard] [adult] [propensity] [report] [epsilon]

Without a name, all but `hard` and `epsilon` are run. `epsilon` writes docs/guide/metrics-epsilon.svg and .json. Tables
are read from ../shared/data; what is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
ORDERED = ("age", "education-num", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week")
SHAPE = (12, 278, 174)
EPSILONS = (0.03, 0.1, 0.3, 1.0, 10.0)


def clocked(name: str, work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    print(
        f"{name}: {time.perf_counter() - wall:.1f} s wall, {time.process_time() - cpu:.1f} s of processor", flush=True
    )
    return result


def incidents(rng: np.random.Generator, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts like the challenge's: 12 months, 278 places, 174 types, 300,000 rows; the release adds rounded noise."""
    shares = np.ones(())
    for size in SHAPE:
        shares = np.multiply.outer(shares, rng.dirichlet(np.full(size, 0.5)))
    shares = shares * rng.gamma(1.0, 1.0, SHAPE)
    real = rng.poisson(shares / shares.sum() * 300_000)
    return np.maximum(0, np.rint(real + rng.normal(0, noise, SHAPE))).astype(np.int64), real


def warm() -> None:
    from understudy.metric.mgd import Attribute, aemc

    aemc(np.array([2, 0, 3]), np.array([0, 4, 0]), [Attribute(3, Fraction(1), chain=3)])


def aemc_default() -> None:
    from understudy.metric.mgd import Attribute, aemc

    warm()
    made, real = incidents(np.random.default_rng(0), 3.0)
    weights = [Attribute(12, Fraction(1), chain=12), Attribute(278), Attribute(174)]
    found = clocked(f"AEMC, {real.size} cells, default weights", lambda: aemc(made, real, weights, tolerance=2))
    print(f"  cost {found.cost:.6f}")


def aemc_ordinal() -> None:
    from understudy.metric.mgd import Attribute, aemc

    warm()
    weights = [Attribute(size, Fraction(1, 3), chain=size) for size in SHAPE]
    for noise in (3.0, 10.0):
        made, real = incidents(np.random.default_rng(0), noise)
        found = clocked(f"AEMC, all ordinal, noise {noise:g}", lambda: aemc(made, real, weights, tolerance=2))  # noqa: B023
        print(f"  cost {found.cost:.6f}")


def aemc_hard() -> None:
    """Tables that are nothing alike: mass moves far, so the nearby search gives up and OR-tools takes over."""
    from understudy.metric.mgd import Attribute, aemc

    warm()
    _, real = incidents(np.random.default_rng(0), 0.0)
    share = real / real.sum()
    product = share.sum((1, 2))[:, None, None] * share.sum((0, 2))[None, :, None] * share.sum((0, 1))[None, None, :]
    made = np.random.default_rng(1).multinomial(int(real.sum()), product.reshape(-1)).reshape(SHAPE)
    weights = [Attribute(size, Fraction(1, 3), chain=size) for size in SHAPE]
    found = clocked("AEMC, all ordinal, independent stand-in", lambda: aemc(made, real, weights, tolerance=2))
    print(f"  cost {found.cost:.6f}")


def adult() -> tuple[Any, pd.DataFrame]:
    """Adult in the AIM paper's codes: six ordered columns, the others without order."""
    from understudy.schema import Schema
    from understudy.schema.categorical import Categorical
    from understudy.schema.numeric import Numeric

    sizes = json.loads((DATA / "aim" / "adult-domain.json").read_text())
    rule: dict[str, Any] = {"nullable": False, "on_unknown": "drop_row"}
    columns = [
        Numeric(name=name, minimum=0, maximum=size - 1, bins=size, **rule)
        if name in ORDERED
        else Categorical(name=name, type="integer", values=tuple(range(size)), **rule)
        for name, size in sizes.items()
    ]
    return Schema(tuple(columns), title="Adult"), pd.read_csv(DATA / "aim" / "adult.csv.gz")


def standin(schema: Any, table: pd.DataFrame, mechanism: str, epsilon: float) -> Any:
    import understudy as us

    with us.testing.insecure(1):
        return us.synthesize(table, schema, epsilon=epsilon, delta=1e-9, mechanism=mechanism)


def adult_mgd() -> None:
    from understudy.metric import Rows
    from understudy.metric.registry import measure

    schema, table = adult()
    names = [name for name in ORDERED if name in schema.domain]
    real = Rows.of(table, schema)
    wanted = {"ways": (1, 2, 3), "cells": 10**6, "most": 10**6}
    from itertools import combinations

    cliques = tuple(c for way in wanted["ways"] for c in combinations(names, way))  # type: ignore[union-attr]
    for mechanism in ("independent", "mst"):
        made = Rows.of(standin(schema, table, mechanism, 1.0).sample(seed=0), schema)
        score = clocked(
            f"MGD, {len(cliques)} marginals of Adult's ordered columns, {mechanism}",
            lambda: measure(real, made, schema, ["mgd"], {"mgd": {"marginals": cliques}})[0],  # noqa: B023
        )
        print(f"  score {score.value:.6f}")


def propensity() -> None:
    from understudy.metric import Rows
    from understudy.metric.registry import measure

    schema, table = adult()
    real = Rows.of(table, schema)
    made = Rows.of(standin(schema, table, "mst", 1.0).sample(len(table), seed=0), schema)
    for name in ("pmse_ratio", "specks"):
        score = clocked(f"{name}, {real.rows} + {made.rows} rows", lambda: measure(real, made, schema, [name])[0])  # noqa: B023
        print("  " + ", ".join(f"{part.name} {part.value:.4g}" for part in score.parts if part.kind == "model"))


def report() -> None:
    from understudy.report import custodian_report

    schema, table = adult()
    release = standin(schema, table, "mst", 1.0)
    page = clocked("the whole default report on Adult", lambda: custodian_report(release, table))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {len(page) / 1024:.0f} KiB, peak memory {peak:.0f} MiB")


def epsilon_curves(mechanisms: list[str]) -> None:
    from understudy.metric import Rows
    from understudy.metric.registry import measure
    from understudy.report.page import FULL

    schema, table = adult()
    real = Rows.of(table, schema)
    fits = {"rows": 5_000, "cross_validated": False}
    settings = FULL | {
        "workload_error": {"most": 60},
        "pmse": fits,
        "pmse_ratio": fits | {"models": ["logistic"]},
        "specks": fits,
        "ml_efficacy": {"rows": 10_000, "models": ["logistic", "tree"]},
        "mgd": {"most": 30},
    }
    curves: dict[str, dict[str, list[float]]] = {}
    for mechanism in mechanisms:
        for epsilon in EPSILONS:
            made = Rows.of(standin(schema, table, mechanism, epsilon).sample(len(table), seed=0), schema)
            for score in measure(real, made, schema, None, settings):
                curves.setdefault(score.metric, {}).setdefault(mechanism, []).append(score.value)
            print(mechanism, epsilon, flush=True)
            write_curves(curves)


def write_curves(curves: dict[str, dict[str, list[float]]]) -> None:
    folder = ROOT / "docs" / "guide"
    data = {"table": "Adult, 48,842 rows", "delta": 1e-9, "epsilon": EPSILONS, "scores": curves}
    (folder / "metrics-epsilon.json").write_text(json.dumps(data, indent=1) + "\n")
    (folder / "metrics-epsilon.svg").write_text(drawn(curves))


def drawn(curves: dict[str, dict[str, list[float]]]) -> str:
    """Small multiples: one panel a metric, epsilon on a log scale, one line a mechanism."""
    from understudy.metric import METRICS

    styles = (("#0072b2", ""), ("#b34700", "5 3"), ("#117733", "2 2"), ("#882255", "8 2 2 2"))
    width, height, across = 256, 150, 3
    rows = -(-len(curves) // across)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width * across} {rows * height + 34}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{width * across}" height="{rows * height + 34}" fill="#fff"/>',
    ]
    for number, (name, lines) in enumerate(curves.items()):
        left, top = (number % across) * width + 54, (number // across) * height + 22
        every = [value for line in lines.values() for value in line]
        low, high = min(every), max(every)
        span = (high - low) or 1.0
        better = "up is better" if METRICS[name].better == "higher" else "down is better"
        out.append(f'<text x="{left}" y="{top - 7}" font-weight="600">{name}</text>')
        out.append(
            f'<text x="{left + 184}" y="{top - 7}" text-anchor="end" font-size="10" fill="#59636e">{better}</text>'
        )
        out.append(f'<path d="M{left} {top} v92 h184" fill="none" stroke="#8b95a1"/>')
        for value, y in ((high, top + 8), (low, top + 92)):
            out.append(f'<text x="{left - 4}" y="{y}" text-anchor="end">{shown(value)}</text>')
        places = [left + 8 + 168 * place / (len(EPSILONS) - 1) for place in range(len(EPSILONS))]
        for epsilon, x in zip(EPSILONS, places, strict=True):
            out.append(f'<text x="{x:.0f}" y="{top + 106}" text-anchor="middle">{epsilon:g}</text>')
        for (color, dash), values in zip(styles, lines.values(), strict=False):
            points = [f"{x:.1f},{top + 90 - 82 * (v - low) / span:.1f}" for x, v in zip(places, values, strict=False)]
            out.append(
                f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="2" '
                f'stroke-dasharray="{dash}"/>'
            )
    names = list(next(iter(curves.values())))
    for number, (name, (color, dash)) in enumerate(zip(names, styles, strict=False)):
        x, y = 46 + 130 * number, rows * height + 20
        out.append(f'<path d="M{x} {y - 4} h24" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
        out.append(f'<text x="{x + 30}" y="{y}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mechanisms", default="independent,mst")
    given = parser.parse_args()
    works: dict[str, Callable[[], None]] = {
        "aemc": aemc_default,
        "ordinal": aemc_ordinal,
        "adult": adult_mgd,
        "propensity": propensity,
        "report": report,
        "hard": aemc_hard,
        "epsilon": lambda: epsilon_curves(given.mechanisms.split(",")),
    }
    for name in given.names or list(works)[:5]:
        if name in ("aemc", "ordinal", "hard") or DATA.exists():
            works[name]()
        else:
            print(f"{name}: left out, there is no {DATA}")


if __name__ == "__main__":
    os.environ.setdefault("UNDERSTUDY_LEDGER", f"{tempfile.mkdtemp()}/ledger.db")
    main()
