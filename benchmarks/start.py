"""How long commands take that have little to do: processor seconds of a whole process, the least of seven.

Run: python benchmarks/start.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 7
TABLE = "age,sex\n" + "".join(f"{20 + i % 60},{'FM'[i % 2]}\n" for i in range(2000))
COMMANDS = {
    "--help": ["--help"],
    "--version": ["--version"],
    "schema --help": ["schema", "--help"],
    "ledger show": ["ledger", "show"],
    "mechanisms": ["mechanisms"],
    "schema draft": ["schema", "draft", "t.csv", "-o", "new.yaml", "--unit", "row"],
    "plan": ["plan", "t.yaml", "--people", "2000"],
    "synthesize": ["synthesize", "t.csv", "-s", "t.yaml", "--rho", "0.1", "-o", "new.release"],
    "answer": ["answer", "t.release", "sex=F"],
    "sample": ["sample", "t.release", "-n", "100", "-o", "new.csv"],
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "t.csv").write_text(TABLE, encoding="utf-8")
        for made in ("schema draft t.csv -o t.yaml --unit row", "schema review t.yaml --accept age --accept sex"):
            command(made.split(), place)
        command(["synthesize", "t.csv", "-s", "t.yaml", "--rho", "0.1", "-o", "t.release"], place)
        for name, arguments in COMMANDS.items():
            print(f"{name:14} {min(command(arguments, place) for _ in range(RUNS)):.2f} s")


def command(arguments: list[str], place: Path) -> float:
    """Processor seconds of one command, whose new files are removed again."""
    before = os.times()
    environment = os.environ | {"UNDERSTUDY_LEDGER": str(place / "ledger.db")}
    line = [sys.executable, "-m", "understudy", *arguments]
    subprocess.run(line, cwd=place, env=environment, check=True, capture_output=True)
    after = os.times()
    for new in place.glob("new*"):
        new.unlink()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    main()
