"""Nothing that a run leaves in its folder or in the ledger depends on the rows but through paid answers."""

from __future__ import annotations

import json
import secrets
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import understudy as us
from understudy import run as runs
from understudy.testing.twin import check_twins

SCHEMA = us.Schema.from_domain({"a": 3, "b": 4})


def table(rows, seed):
    rng = np.random.default_rng(seed)
    return pa.table({"a": rng.integers(0, 3, rows), "b": rng.integers(0, 4, rows)})


@pytest.mark.parametrize("mechanism", ["independent", "mst"])
def test_twins(tmp_path, monkeypatch, mechanism):
    monkeypatch.setattr(secrets, "token_hex", lambda size=32: "0" * (2 * size))
    numbers = count()

    def run(frame, folder):
        ledger = tmp_path / f"ledger-{next(numbers)}.db"
        (tmp_path / "in").mkdir(exist_ok=True)
        pa_csv.write_csv(frame, tmp_path / "in" / "t.csv")
        SCHEMA.save(tmp_path / "in" / "s.yaml", overwrite=True)
        (tmp_path / "in" / "run.yaml").write_text(
            f"data: t.csv\nschema: s.yaml\nbudget: {{rho: 0.5}}\nmechanism: {mechanism}\nquality: 10%\n"
            "outputs: {rows: [csv, parquet], report: public, seed: 1}\n"
        )
        print(runs.run(tmp_path / "in" / "run.yaml", folder / "out", ledger=ledger).summary)
        # a leaf is a digest of the entry with its time: the one part that is no fact about rows
        said = [{**json.loads(line), "time": None, "leaf": None} for line in us.Ledger(ledger).export()]
        (folder / "ledger.json").write_text("\n".join(map(json.dumps, said)))

    left = check_twins(run, table(400, 1), table(731, 2), tmp_path / "run")
    assert {"out/stand-in.release", "out/rows.csv", "out/rows.parquet", "out/report.html"} <= set(left)
    assert left["ending"] == b"done"
    kinds = [json.loads(line)["kind"] for line in left["ledger.json"].splitlines()]
    assert kinds[:3] == ["dataset", "reserve", "attempt"]
    assert set(kinds[3:-1]) == {"answer"}
    assert kinds[-1] == "finish"
