"""Run the suite many times and report every test whose outcome differs: `make test-often`.

usage: often.py TIMES [pytest's own options and paths]

A test that draws noise is seeded by its name (see `conftest.py`), so a difference means that it depends on something
else: the clock, the order of a set, another test, the number of processors. Half of the runs have another hash seed,
which changes the order of sets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree


def run_suite(number: int, options: list[str], folder: Path) -> dict[str, str]:
    """Run the suite once; the outcome of each test."""
    path = folder / f"{number}.xml"
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={path}", *options]
    environment = os.environ | {"PYTHONHASHSEED": str(number % 2 * number)}
    with (folder / f"{number}.log").open("w") as log:
        code = subprocess.run(line, env=environment, stdout=log, stderr=log, check=False).returncode
    if code not in (0, 1):
        sys.exit(f"pytest ended with code {code}:\n{(folder / f'{number}.log').read_text()[-2000:]}")
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):  # noqa: S314 - pytest wrote it a moment ago
        outcomes = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}::{case.get('name')}"] = outcomes[0] if outcomes else "passed"
    return found


def main() -> int:
    """Print a line for each run and for each test that differs; 1 if any differs or fails."""
    times, options = int(sys.argv[1]), sys.argv[2:]
    outcomes: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(times):
            found = run_suite(number, options, Path(folder))
            for name, outcome in found.items():
                outcomes[name].append(outcome)
            bad = sum(outcome in ("failure", "error") for outcome in found.values())
            print(f"run {number + 1} of {times}: {len(found)} tests, {bad} failed", flush=True)
    differing = {name: seen for name, seen in outcomes.items() if len(seen) != times or len(set(seen)) > 1}
    failing = {name for name, seen in outcomes.items() if {"failure", "error"} & set(seen)}
    for name, seen in sorted(differing.items()):
        counts = ", ".join(f"{seen.count(outcome)} {outcome}" for outcome in sorted(set(seen)))
        print(f"{name}: {counts}, not run {times - len(seen)}")
    print(f"{len(differing)} of {len(outcomes)} tests differ, {len(failing)} fail")
    return 1 if differing or failing else 0


if __name__ == "__main__":
    sys.exit(main())
