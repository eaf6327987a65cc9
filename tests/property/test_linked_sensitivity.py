"""One unit with any rows changes every virtual table by at most what is charged, and nothing of the other units.

Tables are small and keys collide on purpose: visits of two patients share keys, rows repeat, keys are empty or unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy.source.linked as linked
from understudy.accounting import Neighbours
from understudy.schema.linked import UNITS_PER_ROW, LinkedSchema
from understudy.source.linked import LinkedRows
from understudy.tabulate import SparseCounts
from understudy.testing.linked import clinic_schema

KEY = bytes(range(32))
SCHEMAS = [clinic_schema(visits=2, diagnoses=2), clinic_schema(visits=3, diagnoses=2, strict=False, order="")]
PEOPLE, VISITS = ["a", "b", "c", "", "lost"], ["1", "2", "3", ""]


@st.composite
def clinics(draw: st.DrawFn) -> dict[str, Any]:
    def rows(most: int, **cells: list[Any]) -> pa.Table:
        kinds = {name: pa.int64() if isinstance(values[0], int) else pa.string() for name, values in cells.items()}
        some = draw(st.lists(st.tuples(*map(st.sampled_from, cells.values())), max_size=most))
        return pa.table({n: pa.array([row[i] for row in some], kinds[n]) for i, n in enumerate(cells)})

    return {
        "patients": rows(5, patient_id=PEOPLE[:4], sex=["F", "M"], age=[0, 3]),
        "visits": rows(8, visit_id=VISITS, patient_id=PEOPLE, day=[0, 1, 5], ward=["A", "B", "?"]),
        "diagnoses": rows(10, patient_id=PEOPLE, visit_id=VISITS, rank=[0, 1, 2], code=["x", "y"]),
    }


def changes(tables: dict[str, Any], unit: str, schema: LinkedSchema) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the change of the joint counts of each virtual table's columns when a unit is removed."""
    fewer = {name: table.filter(pc.not_equal(table["patient_id"], unit)) for name, table in tables.items()}
    both = LinkedRows(tables, schema, key=KEY), LinkedRows(fewer, schema, key=KEY)
    for name, virtual in schema.virtual_tables.items():
        clique = tuple(column for column, size in virtual.schema.domain.items() if size < 8)[-8:]
        found = [next(iter(rows.source(virtual).counts([clique])))[1] for rows in both]
        dense = [one.dense() if isinstance(one, SparseCounts) else np.asarray(one) for one in found]
        yield name, dense[0] - dense[1]


def excess(tables: dict[str, Any], unit: str, schema: LinkedSchema) -> list[str]:
    """The virtual tables that a unit changes by more than is charged, or in which it removes weight of others."""
    wrong = []
    for name, change in changes(tables, unit, schema):
        near = Neighbours("patient_id", schema.virtual_tables[name].schema.privacy_unit.max_rows)
        too_far = np.abs(change).sum() > near.marginal_l1 or (change**2).sum() > near.marginal_l2_squared
        if too_far or (change < 0).any():
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("schema", SCHEMAS, ids=["ordered", "hashed"])
@given(tables=clinics(), unit=st.sampled_from(PEOPLE[:3]))
@settings(max_examples=100, deadline=None)
def test_a_unit_changes_each_virtual_table_by_at_most_its_charge(
    tables: dict[str, Any], unit: str, schema: LinkedSchema
) -> None:
    assert not excess(tables, unit, schema)


def test_the_bound_is_reached_at_every_depth() -> None:
    tables = _worst_case()
    for name, change in changes(tables, "a", SCHEMAS[0]):
        assert np.abs(change).sum() == SCHEMAS[0].virtual_tables[name].schema.privacy_unit.max_rows


def test_every_number_of_rows_stays_within_one_unit() -> None:
    for rows in range(1, UNITS_PER_ROW + 1):
        weights = linked.weights_of(np.zeros(rows, np.int64))
        assert 0 < weights.sum() <= UNITS_PER_ROW


# -- Planted bugs: each must be found.


def test_attaching_by_the_parents_key_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def attach(self: Any, link: Any, texts: Any) -> Any:
        above = self._rows[link.parent]
        if link.parent == self._schema.root:
            return linked_attach(self, link, texts)
        wanted, keys = texts(link.parent_column).to_pylist(), above.keys.to_pylist()
        place = np.array([keys.index(one) if one in keys else -1 for one in wanted], np.int64)
        return np.where(place >= 0, above.units[place], -1), place

    linked_attach = LinkedRows._attach
    monkeypatch.setattr(LinkedRows, "_attach", attach)
    assert excess(_shared_visits(), "a", SCHEMAS[0])


def test_forgotten_weights_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked, "weights_of", lambda units: np.full(len(units), UNITS_PER_ROW))
    assert excess(_worst_case(), "a", SCHEMAS[0])


def test_children_counted_before_the_cap_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of children beyond the cap has no code: the counts refuse it, which would make a row's content fail."""
    limit = LinkedRows._limit

    def forget(self: Any, name: str, link: Any, rows: Any, values: Any, key: bytes) -> Any:
        from dataclasses import replace

        return limit(self, name, link and replace(link, max_children=99), rows, values, key)

    monkeypatch.setattr(LinkedRows, "_limit", forget)
    with pytest.raises(Exception, match="outside"):
        list(changes(_worst_case(extra=2), "a", SCHEMAS[0]))


def _worst_case(extra: int = 0) -> dict[str, Any]:
    """A patient with two visits, or more, of two diagnoses each; and another with one of each."""
    visits = 2 + extra
    owners, keys = ["a"] * visits + ["b"], [str(i) for i in range(visits)] + ["0"]
    pairs = [(o, k, r) for o, k in zip(owners, keys, strict=True) for r in range(2 if o == "a" else 1)]
    return {
        "patients": pa.table({"patient_id": ["a", "b"], "sex": ["F", "M"], "age": [0, 1]}),
        "visits": pa.table({"visit_id": keys, "patient_id": owners, "day": [0] * len(keys), "ward": ["A"] * len(keys)}),
        "diagnoses": pa.table(
            {
                "patient_id": [o for o, _, _ in pairs],
                "visit_id": [k for _, k, _ in pairs],
                "rank": [r for _, _, r in pairs],
                "code": ["x"] * len(pairs),
            }
        ),
    }


def _shared_visits() -> dict[str, Any]:
    tables = _worst_case()
    order = pa.array(list(reversed(range(tables["visits"].num_rows))))
    return tables | {"visits": tables["visits"].take(order)}


def test_the_tables_above_are_within_bounds() -> None:
    for tables, unit in [(_worst_case(), "a"), (_worst_case(2), "b"), (_shared_visits(), "a"), (_shared_visits(), "b")]:
        assert not any(excess(tables, unit, schema) for schema in SCHEMAS)
