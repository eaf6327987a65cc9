"""Other tools' metadata, data dictionaries, and the types of frames."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
from understudy.schema.exchange import (
    from_domain,
    from_sdnist,
    from_sdv,
    from_smartnoise,
    json_form,
    to_sdv,
    to_sdv_tables,
    to_smartnoise,
)
from understudy.schema.linked import LinkedSchema
from understudy.source.office import read_dictionary
from understudy.testing.linked import clinic_package, clinic_schema

CONTENT = {
    "fields": [
        {"name": "pid", "understudy": {"kind": "id"}},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99, "required": True}},
        {
            "name": "height",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 2.5},
            "understudy": {"decimals": 2},
        },
        {"name": "sex", "type": "string", "categories": ["F", "M"]},
        {"name": "smokes", "type": "boolean"},
        {"name": "born", "type": "date", "constraints": {"minimum": "1900-01-01", "maximum": "2020-12-31"}},
        {"name": "secret", "understudy": {"kind": "drop"}},
    ],
    "understudy": {"privacy_unit": {"column": "pid", "max_rows": 3}, "rows": 5000},
}
SCHEMA = Schema.from_dict(CONTENT)


def test_sdv_metadata_round_trip_where_they_overlap():
    written = to_sdv(SCHEMA)
    assert "secret" not in written["columns"]
    imported = from_sdv(written)
    kinds = {f["name"]: f.get("type", f.get("understudy", {}).get("kind")) for f in imported.content["fields"]}
    assert kinds == {
        "pid": "id",
        "age": "integer",
        "height": "number",
        "sex": "string",
        "smokes": "boolean",
        "born": "date",
    }
    assert "column 'age': add `minimum` and `maximum`" in imported.gaps
    assert "column 'sex': add `categories`" in imported.gaps
    with pytest.raises(SchemaError, match="`minimum` is not declared"):
        Schema.from_dict(imported.content)


def test_sdv_metadata_of_one_of_many_tables_and_of_personal_data():
    table = {"columns": {"mail": {"sdtype": "email", "pii": True}, "x": {"sdtype": "shape"}}}
    assert [f["understudy"]["kind"] for f in from_sdv({"tables": {"t": table}}).content["fields"]] == ["drop", "drop"]
    assert "keep one root" in from_sdv({"tables": {"t": table, "u": table}}).gaps[0]
    with pytest.raises(SchemaError, match="save_to_json"):
        from_sdv({"rows": 1})


def test_smartnoise_metadata_round_trip_where_they_overlap():
    imported = from_smartnoise(to_smartnoise(SCHEMA, "people"))
    assert imported.content["understudy"] == {"privacy_unit": {"column": "pid", "max_rows": 3}}
    fields = {field["name"]: field for field in imported.content["fields"]}
    assert fields["age"] == {
        "name": "age",
        "type": "integer",
        "constraints": {"required": True, "minimum": 0, "maximum": 99},
    }
    assert fields["height"]["constraints"] == {"minimum": 0, "maximum": 2.5}
    assert fields["pid"]["understudy"] == {"kind": "id"}
    assert imported.gaps == ("column 'sex': add `categories`", "column 'born': add `minimum` and `maximum`")


def test_smartnoise_metadata_that_says_who_is_protected_or_not():
    table = {"age": {"type": "int", "lower": 0, "upper": 9}}
    assert from_smartnoise({"": {"s": {"t": table}}}).gaps[0].startswith("`privacy_unit`")
    assert from_smartnoise({"": {"s": {"t": {"row_privacy": True, **table}}}}).content["understudy"] == {
        "privacy_unit": "row"
    }
    for broken in ({}, {"": {"s": {"t": table, "u": table}}}, {"": {"s": {"t": 3}}}, {"": {"s": {}, "r": {}}}):
        with pytest.raises(SchemaError, match=r"keep one table|indentation"):
            from_smartnoise(broken)


# -- data dictionaries -----------------------------------------------------------------------------------------------

LINES = [
    ["Variable", "Code", "Label", "Missing"],
    ["SEX", "1", "Male", ""],
    ["", "2", "Female", ""],
    ["", "9", "", "refused"],
    ["STATE", "01", "Alabama", ""],
    ["STATE", "02", "Alaska", ""],
    ["AGE", "17..90", "years", ""],
    ["AGE", "0", "newborn", ""],
    ["NOTES", "", "", ""],
]


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_a_dictionary_becomes_a_schema_without_rows(tmp_path, suffix):
    path = tmp_path / f"dictionary.{suffix}"
    if suffix == "xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for line in LINES:
            book.active.append([int(cell) if cell in ("0", "1", "2", "9") else cell or None for cell in line])
        book.save(path)
    else:
        path.write_text("\n".join(",".join(line) for line in LINES), encoding="utf-8-sig")
    imported = read_dictionary(path)
    fields = {field["name"]: field for field in imported.content["fields"]}
    assert fields["SEX"]["type"] == "integer"
    assert fields["SEX"]["categories"] == [{"value": 1, "label": "Male"}, {"value": 2, "label": "Female"}]
    assert fields["SEX"]["understudy"] == {"missing": {"9": "refused"}}
    assert fields["STATE"]["categories"][0] == {"value": "01", "label": "Alabama"}
    assert fields["AGE"]["constraints"] == {"minimum": 0, "maximum": 90}
    assert fields["AGE"]["understudy"]["spikes"] == [0]
    assert [gap.split(":")[0] for gap in imported.gaps] == ["`privacy_unit`", "column 'NOTES'"]
    content = imported.content | {"understudy": {"privacy_unit": "row"}}
    content["fields"] = [field for field in content["fields"] if field["name"] != "NOTES"]
    assert Schema.from_dict(content).column("SEX").labels == {"1": "Male", "2": "Female"}


def test_a_dictionary_that_cannot_be_read(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.xlsx").write_bytes(b"no zip")
    (tmp_path / "c.csv").write_text("\n")
    for name, remedy in (
        ("a.csv", "rename the headings"),
        ("b.xlsx", "save it again"),
        ("c.csv", "at least one line"),
        ("d.csv", "check the path"),
    ):
        with pytest.raises(InputError, match=remedy):
            read_dictionary(tmp_path / name)


# -- the same types out as went in -----------------------------------------------------------------------------------


def test_types_follow_the_schema():
    back = SCHEMA.decode({part: np.zeros(3, int) for part in SCHEMA.domain}, np.random.default_rng(0), as_="polars")
    assert back.schema == {
        "pid": pl.Int64,
        "age": pl.Int64,
        "height": pl.Float64,
        "sex": pl.String,
        "smokes": pl.Boolean,
        "born": pl.Date,
    }


def test_an_unknown_frame_type_is_refused():
    with pytest.raises(InputError, match="use 'arrow', 'pandas' or 'polars'"):
        SCHEMA.decode({part: np.zeros(3, int) for part in SCHEMA.domain}, np.random.default_rng(0), as_="excel")


SDNIST = {
    "SEX": {"description": "Person's gender", "values": {"1": "Male", "2": "Female"}},
    "NOC": {"description": "Own children", "values": {"N": "N/A", "0": "None", "min": 1, "max": 19}},
    "INDP": {"description": "Industry codes"},
}
NESTED = {
    "schema": {
        "AGEP": {"dtype": "int64", "min": 0, "max": 95},
        "MSP": {"has_null": True, "null_value": "N", "dtype": "object", "values": ["N", "1", "2"]},
        "DENSITY": {"dtype": "float64", "min": 16, "max": 52864},
    }
}


def test_dictionaries_of_sdnist_are_imported():
    flat = from_sdnist(SDNIST)
    sex, noc, _ = flat.content["fields"]
    assert sex["categories"] == [{"value": "1", "label": "Male"}, {"value": "2", "label": "Female"}]
    assert noc["constraints"] == {"minimum": 0, "maximum": 19}
    assert noc["understudy"] == {"missing": {"N": "N/A"}}
    assert [gap.split(":")[0] for gap in flat.gaps] == ["`privacy_unit`", "column 'INDP'"]
    content = from_sdnist(NESTED).content
    schema = Schema.from_dict(content | {"understudy": {"privacy_unit": "row"}})
    assert [column.kind for column in schema.columns] == ["integer", "categorical", "number"]
    assert content["fields"][1]["categories"] == ["1", "2"]


@pytest.mark.parametrize(
    "parsed",
    [
        {"age": 85, "sex": 2},
        {"domain": {"age": 85, "sex": 2}},
        {"attributes": ["age", "sex"], "shape": [85, 2]},
        {"age": {"type": "discrete", "domain": 85}, "sex": {"type": "discrete", "domain": 2}},
    ],
)
def test_domains_are_imported(parsed):
    assert json_form(parsed) == "domain"
    content = from_domain(parsed).content
    schema = Schema.from_dict(content | {"understudy": {"privacy_unit": "row"}})
    assert dict(schema.domain) == dict(Schema.from_domain({"age": 85, "sex": 2}).domain)


def test_json_is_recognised_by_its_content():
    assert [json_form(parsed) for parsed in (SDNIST, NESTED, {"a": 2}, {"tables": {}}, {"columns": {}}, [])] == [
        "sdnist",
        "sdnist",
        "domain",
        "sdv",
        "sdv",
        "sdv",
    ]
    with pytest.raises(InputError):
        from_domain({"a": "x"})
    with pytest.raises(InputError):
        from_sdnist({"a": 1})


def test_sdv_metadata_of_linked_tables_round_trip_where_they_overlap() -> None:
    written = to_sdv_tables(clinic_schema())
    assert written["tables"]["visits"]["primary_key"] == "visit_id"
    assert written["relationships"][1] == {
        "parent_table_name": "visits",
        "parent_primary_key": "visit_id",
        "child_table_name": "diagnoses",
        "child_foreign_key": "visit_id",
    }
    imported = from_sdv(written)
    content = imported.content
    assert content["understudy"] == {"privacy_unit": {"table": "patients"}}
    assert sum("add `max_children`" in gap for gap in imported.gaps) == 2
    assert any("'diagnoses': refer to the root's key" in gap for gap in imported.gaps)
    with pytest.raises(SchemaError, match="max_children"):
        LinkedSchema.from_dict(content)
    for resource, true in zip(content["resources"], clinic_package()["resources"], strict=True):  # what a person adds
        resource["schema"]["fields"] = true["schema"]["fields"]
        for key, other in zip(
            resource["schema"].get("foreignKeys", []), true["schema"].get("foreignKeys", []), strict=True
        ):
            key |= other
    assert LinkedSchema.from_dict(content).to_dict()["resources"] == clinic_schema().to_dict()["resources"]
    two = {**written["relationships"][0], "child_table_name": "diagnoses"}
    both = from_sdv(written | {"relationships": [*written["relationships"], two]})
    assert any("'diagnoses' belongs to 2 tables" in gap for gap in both.gaps)
    with pytest.raises(SchemaError, match="relationship"):
        from_sdv(written | {"relationships": [{}]})


def test_linked_schemas_are_imported_and_exported_by_commands(tmp_path: Path) -> None:
    clinic_schema().save(tmp_path / "clinic.yaml")

    def call(*arguments: str) -> str:
        return CliRunner().invoke(app, ["schema", *arguments]).output

    assert "sdv metadata" in call("export", str(tmp_path / "clinic.yaml"), "-o", str(tmp_path / "sdv.json"))
    found = call("import", str(tmp_path / "sdv.json"), "-o", str(tmp_path / "again.yaml"))
    assert "Schema of 3 linked tables with 11 columns" in found
    assert "leave it out" in call("import", str(tmp_path / "sdv.json"), "-o", str(tmp_path / "x.yaml"), "--unit", "row")
    smartnoise = ("--format", "smartnoise", "-o", str(tmp_path / "y.yaml"))
    assert "sdv only" in call("export", str(tmp_path / "clinic.yaml"), *smartnoise)
