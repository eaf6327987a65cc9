"""Synthetic rows written back to a real PostgreSQL: typed, all or nothing, and without a credential in any message."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.errors import OutputError, SettingError
from understudy.gate.randomness import insecure
from understudy.schema import Schema
from understudy.sink.files import write_chunks
from understudy.sink.postgres import open_table

PASSWORD = "zq-secret-4417"
SCHEMA = Schema.from_dict(
    {
        "fields": [
            {"name": "key", "understudy": {"kind": "id"}},
            {"name": "Sex", "type": "string", "categories": ["F", "a,b", 'q"'], "understudy": {"missing": {"": None}}},
            {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}},
            {"name": "wage", "type": "number", "constraints": {"minimum": 0, "maximum": 9}},
            {"name": "works", "type": "boolean"},
            {"name": "born", "type": "date", "constraints": {"minimum": "2000-01-01", "maximum": "2009-12-31"}},
            {
                "name": "seen",
                "type": "datetime",
                "constraints": {"minimum": "2020-01-01T00:00:00", "maximum": "2020-12-31T00:00:00"},
            },
            {"name": "spell", "type": "duration", "constraints": {"minimum": "PT0S", "maximum": "P30D"}},
        ],
        "understudy": {"privacy_unit": "row"},
    }
)


@pytest.fixture(scope="module")
def release_file(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "Sex": rng.choice(["F", "a,b", 'q"'], n),
            "age": rng.integers(0, 100, n),
            "wage": rng.random(n) * 9,
            "works": rng.random(n) < 0.5,
            "born": pd.to_datetime("2000-01-01") + pd.to_timedelta(rng.integers(0, 3600, n), unit="D"),
            "seen": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 8000, n), unit="h"),
            "spell": pd.to_timedelta(rng.integers(0, 30 * 24, n), unit="h"),
        }
    )
    path = tmp_path_factory.mktemp("rows") / "r.release"
    with insecure(1):
        us.synthesize(frame, SCHEMA, epsilon=1, delta=1e-6, mechanism="independent", output=path)
    return path


@pytest.fixture
def run(call):
    """Runs a command, whose words never hold the password: (exit code, stdout, stderr)."""

    def checked(*words):
        code, out, err = call(*words)
        assert PASSWORD not in out + err
        return code, out, err

    return checked


def test_rows_go_back_with_their_types_and_as_sample_makes_them(postgres, password, release_file, run):
    url = f"{postgres.url}?table=back"
    code, out, _ = run("sample", release_file, "-n", 500, "--seed", 3, "-o", url, "--json")
    assert code == 0
    assert json.loads(out) == {"rows": 500, "output": "shop, table back", "seed": 3}
    with postgres.connect() as connection:
        kinds = connection.execute(
            "select column_name, data_type from information_schema.columns where table_name = 'back' order by 1"
        ).fetchall()
        assert dict(kinds) == {
            "key": "bigint",
            "Sex": "text",
            "age": "bigint",
            "wage": "double precision",
            "works": "boolean",
            "born": "date",
            "seen": "timestamp without time zone",
            "spell": "interval",
        }
        rows = connection.execute('select key, "Sex", age, wage, works, born, seen, spell from back').fetchall()
    made = us.Release.load(release_file).sample(500, seed=3).to_pylist()
    assert [tuple(row.values()) for row in made] == rows


def test_a_table_that_exists_stays_unless_overwriting_is_requested(postgres, password, release_file, run):
    with postgres.connect() as connection:
        connection.execute("create table kept (a int); insert into kept values (7)")
    url = f"{postgres.url}?table=kept"
    code, _, err = run("sample", release_file, "-n", 5, "-o", url)
    assert code == 8
    assert "table kept already exists" in err
    with postgres.connect() as connection:
        assert connection.execute("select a from kept").fetchall() == [(7,)]
    assert run("sample", release_file, "-n", 5, "-o", url, "--force")[0] == 0
    with postgres.connect() as connection:
        assert connection.execute("select count(*) from kept").fetchone() == (5,)


def test_what_is_interrupted_leaves_no_table_and_keeps_the_old_one(postgres, password, release_file):
    with postgres.connect() as connection:
        connection.execute("create table old (a int); insert into old values (7)")
    _, chunks = us.Release.load(release_file).stream(10)
    (chunk,) = chunks

    def stopped():
        yield chunk
        raise KeyboardInterrupt

    for name in ("old", "new"):
        with pytest.raises(KeyboardInterrupt), open_table(f"{postgres.url}?table={name}", force=True) as opened:
            write_chunks(stopped(), opened, 10)
    with postgres.connect() as connection:
        assert connection.execute("select to_regclass('new')").fetchone() == (None,)
        assert connection.execute("select a from old").fetchall() == [(7,)]


def test_no_credential_in_any_message(postgres, release_file, monkeypatch, run):
    wrong = postgres.url.replace("owner@", f"owner:{PASSWORD}x@")
    for url in (f"{wrong}?table=t", f"postgresql://owner:{PASSWORD}@127.0.0.1:1/shop?table=t"):
        with pytest.raises(OutputError) as caught, open_table(url):
            pass
        assert PASSWORD not in str(caught.value)
        assert caught.value.__cause__ is None
        code, _, err = run("sample", release_file, "-n", 5, "-o", url)
        assert code == 3
        assert "process list" in err or "command line" in err
    with pytest.raises(SettingError, match="the table's name is missing"), open_table(postgres.url):
        pass
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with pytest.raises(OutputError, match=r"could not be made"), open_table(f"{postgres.url}?table=no.t") as opened:
        write_chunks(us.Release.load(release_file).stream(3)[1], opened, 3)
