"""A company's pipeline makes a stand-in of its orders every night, from Parquet.

    python examples/journeys/company_nightly.py OUT

Each night has a folder of its own. A retry of the same night costs nothing, whatever happened to the first attempt; the
ledger adds the nights up; the year's grant stops the pipeline before more than the customers' budget is spent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us
from understudy import errors
from understudy.ledger import Grant
from understudy.run import run

SCHEMA = """
title: Orders
fields:
- {name: country, type: string, categories: [AT, CH, DE, FR]}
- {name: channel, type: string, categories: [web, app, shop]}
- {name: amount, type: number, constraints: {minimum: 0, maximum: 500}, understudy: {bins: 10, decimals: 2}}
- {name: returned, type: boolean}
understudy: {privacy_unit: row}
"""
RUN = """
data: orders.parquet
schema: orders.schema.yaml
dataset: orders
budget: {rho: 0.05}
mechanism: {name: mst, threshold: 2}
outputs: {rows: parquet, report: []}
"""


def orders(night: int, rows: int = 3000) -> pa.Table:
    """One night's made-up orders."""
    rng = np.random.default_rng(night)
    country = rng.choice(["AT", "CH", "DE", "FR"], rows, p=[0.1, 0.1, 0.5, 0.3])
    channel = np.where(country == "DE", rng.choice(["web", "app"], rows), rng.choice(["web", "shop"], rows))
    amount = np.round(rng.gamma(2, 40, rows).clip(0, 500), 2)
    return pa.table({"country": country, "channel": channel, "amount": amount, "returned": rng.random(rows) < 0.1})


def main(folder: Path, nights: int = 3) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orders.schema.yaml").write_text(SCHEMA)
    (folder / "run.yaml").write_text(RUN)
    us.Ledger().grant(Grant("orders", rho=0.12, per="year"))
    statuses = []
    for night in range(1, nights + 1):
        pq.write_table(orders(night), folder / "orders.parquet")
        try:
            first = run(folder / "run.yaml", folder / f"night-{night}")
            again = run(folder / "run.yaml", folder / f"night-{night}")  # cron tries again
            statuses += [first.status, again.status]
        except errors.BudgetExceeded as stop:
            print(f"night {night}: {stop}")
            statuses.append("stopped")
    print(us.Ledger().total("orders"))
    return statuses


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else "company-out")))
