"""Codes as steps on a type's scale are the encoder's own, at every step's edge and in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from understudy.schema import Schema
from understudy.source.steps import MOST_STEPS, CodingSteps, find_steps

FIELDS: list[dict[str, Any]] = [
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99},
     "understudy": {"missing": {"-9": "refused", "50": "odd"}}},
    {"name": "cents", "type": "number", "constraints": {"minimum": 0, "maximum": 10},
     "understudy": {"decimals": 2, "bins": 20, "spikes": [0, 5]}},
    {"name": "real", "type": "number", "constraints": {"minimum": 0, "maximum": 1},
     "understudy": {"bins": {"edges": [0, 0.1, 0.3, 0.7, 1]}, "outside": "unknown", "spikes": [0.5]}},
    {"name": "log", "type": "number", "constraints": {"minimum": 0, "maximum": 1e6},
     "understudy": {"scale": "log", "bins": 7, "top": {"from": 5e5}, "on_unknown": "drop_row"}},
    {"name": "day", "type": "date", "constraints": {"minimum": "2000-01-01", "maximum": "9999-12-31"},
     "understudy": {"bins": {"edges": ["2000-01-01", "2000-02-29", "2500-01-01", "9999-12-31"]}}},
    {"name": "moment", "type": "datetime", "constraints": {"minimum": "2000-01-01T00:00:00",
     "maximum": "2020-12-31T00:00:00"}, "understudy": {"bins": 10, "missing": {"2001-01-01T00:00:00": "none"}}},
    {"name": "code", "type": "integer", "categories": [1, 2, 7, 9007199254740991]},
    {"name": "text", "type": "string", "categories": ["07", "8", "x", "1e3"]},
    {"name": "flag", "type": "boolean"},
    {"name": "truth", "type": "string", "categories": ["true", "0x10", "NA"]},
    {"name": "answer", "type": "boolean", "trueValues": ["Y"], "falseValues": ["N"]},
    {"name": "years", "type": "integer", "constraints": {"minimum": 0, "maximum": 9},
     "understudy": {"missing": {"true": "odd", "NA": "refused"}}},
]  # fmt: skip
SCHEMA = Schema.from_dict({"understudy": {"privacy_unit": "row"}, "fields": FIELDS})
NUMBERS = [pa.int64(), pa.float64(), pa.decimal128(12, 3), pa.decimal128(18, 0)]
TIMES = [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
CASES = [(c.name, kind) for c in SCHEMA.coded for kind in (TIMES if c.name in ("day", "moment") else NUMBERS)]


def looked_up(found: CodingSteps, places: np.ndarray[Any, Any]) -> list[int]:
    return np.asarray(found.codes)[np.searchsorted(np.asarray(found.starts), places, side="right")].tolist()


def near(found: CodingSteps, kind: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Places at every edge, beside it and between, and the ends of the scale."""
    if pa.types.is_floating(kind):
        edges = np.asarray([start for start in found.starts if abs(start) < 1e300])
        beside = [edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf), rng.normal(0, 100, 500)]
        return np.concatenate([*beside, rng.integers(-200, 2200, 500) / 200, [np.inf, -np.inf, 1e308, -1e308, -0.0]])
    edges = np.asarray(found.starts, np.int64)
    span = {"int64": 2**62, "date32[day]": 2**30}.get(str(kind), 10**11)
    return np.concatenate([edges, edges - 1, edges + 1, rng.integers(-span, span, 500), rng.integers(-2000, 2000, 500)])


def cells_at(places: np.ndarray[Any, Any], kind: Any) -> Any:
    if pa.types.is_decimal(kind):
        from decimal import Decimal

        return pa.array([Decimal(int(place)).scaleb(-kind.scale) for place in places], kind)
    return pa.array(places.astype(np.int32) if pa.types.is_date(kind) else places, kind)


@pytest.mark.parametrize(("name", "kind"), CASES, ids=str)
def test_steps_are_the_encoder(name: str, kind: Any) -> None:
    column: Any = SCHEMA.column(name)
    found = find_steps(column, kind, SCHEMA.dialect)
    assert found is not None
    places = near(found, kind, np.random.default_rng(0))
    assert looked_up(found, places) == column.encode(cells_at(places, kind), SCHEMA.dialect)[name].tolist()
    assert found.null == column.encode(pa.array([None], kind), SCHEMA.dialect)[name][0]
    assert len(set(found.codes)) > 1


def test_anything_but_a_step_function_is_reported() -> None:
    number = {"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 100_000}}
    fields = [
        number | {"name": "heaped", "understudy": {"heaped": [100, 10, 1]}},
        number | {"name": "fine", "understudy": {"bins": MOST_STEPS + 2}},
        number | {"name": "length", "type": "duration", "constraints": {"minimum": 0, "maximum": 10}},
        number,
    ]
    schema = Schema.from_dict({"understudy": {"privacy_unit": "row"}, "fields": fields})
    found = {column.name: find_steps(column, pa.int64(), schema.dialect) for column in schema.coded}
    assert [name for name, one in found.items() if one is None] == ["heaped", "fine", "length"]
    long = Schema.from_dict(
        {"understudy": {"privacy_unit": "row"}, "fields": [{"name": "x", "type": "integer", "categories": [2**53 + 1]}]}
    )
    assert find_steps(long.coded[0], pa.int64(), long.dialect) is None
    assert find_steps(long.coded[0], pa.decimal128(18, 0), long.dialect) is None
    assert find_steps(long.coded[0], pa.float64(), long.dialect) is not None
    assert find_steps(schema.coded[3], pa.bool_(), schema.dialect) is None
    assert find_steps(schema.coded[3], pa.date32(), schema.dialect) is None
