"""Real engines: PostgreSQL and Spark, started by the tests themselves, and one messy table for all."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "zq-secret-4417"


def missing(reason: str) -> None:
    """Skip where a component is not there; `make test-services` promises that it is, so there it is a failure."""
    if os.environ.get("UNDERSTUDY_SERVICES") == "required":
        pytest.fail(f"{reason}, and `make test-services` needs it")
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def own_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "ledger.db"))


class Server:
    """A PostgreSQL server of our own: its URL, and a way to run SQL as its owner."""

    def __init__(self, port: int, log: Path) -> None:
        self.port, self.log = port, log
        self.url = f"postgresql://owner@127.0.0.1:{port}/shop"

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, password=PASSWORD, autocommit=True)


def _binary(name: str) -> str | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def _as_owner(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return command
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]
    missing("there is no user but root to run PostgreSQL")
    return []


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    if importlib.util.find_spec("psycopg") is None:
        missing("psycopg is not installed (pip install 'understudy[sql]')")
    initdb, server = _binary("initdb"), _binary("postgres")
    if initdb is None or server is None:
        missing("PostgreSQL is not installed (Debian: postgresql)")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PG")]:
            patch.delenv(name)  # of whoever runs the tests: they would be taken for ours
        folder = Path(tempfile.mkdtemp(prefix="understudy-postgres-", dir="/tmp"))
        folder.chmod(0o777)
        _make(str(initdb), folder)
        with (folder / "log").open("ab") as log:
            running, port = _started(str(server), folder / "data", log)
            try:
                yield Server(port, folder / "log")
            finally:
                _stop(running)
                shutil.rmtree(folder, ignore_errors=True)


def _make(initdb: str, folder: Path) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    made = [initdb, "-D", str(folder / "data"), "-U", "owner", "--pwfile", str(secret), "-A", "scram-sha-256"]
    made += ["-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    subprocess.run(_as_owner(made), check=True, capture_output=True, cwd="/")


def _started(server: str, data: Path, log: Any) -> tuple[subprocess.Popen[bytes], int]:
    """A server and its port; one that somebody takes between our finding it free and our using it is given up."""
    options = ["-c", "fsync=off", "-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1"]
    options += ["-c", "log_statement=all", "-c", "log_min_duration_statement=0", "-c", "log_connections=on"]
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        line = _as_owner([server, "-D", str(data), "-p", str(port), *options])
        running = subprocess.Popen(line, stdout=log, stderr=log, cwd="/")
        if _answers(running, port, data):
            return running, port
        _stop(running)
    pytest.fail("PostgreSQL did not start")


def _answers(running: subprocess.Popen[bytes], port: int, data: Path) -> bool:
    """Whether our own server answers at the port, once it has had all the time that a busy machine needs."""
    import psycopg

    until = time.monotonic() + 300
    while running.poll() is None and time.monotonic() < until:
        try:
            with psycopg.connect(f"postgresql://owner@127.0.0.1:{port}/postgres", password=PASSWORD) as connection:
                connection.autocommit = True
                if connection.execute("show data_directory").fetchone() != (str(data),):
                    return False
                connection.execute("create database shop")
                return True
        except psycopg.OperationalError:
            time.sleep(0.1)
    return False


def _stop(running: subprocess.Popen[bytes]) -> None:
    running.send_signal(signal.SIGINT)  # which does not wait for clients
    try:
        running.wait(120)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


KEY = bytes(range(32))


@pytest.fixture(scope="session")
def messy() -> Any:
    """A table with everything that tables have: every kind of column, odd cells, several rows per person."""
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(7)
    n = 3000

    def some(values: list[Any], kind: Any) -> Any:
        return pa.array([values[i] for i in rng.integers(0, len(values), n)], kind)

    days = [None, *map(int, rng.integers(-4000, 25000, 300))]
    moments = [None, *map(int, rng.integers(0, 2 * 10**15, 300))]
    floats = [None, float("nan"), float("inf"), -float("inf"), -0.0, 0.1, 0.3, 0.1 + 0.2, 1.0, 1e308, -1e308, 5e-324]
    floats += rng.normal(0.5, 0.5, 300).tolist()
    money = [None, *(Decimal(int(cents)).scaleb(-2) for cents in rng.integers(-5000, 250000, 300))]
    texts = ["F", "M", " F ", "f", "", None, "x\u00e4\u0142\u0436", "O'Brien; --", "a\tb", 'q"', "\u00a0M", "null"]
    notes = ["07", "7", "7.0", " 8", "1e1", "10", "x", None, "inf", "N/A", "\u0667", "9007199254740993"]
    people = ["  7", "7", "07", "", None, "|a|", "\u0436", *[f"p{i}" for i in range(600)]]
    return pa.table(
        {
            "person": some(people, pa.string()),
            "sex": some(texts, pa.string()),
            "note": some(notes, pa.string()),
            "region": some([1, 2, 3, 4, 99, -1, None, 2**62], pa.int64()),
            "age": some([None, -9, -8, 200, *range(-3, 115)], pa.int32()),
            "wage": some([None, *map(int, rng.integers(-50, 5100, 200)), 0, 1000, 2500], pa.int64()),
            "score": some(floats, pa.float64()),
            "ratio": some(floats, pa.float32()),
            "money": some(money, pa.decimal128(12, 2)),
            "born": pa.array([days[i] for i in rng.integers(0, len(days), n)], pa.int32()).cast(pa.date32()),
            "seen": some(moments, pa.timestamp("us")),
            "logged": some(moments, pa.timestamp("us", "UTC")),
            "flag": some([True, False, None], pa.bool_()),
            "yes": some(["Y", "N", "y", None, "1"], pa.string()),
            "when": some(["2020-02-29", "2019-02-29", "1999-12-31T08:00:00", "soon", None, "31/12/2001"], pa.string()),
        }
    )


@pytest.fixture(scope="session")
def messy_schema() -> Any:
    from understudy.schema import Schema

    def number(name: str, low: Any, high: Any, kind: str = "number", **ours: Any) -> dict[str, Any]:
        return {"name": name, "type": kind, "constraints": {"minimum": low, "maximum": high}, "understudy": ours}

    flag = {"name": "yes", "type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]}
    fields = [
        {"name": "person", "type": "string", "understudy": {"kind": "id"}},
        {"name": "sex", "type": "string", "categories": ["F", "M"], "understudy": {"missing": {"null": "refused"}}},
        {"name": "note", "type": "string", "categories": ["7", "8", "10"], "understudy": {"missing": {"N/A": None}}},
        {"name": "region", "type": "integer", "categories": [1, 2, 3, 4], "understudy": {"on_unknown": "drop_row"}},
        number("age", 0, 99, "integer", missing={"-9": "refused", "-8": "unasked"}, bins={"width": 5}),
        number("wage", 0, 5000, "integer", heaped=[100, 20, 10, 5, 1]),
        number("score", 0, 1, bins={"edges": [0, 0.1, 0.3, 0.7, 1]}, outside="unknown"),
        number("ratio", 0, 1, decimals=2, bins=10, spikes=[0.3]),
        number("money", 0, 2000, bins={"edges": [0, 0.3, 10, 1000.1, 2000]}),
        number("born", "1960-01-01", "2019-12-31", "date", bins={"width": "1 year"}, missing={"2000-01-01": "none"}),
        number("seen", "1975-01-01T00:00:00", "2030-01-01T00:00:00", "datetime", bins=12),
        number("logged", "1975-01-01", "2030-01-01", "date", bins={"width": "1 year"}, outside="unknown"),
        {"name": "flag", "type": "boolean"},
        flag,
        number("when", "1990-01-01", "2029-12-31", "date", bins={"width": "1 year"}),
    ]
    unit = {"column": "person", "max_rows": 2}
    return Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": unit}})


@pytest.fixture(scope="session")
def row_schema(messy_schema: Any) -> Any:
    """The same table where every row is a unit."""
    from dataclasses import replace

    from understudy.schema import PrivacyUnit

    return replace(messy_schema, privacy_unit=PrivacyUnit())


@pytest.fixture(scope="session")
def counts_of() -> Any:
    """Every one- and two-way table of a source, the number of rows, and one table too large to be dense."""
    import itertools

    def answers(source: Any) -> dict[Any, Any]:
        columns = list(source.domain)
        large = tuple(columns[:8])
        cliques = [(), *itertools.combinations(columns, 1), *itertools.combinations(columns, 2), large]
        found = dict(source.counts(cliques))
        sparse = found.pop(large)
        plain = {clique: table.tolist() for clique, table in found.items()}
        return plain | {large: (sparse.cells.tolist(), sparse.counts.tolist(), sparse.size)}

    return answers


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way passwords are given."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark with two workers, in a time zone of its own."""
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark is not installed (pip install 'understudy[spark]')")
    if shutil.which("java") is None:
        missing("there is no Java (Debian: openjdk-17-jre-headless)")
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.session.timeZone": "America/New_York",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        # Small tables: compiling costs far more than it saves.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
    }
    builder = SparkSession.builder.master("local[2]").appName("understudy-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
