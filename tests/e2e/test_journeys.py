"""The journeys of `examples/journeys`, from end to end. `test_plain_install.py` runs them in fresh environments."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import understudy as us

JOURNEYS = Path(__file__).parents[2] / "examples" / "journeys"


@pytest.fixture
def journey(monkeypatch, forks):
    """Load a script; the commands that it runs start at once."""
    monkeypatch.syspath_prepend(str(JOURNEYS))
    monkeypatch.setenv("PATH", os.pathsep.join([str(forks.programs), os.environ["PATH"]]))

    def load(name):
        spec = importlib.util.spec_from_file_location(f"journey_{name}", JOURNEYS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_all_of_them_are_here():
    assert {path.stem for path in JOURNEYS.glob("*.py")} == {
        "statistics_office", "hospital", "company_nightly", "analyst", "researcher", "shell",
    }  # fmt: skip


def test_statistics_office(tmp_path, journey):
    told = journey("statistics_office").main(tmp_path)
    assert 0.02 < told["refused"] < 0.15
    assert 0 < told["weighted error"] < 0.3
    assert 0 < told["high"] < 0.3
    assert {"rows.csv", "report.html"} <= {path.name for path in (tmp_path / "release").iterdir()}
    assert "How good it is" in (tmp_path / "release" / "report.html").read_text()
    assert us.Ledger().total("living-conditions").runs == 1


def test_hospital(tmp_path, journey):
    said = journey("hospital").main(tmp_path)
    assert "Column 'patient' looks like a key and repeats" in said["draft"]
    assert said["review"].count("Column 2 of 9: patient") == 2, "going back shows the column again"
    assert "Column 4 of 9: admitted (dates)" in said["review"]
    assert "written as      %d.%m.%Y" in said["review"]
    assert "Every column is reviewed. Dropped: case." in said["review"]
    assert "of every 1,000 people, the whole rows of 10 might leak" in said["delta"]
    assert "Nothing was spent" in said["delta"]
    assert str(us.Ledger().address) in said["run"].replace("\n", "")
    assert "its values are N, Y" in said["value"]
    rows = pa_csv.read_csv(tmp_path / "release" / "rows.csv", parse_options=pa_csv.ParseOptions(delimiter=";"))
    forms = {"patient": r"P\d{5}", "admitted": r"\d\d\.\d\d\.2023", "cost": r"\d+,\d\d", "alive": "[YN]"}
    for name, form in forms.items():
        assert all(re.fullmatch(form, str(cell)) for cell in rows[name].to_pylist() if cell != "other"), name
    assert all(len(str(cell)) in (5, 8) for cell in rows["time"].to_pylist()), "times of day, not seconds"
    assert (tmp_path / "rehearsal" / "rehearsal-report.html").exists()
    assert (tmp_path / "compared.custodian-only.html").exists()
    assert (tmp_path / "for-analysts" / "codebook.html").exists()
    assert us.Ledger().total("stays").runs == 1


def test_company_nightly(tmp_path, journey):
    told = journey("company_nightly").main(tmp_path)
    assert told["statuses"] == ["made", "unchanged", "made", "unchanged", "stopped"]
    assert us.Ledger().total("orders").runs == 2
    assert [re.search(r"value of '(\w+)'", note)[1] for note in told["notes"]] == ["country"]
    assert "nightly/part-1.parquet: damaged, cut short or not Parquet" in told["cut short"]
    assert "(new: it knows of no earlier spending)" in told["ledger"]
    assert "no database server answers there" in told["closed port"]
    rows = pq.read_table(tmp_path / "night-2" / "rows.parquet")
    assert rows.column_names == ["country", "channel", "amount", "returned"]


def test_analyst(tmp_path, journey):
    told = journey("analyst").main(tmp_path)
    assert told["readme"].startswith("# Health survey")
    assert set(told["rows"][0]) == {"sex", "age", "interviewed", "icd", "smoker"}
    assert {row["smoker"] for row in told["rows"]} - {""} == {"Y", "N"}  # as the file writes it, not true and false
    for query in ("age>64", "icd=J*", "interviewed>=01.07.2023", "smoker=Y, sex=F"):
        assert "in the true table, with confidence 0.95" in told[query]
    assert "mean(age) | sex=F" in told["estimates"]
    assert "C(sex)[T.M]" in told["regression"]
    assert (tmp_path / "age.svg").read_text().startswith("<svg")


def test_researcher(tmp_path, journey):
    told = journey("researcher").main(tmp_path)
    assert [list(schema.domain) for schema in told["schemas"]] == [["a", "b", "c", "d"], ["a"], ["SEX"], ["AGEP"]]
    assert all(1 < len(value._repr_html_()) < 20_000 for value in told["shown"])
    errors = told["errors"]
    assert set(errors) == set(us.MECHANISMS)
    assert errors["mst"] < errors["independent"]
    assert us.Ledger().total("journey-researcher").runs == len(us.MECHANISMS)
