"""A release with every kind of column, made once."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

import understudy as us

FIELDS = [
    {"name": "sex", "title": "Sex", "type": "integer",
     "categories": [{"value": 1, "label": "male"}, {"value": 2, "label": "female"}],
     "understudy": {"missing": {"-9": "refused"}}},
    {"name": "region", "type": "string", "categories": ["North", "=East", "@West"]},
    {"name": "age", "title": "Age in years", "type": "integer", "constraints": {"minimum": 0, "maximum": 99},
     "understudy": {"bins": {"width": 20}, "missing": {"-8": "does not know"}}},
    {"name": "income", "type": "number", "constraints": {"minimum": 0, "maximum": 1000},
     "understudy": {"bins": 5, "decimals": 2}},
    {"name": "born", "type": "date", "constraints": {"minimum": "1920-01-01", "maximum": "2019-12-31"},
     "understudy": {"bins": {"width": "10 years"}}},
    {"name": "employed", "type": "boolean"},
    {"name": "person no", "type": "string", "understudy": {"kind": "id", "pattern": "P-####"}},
    {"name": "wave", "understudy": {"kind": "constant", "value": 3}},
    {"name": "remarks", "understudy": {"kind": "drop"}},
]  # fmt: skip
CONTENT = {"title": "A survey", "fields": FIELDS, "understudy": {"privacy_unit": "row", "dialect": {"delimiter": ";"}}}


def people(rows: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "sex": rng.choice([1, 2, -9], rows, p=[0.5, 0.4, 0.1]),
            "region": rng.choice(["North", "=East", "@West"], rows, p=[0.6, 0.3, 0.1]),
            "age": np.where(rng.random(rows) < 0.1, -8, rng.integers(0, 90, rows)),
            "income": np.round(rng.uniform(0, 900, rows), 2),
            "born": [dt.date(1950, 1, 1) + dt.timedelta(days=int(days)) for days in rng.integers(0, 20000, rows)],
            "employed": rng.random(rows) < 0.5,
        }
    )


@pytest.fixture(scope="session")
def survey():
    with us.testing.insecure(1):
        return us.synthesize(people(), us.Schema.from_dict(CONTENT), epsilon=4, delta=1e-6, mechanism="mst")
