"""The bundle: the same rows in every format, labels, a codebook, a package that fits, and formulas made harmless."""

from __future__ import annotations

import csv
import io
import json
import re
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pyreadstat
import pytest

import understudy as us
from understudy.bundle import FORMATS, make_bundle
from understudy.bundle.codebook import describe_columns, format_codebook, make_table_schema
from understudy.bundle.rows import guard_cell, guard_table, is_formula, make_safe_names
from understudy.errors import OutputError, SettingError

from .conftest import people


@pytest.fixture(scope="session")
def made(survey, tmp_path_factory):
    return make_bundle(survey, tmp_path_factory.mktemp("b") / "out", seed=7, rows=500, formats=FORMATS, mark=True)


def pd_read(path):
    return (pyreadstat.read_dta if path.suffix == ".dta" else pyreadstat.read_sav)(path)


class TestRows:
    def test_every_format_has_the_same_rows(self, made):
        text = pd.read_csv(made.folder / "rows.csv", dtype=str, keep_default_na=False)
        typed = pq.read_table(made.folder / "rows.parquet").to_pandas()
        assert len(text) == len(typed) == made.rows == 500
        assert (text["region"].str.removeprefix("'") == typed["region"].fillna("")).all()
        assert (text["sex"].replace(["", "-9"], "0").astype(int) == typed["sex"].fillna(0)).all()
        assert (text["age"].replace(["", "-8"], "nan").astype(float).fillna(-1) == typed["age"].fillna(-1)).all()
        assert (pd.to_numeric(text["income"]).fillna(-1) == typed["income"].fillna(-1)).all()

    def test_missing_codes_are_missing_in_every_typed_format(self, made):
        text = pd.read_csv(made.folder / "rows.csv", dtype=str, keep_default_na=False)
        codes = (text["age"] == "-8").sum()
        assert codes > 0
        for found in (pq.read_table(made.folder / "rows.parquet").to_pandas(), pd_read(made.folder / "rows.dta")[0],
                      pd_read(made.folder / "rows.sav")[0]):  # fmt: skip
            assert found["age"].isna().sum() >= codes
            assert found["age"].min() >= 0

    def test_the_same_seed_gives_the_same_files(self, survey, tmp_path):
        folders = [make_bundle(survey, tmp_path / name, seed=1, rows=50).folder for name in ("a", "b")]
        for name in ("rows.csv", "rows.parquet", "codebook.csv", "datapackage.json", "README.md", "codebook.html"):
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()

    def test_without_a_seed_one_is_stated(self, survey, tmp_path):
        made = make_bundle(survey, tmp_path / "a", rows=20)
        again = make_bundle(survey, tmp_path / "b", rows=20, seed=made.seed)
        assert f"--seed {made.seed}" in (made.folder / "README.md").read_text()
        assert (made.folder / "rows.csv").read_bytes() == (again.folder / "rows.csv").read_bytes()

    def test_rows_are_marked_only_when_asked(self, made, survey, tmp_path):
        plain = make_bundle(survey, tmp_path / "a", rows=5, formats=["csv"])
        assert "synthetic" not in pa_csv.read_csv(plain.folder / "rows.csv").column_names
        assert set(pq.read_table(made.folder / "rows.parquet")["synthetic"].to_pylist()) == {1}

    @pytest.mark.parametrize("program", [sys.executable, "/no/such/python", "/bin/false"])
    def test_many_rows_are_written_by_two_processes_or_by_one_that_has_to(
        self, made, survey, tmp_path, monkeypatch, program
    ):
        monkeypatch.setattr("understudy.bundle.make.PROCESS_ROWS", 1)
        monkeypatch.setattr(sys, "executable", program)
        again = make_bundle(survey, tmp_path / "a", seed=7, rows=500, formats=FORMATS, mark=True)
        assert (again.files, again.renamed) == (made.files, made.renamed)
        for kind in ("dta", "sav"):
            one, other = (pd_read(bundle.folder / f"rows.{kind}") for bundle in (made, again))
            assert one[0].equals(other[0])
            assert one[1].variable_value_labels == other[1].variable_value_labels

    def test_parquet_carries_titles_and_labels(self, made):
        field = pq.read_schema(made.folder / "rows.parquet").field("sex")
        assert field.metadata[b"title"] == b"Sex"
        assert json.loads(field.metadata[b"labels"]) == {"1": "male", "2": "female"}

    def test_replicates(self, survey, tmp_path):
        folder = make_bundle(survey, tmp_path / "a", rows=30, replicates=2).folder
        tables = [pq.read_table(path) for path in sorted((folder / "replicates").iterdir())]
        assert [table.num_rows for table in tables] == [30, 30]
        assert not tables[0].equals(tables[1])
        assert "holds 2 tables" in (folder / "README.md").read_text()

    def test_the_release_in_it_is_whole(self, made, survey):
        loaded = us.Release.load(made.folder / "stand-in.release")
        assert loaded.receipt.guarantee() == survey.receipt.guarantee()


class TestOffice:
    def test_labels_and_missing_codes_survive(self, made):
        pyreadstat = pytest.importorskip("pyreadstat")
        frame, spss = pyreadstat.read_sav(made.folder / "rows.sav", user_missing=True)
        assert spss.variable_value_labels["sex"] == {1: "male", 2: "female"}
        assert spss.column_names_to_labels["age"] == "Age in years"
        assert spss.missing_ranges["sex"] == [{"lo": -9.0, "hi": -9.0}]
        typed = pq.read_table(made.folder / "rows.parquet").to_pandas()
        assert (frame["sex"].replace(-9, 0).fillna(0) == typed["sex"].fillna(0)).all()  # null in Parquet
        assert (frame["region"] == typed["region"].fillna("")).all()
        frame, stata = pyreadstat.read_dta(made.folder / "rows.dta")
        assert stata.variable_value_labels["employed"] == {0: "false", 1: "true"}
        assert [str(day) for day in frame["born"].dropna()] == [str(day) for day in typed["born"].dropna()]
        assert stata.column_names_to_labels["person_no"] == "person no"

    def test_names_that_are_not_allowed_are_reported(self, made):
        assert made.renamed["rows.dta"] == {"person no": "person_no"}
        assert "person no is `person_no`" in (made.folder / "README.md").read_text()

    def test_safe_names_are_short_and_distinct(self):
        names = make_safe_names(["x" * 40, "x" * 41, "_a", "A", "a", "größe"], 32)
        assert len({name.lower() for name in names.values()}) == 6
        assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,31}", name) for name in names.values())


class TestFormulas:
    @pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\uff1dA1"])
    def test_are_found(self, text):
        assert is_formula(text)
        assert guard_cell(text) == "'" + text

    @pytest.mark.parametrize("text", ["", "a", "-9", "+1.5", "-1e-3", "--", "1-2", "'=1", "-1,5"])
    def test_others_are_left_alone(self, text):
        assert not is_formula(text)

    def test_only_text_is_touched(self):
        import pyarrow as pa

        table = pa.table({"=a": ["=x", None, "y"], "n": [-1, -2, None]})
        safe, changed = guard_table(table)
        assert safe.to_pydict() == {"'=a": ["'=x", None, "y"], "n": [-1, -2, None]}
        assert changed == {"=a": ["=x"]}

    def test_are_reported(self, made):
        assert made.quoted == {"region": ["=East", "@West"]}
        assert "apostrophe" in (made.folder / "README.md").read_text()
        shown = {row[1] for row in csv.reader(io.StringIO((made.folder / "rows.csv").read_text()))}
        assert {"'=East", "'@West"} <= shown
        assert not {"=East", "@West"} & shown


class TestPackage:
    def test_describes_the_csv(self, made):
        package = json.loads((made.folder / "datapackage.json").read_text())
        resource = package["resources"][0]
        header = next(csv.reader(io.StringIO((made.folder / "rows.csv").read_text())))
        assert [field["name"] for field in resource["schema"]["fields"]] == header
        fields = {field["name"]: field for field in resource["schema"]["fields"]}
        assert fields["sex"]["missingValues"] == ["", "-9"]
        assert fields["region"]["categories"] == ["North", "'=East", "'@West", "other"]
        assert "understudy" not in fields["age"]
        assert resource["bytes"] == (made.folder / "rows.csv").stat().st_size
        assert {item["path"] for item in package["resources"]} == {f"rows.{kind}" for kind in FORMATS}


class TestCodebook:
    def test_names_every_value_with_its_noise(self, made, survey):
        lines = list(csv.DictReader(io.StringIO((made.folder / "codebook.csv").read_text())))
        sex = {line["value"]: line for line in lines if line["column"] == "sex"}
        assert sex["1"]["label"] == "male"
        assert sex["-9"]["missing"] == "refused"
        assert sex["1"]["origin"] == "from public documents"
        sigma = next(m.sigma for m in survey.measurements if m.clique == ("sex",))
        assert float(sex["1"]["noise"]) == pytest.approx(sigma, rel=0.01)
        assert int(sex["1"]["estimate"]) == pytest.approx((people()["sex"] == 1).sum(), abs=8 * sigma)
        assert {line["column"] for line in lines} == set(pq.read_schema(made.folder / "rows.parquet").names) - {
            "synthetic"
        }

    def test_is_a_dictionary_that_can_be_imported(self, made):
        from understudy.source.office import read_dictionary

        content = read_dictionary(made.folder / "codebook.csv").content
        assert content["fields"][0]["categories"][0] == {"value": 1, "label": "male"}

    def test_marks_merged_values(self):
        import numpy as np

        frame = pd.DataFrame({"a": np.repeat([0, 1, 2, 3], [900, 900, 1, 1])})
        with us.testing.insecure(1):  # one time in 200, noise lifts one of the two rare values over the limit
            release = us.synthesize(frame, us.Schema.from_domain({"a": 4}), epsilon=1, delta=1e-6)
        [column] = describe_columns(release)
        rare = [line for line in column.lines if line.remark]
        assert [line.value for line in rare] == ["2", "3"]
        assert format_codebook([column]).count("too rare") + format_codebook([column]).count("mostly noise") == 2

    def test_page_is_self_contained(self, made):
        page = (made.folder / "codebook.html").read_text()
        assert "http" not in page.replace("http://www.w3.org", "")
        assert "male" in page
        assert "=East" in page


class TestReadme:
    def test_says_what_matters(self, made, survey):
        page = (made.folder / "README.md").read_text()
        for words in (
            "Safe to compute",
            "Not safe",
            "Estimates and standard errors",
            "understudy infer stand-in.release",
            "read_parquet",
            "haven::read_sav",
            "use rows.dta",
        ):
            assert words in page
        assert survey.receipt.guarantee() in page
        assert max(len(line) for line in page.splitlines() if "measured together" not in line) < 200

    def test_its_python_runs(self, made, survey, tmp_path, monkeypatch, capsys):
        folder = make_bundle(survey, tmp_path / "a", rows=50, replicates=2).folder
        code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
        monkeypatch.chdir(folder)
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - the page's own example
        assert "estimate" in capsys.readouterr().out

    def test_tables_that_are_mostly_noise_are_not_called_safe(self, tmp_path):
        rng = np.random.default_rng(1)
        sizes = {"a": 2, "b": 2, "c": 40, "d": 40}
        frame = pd.DataFrame({name: rng.integers(0, size, 4000) for name, size in sizes.items()})
        with us.testing.insecure(1):
            given = {"epsilon": 1, "delta": 1e-6, "mechanism": "gaussian", "workload": "all-2way"}
            release = us.synthesize(frame, us.Schema.from_domain(sizes), **given)
        page = (make_bundle(release, tmp_path / "a").folder / "README.md").read_text()
        safe, unsafe = page.split("## Not safe")
        assert "measured together: a x b" in safe
        assert "c x d" not in safe
        assert re.search(r"measured tables whose noise alone .*c x d.* look more related than they are", unsafe)
        assert "Any relation between columns" not in page

    def test_columns_alone_are_said_to_be_unrelated(self, tmp_path):
        frame = pd.DataFrame({"a": [0, 1] * 50, "b": [0, 1] * 50})
        release = us.synthesize(
            frame, us.Schema.from_domain({"a": 2, "b": 2}), epsilon=1, delta=1e-6, mechanism="independent"
        )
        page = (make_bundle(release, tmp_path / "a").folder / "README.md").read_text()
        assert "Any relation between columns" in page


class TestRefusals:
    def test_a_folder_that_is_not_empty(self, survey, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "mine").write_text("")
        with pytest.raises(OutputError, match="choose another"):
            make_bundle(survey, tmp_path / "a")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]

    def test_an_empty_folder_is_fine(self, survey, tmp_path):
        (tmp_path / "a").mkdir()
        make_bundle(survey, tmp_path / "a", rows=5)
        assert (tmp_path / "a" / "README.md").exists()

    def test_no_parent(self, survey, tmp_path):
        with pytest.raises(OutputError, match="create it first"):
            make_bundle(survey, tmp_path / "no" / "a")

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"formats": ["xls"]}, "xls"),
            ({"formats": []}, "at least one"),
            ({"replicates": 1}, "at least 2"),
            ({"seed": -1}, "seed"),
        ],
    )
    def test_settings(self, survey, tmp_path, given, match):
        with pytest.raises(SettingError, match=match):
            make_bundle(survey, tmp_path / "a", **given)
        assert not list(tmp_path.iterdir())

    def test_a_failure_leaves_nothing(self, survey, tmp_path, monkeypatch):
        from understudy.bundle import make

        def fail(*_):
            raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")  # arrow's

        monkeypatch.setattr(make, "format_codebook", fail)
        with pytest.raises(OutputError, match=r"written .No space left on device.; make room"):
            make_bundle(survey, tmp_path / "a", rows=5)
        assert not list(tmp_path.iterdir())

    def test_a_column_called_synthetic(self, tmp_path):
        release = us.synthesize(
            pd.DataFrame({"synthetic": [0, 1] * 20}), us.Schema.from_domain({"synthetic": 2}), epsilon=1, delta=1e-6
        )
        with pytest.raises(SettingError, match="synthetic"):
            make_bundle(release, tmp_path / "a", mark=True)


def test_titles_and_names_stay_text_in_every_page(tmp_path):
    """A release may come from somebody else, and viewers of Markdown show HTML."""
    name = "<script>alert(1)</script>"
    fields = [{"name": name, "title": name, "type": "string", "categories": [{"value": name, "label": name}, "b"]}]
    fields += [{"name": "other", "type": "string", "categories": ["b", "c"]}]
    schema = us.Schema.from_dict({"title": f"a\n# {name}", "fields": fields, "understudy": {"privacy_unit": "row"}})
    frame = pd.DataFrame({name: [name, "b"] * 50, "other": ["b", "c"] * 50})
    made = make_bundle(us.synthesize(frame, schema, epsilon=50.0, delta=1e-6), tmp_path / "out", rows=5, seed=1)
    for page in made.folder.glob("*.[hm][td]*"):
        assert "<script>alert" not in page.read_text(), page.name
    assert "\n# &lt;script" not in (made.folder / "README.md").read_text()


def test_lengths_of_time_are_described_as_the_file_writes_them():
    field = {"name": "stay", "type": "duration", "constraints": {"minimum": 0, "maximum": "P1D"}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    made = us.synthesize(pa.table({"stay": [60, 3600]}), schema, rho=1.0, mechanism="independent", dataset="stays")
    (told,) = make_table_schema(made, mark=False)["fields"]
    assert told == {"name": "stay", "type": "integer", "title": "stay (seconds)"}
