"""How long a bundle of a million rows takes, and how much memory.

python benchmarks/bundle.py [--rows 1000000]

15 columns (five of numbers, one of dates, the others of declared values), each set of formats in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import understudy as us

LIMITS = {"csv,parquet": (60, 2.0), "csv,parquet,dta,sav": (60, 2.0)}


def schema() -> us.Schema:
    fields: list[dict[str, object]] = [
        {"name": f"n{i}", "type": "number", "constraints": {"minimum": 0, "maximum": 100}, "understudy": {"bins": 20}}
        for i in range(5)
    ]
    fields += [
        {"name": "day", "type": "date", "constraints": {"minimum": "2000-01-01", "maximum": "2020-12-31"},
         "understudy": {"bins": {"width": "1 year"}}}
    ]  # fmt: skip
    fields += [{"name": f"c{i}", "type": "string", "categories": [f"value {j}" for j in range(12)]} for i in range(9)]
    return us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})


def rows(count: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"n{i}": rng.uniform(0, 100, count) for i in range(5)})
    frame["day"] = (np.datetime64("2000-01-01") + rng.integers(0, 7000, count)).astype("datetime64[D]").astype(str)
    for i in range(9):
        frame[f"c{i}"] = [f"value {j}" for j in rng.integers(0, 12, count)]
    return frame


def one(release: str, folder: str, formats: str, count: int) -> None:
    started = time.perf_counter()
    us.bundle.make_bundle(us.Release.load(release), Path(folder), rows=count, seed=1, formats=formats.split(","))
    seconds = time.perf_counter() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(part.ru_utime + part.ru_stime for part in used)
    peak = sum(part.ru_maxrss for part in used) / 2**20  # of this process and of the one that writes a file beside it
    limit, most = LIMITS[formats]
    words = f"{count} rows, {formats}: {seconds:.1f} s (limit {limit}), {cpu:.1f} s CPU"
    print(f"{words}, peak {peak:.2f} GiB (limit {most})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("one", nargs="*")
    given = parser.parse_args()
    if given.one:
        one(*given.one, given.rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        os.environ["UNDERSTUDY_LEDGER"] = str(path / "ledger.db")
        us.synthesize(rows(20_000), schema(), epsilon=1, delta=1e-6, output=path / "x.release")
        for number, formats in enumerate(LIMITS):
            words = [str(path / "x.release"), str(path / f"out{number}"), formats]
            subprocess.run([sys.executable, __file__, "--rows", str(given.rows), *words], check=True)


if __name__ == "__main__":
    main()
