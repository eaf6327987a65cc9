"""Made-up linked tables for tests: patients, their visits, and the diagnoses of each visit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from understudy.schema.linked import LinkedSchema


def clinic_package(*, visits: int = 3, diagnoses: int = 2, strict: bool = True, order: str = "day") -> dict[str, Any]:
    """Return the data package of the made-up tables.

    Args:
        visits: the cap of visits of a patient.
        diagnoses: the cap of diagnoses of a visit.
        strict: whether the diagnoses of a visit have different ranks.
        order: the column that orders visits; empty for none.
    """

    def whole(name: str, last: int) -> dict[str, Any]:
        ours = {"bins": last + 1}
        return {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": last}, "understudy": ours}

    def key(fields: list[str], parent: str, **ours: Any) -> list[dict[str, Any]]:
        return [{"fields": fields, "reference": {"resource": parent, "fields": fields}, "understudy": ours}]

    patient, visit = {"name": "patient_id", "type": "string"}, {"name": "visit_id", "type": "string"}
    ordered = {"order": [order]} if order else {}
    return {
        "title": "A clinic",
        "resources": [
            {
                "name": "patients",
                "schema": {
                    "primaryKey": "patient_id",
                    "fields": [patient, {"name": "sex", "categories": ["F", "M"]}, whole("age", 3)],
                },
            },
            {
                "name": "visits",
                "schema": {
                    "primaryKey": "visit_id",
                    "fields": [visit, patient, whole("day", 5), {"name": "ward", "categories": ["A", "B", "C"]}],
                    "foreignKeys": key(["patient_id"], "patients", max_children=visits, **ordered),
                },
            },
            {
                "name": "diagnoses",
                "schema": {
                    "fields": [patient, visit, whole("rank", 3), {"name": "code", "categories": ["x", "y"]}],
                    "foreignKeys": key(
                        ["patient_id", "visit_id"], "visits", max_children=diagnoses, order=["rank"], strict=strict
                    ),
                },
            },
        ],
        "understudy": {"privacy_unit": {"table": "patients"}},
    }


def clinic_schema(**options: Any) -> LinkedSchema:
    """Return the schema of the made-up tables; the options are those of `clinic_package`."""
    return LinkedSchema.from_dict(clinic_package(**options))


def clinic_rows(patients: int = 200, seed: int = 0) -> dict[str, Any]:
    """Return made-up tables: older patients have more visits, and wards stay the same from visit to visit."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 4, patients)
    visits = rng.binomial(4, (age + 1) / 6)
    owner = np.repeat(np.arange(patients), visits)
    ward = (owner + (rng.random(len(owner)) < 0.2)) % 3
    many = rng.integers(0, 4, len(owner))
    visit = np.repeat(np.arange(len(owner)), many)
    rank = np.arange(len(visit)) - np.repeat(np.cumsum(many) - many, many)
    texts = {
        "patients": {
            "patient_id": [f"P{i}" for i in range(patients)],
            "sex": rng.choice(["F", "M"], patients).tolist(),
            "age": age.tolist(),
        },
        "visits": {
            "visit_id": [f"V{i}" for i in range(len(owner))],
            "patient_id": [f"P{i}" for i in owner],
            "day": rng.integers(0, 6, len(owner)).tolist(),
            "ward": [("A", "B", "C")[i] for i in ward],
        },
        "diagnoses": {
            "patient_id": [f"P{owner[i]}" for i in visit],
            "visit_id": [f"V{i}" for i in visit],
            "rank": rank.tolist(),
            "code": rng.choice(["x", "y"], len(visit)).tolist(),
        },
    }
    return {name: pa.table(columns) for name, columns in texts.items()}
