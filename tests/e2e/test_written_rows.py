"""Rows come back as the table wrote them: frames with their types, text files with their tokens and marks."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.csv as arrow_csv
import pytest

import understudy as us

SCHEMA = {
    "fields": [
        {
            "name": "wage",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 100},
            "understudy": {"bins": 4, "missing": {"-9": "refused"}},
        },
        {
            "name": "day",
            "type": "date",
            "format": "%d/%m/%Y",
            "constraints": {"minimum": "2020-01-01", "maximum": "2020-01-31"},
        },
        {"name": "sex", "type": "string", "categories": ["F", "M"]},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}, "understudy": {"bins": 10}},
    ],
    "understudy": {"privacy_unit": "row", "dialect": {"delimiter": ";", "decimal": ","}},
}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    schema, data = tmp_path / "s.yaml", tmp_path / "people.csv"
    us.Schema.from_dict(SCHEMA).save(schema)
    data.write_text("wage;day;sex;age\n" + "12,5;03/01/2020;F;30\n-9;04/01/2020;M;41\n" * 500, encoding="utf-8")
    us.synthesize(data, schema, epsilon=20.0, delta=1e-9, output=tmp_path / "r.release", mechanism="independent")
    return tmp_path / "r.release"


def test_a_text_file_is_written_as_the_table_was(release: Path, tmp_path: Path, shell):
    assert shell("sample", release, "-n", 400, "--seed", 1, "-o", tmp_path / "rows.csv") == 0
    lines = (tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].replace('"', "") == "wage;day;sex;age"
    rows = [line.replace('"', "").split(";") for line in lines[1:]]
    assert {row[0] for row in rows} >= {"-9"}
    assert any("," in row[0] for row in rows)
    assert {row[1][2:] for row in rows if row[1]} == {"/01/2020"}


def test_written_rows_can_be_read_again_by_the_schema(release: Path, tmp_path: Path, shell):
    loaded = us.Release.load(release)
    assert shell("sample", release, "-n", 400, "--seed", 1, "-o", tmp_path / "rows.csv") == 0
    again = loaded.schema.encode(
        arrow_csv.read_csv(
            tmp_path / "rows.csv",
            parse_options=arrow_csv.ParseOptions(delimiter=";"),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(["wage", "day", "sex", "age"], "string")
            ),
        )
    )
    first = loaded.schema.encode(loaded.sample(400, seed=1, as_="arrow", as_written=True))
    assert all(np.array_equal(again.codes[column], first.codes[column]) for column in loaded.schema.domain)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_rows_have_the_types_of_the_schema_before_and_after_saving(tmp_path, library):
    schema = us.Schema.from_domain({"a": 3, "b": 2})
    given = {"a": np.arange(300, dtype=np.int16) % 3, "b": [0, 1] * 150}
    frame = {"pandas": pd, "polars": pl}[library].DataFrame(given)
    release = us.synthesize(frame, schema, epsilon=5.0, delta=1e-9, mechanism="independent")
    release.save(tmp_path / "r")
    loaded = us.Release.load(tmp_path / "r")
    made = release.sample(seed=0, as_=library)
    assert type(made) is type(frame)
    assert made.equals(loaded.sample(seed=0, as_=library))
    assert {str(kind).lower() for kind in made.dtypes} == {"int64"}
    assert release.sample(seed=0).equals(loaded.sample(seed=0))
