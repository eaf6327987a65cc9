"""From a database to a release: one snapshot, no credential anywhere, nothing left on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.errors import InputError, SchemaError, SettingError
from understudy.schema import Schema
from understudy.source import open_source
from understudy.source.open import StoredTable
from understudy.source.temp import PREFIX

PASSWORD = "zq-secret-4417"
CANARY = "zq-canary-7731"
SIZES = {"a": 3, "b": 4, "c": 2}
QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def rows(n: int = 4000) -> pa.Table:
    rng = np.random.default_rng(3)
    a = rng.integers(0, 3, n)
    return pa.table({"a": a, "b": (a + rng.integers(0, 2, n)) % 4, "c": rng.integers(0, 2, n), "d": [CANARY] * n})


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    Schema.from_domain(SIZES).save(tmp_path / "rows.schema.yaml")
    return tmp_path / "rows.schema.yaml"


@pytest.fixture(scope="session")
def table(postgres: Any) -> str:
    """A table of codes, written once."""
    with postgres.connect() as connection:
        connection.execute("create table codes (a integer, b integer, c integer, d text)")
        with connection.cursor().copy("copy codes from stdin") as copy:
            for row in zip(*(column.to_pylist() for column in rows().columns), strict=True):
                copy.write_row(row)
    return f"{postgres.url}?table=codes"


def command(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UNDERSTUDY_LEDGER": str(cwd / "ledger.db"), "TMPDIR": str(cwd), **env}
    line = [sys.executable, "-m", "understudy", *arguments]
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


BUDGET = ("--epsilon", "1", "--delta", "1e-9")


def test_postgres_to_release_on_the_command_line(table: str, schema_file: Path, tmp_path: Path, postgres: Any) -> None:
    """MST from a URL; the password is in the environment and in no file, output or log of the server."""
    arguments = ("synthesize", table, "-s", str(schema_file), *BUDGET, "-o", "a.release", "--json")
    done = command(*arguments, cwd=tmp_path, PGPASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["dataset"] == "codes"
    release = us.Release.load(tmp_path / "a.release")
    assert abs(len(release.sample()) - 4000) < 400
    _nowhere(tmp_path, done.stdout + done.stderr, "zq-secret", CANARY)
    assert not list(tmp_path.glob(f"{PREFIX}*"))
    log = postgres.log.read_text(errors="replace")
    assert "understudy_lookup" in log, "the server's log holds our statements"
    assert PASSWORD not in log


def test_the_bounding_key_is_in_no_statement(postgres: Any, table: str, password: None) -> None:
    from understudy.schema import PrivacyUnit

    schema = Schema(Schema.from_domain({"a": 3}).columns, privacy_unit=PrivacyUnit("b", 1))
    source = open_source(table, schema, key=b"\xab" * 32)
    assert sum(next(source.counts([("a",)]))[1]) == 4
    source.close()
    log = postgres.log.read_text(errors="replace")
    assert "understudy_bounded" in log
    assert "abab" not in log


def test_a_query_and_a_pgpass_file(table: str, schema_file: Path, tmp_path: Path, postgres: Any) -> None:
    secret = tmp_path / "pgpass"
    secret.write_text(f"127.0.0.1:{postgres.port}:*:owner:{PASSWORD}\n")
    secret.chmod(0o600)
    (tmp_path / "half.sql").write_text("select a, b, c from codes where c = 1;\n")
    arguments = ("synthesize", postgres.url, "--query", "half.sql", "-s", str(schema_file), *BUDGET, "-o", "b.release")
    done = command(*arguments, cwd=tmp_path, PGPASSFILE=str(secret))
    assert done.returncode == 0, done.stderr
    assert abs(len(us.Release.load(tmp_path / "b.release").sample()) - 2000) < 400
    secret.unlink()
    _nowhere(tmp_path, done.stdout + done.stderr, "zq-secret", CANARY)


@pytest.mark.parametrize(
    ("url", "code", "word"),
    [
        ("postgresql://owner:{secret}@127.0.0.1:{port}/shop?table=codes", 3, "PGPASSWORD"),
        ("postgresql://owner@127.0.0.1:{port}/shop?table=codes&password={secret}", 3, "PGPASSWORD"),
        ("postgresql://owner@127.0.0.1:{port}/shop?table=nowhere", 3, "psql"),
        ("postgresql://owner@127.0.0.1:{port}/nowhere?table=codes", 3, "no such database"),
        ("postgresql://owner@127.0.0.1:1/shop?table=codes", 3, "host and port"),
        ("postgresql://owner@127.0.0.1:{port}/shop", 3, "table"),
        ("mysql://owner@127.0.0.1/shop?table=codes", 3, "mysql"),
        ("postgresql://owner@127.0.0.1:{port}/shop?table=pg_class", 4, "not in the table"),
    ],
)
def test_what_cannot_be_read_is_explained(
    postgres: Any,
    table: str,
    schema_file: Path,
    tmp_path: Path,
    password: None,
    call: Any,
    url: str,
    code: int,
    word: str,
) -> None:
    place = url.format(secret=PASSWORD, port=postgres.port)
    left, out, err = call("synthesize", place, "-s", schema_file, *BUDGET, "-o", tmp_path / "c.release")
    assert left == code, err
    assert word in err
    assert not (tmp_path / "c.release").exists()
    _nowhere(tmp_path, out + err, "zq-secret", CANARY)


def test_a_wrong_password_is_not_shown(postgres: Any) -> None:
    place = f"postgresql://owner:zq-wrong@127.0.0.1:{postgres.port}/shop?table=codes"
    with pytest.raises(InputError) as caught:
        us.synthesize(place, Schema.from_domain(SIZES), epsilon=1, delta=1e-9)
    assert "zq-wrong" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_one_snapshot_while_others_write(postgres: Any, table: str, password: None) -> None:
    """Everything that is coded from one opening sees the rows of that moment; a later opening sees the new ones."""
    schema = Schema.from_domain(SIZES)
    others = _connections(postgres)
    place = StoredTable(table)
    first = place.source(schema)
    with postgres.connect() as other:
        other.execute("insert into codes select 0, 0, 0, 'new' from generate_series(1, 500)")
        second = place.source(schema)
        later = StoredTable(table)
        third = later.source(schema)
        other.execute("delete from codes where d = 'new'")
    assert [int(next(source.counts([()]))[1][0]) for source in (first, second, third)] == [4000, 4000, 4500]
    for source in (first, second, third):
        source.close()
    until = time.monotonic() + 300
    while (left := _connections(postgres) - others) and time.monotonic() < until:
        time.sleep(0.01)  # the server notices a moment later that a client has left
    assert not left


def _connections(postgres: Any) -> set[int]:
    with postgres.connect() as other:
        found = other.execute("select pid from pg_stat_activity where application_name = 'understudy'").fetchall()
    return {pid for (pid,) in found}


def test_rights_to_read_are_enough(postgres: Any, table: str) -> None:
    """A role that may only read, of a database that lets it make temporary tables."""
    with postgres.connect() as owner:
        owner.execute("create role reader login password 'zq-secret-reader'; grant select on codes to reader")
    url = table.replace("owner@", "reader:zq-secret-reader@")
    source = open_source(url, Schema.from_domain(SIZES))
    assert next(source.counts([()]))[1].tolist() == [4000]
    source.close()
    with postgres.connect() as owner:
        owner.execute("revoke temporary on database shop from public")
    with pytest.raises(InputError, match="GRANT TEMPORARY"):
        open_source(url, Schema.from_domain(SIZES))
    with postgres.connect() as owner:
        owner.execute("grant temporary on database shop to public")


@QUIET
def test_mst_from_spark(spark: Any, tmp_path: Path) -> None:
    pq.write_table(rows(), tmp_path / "rows.parquet")
    people = spark.read.parquet(str(tmp_path / "rows.parquet"))
    release = us.synthesize(people, Schema.from_domain(SIZES), epsilon=1, delta=1e-9)
    made = release.sample(seed=1, as_="spark")
    assert type(made) is type(people)
    assert abs(made.count() - 4000) < 400
    assert release.sample(5, seed=1).schema.names == made.columns == ["a", "b", "c"]
    assert not [view for view in spark.catalog.listTables() if view.name.startswith("understudy")]
    with pytest.raises(SchemaError, match="'z' is not in the table"):
        us.synthesize(people, Schema.from_domain({"z": 2}), epsilon=1, delta=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ibis itself
def test_ibis_tables(postgres: Any, table: str, password: None, tmp_path: Path) -> None:
    ibis = pytest.importorskip("ibis")
    schema = Schema.from_domain(SIZES)
    given = ibis.connect(postgres.url.replace("owner@", f"owner:{PASSWORD}@")).table("codes")
    source = open_source(given.filter(given.c == 1), schema)
    pq.write_table(rows(), tmp_path / "rows.parquet")
    local = ibis.duckdb.connect()
    same = open_source(local.read_parquet(tmp_path / "rows.parquet").filter(ibis._.c == 1), schema)
    assert [t.tolist() for _, t in source.counts([("a", "b")])] == [t.tolist() for _, t in same.counts([("a", "b")])]
    source.close()
    same.close()
    given.get_backend().disconnect()


def test_a_query_goes_with_files_and_databases_only() -> None:
    with pytest.raises(SettingError, match="query"):
        us.synthesize(rows(), Schema.from_domain(SIZES), epsilon=1, delta=1e-9, query="select 1")


IN_THE_MIDDLE = """
import sys, time
from understudy.cli import main
from understudy.source.stream import CodeStore

append = CodeStore.append

def stays(store, codes):
    append(store, codes)
    print("in the middle", flush=True)
    while True:
        time.sleep(0.05)

CodeStore.append = stays
sys.argv = ["understudy", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_after_an_interrupt(schema_file: Path, tmp_path: Path, stop: signal.Signals) -> None:
    """An interrupted run removes its directory; what a killed one leaves goes at the next start."""
    folder, temp = tmp_path / "parts", tmp_path / "private"
    folder.mkdir()
    temp.mkdir()
    for i in range(3):
        pq.write_table(rows().drop_columns("d"), folder / f"{i}.parquet")
    arguments = ["synthesize", str(folder), "-s", str(schema_file), *BUDGET, "-o", "d.release", "--temp-dir", str(temp)]
    environment = {**os.environ, "UNDERSTUDY_LEDGER": str(tmp_path / "ledger.db")}
    line = [sys.executable, "-c", IN_THE_MIDDLE, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, cwd=tmp_path, env=environment, text=True, **pipes) as running:
        assert running.stdout.readline() == "in the middle\n"
        (inside,) = temp.glob(f"{PREFIX}*")
        assert inside.stat().st_mode & 0o777 == 0o700
        assert list(inside.iterdir())
        running.send_signal(stop)
        _, words = running.communicate()
    assert not (tmp_path / "d.release").exists()
    if stop == signal.SIGINT:
        assert running.returncode == 130
        assert "Nothing was spent" in words
    else:
        assert list(temp.iterdir()), "a killed process cannot clean up"
        one = rows().drop_columns("d")
        pq.write_table(one, tmp_path / "one.parquet")
        source = open_source(f"{tmp_path}/one.parque[t]", Schema.from_domain(SIZES), temp_dir=temp)
        assert len(list(temp.iterdir())) == 1
        source.close()
    assert not list(temp.iterdir())


def test_another_living_run_keeps_its_directory(tmp_path: Path) -> None:
    pq.write_table(rows().drop_columns("d"), tmp_path / "one.parquet")
    one, two = (open_source(f"{tmp_path}/*.parquet", Schema.from_domain(SIZES), temp_dir=tmp_path) for _ in range(2))
    assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 2
    one.close()
    assert next(two.counts([()]))[1].tolist() == [4000]
    two.close()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def _nowhere(folder: Path, said: str, *secrets: str) -> None:
    """No secret in what was said or in any file that is left."""
    for secret in secrets:
        assert secret not in said
        for file in folder.rglob("*"):
            assert secret not in file.name
            if file.is_file():
                assert secret.encode() not in file.read_bytes(), file


def test_no_type_and_no_cell_of_postgres_stops_a_run(postgres: Any, password: None) -> None:
    """Types without an arrow twin go by their text; what does not fit is unknown, and nothing fails."""
    cells = {
        "date": "'infinity', '-infinity', '0044-03-15 BC', '5874897-12-31'",
        "timestamp": "'infinity', '-infinity', '0044-03-15 BC', '294276-12-31'",
        "timestamptz": "'infinity', '2020-01-01 00:00:00+14'",
        "numeric": "'NaN', 'Infinity', 1e300, 1.50, 0",
        "numeric(10, 2)": "'NaN', 1.5, -99999999.99",
        "float8": "'NaN', 'Infinity', 1e308, 5e-324",
        "float4": "'NaN', '-Infinity', 1e38",
        "bigint": "9223372036854775807, -9223372036854775808",
        "interval": "'1 day 02:30:00', '-1 year'",
        "time": "'23:59:59.999999'",
        "uuid": "'00000000-0000-0000-0000-000000000001'",
        "json": "'{\"a\": 1}'",
        "integer[]": "'{1,2}'",
        "bytea": "'\\x00ff'",
        "char(5)": "'a'",
        '"char"': "'a'",
        "inet": "'127.0.0.1'",
        "money": "'1.00'",
        "bool": "true",
    }
    listed = [[*values.split(", "), *["null"] * 5][:6] for values in cells.values()]
    names = [f'the "cell {i}' for i in range(len(cells))]
    with postgres.connect() as connection:
        kinds = ", ".join(f'"the ""cell {i}" {kind}' for i, kind in enumerate(cells))
        connection.execute(f"create table odd (n integer, {kinds})")
        for i, row in enumerate(zip(*listed, strict=True)):
            connection.execute(f"insert into odd values ({i}, {', '.join(row)})")  # noqa: S608
    place = StoredTable(f"{postgres.url}?table=odd")
    moment = {"minimum": "2000-01-01T00:00:00", "maximum": "2020-12-31T00:00:00"}
    declared: dict[str, dict[str, Any]] = {
        "string": {"categories": ["a", "1.50"]},
        "boolean": {},
        "date": {"constraints": {"minimum": "2000-01-01", "maximum": "2020-12-31"}},
        "datetime": {"constraints": moment},
    }
    for kind in ("string", "boolean", "integer", "number", "date", "datetime", "duration"):
        facts = declared.get(kind, {"constraints": {"minimum": 0, "maximum": 100}})
        fields = [{"name": name, "type": kind} | facts for name in names]
        schema = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
        for clique, table in place.source(schema).counts([(name,) for name in names]):
            assert table.sum() == 6, (kind, clique)
    numbers = [{"name": "n", "type": "integer", "categories": list(range(6))}]
    for name in names:
        unit = {"column": name, "max_rows": 1}
        schema = Schema.from_dict({"fields": numbers, "understudy": {"privacy_unit": unit}})
        assert 1 <= next(place.source(schema).counts([()]))[1][0] <= 5, name
    place.close()


def test_a_schema_of_names_and_types_without_reading_a_row(
    postgres: Any, password: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Any
) -> None:
    """From a database to a first schema: what a person would otherwise type."""
    with postgres.connect() as connection:
        connection.execute("create table drafted (name text, n smallint, x numeric, d date, t timestamptz, j json)")
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute("create table drafted (name text, n smallint, x double, d date, t timestamptz, j int[])")
    monkeypatch.chdir(tmp_path)
    for place in (f"{postgres.url}?table=drafted", "duckdb://shop.duckdb?table=drafted"):
        assert shell("schema", "draft", place, "--discover", "-o", "drafted.yaml", "--unit", "row", "-q") == 0
        schema = Schema.load(tmp_path / "drafted.yaml")
        assert [column.name for column in schema.open] == ["name", "n", "x", "d", "t"]
        (tmp_path / "drafted.yaml").unlink()
    assert shell("schema", "draft", postgres.url + "?table=drafted", "-o", "drafted.yaml") == 3
