"""Scores of linked tables: numbers worked out by hand, and perfect scores for equal tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.errors import SettingError
from understudy.evaluation.linked import check_integrity
from understudy.metric.linked import TableCodes, cardinality, lag_correlation, score_tables, sibling_pairs
from understudy.source.linked import LinkedRows
from understudy.testing.linked import clinic_rows, clinic_schema

SCHEMA = clinic_schema(visits=4, diagnoses=3)


def coded(tables: dict[str, Any]) -> dict[str, TableCodes]:
    return {name: TableCodes(*one) for name, one in LinkedRows(tables, SCHEMA).table_codes().items()}


def tiny(wards: dict[str, str]) -> dict[str, TableCodes]:
    """Patients with visits in these wards, in order of days."""
    pairs = [(patient, day, ward) for patient, each in wards.items() for day, ward in enumerate(each)]
    empty = clinic_rows(3)["diagnoses"].slice(0, 0)
    people = {"patient_id": list(wards), "sex": ["F"] * len(wards), "age": [0] * len(wards)}
    visits = {
        "visit_id": [str(i) for i in range(len(pairs))],
        "patient_id": [patient for patient, _, _ in pairs],
        "day": [day for _, day, _ in pairs],
        "ward": [ward for _, _, ward in pairs],
    }
    return coded({"patients": pa.table(people), "visits": pa.table(visits), "diagnoses": empty})


def test_equal_tables_have_perfect_scores() -> None:
    real = coded(clinic_rows(60))
    for name, value in score_tables(real, real, SCHEMA, queries=30).items():
        if name.startswith("detection"):
            continue  # a regression on few rows finds something in chance
        assert value == pytest.approx(0.0 if name.startswith("query") else 1.0), name


def test_worse_tables_have_worse_scores() -> None:
    real, other = coded(clinic_rows(200)), coded(clinic_rows(200, seed=9))
    shuffled = dict(other)
    visits = other["visits"]
    mixed = np.random.default_rng(0).permutation(len(visits.numbers))
    shuffled["visits"] = TableCodes(
        visits.codes | {"ward": visits.codes["ward"][mixed]}, visits.parents, visits.numbers
    )
    near, far = score_tables(real, other, SCHEMA, queries=50), score_tables(real, shuffled, SCHEMA, queries=50)
    assert far["sibling(visits)"] < near["sibling(visits)"] - 0.02
    assert far["consecutive(visits)"] < near["consecutive(visits)"] - 0.02


def test_a_regression_detects_parents_with_other_children() -> None:
    real, like = coded(clinic_rows(1500)), coded(clinic_rows(1500, seed=9))
    other = clinic_rows(1500, seed=9)
    other["visits"] = other["visits"].set_column(3, "ward", pa.array(["A"] * other["visits"].num_rows))
    near, far = score_tables(real, like, SCHEMA, queries=1), score_tables(real, coded(other), SCHEMA, queries=1)
    assert near["detection(patients)"] > 0.9
    assert near["detection(visits)"] > 0.9
    assert far["detection(patients)"] < 0.6


def test_lag_correlations_are_compared() -> None:
    """Days 0, 1, 2, ... in every patient: the lag-1 correlation is 1; with days all alike there is none."""
    real = tiny({"a": "ABAB", "b": "ABA", "c": "AB"})
    scores = score_tables(real, real, SCHEMA, queries=1)
    assert scores["lag-1(visits, day)"] == 1
    days = real["visits"]
    turned = TableCodes(days.codes | {"day": 5 - days.codes["day"]}, days.parents, days.numbers)
    assert score_tables(real, real | {"visits": turned}, SCHEMA, queries=1)["lag-1(visits, day)"] == pytest.approx(1)
    other = days.codes | {"day": np.array([0, 5, 0, 5, 0, 5, 0, 5, 0])}
    mixed = TableCodes(other, days.parents, days.numbers)
    assert score_tables(real, real | {"visits": mixed}, SCHEMA, queries=1)["lag-1(visits, day)"] < 0.6


def test_cardinality_is_one_minus_the_largest_difference_of_cumulative_shares() -> None:
    """Children 0, 1, 2, 3 against 1, 1, 2, 2: cumulative shares differ by 1/4 at 0 and at 2."""
    real, made = tiny({"a": "", "b": "A", "c": "AA", "d": "AAA"}), tiny({"a": "A", "b": "A", "c": "AA", "d": "AA"})
    assert cardinality(real, made, SCHEMA, "visits") == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("real", "made", "score"),
    [("1210113010", "1101110032", 1.0), ("2101020112", "0211101211", 0.9)],
    ids=["sessions of users", "transactions of sessions"],
)
def test_cardinality_agrees_with_sdmetrics_on_its_demo(real: str, made: str, score: float) -> None:
    """`CardinalityShapeSimilarity` of SDMetrics 0.32 on the numbers of children in its demo tables."""
    both = (tiny({str(i): int(many) * "A" for i, many in enumerate(each)}) for each in (real, made))
    assert cardinality(*both, SCHEMA, "visits") == pytest.approx(score)


def test_the_pairs_of_a_parent_weigh_one_together() -> None:
    """AB against AAAB: pairs AB and BA, against AA in a half of the pairs: the distance of the wards' table is 1/2."""
    real, made = tiny({"a": "AB"}), tiny({"a": "AAAB"})
    wards = TableCodes({"ward": real["visits"].codes["ward"]}, real["visits"].parents, real["visits"].numbers)
    assert len(wards.numbers) == 2
    codes = made["visits"].codes["ward"]
    first, second = np.nonzero(~np.eye(4, dtype=bool))
    same = np.mean(codes[first] == codes[second])
    assert same == pytest.approx(0.5)
    assert 0 < sibling_pairs(real, made, SCHEMA, "visits") < 1
    twice = tiny({"a": "AB", "b": "AB"})
    assert sibling_pairs(real, twice, SCHEMA, "visits") == pytest.approx(0.0)


def test_the_correlation_of_consecutive_days() -> None:
    tables = tiny({"a": "AAAA", "b": "AAA"})
    assert lag_correlation(tables, SCHEMA, "visits", "day") == pytest.approx(1.0)


def test_integrity_is_the_share_that_holds() -> None:
    tables = clinic_rows(30)
    assert all(value == 1 for name, value in check_integrity(tables, SCHEMA).items() if not name.startswith("order"))
    lost = tables["visits"].set_column(1, "patient_id", pa.array(["nobody"] * tables["visits"].num_rows))
    assert check_integrity(tables | {"visits": lost}, SCHEMA)["references(visits)"] == 0
    twice = pa.concat_tables([tables["patients"]] * 2)
    assert check_integrity(tables | {"patients": twice}, SCHEMA)["unique keys(patients)"] == 0.5
    unordered = tables["visits"].set_column(2, "day", pa.array(range(5, 5 - tables["visits"].num_rows, -1)))
    assert check_integrity(tables | {"visits": unordered}, SCHEMA)["order(visits)"] < 1


def test_evaluate_takes_linked_tables() -> None:
    few = {"queries": 100}
    scores = us.evaluate(clinic_rows(40), clinic_rows(40, seed=2), SCHEMA, group_queries=few)
    assert "cardinality(visits)" in scores["metric"].to_pylist()
    with pytest.raises(SettingError, match="linked tables"):
        us.evaluate(clinic_rows(4), clinic_rows(4), SCHEMA, metrics=["mgd"])
