"""The table declared public must not be the private one, by its address; rows are never compared."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from understudy.errors import SettingError
from understudy.schema import Schema
from understudy.source.open import StoredTable
from understudy.synthesis.road import synthesize
from understudy.synthesis.same_table import refuse_same_table
from understudy.testing.tables import CodedSource

SCHEMA = Schema.from_domain({"a": 5, "b": 3})
ROWS = pd.DataFrame({"a": [0, 1, 2, 3, 4, 4], "b": [0, 1, 2, 0, 1, 1]})


@pytest.fixture
def files(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    ROWS[::-1].to_csv(tmp_path / "turned.csv.gz", index=False)
    ROWS.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "rows.csv")
    return tmp_path


@pytest.mark.parametrize("public", ["rows.csv", "link.csv", "hard.csv"])
@pytest.mark.parametrize("data", ["rows.csv", "link.csv"])
@pytest.mark.parametrize("kind", [str, Path])
def test_the_same_file_is_refused_under_whatever_name(files, public, data, kind):
    with pytest.raises(SettingError, match=r"sensitive table itself.*Nothing was spent"):
        refuse_same_table(kind(files / public), kind(files / data))


def test_the_same_object_is_refused(files):
    for table in (ROWS, pl.from_pandas(ROWS), CodedSource({"a": 5, "b": 3}, ROWS.values)):
        with pytest.raises(SettingError, match="sensitive table itself"):
            refuse_same_table(table, table)


def test_rows_are_not_compared(files, monkeypatch):
    """Equal rows at another address are let through: a refusal would tell for nothing that they are equal."""
    monkeypatch.setattr(Schema, "encode", lambda *_: pytest.fail("a row was looked at"))
    for public in (ROWS, pl.from_pandas(ROWS), files / "rows.parquet", files / "turned.csv.gz", files / "no such file"):
        for data in (ROWS.copy(), files / "rows.csv", str(files / "rows.csv")):
            refuse_same_table(public, data)


@pytest.mark.parametrize("rows", [ROWS, ROWS[::-1], ROWS[:5]])
def test_whether_a_run_goes_on_tells_nothing_about_the_rows(files, rows):
    """The public table equals the private one, or does not: both runs end alike."""
    release = synthesize(files / "rows.csv", SCHEMA, rho=1.0, mechanism="nist-mst", public=rows)
    assert release.mechanism == "nist-mst"


def test_a_run_with_its_own_file_as_public_table_is_refused(files):
    with pytest.raises(SettingError, match="sensitive table itself"):
        synthesize(files / "rows.csv", SCHEMA, rho=1.0, mechanism="nist-mst", public=str(files / "link.csv"))


def test_a_table_that_is_not_brought_here_is_known_by_its_files_and_address(files):
    away = StoredTable(str(files / "*.csv"))
    for public in (files / "link.csv", str(files / "*.csv")):
        with pytest.raises(SettingError, match="sensitive table itself"):
            refuse_same_table(public, away)
    refuse_same_table(files / "rows.parquet", away)
    refuse_same_table(ROWS, away)


def test_a_file_comes_back_in_the_declared_types_beside_a_public_table_too(tmp_path):
    """How its writer typed a column may rest on somebody's empty cell."""
    ROWS.astype("int32").to_parquet(tmp_path / "rows.parquet")
    release = synthesize(tmp_path / "rows.parquet", SCHEMA, rho=1.0, mechanism="nist-mst", public=ROWS[:4])
    assert {str(kind) for kind in release.sample(5, seed=1, as_="pandas").dtypes} == {"int64"}
