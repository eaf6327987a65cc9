"""Linked rows: worked counts, and what happens to orphans, duplicates, empty keys and rows beyond the caps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from understudy.errors import InputError, SchemaError
from understudy.schema.frames import mark_as_written
from understudy.schema.linked import UNITS_PER_ROW, LinkedSchema
from understudy.source.linked import LinkedRows, code_gaps
from understudy.testing.linked import clinic_package, clinic_rows, clinic_schema

L = UNITS_PER_ROW
KEY = bytes(range(32))


def households(children: dict[str, str], cap: int = 3) -> tuple[LinkedSchema, dict[str, Any]]:
    """Return households with members in a declared order: {"h1": "AAB"}."""
    whole = {"name": "place", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}}
    key = {"fields": "h", "reference": {"resource": "homes", "fields": "h"}}
    key["understudy"] = {"max_children": cap, "order": ["place"]}
    homes = {"primaryKey": "h", "fields": [{"name": "h", "type": "string"}, {"name": "kind", "categories": ["k"]}]}
    fields = [{"name": "h", "type": "string"}, whole | {"understudy": {"bins": 10}}]
    persons = {"fields": [*fields, {"name": "sort", "categories": ["A", "B"]}], "foreignKeys": [key]}
    package = {"resources": [{"name": "homes", "schema": homes}, {"name": "persons", "schema": persons}]}
    package["understudy"] = {"privacy_unit": {"table": "homes"}}
    rows = [(home, place, sort) for home, sorts in children.items() for place, sort in enumerate(sorts)]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    named = zip(("h", "place", "sort"), (pa.string(), pa.int64(), pa.string()), columns, strict=True)
    tables = {
        "homes": pa.table({"h": pa.array(list(children), pa.string()), "kind": ["k"] * len(children)}),
        "persons": pa.table({name: pa.array(list(cells), kind) for name, kind, cells in named}),
    }
    return LinkedSchema.from_dict(package), tables


def count(schema: LinkedSchema, tables: dict[str, Any], virtual: str, *columns: str) -> dict[tuple[int, ...], int]:
    source = LinkedRows(tables, schema, key=KEY).source(schema.virtual_tables[virtual])
    ((_, found),) = source.counts([columns])
    table = np.asarray(found).reshape(schema.virtual_tables[virtual].schema.domain.shape(columns))
    return {tuple(map(int, cell)): int(table[tuple(cell)]) for cell in np.argwhere(table)}


def test_the_worked_household_counts() -> None:
    """Section 1 of the specification: h1 = A A B, h2 = B, h3 none; `next` gives each row of h1 a half."""
    schema, tables = households({"h1": "AAB", "h2": "B", "h3": ""})
    assert count(schema, tables, "homes", "#persons") == {(0,): 1, (1,): 1, (3,): 1}
    assert count(schema, tables, "first(persons)", "persons.sort") == {(0,): L, (1,): L}
    assert count(schema, tables, "next(persons)", "prev.persons.sort", "persons.sort") == {
        (0, 0): L // 2,
        (0, 1): L // 2,
    }
    assert count(schema, tables, "next(persons)", "first.persons.sort", "persons.sort") == {
        (0, 0): L // 2,
        (0, 1): L // 2,
    }
    without = households({"h2": "B", "h3": ""})[1]
    assert count(schema, without, "next(persons)", "prev.persons.sort", "persons.sort") == {}


def test_the_worked_three_levels() -> None:
    """Caps 2 and 2, visits [x, y] and [x]: first(diagnoses) has weight 1 on x, next(diagnoses) weight 1 on x then y."""
    schema = clinic_schema(visits=2, diagnoses=2)
    tables = {
        "patients": pa.table({"patient_id": ["p"], "sex": ["F"], "age": [1]}),
        "visits": pa.table({"visit_id": ["1", "2"], "patient_id": ["p", "p"], "day": [0, 1], "ward": ["A", "B"]}),
        "diagnoses": pa.table(
            {"patient_id": ["p"] * 3, "visit_id": ["1", "1", "2"], "rank": [0, 1, 0], "code": ["x", "y", "x"]}
        ),
    }
    assert count(schema, tables, "first(diagnoses)", "diagnoses.code") == {(0,): L}
    assert count(schema, tables, "next(diagnoses)", "prev.diagnoses.code", "diagnoses.code") == {(0, 1): L}
    assert count(schema, tables, "first(diagnoses)", "visits.#", "visits.ward") == {(0, 0): L // 2, (1, 1): L // 2}


def test_rows_beyond_the_cap_are_cut_before_children_are_counted() -> None:
    schema, tables = households({"h1": "AABBB", "h2": "B"})
    assert count(schema, tables, "homes", "#persons") == {(1,): 1, (3,): 1}
    assert count(schema, tables, "next(persons)", "persons.place") == {(1,): L // 2, (2,): L // 2}


def test_keep_last_uses_the_last_rows_in_their_order() -> None:
    schema, tables = households({"h1": "AABBB"})
    package = schema.to_dict()
    package["resources"][1]["schema"]["foreignKeys"][0]["understudy"]["keep"] = "last"
    schema = LinkedSchema.from_dict(package)
    assert count(schema, tables, "first(persons)", "persons.place") == {(2,): L}
    assert count(schema, tables, "next(persons)", "persons.place") == {(3,): L // 2, (4,): L // 2}


def test_a_descending_order_is_followed() -> None:
    schema, tables = households({"h1": "AAB"})
    package = schema.to_dict()
    package["resources"][1]["schema"]["foreignKeys"][0]["understudy"]["order"] = ["-place"]
    schema = LinkedSchema.from_dict(package)
    assert count(schema, tables, "first(persons)", "persons.place") == {(2,): L}


def test_orphans_and_rows_with_empty_keys_are_dropped() -> None:
    schema, tables = households({"h1": "A"})
    more = pa.table({"h": ["nobody", None, ""], "place": [0, 1, 2], "sort": ["B"] * 3})
    tables["persons"] = pa.concat_tables([tables["persons"], more])
    tables["homes"] = pa.concat_tables([tables["homes"], pa.table({"h": pa.array([None, ""]), "kind": ["k", "k"]})])
    assert count(schema, tables, "homes", "#persons") == {(1,): 1}
    assert count(schema, tables, "first(persons)", "persons.sort") == {(0,): L}


def test_a_root_key_twice_is_one_unit_with_all_its_children() -> None:
    schema, tables = households({"h1": "AB"})
    tables["homes"] = pa.concat_tables([tables["homes"]] * 3)
    assert count(schema, tables, "homes", "#persons") == {(2,): 1}


def test_a_parent_key_twice_in_a_unit_is_one_row_with_all_children() -> None:
    schema, tables = clinic_schema(visits=3, diagnoses=3), _two_patients()
    tables["visits"] = pa.concat_tables([tables["visits"], tables["visits"].slice(0, 1)])
    assert count(schema, tables, "patients", "#visits") == {(1,): 2}
    assert count(schema, tables, "first(diagnoses)", "diagnoses.code") == {(0,): L, (1,): L}


def test_visits_of_two_patients_with_one_key_do_not_touch() -> None:
    """Patient b's visit 7 must not capture the diagnoses of a's visit 7."""
    schema, tables = clinic_schema(visits=3, diagnoses=3), _two_patients()
    both = count(schema, tables, "first(diagnoses)", "visits.ward", "diagnoses.code")
    assert both == {(0, 0): L, (1, 1): L}
    for unit, left in (("a", {(1, 1): L}), ("b", {(0, 0): L})):
        assert count(schema, _without(tables, unit), "first(diagnoses)", "visits.ward", "diagnoses.code") == left


def test_equal_values_of_a_strict_order_are_cut_to_one() -> None:
    schema, tables = clinic_schema(visits=3, diagnoses=3), _two_patients()
    tables["diagnoses"] = pa.concat_tables([tables["diagnoses"]] * 2)
    assert count(schema, tables, "first(visits)", "#diagnoses") == {(1,): 2 * L}


@pytest.mark.parametrize("empty", ["patients", "visits", "diagnoses"])
def test_empty_tables_are_counted(empty: str) -> None:
    schema, tables = clinic_schema(), clinic_rows(20)
    tables[empty] = tables[empty].slice(0, 0)
    rows = LinkedRows(tables, schema)
    for virtual in schema.virtual_tables.values():
        for _, found in rows.source(virtual).counts([(), tuple(virtual.schema.domain)[:2]]):
            assert np.asarray(found).min() >= 0


def test_the_order_of_rows_does_not_matter() -> None:
    schema, tables = clinic_schema(order=""), clinic_rows(40)
    rng = np.random.default_rng(1)
    shuffled = {name: table.take(pa.array(rng.permutation(table.num_rows))) for name, table in tables.items()}
    for virtual in schema.virtual_tables.values():
        cliques = [(a, b) for a in virtual.schema.domain for b in virtual.schema.domain if a < b]
        pairs = (LinkedRows(one, schema, key=KEY).source(virtual).counts(cliques) for one in (tables, shuffled))
        for (_, one), (_, other) in zip(*pairs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_frames_of_any_library_count_alike() -> None:
    schema, tables = clinic_schema(), clinic_rows(30)
    frames = {name: table.to_pandas() for name, table in tables.items()}
    for name, virtual in schema.virtual_tables.items():
        cliques = [(column,) for column in virtual.schema.domain]
        both = (LinkedRows(one, schema, key=KEY).source(virtual).counts(cliques) for one in (tables, frames))
        for (_, one), (_, other) in zip(*both, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_missing_and_unknown_tables_and_columns_are_refused() -> None:
    schema, tables = clinic_schema(), clinic_rows(3)
    with pytest.raises(InputError, match="table 'visits' is missing"):
        LinkedRows({"patients": tables["patients"]}, schema)
    with pytest.raises(InputError, match="'wards' is not in the schema"):
        LinkedRows(tables | {"wards": tables["visits"]}, schema)
    with pytest.raises(SchemaError, match=r"table 'visits': .*patient_id"):
        LinkedRows(tables | {"visits": tables["visits"].drop_columns(["patient_id"])}, schema)
    with pytest.raises(InputError, match="by name"):
        LinkedRows(tables["visits"], schema)


def test_rows_are_not_shown_or_pickled() -> None:
    rows = LinkedRows(clinic_rows(3), clinic_schema())
    assert repr(rows) == "<LinkedRows of 3 tables>"
    with pytest.raises(InputError):
        rows.__reduce__()


def test_gaps_are_coded_by_their_length() -> None:
    codes, before = np.array([5, 5, 9, 10, 3]), np.array([5, 4, 4, 3, 10])
    assert code_gaps(codes, before, ordinary=10, size=12).tolist() == [0, 1, 4, 6, 6]


def test_unique_keys_of_parents_lead_to_the_unit() -> None:
    package = clinic_package()
    package["resources"][2]["schema"]["fields"].pop(0)
    key = package["resources"][2]["schema"]["foreignKeys"][0]
    key |= {"fields": ["visit_id"], "reference": {"resource": "visits", "fields": ["visit_id"]}}
    key["understudy"]["unique"] = True
    schema, tables = LinkedSchema.from_dict(package), clinic_rows(30)
    composite = clinic_schema()
    for virtual in ("first(diagnoses)", "next(diagnoses)"):
        clique = ("diagnoses.rank", "diagnoses.code", "visits.ward")
        assert count(schema, tables, virtual, *clique) == count(composite, tables, virtual, *clique)


def _two_patients() -> dict[str, Any]:
    return {
        "patients": pa.table({"patient_id": ["a", "b"], "sex": ["F", "M"], "age": [1, 2]}),
        "visits": pa.table({"visit_id": ["7", "7"], "patient_id": ["a", "b"], "day": [0, 1], "ward": ["A", "B"]}),
        "diagnoses": pa.table({"patient_id": ["a", "b"], "visit_id": ["7", "7"], "rank": [0, 0], "code": ["x", "y"]}),
    }


def _without(tables: dict[str, Any], unit: str) -> dict[str, Any]:
    import pyarrow.compute as pc

    return {name: table.filter(pc.not_equal(table["patient_id"], unit)) for name, table in tables.items()}


def test_large_keys_are_read_alike_in_all_tables() -> None:
    """A frame's reader may have merged large keys because of an empty cell: then no table keeps them apart."""
    big, schema = 2**53, clinic_schema()
    patients = pa.table({"patient_id": [str(big), str(big + 1)], "sex": ["F", "M"], "age": [0, 1]})
    visits = pa.table(
        {"visit_id": ["1", "2"], "patient_id": [float(big), float(big)], "day": [0, 1], "ward": ["A", "A"]}
    )
    diagnoses = clinic_rows(0)["diagnoses"]
    for written, units in ((patients, 1), (mark_as_written(patients), 1)):
        rows = LinkedRows({"patients": written, "visits": visits, "diagnoses": diagnoses}, schema)
        counted = next(iter(rows.source(schema.virtual_tables["patients"]).counts([()])))[1]
        assert counted.tolist() == [units]
    frames = {"patients": patients, "visits": visits.slice(0, 0), "diagnoses": diagnoses}
    rows = LinkedRows({name: mark_as_written(one) for name, one in frames.items()}, schema)
    assert next(iter(rows.source(schema.virtual_tables["patients"]).counts([()])))[1].tolist() == [2]
