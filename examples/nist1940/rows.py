"""Rows over the schema of the 1940 census: made up, because the census rows of the 2018 challenge are not published.

Usage: python examples/nist1940/rows.py ../census1940/schema.yaml 600000 1 people.parquet

Every column follows an earlier one (a fixed random tree) seven times in ten, else a distribution of its own in which
few values are common: about as dependent, and as sparse, as a census. The last argument but one is the "state": another
number gives other people who follow the same rules, as Colorado did for Arizona.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from understudy.schema import Schema

_RULES = 1940  # the seed of what all states share


def census_like(schema: Schema, rows: int, state: int) -> Any:
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
    return schema.decode(codes, people)


def main(path: str, rows: str, state: str, output: str) -> None:
    import pyarrow.parquet as pq

    if Path(output).exists():
        sys.exit(f"{output} already exists")
    pq.write_table(census_like(Schema.load(path), int(rows), int(state)), output)


if __name__ == "__main__":
    main(*sys.argv[1:])
