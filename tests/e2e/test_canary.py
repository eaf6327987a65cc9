"""A canary in every cell. It may be in no output, log, error or file, whatever goes wrong at whatever stage."""

from __future__ import annotations

import errno
import gzip
import logging
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.accounting.budget import Account
from understudy.errors import ManyRows
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.ledger import Ledger
from understudy.mechanism.independent import Independent
from understudy.release import archive
from understudy.run import pipeline, record
from understudy.schema import Schema
from understudy.sink import files as write
from understudy.source import MemorySource, unit
from understudy.testing.canary import Canary
from understudy.testing.twin import collect_outcome

CANARY = Canary()
WORD, NUMBER = CANARY.word, CANARY.number

SCHEMA = """
fields:
  - {name: who, type: string, understudy: {kind: id}}
  - {name: sex, type: string, categories: [f, m], understudy: {on_unknown: other}}
  - {name: age, type: integer, constraints: {minimum: 0, maximum: 120}, understudy: {bins: 6}}
  - {name: income, type: number, constraints: {minimum: 0, maximum: 1000}, understudy: {bins: 4}}
  - {name: born, type: date, constraints: {minimum: "1900-01-01", maximum: "2030-01-01"}, understudy: {bins: 5}}
understudy:
  privacy_unit: {column: who, max_rows: 2}
"""
HEADER = ["who", "sex", "age", "income", "born"]
ROWS = [
    [f"{WORD}-1", WORD, str(NUMBER), f"{NUMBER}.5", WORD],
    [f"{WORD}-1", f"f {WORD}", WORD, f"1e{NUMBER}", f"{NUMBER}-01-01"],
    [f"{WORD}-1", "m", f"-{NUMBER}", WORD, "1980-02-30"],
    [str(NUMBER), f'"{WORD}', "", "nan", ""],
    ["", WORD, f"{NUMBER}abc", "inf", "1999-12-31"],
]


def as_csv(folder):
    path = folder / "in" / "table.csv"
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in [HEADER, *ROWS]]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_gzip(folder):
    path = folder / "in" / "table.csv.gz"
    path.write_bytes(gzip.compress(as_csv(folder).read_bytes()))
    return path


def as_parquet(folder):
    path = folder / "in" / "table.parquet"
    pq.write_table(pa.table({name: [row[i] for row in ROWS] for i, name in enumerate(HEADER)}), path)
    return path


def as_pandas(folder):
    frame = pd.DataFrame(ROWS, columns=HEADER)
    frame["age"] = pd.Series([NUMBER, WORD, float(NUMBER), None, b"x" + WORD.encode()], dtype=object)
    return frame


def as_polars(folder):
    return pl.DataFrame(ROWS, schema=HEADER, orient="row").with_columns(
        age=pl.Series([NUMBER, -NUMBER, 3, None, NUMBER]), income=pl.Series([float(NUMBER), None, 1.0, 2.0, 3.0])
    )


TABLES = {"csv": as_csv, "gzip": as_gzip, "parquet": as_parquet, "pandas": as_pandas, "polars": as_polars}


def run(make, folder, **rest):
    """A whole run with everything that it writes inside the folder, the table in a folder of its own."""
    (folder / "in").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        schema = folder / "s.yaml"
        schema.write_text(SCHEMA)
        given = {"epsilon": 1.0, "delta": 1e-6, "output": folder / "r.release", "dataset": "d"}
        given |= {"mechanism": "independent"} | rest
        release = us.synthesize(make(folder), schema, **given)
        print(release, repr(release.receipt), release.receipt.text())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ManyRows)  # five rows and real noise: fifty may be too many
            release.sample(50, seed=1, as_="pandas").to_csv(folder / "rows.csv")


def check_outcome(left):
    CANARY.check_absent((name, content) for name, content in left.items() if not name.startswith("in/"))


@pytest.mark.parametrize("kind", TABLES)
def test_no_value_of_the_table_is_in_any_output(tmp_path, kind, caplog):
    caplog.set_level(logging.DEBUG)
    left = collect_outcome(lambda folder: run(TABLES[kind], folder), tmp_path / "run")
    assert left["ending"] == b"done"
    assert "r.release" in left
    check_outcome(left)
    CANARY.check_absent([("log", caplog.text.encode())])


# -- something goes wrong, and its error quotes a value --

ERRORS = {
    "error": lambda: ValueError(f"could not convert {WORD} {NUMBER}"),
    "interrupt": lambda: KeyboardInterrupt(WORD),
    "disk": lambda: OSError(errno.ENOSPC, f"No space left for {WORD}", f"/tmp/{WORD}"),
    "memory": lambda: MemoryError(f"{WORD}"),
    "unicode": lambda: UnicodeDecodeError("utf-8", WORD.encode(), 0, 1, WORD),
    "chained": lambda: _chained(),
}


def _chained():
    error = RuntimeError("outer")
    error.__context__ = ValueError(WORD)
    error.__cause__ = KeyError(NUMBER)
    error.add_note(f"while looking at {WORD}")
    return error


STAGES = {
    "read": (pipeline, "open_source"),
    "unit": (unit, "_hash_rows"),
    "encode": (Schema, "encode"),
    "count": (MemorySource, "counts"),
    "draw": (PrivateTable, "_draw"),
    "pay": (Account, "pay"),
    "merge": (gate, "merge_codes"),
    "answer": (PrivateTable, "_new_answer"),
    "reserve": (Ledger, "reserve"),
    "record": (Ledger, "record"),
    "encode answer": (record, "_encode"),
    "finish": (Ledger, "finish"),
    "publish": (pipeline, "publish"),
    "fit": (Independent, "fit"),
    "estimate": (Independent, "finish"),
    "release": (us.Release, "of"),
    "save": (archive, "_array_bytes"),
    "sync": (archive.os, "fsync"),
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("stage", STAGES)
def test_no_failure_at_any_stage_shows_a_value(tmp_path, monkeypatch, stage, kind):
    def fail(*args, **kwargs):
        raise ERRORS[kind]()

    monkeypatch.setattr(*STAGES[stage], fail)
    left = collect_outcome(lambda folder: run(as_csv, folder), tmp_path / "run")
    check_outcome(left)
    if stage != "unit":  # only a crowded unit is hashed; the others must really have failed
        assert left["ending"] != b"done"


@pytest.mark.parametrize("stage", ["count", "estimate", "sample", "write"])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_line_shows_no_value(tmp_path, monkeypatch, shell, stage, as_json):
    target = STAGES.get(stage) or {"sample": (us.Release, "stream"), "write": (write._Csv, "write")}[stage]

    def fail(*args, **kwargs):
        raise ValueError(f"{WORD} {NUMBER}")

    monkeypatch.setattr(*target, fail)

    def commands(folder):
        (folder / "in").mkdir()
        (folder / "s.yaml").write_text(SCHEMA)
        release, rows, codes = folder / "r.release", folder / "rows.csv", []
        for arguments in (
            ["synthesize", as_csv(folder), "-s", folder / "s.yaml", "--rho", "1", "-m", "independent", "-o", release],
            ["sample", release, "-o", rows],
            ["inspect", release],
        ):
            codes.append(shell(*arguments, *(["--json"] if as_json else [])))
        print(codes)

    left = collect_outcome(commands, tmp_path / "run")
    check_outcome(left)
    expected = {"count": "[70, 5, 5]", "estimate": "[7, 5, 5]", "sample": "[0, 70, 0]", "write": "[0, 70, 0]"}[stage]
    assert expected in left["stdout"].decode()
    assert b"Traceback" not in left["stderr"]


# -- tables that cannot be read --


def _cut(path, part):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    return path


def _flipped(path, place):
    whole = bytearray(path.read_bytes())
    whole[int(len(whole) * place)] ^= 0x55
    path.write_bytes(whole)
    return path


def _ragged(folder):
    path = as_csv(folder)
    path.write_text(path.read_text() + f"{WORD},{NUMBER}\n{WORD},{WORD},{WORD},{WORD},{WORD},{WORD},{WORD}\n")
    return path


def _latin(folder):
    path = as_csv(folder)
    path.write_bytes(path.read_bytes() + f"{WORD}é,f,1,1,1\n".encode("latin-1"))
    return path


def _quote(folder):
    path = as_csv(folder)
    path.write_text(path.read_text() + f'"{WORD},f,1,1,1\n')
    return path


def _renamed(folder):
    path = as_csv(folder)
    path.rename(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def _nested(folder):
    path = folder / "in" / "table.parquet"
    columns = {name: [[WORD, str(NUMBER)]] * 3 for name in HEADER}
    pq.write_table(pa.table(columns), path)
    return path


def _structs(folder):
    return pl.DataFrame({name: [{"x": WORD, "y": NUMBER}] for name in HEADER})


DAMAGED = {
    "cut csv.gz": lambda folder: _cut(as_gzip(folder), 0.8),
    "flipped csv.gz": lambda folder: _flipped(as_gzip(folder), 0.6),
    "cut parquet": lambda folder: _cut(as_parquet(folder), 0.7),
    "parquet without end": lambda folder: _cut(as_parquet(folder), 0.999),
    **{f"flipped parquet {p}": (lambda folder, p=p: _flipped(as_parquet(folder), p / 20)) for p in range(20)},
    "ragged": _ragged,
    "latin": _latin,
    "quote": _quote,
    "csv named parquet": _renamed,
    "nested": _nested,
    "structs": _structs,
    "series": lambda folder: pd.Series([WORD, NUMBER]),
    "dict": lambda folder: {name: [WORD] for name in HEADER},
    "list": lambda folder: [[WORD, NUMBER]],
    "lazy": lambda folder: as_polars(folder).lazy(),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_table_that_cannot_be_read_is_explained_without_a_value(tmp_path, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left = collect_outcome(lambda folder: run(DAMAGED[kind], folder), tmp_path / "run")
    check_outcome(left)
    ending = left["ending"].decode()
    assert ending.split("\n")[0] in ("done", "InputError", "SchemaError"), ending
    if ending != "done":
        assert not any(".release" in name for name in left)


def test_values_as_column_names_are_structure_and_may_be_shown(tmp_path):
    """A table's header is structure: a missing column is named from the schema, never from the table's first row."""
    headerless = tmp_path / "t.csv"
    headerless.write_text("\n".join(",".join(row).replace('"', "") for row in ROWS))
    (tmp_path / "s.yaml").write_text(SCHEMA)
    with pytest.raises(us.errors.SchemaError) as caught:
        us.synthesize(headerless, tmp_path / "s.yaml", epsilon=1.0, delta=1e-6)
    CANARY.check_error(caught.value)


def test_a_real_process_shows_no_value_either(tmp_path):
    """Not this process's patched streams: what a shell sees, also from libraries that write to the error stream."""
    (tmp_path / "in").mkdir()
    (tmp_path / "s.yaml").write_text(SCHEMA)
    arguments = ["synthesize", str(_cut(as_parquet(tmp_path), 0.9)), "-s", str(tmp_path / "s.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *arguments, "--rho", "1", "-o", str(tmp_path / "r")],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3
    CANARY.check_absent([("stdout", done.stdout), ("stderr", done.stderr)])


# -- the canary sings --


def test_the_search_finds_what_exists(tmp_path):
    import numpy as np

    archive.write_archive(tmp_path / "zip", {}, {"x": np.array([1, NUMBER, 2])})
    archive.write_archive(tmp_path / "zip2", {"note": f"has {WORD}"}, {})
    for name in ("zip", "zip2"):
        assert CANARY.is_in((tmp_path / name).read_bytes())
        with pytest.raises(AssertionError, match="canary"):
            CANARY.check_folder(tmp_path)
        with suppress(FileNotFoundError):
            Path(tmp_path / name).unlink()
    CANARY.check_folder(tmp_path)
    for error in (ValueError(WORD), _chained(), KeyError(NUMBER)):
        with pytest.raises(AssertionError, match="canary"):
            CANARY.check_error(error)
    CANARY.check_error(ValueError("nothing"))


def test_the_search_finds_what_is_in_the_ledger(tmp_path):
    """As text, and packed in an answer."""

    def text(folder):
        Ledger().add_dataset(f"people {WORD}")

    def answer(folder):
        ledger, budget = Ledger(), us.Budget.of(rho=1.0)
        handle = ledger.reserve("people", budget, unit="row", spec={})
        ledger.record(handle, {"charges": []}, zlib.compress(struct.pack("<3q", 1, NUMBER, 2)))

    for leak in (text, answer):
        left = collect_outcome(leak, tmp_path / "run")
        assert left["ending"] == b"done"
        with pytest.raises(AssertionError, match="ledger"):
            check_outcome(left)
