"""Rows in chunks: the same for the same seed, sound over chunks, and files that appear complete or not at all."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.errors import OutputError, SettingError
from understudy.gate.randomness import insecure
from understudy.progress import Step
from understudy.release import rows as making
from understudy.schema import Dialect, Schema
from understudy.sink.files import open_file, write_chunks, write_rows
from understudy.source import read_table

SCHEMA = Schema.from_dict(
    {
        "fields": [
            {"name": "key", "understudy": {"kind": "id", "pattern": "P-##"}},
            {"name": "sex", "type": "string", "categories": ["F", "M"]},
            {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}},
            {"name": "born", "type": "date", "constraints": {"minimum": "2000-01-01", "maximum": "2009-12-31"}},
        ],
        "understudy": {"privacy_unit": "row"},
    }
)


@pytest.fixture(scope="module")
def release():
    rng = np.random.default_rng(0)
    age = rng.integers(0, 100, 3000)
    frame = pd.DataFrame(
        {
            "sex": np.where(rng.random(3000) < age / 100, "F", "M"),
            "age": age,
            "born": pd.to_datetime("2000-01-01") + pd.to_timedelta(rng.integers(0, 3600, 3000), unit="D"),
        }
    )
    with insecure(1):
        return us.synthesize(frame, SCHEMA, epsilon=2, delta=1e-6)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(making, "CHUNK_ROWS", 1000)


def chunked(release, rows, **settings):
    count, chunks = release.stream(rows, **settings)
    assert count == rows
    return list(chunks)


def test_a_single_chunk_is_what_sample_makes(release):
    (only,) = chunked(release, 500, seed=4)
    assert only.equals(release.sample(500, seed=4, as_="arrow"))


def test_chunks_are_of_one_schema_numbered_through_and_the_same_for_a_seed(release, small_chunks):
    chunks = chunked(release, 3500, seed=4)
    assert [chunk.num_rows for chunk in chunks] == [1000, 1000, 1000, 500]
    assert len({str(chunk.schema) for chunk in chunks}) == 1
    whole = pa.concat_tables(chunks)
    assert whole["key"].to_pylist() == [f"P-{i:04d}" for i in range(1, 3501)]
    assert whole.equals(pa.concat_tables(chunked(release, 3500, seed=4)))
    assert not whole.equals(pa.concat_tables(chunked(release, 3500, seed=5)))
    assert not chunks[0].drop(["key"]).equals(chunks[1].drop(["key"]))


def test_counts_over_chunks_are_as_expected_within_the_documented_law(release, small_chunks):
    whole = pa.concat_tables(chunked(release, 50_000, seed=1)).to_pandas()
    codes = SCHEMA.encode(whole).codes
    merged = release.recoding.apply("sex", codes["sex"]).astype(int)
    expected = release.model.project(("sex",)) / release.model.total * 50_000
    off = np.abs(np.bincount(merged, minlength=len(expected)) - expected)
    # 50 chunks, each rounded by itself: each off by less than 1 with mean 0, so 8 sqrt(50) is beyond any chance
    assert off.max() < 8 * np.sqrt(50)
    assert off.max() < 4 * np.sqrt(50_000 / 4)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_appears_when_it_is_complete(release, small_chunks, tmp_path, ending):
    path, steps = tmp_path / f"rows.{ending}", []
    count, chunks = release.stream(2500, seed=2, as_written=ending == "csv")

    def watch(step: Step) -> None:
        steps.append(step.fraction)
        assert not path.exists()

    with open_file(path, SCHEMA.dialect) as opened:
        assert write_chunks(chunks, opened, count, progress=watch) == 2500
    assert steps == [0.4, 0.8, 1.0]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    if ending == "parquet":
        assert pq.ParquetFile(path).num_row_groups == 3
        assert pq.read_table(path).num_rows == 2500
    else:
        assert len(pd.read_csv(path)) == 2500


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_is_interrupted_leaves_nothing(release, small_chunks, tmp_path, error):
    def stopped():
        yield from chunked(release, 2000, seed=2)
        raise error

    expected = KeyboardInterrupt if error is KeyboardInterrupt else OutputError
    with pytest.raises(expected), open_file(tmp_path / "rows.parquet", Dialect()) as opened:
        write_chunks(stopped(), opened, 5000)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_is_removed_by_the_next_one_and_a_living_ones_is_not(release, tmp_path):
    for pid in (2**22 + 1, os.getppid()):
        (tmp_path / f".rows.csv.{pid}.{'0' * 16}.tmp").write_text("half")
    with open_file(tmp_path / "rows.csv", Dialect()) as opened:
        write_chunks(chunked(release, 10), opened, 10)
    assert sorted(f.name for f in tmp_path.iterdir()) == [f".rows.csv.{os.getppid()}.{'0' * 16}.tmp", "rows.csv"]


def test_more_rows_than_anyone_wants_are_refused(release):
    with pytest.raises(SettingError, match="too many to write"):
        release.stream(10**14)


@pytest.mark.parametrize("encoding", ["windows-1252", "utf-16", "utf-8"])
def test_a_file_is_written_in_the_encoding_that_its_schema_reads(tmp_path, encoding):
    content = {
        "fields": [{"name": "Größe", "type": "string", "categories": ["groß", "klein"]}],
        "understudy": {"privacy_unit": "row", "dialect": {"encoding": encoding, "delimiter": ";"}},
    }
    schema, path = Schema.from_dict(content), tmp_path / "rows.csv"
    chunk = pa.table({"Größe": ["groß", "klein", "groß"]})
    with open_file(path, schema.dialect) as opened:
        write_chunks([chunk, chunk], opened, 6)
    assert path.read_text(encoding=encoding).splitlines() == ['"Größe"', *['"groß"', '"klein"', '"groß"'] * 2]
    assert read_table(path, schema).column("Größe").to_pylist() == ["groß", "klein", "groß"] * 2


@pytest.mark.parametrize("dialect", [{}, {"delimiter": ";", "encoding": "utf-16"}, {"header": False}])
@pytest.mark.parametrize("quote", ["'", '"', "|"])
def test_a_file_is_written_with_the_quotes_that_its_schema_reads(tmp_path, quote, dialect):
    odd = ["it's; so, 'so'", 'say "x"', "a|b", "two\nlines", "", "plain"]
    content = {
        "fields": [{"name": "a'b", "type": "string", "categories": odd}, {"name": "n", "type": "integer"}],
        "understudy": {"privacy_unit": "row", "dialect": {"quote": quote, **dialect}},
    }
    content["fields"][1]["constraints"] = {"minimum": 0, "maximum": 9}
    schema, path = Schema.from_dict(content), tmp_path / "rows.csv"
    chunk = pa.table({"a'b": odd, "n": [0, 1, 2, 3, 4, None]})
    with open_file(path, schema.dialect) as opened:
        write_chunks([chunk, chunk], opened, 12)
    found = read_table(path, schema)
    assert found.column("a'b").to_pylist() == odd * 2
    assert found.column("n").to_pylist() == ["0", "1", "2", "3", "4", ""] * 2


def test_what_an_encoding_cannot_write_loses_no_row(tmp_path):
    path = tmp_path / "rows.csv"
    with open_file(path, Dialect(encoding="windows-1252")) as opened:
        write_chunks([pa.table({"a": ["≥5", "<5"]})], opened, 2)
    assert path.read_text(encoding="windows-1252").splitlines() == ['"a"', '"?5"', '"<5"']


def test_lengths_of_time_in_a_csv_file_are_read_as_they_were_made(tmp_path):
    """In seconds: the writer's own microseconds would be read as a length a million times as long."""
    field = {"name": "stay", "type": "duration", "constraints": {"minimum": 0, "maximum": 86399}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    table = pa.table({"stay": pa.array(["07:30", "P0DT9H", "3600", "23:59:59"] * 50)})
    made = us.synthesize(table, schema, rho=1000.0, mechanism="independent", dataset="stays")
    path = tmp_path / "rows.csv"
    write_rows(made, path, seed=1)
    lengths = [int(line.strip('"')) for line in path.read_text().splitlines()[1:] if line]
    assert lengths
    assert max(lengths) <= 86399
    assert {length // 864 for length in lengths} >= {3600 // 864, 27000 // 864}  # the bins of 01:00 and 07:30
