"""Tables of many columns, made up: MST, PrivBayes, AIM with all pairs, AIM with all triples, adaptive. CPU, memory.

python benchmarks/wide.py mst 110 150 300
python benchmarks/wide.py privbayes 110 150 300
python benchmarks/wide.py pairs 110
python benchmarks/wide.py triples 30 60
python benchmarks/wide.py adaptive 110 300
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
import pyarrow as pa

import understudy as us

ROWS = 10_000
KINDS = {
    "mst": ("mst", {}),
    "privbayes": ("privbayes", {}),
    "pairs": ("aim", {"workload": "all-2way"}),
    "triples": ("aim", {"workload": "all-3way"}),
    "adaptive": ("adaptive", {}),
}


def table(columns: int) -> tuple[pa.Table, dict[str, int]]:
    """Columns of 2 to 10 codes; every third follows one hidden variable closely, the others less or not at all."""
    rng = np.random.default_rng(0)
    sizes = {f"c{i}": int(rng.integers(2, 11)) for i in range(columns)}
    hidden = rng.integers(0, 12, ROWS)
    codes = {}
    for i, (name, size) in enumerate(sizes.items()):
        followed = hidden * (rng.random(ROWS) < (0.9, 0.3, 0.0)[i % 3])
        codes[name] = ((followed + rng.integers(0, 3, ROWS)) % size).astype(np.int16)
    return pa.table(codes), sizes


def one(kind: str, columns: int) -> None:
    mechanism, settings = KINDS[kind]
    rows, sizes = table(columns)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNDERSTUDY_LEDGER"] = str(Path(folder) / "ledger.db")
        begin = time.process_time()
        release = us.synthesize(
            rows,
            us.Schema.from_domain(sizes),
            epsilon=1.0,
            delta=1e-9,
            mechanism=mechanism,
            dataset="benchmark",
            **settings,
        )
        seconds = time.process_time() - begin
        path = Path(folder) / "wide.release"
        release.save(path)
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{kind}, {columns} columns: {seconds:.1f} s CPU, {len(release.measurements)} measurements, "
        f"{peak:.2f} GiB, a release of {size / 1e6:.1f} MB",
        flush=True,
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", choices=[*KINDS])
    options.add_argument("columns", type=int, nargs="+")
    chosen = options.parse_args()
    if len(chosen.columns) == 1:
        one(chosen.kind, chosen.columns[0])
        return
    for columns in chosen.columns:  # each in a process of its own, for its memory
        subprocess.run([sys.executable, __file__, chosen.kind, str(columns)], check=True)


if __name__ == "__main__":
    main()
