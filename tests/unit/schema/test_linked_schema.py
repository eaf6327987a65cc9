"""Data packages of linked tables: what is read, what is refused before anything is spent, and the virtual tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.errors import SchemaError
from understudy.mechanism import make_mechanism
from understudy.mechanism.linked import LinkedMechanism, divide_budget
from understudy.schema import Schema
from understudy.schema.linked import LinkedSchema, gap_codes, load_any
from understudy.testing.linked import clinic_package, clinic_schema
from understudy.workload import Workload


def test_a_package_is_read_written_and_read_again(tmp_path: Path) -> None:
    schema = clinic_schema()
    for name in ("clinic.yaml", "clinic.json"):
        schema.save(tmp_path / name)
        again = LinkedSchema.load(tmp_path / name)
        assert again.to_dict() == schema.to_dict()
        assert isinstance(load_any(tmp_path / name), LinkedSchema)
    assert list(schema.tables) == ["patients", "visits", "diagnoses"]
    assert schema.most_rows == {"patients": 1, "visits": 3, "diagnoses": 6}
    assert schema.ancestors("diagnoses") == ["patients", "visits"]


def test_foreign_keys_look_like_the_keys_that_they_refer_to() -> None:
    package = clinic_package()
    package["resources"][0]["schema"]["fields"][0] = {"name": "patient_id", "understudy": {"pattern": "P####"}}
    fields = {one["name"]: one["schema"]["fields"] for one in LinkedSchema.from_dict(package).to_dict()["resources"]}
    for one in fields.values():
        key = next(field for field in one if field["name"] == "patient_id")
        assert (key["type"], key["understudy"]["pattern"]) == ("string", "P####")
    visit = next(field for field in fields["diagnoses"] if field["name"] == "visit_id")
    assert visit["type"] == "integer"


def test_a_package_given_as_a_single_schema_says_so(tmp_path: Path) -> None:
    clinic_schema().save(tmp_path / "clinic.yaml")
    with pytest.raises(SchemaError, match="data package of several tables"):
        Schema.load(tmp_path / "clinic.yaml")


def test_virtual_tables_have_the_columns_of_the_specification() -> None:
    found = {name: list(one.schema.domain) for name, one in clinic_schema().virtual_tables.items()}
    assert found["patients"] == ["patients.sex", "patients.age", "#visits"]
    visit = ["visits.day", "visits.ward", "#diagnoses"]
    assert found["first(visits)"] == [*found["patients"], *visit]
    siblings = [f"{role}.{name}" for role in ("first", "prev") for name in visit]
    assert found["next(visits)"] == [*found["patients"], "visits.#", *siblings, *visit]
    diagnosis = ["diagnoses.rank", "diagnoses.code"]
    assert found["first(diagnoses)"] == [*found["patients"], *visit, "visits.#", *diagnosis]
    before = [f"prev.{name}" for name in diagnosis]  # with two children, the first is the previous one
    assert found["next(diagnoses)"] == [*found["patients"], *visit, "visits.#", *before, *diagnosis]


def test_a_cap_of_one_has_no_further_children() -> None:
    schema = clinic_schema(visits=1, diagnoses=1)
    assert list(schema.virtual_tables) == ["patients", "first(visits)", "first(diagnoses)"]


def test_the_budget_is_divided_as_specified() -> None:
    shares = divide_budget(clinic_schema())  # visits have 3 own columns, diagnoses 2
    assert shares["patients"] == 0.15
    assert shares["first(visits)"] == pytest.approx(0.85 * 3 / 5 / 3)
    assert shares["next(diagnoses)"] == pytest.approx(0.85 * 2 / 5 * 2 / 3)
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(divide_budget(clinic_schema(visits=1, diagnoses=1)).values()) == pytest.approx(1)


def test_a_column_is_measured_with_its_values_in_earlier_siblings() -> None:
    virtual = clinic_schema().virtual_tables["next(visits)"]
    text = LinkedMechanism(make_mechanism("aim")).for_table(virtual).settings()["workload"]
    weights = Workload.parse(text, virtual.schema.domain).weights
    wards = ("visits.#", "first.visits.ward", "prev.visits.ward", "visits.ward")
    assert wards in weights
    assert weights[wards[2:]] == pytest.approx(4 * (weights[wards[2:3]] + weights[wards[3:]]))
    assert weights["patients.sex", *wards[2:]] == weights[wards[2:]]  # so that the pair comes before noisy triples
    assert {clique[3] for clique in weights if len(clique) == 4} == {"visits.day", "visits.ward", "#diagnoses"}
    assert not any({"patients.sex", "patients.age"} == set(clique) for clique in weights)  # never the context alone


def test_previous_values_with_the_same_codes_are_merged_as_the_column_is() -> None:
    package = clinic_package(order="day")
    fields = package["resources"][1]["schema"]["fields"]
    fields[2] = {"name": "day", "type": "date", "constraints": {"minimum": "2024-01-01", "maximum": "2024-12-31"}}
    fields[2]["understudy"] = {"bins": 366}  # a gap in further rows: other codes than those of the previous day
    fields.append({"name": "cost", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}})
    fields[-1]["understudy"] = {"bins": 50}  # ten in the previous row
    fields.append(fields[-1] | {"name": "stay", "understudy": {"bins": 18}})
    schema = LinkedSchema.from_dict(package)
    found = {}
    for name in ("first(visits)", "next(visits)"):
        virtual = schema.virtual_tables[name]
        text = LinkedMechanism(make_mechanism("aim")).for_table(virtual).settings()["workload"]
        found[name] = Workload.parse(text, virtual.schema.domain).alike
    own = ("visits.ward", "visits.stay", "#diagnoses")
    prev = ("prev.visits.ward", "prev.visits.stay", "prev.#diagnoses")
    assert found == {"first(visits)": {}, "next(visits)": dict(zip(prev, own, strict=True))}


def test_sibling_columns_are_merged_to_ten_codes_and_the_order_column_is_not() -> None:
    package = clinic_package(order="day")
    fields = package["resources"][1]["schema"]["fields"]
    fields[2] = fields[2] | {"constraints": {"minimum": 0, "maximum": 29}, "understudy": {"bins": 30}}
    fields.append({"name": "cost", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}})
    fields[-1]["understudy"] = {"bins": 50}
    fields.append(fields[-1] | {"name": "stay", "understudy": {"bins": 18}})
    fields.append(fields[-1] | {"name": "rooms", "constraints": {"minimum": 0, "maximum": 99, "required": True}})
    fields[-1]["understudy"] = {"bins": 30, "on_unknown": "drop_row"}
    virtual = LinkedSchema.from_dict(package).virtual_tables["next(visits)"].schema
    assert (virtual.domain["prev.visits.stay"], virtual.domain["first.visits.stay"]) == (20, 12)
    assert virtual.code_groups.axis("first.visits.rooms") == 10  # no missing values: rare codes join their neighbours
    assert virtual.code_groups.axis("first.visits.stay") == 0
    domain = LinkedSchema.from_dict(package).virtual_tables["next(visits)"].schema.domain
    assert domain["prev.visits.cost"] == 12  # ten bins, and the codes of empty and unknown cells
    assert domain["visits.cost"] == 52
    assert domain["prev.visits.day"] == 32
    assert domain["first.visits.day"] == 12


def test_a_date_of_many_bins_is_a_gap_in_further_rows() -> None:
    package = clinic_package(order="day")
    fields = package["resources"][1]["schema"]["fields"]
    fields[2] = {"name": "day", "type": "date", "constraints": {"minimum": "2024-01-01", "maximum": "2024-12-31"}}
    fields[2]["understudy"] = {"bins": 366}
    found = LinkedSchema.from_dict(package).virtual_tables["next(visits)"].schema.domain
    assert found["gap.visits.day"] == len(gap_codes(368)) == 12
    assert "visits.day" not in found


def test_gap_codes_double() -> None:
    assert gap_codes(40).tolist() == [0, 1, 2, 3, 5, 9, 17, 33, 40]
    assert (np.diff(gap_codes(5)) > 0).all()


def _break(change: Any) -> dict[str, Any]:
    package = deepcopy(clinic_package())
    change(package, {one["name"]: one["schema"] for one in package["resources"]})
    return package


BROKEN = {
    "not among the tables": lambda p, s: s["visits"]["foreignKeys"][0]["reference"].update(resource="people"),
    "both have no foreign key": lambda p, s: s["visits"].pop("foreignKeys"),
    "form a circle": lambda p, s: s["patients"].update(
        foreignKeys=[{"fields": "patient_id", "reference": {"resource": "visits", "fields": "visit_id"}}]
    ),
    "belongs to two tables": lambda p, s: s["diagnoses"]["foreignKeys"].append(s["visits"]["foreignKeys"][0]),
    "`max_children` is missing": lambda p, s: s["visits"]["foreignKeys"][0]["understudy"].pop("max_children"),
    "at least 1": lambda p, s: s["visits"]["foreignKeys"][0]["understudy"].update(max_children=0),
    "more than 2520": lambda p, s: s["visits"]["foreignKeys"][0]["understudy"].update(max_children=2000),
    "has no `primaryKey`": lambda p, s: s["patients"].pop("primaryKey"),
    "no synthesised column": lambda p, s: s["visits"]["foreignKeys"][0]["understudy"].update(order=["when"]),
    "exactly one column": lambda p, s: s["visits"]["foreignKeys"][0]["understudy"].update(order=[], strict=True),
    "fewer codes than": lambda p, s: s["visits"]["foreignKeys"][0]["understudy"].update(
        max_children=9, order=["day"], strict=True
    ),
    "refer to both": lambda p, s: s["diagnoses"]["foreignKeys"][0].update(
        fields="visit_id", reference={"resource": "visits", "fields": "visit_id"}
    ),
    "unknown key `cap`": lambda p, s: s["visits"]["foreignKeys"][0]["understudy"].update(cap=3),
    "`privacy_unit` is not stated": lambda p, s: p.pop("understudy"),
    "the root is 'patients'": lambda p, s: p["understudy"].update(privacy_unit={"table": "visits"}),
    "is a key but not among": lambda p, s: s["visits"]["fields"].pop(1),
    "state the values of 'ward'": lambda p, s: s["visits"].update(
        understudy={"rules": [{"from": ["day"], "determines": "ward"}]}
    ),
    "which orders siblings; remove": lambda p, s: s["visits"].update(
        understudy={"rules": [{"from": ["ward"], "determines": "day", "map": {"A": 1}}]}
    ),
    "counted as gaps": lambda p, s: (
        s["visits"]["fields"][2].update(constraints={"minimum": 0, "maximum": 99}, understudy={"bins": 100})
        or s["visits"].update(understudy={"rules": [{"impossible": {"day": {"minimum": 9}, "ward": ["A"]}}]})
    ),
    "orders siblings; declare": lambda p, s: s["visits"]["fields"].__setitem__(
        2, {"name": "day", "type": "integer", "understudy": {"bounds": "discover"}}
    ),
    "needs a column with the root's key": lambda p, s: (
        s["diagnoses"]["foreignKeys"][0].update(
            fields="visit_id",
            reference={"resource": "visits", "fields": "visit_id"},
            understudy={"max_children": 2, "unique": True},
        )
        or s["diagnoses"]["fields"].__setitem__(
            0, {"name": "note", "type": "string", "understudy": {"values": "discover"}}
        )
    ),
    "must refer to 'patient_id'": lambda p, s: s["visits"]["foreignKeys"][0]["reference"].update(fields="who"),
    "as many `fields`": lambda p, s: s["visits"]["foreignKeys"][0].update(fields=["patient_id", "day"]),
    "table 'visits': `fields` must list columns": lambda p, s: s["visits"].update(fields={"day": "integer"}),
    "its `name` as text": lambda p, s: s["visits"]["fields"].append({"type": "integer"}),
    "`foreignKeys` must list keys": lambda p, s: s["visits"].update(foreignKeys={"fields": "patient_id"}),
    "has no `reference`": lambda p, s: s["visits"]["foreignKeys"][0].pop("reference"),
    "`understudy` must be a mapping": lambda p, s: s["visits"].update(understudy=["rules"]),
    "listed twice": lambda p, s: p["resources"].append(p["resources"][0]),
    "stated once": lambda p, s: s["visits"].update(understudy={"rows": 3}),
    "rename column": lambda p, s: s["visits"]["fields"].append({"name": "#x", "categories": ["a"]}),
}


@pytest.mark.parametrize("words", BROKEN)
def test_structure_that_is_no_tree_is_refused_by_name(words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        LinkedSchema.from_dict(_break(BROKEN[words]))


def test_any_part_of_another_kind_is_read_or_refused() -> None:
    def places(some: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        inner = some.items() if isinstance(some, dict) else enumerate(some) if isinstance(some, list) else ()
        for key, value in inner:
            yield (*place, key)
            yield from places(value, (*place, key))

    for *above, last in places(clinic_package(diagnoses=1)):
        for odd in (None, [], {}, 1.5, ["x"]):
            package = clinic_package(diagnoses=1)
            part: Any = package
            for key in above:
                part = part[key]
            part[last] = odd
            with suppress(SchemaError):
                LinkedSchema.from_dict(package)


def test_keys_to_public_tables_are_ordinary_columns() -> None:
    package = clinic_package()
    public = {"fields": "ward", "reference": {"resource": "wards", "fields": "ward"}, "understudy": {"public": True}}
    package["resources"][1]["schema"]["foreignKeys"].append(public)
    assert "visits.ward" in LinkedSchema.from_dict(package).virtual_tables["first(visits)"].schema.domain


def test_unique_keys_are_an_assumption_that_is_named() -> None:
    package = clinic_package()
    package["resources"][2]["schema"]["fields"].pop(0)
    key = package["resources"][2]["schema"]["foreignKeys"][0]
    key |= {"fields": ["visit_id"], "reference": {"resource": "visits", "fields": ["visit_id"]}}
    key["understudy"]["unique"] = True
    schema = LinkedSchema.from_dict(package)
    assert "'visit_id' in 'visits' are unique" in schema.assumptions[0]
    assert not clinic_schema().assumptions
    assert LinkedSchema.from_dict(schema.to_dict()).to_dict() == schema.to_dict()


@pytest.mark.parametrize(("order", "strict", "allowed"), [("day", False, 21), ("-day", False, 21), ("day", True, 15)])
def test_the_order_of_siblings_is_a_rule_of_next(order: str, strict: bool, allowed: int) -> None:
    package = clinic_package()
    package["resources"][1]["schema"]["foreignKeys"][0]["understudy"] |= {"order": [order], "strict": strict}
    domain = LinkedSchema.from_dict(package).virtual_tables["next(visits)"].schema.domain
    mask = domain.forbidden["prev.visits.day", "visits.day"][:6, :6]  # six days; other codes have no order
    assert (~mask).sum() == allowed
    after = ~mask if order == "day" else ~mask.T
    assert after[0, 5]
    assert not after[5, 0]


def test_only_orders_with_an_axis_are_rules() -> None:
    package = clinic_package()
    package["resources"][1]["schema"]["foreignKeys"][0]["understudy"]["order"] = ["ward"]
    assert not LinkedSchema.from_dict(package).virtual_tables["next(visits)"].schema.rules
    assert not clinic_schema(order="").virtual_tables["next(visits)"].schema.rules


def test_sibling_numbers_begin_with_the_second_in_next() -> None:
    schema = clinic_schema(visits=6)
    assert schema.virtual_tables["next(visits)"].schema.domain["visits.#"] == 3  # 2, 3, and 4 or more
    assert schema.virtual_tables["first(diagnoses)"].schema.domain["visits.#"] == 4


def test_rules_are_those_of_every_virtual_table_with_their_columns(tmp_path: Path) -> None:
    package = clinic_package()
    package["resources"][0]["schema"]["understudy"] = {"rules": [{"impossible": {"sex": ["M"], "age": [0]}}]}
    package["resources"][1]["schema"]["understudy"] = {"rules": [{"impossible": {"day": [5], "ward": ["A"]}}]}
    schema = LinkedSchema.from_dict(package)
    schema.save(tmp_path / "ruled.yaml")
    assert LinkedSchema.load(tmp_path / "ruled.yaml").to_dict() == schema.to_dict()
    found = {name: [rule.columns for rule in one.schema.rules] for name, one in schema.virtual_tables.items()}
    root, visits = ("patients.sex", "patients.age"), ("visits.day", "visits.ward")
    assert found["patients"] == [root]
    assert found["first(visits)"] == [root, visits]
    assert found["next(visits)"] == [("prev.visits.day", "visits.day"), root, visits]
    assert found["first(diagnoses)"] == [root, visits]


@pytest.mark.parametrize(
    "path",
    [
        "/srv/ann/v.csv",
        "../secret/v.csv",
        "a/../../v.csv",
        "C:\\ann\\v.csv",
        "\\\\host\\v.csv",
        "postgresql://u:p@h/db",
        ["v.csv"],
        3,
    ],
)
def test_a_path_that_a_release_must_not_show_is_refused(path: Any) -> None:
    """The schema is published with the release: no folder outside, no user's name, no password."""
    package = clinic_package()
    package["resources"][1]["path"] = path
    with pytest.raises(SchemaError, match="table 'visits': `path` must be one file below") as caught:
        LinkedSchema.from_dict(package)
    assert str(path) not in str(caught.value)


@pytest.mark.parametrize("path", ["v.csv", "2024/v..csv"])
def test_a_path_below_the_folder_is_kept(path: str) -> None:
    package = clinic_package()
    package["resources"][1]["path"] = path
    assert LinkedSchema.from_dict(package).to_dict()["resources"][1]["path"] == path
