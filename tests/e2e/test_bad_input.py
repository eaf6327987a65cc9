"""Bad input of every kind: a message that names the remedy, the documented exit code, no private value, nothing spent.

And content of rows, which is never an error.
"""

from __future__ import annotations

import gzip

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.testing.canary import Canary

CANARY = Canary()
WORD = CANARY.word
SCHEMA = """
fields:
  - {name: sex, type: string, categories: [f, m], understudy: {on_unknown: other}}
  - {name: age, type: integer, constraints: {minimum: 0, maximum: 120}, understudy: {bins: 6}}
understudy:
  privacy_unit: row
"""
GOOD = f"sex,age\nf,30\nm,{WORD}\n{WORD},41\n"


@pytest.fixture
def synthesis(call, tmp_path):
    """Run synthesize on a table and a schema: (exit code, what it said); checks that nothing was spent or left."""

    def run(table="t.csv", schema="s.yaml", *extra):
        words = ["synthesize", tmp_path / table, "-s", tmp_path / schema, "-o", tmp_path / "r"]
        code, out, err = call(*words, "--epsilon", "1", "--delta", "1e-6", "--dataset", "d", *extra)
        CANARY.check_absent([("stdout", out.encode()), ("stderr", err.encode())])
        if code:
            assert out == ""
            assert err.startswith("error: ")
            assert us.Ledger().total("d").runs == 0
            assert not list(tmp_path.glob(".r*")) + list(tmp_path.glob("r"))
        return code, err

    (tmp_path / "s.yaml").write_text(SCHEMA)
    (tmp_path / "t.csv").write_text(GOOD)
    return run


def parquet(path, damage=None):
    pq.write_table(pa.table({"sex": ["f", WORD, "m"], "age": [1, 2, 3]}), path)
    if damage is not None:
        path.write_bytes(damage(path.read_bytes()))


TABLES = {
    "missing": (None, 3, "no such file"),
    "folder.csv": ("folder", 3, "this folder or pattern has no .parquet or .csv file"),
    "empty.csv": (b"", 3, "the file is empty"),
    "t.xlsx": (b"x", 3, "damaged, or not an Excel workbook; save it again"),
    "t.ods": (b"x", 3, "give .csv, .tsv, .txt or .data (also with .gz), .parquet, .sav, .dta or .xlsx"),
    "header.csv": (b"sex\nf\n", 4, "'age' is not in the table; add or rename there, or correct the schema"),
    "twice.csv": (b"sex,age,age\nf,1,2\n", 4, "'age' is named more than once in the table; rename all but one"),
    "ragged.csv": (f'sex,age\nf,1\n"{WORD}",2,3\n'.encode(), 3, "check `delimiter` and `quote` in the dialect"),
    "latin.csv": (f"sex,é,age\n{WORD},1,2\n".encode("latin-1"), 3, "set `encoding` in the schema's dialect"),
    "utf16.csv": (GOOD.encode("utf-16"), 3, "set `encoding` in the schema's dialect"),
    "cut.csv.gz": (gzip.compress(GOOD.encode() * 99)[:-20], 3, "damaged, cut short or not CSV"),
    "not.csv.gz": (GOOD.encode(), 3, "damaged, cut short or not CSV"),
    "not.parquet": (GOOD.encode(), 3, "damaged, cut short or not Parquet"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_used(synthesis, tmp_path, name):
    content, code, words = TABLES[name]
    path = tmp_path / (name if content is not None else "missing.csv")
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    left, said = synthesis(path.name)
    assert left == code
    assert words in said


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[: len(b) // 2], lambda b: b[:-3], lambda b: b[4:], lambda b: b[:10] + bytes([b[10] ^ 255]) + b[11:]],
    ids=["cut", "no end", "no start", "flipped"],
)
def test_a_damaged_parquet(synthesis, tmp_path, damage):
    parquet(tmp_path / "t.parquet", damage)
    left, said = synthesis("t.parquet")
    assert left == 3
    assert "copy or export the file again" in said


SCHEMAS = {
    "no file": (None, "check the path"),
    "no yaml": ("fields: [}", "not valid YAML; check the indentation"),
    "no mapping": ("- 1", "check which file it is"),
    "no columns": ("fields: []\nunderstudy: {privacy_unit: row}", "list them under `fields`"),
    "no unit": (SCHEMA.partition("understudy:\n")[0], "`privacy_unit` is not stated"),
    "bounds the wrong way round": (SCHEMA.replace("minimum: 0, maximum: 120", "minimum: 120, maximum: 0"), "age"),
    "two columns of one name": (SCHEMA.replace("name: age", "name: sex"), "more than one column named 'sex'; rename"),
    "unknown key": (SCHEMA + "color: red\n", "correct its spelling"),
    "k of 0": (SCHEMA.replace("privacy_unit: row", "privacy_unit: {column: who, max_rows: 0}"), "at least 1"),
    "k without a column": (SCHEMA.replace("privacy_unit: row", "privacy_unit: {max_rows: 2}"), "column: NAME"),
    "a draft": (SCHEMA.replace("on_unknown: other", "on_unknown: other, status: draft"), "still drafts: sex"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_that_cannot_be_used(synthesis, tmp_path, name):
    content, words = SCHEMAS[name]
    if content is None:
        (tmp_path / "s.yaml").unlink()
    else:
        (tmp_path / "s.yaml").write_text(content)
    left, said = synthesis()
    assert left == 4
    assert words in said


def test_a_unit_column_that_is_not_there(synthesis, tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA.replace("privacy_unit: row", "privacy_unit: {column: who, max_rows: 2}"))
    left, said = synthesis()
    assert left == 4
    assert "'who' is not in the table" in said


def test_ten_thousand_columns_are_too_many_and_are_refused(tmp_path):
    sizes = {f"c{i}": 2 for i in range(10_001)}
    with pytest.raises(us.errors.SchemaError, match="more than 10000 columns; `drop` what is not needed"):
        us.Schema.from_domain(sizes)


def test_a_wide_table_works(tmp_path):
    sizes = {f"c{i}": 2 for i in range(1500)}
    frame = pl.DataFrame({name: [0, 1, 1] for name in sizes})
    release = us.synthesize(
        frame, us.Schema.from_domain(sizes), rho=0.1, mechanism="independent", output=tmp_path / "r"
    )
    assert len(us.Release.load(tmp_path / "r").measurements) == len(release.measurements) == 1500


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        (pd.DataFrame(), us.errors.SchemaError, "no columns"),
        (pl.DataFrame(), us.errors.SchemaError, "no columns"),
        (pd.DataFrame([[1, 2, 3]], columns=["sex", "age", "age"]), us.errors.SchemaError, "rename"),
        (pd.DataFrame({"sex": [WORD]}), us.errors.SchemaError, "'age' is not in the table"),
        (pl.DataFrame({"sex": [WORD], "age": [1]}).lazy(), us.errors.InputError, "collect a lazy frame"),
        ({"sex": [WORD], "age": [1]}, us.errors.InputError, "pandas, polars or pyarrow frame"),
        ([[WORD, 1]], us.errors.InputError, "pandas, polars or pyarrow frame"),
        (None, us.errors.InputError, "pandas, polars or pyarrow frame"),
        (42, us.errors.InputError, "pandas, polars or pyarrow frame"),
    ],
)
def test_a_frame_that_cannot_be_used(tmp_path, frame, error, words):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    with pytest.raises(error, match=words) as caught:
        us.synthesize(frame, tmp_path / "s.yaml", epsilon=1.0, delta=1e-6, dataset="d")
    CANARY.check_error(caught.value)
    assert us.Ledger().total("d").runs == 0


# -- the content of rows is never an error --

CONTENT = {
    "header only": "sex,age\n",
    "one row": "sex,age\nf,30\n",
    "unknown": f"sex,age\n{WORD},30\n",
    "does not parse": f"sex,age\nf,{WORD}\nf,1e999\nf,--1\nf,NaN\nf,inf\nf,-inf\n",
    "empty cells": "sex,age\n,\n,\n",
    "quotes and lines": 'sex,age\n"f\n""x""",30\n',
    "outside": f"sex,age\nf,-5\nm,{CANARY.number}\n",
    "byte-order mark": "\ufeffsex,age\nf,30\n",
    "other columns": f"note,sex,age\n{WORD},f,30\n",
    "strange text": "sex,age\n\u202e\U0001f600\x01,٣\n",
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_is_never_an_error(synthesis, tmp_path, name):
    (tmp_path / "t.csv").write_text(CONTENT[name], encoding="utf-8")
    assert synthesis() == (0, "")
    release = us.Release.load(tmp_path / "r")
    assert release.sample(20, seed=1).num_rows == 20
    CANARY.check_absent([("release", (tmp_path / "r").read_bytes())])


def test_typed_frames_with_everything_in_them(tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    ages = pd.Series(
        [1, "2", 3.5, None, float("nan"), float("inf"), b"4", object(), pd.Timestamp(0), [1]], dtype=object
    )
    frame = pd.DataFrame({"sex": ["f", None, 3, WORD, True, b"f", "m", "F", ("x",), {"y": 1}], "age": ages})
    release = us.synthesize(frame, tmp_path / "s.yaml", epsilon=1.0, delta=1e-6)
    assert len(release.sample(10, seed=1)) == 10
