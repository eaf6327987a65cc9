"""How large a base install is, and how long `import understudy` takes, in a fresh virtual environment.

Run: python benchmarks/footprint.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LIMIT_MB, LIMIT_SECONDS, RUNS = 500, 1.0, 7
ROOT = Path(__file__).resolve().parent.parent
TIMER = "import time; t = time.perf_counter(); import understudy; print(time.perf_counter() - t)"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        packages = next(Path(folder).rglob("site-packages"))
        before = size_mb(packages)
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
        size = size_mb(packages) - before
        seconds = [float(subprocess.check_output([python, "-c", TIMER])) for _ in range(RUNS + 1)][1:]
    mib = size * 1e6 / 2**20
    print(f"base install: {size:.0f} MB or {mib:.0f} MiB (limit {LIMIT_MB}), ratio {size / LIMIT_MB:.2f}")
    typical = statistics.median(seconds)
    print(f"import understudy: {typical:.2f} s (limit {LIMIT_SECONDS}), ratio {typical / LIMIT_SECONDS:.2f}")


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    main()
