"""Runs on linked tables: from files to a release and back to files, resumed, refused, and written with constraints."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app
from understudy.errors import InputError, OutputError, RunInterrupted, SchemaError, SettingError
from understudy.evaluation.linked import check_integrity
from understudy.gate import PrivateTable
from understudy.ledger import Ledger
from understudy.mechanism.linked import divide_budget
from understudy.planning.linked import plan_linked
from understudy.planning.made_up import rehearsal_tables
from understudy.release.linked import LinkedRelease
from understudy.schema.linked import LinkedSchema
from understudy.sink.linked import check_target, write_tables
from understudy.svg import percent
from understudy.testing.linked import clinic_package, clinic_rows, clinic_schema

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "mechanism": "independent"}


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """A folder of tables as CSV and Parquet, and its package."""
    folder = tmp_path / "clinic"
    folder.mkdir()
    for name, table in clinic_rows(50).items():
        if name == "visits":
            pq.write_table(table, folder / f"{name}.parquet")
        else:
            csv.write_csv(table, folder / f"{name}.csv")
    clinic_schema().save(tmp_path / "clinic.yaml")
    return folder


def test_frames_by_name_and_a_folder_make_releases(clinic: Path) -> None:
    made = us.synthesize(clinic_rows(50), clinic_schema(), **BUDGET)
    assert isinstance(made, LinkedRelease)
    assert made.receipt.neighbours.tables == (("patients", 1), ("visits", 3), ("diagnoses", 6))
    assert "at most 3 of 'visits'" in made.receipt.text()
    found = us.synthesize(clinic, clinic.parent / "clinic.yaml", **BUDGET)
    assert list(found.sample(10, seed=1)) == ["patients", "visits", "diagnoses"]
    (clinic / "visits.parquet").unlink()
    with pytest.raises(InputError, match="give one file for table 'visits'"):
        us.synthesize(clinic, clinic.parent / "clinic.yaml", **BUDGET)


def test_the_ledger_is_charged_once_for_all_tables() -> None:
    us.synthesize(clinic_rows(30), clinic_schema(), dataset="clinic", **BUDGET)
    spent = Ledger().total("clinic")
    assert (spent.runs, spent.epsilon) == (1, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quality": "5%"}, "quality: not possible with linked tables; .* `plan` predicts errors"),
        ({"public": "people.csv"}, "public: .*declare in the schema"),
        ({"query": "select 1"}, "query: .*a view of the database"),
        ({"mechanism": "gem"}, "need a graphical model"),
        ({"mechanism": "aim", "workload": "all-2way"}, "workload: .*leave it out"),
        (
            {"mechanism": "mst", "keep": [("patients.sex", "ward")]},
            "keep: patients.sex, ward are not columns of one table",
        ),
    ],
)
def test_what_is_not_possible_is_refused_before_anything_is_spent(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        us.synthesize(clinic_rows(5), clinic_schema(), dataset="refused", **BUDGET | change)
    assert Ledger().total("refused").runs == 0


def test_cliques_to_keep_are_measured_where_their_columns_are_drawn() -> None:
    keep = [("patients.sex", "patients.age"), ("patients.sex", "visits.ward")]
    release = us.synthesize(
        clinic_rows(60), clinic_schema(), keep=keep, dataset="kept", **BUDGET | {"mechanism": "mst"}
    )
    measured = {name: {one.clique for one in part.measurements} for name, part in release.parts.items()}
    assert [name for name in measured if ("patients.sex", "patients.age") in measured[name]] == ["patients"]
    assert [name for name in measured if ("patients.sex", "visits.ward") in measured[name]] == [
        "first(visits)",
        "next(visits)",
    ]


def test_what_is_for_single_tables_says_so(clinic: Path, tmp_path: Path) -> None:
    release, path = us.synthesize(clinic_rows(30), clinic_schema(), dataset="single", **BUDGET), tmp_path / "a.release"
    release.save(path)
    with pytest.raises(SettingError, match=r"comparison is of single tables.*`evaluate`"):
        us.compare(clinic, clinic_schema())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="attacks are possible on releases of single tables only"):
        us.attack(path, clinic)
    with pytest.raises(OutputError, match=r"name a folder for them, such as rows"):
        check_target(tmp_path / "rows.csv")


def open_package() -> dict[str, Any]:
    """The clinic with columns of two tables left to discovery."""
    package = clinic_package()
    patients, visits, _ = (one["schema"]["fields"] for one in package["resources"])
    patients[1] = {"name": "sex", "type": "string", "understudy": {"values": "discover"}}
    visits[3] = {"name": "ward", "type": "string", "understudy": {"values": "discover"}}
    visits.append({"name": "cost", "type": "integer", "understudy": {"bounds": "discover", "bins": "discover"}})
    return package


def open_rows(patients: int) -> dict[str, Any]:
    tables = clinic_rows(patients)
    visits = tables["visits"]
    cost = pa.array([100 + 10 * i % 700 for i in range(visits.num_rows)])
    return tables | {"visits": visits.append_column("cost", cost)}


def test_facts_are_discovered_table_by_table_for_the_whole_unit(tmp_path: Path) -> None:
    budget = BUDGET | {"epsilon": 5.0}
    made = us.synthesize(open_rows(3000), LinkedSchema.from_dict(open_package()), dataset="open", **budget)
    facts = [one for one in made.receipt.charges if one.what in ("values", "bounds", "bins")]
    assert {(one.table, one.what) for one in facts} == {
        ("patients", "values"), ("visits", "values"), ("visits", "bounds"), ("visits", "bins")
    }  # fmt: skip
    assert sum(one.delta for one in made.receipt.charges) <= Fraction(1, 10**7)
    assert sum(one.rho for one in facts) <= 0.11 * sum(one.rho for one in made.receipt.charges)
    assert set(made.schema.tables["visits"].column("ward").values) == {"A", "B", "C"}  # type: ignore[union-attr]
    assert made.receipt.facts["visits.cost"] == "discovered"
    path = tmp_path / "open.release"
    made.save(path)
    costs = LinkedRelease.load(path).sample(500, seed=1)["visits"]["cost"].to_numpy(zero_copy_only=False)
    assert 100 <= np.nanquantile(costs, 0.1) <= np.nanquantile(costs, 0.9) <= 1000
    with pytest.raises(SettingError, match=r"column 'sex': discovering its values takes a delta"):
        us.synthesize(open_rows(5), LinkedSchema.from_dict(open_package()), rho=0.1, mechanism="mst", dataset="pure")


def test_a_plan_and_a_rehearsal_assume_what_is_left_to_discovery() -> None:
    schema = LinkedSchema.from_dict(open_package())
    plan = plan_linked(schema, people=1000, epsilons=[1.0], mechanisms=["independent"])
    assert plan.assumed[:2] == ("patients: sex: 16 values", "visits: ward: 16 values")
    assert "a tenth of the budget" in plan.assumed[-1]
    assert set(rehearsal_tables(schema, 20)) == {"patients", "visits", "diagnoses"}


def test_one_patient_counts_as_many_visits_in_discovery_as_the_caps_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for visits in (1, 3):
        package = clinic_package(visits=visits)
        limits = {"bounds": "discover", "bins": "discover"}
        package["resources"][1]["schema"]["fields"].append({"name": "cost", "type": "integer", "understudy": limits})
        made = us.synthesize(open_rows(50), LinkedSchema.from_dict(package), dataset="caps", **BUDGET)
        found[visits] = next(one for one in made.receipt.charges if one.what == "bounds")
    assert found[1].rho == pytest.approx(found[3].rho)
    assert found[3].scale == pytest.approx(3 * found[1].scale, rel=0.01)


def test_a_run_that_was_interrupted_after_discovery_keeps_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, measure = open_rows(400), PrivateTable.measure

    def fail(self: Any, *given: Any, **options: Any) -> Any:
        raise RuntimeError("the power failed")

    monkeypatch.setattr(PrivateTable, "measure", fail)
    schema = LinkedSchema.from_dict(open_package())
    with pytest.raises(RunInterrupted, match="resume"):
        us.synthesize(tables, schema, dataset="cut", **BUDGET)
    monkeypatch.setattr(PrivateTable, "measure", measure)
    made = us.resume(Ledger().reservations("cut")[0].run, data=tables)
    assert {one.what for one in made.receipt.charges} >= {"values", "bounds", "measure"}
    assert Ledger().total("cut").epsilon == pytest.approx(1.0)


@pytest.mark.parametrize("patients", [0, 1])
def test_no_unit_or_one_alone_makes_a_release_like_any_other(patients: int) -> None:
    tables = clinic_rows(30)
    some = pa.array([f"P{i}" for i in range(patients)], pa.string())
    tables = {name: one.filter(pc.is_in(one["patient_id"], some)) for name, one in tables.items()}
    made = us.synthesize(tables, clinic_schema(), dataset="few", **BUDGET)
    assert made.default_rows >= 1
    assert set(check_integrity(made.sample(20, seed=1), made.schema).values()) == {1.0}


def test_bad_tables_are_refused_before_anything_is_spent() -> None:
    tables = clinic_rows(5)
    with pytest.raises(SchemaError, match=r"table 'visits'.*ward"):
        us.synthesize(
            tables | {"visits": tables["visits"].drop_columns(["ward"])}, clinic_schema(), dataset="bad", **BUDGET
        )
    with pytest.raises(InputError, match="data package"):
        us.synthesize(tables, clinic_schema().tables["visits"], dataset="bad", **BUDGET)
    place = "postgresql://host/db?table=visits"
    with pytest.raises(SettingError, match="'patients': some of the linked tables are in PostgreSQL"):
        us.synthesize(tables | {"visits": place}, clinic_schema(), dataset="bad", **BUDGET)
    assert Ledger().total("bad").runs == 0


def test_an_interrupted_run_is_continued_and_counted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tables, measure = clinic_rows(40), PrivateTable.measure
    calls = []

    def fail(self: Any, *given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the power failed")
        return measure(self, *given, **options)

    monkeypatch.setattr(PrivateTable, "measure", fail)
    with pytest.raises(RunInterrupted, match="resume"):
        us.synthesize(tables, clinic_schema(), dataset="again", **BUDGET)
    run = Ledger().reservations("again")[0].run
    with pytest.raises(RunInterrupted, match="nothing was measured about"):
        us.resume(run)
    made = us.resume(run, data=tables, output=tmp_path / "again.release")
    assert isinstance(made, LinkedRelease)
    assert Ledger().total("again").runs == 1
    without = us.resume(run)  # all answers are recorded now: the tables are not needed
    for name, part in made.parts.items():
        for one, other in zip(part.measurements, without.parts[name].measurements, strict=True):
            assert (one.values == other.values).all()


def test_the_command_line_leads_from_files_to_files(clinic: Path, tmp_path: Path) -> None:
    release, rows = tmp_path / "clinic.release", tmp_path / "rows"

    def call(*arguments: Any, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result.output

    budget = ["--epsilon", "1", "--delta", "1e-6", "-m", "independent", "-o", release, "-s", tmp_path / "clinic.yaml"]
    assert "epsilon = 1" in call("synthesize", "--tables", clinic, *budget)
    assert "diagnoses: 2 columns, at most 2 for each row of visits" in call("inspect", release)
    left_out = "in the true table (without rows beyond 1 of one 'patient_id')"
    assert left_out in call("answer", release, "patients.sex=F, #visits=1..")
    assert "No bound is known for this query (the rows of visits" in call("answer", release, "visits.ward=A")
    assert "by the model" in call("answer", release, "visits.ward=A, patients.sex=F", "--per", "patients", "--share")
    assert "there is no column 'ward'" in call("answer", release, "ward=A", code=3)
    call("report", release, "-o", tmp_path / "report.html")
    assert "only through their parent" in (tmp_path / "report.html").read_text()
    assert "custodian only" not in (tmp_path / "report.html").read_text()
    assert "not differentially private" in call("report", release, "-o", tmp_path / "other.html", "--real", clinic)
    page = (tmp_path / "other.custodian-only.html").read_text()
    for words in (
        "For the custodian only",
        "cardinality (visits)",
        "visits per row of patients",
        "Distribution of ward",
        "distance ",
    ):
        assert words in page
    assert not (tmp_path / "other.html").exists()
    call("report", release, "-o", tmp_path / "full.html", "--real", clinic, "--full", code=3)
    assert "of visits" in call("sample", release, "-o", rows, "--seed", 1, "-n", 20)
    assert sorted(file.name for file in rows.iterdir()) == [
        "datapackage.json",
        "diagnoses.csv",
        "patients.csv",
        "visits.csv",
    ]
    again = us.synthesize(rows, rows / "datapackage.json", **BUDGET)  # the output is an input
    assert list(again.schema.tables) == ["patients", "visits", "diagnoses"]
    call("sample", release, "-o", rows, code=8)
    call("sample", release, "-o", "-", code=3)


def test_a_bundle_has_a_file_for_each_table(tmp_path: Path) -> None:
    release = us.synthesize(clinic_rows(30), clinic_schema(), **BUDGET)
    release.save(tmp_path / "clinic.release")

    def call(*arguments: Any) -> int:
        given = ["bundle", str(tmp_path / "clinic.release"), "-o", str(tmp_path / "for"), "--seed", "1"]
        return CliRunner().invoke(app, [*given, *arguments]).exit_code

    assert call("--format", "sav") == 3
    assert call("--mark") == 3
    assert call() == 0
    tables = [f"{name}.{kind}" for name in ("diagnoses", "patients", "visits") for kind in ("csv", "parquet")]
    others = ["README.md", "codebook.csv", "datapackage.json", "report.html", "stand-in.release"]
    assert sorted(path.name for path in (tmp_path / "for").iterdir()) == sorted([*tables, *others])
    for name, table in release.sample(seed=1).items():
        assert pq.read_table(tmp_path / "for" / f"{name}.parquet").equals(table)
    readme = (tmp_path / "for" / "README.md").read_text()
    assert "`visits` belongs to `patients` by `patient_id`: at most 3 rows" in readme
    assert "at most 2 rows for each of its rows, in the order of rank" in readme
    assert "diagnoses,visit_id,,id,fresh key of visits" in (tmp_path / "for" / "codebook.csv").read_text()
    assert us.synthesize(tmp_path / "for", tmp_path / "for" / "datapackage.json", **BUDGET).schema.root == "patients"
    assert call() == 8
    made = us.make_bundle(tmp_path / "clinic.release", tmp_path / "again", seed=1)  # a path, as on the command line
    assert (made.seed, made.rows) == (1, sum(table.num_rows for table in release.sample(seed=1).values()))
    assert made.files == tuple(sorted([*tables, *others]))
    for name in made.files:
        if name.endswith((".csv", ".parquet")):
            assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "for" / name).read_bytes()
    with pytest.raises(SettingError, match="not possible with linked tables"):
        us.make_bundle(release, tmp_path / "marked", mark=True)


def test_check_tells_the_custodian_about_keys_and_caps(clinic: Path, tmp_path: Path) -> None:
    table = pq.read_table(clinic / "visits.parquet")
    orphan = table.slice(0, 1).set_column(1, "patient_id", pa.array(["nobody"]))
    pq.write_table(pa.concat_tables([table, orphan]), clinic / "visits.parquet")
    result = CliRunner().invoke(app, ["schema", "check", str(tmp_path / "clinic.yaml"), str(clinic)])
    assert result.exit_code == 0, result.output
    many = table.num_rows
    assert f"references(visits): {100 * many / (many + 1):.2f} %" in result.output
    assert f"unique keys(visits): {100 * many / (many + 1):.2f} %" in result.output
    assert "unique keys(patients): 100.00 %" in result.output
    assert "Table diagnoses" in result.output


def test_a_plan_shows_every_virtual_table(tmp_path: Path) -> None:
    clinic_schema().save(tmp_path / "clinic.yaml")
    result = CliRunner().invoke(
        app, ["plan", str(tmp_path / "clinic.yaml"), "--people", "~2000", "--epsilon", "1", "-m", "independent"]
    )
    assert result.exit_code == 0, result.output
    for name, share in divide_budget(clinic_schema()).items():
        assert re.search(rf"{re.escape(name)} +{100 * share:.0f} % +independent", result.output)
    names = {line.mechanism for _, line in plan_linked(clinic_schema(), people=2000, epsilons=[1.0]).lines}
    usual = CliRunner().invoke(app, ["plan", str(tmp_path / "clinic.yaml"), "--people", "~2000", "--epsilon", "1"])
    assert usual.exit_code == 0, usual.output  # mechanisms that linked tables cannot have are not compared by default
    assert all(name in usual.output for name in names)
    more = plan_linked(clinic_schema(), people=2000, epsilons=[1.0, 4.0], mechanisms=["independent"])
    first, second = (line.expected.one_way for name, line in more.lines if name == "next(visits)")
    assert second < first
    with pytest.raises(SettingError, match="choose aim, mst"):
        plan_linked(clinic_schema(), people=2000, mechanisms=["gem"])


def test_answers_about_children_count_rows_of_the_stand_in() -> None:
    release = us.synthesize(clinic_rows(60), clinic_schema(), **BUDGET)
    tables = {name: table.to_pandas() for name, table in release.sample(seed=0).items()}
    visits = len(tables["visits"])
    wards = [release.answer({"visits.ward": ward}) for ward in "ABC"]
    assert sum(one.value for one in wards) == pytest.approx(visits, rel=0.2)
    assert all(one.high is None for one in wards)
    shares = [release.answer({"visits.ward": ["A", "B", "C"]}, share=True, per=per).value for per in (None, "patients")]
    with_visits = (release.answer("#visits=1..").value) / release.answer("#visits=0..").value
    assert shares[0] > 0.8
    assert shares[1] == pytest.approx(with_visits, abs=0.25)
    with pytest.raises(SettingError, match="is not above"):
        release.answer({"visits.ward": "A"}, per="diagnoses")


def test_tables_are_named_one_by_one(clinic: Path, tmp_path: Path) -> None:
    files = [f"{name}={clinic / name}.{'parquet' if name == 'visits' else 'csv'}" for name in clinic_schema().tables]
    options = [part for file in files for part in ("--tables", file)]
    budget = [
        "--rho",
        "0.1",
        "-m",
        "independent",
        "-o",
        str(tmp_path / "c.release"),
        "-s",
        str(tmp_path / "clinic.yaml"),
    ]
    result = CliRunner().invoke(app, ["synthesize", *options, *budget])
    assert result.exit_code == 0, result.output
    for wrong in (["--tables", "a", "--tables", "b"], [], ["x.csv", "--tables", "a"]):
        assert CliRunner().invoke(app, ["synthesize", *wrong, *budget]).exit_code == 3


def test_a_database_file_has_the_keys_as_constraints(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    schema = clinic_schema()
    tables = us.synthesize(clinic_rows(30), schema, **BUDGET).sample(20, seed=1)
    write_tables(tables, schema, tmp_path / "clinic.duckdb")
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as connection:
        assert connection.sql("select count(*) from patients").fetchall() == [(20,)]
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("insert into visits select 10000, 10000, day, ward from visits limit 1")


def test_a_package_may_name_its_files(tmp_path: Path) -> None:
    package = clinic_package()
    for resource, table in zip(package["resources"], clinic_rows(20).values(), strict=True):
        resource["path"] = f"raw-{resource['name']}.csv"
        csv.write_csv(table, tmp_path / resource["path"])
    from understudy.schema.linked import LinkedSchema

    assert us.synthesize(tmp_path, LinkedSchema.from_dict(package), **BUDGET).schema.paths["visits"] == "raw-visits.csv"


def test_a_run_file_makes_release_rows_and_report_once(clinic: Path, tmp_path: Path) -> None:
    lines = ["data: clinic", "schema: clinic.yaml", "budget: {epsilon: 1, delta: 1e-6}", "mechanism: independent"]
    (tmp_path / "run.yaml").write_text("\n".join([*lines, "outputs: {rows: [csv, parquet], seed: 1}"]))
    from understudy.run import run

    first = run(tmp_path / "run.yaml", tmp_path / "out")
    assert (first.status, Path(first.summary["release"]).exists()) == ("made", True)
    assert (tmp_path / "out" / "rows-csv" / "visits.csv").exists()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "at most 3 for each row of patients, in order of day" in page
    assert "only through their parent" in page
    assert run(tmp_path / "run.yaml", tmp_path / "out").status == "unchanged"
    (tmp_path / "out" / "report.html").unlink()
    assert run(tmp_path / "run.yaml", tmp_path / "out").status == "completed"
    assert Ledger().total("clinic").runs == 1
    assert "custodian only" not in page
    (tmp_path / "run.yaml").write_text("\n".join([*lines, "outputs: {seed: 1, report: [public, custodian]}"]))
    again = run(tmp_path / "run.yaml", tmp_path / "out")  # outputs are no part of the run: nothing more is spent
    private = Path(again.summary["reports"]["custodian"])
    assert (again.status, private.name) == ("completed", "report.custodian-only.html")
    assert private.stat().st_mode & 0o077 == 0
    for words in ("For the custodian only", "cardinality (visits)", "<th>real</th>"):
        assert words in private.read_text()
    assert Ledger().total("clinic").runs == 1


def test_reports_are_written_from_python(clinic: Path, tmp_path: Path) -> None:
    release = us.synthesize(clinic_rows(50), clinic_schema(), **BUDGET)
    release.save(tmp_path / "clinic.release")
    page = us.write_report(tmp_path / "clinic.release", tmp_path / "report.html").read_text()
    assert page == us.write_report(release, tmp_path / "again.html").read_text()
    private = us.write_report(release, tmp_path / "report.html", real=clinic)
    assert private.name == "report.custodian-only.html"
    assert private.read_text() == us.write_report(release, tmp_path / "b.html", real=clinic_rows(50)).read_text()
    for one, real in ((page, False), (private.read_text(), True)):
        assert ("For the custodian only" in one, '<line class="real"' in one) == (real, real)
        assert one.count('<h2 id="analysts">For analysts</h2>') == 1  # what holds for linked tables, and nothing else
        assert "<code>replicates</code> are for single tables" in one
        assert "For graphics, and for what" not in one
    with pytest.raises(SettingError, match="full are not possible"):
        us.write_report(release, tmp_path / "full.html", real=clinic, full=True)


def test_noisy_numbers_of_children_are_reported() -> None:
    release = us.synthesize(clinic_rows(50), clinic_schema(), **BUDGET)
    page = us.report.linked.linked_report(release)
    for name, part in (("visits", release.parts["patients"]), ("diagnoses", release.parts["first(visits)"])):
        noisy = next(one.values for one in part.measurements if one.clique == (f"#{name}",))
        for share in noisy / noisy.sum():
            assert f"<td>{percent(share)}</td>" in page


def test_a_rehearsal_uses_made_up_tables_and_costs_nothing(tmp_path: Path) -> None:
    clinic_schema().save(tmp_path / "clinic.yaml")
    from understudy.run import rehearse

    made = rehearse(tmp_path / "clinic.yaml", tmp_path / "out", delta=1e-6, mechanism="independent", rows=40)
    assert made.summary["rehearsal"]
    assert (tmp_path / "out" / "rehearsal-rows-csv" / "visits.csv").exists()
    assert "ehearsal" in (tmp_path / "out" / "rehearsal-report.html").read_text()
    assert not Ledger().reservations()
    tables = rehearsal_tables(clinic_schema(), 40, seed=1)
    assert {name: share for name, share in check_integrity(tables, clinic_schema()).items() if "order" not in name} == {
        "unique keys(patients)": 1.0,
        "unique keys(visits)": 1.0,
        "references(visits)": 1.0,
        "caps(visits)": 1.0,
        "references(diagnoses)": 1.0,
        "caps(diagnoses)": 1.0,
    }
    assert tables["visits"].num_rows == 60  # none, one, two, three, and so on
