"""The four journeys of `examples/journeys`, from end to end."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import understudy as us

JOURNEYS = Path(__file__).parents[2] / "examples" / "journeys"


def script(name):
    spec = importlib.util.spec_from_file_location(f"journey_{name}", JOURNEYS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_four_are_here():
    assert {path.stem for path in JOURNEYS.glob("*.py")} == {
        "statistics_office", "hospital", "company_nightly", "researcher",
    }  # fmt: skip


def test_statistics_office(tmp_path):
    told = script("statistics_office").main(tmp_path)
    assert 0.02 < told["refused"] < 0.15
    assert 0 < told["weighted error"] < 0.3
    assert 0 < told["high"] < 0.3
    assert {"rows.csv", "report.html"} <= {path.name for path in (tmp_path / "release").iterdir()}
    assert "How good it is" in (tmp_path / "release" / "report.html").read_text()
    assert us.Ledger().total("living-conditions").runs == 1


def test_hospital(tmp_path):
    release = script("hospital").main(tmp_path)
    assert "'patient_id' (at most 3 rows of each used)" in release.receipt.text()
    rows = pa_csv.read_csv(tmp_path / "release" / "rows.csv")
    assert rows.column_names == ["patient_id", "ward", "sex", "days", "emergency"]
    assert (tmp_path / "rehearsal" / "rehearsal-report.html").exists()
    assert us.Ledger().total("stays").runs == 1


def test_company_nightly(tmp_path):
    assert script("company_nightly").main(tmp_path) == ["made", "unchanged", "made", "unchanged", "stopped"]
    assert us.Ledger().total("orders").runs == 2
    rows = pq.read_table(tmp_path / "night-2" / "rows.parquet")
    assert rows.column_names == ["country", "channel", "amount", "returned"]


def test_researcher(tmp_path):
    errors = script("researcher").main(tmp_path)
    assert set(errors) == set(us.MECHANISMS)
    assert errors["mst"] < errors["independent"]
    assert us.Ledger().total("journey-researcher").runs == len(us.MECHANISMS)
