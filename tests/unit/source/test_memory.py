"""Frames in memory: structure is checked, rows are bounded, and nothing but counts comes out."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from understudy.errors import InputError, SchemaError
from understudy.schema import PrivacyUnit, Schema
from understudy.source import MemorySource, Source, open_source

CANARY = "zq-canary-7731"
KEY = bytes(range(32))


def schema(sizes: dict[str, int] | None = None, **facts: Any) -> Schema:
    return Schema(Schema.from_domain(sizes or {"a": 2, "b": 3}).columns, **facts)


def by_person(k: int = 1) -> Schema:
    return schema(privacy_unit=PrivacyUnit("person", k))


def table_of(source: Source, clique: tuple[str, ...]) -> list[int]:
    ((_, counts),) = source.counts([clique])
    return np.asarray(counts).tolist()


ROWS = {"a": [0, 1, 1, 0], "b": [2, 0, 0, 1], "other": [CANARY] * 4}
FRAMES: list[Callable[[dict[str, Any]], Any]] = [pd.DataFrame, pl.DataFrame, pa.table]


@pytest.mark.parametrize("frame", FRAMES)
def test_counts_of_any_frame(frame: Callable[[Any], Any]) -> None:
    source = MemorySource(frame(ROWS), schema(rows=4))
    assert table_of(source, ("a", "b")) == [0, 1, 1, 2, 0, 0]
    assert table_of(source, ("b", "a")) == [0, 2, 1, 0, 1, 0]
    assert table_of(source, ()) == [4]
    assert source.rows_public == 4
    assert source.unit == PrivacyUnit()
    assert source.domain == schema().domain


def test_the_number_of_rows_is_public_only_when_declared() -> None:
    assert MemorySource(pd.DataFrame(ROWS), schema()).rows_public is None
    dropping = MemorySource(pd.DataFrame(ROWS), schema(rows=4))
    assert (dropping.rows_public, dropping.rows_used) == (4, None)  # codes: a row with another cell is not kept
    kept = tuple(column.model_copy(update={"on_unknown": "other"}) for column in schema().columns)
    assert MemorySource(pd.DataFrame(ROWS), replace(schema(rows=4), columns=kept)).rows_used == 4


@pytest.mark.parametrize("frame", FRAMES)
def test_a_unit_column_bounds_its_rows(frame: Callable[[Any], Any]) -> None:
    people = ["u", "u", "u", "v", "", None]
    rows = {"a": [0, 0, 0, 1, 1, 1], "b": [0, 1, 2, 0, 0, 0], "person": people}
    for k in (1, 2, 3):
        source = MemorySource(frame(rows), by_person(k))
        assert table_of(source, ("a",)) == [k, 1]
        assert source.unit.max_rows == k
        assert source.domain.columns == ("a", "b")


def test_a_row_the_schema_drops_takes_no_place() -> None:
    """Both units keep their good row whatever the key: the others are gone before rows are chosen."""
    frame = pd.DataFrame({"a": [1, 9, -9, 9, 0, 9], "b": [0] * 6, "person": ["u", "u", "u", "u", "v", "v"]})
    for j in range(20):
        assert table_of(MemorySource(frame, by_person(), key=bytes([j]) * 32), ("a",)) == [1, 1]


def test_a_key_is_drawn_for_each_source_and_can_be_shared() -> None:
    frame = pd.DataFrame({"a": [0, 1] * 200, "b": [0] * 400, "person": np.repeat(np.arange(200), 2)})
    one, two = (table_of(MemorySource(frame, by_person(), key=KEY), ("a",)) for _ in range(2))
    assert one == two
    drawn = {tuple(table_of(MemorySource(frame, by_person()), ("a",))) for _ in range(20)}
    assert len(drawn) > 1


def test_the_type_of_the_unit_does_not_matter() -> None:
    rows = {"a": [0, 1] * 50, "b": [0, 1, 2, 0] * 25}
    person = [j // 4 for j in range(100)]
    forms = [person, [str(unit) for unit in person], [float(unit) for unit in person]]
    answers = [
        table_of(MemorySource(pl.DataFrame(rows | {"person": form}), by_person(2), key=KEY), ("a", "b"))
        for form in forms
    ]
    assert answers[0] == answers[1] == answers[2]
    assert sum(answers[0]) == 50


def test_labels_that_are_numbers() -> None:
    frame = pd.DataFrame([[1, 7], [0, 7]])
    source = MemorySource(frame, schema({"0": 2}, privacy_unit=PrivacyUnit("1", 1)))
    assert sum(table_of(source, ("0",))) == 1


@pytest.mark.parametrize("frame", FRAMES)
def test_an_empty_table(frame: Callable[[Any], Any]) -> None:
    rows: dict[str, list[int]] = {"a": [], "b": [], "person": []}
    assert table_of(MemorySource(frame(rows), by_person(2)), ("a",)) == [0, 0]


TROUBLES = {
    "missing column": (pd.DataFrame({"a": [0], "person": [CANARY]}), "column 'b' is not in the table"),
    "other letters": (
        pd.DataFrame({"a": [0], "person": [CANARY], "B_ ": [0]}),
        "column 'b' is not in the table .its column number 3 is 'b' except for case, blanks or signs.; add or rename",
    ),
    "column in the index": (
        pd.DataFrame({"a": [0], "b": [0], "person": [CANARY]}).set_index(["b", "a"]),
        "columns 'a', 'b' are in the frame's index; pass .frame.reset_index",
    ),
    "other separator": (
        pd.DataFrame({'person;"a"; b': [0]}),
        "columns 'a', 'b', 'person' are not in the table .its cells seem to be separated by ';'",
    ),
    "missing unit": (pd.DataFrame({"a": [0], "b": [0]}), "column 'person' is not in the table"),
    "duplicate, pandas": (pd.DataFrame([[0, 0, 0, CANARY]], columns=["a", "b", "b", "person"]), "'b' is named more"),
    "duplicate, arrow": (pa.table([[0], [0], [0], [CANARY]], names=["a", "b", "b", "person"]), "'b' is named more"),
    "no columns": (pd.DataFrame(), "no columns"),
    "no columns, polars": (pl.DataFrame(), "no columns"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_structure_is_an_error_with_a_remedy(name: str) -> None:
    frame, words = TROUBLES[name]
    with pytest.raises(SchemaError, match=words) as caught:
        MemorySource(frame, by_person())
    assert CANARY not in str(caught.value)
    assert ";" in str(caught.value), "what is wrong; what to do"


@pytest.mark.parametrize("thing", [[1, 2], {"a": [1]}, None, 5, pl.LazyFrame({"a": [1], "b": [1]}), np.zeros((2, 2))])
def test_anything_but_a_frame_is_refused(thing: Any) -> None:
    with pytest.raises(InputError, match="must be a pandas, polars or pyarrow frame"):
        open_source(thing, schema())


def test_ten_thousand_columns() -> None:
    names = [f"x{j}" for j in range(10_000)]
    wide = pa.table({name: [0, 1] for name in names})
    assert table_of(MemorySource(wide, schema({"x77": 2})), ("x77",)) == [1, 1]
    with pytest.raises(SchemaError, match="and 95 more"):
        MemorySource(pa.table({"y": [0]}), schema(dict.fromkeys(names[:100], 2)))


def test_only_counts_come_out() -> None:
    source = MemorySource(pd.DataFrame({"a": [1] * 4711, "b": [2] * 4711}), schema())
    for text in (repr(source), str(source), f"{source}"):
        assert text == "<MemorySource of 2 columns>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InputError, match="cannot be written or copied"):
            leave(source)
    shown = {"code_groups", "codes", "counts", "domain", "rows_public", "rows_used", "unit", "values", "words"}
    assert {name for name in dir(source) if not name.startswith("_")} == shown
    with pytest.raises(SchemaError, match="are not discovered; declare"):
        source.values("a")


def test_the_frame_is_let_go_and_later_changes_do_not_reach_the_source() -> None:
    values = np.array([0, 1, 1], np.uint8)
    frame = pd.DataFrame({"a": values, "b": values}, copy=False)
    source = MemorySource(frame, schema())
    values[:] = 0
    assert table_of(source, ("a",)) == [1, 2]
    gone = weakref.ref(frame)
    del frame
    gc.collect()
    assert gone() is None


def test_content_is_never_an_error() -> None:
    strange = [0, "1", None, float("nan"), float("inf"), CANARY, b"\xff", object(), 10**40, pd.NaT]
    frame = pd.DataFrame(
        {"a": pd.Series(strange, dtype=object), "b": [0] * 10, "person": pd.Series(strange, dtype=object)}
    )
    assert sum(table_of(MemorySource(frame, by_person()), ("a",))) <= 10
