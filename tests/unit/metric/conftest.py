from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.schema import Schema
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.numeric import Numeric


@pytest.fixture(scope="session")
def people() -> Schema:
    return Schema(
        (
            Categorical(name="city", values=("x", "y", "z")),
            Categorical(name="sex", values=("1", "2"), nullable=False),
            Numeric(name="age", minimum=0, maximum=99, bins=20),
            Numeric(name="wage", kind="number", minimum=0, maximum=1000, bins=25, spikes=(0,)),
            Categorical(name="month", kind="ordinal", values=("jan", "feb", "mar", "apr")),
            Boolean(name="ill", nullable=False),
        )
    )


def table_of(rows: int, seed: int, noise: float = 0.0) -> Any:
    """Correlated columns; a share `noise` of the cells of each column is drawn afresh, evenly."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, rows)
    sex = np.where(rng.random(rows) < 0.5, "1", "2")
    wage = np.where(age > 65, 0.0, 200 + 4 * age + 100 * (sex == "1") + rng.normal(0, 60, rows)).clip(0, 1000)
    frame = pd.DataFrame(
        {
            "city": np.array(["x", "y", "z"])[np.minimum(age // 30, 2)],
            "sex": sex,
            "age": age.astype(float),
            "wage": wage.round(1),
            "month": rng.choice(["jan", "feb", "mar", "apr"], rows, p=[0.4, 0.3, 0.2, 0.1]),
            "ill": rng.random(rows) < age / 120,
        }
    )
    fresh = {
        "city": rng.choice(["x", "y", "z"], rows),
        "sex": rng.choice(["1", "2"], rows),
        "age": rng.integers(0, 100, rows).astype(float),
        "wage": rng.uniform(0, 1000, rows).round(1),
        "month": rng.choice(["jan", "feb", "mar", "apr"], rows),
        "ill": rng.random(rows) < 0.5,
    }
    for column, values in fresh.items():
        frame[column] = np.where(rng.random(rows) < noise, values, frame[column])
    frame["ill"] = frame["ill"].astype(bool)
    return frame


@pytest.fixture(scope="session")
def real() -> Any:
    return table_of(1500, seed=1)
