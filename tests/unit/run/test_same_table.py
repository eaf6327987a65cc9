"""The table declared public must not be the sensitive one; they are compared by address, never by their rows."""

from __future__ import annotations

import pandas as pd
import pytest

import understudy as us
from understudy.errors import SettingError
from understudy.run.pipeline import synthesize
from understudy.schema import Schema
from understudy.testing.tables import CodedSource

SCHEMA = Schema.from_domain({"a": 5, "b": 3})
ROWS = pd.DataFrame({"a": [0, 1, 2, 3, 4, 4], "b": [0, 1, 2, 0, 1, 1]})


@pytest.fixture
def files(tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    (tmp_path / "folder").mkdir()
    return tmp_path


def stand_in(data, public):
    return synthesize(data, SCHEMA, rho=1.0, mechanism="nist-mst", public=public, dataset="d")


@pytest.mark.parametrize("public", ["rows.csv", "link.csv", "folder/../rows.csv"])
@pytest.mark.parametrize("data", ["rows.csv", "link.csv"])
def test_the_same_file_is_refused_whatever_its_name(files, public, data):
    with pytest.raises(SettingError, match=r"sensitive table itself.* Nothing was spent"):
        stand_in(files / data, files / public)
    assert us.Ledger().total("d").runs == 0


@pytest.mark.parametrize("public", [".", "*.csv", "folder/../*ows.csv"])
def test_a_folder_or_pattern_with_the_sensitive_file_is_refused(files, public):
    """Its rows would be in the release, as they are."""
    with pytest.raises(SettingError, match=r"sensitive table itself.* Nothing was spent"):
        stand_in(files / "rows.csv", files / public)


@pytest.mark.parametrize(
    ("data", "public"),
    [
        ("postgresql://host/shop?table=people", "postgresql://bob:word@HOST:5432/shop?sslmode=require&table=people"),
        ("duckdb://shop.duckdb?table=people", "duckdb://folder/../shop.duckdb?access_mode=read_only&table=people"),
    ],
)
def test_the_same_table_of_a_database_is_refused_whoever_asks_for_it(data, public):
    with pytest.raises(SettingError, match="sensitive table itself") as caught:
        stand_in(data, public)
    assert "word" not in str(caught.value)


def test_the_same_frame_source_or_address_is_refused():
    source = CodedSource({"a": 5, "b": 3}, ROWS.values)
    for table in (ROWS, source, "duckdb://x.duckdb?table=t"):
        with pytest.raises(SettingError, match="sensitive table itself"):
            stand_in(table, table)
    assert us.Ledger().total("d").runs == 0


def test_a_refusal_does_not_depend_on_rows(files):
    """A copy is not known as one: whoever declares tables public would else learn whether one has the same rows."""
    ROWS.to_csv(files / "copy.csv", index=False)
    for data, public in ((ROWS, ROWS.copy()), (files / "rows.csv", files / "copy.csv"), (ROWS, files / "rows.csv")):
        assert stand_in(data, public).receipt.budget.rho == 1
    assert us.Ledger().total("d").runs == 3


def test_a_file_comes_back_in_the_declared_types_next_to_a_public_table_too(tmp_path):
    """How its writer typed a column may rest on somebody's empty cell."""
    ROWS.astype("int32").to_parquet(tmp_path / "rows.parquet")
    release = synthesize(tmp_path / "rows.parquet", SCHEMA, rho=1.0, mechanism="nist-mst", public=ROWS[:4])
    assert {str(kind) for kind in release.sample(5, seed=1, as_="pandas").dtypes} == {"int64"}
