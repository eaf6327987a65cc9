"""Discovery from file to release: nothing but paid answers tells tables apart, no value leaks, a killed run is kept."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.discovery import search as probe
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.ledger import Ledger
from understudy.run import record
from understudy.schema import Schema
from understudy.schema import open as discover
from understudy.source import MemorySource
from understudy.source import open as reopening
from understudy.testing.canary import Canary
from understudy.testing.twin import check_twins, collect_outcome

CANARY = Canary()
WORD, NUMBER = CANARY.word, CANARY.number
HEADER = "who,sex,age,income,born,free\n"
SCHEMA = """
fields:
  - {name: who, type: string, understudy: {kind: id}}
  - {name: sex, type: string, understudy: {values: discover, missing: {"?": null}}}
  - {name: age, type: integer, understudy: {bounds: discover, bins: discover}}
  - {name: income, type: number, constraints: {minimum: 0, maximum: 1000}, understudy: {bins: discover}}
  - {name: born, type: date, understudy: {bounds: discover}}
  - {name: free, type: discover}
understudy:
  privacy_unit: {column: who, max_rows: 2}
"""
FIRST = HEADER + "".join(f"p{i},{'fm'[i % 2]},{30 + i % 20},{i}.5,19{50 + i % 40}-01-01,{i % 7}\n" for i in range(300))
WILD = HEADER + "x,zebra,1e308,inf,9999-99-99,\n,,,,,\ny,?,-5,nan,0001-01-01,word\n" * 40 + "z,a,b,c,d,e\n" * 3


@pytest.mark.parametrize("second", [WILD, HEADER], ids=["wild", "empty"])
@pytest.mark.parametrize(
    "options", [("--epsilon", "20", "--delta", "1e-3"), ("--rho", "9", "--delta", "1e-3", "--json")]
)
def test_two_tables_are_distinguished_by_paid_answers_alone(tmp_path, run_commands, options, second):
    given = ("--discovery-share", "0.5", "-m", "independent", *options)
    left = check_twins(
        lambda text, folder: run_commands(text, SCHEMA, folder, *given),
        FIRST,
        second,
        tmp_path / "twin",
    )
    assert left["stdout"].count(b"exit 0") == 4
    assert {"t.release", "rows.csv", "ledger.db"} <= set(left)


def boom(*args, **kwargs):
    raise RuntimeError("boom")


FAILURES = {
    "open": (reopening, "open_source"),
    "count": (MemorySource, "counts"),
    "values": (MemorySource, "values"),
    "search": (probe.Search, "learn"),
    "record": (Ledger, "record"),
    "schema": (Ledger, "record_schema"),
}


@pytest.mark.parametrize("stage", FAILURES)
def test_failing_discovery_distinguishes_two_tables_by_paid_answers_alone(tmp_path, run_commands, monkeypatch, stage):
    monkeypatch.setattr(*FAILURES[stage], boom)
    given = ("--discovery-share", "0.5", "--epsilon", "20", "--delta", "1e-3")
    left = check_twins(
        lambda text, folder: run_commands(text, SCHEMA, folder, *given),
        FIRST,
        WILD,
        tmp_path / "t",
    )
    answered = stage not in ("open", "count", "record")
    assert (b'"kind": "answer"' in left["ledger.db"]) == answered
    assert (b"exit 7\n" in left["stdout"]) == answered


# -- canaries --

CELLS = [f"{WORD}", f"{NUMBER}", f"{NUMBER}.5", f"{WORD} {NUMBER}", f"20{WORD}"]


def canary_frames(folder):
    rows = dict.fromkeys(HEADER.strip().split(","), CELLS)
    path = folder / "in" / "t.csv"
    path.write_text(HEADER + "".join(",".join([cell] * 6) + "\n" for cell in CELLS))
    yield path
    pq.write_table(pa.table(rows), folder / "in" / "t.parquet")
    yield folder / "in" / "t.parquet"
    yield pd.DataFrame(rows).astype(object)
    yield pl.DataFrame(rows).with_columns(age=pl.Series([NUMBER] * 5), income=pl.Series([float(NUMBER)] * 5))


def canary_run(folder):
    (folder / "in").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))
        (folder / "s.yaml").write_text(SCHEMA)
        for i, frame in enumerate(canary_frames(folder)):
            release = us.synthesize(
                frame, folder / "s.yaml", epsilon=1.0, delta=1e-6, mechanism="independent", output=folder / f"r{i}"
            )
            print(
                release, release.receipt.text(), release.schema.to_dict(), release.sample(20, as_="arrow").to_pydict()
            )


def check_outcome(left):
    CANARY.check_absent((name, content) for name, content in left.items() if not name.startswith("in/"))


def test_a_value_of_few_rows_is_in_no_output(tmp_path):
    left = collect_outcome(canary_run, tmp_path / "run")
    assert left["ending"] == b"done"
    assert {"r0", "r1", "r2", "r3"} <= set(left)
    check_outcome(left)


@pytest.mark.parametrize(
    "target",
    [
        (reopening, "open_source"), (MemorySource, "counts"), (MemorySource, "values"), (discover.Words, "texts"),
        (probe.Search, "learn"), (PrivateTable, "_draw"), (PrivateTable, "_new_answer"), (gate, "threshold_charge"),
        (Ledger, "record"), (Ledger, "record_schema"), (record, "_encode"), (Schema, "encode"),
    ],
    ids=lambda target: target[1],
)  # fmt: skip
def test_no_failure_during_discovery_shows_a_value(tmp_path, monkeypatch, target):
    def fail(*args, **kwargs):
        error = ValueError(f"could not convert {WORD} {NUMBER}")
        error.add_note(WORD)
        raise error

    monkeypatch.setattr(*target, fail)
    left = collect_outcome(canary_run, tmp_path / "run")
    check_outcome(left)
    assert left["ending"] != b"done"


def test_a_value_of_many_rows_is_published(tmp_path, monkeypatch):
    """What the canary test above would find."""
    frame = pd.DataFrame({"who": range(900), "sex": [WORD] * 900, "age": 30, "income": 1, "born": "", "free": ""})
    (tmp_path / "s.yaml").write_text(SCHEMA)
    release = us.synthesize(frame, tmp_path / "s.yaml", epsilon=20.0, delta=1e-3, mechanism="independent")
    assert CANARY.is_in(str(release.schema.to_dict()).encode())


# -- killed runs --

RUN = """
import os, signal, sys
from understudy.cli import main
from understudy.ledger import Ledger

method, times, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
original, calls = getattr(Ledger, method), []

def wrapped(*args, **kwargs):
    result = original(*args, **kwargs)
    calls.append(1)
    if len(calls) == times:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(Ledger, method, wrapped)
sys.argv = ["understudy", "synthesize", f"{folder}/t.csv", "-s", f"{folder}/s.yaml", "--epsilon", "20",
            "--delta", "1e-3", "-m", "independent", "-o", f"{folder}/r.release", "-q"]
main()
"""


@pytest.fixture
def killed(tmp_path, fork):
    """A run that was killed after a call of the ledger: its identifier."""
    (tmp_path / "t.csv").write_text(FIRST)
    (tmp_path / "s.yaml").write_text(SCHEMA)

    def start(method, times):
        done = fork(RUN, method, times, tmp_path)
        assert done.returncode == -signal.SIGKILL, done.stderr
        (run,) = Ledger().reservations()
        assert not (tmp_path / "r.release").exists()
        return run.run

    return start


def recorded(run):
    """The charges and answers of a run, in order."""
    return [(entry.body, entry.payload) for entry in Ledger().entries() if (entry.run, entry.kind) == (run, "answer")]


@pytest.mark.parametrize("there", [True, False], ids=["with its rows", "without"])
def test_a_run_killed_after_discovery_is_finished_with_the_discovered_schema(killed, tmp_path, there):
    run = killed("finish", 1)
    held, discovered = recorded(run), Ledger().find(run).schema
    whats = {charge["what"] for body, _ in held for charge in body["charges"]}
    assert whats == {"type", "bounds", "bins", "values", "measure"}
    if not there:
        (tmp_path / "t.csv").unlink()
    release = us.resume(run)
    assert recorded(run) == held
    assert not release.schema.open
    assert release.schema == Schema.from_dict(discovered)
    assert {release.receipt.facts[name] for name in ("sex", "age", "income", "born", "free")} == {"discovered"}
    assert "Facts that are discovered: " in release.receipt.text()
    again = us.Release.load(tmp_path / "r.release")
    assert again.receipt == release.receipt
    assert again.sample(5, seed=1).num_rows == 5
    assert Ledger().total("t").runs == 1


@pytest.mark.parametrize(("method", "times"), [("record", 1), ("record", 2), ("record_schema", 1)])
def test_a_run_killed_during_discovery_continues_it_and_pays_once(killed, tmp_path, method, times):
    run = killed(method, times)
    held = recorded(run)
    assert held
    release = us.resume(run)
    assert recorded(run)[: len(held)] == held
    assert not release.schema.open
    assert release.receipt.exact_rho <= release.receipt.budget.rho
    assert [charge.to_dict() for charge in release.receipt.charges] == [
        charge for body, _ in recorded(run) for charge in body["charges"]
    ]
    assert Ledger().total("t").runs == 1


def test_a_run_killed_during_discovery_needs_its_rows(killed, tmp_path):
    run = killed("record", 1)
    held = recorded(run)
    (tmp_path / "t.csv").unlink()
    with pytest.raises(us.errors.RunInterrupted, match="the table is not available"):
        us.resume(run)
    assert recorded(run) == held
    (tmp_path / "moved.csv").write_text(FIRST)
    assert not us.resume(run, data=tmp_path / "moved.csv").schema.open
    assert Ledger().total("t").runs == 1


# -- schema draft --discover --


def drafted(call, tmp_path, data, *options):
    code, out, err = call("schema", "draft", data, "-o", tmp_path / "d.yaml", "--discover", *options)
    assert code == 0, err
    return Schema.load(tmp_path / "d.yaml"), out


def test_a_draft_of_a_text_file_takes_its_first_line_and_no_more(tmp_path, call):
    data = tmp_path / "t.csv"
    data.write_bytes(("\ufeff" + HEADER).replace(",", ";").encode() + b"\xff" * 5000)  # the rows are not even text
    types = ("--type", "age=integer", "--type", "free=drop")
    schema, out = drafted(call, tmp_path, data, "--unit", "who:3", *types, "--json")
    assert [column.kind for column in schema.columns] == ["id", "open", "open", "open", "open", "drop"]
    assert [column.discovers for column in schema.open] == [("type",), ("bounds", "bins"), ("type",), ("type",)]
    assert schema.dialect.delimiter == ";"
    assert (schema.privacy_unit.column, schema.privacy_unit.max_rows) == ("who", 3)
    assert json.loads(out)["to_discover"] == ["sex", "age", "income", "born"]
    schema.require_reviewed()


def test_a_draft_of_parquet_takes_its_types(tmp_path, call):
    table = pa.table(
        {
            "i": [1], "f": [1.5], "s": ["a"], "c": pa.array(["a"]).dictionary_encode(), "b": [True], "l": [[1]],
            "d": pa.array([0], pa.date32()), "t": pa.array([0], pa.timestamp("us")),
            "p": pa.array([0], pa.duration("s")),
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet")
    schema, _ = drafted(call, tmp_path, tmp_path / "t.parquet", "--unit", "row")
    kinds = {column.name: getattr(column, "field", {}).get("type", column.kind) for column in schema.columns}
    assert kinds == {"i": "integer", "f": "number", "s": "string", "c": "string", "b": "boolean", "l": "drop",
                     "d": "date", "t": "datetime", "p": "duration"}  # fmt: skip
    assert all(column.nullable for column in schema.columns if hasattr(column, "nullable"))


def test_a_delimiter_at_the_end_of_the_header_names_no_column(tmp_path, call):
    (tmp_path / "t.csv").write_text("a;b;\n1;2;\n")
    schema, _ = drafted(call, tmp_path, tmp_path / "t.csv", "--unit", "row")
    assert [column.name for column in schema.columns] == ["a", "b"]


@pytest.mark.parametrize("first", ["1,2,3", "a,,c", "a,a", "", ",", "12.5,x"])
def test_a_first_line_that_may_be_a_row_is_not_taken_for_names(tmp_path, call, first):
    (tmp_path / "t.csv").write_text(f"{first}\n4,5,6\n")
    code, _, err = call("schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "d.yaml", "--discover")
    assert code == 3
    assert "header" in err
    assert not (tmp_path / "d.yaml").exists()


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["--discover", "--unit", "row", "--type", "age=money"], "use one of integer"),
        (["--discover", "--type", "nobody=integer"], "one of the columns who"),
        (["--type", "age=integer"], "--type needs --discover"),
    ],
)
def test_types_that_cannot_be_meant_are_refused(tmp_path, call, options, remedy):
    (tmp_path / "t.csv").write_text(FIRST)
    code, _, err = call("schema", "draft", tmp_path / "t.csv", "-o", tmp_path / "d.yaml", *options)
    assert code
    assert remedy in " ".join(err.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("schema", "check", "s.yaml", "t.csv"),
        ("schema", "export", "s.yaml", "-o", "x.json"),
        ("evaluate", "t.csv", "t.csv", "-s", "s.yaml"),
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_what_needs_a_complete_schema_says_so(tmp_path, monkeypatch, call, arguments):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(FIRST)
    Path("s.yaml").write_text(SCHEMA)
    code, _, err = call(*arguments)
    assert code == 4
    assert "is left to `synthesize`" in " ".join(err.split())


def test_from_a_file_to_rows_without_declaring_anything(tmp_path, call, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(["Bern", "Rome"], 4000), "age": rng.integers(18, 80, 4000)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    drafted(call, tmp_path, tmp_path / "t.csv", "--unit", "row")
    with us.testing.insecure(1):  # one time in 20, noise alone stands out somewhere beyond the bounds
        release = us.synthesize(tmp_path / "t.csv", tmp_path / "d.yaml", epsilon=5.0, delta=1e-6)
    made = release.sample(seed=1, as_="pandas")
    assert set(made["city"].dropna()) <= {"Bern", "Rome", "other"}
    assert abs(made["age"].mean() - frame["age"].mean()) < 3


# -- the guide --


def test_the_guide_says_what_works(tmp_path, monkeypatch):
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "discovery.md").read_text()
    (tmp_path / "s.yaml").write_text(guide.split("```yaml")[1].split("```")[0])
    schema = Schema.load(tmp_path / "s.yaml")
    assert {fact for column in schema.open for fact in column.discovers} == {"type", "bounds", "bins", "values"}
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({column.name: rng.integers(0, 9, 500) for column in schema.columns})
    release = us.synthesize(frame, schema, epsilon=1, delta=1e-9, discovery_share=0.1)
    assert not release.schema.open
    release.schema.save(tmp_path / "discovered.yaml")
    assert Schema.load(tmp_path / "discovered.yaml") == release.schema
