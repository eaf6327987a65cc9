"""How long `understudy run` takes when the run is finished already: it must stay under a second, whatever its size."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import understudy as us
from understudy.planning.made_up import rehearsal_rows


def main(columns: int = 100, rows: int = 20_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema = us.Schema.from_domain({f"c{i}": 2 + i % 12 for i in range(columns)})
        schema.save(folder / "s.yaml")
        import pyarrow.parquet as pq

        pq.write_table(rehearsal_rows(schema, rows), folder / "t.parquet")
        (folder / "run.yaml").write_text(
            "data: t.parquet\nschema: s.yaml\nbudget: {rho: 0.1}\nmechanism: independent\noutputs: {report: []}\n"
        )
        command = [sys.executable, "-m", "understudy", "run", str(folder / "run.yaml"), "-o", str(folder / "out")]
        environment = {**os.environ, "UNDERSTUDY_LEDGER": str(folder / "ledger.db")}
        took = []
        for _ in range(6):
            start, before = time.perf_counter(), os.times()
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            after = os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            took.append((time.perf_counter() - start, cpu))
        spent = us.Ledger(folder / "ledger.db").total("t")
        wall, cpu = min(took[1:]), min(cpu for _, cpu in took[1:])
        print(f"{columns} columns: first {took[0][0]:.1f} s, again {wall[0]:.2f} s ({cpu:.2f} s of processor); {spent}")
        assert cpu < 1.0
        assert spent.runs == 1


if __name__ == "__main__":
    main()
