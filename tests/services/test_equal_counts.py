"""One table in every engine: the counts are those of memory, bit by bit, with one key."""

from __future__ import annotations

import logging
import secrets
from contextlib import closing
from dataclasses import replace
from datetime import time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from understudy.errors import InputError
from understudy.schema import PrivacyUnit, Schema
from understudy.schema.open import Words
from understudy.source import MemorySource, open_source
from understudy.source.open import StoredTable

KEY = bytes(range(32))
POSTGRES_TYPES = {
    "string": "text", "int64": "bigint", "int32": "integer", "double": "float8", "float": "float4",
    "decimal128(12, 2)": "numeric(12, 2)", "date32[day]": "date", "timestamp[us]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamptz", "bool": "boolean",
}  # fmt: skip


@pytest.fixture(scope="session")
def wanted(messy: Any, messy_schema: Any, row_schema: Any, counts_of: Any) -> dict[str, Any]:
    """What memory counts, for units of several rows and for rows."""
    return {
        name: counts_of(MemorySource(messy, schema, key=KEY))
        for name, schema in (("unit", messy_schema), ("row", row_schema))
    }


@pytest.fixture(params=["unit", "row"])
def case(request: pytest.FixtureRequest, messy_schema: Any, row_schema: Any) -> tuple[str, Any]:
    return request.param, {"unit": messy_schema, "row": row_schema}[request.param]


def test_the_table_is_worth_counting(wanted: dict[str, Any]) -> None:
    """Rows are dropped by the schema, and by bounding; most codes occur."""
    rows, bounded = wanted["row"][()][0], wanted["unit"][()][0]
    assert 1000 < bounded < rows < 3000
    assert all(sum(count > 0 for count in table) > 1 for clique, table in wanted["row"].items() if len(clique) == 1)


def test_parquet_folder(messy: Any, case: Any, wanted: Any, counts_of: Any, tmp_path: Path) -> None:
    for i in range(3):
        pq.write_table(messy.slice(i * 1000, 1000), tmp_path / f"part-{i}.parquet")
    name, schema = case
    assert counts_of(open_source(tmp_path, schema, key=KEY)) == wanted[name]
    assert counts_of(open_source(str(tmp_path / "*.parquet"), schema, key=KEY)) == wanted[name]


def test_query_over_parquet(messy: Any, case: Any, wanted: Any, counts_of: Any, tmp_path: Path) -> None:
    pq.write_table(pa.concat_tables([messy, messy]), tmp_path / "double.parquet")
    pq.write_table(messy, tmp_path / "single.parquet")
    name, schema = case
    source = open_source(tmp_path / "single.parquet", schema, key=KEY, query="select * from data where true")
    assert counts_of(source) == wanted[name]


def test_csv_folder(messy: Any, messy_schema: Any, counts_of: Any, tmp_path: Path) -> None:
    """CSV is text, so memory's own reading of one file is the measure."""
    plain = messy.drop_columns(["money"]).append_column("money", messy["money"].cast(pa.string()))
    for i in range(3):
        arrow_csv.write_csv(plain.slice(i * 1000, 1000), tmp_path / f"part-{i}.csv")
    arrow_csv.write_csv(plain, tmp_path / "whole.tsv")
    wanted = counts_of(open_source(tmp_path / "whole.tsv", messy_schema, key=KEY))
    assert counts_of(open_source(str(tmp_path / "*.csv"), messy_schema, key=KEY)) == wanted
    query = open_source(str(tmp_path / "*.csv"), messy_schema, key=KEY, query="from data")
    assert counts_of(query) == wanted


def test_duckdb_database_and_relation(messy: Any, case: Any, wanted: Any, counts_of: Any, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    name, schema = case
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.register("given", messy)
        connection.execute('create schema "the shop"; create table "the shop".people as from given')
        connection.execute('create view visitors as select * from "the shop".people')
        assert counts_of(open_source(connection.table("visitors"), schema, key=KEY)) == wanted[name]
    for table in ("the shop.people", "visitors"):
        url = f"duckdb://{tmp_path}/shop.duckdb?table={table}"
        assert counts_of(open_source(url, schema, key=KEY)) == wanted[name]


@pytest.fixture(scope="session")
def people(postgres: Any, messy: Any) -> Any:
    """The messy table in PostgreSQL."""
    kinds = [f'"{field.name}" {POSTGRES_TYPES[str(field.type)]}' for field in messy.schema]
    with postgres.connect() as connection:
        connection.execute(f"create table people ({', '.join(kinds)})")
        with connection.cursor().copy("copy people from stdin") as copy:
            for row in zip(*(column.to_pylist() for column in messy.columns), strict=True):
                copy.write_row(row)
        connection.execute("create view visitors as select * from people")
    return postgres


@pytest.mark.parametrize("table", ["public.people", "visitors"])
def test_postgres(people: Any, case: Any, wanted: Any, counts_of: Any, table: str, password: None) -> None:
    name, schema = case
    source = open_source(f"{people.url}?table={table}", schema, key=KEY)
    assert counts_of(source) == wanted[name]
    source.close()


def test_query_in_postgres(people: Any, case: Any, wanted: Any, counts_of: Any, password: None) -> None:
    name, schema = case
    query = "with p as (select * from people) select * from p order by 1"
    assert counts_of(open_source(people.url, schema, key=KEY, query=query)) == wanted[name]


def test_times_of_day_in_postgres(postgres: Any, row_schema: Any, password: None) -> None:
    """Fractions of a second are written as memory writes them: six digits or none."""
    moments = [time(8, 30), time(8, 30, 0, 500000), None, time(0), time(23, 59, 59, 999999), time(8, 30)]
    with postgres.connect() as connection:
        connection.execute("create table times (at time)")
        connection.cursor().executemany("insert into times values (%s)", [(moment,) for moment in moments])
    schema = replace(row_schema, columns=(Words(name="at"),), rules=())
    wanted = MemorySource(pa.table({"at": pa.array(moments, pa.time64("us"))}), schema).values("at")
    assert dict(open_source(f"{postgres.url}?table=times", schema).values("at")) == dict(wanted)
    assert "08:30:00.500000" in dict(wanted)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("interval", [timedelta(seconds=s) for s in (90, 0, 1.5, -5, 93600)]),
        ("numeric", [Decimal(n) for n in ("1.00", "7", "0.50", "123456789012345678901.5", "-9.000")]),
    ],
)
def test_lengths_and_long_decimals_are_written_as_memory_writes_them(
    postgres: Any, row_schema: Any, kind: str, values: list[Any], password: None
) -> None:
    name = f"{kind}s_{secrets.token_hex(4)}"
    with postgres.connect() as connection:
        connection.execute(f"create table {name} (x {kind})")
        with connection.cursor().copy(f"copy {name} from stdin") as copy:
            for value in [*values, None]:
                copy.write_row([value])
    span = {"name": "x", "type": "duration", "constraints": {"minimum": -60, "maximum": 100_000}}
    coded = Schema.from_dict({"fields": [span], "understudy": {"privacy_unit": "row"}})
    table = pa.table({"x": pa.array([*values, None])})
    with closing(open_source(f"{postgres.url}?table={name}", coded)) as source:
        ((_, found),), ((_, wanted),) = source.counts([("x",)]), MemorySource(table, coded).counts([("x",)])
        assert found.tolist() == wanted.tolist()
    words = replace(row_schema, columns=(Words(name="x"),), rules=())
    with closing(open_source(f"{postgres.url}?table={name}", words)) as source:
        assert source.values("x") == MemorySource(table, words).values("x")


def test_texts_come_in_pieces(
    people: Any, messy_schema: Any, wanted: Any, counts_of: Any, password: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.source.postgres._STEP_TEXTS", 3)
    assert counts_of(open_source(f"{people.url}?table=people", messy_schema, key=KEY)) == wanted["unit"]


def test_another_key_keeps_other_rows(
    people: Any, messy_schema: Any, wanted: Any, counts_of: Any, password: None
) -> None:
    found = counts_of(open_source(f"{people.url}?table=people", messy_schema, key=bytes(32)))
    assert found != wanted["unit"]
    assert found[()] == wanted["unit"][()]


@pytest.mark.parametrize(
    ("encoding", "odd"), [("WIN1252", "\\x81"), ("WIN1252", "\\x618d"), ("EUC_JP", "\\xa9a1"), ("LATIN1", "\\x81")]
)
def test_one_text_without_a_form_in_unicode_moves_the_counts_of_postgres_by_one(
    postgres: Any, encoding: str, odd: str, password: None
) -> None:
    """As cell, as unit and as a discovered value. A declared value that the database cannot hold causes no failure."""
    import psycopg

    fields = [{"name": "x", "type": "string", "categories": ["a", "\u0436\u5b57"]}]
    unit = {"column": "who", "max_rows": 1}
    rows = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    units = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": unit}})
    words = replace(rows, columns=(Words(name="x"),), rules=())
    name = f"narrow_{secrets.token_hex(4)}"
    with postgres.connect() as connection:
        connection.execute(f"create database {name} encoding '{encoding}' locale 'C' template template0")
    url = postgres.url.replace("/shop", f"/{name}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table people (x text, who text)")
        connection.execute("insert into people values ('a', 'p'), ('b', 'q'), ('b', 'q'), (null, 'r')")
        for more, counted, kept in ((0, [1, 0, 1, 2], 3), (1, [1, 0, 1, 3], 4)):
            if more:
                text = f"convert_from('{odd}', '{encoding}')"
                connection.execute(f"insert into people select {text}, {text}")
            for schema, wanted in ((rows, sum(counted)), (units, kept)):
                source = open_source(f"{url}?table=people", schema)
                ((_, found),) = source.counts([("x",)])
                assert found.sum() == wanted
                assert found.tolist() == counted or schema is units
                source.close()
            source = open_source(f"{url}?table=people", words)
            assert sorted(source.values("x").values()) == [1] * more + [1, 2]
            source.close()


@pytest.fixture(scope="session")
def spark_people(spark: Any, messy: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The messy table in Spark: through Parquet, so that its types are Spark's own."""
    folder = tmp_path_factory.mktemp("spark") / "people.parquet"
    pq.write_table(messy, folder)
    return spark.read.parquet(str(folder))


# pyspark leaves its own sockets to the garbage collector
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark(
    spark_people: Any, messy_schema: Any, wanted: Any, counts_of: Any, words: Any, wanted_words: Any
) -> None:
    table = StoredTable(spark_people)
    assert counts_of(table.source(messy_schema, key=KEY)) == wanted["unit"]
    found = _values(table.source(words, key=KEY), words)
    for column in wanted_words:
        assert found[column] == wanted_words[column], column
    table.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("odd", ["4DFC6C6C6572", "7A7AFC", "00", "EDA080"])
def test_one_text_that_is_none_moves_the_counts_of_spark_by_one(spark: Any, odd: str) -> None:
    """Bytes that are no text come to Python with the mark that other rows may hold since an earlier mishap."""
    field = {"name": "x", "type": "string", "categories": ["a", "M\ufffdller"]}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    rows = " union all ".join(f"select '{text}' as x" for text in ["M\ufffdller", "zz\ufffd", "\ufffd", "a"] * 3)

    def counts(query: str) -> Any:
        table = StoredTable(spark.sql(query))
        ((_, found),) = table.source(schema).counts([("x",)])
        table.close()
        return found

    before = counts(rows)
    assert before.sum() == 12
    for more in (odd, f"{odd}FC"):
        after = counts(f"{rows} union all select cast(unhex('{more}') as string)")
        assert abs(after - before).sum() == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_moments_of_spark_are_written_in_no_zone_and_none_fails(spark: Any, zone: str) -> None:
    """02:30 of a day in March is no time in Berlin, and the far ends of time are a few hours further in every zone."""
    moments = ["2020-03-29 02:30:00", "2020-03-29 03:30:00", "2020-03-29 03:30:00.5"]
    named = Schema.from_dict({"fields": [{"name": "x", "categories": moments}], "understudy": {"privacy_unit": "row"}})
    zoned = Schema.from_dict(
        {"fields": [{"name": "x", "categories": [f"{m}Z" for m in moments]}], "understudy": {"privacy_unit": "row"}}
    )
    micros = [1585449000000000, 1585452600000000, 1585452600500000, 2**63 - 1, -(2**63)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        plain = spark.sql(" union all ".join(f"select timestamp_micros({micro}) as x" for micro in micros))
        bare = spark.sql(" union all ".join(f"select timestamp_ntz'{moment}' as x" for moment in moments))
        for frame, schema, wanted in ((plain, zoned, [1, 1, 1, 0, 2]), (bare, named, [1, 1, 1, 0, 0])):
            table = StoredTable(frame)
            ((_, found),) = table.source(schema).counts([("x",)])
            table.close()
            assert found.tolist() == wanted
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "cells",
    [
        pa.array([timedelta(seconds=s) for s in (90, 0, 1.5, -5, 93600)], pa.duration("us")),
        pa.array([Decimal(n) for n in ("1", "70", "0.5", "123456789012345678901.5", "-9")], pa.decimal128(30, 5)),
    ],
    ids=["lengths", "decimals"],
)
def test_lengths_and_long_decimals_of_spark_are_written_as_memory_writes_them(
    spark: Any, row_schema: Any, cells: Any
) -> None:
    span = {"name": "x", "type": "duration", "constraints": {"minimum": -60, "maximum": 100_000}}
    coded = Schema.from_dict({"fields": [span], "understudy": {"privacy_unit": "row"}})
    words = replace(row_schema, columns=(Words(name="x"),), rules=())
    given, table = StoredTable(spark.createDataFrame(pa.table({"x": cells}))), pa.table({"x": cells})
    ((_, found),), ((_, wanted),) = (
        source.counts([("x",)]) for source in (given.source(coded), MemorySource(table, coded))
    )
    assert found.tolist() == wanted.tolist()
    assert given.source(words).values("x") == MemorySource(table, words).values("x")
    given.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cell_that_spark_quotes_reaches_no_log_of_this_process(spark: Any, row_schema: Any) -> None:
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    records: list[Any] = []
    handler, log = logging.Handler(), PySparkLogger.getLogger("SQLQueryContextLogger")
    handler.emit = records.append  # type: ignore[method-assign]
    log.addHandler(handler)
    view = spark.sql("select cast(x as int) as sex from values ('1'), ('zq-secret-1138') as t(x)")
    kept = tuple(column for column in row_schema.columns if column.name == "sex")
    with pytest.raises(InputError, match="Spark cannot read") as caught:
        StoredTable(view).source(replace(row_schema, columns=kept))
    assert ("zq-secret" in str(caught.value), records) == (False, [])
    with pytest.raises(PySparkException):
        view.collect()
    assert records  # as pyspark does by itself
    log.removeHandler(handler)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_unit_beyond_whole_numbers_fails_nothing_in_spark(spark: Any, row_schema: Any, ansi: str) -> None:
    units = [1.0, 1.0, 2.5, float("inf"), -float("inf"), 1e19, -1e300, float("nan"), None]
    kept = tuple(column for column in row_schema.columns if column.name == "sex")
    schema = replace(row_schema, columns=kept, privacy_unit=PrivacyUnit("who", 1))
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        table = StoredTable(spark.createDataFrame(pa.table({"who": pa.array(units), "sex": ["F"] * len(units)})))
        ((_, found),) = table.source(schema).counts([("sex",)])
        table.close()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert found[0] == found.sum() == 6


@pytest.fixture(scope="session")
def words(messy_schema: Any) -> Any:
    """Columns whose values are discovered."""
    names = ("sex", "note", "region", "ratio", "money", "born", "seen", "logged", "flag")
    return replace(messy_schema, columns=tuple(Words(name=name, tokens=("null", "N/A")) for name in names))


@pytest.fixture(scope="session")
def wanted_words(messy: Any, words: Any) -> Any:
    found = _values(MemorySource(messy, words, key=KEY), words)
    assert all(len(counts) > 1 for counts in found.values())
    return found


def _values(source: Any, schema: Any) -> dict[str, dict[str, int]]:
    return {column.name: source.values(column.name) for column in schema.words}


def test_values_of_parquet(messy: Any, words: Any, wanted_words: Any, tmp_path: Path) -> None:
    pq.write_table(messy, tmp_path / "people.parquet")
    assert _values(open_source(tmp_path, words, key=KEY), words) == wanted_words


def test_values_of_postgres(people: Any, words: Any, wanted_words: Any, password: None) -> None:
    found = _values(open_source(f"{people.url}?table=people", words, key=KEY), words)
    for column in wanted_words:
        assert found[column] == wanted_words[column], column


@pytest.mark.parametrize("unit", ["region", "ratio", "money", "born", "seen", "logged", "flag"])
def test_units_of_any_type(
    messy: Any, people: Any, row_schema: Any, counts_of: Any, unit: str, password: None, tmp_path: Path
) -> None:
    """A unit has one text in every engine, whatever the type of its column."""
    kept = tuple(column for column in row_schema.columns if column.name in ("sex", "age"))
    schema = replace(row_schema, columns=kept, privacy_unit=PrivacyUnit(unit, 3))
    pq.write_table(messy, tmp_path / "people.parquet")
    places = (tmp_path, f"{people.url}?table=people")
    cliques = [("sex", "age")]
    wanted, *found = (
        [table.tolist() for _, table in source.counts(cliques)]
        for source in (MemorySource(messy, schema, key=KEY), *(open_source(place, schema, key=KEY) for place in places))
    )
    assert found == [wanted, wanted]


_SPELLINGS = ["00001", "1", " 1 ", "+1", "1.0", "1e5", "100000", "true", "TRUE", "0", "false", "2020-01-01 00:00:00"]
_SPELLINGS += ["2020-01-01", "08:30", "08:30:00", "NA", "", "X17", "x17", "0x10", "16", "0.50", ".5", "-0"]


@pytest.fixture(scope="module")
def spellings() -> tuple[Any, Any, Any]:
    """Units and cells in many spellings, some of one meaning; the schema of a run, and one that discovers values."""
    table = pa.table({"who": _SPELLINGS * 2, "x": _SPELLINGS[1:] * 2 + ["1", "7"]})
    field = {"name": "x", "type": "string", "categories": ["007", "1", "100000", "2020-01-01", "08:30", "NA", "0.5"]}
    unit = {"column": "who", "max_rows": 1}
    coded = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": unit}})
    return table, coded, replace(coded, columns=(Words(name="x"),), rules=())


def _equal_meanings(open_it: Any, spellings: tuple[Any, Any, Any]) -> None:
    table, coded, words = spellings
    with closing(open_it(coded)) as source:
        ((_, found),), ((_, wanted),) = source.counts([("x",)]), MemorySource(table, coded, key=KEY).counts([("x",)])
        assert found.tolist() == wanted.tolist()
        assert found.sum() == 9  # units
    with closing(open_it(words)) as source:
        assert source.values("x") == MemorySource(table, words, key=KEY).values("x")


def test_units_and_cells_mean_the_same_in_postgres(postgres: Any, spellings: Any, password: None) -> None:
    name = f"spellings_{secrets.token_hex(4)}"
    with postgres.connect() as connection:
        connection.execute(f"create table {name} (who text, x text)")
        with connection.cursor().copy(f"copy {name} from stdin") as copy:
            for row in zip(*(column.to_pylist() for column in spellings[0].columns), strict=True):
                copy.write_row(row)
    _equal_meanings(lambda schema: open_source(f"{postgres.url}?table={name}", schema, key=KEY), spellings)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_units_and_cells_mean_the_same_in_spark(spark: Any, spellings: Any) -> None:
    frame = spark.createDataFrame(spellings[0])
    _equal_meanings(lambda schema: StoredTable(frame).source(schema, key=KEY), spellings)


def test_units_and_cells_mean_the_same_in_parquet(spellings: Any, tmp_path: Path) -> None:
    pq.write_table(spellings[0], tmp_path / "t.parquet")
    _equal_meanings(lambda schema: open_source(str(tmp_path / "*.parquet"), schema, key=KEY), spellings)
