"""Nothing that a run leaves in its folder depends on the rows but through paid answers."""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import understudy as us
from understudy import journey
from understudy.testing.twin import check_twins

SCHEMA = us.Schema.from_domain({"a": 3, "b": 4})


def table(rows, seed):
    rng = np.random.default_rng(seed)
    return pa.table({"a": rng.integers(0, 3, rows), "b": rng.integers(0, 4, rows)})


@pytest.mark.parametrize("mechanism", ["independent", "mst"])
def test_twins(tmp_path, monkeypatch, mechanism):
    monkeypatch.setattr(secrets, "token_hex", lambda size=32: "0" * (2 * size))

    def run(frame, folder):
        monkeypatch.setenv("UNDERSTUDY_BOOK", str(folder / "book"))
        (tmp_path / "in").mkdir(exist_ok=True)
        pa_csv.write_csv(frame, tmp_path / "in" / "t.csv")
        SCHEMA.save(tmp_path / "in" / "s.yaml", overwrite=True)
        (tmp_path / "in" / "run.yaml").write_text(
            f"data: t.csv\nschema: s.yaml\nbudget: {{rho: 0.5}}\nmechanism: {mechanism}\nquality: 10%\n"
            "outputs: {rows: [csv, parquet], report: public, seed: 1}\n"
        )
        print(journey.run(tmp_path / "in" / "run.yaml", folder / "out").summary)

    left = check_twins(run, table(400, 1), table(731, 2), tmp_path / "run")
    assert {"out/stand-in.release", "out/rows.csv", "out/rows.parquet", "out/report.html", "out/run.json"} <= set(left)
    assert left["ending"] == b"done"
