"""The source of CONTRIBUTING.md: it counts the same rows as a frame in memory, and the gate accepts it."""

from __future__ import annotations

import pickle
import sqlite3
import types
from collections.abc import Callable
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.accounting import Budget
from understudy.errors import InputError, SchemaError
from understudy.gate import PrivateTable
from understudy.mechanism.independent import Independent
from understudy.schema import PrivacyUnit, Schema
from understudy.source import MemorySource, Source

KEY = bytes(range(32))
FIELDS = [
    {"name": "who", "understudy": {"kind": "id"}},
    {"name": "sex", "type": "string", "categories": ["F", "M"], "understudy": {"on_unknown": "drop_row"}},
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}, "understudy": {"bins": 5}},
]
CELLS = [
    (1, "F", 30), (1, "F", 31), (1, "M", "32"), (1, "M", 33.0), (2, "F", None), (2, "x", 5), (3, " M ", "old"),
    (None, "F", 7), ("4", "M", 1e300), (4, "F", "07"), (4.0, "", -3), (5, "F", "5\u0000"), (5, None, 8),
]  # fmt: skip


def make_schema(unit: PrivacyUnit) -> Schema:
    stated = "row" if unit.column is None else {"column": unit.column, "max_rows": unit.max_rows}
    return Schema.from_dict({"fields": FIELDS, "understudy": {"privacy_unit": stated}})


@pytest.fixture
def sqlite_source(contributing_example: Callable[[str], str]) -> Any:
    module = types.ModuleType("sqlite_source")
    exec(contributing_example("Add a source"), vars(module))  # noqa: S102 - a page of ours
    return module.SQLiteSource


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('create table "the people" (who, sex, age, remark)')
        connection.executemany('insert into "the people" values (?, ?, ?, 1)', CELLS)
        connection.execute('create table "nobody" (who, sex, age)')
    return path


def count_all(source: Source) -> dict[Any, list[int]]:
    cliques = [clique for size in range(3) for clique in combinations(source.domain, size)]
    return {clique: np.ravel(counts).tolist() for clique, counts in source.counts(cliques)}


@pytest.mark.parametrize("unit", [PrivacyUnit(), PrivacyUnit("who", 1), PrivacyUnit("who", 2)], ids=str)
def test_it_counts_the_same_rows_as_memory(sqlite_source: Any, database: Path, unit: PrivacyUnit) -> None:
    schema = make_schema(unit)
    texts = [[None if cell is None else str(cell) for cell in row] for row in CELLS]
    frame = pd.DataFrame(texts, columns=["who", "sex", "age"], dtype=object)
    found = count_all(sqlite_source(database, "the people", schema, key=KEY))
    assert found == count_all(MemorySource(frame, schema, key=KEY))
    assert found[()] == [{None: 12, 1: 5, 2: 8}[unit.column and unit.max_rows]]


def test_the_gate_accepts_it(sqlite_source: Any, database: Path) -> None:
    source = sqlite_source(database, "the people", make_schema(PrivacyUnit("who", 2)))
    fit = Independent().fit(PrivateTable(source, Budget.of(rho=1000.0)), rho=1000.0)
    assert fit.model.total == pytest.approx(8, abs=1)


def test_an_empty_table_counts_nothing(sqlite_source: Any, database: Path) -> None:
    found = count_all(sqlite_source(database, "nobody", make_schema(PrivacyUnit("who", 2))))
    assert {sum(counts) for counts in found.values()} == {0}


def test_a_missing_column_is_an_error_and_rows_are_never_shown(sqlite_source: Any, database: Path) -> None:
    schema = make_schema(PrivacyUnit())
    pets = {"name": "pets", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}
    larger = Schema.from_dict({"fields": [*FIELDS, pets], "understudy": {"privacy_unit": "row"}})
    with pytest.raises(SchemaError, match="'pets' is not in the table"):
        sqlite_source(database, "the people", larger)
    source = sqlite_source(database, "the people", schema)
    assert repr(source) == "<SQLiteSource of 2 columns>"
    with pytest.raises(InputError, match="cannot be written or copied"):
        pickle.dumps(source)
