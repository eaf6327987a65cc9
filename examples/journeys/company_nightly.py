"""A data engineer makes a stand-in of a company's orders every night, from a folder of Parquet files.

    python examples/journeys/company_nightly.py OUT

The schema is drafted from the folder, and checks, scores and reports read it too. Each night has an output folder of
its own; a retry of the same night costs nothing, whatever happened to the first attempt. The ledger adds the nights up,
and the year's grant stops the pipeline before more than the customers' budget is spent. On the way, things go wrong as
they do at night: a file is cut short, a country appears that the schema does not list, cron has another home, the
warehouse is down.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from shell import understudy

import understudy as us
from understudy import errors
from understudy.ledger import Grant
from understudy.run import run

RUN = """
data: nightly/*.parquet
schema: orders.schema.yaml
dataset: orders
budget: {rho: 0.05}
mechanism: {name: mst, threshold: 2}
outputs: {rows: parquet, report: []}
"""


def orders(night: int, rows: int = 3000, new: float = 0.0) -> pa.Table:
    """One night's made-up orders; a share of them is from a new country."""
    rng = np.random.default_rng(night)
    country = rng.choice(["AT", "CH", "DE", "FR"], rows, p=[0.1, 0.1, 0.5, 0.3])
    channel = np.where(country == "DE", rng.choice(["web", "app"], rows), rng.choice(["web", "shop"], rows))
    amount = np.round(rng.gamma(2, 40, rows).clip(0, 500), 2)
    country = np.where(rng.random(rows) < new, "PL", country)
    return pa.table({"country": country, "channel": channel, "amount": amount, "returned": rng.random(rows) < 0.1})


def write_orders(folder: Path, night: int, **facts: float) -> None:
    """Replace last night's orders, two files, by this night's."""
    (folder / "nightly").mkdir(parents=True, exist_ok=True)
    for part in (0, 1):
        pq.write_table(orders(10 * night + part, **facts), folder / "nightly" / f"part-{part}.parquet")


def main(folder: Path, nights: int = 3) -> dict[str, object]:
    write_orders(folder, 0)
    (folder / "run.yaml").write_text(RUN)
    understudy(folder, "schema draft nightly/*.parquet -o orders.schema.yaml --unit row")
    accepted = [word for name in orders(0).column_names for word in ("--accept", name)]
    understudy(folder, "schema review orders.schema.yaml", *accepted)
    us.Ledger().grant(Grant("orders", rho=0.12, per="year"))
    statuses, notes = [], ()
    for night in range(1, nights + 1):
        write_orders(folder, night, new=0.2 if night == 2 else 0.0)
        try:
            first = run(folder / "run.yaml", folder / f"night-{night}")
            again = run(folder / "run.yaml", folder / f"night-{night}")  # cron tries again
            statuses += [first.status, again.status]
            notes += us.Release.load(first.summary["release"]).notes
        except errors.BudgetExceeded as stop:
            print(f"night {night}: {stop}")
            statuses.append("stopped")
    print(us.Ledger().total("orders"), *notes, sep="\n")
    said = {"check": understudy(folder, "schema check orders.schema.yaml nightly")}
    understudy(folder, "evaluate nightly night-1/rows.parquet -s orders.schema.yaml --metric workload_error")
    understudy(folder, "report night-1/stand-in.release --real nightly/*.parquet -o compared.html")
    cut = folder / "nightly" / "part-1.parquet"
    cut.write_bytes(cut.read_bytes()[:1000])
    command = "synthesize nightly/*.parquet -s orders.schema.yaml --rho 0.05 --dataset tests -o a.release"
    said["cut short"] = understudy(folder, command, exit_code=3)
    write_orders(folder, 4)
    other = folder.resolve() / "cron-home"
    other.mkdir(exist_ok=True)
    homes = {name: str(other) for name in ("HOME", "LOCALAPPDATA", "XDG_DATA_HOME")}
    said["ledger"] = understudy(folder, command, UNDERSTUDY_LEDGER="", **homes)
    warehouse = "synthesize postgresql://warehouse@127.0.0.1:9/sales?table=orders -s orders.schema.yaml --rho 0.05"
    said["closed port"] = understudy(folder, f"{warehouse} --dataset tests -o b.release", exit_code=3)
    if find_spec("psycopg") is None:
        print("(with the package it would say that nothing listens there)")
    return {"statuses": statuses, "notes": notes, **said}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "company-out"))
