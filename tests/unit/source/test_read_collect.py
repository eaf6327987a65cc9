"""Tables of engines are evaluated like frames: the schema's columns come into memory, and errors say what to do."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app
from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
from understudy.source.postgres import explain_refusal
from understudy.source.read import collect_table

duckdb = pytest.importorskip("duckdb")
SCHEMA = Schema.from_domain({"a": 3, "b": 2})


@pytest.fixture
def connection():
    with duckdb.connect() as made:
        made.execute("create table people as select range % 3 as a, range % 2 as b, 'secret' as c from range(600)")
        yield made


def test_a_relation_has_the_scores_of_its_rows(connection):
    people, other = connection.table("people"), connection.sql("select a, 0 as b from people")
    found = us.evaluate(people, other, SCHEMA, metrics=["workload_error"])
    frames = [relation.to_arrow_table() for relation in (people, other)]
    assert found.equals(us.evaluate(*frames, SCHEMA, metrics=["workload_error"]))
    assert isinstance(found, pa.Table)


def test_no_other_column_is_brought(connection):
    assert collect_table(connection.table("people"), SCHEMA).schema.names == ["a", "b"]


def test_what_cannot_be_read_is_reported(connection):
    with pytest.raises(SchemaError, match="'b'"):
        us.evaluate(connection.sql("select a from people"), connection.table("people"), SCHEMA)
    people = connection.table("people")
    connection.close()
    with pytest.raises(InputError, match=r"session still open.*save it as Parquet"):
        collect_table(people, SCHEMA)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ibis itself
def test_ibis_tables():
    ibis = pytest.importorskip("ibis")
    table = ibis.memtable({"a": [0, 1, 2], "b": [0, 1, 0], "c": ["x", "y", "z"]})
    assert collect_table(table, SCHEMA).to_pydict() == {"a": [0, 1, 2], "b": [0, 1, 0]}


def test_folders_and_patterns_are_joined(tmp_path):
    for night, kind in enumerate((pa.int64(), pa.string())):  # files may differ in types
        table = pa.table({"a": pa.array([night, 1]).cast(kind), "b": ["x", "y"]})
        pq.write_table(table, tmp_path / f"night{night}.parquet")
    schema = us.Schema.from_dict(SMALL)
    for place in (tmp_path, f"{tmp_path}/*.parquet"):
        found = collect_table(place, schema)
        assert found["a"].to_pylist() == ["0", "1", "1", "1"]
        assert found["b"].to_pylist() == ["x", "y", "x", "y"]


def test_a_duckdb_table_is_fetched(tmp_path):

    with duckdb.connect(tmp_path / "shop.duckdb") as made:
        made.execute("create table people as select * from (values (0, 'x'), (1, 'y')) as t(a, b)")
    found = collect_table(f"duckdb://{tmp_path}/shop.duckdb?table=people", us.Schema.from_dict(SMALL))
    assert found["b"].to_pylist() == ["x", "y"]


def test_a_file_of_a_folder_that_lacks_a_column_is_named(tmp_path):
    pq.write_table(pa.table({"a": [0], "b": ["x"]}), tmp_path / "one.parquet")
    pq.write_table(pa.table({"a": [0]}), tmp_path / "two.parquet")
    with pytest.raises(SchemaError, match=r"two\.parquet"):
        us.synthesize(tmp_path, us.Schema.from_dict(SMALL), rho=0.1, mechanism="independent")


SMALL = {
    "fields": [
        {"name": "a", "type": "integer", "constraints": {"minimum": 0, "maximum": 1}},
        {"name": "b", "type": "string", "constraints": {"enum": ["x", "y"]}},
    ],
    "understudy": {"privacy_unit": "row"},
}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('FATAL: password authentication failed for user "ann"', "user and password"),
        ('FATAL: database "shop" does not exist', "no such database"),
        ("connection failed: Connection refused. Is the server running?", "host and port"),
        ('could not translate host name "nowhere" to address', "check the host"),
        ("something else", "cannot be reached"),
    ],
)
def test_failed_connections_say_what_to_check(message, words):
    """A wrong password, a closed port and a missing database used to give the same message."""
    assert words in explain_refusal(message)
    assert '"ann"' not in explain_refusal(message)


def test_a_closed_port_is_named():
    pytest.importorskip("psycopg")
    with pytest.raises(InputError, match="no database server answers there"):
        us.evaluate("postgresql://127.0.0.1:1/db?table=t", pa.table({"a": [0]}), us.Schema.from_dict(SMALL))


def test_a_schema_is_drafted_and_checked_from_a_pattern(tmp_path):
    for night in range(2):
        table = pa.table({"age": list(range(60)), "b": ["x", "y", "z"] * 20})
        pq.write_table(table, tmp_path / f"night{night}.parquet")
    place, schema = f"{tmp_path}/*.parquet", tmp_path / "people.schema.yaml"
    done = CliRunner().invoke(app, ["schema", "draft", place, "-o", str(schema), "--unit", "row"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["schema", "check", str(schema), place, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 120
