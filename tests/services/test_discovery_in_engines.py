"""Nothing declared but names: values, bounds and types are discovered in tables in PostgreSQL, Spark and DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.errors import SchemaError
from understudy.schema import Schema

N = 4000
TYPES = {
    "person": "text", "city": "text", "code": "smallint", "grade": "numeric(4, 1)", "age": "integer", "wage": "float8",
    "born": "date", "seen": "timestamp", "logged": "timestamptz", "took": "float4", "digits": "text", "days": "text",
    "words": "text", "whole": "bigint", "real": "float8", "day": "date", "moment": "timestamptz", "flag": "boolean",
}  # fmt: skip
DISCOVERED = {  # the declaration of each column
    "city": {"type": "string", "understudy": {"values": "discover"}},
    "code": {"type": "integer", "understudy": {"values": "discover"}},
    "grade": {"type": "number", "understudy": {"values": "discover"}},
    "age": {"type": "integer", "understudy": {"bounds": "discover"}},
    "wage": {"type": "number", "understudy": {"bounds": "discover", "bins": "discover"}},
    "born": {"type": "date", "understudy": {"bounds": "discover"}},
    "seen": {"type": "datetime", "understudy": {"bounds": "discover", "bins": "discover"}},
    "logged": {"type": "string", "understudy": {"values": "discover"}},
    "took": {"type": "duration", "understudy": {"bounds": "discover"}},
    **{name: {"type": "discover"} for name in ("digits", "days", "words", "whole", "real", "day", "moment", "flag")},
}
QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def _schema(columns: tuple[str, ...]) -> Schema:
    fields = [{"name": name, **DISCOVERED[name]} for name in columns]
    return Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": {"column": "person", "max_rows": 2}}})


@pytest.fixture(scope="module")
def visits() -> Any:
    """Common and rare values, nulls, and text that looks like numbers and dates."""
    rng = np.random.default_rng(11)

    def some(values: list[Any], kind: Any) -> Any:
        cells = [values[i] for i in rng.integers(0, len(values), N)]
        return pa.array([None if rng.random() < 0.02 else cell for cell in cells], kind)

    day = 86_400_000_000
    days = [int(d) for d in rng.integers(3650, 14600, 400)]
    moments = [int(m) * 1_000_000 for m in rng.integers(1_500_000_000, 1_600_000_000, 400)]
    hours = [17_000 * day, 17_000 * day + 3_600_500_000]
    columns = {
        "person": pa.array([f"p{i % 2500}" for i in range(N)]),
        "city": some(["Ayr", "Bray", " Cork "], pa.string()),
        "code": some([3, 7, 11], pa.int16()),
        "grade": some([1.5, 2.0], pa.float64()).cast(pa.decimal128(4, 1)),
        "age": some([int(a) for a in rng.integers(0, 90, 200)], pa.int32()),
        "wage": some([float(w) for w in rng.lognormal(7, 0.5, 400)], pa.float64()),
        "born": some(days, pa.int32()).cast(pa.date32()),
        "seen": some(moments, pa.int64()).cast(pa.timestamp("us")),
        "logged": some(hours, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "took": some([float(t) for t in rng.integers(1, 5000, 300)], pa.float32()),
        "digits": some([str(d) for d in rng.integers(100, 900, 50)], pa.string()),
        "days": some([str(np.datetime64(d, "D")) for d in days], pa.string()),
        "words": some(["yes", "no", "perhaps"], pa.string()),
        "whole": some([int(w) for w in rng.integers(-50, 5000, 300)], pa.int64()),
        "real": some([float(r) for r in rng.normal(0, 10, 300)], pa.float64()),
        "day": some(days, pa.int32()).cast(pa.date32()),
        "moment": some(moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "flag": some([True, False], pa.bool_()),
    }
    for name in ("city", "words"):  # values that only one person has
        rare = columns[name].to_pylist()
        rare[:3] = ["zq-rare-1", "zq-rare-2", "zq-rare-3"]
        columns[name] = pa.array(rare)
    return pa.table(columns)


@pytest.fixture(scope="module")
def shop(postgres: Any, visits: Any) -> str:
    with postgres.connect() as connection:
        connection.execute(f"create table visits ({', '.join(f'{name} {kind}' for name, kind in TYPES.items())})")
        with connection.cursor().copy("copy visits from stdin") as copy:
            for row in zip(*(visits[name].to_pylist() for name in TYPES), strict=True):
                copy.write_row(row)
    return f"{postgres.url}?table=visits"


VALUES = {
    "city": {"Ayr", "Bray", "Cork"},
    "code": {3, 7, 11},
    "grade": {1.5, 2.0},
    "logged": {"2016-07-18T00:00:00Z", "2016-07-18T01:00:00.500000Z"},
    "words": {"yes", "no", "perhaps"},
}
KINDS = {"digits": "integer", "days": "date", "whole": "integer", "real": "number", "day": "date", "moment": "datetime"}
KINDS["flag"] = "integer"  # true is 1: readers of files make one of the other
ENDS = {"age": (20, 70), "wage": (900, 1500), "whole": (600, 3800), "digits": (300, 700)}
"""Ranges that discovered bounds enclose. Bounds may be wider: noise can make an empty cell at the end look occupied."""


def discover_facts(data: Any, columns: tuple[str, ...] = tuple(DISCOVERED)) -> None:
    """Discover everything about these columns: facts are near the truth, and no value of few people is among them."""
    # So large a budget that noise plays no part, and the plainest mechanism: what is tested is the way to the rows.
    options = {"rho": 1000, "delta": 1e-6, "mechanism": "independent", "discovery_share": 0.5}
    with us.testing.insecure(1):  # one time in 20, noise alone stands out somewhere beyond the bounds
        release = us.synthesize(data, _schema(columns), **options)
    found = {name: release.schema.column(name) for name in columns}
    assert {name: set(found[name].values) for name in columns if name in VALUES} == {
        name: values for name, values in VALUES.items() if name in columns
    }
    assert {name: found[name].kind for name in columns if name in KINDS} == {
        name: kind for name, kind in KINDS.items() if name in columns
    }
    for name in (name for name in columns if name in ENDS):
        low, high = ENDS[name]
        assert float(found[name].minimum) <= low < high <= float(found[name].maximum), name
    assert {"type", "bounds", "values"} <= {charge.what for charge in release.receipt.charges}
    made = release.sample(500, seed=1, as_="arrow")
    assert made.schema.names == list(columns)
    assert "zq-rare" not in str(made.to_pydict())


def test_in_memory(visits: Any) -> None:
    discover_facts(visits)


def test_from_postgres(shop: str, password: None) -> None:
    discover_facts(shop)


@QUIET
def test_from_spark(spark: Any, visits: Any, tmp_path: Path) -> None:
    pq.write_table(visits, tmp_path / "visits.parquet")
    """Fewer columns: every text column is a join, and Spark plans it anew for each coding."""
    columns = ("city", "code", "age", "seen", "logged", "digits", "words", "moment")
    discover_facts(spark.read.parquet(str(tmp_path / "visits.parquet")), columns)


@QUIET
def test_spark_tables_are_evaluated(spark: Any, tmp_path: Path) -> None:
    """Their rows come here, which is the custodian's to decide; a closed session is told in words."""
    rows = pa.table({"a": [0, 1, 2] * 50, "b": [0, 1] * 75, "c": ["x"] * 150})
    pq.write_table(rows, tmp_path / "rows.parquet")
    people = spark.read.parquet(str(tmp_path / "rows.parquet"))
    schema = Schema.from_domain({"a": 3, "b": 2})
    found = us.evaluate(people, people.where("a < 2"), schema, metrics=["workload_error"])
    kept = rows.filter(pc.less(rows["a"], 2))
    assert found.equals(us.evaluate(rows, kept, schema, metrics=["workload_error"]))
    with pytest.raises(SchemaError, match="'b'"):
        us.evaluate(people.select("a"), people, schema)


def test_from_duckdb(visits: Any, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.register("given", visits)
        connection.execute("create table visits as from given")
    discover_facts(f"duckdb://{tmp_path}/shop.duckdb?table=visits")
