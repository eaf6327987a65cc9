"""Contribution bounding: which rows are kept, and the text that other engines must reproduce."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import itertools
import sqlite3
from collections import Counter
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from understudy.errors import SettingError
from understudy.source.unit import bound_rows, new_key, unit_text

KEY = bytes(range(32))


def texts(values: Any) -> list[str | None]:
    return list(unit_text(nw.from_native(values, series_only=True)).to_pylist())


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([5, 17]),
        pd.Series([5.0, 17.0]),
        pd.Series(["5", "17"]),
        pd.Series([" 5", "17  "]),
        pd.Series([5, "17"], dtype=object),
        pd.Series(["5", "17"], dtype="category"),
        pd.Series([np.int8(5), Decimal("17.00")], dtype=object),
        pl.Series([5, 17], dtype=pl.UInt64),
        pl.Series([5.0, 17.0]),
        pl.Series([Decimal("5.00"), Decimal("17")]),
        pl.Series(["5", "17"], dtype=pl.Categorical),
        pa.chunked_array([[5], [17]]),
        pa.chunked_array([pa.array(["5", "17"], pa.string_view())]),
    ],
    ids=lambda values: f"{type(values).__module__.split('.')[0]}-{getattr(values, 'dtype', 'arrow')}",
)
def test_one_unit_whatever_its_type(values: Any) -> None:
    assert texts(values) == ["5", "17"]


def test_no_unit() -> None:
    assert texts(pd.Series(["", " ", None, "x"])) == [None, None, None, "x"]
    assert texts(pd.Series([float("nan"), 1.0])) == [None, "1"]
    assert texts(pd.Series([pd.NA, pd.NaT, float("nan"), None, "", b"", 1], dtype=object)) == [None] * 6 + ["1"]
    assert texts(pl.Series([None, None])) == [None, None]
    assert texts(pa.chunked_array([[None, float("nan")]], pa.float64())) == [None, None]


def test_other_types() -> None:
    assert texts(pl.Series([True, False])) == ["1", "0"]
    assert texts(pl.Series([0.5, -3.0, float("inf")])) == ["0.5", "-3", "inf"]
    assert texts(pl.Series([dt.date(2020, 1, 2)])) == ["2020-01-02"]
    assert texts(pl.Series([dt.datetime(2020, 1, 2, 3, 4, 5)])) == ["2020-01-02T03:04:05"]
    assert texts(pd.Series(pd.to_datetime(["2020-01-02 03:04:05"]).tz_localize("Etc/GMT-2"))) == ["2020-01-02T01:04:05"]
    assert texts(pl.Series([b"\x00\xff"])) == ["00ff"]
    assert texts(pl.Series([[1, 2]])) == ["[1, 2]"]
    assert texts(pd.Series(["a", 1, "\ud800"], dtype=object)) == ["a", "1", "\ufffd\ufffd\ufffd"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E+2"), "100"),
        (Decimal("-0.00"), "0"),
        (-0.0, "0"),
        (1e22, "10000000000000000000000"),
        (Decimal("0.500"), "0.5"),
        (Decimal("0.1234567890123456789012345678901234567890"), "0.123456789012345678901234567890123456789"),
        (Decimal("1E+999999999"), "1e+999999999"),
        (Decimal("-Infinity"), "-infinity"),
        (Decimal("sNaN"), None),
        (10**5000, None),
    ],
    ids=range(10),
)
def test_numbers_of_every_size(value: Any, text: str | None) -> None:
    assert texts(pd.Series([value, "not a number"], dtype=object)) == [text, "not a number"]


_MOMENT = dt.datetime(2020, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=2)))
_OBJECTS = [
    2 + 0j,
    _MOMENT,
    _MOMENT.replace(tzinfo=None),
    dt.date(2020, 1, 2),
    5,
    2**60 + 1,
    0.5,
    "x",
    b"x",
    None,
    True,
]


def _objects(*cells: Any) -> pd.Series:
    return pd.Series(cells, dtype=object)


def _categories(*cells: Any) -> pd.Series:
    known = list(dict.fromkeys(cell for cell in cells if cell is not None))
    codes = [-1 if cell is None else known.index(cell) for cell in cells]
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(known, dtype=object)))


@pytest.mark.parametrize("series", [_objects, _categories])
def test_no_unit_decides_how_another_is_written(series: Any) -> None:
    """Arrow would take the 5 beside a date for a day of 1970, and write moments otherwise beside a text."""
    alone = {str(one): texts(_objects(one))[0] for one in _OBJECTS}
    for one, other in itertools.product(_OBJECTS, _OBJECTS):
        assert texts(series(one, other)) == [alone[str(one)], alone[str(other)]], (one, other)


_NUMPY = [np.timedelta64(90, "s")], [np.timedelta64(90_000_000_000, "ns")], [np.longdouble("0.7")], [np.complex64(1.5)]


@pytest.mark.parametrize(
    "cells",
    [[1, 2], [1.5], [True], [np.datetime64("2020-01-02")], [_MOMENT], ["x"], [pd.Timedelta(90, "s")], *_NUMPY],
    ids=str,
)
def test_a_unit_that_makes_the_column_objects_changes_no_other(cells: list[Any]) -> None:
    for odd in ("?", 2**70, 1 + 0j, None):
        assert texts(pd.Series([*cells, odd]))[:-1] == texts(pd.Series(cells)), odd


def test_moments_are_one_unit_whatever_their_type() -> None:
    assert texts(pd.Series([_MOMENT], dtype=object)) == ["2020-01-02T01:00:00"] == texts(pd.Series([_MOMENT]))
    stamp = pd.Timestamp("2020-01-02 03:04:05.000000007")
    objects = pd.Series([stamp, stamp.to_numpy()], dtype=object)
    assert texts(objects) == ["2020-01-02T03:04:05"] * 2 == texts(pd.Series([stamp, stamp]))


@pytest.mark.parametrize(
    ("kind", "largest"),
    [
        (pa.timestamp("us"), 2**62),
        (pa.timestamp("s", "UTC"), 2**40),
        (pa.date32(), 2**30),
        (pa.duration("s"), 2**62),
        (pa.list_(pa.date32()), [2**30]),
    ],
    ids=str,
)
def test_a_unit_that_python_cannot_hold_is_none_and_fails_nothing(kind: pa.DataType, largest: Any) -> None:
    plain = pa.list_(pa.int32()) if isinstance(largest, list) else pa.int32() if largest == 2**30 else pa.int64()
    least = [0] if isinstance(largest, list) else 0
    first, second = texts(pa.chunked_array([pa.array([least, largest], plain).cast(kind)]))
    assert first is not None
    assert second is None


def test_case_distinguishes_units_and_leading_zeros_do_not() -> None:
    assert texts(pd.Series(["07", "7", "+7", "7.0", "a", "A"])) == ["7", "7", "7", "7", "a", "A"]


@pytest.mark.parametrize(
    "cells", [["00001", "1"], ["1e5", "100000"], ["true", "TRUE"], ["2020-01-01", "2020-01-01 00:00"]]
)
def test_one_odd_unit_does_not_split_others_that_a_reader_merges(cells: list[str]) -> None:
    for read in (
        lambda text: pd.read_csv(io.StringIO(text)),
        lambda text: arrow_csv.read_csv(io.BytesIO(text.encode())),
    ):
        for odd in ([], ["X17"]):
            table = read("id,x\n" + "".join(f"{cell},0\n" for cell in [*cells, *odd]))
            assert len(set(texts(table["id"])[:2])) == 1, odd


def test_long_numbers_are_distinguished_in_files_and_engines_alone() -> None:
    """One empty cell makes floating point of a column in pandas, so in frames they are what floating point makes."""
    ids = [2**60 + 1, 2**60 + 2]
    assert len(set(texts(pd.Series(ids)))) == 1
    assert texts(pd.Series([*ids, None]))[:2] == texts(pd.Series(ids)) == texts(pd.Series([str(one) for one in ids]))
    exact = unit_text(nw.from_native(pd.Series(ids), series_only=True), exact=True)
    assert exact.to_pylist() == [str(one) for one in ids]


def table(seed: int = 0, rows: int = 400) -> tuple[pa.Array, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    units = rng.integers(0, 60, rows)
    names = [None if unit == 0 else f"u|{unit}" for unit in units.tolist()]
    return pa.array(names), [
        rng.integers(0, 2, rows).astype(np.uint8),
        rng.integers(0, 300, rows).astype(np.uint16) // 250,
    ]


def kept(units: pa.Array, codes: list[np.ndarray], **settings: Any) -> Counter[tuple[Any, ...]]:
    keep = bound_rows(units, codes, **settings)
    rows = zip(units.to_pylist(), *(column.tolist() for column in codes), strict=True)
    return Counter(row for row, chosen in zip(rows, keep.tolist(), strict=True) if chosen)


@pytest.mark.parametrize("k", [1, 3, 10, 10_000])
def test_each_unit_keeps_k_rows_or_all_it_has(k: int) -> None:
    units, codes = table()
    had = Counter(unit for unit in units.to_pylist() if unit is not None)
    now: Counter[Any] = Counter()
    for row, times in kept(units, codes, max_rows=k, key=KEY).items():
        now[row[0]] += times
    assert now == {unit: min(k, rows) for unit, rows in had.items()}


def test_the_documented_layout_decides() -> None:
    units = pa.array(["p|q"] * 4)
    codes = [np.array([1, 1, 0, 1], np.uint8), np.array([270, 270, 5, 7], np.uint16)]
    lines = ["1,270|1", "1,270|2", "0,5|1", "1,7|1"]
    digests = [hashlib.sha256(f"{KEY.hex()}|p|q|{line}".encode()).hexdigest() for line in lines]
    for k in (1, 2, 3):
        expected = sorted(range(4), key=digests.__getitem__)[:k]
        assert np.flatnonzero(bound_rows(units, codes, max_rows=k, key=KEY)).tolist() == sorted(expected)


def test_sql_keeps_the_same_rows() -> None:
    units, codes = table(seed=3)
    base = sqlite3.connect(":memory:")
    base.create_function("sha256", 1, lambda text: hashlib.sha256(text.encode()).hexdigest(), deterministic=True)
    base.execute("create table t (unit text, a int, b int)")
    base.executemany(
        "insert into t values (?, ?, ?)", zip(units.to_pylist(), *(c.tolist() for c in codes), strict=True)
    )
    query = """
        with numbered as (
            select *, a || ',' || b as codes, row_number() over (partition by unit, a, b) as ordinal
            from t where unit is not null
        ), ranked as (
            select *, row_number() over (
                partition by unit order by sha256(:key || '|' || unit || '|' || codes || '|' || ordinal)
            ) as place from numbered
        )
        select unit, a, b from ranked where place <= :k
    """
    for k in (1, 3):
        rows = base.execute(query, {"key": KEY.hex(), "k": k}).fetchall()
        assert Counter(rows) == kept(units, codes, max_rows=k, key=KEY)
    base.close()


def test_another_key_keeps_other_rows_and_the_same_key_the_same() -> None:
    units, codes = table()
    first = kept(units, codes, max_rows=1, key=KEY)
    assert first == kept(units, codes, max_rows=1, key=KEY)
    assert first != kept(units, codes, max_rows=1, key=KEY[::-1])
    assert new_key() != new_key()
    assert len(new_key()) == 32


def test_every_row_of_a_unit_can_be_the_one_kept() -> None:
    units, codes = pa.array(["x"] * 4), [np.arange(4, dtype=np.uint8)]
    chosen = {int(np.flatnonzero(bound_rows(units, codes, max_rows=1, key=bytes([j]) * 32))[0]) for j in range(200)}
    assert chosen == {0, 1, 2, 3}


def test_no_rows_and_no_units() -> None:
    nothing = [np.zeros(0, np.uint8)]
    assert bound_rows(pa.array([], pa.string()), nothing, max_rows=1, key=KEY).tolist() == []
    assert not bound_rows(pa.array([None, None], pa.string()), [np.zeros(2, np.uint8)], max_rows=1, key=KEY).any()


@pytest.mark.parametrize("settings", [{"max_rows": 0, "key": KEY}, {"max_rows": 1, "key": b"short"}])
def test_bad_settings(settings: dict[str, Any]) -> None:
    units, codes = table()
    with pytest.raises(SettingError, match="32 bytes"):
        bound_rows(units, codes, **settings)


def test_units_whose_bytes_are_no_text_fail_nothing() -> None:
    raw = pa.array([b"5", b"\xff", b" 7 "], pa.binary())
    odd = pa.chunked_array([pa.Array.from_buffers(pa.string(), 3, raw.buffers())])
    assert unit_text(nw.from_native(odd, series_only=True)).to_pylist() == ["5", "\ufffd", "7"]
