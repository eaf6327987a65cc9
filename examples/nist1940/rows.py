"""Rows over the schema of the 1940 census: made up, because the census rows of the 2018 challenge are not published.

Usage: python examples/nist1940/rows.py FOLDER [SHARE]

Writes arizona.parquet and vermont.parquet, with as many rows as in the challenge, colorado.parquet (300,000 rows; its
public table) and census1940.schema.yaml; with SHARE, that part of the rows. Every column follows an earlier one (a
fixed random tree) seven times in ten, else a distribution of its own in which few values are common: about as
dependent, and as sparse, as a census. Wages depend on city and sex: four people in ten have one, and its level and the
gap between men and women differ from city to city. All states follow the same rules.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from understudy.schema import Schema

_SCHEMA = Path(__file__).parents[1] / "census1940" / "schema.yaml"
_RULES = 1940  # the seed of what all states share
_STATES = {"arizona": 293_999, "vermont": 211_228, "colorado": 300_000}


def census_like(schema: Schema, rows: int, state: int) -> Any:
    """Return the rows of a state: another number gives other people who follow the same rules."""
    rules, people = np.random.default_rng(_RULES), np.random.default_rng([_RULES, state])
    codes: dict[str, np.ndarray] = {}
    earlier: list[str] = []
    for column, size in schema.domain.items():
        used = rules.permutation(size)[: max(2, round(size**0.75))] if size > 2 else np.arange(size)
        common = 1.0 / np.arange(1, len(used) + 1) ** 1.2
        own = used[people.choice(len(used), rows, p=common / common.sum())]
        if earlier:
            parent = earlier[int(rules.integers(max(0, len(earlier) - 12), len(earlier)))]
            follows = used[rules.choice(len(used), schema.domain[parent], p=common / common.sum())]
            own = np.where(people.random(rows) < 0.7, follows[codes[parent]], own)
        codes[column] = own.astype(np.uint16)
        earlier.append(column)
    codes["SEX"] = people.integers(2, size=rows).astype(np.uint16)
    table = schema.decode(codes, people)
    wages = _wages(codes["CITY"], codes["SEX"] == 0, rules, people)
    return table.set_column(table.column_names.index("INCWAGE"), "INCWAGE", pa.array(wages))


def _wages(city: np.ndarray, man: np.ndarray, rules: np.random.Generator, people: np.random.Generator) -> np.ndarray:
    """Yearly wages in dollars, most of them round numbers; 999998 for who has none."""
    cities = 1 << 16
    level, gap = rules.normal(6.3, 0.25, cities)[city], rules.normal(0.35, 0.2, cities)[city]
    wage = np.exp(level + gap * man + 0.7 * people.normal(size=len(city)))
    step = people.choice([100, 50, 20, 10, 1], len(city), p=[0.4, 0.2, 0.2, 0.15, 0.05])
    rounded = np.clip(np.round(wage / step) * step, 0, 5000).astype(np.int64)
    return np.where(people.random(len(city)) < 0.4, rounded, 999998)


def main(folder: str, share: str = "1") -> None:
    schema, home = Schema.load(_SCHEMA), Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(_SCHEMA, home / "census1940.schema.yaml")
    for state, (name, rows) in enumerate(_STATES.items(), 1):
        if (path := home / f"{name}.parquet").exists():
            sys.exit(f"{path} already exists")
        pq.write_table(census_like(schema, round(rows * float(share)), state), path)


if __name__ == "__main__":
    main(*sys.argv[1:])
