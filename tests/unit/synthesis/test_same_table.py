"""The table declared public must not be the private one, whatever its form or order."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import polars as pl
import pytest

from understudy.errors import SettingError
from understudy.schema import PrivacyUnit, Schema
from understudy.source.sql.located import Located
from understudy.synthesis.road import synthesize
from understudy.synthesis.same_table import DeclaredPublic
from understudy.testing.tables import CodedSource

SCHEMA = Schema.from_domain({"a": 5, "b": 3})
ROWS = pd.DataFrame({"a": [0, 1, 2, 3, 4, 4], "b": [0, 1, 2, 0, 1, 1]})


@pytest.fixture
def files(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    ROWS[::-1].to_csv(tmp_path / "turned.csv.gz", index=False)
    ROWS.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    return tmp_path


@pytest.mark.parametrize("public", ["rows.csv", "link.csv", "turned.csv.gz", "rows.parquet"])
@pytest.mark.parametrize("data", ["rows.csv", "turned.csv.gz", "rows.parquet"])
def test_the_same_rows_in_any_file_are_refused(files, public, data):
    with pytest.raises(SettingError, match="sensitive table itself"):
        DeclaredPublic(files / public, SCHEMA).refuse(files / data)


def test_frames_and_files_are_compared_by_content(files):
    for public in (ROWS, ROWS.sample(frac=1, random_state=0), pl.from_pandas(ROWS), files / "rows.csv"):
        for data in (ROWS, ROWS.copy(), str(files / "rows.csv")):
            with pytest.raises(SettingError, match="Nothing was spent"):
                DeclaredPublic(public, SCHEMA).refuse(data)


@pytest.mark.parametrize(
    "other", [ROWS[:5], ROWS.assign(b=[0, 1, 2, 0, 1, 0]), ROWS.assign(a=ROWS["a"][::-1].values), ROWS[:0]]
)
def test_another_table_is_let_through_and_given_back(other):
    assert DeclaredPublic(other, SCHEMA).refuse(ROWS) is ROWS


def test_a_public_file_needs_no_unit_column(files):
    schema = replace(SCHEMA, privacy_unit=PrivacyUnit("person", 1))
    people = ROWS.assign(person=range(6))
    with pytest.raises(SettingError, match="sensitive table itself"):
        DeclaredPublic(files / "rows.csv", schema).refuse(people)
    (files / "other.csv").write_text("a,b\n0,0\n", encoding="utf-8")
    assert DeclaredPublic(files / "other.csv", schema).refuse(people) is people


def test_a_source_is_known_by_identity():
    source = CodedSource({"a": 5, "b": 3}, ROWS.values)
    with pytest.raises(SettingError):
        DeclaredPublic(source, SCHEMA).refuse(source)
    assert DeclaredPublic(source, SCHEMA).refuse(ROWS) is ROWS


def test_a_table_that_is_not_brought_here_is_known_by_its_files(files):
    away = Located(str(files / "*.csv"))
    with pytest.raises(SettingError, match="sensitive table itself"):
        DeclaredPublic(files / "link.csv", SCHEMA).refuse(away)
    assert DeclaredPublic(files / "rows.parquet", SCHEMA).refuse(away) is away


def test_only_a_fingerprint_is_kept():
    kept = vars(DeclaredPublic(ROWS, SCHEMA))
    assert not [name for name, value in kept.items() if hasattr(value, "columns") and value is not SCHEMA]


def test_a_file_comes_back_in_the_declared_types_beside_a_public_table_too(tmp_path):
    """How its writer typed a column may rest on somebody's empty cell."""
    ROWS.astype("int32").to_parquet(tmp_path / "rows.parquet")
    release = synthesize(tmp_path / "rows.parquet", SCHEMA, rho=1.0, mechanism="nist-mst", public=ROWS[:4])
    assert {str(kind) for kind in release.sample(5, seed=1, as_="pandas").dtypes} == {"int64"}
