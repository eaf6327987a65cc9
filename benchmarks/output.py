"""Rows written to a file: rows per second and peak memory, for any number of rows.

python benchmarks/output.py [ROWS] [FOLDER] [ENDING]     10 million rows of 16 columns to Parquet by default
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

os.environ.setdefault("UNDERSTUDY_LEDGER", str(Path(tempfile.mkdtemp()) / "ledger.db"))

import understudy as us
from understudy.schema import Schema
from understudy.sink.files import open_file, write_chunks

COLUMNS, CODES = 16, 17


def release() -> us.Release:
    """MST on a chain of dependent columns like the page categories of MSNBC: 16 columns of 17 codes."""
    rng = np.random.default_rng(0)
    rows = 200_000
    chain = [rng.integers(0, CODES, rows)]
    for _ in range(COLUMNS - 1):
        stay = rng.random(rows) < 0.6
        chain.append(np.where(stay, chain[-1], np.minimum(rng.geometric(0.2, rows) - 1, CODES - 1)))
    frame = pd.DataFrame({f"v{i}": codes for i, codes in enumerate(chain)})
    schema = Schema.from_domain(dict.fromkeys(frame.columns, CODES))
    return us.synthesize(frame, schema, epsilon=1, delta=1e-9, mechanism="mst")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    path = folder / f"rows.{sys.argv[3] if len(sys.argv) > 3 else 'parquet'}"
    made = release()
    before = peak_mib()
    start = time.perf_counter()
    count, chunks = made.stream(rows, seed=1)
    with open_file(path, made.schema.dialect) as opened:
        write_chunks(chunks, opened, count)
    seconds = time.perf_counter() - start
    size = path.stat().st_size / 2**20
    path.unlink()
    speed = rows / seconds / 1e6
    print(f"{rows} rows x {COLUMNS} columns to {path.suffix}: {seconds:.1f} s, {speed:.2f} million rows/s")
    print(f"file {size:.0f} MiB; peak memory {peak_mib():.0f} MiB ({before:.0f} MiB before the first row)")


if __name__ == "__main__":
    main()
