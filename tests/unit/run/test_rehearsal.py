"""Rehearsals: the whole journey on rows made from the schema; nothing is spent, and everything says what it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pytest

import understudy as us
from understudy import errors, run
from understudy.planning.made_up import rehearsal_rows

PATIENTS = """
fields:
- {name: patient, understudy: {kind: id}}
- {name: ward, type: string, categories: [A, B, C], understudy: {missing: {unknown: not recorded}}}
- {name: age, type: integer, constraints: {minimum: 0, maximum: 99}, understudy: {bins: 10}}
- {name: note, understudy: {kind: drop}}
understudy: {privacy_unit: {column: patient, max_rows: 3}}
"""


@pytest.fixture
def schema(tmp_path):
    (tmp_path / "s.yaml").write_text(PATIENTS)
    return tmp_path / "s.yaml"


def test_rows_fit_the_schema_and_are_the_same_every_time(schema):
    loaded = us.Schema.load(schema)
    table = rehearsal_rows(loaded, 600, seed=3)
    assert table.equals(rehearsal_rows(loaded, 600, seed=3))
    assert not table.equals(rehearsal_rows(loaded, 600, seed=4))
    assert table.num_rows == 600
    encoded = loaded.encode(table)
    assert encoded.keep.all()
    for column, size in loaded.domain.items():
        assert len(np.unique(encoded.codes[column])) >= size - 1  # one code may stand for values that nobody declared


def test_units_have_one_row_up_to_their_limit(schema):
    units = rehearsal_rows(us.Schema.load(schema), 600)["patient"].to_pylist()
    assert set(np.unique(units, return_counts=True)[1]) == {1, 2, 3}


def test_columns_are_related(schema):
    codes = us.Schema.load(schema).encode(rehearsal_rows(us.Schema.load(schema), 2000)).codes
    assert np.corrcoef(codes["ward"], codes["age"])[0, 1] > 0.1


def test_the_declared_number_of_rows_is_the_default():
    schema = replace(us.Schema.from_domain({"a": 2, "b": 2}), rows=77)
    assert rehearsal_rows(schema).num_rows == 77


def test_the_whole_journey_costs_nothing_and_is_marked(schema, ledger_folder):
    out = schema.parent / "out"
    done = run.rehearse(schema, out, mechanism="independent", rows=200)
    assert done.status == "made"
    assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == {
        "rehearsal-stand-in.release", "rehearsal-rows.csv", "rehearsal-report.html",
    }  # fmt: skip
    assert list(ledger_folder.iterdir()) == []
    release = us.Release.load(out / "rehearsal-stand-in.release")
    assert release.receipt.rehearsal
    assert release.receipt.guarantee().startswith("NONE: a rehearsal")
    assert "NONE: a rehearsal" in release.receipt.text()
    assert "A rehearsal." in (out / "rehearsal-report.html").read_text()
    assert pa_csv.read_csv(out / "rehearsal-rows.csv").column_names == ["patient", "ward", "age"]
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run.rehearse(schema, out, mechanism="independent", rows=100).status == "made"  # free: it is made anew
    after = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {name for name in before if after[name] != before[name]} == set(before)
    assert list(ledger_folder.iterdir()) == []


def test_a_run_file_is_rehearsed_without_its_table(schema, ledger_folder, monkeypatch):
    monkeypatch.setattr("understudy.report.custodian_report", lambda release, real, **rest: str(real.num_rows))
    file = schema.parent / "run.yaml"
    file.write_text(
        "data: never-there.csv\nschema: s.yaml\nbudget: {rho: 1}\nmechanism: independent\n"
        "rows: 80\noutputs: {report: custodian, rows: parquet}"
    )
    out = schema.parent / "out"
    assert run.run(file, out, rehearse=True).summary["rehearsal"]
    assert (out / "rehearsal-report.custodian-only.html").read_text() == "80"
    assert list(ledger_folder.iterdir()) == []
    with pytest.raises(errors.OutputError, match="holds no run of this file"):
        run.run(file, out)


def test_a_real_release_says_nothing_of_rehearsals(tmp_path):
    frame = rehearsal_rows(us.Schema.from_domain({"a": 2, "b": 2}), 50)
    release = us.synthesize(frame, us.Schema.from_domain({"a": 2, "b": 2}), rho=1.0, mechanism="independent")
    assert not release.receipt.rehearsal
    assert "rehearsal" not in json.dumps(release.receipt.to_dict())


def test_the_command(schema, call, monkeypatch):
    monkeypatch.chdir(schema.parent)
    code, out, _ = call("rehearse", "s.yaml", "-m", "independent", "--rows", "50", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["rehearsal"], told["folder"]) == (True, "rehearsal-out")
    assert Path(told["reports"]["public"]).exists()


def test_facts_are_discovered_from_the_rows_of_the_rehearsal(tmp_path, ledger_folder):
    (tmp_path / "open.yaml").write_text(
        "understudy: {privacy_unit: row}\nfields:\n"
        "- {name: city, type: string, understudy: {values: discover}}\n"
        "- {name: age, type: integer, understudy: {bounds: discover}}\n"
        "- {name: born, type: date, understudy: {bounds: discover, bins: discover}}\n"
        "- {name: sex, type: string, categories: [f, m]}\n"
    )
    outcome = run.rehearse(tmp_path / "open.yaml", tmp_path / "out", epsilon=5, mechanism="independent")
    release = us.Release.load(outcome.summary["release"])
    assert release.receipt.rehearsal
    assert {charge.what for charge in release.receipt.charges} >= {"values", "bounds", "bins"}
    assert set(release.schema.column("city").values) >= {f"value {i}" for i in range(16)}
    assert list(ledger_folder.iterdir()) == []


def test_a_rehearsal_does_not_warn_of_values_that_were_made_up(tmp_path):
    """Made-up rows have any value, also unlisted ones."""
    (tmp_path / "schema.yaml").write_text(
        "fields:\n- {name: sex, type: string, categories: [F, M]}\n- {name: alive, type: string, categories: [Y, N]}\n"
        "understudy: {privacy_unit: row}\n"
    )
    done = run.rehearse(tmp_path / "schema.yaml", tmp_path / "out")
    release = us.Release.load(done.summary["release"])
    assert release.receipt.rehearsal
    assert not any("does not list" in note for note in release.notes)
