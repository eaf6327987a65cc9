"""The example tables: each from its file to a report with one command, and no rule of its schema broken on the way."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest

from understudy.schema import Schema

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
TABLES = {
    "adult": "raw/adult_raw",
    "diabetes": "raw/diabetic_data",
    "sd2011": "raw/sd2011",
    "acs_national2019": "sdnist/national2019",
    "acs_temporal2020": "nist2020/acs_temporal_match2",
}
MOST = 20_000  # rows of each table that the test uses


def one_value(rows, given, determined, known=None):
    kept = rows if known is None else rows[known]
    return (kept[determined].fillna("?").groupby(kept[given]).nunique() <= 1).all()


def adult(rows):
    return one_value(rows, "education", "education-num", rows["education"] != "other")


def sd2011(rows):
    married, ended = (pd.to_numeric(rows[name], errors="coerce") for name in ("ymarr", "ysepdiv"))
    both = (married > 0) & (ended > 0)
    return (married[both] <= ended[both]).all() and one_value(rows, "age", "agegr", rows["age"].notna())


def national(rows):
    married = pd.to_numeric(rows["MSP"], errors="coerce").notna()
    young = pd.to_numeric(rows["AGEP"], errors="coerce") <= 14
    return not (married & young).any() and one_value(rows, "PUMA", "DENSITY", rows["PUMA"] != "other")


def temporal(rows):
    general = rows["EMPSTATD"].map(lambda code: (code > 0) + (code > 6) + (code > 9))
    force = rows["EMPSTAT"].map({0: 0, 1: 2, 2: 2, 3: 1})
    return (
        (general == rows["EMPSTAT"]).all()
        and (force == rows["LABFORCE"]).all()
        and (rows["DEPARTS"] <= rows["ARRIVES"]).all()
    )


CHECKS = {"adult": adult, "sd2011": sd2011, "acs_national2019": national, "acs_temporal2020": temporal}


def run_file_of(name, tmp_path):
    table = DATA / f"{TABLES[name]}.csv.gz"
    content = (ROOT / "examples" / name / "run.yaml").read_text().replace(table.name, "table.csv")
    (tmp_path / "run.yaml").write_text(content)
    (tmp_path / "schema.yaml").write_text((ROOT / "examples" / name / "schema.yaml").read_text())
    with gzip.open(table, "rt", encoding="utf-8", newline="") as source:
        (tmp_path / "table.csv").write_text("".join(islice(source, MOST + 1)))
    return tmp_path / "run.yaml"


@pytest.mark.tables
@pytest.mark.parametrize("name", TABLES)
def test_one_command_goes_from_the_file_to_the_report(name, tmp_path, monkeypatch, call):
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "ledger.db"))
    file = run_file_of(name, tmp_path)
    code, _, err = call("run", file, "-o", tmp_path / "out", "--quiet")
    assert code == 0, err
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    schema = Schema.load(tmp_path / "schema.yaml")
    rows = pd.read_csv(tmp_path / "out" / "rows.csv", low_memory=False)
    assert set(rows.columns) == {column.name for column in schema.columns if column.kind != "drop"}
    assert len(rows) > 2000
    assert CHECKS.get(name, lambda rows: True)(rows)


@pytest.mark.parametrize("name", TABLES)
def test_every_example_has_a_schema_and_a_run_file_that_belong_together(name):
    folder = ROOT / "examples" / name
    assert Schema.load(folder / "schema.yaml").domain
    content = (folder / "run.yaml").read_text()
    assert "schema: schema.yaml" in content
    assert f"data: {TABLES[name].split('/')[1]}.csv.gz" in content
    assert f"understudy run examples/{name}/run.yaml" in (ROOT / "examples" / "README.md").read_text()
