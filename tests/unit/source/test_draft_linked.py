"""Drafts of linked tables: keys, references and caps are found, and a person reviews every column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.errors import InputError
from understudy.schema.linked import LinkedSchema
from understudy.source.draft_linked import LinkedDraft, _cap, draft_tables
from understudy.testing.linked import clinic_rows


def write(folder: Path, tables: dict[str, Any]) -> LinkedDraft:
    folder.mkdir(exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return draft_tables(folder)


def keys_of(draft: LinkedDraft) -> dict[str, list[dict[str, Any]]]:
    return {one["name"]: one["schema"].get("foreignKeys", []) for one in draft.content["resources"]}


def test_keys_references_and_caps_of_three_levels_are_proposed(tmp_path: Path) -> None:
    tables = clinic_rows(200)
    draft = write(tmp_path / "clinic", tables)
    keys = keys_of(draft)
    assert list(keys) == ["patients", "visits", "diagnoses"]
    assert [one["schema"].get("primaryKey") for one in draft.content["resources"]] == ["patient_id", "visit_id", None]
    (visits,), (diagnoses,) = keys["visits"], keys["diagnoses"]
    assert visits["reference"] == {"resource": "patients", "fields": ["patient_id"]}
    assert diagnoses["fields"] == ["patient_id", "visit_id"]
    assert diagnoses["reference"] == {"resource": "visits", "fields": ["patient_id", "visit_id"]}
    sizes = np.unique(tables["visits"]["patient_id"].to_pylist(), return_counts=True)[1]
    cap = visits["understudy"]["max_children"]
    assert np.minimum(sizes, cap).sum() >= 0.975 * sizes.sum() > np.minimum(sizes, cap - 1).sum()
    schema = LinkedSchema.from_dict(draft.content)
    assert all(column.status == "draft" for one in schema.tables.values() for column in one.columns)
    assert draft.notes["diagnoses.visit_id"] == "the key of 'visits', fresh in synthetic rows"


def test_a_cap_keeps_nearly_all_rows() -> None:
    assert _cap(np.array([1] * 98 + [2, 2])) == 1
    assert _cap(np.array([1, 1, 2, 2, 60])) == 59
    assert _cap(np.array([10**6])) == 2520  # the most that a schema takes


def test_a_column_of_dates_orders_siblings_and_a_missing_root_key_is_an_assumption(tmp_path: Path) -> None:
    tables = clinic_rows(200)
    days = [np.datetime64("2024-01-01") + day for day in tables["visits"]["day"].to_pylist()]
    place = tables["visits"].column_names.index("day")
    tables["visits"] = tables["visits"].set_column(place, "seen", pa.array(np.array(days)))
    tables["diagnoses"] = tables["diagnoses"].drop_columns(["patient_id"])
    draft = write(tmp_path / "clinic", tables)
    keys = keys_of(draft)
    assert keys["visits"][0]["understudy"]["order"] == ["seen"]
    assert keys["diagnoses"][0]["understudy"]["unique"] is True
    assert any("no column with the key of 'patients'" in question for question in draft.questions)


def test_tables_without_a_common_key_are_refused(tmp_path: Path) -> None:
    tables = clinic_rows(50)
    renamed = ["visit_id", "whose", "day", "ward"]
    with pytest.raises(InputError, match="'patients' and 'visits': one table, the root"):
        write(tmp_path / "clinic", {"patients": tables["patients"], "visits": tables["visits"].rename_columns(renamed)})
    with pytest.raises(InputError, match="one CSV or Parquet file for each table"):
        draft_tables(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no rows to draft from"):
        write(tmp_path / "clinic", {**tables, "visits": tables["visits"].slice(0, 0)})


def test_a_draft_is_reviewed_table_by_table(tmp_path: Path) -> None:
    folder = tmp_path / "clinic"
    folder.mkdir()
    for name, table in clinic_rows(100).items():
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")

    def call(*words: str, keys: str = "") -> str:
        result = CliRunner().invoke(app, ["schema", *words], input=keys)
        assert result.exit_code == 0, result.output
        return result.output

    output, marked = tmp_path / "clinic.yaml", tmp_path / "clinic.custodian-only.yaml"
    drafted = call("draft", "--tables", str(folder), "-o", str(output))
    assert "CUSTODIAN ONLY" in drafted
    assert "`max_children: " in drafted
    assert "# draft: the key of 'patients', fresh in synthetic rows" in marked.read_text()
    left = call("review", str(output), "--accept", "patients.sex")
    assert "Still to review: patients.patient_id" in left
    assert "patients.sex" not in left
    assert "# draft: the key of 'patients'" in marked.read_text()
    shown = call("review", str(output), keys="r\na\na\na\nd\nr\n")
    assert "Table diagnoses, column 1 of" in shown
    assert "Every column is reviewed. Dropped: visits.ward." in shown
    text, schema = output.read_text(), LinkedSchema.load(output)
    assert "draft" not in text
    schema.require_reviewed()
    assert list(schema.tables) == ["patients", "visits", "diagnoses"]


def test_what_a_review_of_linked_tables_cannot_do_is_refused(tmp_path: Path) -> None:
    for name, table in clinic_rows(60).items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    output = str(tmp_path / "clinic.json")
    for words, said in (
        (["draft", "--tables", str(tmp_path), "--unit", "row", "-o", output], "leave out --unit"),
        (["draft", str(tmp_path), "--tables", str(tmp_path), "-o", output], "give either a table or --tables"),
        (["draft", "--tables", str(tmp_path), "-o", output], ""),
        (["review", output, "--unit", "row"], "the root is protected"),
        (["review", output, "--accept", "sex"], "write TABLE.COLUMN"),
    ):
        result = CliRunner().invoke(app, ["schema", *words])
        assert (result.exit_code == 0) == (not said), result.output
        assert said in result.output
