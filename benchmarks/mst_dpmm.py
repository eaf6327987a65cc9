"""MST on Adult by ours and by dpmm, one after the other, same codes, epsilon 1, delta 1e-9: seconds, error, ratio.

python benchmarks/mst_dpmm.py DATA PYTHON      PYTHON is an interpreter that has dpmm 0.1.9

Both run in child processes of this one, on one core each; seconds are of processor time, of fitting and sampling alone
(reading the table and imports are not counted, nor is the compiling that the first run on a machine needs).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

EPSILON, DELTA, WANTED = 1.0, 1e-9, 100
ONE_CORE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def ours(folder: Path, output: Path) -> float:
    sys.path.insert(0, str(Path(__file__).parent))
    import mst

    mst.made(mst.load(folder, "titanic"), mst.MST(), 1.0)  # compiled code is loaded once
    codes, seconds = mst.made(mst.load(folder, "adult"), mst.MST(), EPSILON)
    pd.DataFrame(codes).to_csv(output, index=False)
    return seconds


def dpmm(folder: Path, output: Path) -> float:
    from dpmm.pipelines import MSTPipeline

    sizes = json.loads((folder / "adult-domain.json").read_text())
    frame = pd.read_csv(folder / "adult.csv.gz")[list(sizes)]
    started = time.process_time()
    pipeline = MSTPipeline(epsilon=EPSILON, delta=DELTA, n_jobs=1, disable_processing=True)
    pipeline.fit(frame, domain=sizes)
    made = pipeline.generate(n_records=len(frame))
    seconds = time.process_time() - started
    made.to_csv(output, index=False)
    return seconds


def error(folder: Path, output: Path) -> float:
    sys.path.insert(0, str(Path(__file__).parent))
    import mst

    table = mst.load(folder, "adult")
    made = pd.read_csv(output)
    return table.error({column: made[column].to_numpy() for column in table.domain})


def child(python: str, who: str, folder: Path, output: Path) -> float:
    command = [python, __file__, str(folder), "--run", who, str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ONE_CORE})
    if done.returncode:
        sys.exit(f"{who} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def main(folder: Path, python: str) -> None:
    from tempfile import TemporaryDirectory

    print("| MST on Adult | processor seconds | all three-way error |\n|---|---|---|")
    seconds = {}
    with TemporaryDirectory() as scratch:
        for who, runs in (("ours", sys.executable), ("dpmm", python)):
            output = Path(scratch) / f"{who}.csv"
            seconds[who] = child(runs, who, folder, output)
            print(f"| {who} | {seconds[who]:.2f} | {error(folder, output):.4f} |", flush=True)
    print(f"\nratio {seconds['dpmm'] / seconds['ours']:.0f} (wanted: at least {WANTED})")


if __name__ == "__main__":
    if "--run" in sys.argv:
        np.random.seed()  # noqa: NPY002 - the peer draws from the global state
        print({"ours": ours, "dpmm": dpmm}[sys.argv[3]](Path(sys.argv[1]), Path(sys.argv[4])))
    else:
        main(Path(sys.argv[1]), sys.argv[2])
