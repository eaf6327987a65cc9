"""Synthetic rows written to a real Spark table: typed, all or nothing, and refusing to replace what is there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import understudy as us
from understudy.errors import OutputError
from understudy.release.frames import convert_rows
from understudy.sink.spark import write_spark, write_table

# Python's pools of sockets to Spark are closed when they are collected, not before.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Every type that rows can have, and a null of each."""
    moment = datetime(2020, 3, 8, 2, 30)  # which the session's time zone skips: a naive time must not care
    words = pa.array(["a", None]).dictionary_encode()
    return pa.table(
        {
            "word": pa.array(["ä,'`\n", None]),
            "coded": words,
            "small": pa.array([7, None], pa.int8()),
            "count": pa.array([2**62, None], pa.int64()),
            "huge": pa.array([2**64 - 1, None], pa.uint64()),
            "amount": pa.array([0.1, None], pa.float64()),
            "works": pa.array([True, None]),
            "born": pa.array([moment.date(), None], pa.date32()),
            "seen": pa.array([moment, None], pa.timestamp("ms")),
            "logged": pa.array([moment.replace(tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "spell": pa.array([90_061_000, None], pa.duration("ms")),
        }
    )


TYPES = {
    "word": "string",
    "coded": "string",
    "small": "tinyint",
    "count": "bigint",
    "huge": "decimal(20,0)",
    "amount": "double",
    "works": "boolean",
    "born": "date",
    "seen": "timestamp_ntz",
    "logged": "timestamp",
    "spell": "interval day to second",
}


def tables(spark: Any) -> list[str]:
    return sorted(row.tableName for row in spark.sql("show tables").collect() if not row.isTemporary)


def test_every_type_comes_back_as_it_went(spark: Any, rows: pa.Table) -> None:
    write_table(spark, "`Typed_rows`", [rows, rows.slice(0, 0), rows.slice(0, 1)])
    back = spark.table("`Typed_rows`")
    assert dict(back.dtypes) == TYPES
    plain = rows.set_column(1, "coded", rows["coded"].cast(pa.string())).to_pylist()
    found = back.toArrow().to_pylist()
    assert sorted(found, key=str) == sorted([*plain, plain[0]], key=str)
    assert tables(spark) == ["typed_rows"]
    spark.sql("drop table `Typed_rows`")


def test_a_table_that_exists_stays_unless_overwriting_is_requested(spark: Any, release: us.Release) -> None:
    assert write_spark(release, spark, "kept", rows=3, seed=1) == 3
    with pytest.raises(OutputError, match="table kept already exists"):
        write_spark(release, spark, "kept", rows=4)
    assert spark.table("kept").count() == 3
    write_spark(release, spark, "kept", rows=4, seed=2, where="a=1", overwrite=True)
    assert spark.table("kept").toArrow().to_pylist() == release.sample(4, seed=2, where="a=1").to_pylist()
    assert tables(spark) == ["kept"]
    spark.sql("drop table kept")


def test_what_fails_leaves_nothing_and_what_was_there(spark: Any, rows: pa.Table) -> None:
    write_table(spark, "kept", [rows])

    def broken() -> Any:
        yield rows
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(spark, "kept", broken(), overwrite=True)
    with pytest.raises(OutputError, match="could not be filled"):
        write_table(spark, "other", [rows, pa.table({"else": [1]})])
    assert tables(spark) == ["kept"]
    assert spark.table("kept").count() == 2
    spark.sql("drop table kept")


def test_views_and_names_that_are_none_are_refused(spark: Any, rows: pa.Table) -> None:
    convert_rows(rows, "spark").createOrReplaceTempView("seen_here")
    with pytest.raises(OutputError, match="is a view"):
        write_table(spark, "seen_here", [rows], overwrite=True)
    spark.catalog.dropTempView("seen_here")
    with pytest.raises(OutputError, match="cannot be looked up"):
        write_table(spark, "no name; at all", [rows])


@pytest.fixture(scope="module")
def release() -> us.Release:
    from understudy.gate.randomness import insecure

    schema = us.Schema.from_domain({"a": 3, "b": 2})
    with insecure(1):
        table = pa.table({"a": [0, 1, 2, 1] * 50, "b": [0, 1, 1, 0] * 50})
        return us.synthesize(table, schema, epsilon=1, delta=1e-6, mechanism="independent")
