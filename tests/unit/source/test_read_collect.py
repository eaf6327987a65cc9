"""Tables of engines are evaluated like frames: the schema's columns come into memory, and errors say what to do."""

from __future__ import annotations

import pyarrow as pa
import pytest

import understudy as us
from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
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
    found = us.evaluate(people, other, SCHEMA, metrics=["workload"])
    frames = [relation.to_arrow_table() for relation in (people, other)]
    assert found.equals(us.evaluate(*frames, SCHEMA, metrics=["workload"]))
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
