"""Office files: labels become a schema, rows are read the same whatever the others hold, errors quote nothing."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.bundle import make_bundle
from understudy.errors import InputError, SchemaError
from understudy.source.office import OfficeVariable, apply_labels, import_variables, read_office, read_variables
from understudy.source.read import read_table

pyreadstat = pytest.importorskip("pyreadstat")
openpyxl = pytest.importorskip("openpyxl")

SCHEMA = us.Schema.from_dict(
    {
        "fields": [
            {"name": "sex", "type": "integer", "categories": [1, 2, 3], "understudy": {"missing": {"-9": "refused"}}},
            {"name": "town", "type": "string", "categories": ["Bonn", "Ulm"]},
            {
                "name": "income",
                "type": "number",
                "constraints": {"minimum": 0, "maximum": 10},
                "understudy": {"bins": 5},
            },
            {"name": "born", "type": "date", "constraints": {"minimum": "1990-01-01", "maximum": "1999-12-31"}},
        ],
        "understudy": {"privacy_unit": "row"},
    }
)
FRAME = pd.DataFrame(
    {
        "sex": [1.0, 2.0, -9.0, np.nan],
        "town": ["Bonn", "Ulm", "", "Bonn"],
        "income": [0.5, 9.25, np.nan, 3.0],
        "born": [dt.date(1990, 1, 2), dt.date(1999, 12, 31), None, dt.date(1995, 5, 5)],
    }
)
LABELS = {"sex": {1: "male", 2: "female", 3: "other", -9: "no answer"}}


@pytest.fixture
def files(tmp_path):
    titles = {"sex": "Sex of respondent"}
    pyreadstat.write_sav(
        FRAME, tmp_path / "t.sav", column_labels=titles, variable_value_labels=LABELS, missing_ranges={"sex": [-9]}
    )
    pyreadstat.write_dta(FRAME, tmp_path / "t.dta", column_labels=titles, variable_value_labels=LABELS)
    book = openpyxl.Workbook()
    for row in [list(FRAME.columns), *FRAME.astype(object).where(FRAME.notna(), None).to_numpy().tolist()]:
        book.active.append([cell if cell != "" else None for cell in row])
    book.save(tmp_path / "t.xlsx")
    return tmp_path


def codes(table):
    return {name: array.tolist() for name, array in SCHEMA.encode(table).codes.items()}


class TestRows:
    @pytest.mark.parametrize("ending", ["sav", "dta", "xlsx"])
    def test_are_coded_as_those_of_a_frame(self, files, ending):
        assert codes(read_table(files / f"t.{ending}", SCHEMA)) == codes(FRAME)

    @pytest.mark.parametrize("ending", ["sav", "dta", "xlsx"])
    def test_a_cell_is_read_whatever_the_others_hold(self, files, ending):
        """The first two rows alone, where every number is whole and nothing is missing."""
        whole = codes(read_table(files / f"t.{ending}", SCHEMA))
        alone = FRAME.iloc[:2].assign(income=[0.5, 9.25])
        path = files / f"alone.{ending}"
        if ending == "xlsx":
            book = openpyxl.Workbook()
            for row in [list(alone.columns), *alone.astype(object).to_numpy().tolist()]:
                book.active.append(row)
            book.save(path)
        else:
            (pyreadstat.write_sav if ending == "sav" else pyreadstat.write_dta)(alone, path)
        assert codes(read_table(path, SCHEMA)) == {name: found[:2] for name, found in whole.items()}

    @pytest.mark.parametrize("odd", [1e16, -1e13, 1e300])
    @pytest.mark.parametrize("form", ["DATE11", "DATETIME20", "TIME8"])
    def test_a_date_that_no_calendar_holds_is_an_empty_cell_and_the_others_are_read(self, tmp_path, form, odd):
        numbers = [1.3e10, 1.31e10 + 0.25, np.nan]
        for name, cells in (("alone", numbers), ("beside", [*numbers, odd])):
            pyreadstat.write_sav(pd.DataFrame({"d": cells}), tmp_path / f"{name}.sav", variable_format={"d": form})
        alone, beside = (read_office(tmp_path / f"{name}.sav", ["d"])["d"] for name in ("alone", "beside"))
        assert beside.type == alone.type
        assert beside.to_pylist() == [*alone.to_pylist(), None]
        theirs, _ = pyreadstat.read_sav(tmp_path / "alone.sav", output_format="dict")
        assert alone.to_pylist()[:2] == list(theirs["d"][:2])

    @pytest.mark.parametrize(
        ("form", "number"), [("%td", 12_345.0), ("%tc", 1.4e12 + 250), ("%tcHH:MM:SS", 3_723_000.0), ("%9.0g", 1.5)]
    )
    def test_statas_dates_are_read_as_its_reader_reads_them(self, tmp_path, form, number):
        path = tmp_path / "t.dta"
        pyreadstat.write_dta(pd.DataFrame({"d": [number, -number]}), path, variable_format={"d": form})
        theirs, _ = pyreadstat.read_dta(path, output_format="dict")
        assert read_office(path, ["d"])["d"].to_pylist() == list(theirs["d"])

    def test_excel_numbers_follow_the_decimal_mark(self, files):
        assert read_office(files / "t.xlsx", ["income"], decimal=",")["income"].to_pylist()[:2] == ["0,5", "9,25"]

    @pytest.mark.parametrize("ending", ["sav", "dta", "xlsx"])
    def test_only_needed_columns_are_read(self, files, ending):
        schema = us.Schema(SCHEMA.columns[:1])
        assert read_table(files / f"t.{ending}", schema).column_names == ["sex"]

    @pytest.mark.parametrize("ending", ["sav", "dta", "xlsx"])
    def test_make_a_release(self, files, ending):
        release = us.synthesize(files / f"t.{ending}", SCHEMA, epsilon=1, delta=1e-6, mechanism="independent")
        assert release.sample(5).num_columns == 4


class TestLabels:
    def test_are_read_without_rows(self, files, monkeypatch):
        whole = pyreadstat.read_sav

        def watched(*arguments, **options):
            assert options["metadataonly"]
            return whole(*arguments, **options)

        monkeypatch.setattr(pyreadstat, "read_sav", watched)
        sex, town, *_ = read_variables(files / "t.sav")
        assert sex == OfficeVariable("sex", "Sex of respondent", LABELS["sex"], [-9.0], sex.measure)
        assert town.values == {}

    def test_become_categories_whether_they_occur_or_not(self, files):
        field = apply_labels(
            {
                "name": "sex",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 5},
                "understudy": {"status": "draft"},
            },
            read_variables(files / "t.sav")[0],
        )
        assert field["categories"] == [
            {"value": 1, "label": "male"}, {"value": 2, "label": "female"}, {"value": 3, "label": "other"},
        ]  # fmt: skip
        assert field["understudy"] == {"status": "draft", "missing": {"-9": "no answer"}}
        assert "constraints" not in field
        us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})

    def test_of_missing_codes_alone_leave_a_number_a_number(self):
        drafted = {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}}
        field = apply_labels(drafted, OfficeVariable("age", "Age", {-8.0: "does not know"}, [-8.0]))
        assert field["constraints"] == drafted["constraints"]
        assert field["understudy"]["missing"] == {"-8": "does not know"}
        scale = apply_labels(drafted, OfficeVariable("age", "Age", {0.0: "none", 98.0: "98 or more"}, (), "scale"))
        assert scale["type"] == "integer"
        assert "categories" not in scale

    def test_ordinal_and_text(self):
        field = apply_labels({"name": "a"}, OfficeVariable("a", "", {"x": "ex", "y": "why"}, (), "ordinal"))
        assert field["categoriesOrdered"] is True
        assert field["type"] == "string"

    def test_import_lists_gaps(self, files):
        imported = import_variables(read_variables(files / "t.dta"))
        assert imported.content["fields"][0]["title"] == "Sex of respondent"
        assert [gap.split(":")[0] for gap in imported.gaps] == [
            "`privacy_unit`", "column 'town'", "column 'income'", "column 'born'",
        ]  # fmt: skip


class TestCommands:
    def run(self, *arguments):
        from typer.testing import CliRunner

        from understudy.cli import app

        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    @pytest.mark.parametrize("ending", ["sav", "dta", "xlsx"])
    def test_draft(self, files, ending):
        if ending == "xlsx":  # a draft of four rows has nothing to go by
            book = openpyxl.load_workbook(files / "t.xlsx")
            for row in list(book.active.values)[1:] * 40:
                book.active.append(row)
            book.save(files / "t.xlsx")
        done = self.run("schema", "draft", files / f"t.{ending}", "-o", files / "s.json", "--unit", "row", "--json")
        assert done.exit_code == 0, done.output
        draft = json.loads((files / "s.custodian-only.json").read_text())
        fields = {field["name"]: field for field in draft["fields"]}
        assert list(fields) == list(FRAME.columns)
        if ending != "xlsx":
            assert fields["sex"]["title"] == "Sex of respondent"
            assert {"value": 3, "label": "other"} in fields["sex"]["categories"]
        us.Schema.from_dict({key: value for key, value in draft.items() if key != "description"})

    def test_a_draft_leaves_out_what_has_no_name(self, tmp_path):
        book = openpyxl.Workbook()
        for row in (["a", "b"], *([[i % 2, i % 3] for i in range(99)]), [0, 1, None, "SECRET-9137: ask again"]):
            book.active.append(row)
        book.save(tmp_path / "t.xlsx")
        done = self.run("schema", "draft", tmp_path / "t.xlsx", "-o", tmp_path / "s.yaml", "--unit", "row")
        assert (done.exit_code, "SECRET" in done.output) == (0, False), done.output
        assert "2 of the file's columns, which have no name" in " ".join(done.output.split())

    def test_import(self, files):
        done = self.run("schema", "import", files / "t.sav", "-o", files / "s.json", "--unit", "row", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads((files / "s.json").read_text())["fields"][0]["categories"][0]["label"] == "male"


class TestRoundTrip:
    @pytest.mark.parametrize("ending", ["sav", "dta"])
    def test_of_a_bundle(self, files, tmp_path, ending):
        """Rows that go out as an office file come back as the same codes."""
        release = us.synthesize(FRAME.loc[[0, 1, 3] * 100], SCHEMA, epsilon=5, delta=1e-6)
        folder = make_bundle(release, tmp_path / "b", rows=200, seed=1, formats=["parquet", ending]).folder
        back = read_table(folder / f"rows.{ending}", SCHEMA)
        assert codes(back) == codes(pq.read_table(folder / "rows.parquet"))


class TestRefusals:
    @pytest.mark.parametrize("ending", ["sav", "dta", "xlsx"])
    def test_damaged(self, tmp_path, ending):
        path = tmp_path / f"t.{ending}"
        path.write_bytes(b"SECRET-9137" * 20)
        with pytest.raises(InputError, match="damaged") as caught:
            read_table(path, SCHEMA)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None

    @pytest.mark.parametrize("ending", ["sav", "dta", "xlsx"])
    def test_missing_column(self, files, ending):
        schema = us.Schema.from_domain({"nowhere": 3})
        with pytest.raises(SchemaError, match="nowhere"):
            read_table(files / f"t.{ending}", schema)

    def test_no_file(self, tmp_path):
        with pytest.raises(InputError, match="no such file"):
            read_variables(tmp_path / "t.sav")

    def test_a_sheet_without_names(self, tmp_path):
        openpyxl.Workbook().save(tmp_path / "t.xlsx")
        with pytest.raises(InputError, match="must name the columns"):
            read_table(tmp_path / "t.xlsx", SCHEMA)

    def test_a_note_next_to_the_table_fails_nothing(self, tmp_path):
        """One row would decide whether anything is made of the others."""
        book = openpyxl.Workbook()
        for row in (["a", None, "b"], [1, None, 2], [0, "?", 1, None, "SECRET-9137: ask again"]):
            book.active.append(row)
        book.save(tmp_path / "t.xlsx")
        schema = us.Schema.from_domain({"a": 2, "b": 3})
        assert read_table(tmp_path / "t.xlsx", schema).to_pydict() == {"a": ["1", "0"], "b": ["2", "1"]}

    def test_rows_that_end_early_are_filled_up(self, tmp_path):
        book = openpyxl.Workbook()
        book.active.append(["a", "b"])
        book.active.append([1])
        book.save(tmp_path / "t.xlsx")
        assert read_office(tmp_path / "t.xlsx", ["a", "b"]).to_pylist() == [{"a": "1", "b": None}]

    def test_a_cell_of_another_type_is_not_quoted(self, files, monkeypatch):
        whole = pyreadstat.read_dta

        def broken(*arguments, **options):
            columns, meta = whole(*arguments, **options)
            return (columns | {"income": ["SECRET-9137"]} if isinstance(columns, dict) else columns), meta

        monkeypatch.setattr(pyreadstat, "read_dta", broken)
        with pytest.raises(InputError, match="export the file again") as caught:
            read_table(files / "t.dta", SCHEMA)
        assert "SECRET" not in str(caught.value)

    def test_what_to_install(self, files, monkeypatch):
        monkeypatch.setattr("understudy.source.office.find_spec", lambda _: None)
        with pytest.raises(InputError, match=r"understudy\[office\]"):
            read_variables(files / "t.sav")


@pytest.mark.parametrize("kind", ["sav", "dta", "old dta"])
def test_a_text_with_a_byte_outside_of_the_encoding_fails_no_run_and_changes_no_other(tmp_path, kind):
    """A failure would tell everybody about that row."""
    name, old = "stadt" if kind == "old dta" else "städte", kind == "old dta"
    frame = pd.DataFrame({name: ["Koln", "Ulm", "WXYZ"], "n": [1.0, 2.0, 3.0]})
    path = tmp_path / f"t.{kind[-3:]}"
    if kind == "sav":
        pyreadstat.write_sav(frame, path)
    else:
        pyreadstat.write_dta(frame, path, version=13 if old else 15)
    written = "Köln".encode("windows-1252") if old else "Kön".encode()  # as long as the text in its place
    path.write_bytes(path.read_bytes().replace(b"WXYZ", b"W\x81\x8dZ").replace(b"Koln", written))
    rows = read_office(path, [name, "n"])
    *others, odd = rows[name].to_pylist()
    assert others == [written.decode("windows-1252" if old else "utf-8"), "Ulm"]
    assert odd.startswith("W\ufffd")
    assert rows["n"].to_pylist() == [1.0, 2.0, 3.0]
