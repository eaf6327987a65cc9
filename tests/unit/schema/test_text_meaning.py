"""The rule of coding on the cases that an attack found: one odd cell, and what it did to the cells of others."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from understudy.schema import Schema
from understudy.schema.open import Shape, Words
from understudy.source import MemorySource, open_source

DAYS = {"minimum": "2020-01-01", "maximum": "2024-12-31"}


def schema(field: dict[str, Any], unit: Any = "row") -> Schema:
    return Schema.from_dict({"fields": [{"name": "x", **field}], "understudy": {"privacy_unit": unit}})


def codes(field: dict[str, Any], frame: Any) -> list[int]:
    return [int(code) for code in schema(field).encode(frame).codes["x"]]


def values(frame: Any) -> set[str]:
    row = schema({"type": "string", "categories": ["a"]})
    return set(MemorySource(frame, replace(row, columns=(Words(name="x"),))).values("x"))


def read(cells: list[str]) -> pd.DataFrame:
    return pd.read_csv(io.StringIO("x,k\n" + "".join(f"{cell},k\n" for cell in cells)))


def test_one_person_does_not_move_the_total_of_units_with_two_spellings() -> None:
    rows = "".join(f"{i:05},a\n{i},a\n" for i in range(1, 101))
    declared = schema({"type": "string", "categories": ["a"]}, {"column": "id", "max_rows": 1})
    totals = []
    for odd in ("", "X17,a\n"):
        frame = pd.read_csv(io.StringIO(f"id,x\n{rows}{odd}"))
        ((_, counts),) = MemorySource(frame, declared).counts([("x",)])
        totals.append(int(counts.sum()))
    assert totals == [100, 101]


@pytest.mark.parametrize("cells", [["True", "False"], ["10115", "01234", "04711"], ["1.50", "2.0"]])
def test_discovered_values_are_spelled_the_same_next_to_an_odd_cell(cells: list[str]) -> None:
    assert values(read(cells)) == values(read([*cells, "?"])) - {"?"}


def test_lengths_near_an_edge_are_in_one_bin_typed_as_objects_and_as_text() -> None:
    """Two seconds less a nanosecond are in the bin before the edge, in every type."""
    field = {"type": "duration", "constraints": {"minimum": 0, "maximum": 9}, "understudy": {"bins": {"width": 1}}}
    cell = pd.Timedelta(1_999_999_999, "ns")
    frames = [
        pd.DataFrame({"x": [cell]}),
        pd.DataFrame({"x": pd.Series([cell, "?"], dtype=object)}),
        pd.DataFrame({"x": [cell.to_timedelta64()]}, dtype=object),
        pd.DataFrame({"x": [1.999999999]}),
        pd.DataFrame({"x": ["1.999999999", "?"]}),
        pa.table({"x": pa.array([1_999_999_999], pa.duration("ns"))}),
    ]
    assert [codes(field, frame)[0] for frame in frames] == [1] * len(frames)
    assert codes(field, pd.DataFrame({"x": [1.1, 2.0]})) == codes(field, pd.DataFrame({"x": ["1.1", "2"]})) == [1, 2]


def test_a_day_with_a_time_of_day_counts_next_to_a_declared_pattern() -> None:
    field = {"type": "date", "format": "%d/%m/%Y", "constraints": DAYS}
    moment = dt.datetime(2024, 1, 31, 8, 30)
    (typed,) = codes(field, pa.table({"x": [moment]}))
    for text in ("2024-01-31 08:30:00", "2024-01-31T08:30", "31/01/2024 08:30", "31/01/2024"):
        assert codes(field, pa.table({"x": [text, "?"]}))[0] == typed, text


def test_two_spellings_of_a_number_declared_together_count_as_one_in_frames_and_apart_in_files(tmp_path: Path) -> None:
    field = {"type": "string", "categories": ["1e5", "100000", "NA"]}
    typed, text = (codes(field, read(["1e5", "100000", *odd])) for odd in ([], ["?"]))
    assert typed == text[:2] == [1, 1]
    (tmp_path / "t.csv").write_text("x\n1e5\n100000\nNA\n")
    ((_, counts),) = open_source(tmp_path / "t.csv", schema(field)).counts([("x",)])
    assert counts.tolist() == [1, 1, 1, 0, 0]
    from understudy.errors import MergedValues

    with pytest.warns(MergedValues, match="column 'x': some of 'NA', '1e5', '100000'"):
        open_source(read(["a"]), schema(field))


def test_one_time_of_day_does_not_make_moments_of_days() -> None:
    days = [dt.datetime(2024, 1, 31), dt.datetime(2024, 2, 1)]
    shape = Shape(name="x")
    for cells in (days, [*days, dt.datetime(2024, 2, 1, 8)]):
        assert shape.encode(pa.array(cells), schema({"type": "boolean"}).dialect)["x"].tolist()[:2] == [2, 2]
    assert shape.encode(pa.array([day.date() for day in days]), schema({"type": "boolean"}).dialect)["x"].tolist() == [
        2,
        2,
    ]


@pytest.mark.parametrize("made", [pa.table, pl.DataFrame])
def test_one_list_in_a_column_of_nulls_is_an_unknown_cell(made: Any) -> None:
    field = {"type": "string", "categories": ["a"]}
    assert codes(field, made({"x": [None, None, [1]]})) == [*codes(field, made({"x": [None, None]})), 2]
