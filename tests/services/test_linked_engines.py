"""Linked tables in PostgreSQL and Spark: every virtual table has the weighted counts of memory, with one key."""

from __future__ import annotations

import itertools
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from understudy import synthesize
from understudy.cli import app
from understudy.errors import InputError, OutputError, SchemaError, SettingError
from understudy.schema.linked import LinkedSchema
from understudy.sink.linked import write_to_database
from understudy.source.linked import check_places, find_tables, open_tables
from understudy.testing.linked import clinic_package, clinic_rows

KEY = bytes(range(32))
TYPES = {"string": "text", "int64": "bigint", "date32[day]": "date", "double": "float8"}


def messy_tables() -> dict[str, Any]:
    """Tables with duplicate, empty, unknown and odd keys, ties, too many children, and cells that are no value."""
    tables, rng = clinic_rows(150, seed=3), np.random.default_rng(4)
    for name, table in tables.items():
        rows = table.to_pylist()
        for row in rng.choice(len(rows), 40):
            copy = dict(rows[row])
            key = "visit_id" if name == "diagnoses" and rng.random() < 0.5 else "patient_id"
            copy[key] = [copy[key], f" {copy[key]} ", None, "", "P3", "V7", "nobody"][rng.integers(7)]
            rows.append(copy)
        for row in rows:
            for column in row:
                if not column.endswith("_id") and rng.random() < 0.05:
                    row[column] = None
        tables[name] = pa.Table.from_pylist(rows, schema=table.schema)
    return tables


def with_dates(tables: dict[str, Any]) -> dict[str, Any]:
    """The same with dates of visits: they are coded as gaps."""
    days = [
        None if day is None else date(2024, 1, 1) + timedelta(60 * day) for day in tables["visits"]["day"].to_pylist()
    ]
    return tables | {"visits": tables["visits"].set_column(2, "day", pa.array(days, pa.date32()))}


def schemas() -> dict[str, LinkedSchema]:
    found = {}
    for name, options, more in (
        ("plain", {}, {}),
        ("last", {"visits": 2, "diagnoses": 4, "strict": False}, {"keep": "last"}),
        ("unordered", {"order": "", "visits": 4}, {}),
        ("down", {"visits": 5}, {"order": ["-day", "ward"]}),
    ):
        package = clinic_package(**options)
        package["resources"][1]["schema"]["foreignKeys"][0]["understudy"] |= more
        found[name] = LinkedSchema.from_dict(package)
    package = clinic_package(visits=4)
    limits = {"minimum": "2024-01-01", "maximum": "2024-12-31"}
    package["resources"][1]["schema"]["fields"][2] = {
        "name": "day", "type": "date", "constraints": limits, "understudy": {"bins": 366}
    }  # fmt: skip
    return found | {"dates": LinkedSchema.from_dict(package)}


def counts_of(tables: Any, schema: LinkedSchema) -> dict[Any, Any]:
    found = {}
    with open_tables(find_tables(tables, schema), schema, key=KEY) as opened:
        rows = opened.rows(schema)
        for name, virtual in schema.virtual_tables.items():
            columns = list(virtual.schema.domain)
            cliques = [(), *itertools.combinations(columns, 1), *itertools.combinations(columns, 2), tuple(columns[:4])]
            for clique, counts in rows.source(virtual).counts(cliques):
                found[name, clique] = counts.tolist()
    return found


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    return messy_tables()


def _load(connection: Any, tables: dict[str, Any]) -> None:
    for name, table in tables.items():
        connection.execute(f"drop table if exists {name}")
        listed = ", ".join(f"{field.name} {TYPES[str(field.type)]}" for field in table.schema)
        connection.execute(f"create table {name} ({listed})")
        with connection.cursor().copy(f"copy {name} from stdin") as copy:
            for row in table.to_pylist():
                copy.write_row(tuple(row.values()))


@pytest.mark.usefixtures("password")
@pytest.mark.parametrize("name", ["plain", "last", "unordered", "down", "dates"])
def test_postgres(postgres: Any, tables: dict[str, Any], name: str) -> None:
    schema = schemas()[name]
    given = with_dates(tables) if name == "dates" else tables
    with postgres.connect() as connection:
        _load(connection, given)
    found, wanted = counts_of(postgres.url, schema), counts_of(given, schema)
    assert sum(map(sum, wanted.values())) > 0
    for asked in wanted:
        assert found[asked] == wanted[asked], asked


# pyspark leaves its own sockets to the garbage collector
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["plain", "dates"])
def test_spark(spark: Any, tables: dict[str, Any], name: str, tmp_path: Path) -> None:
    schema = schemas()[name]
    given, frames = with_dates(tables) if name == "dates" else tables, {}
    for table, rows in given.items():
        pq.write_table(rows, tmp_path / f"{table}.parquet")
        frames[table] = spark.read.parquet(str(tmp_path / f"{table}.parquet"))
    found, wanted = counts_of(frames, schema), counts_of(given, schema)
    for asked in wanted:
        assert found[asked] == wanted[asked], asked


@pytest.mark.usefixtures("password")
def test_a_release_is_made_in_the_database(postgres: Any, tables: dict[str, Any]) -> None:
    with postgres.connect() as connection:
        _load(connection, tables)
    schema = schemas()["plain"]
    release = synthesize(postgres.url, schema, epsilon=5.0, delta=1e-6, mechanism="independent", dataset="clinic")
    assert set(release.sample(20, seed=1)) == {"patients", "visits", "diagnoses"}
    wrong = {**find_tables(postgres.url, schema), "visits": f"{postgres.url}?table=nothing"}
    with pytest.raises(InputError, match="'visits': the database has no such table"):
        synthesize(wrong, schema, epsilon=1.0, delta=1e-6)
    with postgres.connect() as connection:
        connection.execute("alter table visits rename column ward to place")
    with pytest.raises(SchemaError, match="table 'visits'"):
        synthesize(postgres.url, schema, epsilon=1.0, delta=1e-6, dataset="clinic")


def test_tables_in_different_places_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("visit_id\n")
    places = {"patients": "postgresql://host/shop?table=patients", "visits": str(tmp_path / "visits.csv")}
    with pytest.raises(SettingError, match="'visits': some of the linked tables are in PostgreSQL"):
        check_places(places)


@pytest.mark.usefixtures("password")
def test_rows_are_written_to_a_database_with_their_keys(postgres: Any, tables: dict[str, Any], tmp_path: Path) -> None:
    schema = schemas()["plain"]
    release = synthesize(tables, schema, epsilon=5.0, delta=1e-6, mechanism="independent", dataset="clinic")
    release.save(tmp_path / "clinic.release")
    with postgres.connect() as connection:
        connection.execute("drop table if exists diagnoses, visits, patients")
    sample = [str(tmp_path / "clinic.release"), "-o", postgres.url, "-n", "30", "--seed", "1"]
    assert CliRunner().invoke(app, ["sample", *sample]).exit_code == 0
    with postgres.connect() as connection:
        for name, table in release.sample(30, seed=1).items():
            columns = ", ".join(f"{column}::text" for column in table.column_names)
            found = connection.execute(f"select {columns} from {name}").fetchall()  # noqa: S608
            assert [row[0] for row in found] == [str(value) for value in table[0].to_pylist()]
        kinds = "select table_name, constraint_type, count(*) from information_schema.table_constraints where "
        kinds += "table_schema = 'public' and constraint_type like '% KEY' group by 1, 2 order by 1, 2"
        assert connection.execute(kinds).fetchall() == [
            ("diagnoses", "FOREIGN KEY", 2),
            ("patients", "PRIMARY KEY", 1),
            ("visits", "FOREIGN KEY", 1),
            ("visits", "PRIMARY KEY", 1),
        ]
    with pytest.raises(OutputError, match="diagnoses already exists"):
        write_to_database(release.sample(5, seed=1), schema, postgres.url)
    write_to_database(release.sample(5, seed=2), schema, postgres.url, force=True)
    with postgres.connect() as connection:
        assert connection.execute("select count(*) from patients").fetchone() == (5,)
