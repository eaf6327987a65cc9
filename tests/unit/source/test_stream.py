"""Every coding of a table in the embedded engine is about the same rows, whatever others do to it meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.errors import InputError
from understudy.schema import Schema
from understudy.source.duckdb import database_columns
from understudy.source.open import StoredTable
from understudy.source.temp import PREFIX, PrivateFolder

duckdb = pytest.importorskip("duckdb")
OPEN = Schema.from_dict(
    {
        "fields": [
            {"name": "a", "type": "string", "understudy": {"values": "discover"}},
            {"name": "b", "type": "integer", "categories": [0, 1, 2]},
        ],
        "understudy": {"privacy_unit": "row"},
    }
)
CODED = Schema.from_domain({"b": 3})
ROWS = "select 'x' || (range % 2) as a, range % 3 as b, range as c from range({})"


def rows(source):
    return int(next(source.counts([()]))[1][0])


@pytest.fixture
def shop(tmp_path):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(f"create table people as {ROWS.format(90)}")
    return tmp_path / "shop.duckdb"


def test_a_table_that_is_not_there_is_named(shop, tmp_path):
    with pytest.raises(InputError, match=r'shop\.duckdb: "s"\."peple" cannot be read; is it a table or view'):
        StoredTable(f"duckdb://{shop}?table=s.peple").source(CODED)
    with pytest.raises(InputError, match='"peple" cannot be read'):
        database_columns(f"duckdb://{shop}?table=peple", PrivateFolder(tmp_path))
    with pytest.raises(InputError, match=r"shop\.duckdb: the query cannot be used; try it in DuckDB$"):
        StoredTable(f"duckdb://{shop}", "select nope from people").source(CODED)


def test_another_writer_of_a_database_changes_no_later_coding(shop, tmp_path):
    """And is not kept out: once its rows are written down the database is let go."""
    table = StoredTable(f"duckdb://{shop}?table=people", temp_dir=tmp_path)
    snapshot = table.snapshot(OPEN)
    first = snapshot.source(CODED)
    with duckdb.connect(str(shop)) as other:
        other.execute(f"insert into people {ROWS.format(60)}")
    second = snapshot.source(CODED)
    assert [rows(source) for source in (first, second)] == [90, 90]
    assert [path.name for path in tmp_path.glob(f"{PREFIX}*/*")] == ["in-use"]
    table.close()
    assert not list(tmp_path.glob(f"{PREFIX}*"))
    assert rows(StoredTable(f"duckdb://{shop}?table=people").source(CODED)) == 150


def test_a_relation_that_grows():
    connection = duckdb.connect()
    connection.execute(f"create table people as {ROWS.format(90)}")
    snapshot = StoredTable(connection.table("people")).snapshot(OPEN)
    first = snapshot.source(CODED)
    connection.execute(f"insert into people {ROWS.format(60)}")
    assert [rows(source) for source in (first, snapshot.source(CODED))] == [90, 90]


def test_a_query_over_files_that_draws_rows(tmp_path):
    pq.write_table(pa.table({"a": ["x", "y"] * 5000, "b": [0, 1] * 5000}), tmp_path / "people.parquet")
    query = "select * from data where random() < 0.5"
    snapshot = StoredTable(f"{tmp_path}/*.parquet", query).snapshot(OPEN)
    found = [[t.tolist() for _, t in snapshot.source(CODED).counts([("b",)])] for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert 0 < sum(found[0][0]) < 10_000


def test_an_empty_table_and_dictionaries_that_differ_between_batches(tmp_path):
    connection = duckdb.connect()
    connection.execute("create table nobody (a varchar, b integer)")
    snapshot = StoredTable(connection.table("nobody")).snapshot(OPEN)
    assert [rows(snapshot.source(CODED)) for _ in range(2)] == [0, 0]
    connection.execute("create type mood as enum ('x0', 'x1')")
    connection.execute(f"create table moods as select a::mood as a, b from ({ROWS.format(400_000)})")  # noqa: S608
    snapshot = StoredTable(connection.table("moods")).snapshot(OPEN)
    assert [rows(snapshot.source(CODED)) for _ in range(2)] == [400_000, 400_000]


def test_what_was_not_kept_is_not_read_again(shop):
    table = StoredTable(f"duckdb://{shop}?table=people")
    table.source(CODED)
    with pytest.raises(InputError, match="cannot be read twice"):
        table.source(CODED)


def test_discovery_in_a_database_that_others_write_to(shop, monkeypatch, tmp_path):
    """End to end: the table that was counted is the one that was there when the run began."""
    with duckdb.connect(str(shop)) as connection:
        connection.execute(f"create or replace table people as {ROWS.format(20_000)}")

    def meanwhile(step):
        if step.stage == "discover":
            with duckdb.connect(str(shop)) as connection:
                connection.execute("delete from people")

    release = us.synthesize(f"duckdb://{shop}?table=people", OPEN, rho=1.0, delta=1e-6, progress=meanwhile)
    assert set(release.schema.column("a").values) == {"x0", "x1"}
    assert abs(release.model.total - 20_000) < 1000
