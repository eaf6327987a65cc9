"""Neighbouring tables from the frame on: reading, coding and bounding included, one unit moves counts by k at most."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from understudy.schema import PrivacyUnit, Schema
from understudy.source import MemorySource

KEY = bytes(range(32))
BASE = Schema.from_dict(
    {
        "fields": [
            {"name": "sex", "type": "string", "categories": ["f", "m", "1"], "understudy": {"on_unknown": "other"}},
            {
                "name": "age",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 9},
                "understudy": {"bins": 5},
            },
            {
                "name": "pay",
                "type": "number",
                "constraints": {"minimum": 0, "maximum": 2},
                "understudy": {"bins": 4, "on_unknown": "drop_row"},
            },
        ],
        "understudy": {"privacy_unit": "row"},
    }
)
cells = st.sampled_from(["f", "m", "1", 1, 1.0, True, 0, 2.5, "x", "", None, float("nan"), "1.0", -3, 10**20, "2"])
people = st.sampled_from(["a", "b", "c", "1", "2"])
rows = st.lists(st.tuples(people, cells, cells, cells), max_size=10)


def as_pandas(table):
    """Types as pandas infers them: one row can turn a column of integers into objects or floats."""
    return pd.DataFrame({name: [row[i] for row in table] for i, name in enumerate(("who", "sex", "age", "pay"))})


def as_text(kind):
    def make(table):
        columns = ("who", "sex", "age", "pay")
        return kind(
            {name: [None if row[i] is None else str(row[i]) for row in table] for i, name in enumerate(columns)}
        )

    return make


KINDS = {"pandas": as_pandas, "polars text": as_text(pl.DataFrame), "arrow text": as_text(pa.table)}


def counts(make, table, schema):
    source = MemorySource(make(table), schema, key=KEY)
    cliques = [clique for k in range(4) for clique in combinations(source.domain, k)]
    return {clique: np.asarray(found) for clique, found in source.counts(cliques)}


@settings(max_examples=150)
@given(rows, people, st.sampled_from([1, 2, 3]), st.sampled_from(sorted(KINDS)), rows)
def test_a_unit_moves_every_marginal_by_k_at_most(table, who, k, kind, instead):
    schema = replace(BASE, privacy_unit=PrivacyUnit("who", k))
    others = [row for row in table if row[0] != who]
    replaced = others + [(who, *row[1:]) for row in instead]
    mine, gone, other = (counts(KINDS[kind], t, schema) for t in (table, others, replaced))
    for clique, found in mine.items():
        assert int((found - gone[clique]).sum()) >= 0
        assert int(np.abs(found - gone[clique]).sum()) <= k
        assert int(np.abs(found - other[clique]).sum()) <= 2 * k


@settings(max_examples=100)
@example([("a", "f", "f", True)], ("a", "f", "f", "f"), "pandas")
@given(rows, st.tuples(people, cells, cells, cells), st.sampled_from(sorted(KINDS)))
def test_a_row_moves_every_marginal_by_one_at_most(table, row, kind):
    before, after = counts(KINDS[kind], table, BASE), counts(KINDS[kind], [*table, row], BASE)
    for clique, found in after.items():
        change = found - before[clique]
        assert (change >= 0).all()
        assert int(change.sum()) <= 1
