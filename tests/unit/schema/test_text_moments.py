"""The text of a moment is the same whatever the type of the column that holds it; midnight is a day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from understudy.schema import Schema
from understudy.schema.frames import to_arrow_columns
from understudy.schema.open import Words
from understudy.schema.text import Dialect

MOMENTS = [datetime(2020, 1, 1), datetime(2021, 5, 6, 7, 8, 9, 500_000), datetime(1960, 1, 1, 0, 0, 1), None]
TEXTS = ["2020-01-01", "2021-05-06T07:08:09.500000", "1960-01-01T00:00:01", None]
ZONED = [moment and moment.replace(tzinfo=UTC) for moment in MOMENTS]
EAST = [moment and moment.astimezone(timezone(timedelta(hours=5))) for moment in ZONED]


def numpy_moments(unit: str) -> list[np.datetime64]:
    return [np.datetime64(moment, unit) if moment else np.datetime64("NaT") for moment in MOMENTS]


COLUMNS = {
    "pandas ns": pd.Series(MOMENTS, dtype="datetime64[ns]"),
    "pandas us": pd.Series(MOMENTS, dtype="datetime64[us]"),
    "pandas ms": pd.Series(MOMENTS, dtype="datetime64[ms]"),
    "pandas category": pd.Series(MOMENTS, dtype="datetime64[ns]").astype("category"),
    "datetime objects": pd.Series(MOMENTS, dtype=object),
    "Timestamp objects": pd.Series([pd.Timestamp(m) if m else pd.NaT for m in MOMENTS], dtype=object),
    "numpy objects in us": pd.Series(numpy_moments("us"), dtype=object),
    "numpy objects in ns": pd.Series(numpy_moments("ns"), dtype=object),
    "polars us": pl.Series(MOMENTS),
    "polars ns": pl.Series(MOMENTS, dtype=pl.Datetime("ns")),
    "arrow us": pa.chunked_array([pa.array(MOMENTS, pa.timestamp("us"))]),
}
ZONED_COLUMNS = {
    "pandas UTC": pd.Series(ZONED, dtype="datetime64[ns, UTC]"),
    "pandas elsewhere": pd.Series(ZONED, dtype="datetime64[us, UTC]").dt.tz_convert("America/New_York"),
    "objects": pd.Series(EAST, dtype=object),
    "polars": pl.Series(ZONED, dtype=pl.Datetime("ms", "UTC")),
    "arrow": pa.chunked_array([pa.array(ZONED, pa.timestamp("us", "Europe/Berlin"))]),
}
ALL = [(name, column, "") for name, column in COLUMNS.items()]
ALL += [(f"zoned {name}", column, "Z") for name, column in ZONED_COLUMNS.items()]


def frame(column):
    if isinstance(column, pa.ChunkedArray):
        return pa.table({"t": column})
    return pl.DataFrame({"t": column}) if isinstance(column, pl.Series) else pd.DataFrame({"t": column})


@pytest.mark.parametrize(("column", "zone"), [pytest.param(column, zone, id=name) for name, column, zone in ALL])
def test_one_text_for_one_moment(column, zone):
    cells, _ = to_arrow_columns(frame(column), ["t"], ".")
    wanted = [text and text + zone for text in (["2020-01-01T00:00:00", *TEXTS[1:]] if zone else TEXTS)]
    assert Words(name="t").texts(cells["t"], Dialect()).to_pylist() == wanted
    values = {"name": "t", "type": "string", "categories": wanted[:2]}
    schema = Schema.from_dict({"fields": [values], "understudy": {"privacy_unit": "row"}})
    codes = schema.encode(frame(column)).codes["t"].tolist()
    assert codes[:2] == [0, 1]
    assert not {0, 1} & set(codes[2:])


def test_days_among_objects_are_written_as_days():
    column = pd.Series([date(2020, 2, 29)], dtype=object)
    cells, _ = to_arrow_columns(frame(column), ["t"], ".")
    assert Words(name="t").texts(cells["t"], Dialect()).to_pylist() == ["2020-02-29"]


def test_days_of_numpy_are_days_next_to_an_odd_cell_as_they_are_without_it():
    for odd in ([], ["?"]):
        cells, _ = to_arrow_columns(frame([np.datetime64("2020-02-29", "D"), *odd]), ["t"], ".")
        assert Words(name="t").texts(cells["t"], Dialect()).to_pylist() == ["2020-02-29", *odd]


def test_what_is_finer_than_a_microsecond_is_left_out():
    column = pd.Series(pd.to_datetime([1_577_836_800_000_000_123, 1_577_836_800_000_001_999], unit="ns"))
    for cells in (column, column.astype(object)):
        found, _ = to_arrow_columns(frame(cells), ["t"], ".")
        assert Words(name="t").texts(found["t"], Dialect()).to_pylist() == [
            "2020-01-01",
            "2020-01-01T00:00:00.000001",
        ]
