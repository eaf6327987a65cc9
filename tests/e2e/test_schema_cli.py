"""``understudy schema`` from a table to a release: draft, review, check, import, export; and the example schemas."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
import yaml
from typer.testing import CliRunner

from understudy.cli import app
from understudy.schema import Schema
from understudy.schema.custodian import MARK

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DATA = ROOT.parent / "shared" / "data"
TABLES = {
    "adult": "raw/adult_raw.csv.gz",
    "diabetes": "raw/diabetic_data.csv.gz",
    "sd2011": "raw/sd2011.csv.gz",
    "german_credit": "raw/german_credit.data.gz",
    "acs_national2019": "sdnist/national2019.csv.gz",
}


def run(*arguments, answers=None, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=answers)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def people(tmp_path):
    """A table as Excel exports it in a country with decimal commas."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "patient_id": rng.integers(1000, 1200, 600),
            "zip": rng.choice(["01001", "75001", "99999"], 600, p=[0.5, 0.49, 0.01]),
            "age": rng.integers(18, 95, 600),
            "height": [f"{value:.2f}".replace(".", ",") for value in rng.normal(1.7, 0.1, 600)],
            "joined": [f"{day:02d}/{month:02d}/2020" for day, month in rng.integers(1, 12, (600, 2))],
        }
    )
    path = tmp_path / "people.csv"
    frame.to_csv(path, sep=";", index=False, encoding="utf-8-sig")
    return path


def test_what_shows_rows_is_for_its_owner_alone(people, tmp_path):
    before = os.umask(0)
    try:
        run("schema", "draft", people, "-o", tmp_path / "people.yaml", "--unit", "row")
        draft = tmp_path / "people.custodian-only.yaml"
        names = [column.name for column in Schema.load(draft).columns]
        run("schema", "review", draft, "--accept", names[0], "-o", tmp_path / "half.yaml")
        run("schema", "review", draft, *(f"--accept={name}" for name in names), "-o", tmp_path / "all.yaml")
        run("schema", "check", tmp_path / "all.yaml", people, "-o", tmp_path / "fit.json", "-q")
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("*.[yj]*")}
    private = ("people.custodian-only.yaml", "half.custodian-only.yaml", "fit.custodian-only.json")
    assert modes == {**dict.fromkeys(private, "0o600"), "all.yaml": "0o666"}


def test_from_a_table_to_a_release(people, tmp_path):
    schema = tmp_path / "people.yaml"
    told = run("schema", "draft", people, "-o", schema)
    draft = tmp_path / "people.custodian-only.yaml"
    assert MARK in told
    assert "patient_id" in told
    assert draft.read_text().startswith(f"# {MARK}")
    assert not schema.exists()

    refused = run(
        "synthesize", people, "--schema", draft, "--epsilon", 1, "--delta", 1e-9, "-o", tmp_path / "r", code=4
    )
    assert "understudy schema review" in refused
    assert not (tmp_path / "r").exists()

    told = run("schema", "check", schema, people)
    assert MARK in told
    assert "Not reviewed yet: patient_id, zip" in told

    told = run("schema", "review", schema, answers="patient_id:3\na\np\nl\na\nd\n")
    assert "Still to review: age." in told
    told = run("schema", "review", schema, "--accept", "age")
    assert "Every column is reviewed." in told
    reviewed = Schema.load(schema)
    assert reviewed.privacy_unit.max_rows == 3
    assert reviewed.column("joined").kind == "drop"
    assert {column.name for column in reviewed.columns if column.origin == "public"} == {"zip"}
    assert "custodian" not in schema.read_text().lower()

    run(
        "synthesize",
        people,
        "--schema",
        schema,
        "--epsilon",
        1,
        "--delta",
        1e-9,
        "-m",
        "independent",
        "-o",
        tmp_path / "r",
    )
    run("sample", tmp_path / "r", "-n", 50, "-o", tmp_path / "rows.csv")
    rows = pd.read_csv(tmp_path / "rows.csv", dtype=str, sep=None, engine="python")
    assert list(rows.columns) == ["patient_id", "zip", "age", "height"]
    assert set(rows["zip"].dropna()) <= {"01001", "75001", "other"}


def test_a_draft_states_the_unit_that_was_asked_for(people, tmp_path):
    run("schema", "draft", people, "-o", tmp_path / "s.json", "--unit", "patient_id:2", "-q")
    content = json.loads((tmp_path / "s.custodian-only.json").read_text())
    assert content["understudy"]["privacy_unit"] == {"column": "patient_id", "max_rows": 2}
    assert "patient_id:3" in run("schema", "draft", people, "-o", tmp_path / "s.yaml", "--unit", "nonsense", code=3)


@pytest.mark.parametrize("discover", [[], ["--discover"]])
def test_a_unit_that_is_not_a_column_is_refused(people, tmp_path, discover):
    told = run("schema", "draft", people, "-o", tmp_path / "s.yaml", "--unit", "patientid:2", *discover, code=3)
    assert "no such column; the columns are patient_id, zip" in told
    assert not list(tmp_path.glob("*.yaml"))


@pytest.fixture
def unsaid(people, tmp_path):
    """A draft of a table without a key: it does not --unit is missing."""
    pd.read_csv(people, sep=";", dtype=str)[["zip", "age"]].to_csv(tmp_path / "t.csv", index=False)
    assert "review` asks who is protected" in run("schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "s.yaml")
    return tmp_path / "s.yaml"


def test_nobody_is_protected_by_default(unsaid, tmp_path):
    """A row is not a person because nobody said anything."""
    marked = tmp_path / "s.custodian-only.yaml"
    before = marked.read_text()
    assert "privacy_unit" not in yaml.safe_load(before)["understudy"]
    assert "`privacy_unit` is not stated" in run("schema", "check", unsaid, tmp_path / "t.csv", code=4)
    assert "add --unit row" in run("schema", "review", unsaid, "--accept", "zip", "--accept", "age", code=3)
    assert "no such column" in run("schema", "review", unsaid, "--accept", "zip", "--unit", "zap:2", code=3)
    assert marked.read_text() == before
    run("schema", "review", unsaid, "--accept", "zip", "--accept", "age", "--unit", "row")
    assert Schema.load(unsaid).privacy_unit.column is None
    assert "--unit is missing" in run(
        "schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "d.yaml", "--discover", code=3
    )


def test_an_empty_answer_does_not_say_who_is_protected(unsaid):
    assert run("schema", "review", unsaid, answers="\nrow\na\na\n").count("Who is protected?") == 2
    assert Schema.load(unsaid).privacy_unit.column is None


def test_questions_leave_the_standard_output_to_the_answer(unsaid):
    command = [sys.executable, "-m", "understudy", "schema", "review", unsaid, "--json"]
    done = subprocess.run(command, input="nobody\nrow\nx\na\na\n", capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"schema": str(unsaid), "drafts": []}
    assert done.stderr.count("Error: ") == 2


def test_an_interrupted_review_keeps_the_answers(unsaid, tmp_path):
    marked = tmp_path / "s.custodian-only.yaml"
    before = marked.read_text()
    assert "interrupted" in run("schema", "review", unsaid, answers="", code=130)
    assert marked.read_text() == before
    told = run("schema", "review", unsaid, answers="age:2\na\n", code=130)
    assert "what you answered is kept. Still to review: age." in told
    kept = Schema.load(marked)
    assert kept.privacy_unit.max_rows == 2
    assert kept.column("age").kind == "id"
    assert [column.status for column in kept.columns] == ["reviewed", "draft"]


def test_a_review_shows_each_column_with_its_facts_and_keys(unsaid):
    told = run("schema", "review", unsaid, answers="row\nb\na\nr\n")
    assert told.count("Column 1 of 2: zip (categories)") == 2  # `b` on the first column shows it again
    assert "Column 2 of 2: age" in told
    assert "b  back to the previous column" in told
    assert "note" in told


def test_a_review_keeps_comments_but_not_what_the_draft_tells_of_the_rows(unsaid, tmp_path):
    marked = tmp_path / "s.custodian-only.yaml"
    marked.write_text(marked.read_text().replace("- name: age", "# agreed with the ethics board\n- name: age"))
    assert marked.read_text().count("# draft: ") == 2
    run("schema", "review", unsaid, answers="row\na\nl\n")
    kept = marked.read_text()
    assert kept.startswith("# CUSTODIAN ONLY")
    assert kept.count("# draft: ") == 2
    assert kept.count("# agreed with the ethics board") == 1
    assert marked.stat().st_mode & 0o77 == 0
    run("schema", "review", unsaid, answers="row\na\n")
    done = unsaid.read_text()
    assert "# agreed with the ethics board\n- name: age" in done
    assert "draft" not in done
    assert "CUSTODIAN" not in done


@pytest.mark.parametrize(
    ("answers", "rules", "stay"),
    [("a\na\na\ny\n", 1, "difference"), ("a\na\na\nn\n", 0, "difference"), ("d\na\na\n", 0, "drop")],
)
def test_a_proposed_rule_is_asked_about_and_goes_with_its_columns(tmp_path, answers, rules, stay):
    days = pd.Series(range(400)) * 7 % 300
    start = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
    frame = pd.DataFrame({"start": start, "end": start + pd.to_timedelta(days % 11, unit="D"), "stay": days % 11})
    frame.to_csv(tmp_path / "t.csv", index=False, date_format="%Y-%m-%d")
    run("schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "s.yaml", "--unit", "row")
    run("schema", "review", tmp_path / "s.yaml", "--unit", "row", answers=answers)
    schema = Schema.load(tmp_path / "s.yaml")
    assert (len(schema.rules), schema.column("stay").kind) == (rules, stay)


def test_a_parquet_table_can_be_drafted_and_checked(people, tmp_path):
    frame = pd.read_csv(people, sep=";", decimal=",", dtype={"zip": str})
    frame.to_parquet(tmp_path / "people.parquet")
    run("schema", "draft", tmp_path / "people.parquet", "-o", tmp_path / "s.yaml", "--unit", "row")
    told = run("schema", "check", tmp_path / "s.yaml", tmp_path / "people.parquet", "--json")
    assert json.loads(told)["rows"] == 600
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    assert "export the file again" in run(
        "schema", "draft", tmp_path / "broken.parquet", "-o", tmp_path / "x.yaml", code=3
    )


def test_a_check_is_written_under_a_marked_name(people, tmp_path):
    run("schema", "draft", people, "-o", tmp_path / "s.yaml", "-q")
    run("schema", "check", tmp_path / "s.yaml", people, "-o", tmp_path / "fit.json", "-q")
    content = json.loads((tmp_path / "fit.custodian-only.json").read_text())
    assert content["custodian_only"] == MARK
    assert content["units"][0] <= 200


def test_import_says_what_is_left_to_add_and_export_needs_a_review(tmp_path):
    (tmp_path / "dictionary.csv").write_text("column,value,label\nsex,1,male\nsex,2,female\nage,0..99,years\nnotes,,\n")
    told = run("schema", "import", tmp_path / "dictionary.csv", "-o", tmp_path / "s.yaml", "--unit", "row")
    assert "column 'notes'" in told
    content = yaml.safe_load((tmp_path / "s.yaml").read_text())
    content["fields"][2]["understudy"] = {"kind": "drop"}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(content))
    for form, name in (("sdv", "sdv.json"), ("smartnoise", "smartnoise.yaml")):
        run("schema", "export", tmp_path / "s.yaml", "--format", form, "-o", tmp_path / name)
        again = run("schema", "export", tmp_path / "s.yaml", "--format", form, "-o", tmp_path / name, code=8)
        assert f"{name} already exists" in again
        told = run("schema", "import", tmp_path / name, "-o", tmp_path / f"back-{form}.yaml")
        assert "sex" in told
    content["fields"][0]["understudy"] = {"status": "draft"}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(content))
    assert "still drafts: sex" in run("schema", "export", tmp_path / "s.yaml", "-o", tmp_path / "x.json", code=4)


@pytest.mark.parametrize(
    ("arguments", "code", "remedy"),
    [
        (("schema", "draft", "none.csv", "-o", "s.yaml"), 3, "check the path"),
        (("schema", "check", "none.yaml", "none.csv"), 4, "check the path"),
        (("schema", "review", "none.yaml"), 4, "check the path"),
        (("schema", "import", "none.json", "-o", "s.yaml"), 3, "check the path"),
    ],
)
def test_what_cannot_be_read_is_explained(tmp_path, monkeypatch, arguments, code, remedy):
    monkeypatch.chdir(tmp_path)
    assert remedy in run(*arguments, code=code)
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be_written_are_explained(people, tmp_path):
    assert "folder exists" in run("schema", "draft", people, "-o", tmp_path / "none" / "s.yaml", code=8)


# -- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXAMPLES.glob("*/schema.yaml")))
def test_an_example_loads_is_reviewed_and_survives_its_dict(name):
    schema = Schema.load(EXAMPLES / name / "schema.yaml")
    schema.require_reviewed()
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_the_census_has_98_columns_and_the_sizes_of_the_paper():
    schema = Schema.load(EXAMPLES / "census1940" / "schema.yaml")
    assert len(schema.columns) == 98
    assert schema.domain["INCWAGE.round"] == 8
    ordinary = {column.name: column.ordinary + len(column.reasons) for column in schema.coded}
    assert (ordinary["INCWAGE"], ordinary["VALUEH"], ordinary["SEX"]) == (52, 5003, 2)


def synthesised(table, name, folder):
    schema = EXAMPLES / name / "schema.yaml"
    release = folder / f"{name}.release"
    fit = json.loads(run("schema", "check", schema, table, "--json"))
    run(
        "synthesize",
        table,
        "--schema",
        schema,
        "--epsilon",
        1,
        "--delta",
        1e-9,
        "--mechanism",
        "independent",
        "-o",
        release,
    )
    run("sample", release, "-n", 200, "--seed", 1, "-o", folder / "rows.parquet")
    return fit, pd.read_parquet(folder / "rows.parquet")


@pytest.mark.tables
@pytest.mark.parametrize("name", sorted(TABLES))
def test_an_example_goes_through_check_and_synthesize(name, tmp_path):
    table = tmp_path / f"{name}.csv"
    with gzip.open(DATA / TABLES[name]) as packed, table.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    fit, rows = synthesised(table, name, tmp_path)
    assert len(rows) == 200
    assert sum(column["unknown"] for column in fit["columns"]) <= 1
    assert fit["dropped"] == 0


@pytest.mark.tables
def test_default_bins_keep_the_moments_and_quartiles_of_adult():
    told = run("schema", "check", EXAMPLES / "adult" / "schema.yaml", DATA / TABLES["adult"], "--json")
    columns = {column["name"]: column for column in json.loads(told)["columns"]}
    for name in ("age", "fnlwgt", "capital-gain"):
        assert len(columns[name]["losses"]) == 5
        assert max(loss["relative"] for loss in columns[name]["losses"]) < 0.02


def test_the_census_goes_through_check_and_synthesize_on_made_rows(tmp_path):
    schema = Schema.load(EXAMPLES / "census1940" / "schema.yaml")
    rng = np.random.default_rng(0)
    codes = {part: rng.integers(0, size, 500) for part, size in schema.domain.items()}
    pyarrow.csv.write_csv(schema.decode(codes, rng), tmp_path / "census.csv")
    fit, rows = synthesised(tmp_path / "census.csv", "census1940", tmp_path)
    assert len(fit["columns"]) == len(rows.columns) == 98


# -- the guide --------------------------------------------------------------------------------------------------------


def test_the_schema_in_the_guide_loads_and_its_commands_exist():
    guide = (ROOT / "docs" / "guide" / "schema.md").read_text()
    blocks = [block.split("```")[0] for block in guide.split("```yaml")[1:]]
    schema = Schema.from_dict(yaml.safe_load(next(block for block in blocks if "fields:" in block)))
    assert {column.kind for column in schema.columns} >= {
        "drop",
        "id",
        "constant",
        "ordinal",
        "boolean",
        "date",
        "number",
    }
    for command in ("draft", "review", "check", "import", "export"):
        assert f"{command}" in guide
        assert "Usage" in run("schema", command, "--help")
    assert "swap or correct the bounds" in guide


def test_a_draft_is_not_overwritten(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    draft, reviewed = tmp_path / "s.custodian-only.yaml", tmp_path / "s.yaml"
    for present in (draft, reviewed):
        present.write_text("mine")
        assert f"{present} already exists" in run(
            "schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "s.yaml", code=8
        )
        assert present.read_text() == "mine"
        present.unlink()


@pytest.mark.parametrize("words", [("draft", "t.csv", "--discover", "--unit", "row"), ("import", "t.csv")])
def test_a_schema_that_exists_is_not_replaced_by_one_made_of_names(tmp_path, words):
    (tmp_path / "t.csv").write_text("column,value,label\nsex,1,male\n")
    (tmp_path / "s.yaml").write_text("mine")
    command, table, *rest = words
    told = run("schema", command, tmp_path / table, *rest, "-o", tmp_path / "s.yaml", code=8)
    assert "already exists" in told
    assert (tmp_path / "s.yaml").read_text() == "mine"


def test_a_review_replaces_only_its_own_draft(unsaid, tmp_path):
    draft = tmp_path / "s.custodian-only.yaml"
    answers = ["--accept", "zip", "--accept", "age", "--unit", "row"]
    for output, present in ((), "s.yaml"), (("-o", tmp_path / "o.yaml"), "o.custodian-only.yaml"):
        (tmp_path / present).write_text("mine")
        assert f"{present} already exists" in run("schema", "review", draft, *answers, *output, code=8)
        assert (tmp_path / present).read_text() == "mine"
        (tmp_path / present).unlink()
    run("schema", "review", draft, *answers[:2], *answers[4:])
    assert "Every column is reviewed." in run("schema", "review", draft, *answers)


def test_a_cover_sheet_is_said_to_be_the_only_one_read(tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["Export"])
    book.create_sheet("Data").append(["a"])
    book.save(tmp_path / "t.xlsx")
    told = run("schema", "draft", tmp_path / "t.xlsx", "-o", tmp_path / "s.yaml", code=3)
    assert "no rows to draft from in its first sheet, and others are not read" in told


def test_a_table_without_rows_proposes_nothing(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    assert "no rows to draft from" in run("schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "s.yaml", code=3)


ODD = ["select", " lead", "trail ", "line\nbreak", "😀", "x" * 300, "a=b, c", 'a "q"', "123", "<b>", "=cmd()"]


def write_letters(path, names, rows=60):
    pd.DataFrame([["ABC"[(row + place) % 3] for place in range(len(names))] for row in range(rows)]).to_csv(
        path, index=False, header=names
    )
    return path


def test_odd_names_go_all_the_way(tmp_path):
    data, schema, release = write_letters(tmp_path / "t.csv", ODD), tmp_path / "s.yaml", tmp_path / "r.release"
    run("schema", "draft", data, "-o", schema, "--unit", "row")
    run("schema", "review", schema, *(word for name in ODD for word in ("--accept", name)))
    assert max(map(len, run("schema", "check", schema, data).splitlines())) < 120
    run("synthesize", data, "-s", schema, "--rho", 1, "-o", release)
    run("sample", release, "-o", tmp_path / "rows.csv")
    assert list(pd.read_csv(tmp_path / "rows.csv").columns) == ODD
    for name in ODD[:7] + ODD[8:]:
        assert "by the model" in run("answer", release, f'"{name}"=A')
    assert '" lead", "trail ", line' in run("answer", release, "lead=A", code=3)
    run("report", release, "-o", tmp_path / "r.html")
    assert "<b>" not in (tmp_path / "r.html").read_text().split("</style>")[1].split("<svg")[0].replace("<body>", "")
    run("bundle", release, "-o", tmp_path / "bundle")


def test_columns_without_a_name_are_left_out_and_counted(tmp_path):
    data = write_letters(tmp_path / "t.csv", ["a", "", "b", "", " "])
    said = run("schema", "draft", data, "-o", tmp_path / "s.yaml", "--unit", "row")
    assert "Left out: 3 of the file's columns, which have no name" in said
    run("schema", "review", tmp_path / "s.yaml", "--accept", "a", "--accept", "b")
    run("synthesize", data, "-s", tmp_path / "s.yaml", "--rho", 1, "-o", tmp_path / "r.release")


def test_a_first_line_that_is_taken_for_a_row_is_reported(tmp_path):
    data = tmp_path / "t.csv"
    data.write_text("2019,2020\n" + "5,6\n7,8\n" * 30)
    said = run("schema", "draft", data, "-o", tmp_path / "guessed.yaml", "--unit", "row")
    assert "draft again with --header" in said
    said = run("schema", "draft", data, "-o", tmp_path / "told.yaml", "--unit", "row", "--header")
    assert "--header" not in said
    fields = yaml.safe_load((tmp_path / "told.custodian-only.yaml").read_text())["fields"]
    assert [field["name"] for field in fields] == ["2019", "2020"]
    said = run("schema", "draft", data, "-o", tmp_path / "no.yaml", "--unit", "row", "--no-header")
    assert "--header" not in said
    twice = write_letters(tmp_path / "twice.csv", ["a", "b", "a"])
    assert "--no-header" in run("schema", "draft", twice, "-o", tmp_path / "x.yaml", code=4)
    run("schema", "draft", twice, "-o", tmp_path / "x.yaml", "--unit", "row", "--header", "--discover", code=3)
    broken = write_letters(tmp_path / "broken.csv", ["a\nb", "c"])
    assert "line break" in run(
        "schema", "draft", broken, "-o", tmp_path / "x.yaml", "--unit", "row", "--discover", code=3
    )


def test_columns_that_share_a_name_are_named_by_their_places(tmp_path):
    (tmp_path / "t.csv").write_text("when;cost;;when;cost;sex\n" + "2024-01-01;1;;2024-01-02;2;f\n" * 30)
    said = run("schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "x.yaml", code=4)
    assert "columns 1, 2, 4, 5 share a name with another column" in " ".join(said.split())


def test_a_schema_that_is_still_a_draft_says_so(tmp_path):
    data = write_letters(tmp_path / "t.csv", ["a", "b"])
    run("schema", "draft", data, "-o", tmp_path / "s.yaml", "--unit", "row")
    said = run("synthesize", data, "-s", tmp_path / "s.yaml", "--rho", 1, "-o", tmp_path / "r.release", code=4)
    assert "it is still a draft, s.custodian-only.yaml" in said
