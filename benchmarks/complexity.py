"""The complexity of a tree with the least error on held-out rows, over all synthetic tables of a study.

    python benchmarks/complexity.py bowen-snoke-match-2 fire --data FOLDER

Makes one synthetic table for each mechanism and budget of the study, scores held-out rows by trees of several
complexities with the study's settings of `specks`, and prints the mean of (p - T)^2, T = 1 for synthetic rows: 0.25 is
the error of a tree that learned nothing. Leave out slow mechanisms with `--without dpsyn`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import understudy as us
from understudy.comparison.study import load_study, parse_mechanism
from understudy.metric import Rows
from understudy.metric.propensity import Settings, score_held_out, stack_tables
from understudy.metric.registry import METRICS, read_settings
from understudy.run.pipeline import RunSpec, make_uncharged
from understudy.source.read import collect_table

COMPLEXITIES = (0.0003, 0.001, 0.0012, 0.0014, 0.0016, 0.0018, 0.002, 0.003, 0.005, 0.008, 0.012)


def held_out_errors(real: Rows, made: Rows, settings: Settings) -> list[float]:
    """Return the mean squared error of trees of each complexity on rows that they have not seen."""
    data = stack_tables(real, made, settings, np.random.default_rng(0))
    found = [score_held_out("cart", data, one, np.random.default_rng(3)) for one in COMPLEXITIES]
    return [float(np.mean((one.chance - one.synthetic) ** 2)) for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("table")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    study = load_study(Path(__file__).parents[1] / "examples" / "studies" / f"{given.study}.yaml", given.data)
    table = study.tables[given.table]
    settings: Settings = read_settings(METRICS["specks"], study.settings["specks"])
    frame = collect_table(table.data, table.schema)
    real, errors = Rows.of(frame, table.schema, what="real table"), []
    for label, text in study.mechanisms.items():
        if parse_mechanism(text)[0] in given.without:
            continue
        for cell in (one for one in study.cells() if (one.table, one.mechanism, one.run) == (given.table, text, 0)):
            spec = study.spec(cell)
            names = ("epsilon", "delta", "mechanism", "paper", "settings")
            release: us.Release = make_uncharged(
                RunSpec(data=frame, schema=table.schema, **{name: getattr(spec, name) for name in names})
            )
            made = Rows.of(release.sample(seed=1), release.schema, what="synthetic table")
            errors.append(held_out_errors(real, made, settings))
            print(f"{label}, epsilon {cell.epsilon:g}:", *(f"{error:.4f}" for error in errors[-1]), flush=True)
    for complexity, error in zip(COMPLEXITIES, np.mean(errors, axis=0), strict=True):
        print(f"complexity {complexity:g}: {error:.4f}")


if __name__ == "__main__":
    main()
