"""Discovery is total, and a unit moves what is counted for it by no more than its rows."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime

import pandas as pd
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.accounting import Budget
from understudy.discovery.discover import Discovery, EmptySource
from understudy.gate import PrivateTable
from understudy.schema import Schema
from understudy.schema.open import Words
from understudy.source import MemorySource
from understudy.source.open import make_opener

TEXT = st.one_of(
    st.sampled_from(["", " ", "?", "7", "-3.5", "1e308", "-1e400", "inf", "nan", "2024-02-30", "2024-01-31", "0x1",
                     "NULL", "0001-01-01", "9999-12-31T23:59:59", "007", "P1D", "1,5"]),
    st.text(max_size=12),
    st.integers().map(str),
    st.floats().map(repr),
)  # fmt: skip
CELL = st.one_of(
    st.none(), TEXT, st.integers(), st.floats(), st.booleans(), st.binary(max_size=4), st.dates(), st.datetimes()
)
FIELDS = [
    {"type": "discover"},
    {"type": "string", "understudy": {"values": "discover", "missing": {"?": None}}},
    {"type": "integer", "understudy": {"values": "discover"}},
    *(
        {"type": kind, "understudy": {"bounds": "discover", "bins": "discover"}}
        for kind in ("integer", "number", "date", "datetime", "duration")
    ),
]
BUDGETS = [Budget.of(rho=rho, delta=1e-3, discovery_delta=9e-4) for rho in (1e-6, 1.0, 1e4)]


def schema(*fields, unit="row"):
    named = [{"name": f"c{i}", **field} for i, field in enumerate(fields)]
    return Schema.from_dict({"fields": named, "understudy": {"privacy_unit": unit}})


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.lists(CELL, max_size=12), st.sampled_from(BUDGETS), st.integers(1, 3))
def test_no_cell_makes_discovery_fail(cells, budget, repeat):
    declared = schema(*FIELDS)
    frame = pd.DataFrame({column.name: pd.Series(cells * repeat, dtype=object) for column in declared.columns})
    table = PrivateTable(EmptySource(declared), budget)
    complete = Discovery(table, make_opener(frame, declared), declared, budget.capacity / 2).discover(lambda _: True)
    assert not complete.open
    codes = complete.encode(frame).codes
    assert all(int(codes[name].max(initial=0)) < size for name, size in complete.domain.items())
    assert Schema.from_dict(complete.to_dict()) == complete
    assert table.account.spent <= budget.capacity / 2


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.one_of(st.none(), st.dates(date(1, 1, 1), date(9999, 12, 31))), max_size=8),
    st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), max_size=8),
)
def test_typed_times_at_the_ends_of_time(days, moments):
    cells = {"date": pa.array(days, pa.date32()), "datetime": pa.array(moments, pa.timestamp("us"))}
    for kind, column in cells.items():
        declared = schema({"type": kind, "understudy": {"bounds": "discover", "bins": "discover"}})
        table = PrivateTable(EmptySource(declared), BUDGETS[1])
        frame = pa.table({"c0": column})
        complete = Discovery(table, make_opener(frame, declared), declared, BUDGETS[1].capacity).discover(
            lambda _: True
        )
        assert len(complete.encode(frame).keep) == len(column)


ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", " b", "c", "", "?", None, "d"])), max_size=25)


def count_values(rows, max_rows):
    unit = {"column": "who", "max_rows": max_rows}
    content = Schema.from_dict({"fields": [{"name": "w", "type": "discover"}], "understudy": {"privacy_unit": unit}})
    coding = Schema((Words(name="w", tokens=("?",)),), privacy_unit=content.privacy_unit)
    frame = pa.table(
        {"who": pa.array([who for who, _ in rows], pa.int64()), "w": pa.array([w for _, w in rows], pa.string())}
    )
    return Counter(MemorySource(frame, coding, key=b"k" * 32).values("w"))


@settings(deadline=None, max_examples=60)
@given(ROWS, st.integers(1, 4), st.randoms())
def test_a_unit_moves_values_by_at_most_its_rows_and_nobody_elses(rows, max_rows, random):
    whole = count_values(rows, max_rows)
    for who in range(4):
        without = count_values([row for row in rows if row[0] != who], max_rows)
        assert all(whole[text] >= without[text] for text in without)  # no other unit's rows were lost or won
        own = whole - without
        assert sum(own.values()) <= max_rows
        assert sum(own.values()) <= sum(row[0] == who for row in rows)
    shuffled = random.sample(rows, len(rows))
    assert count_values(shuffled, max_rows) == whole


@settings(deadline=None, max_examples=50)
@given(ROWS)
def test_without_a_cut_every_row_counts(rows):
    expected = Counter(w.strip() for _, w in rows if w is not None and w.strip() not in ("", "?"))
    assert count_values(rows, 100) == expected
