"""Columns in order keep their own values: dates are not early in the first column and late in the second."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import understudy as us
from understudy.bundle.codebook import describe_columns
from understudy.gate.randomness import insecure
from understudy.release import exchange as exchange_module
from understudy.release.exchange import exchange_values
from understudy.report.public import list_measured_marginals, list_weak_values
from understudy.schema import Schema

START = pd.Timestamp("2018-01-01")


def day(name, width):
    bounds = {"minimum": "2016-01-01", "maximum": "2025-12-31"}
    return {"name": name, "type": "date", "constraints": bounds, "understudy": {"bins": {"width": width}}}


def schema_of(width, rules=({"order": ["admitted", "discharged"]},)):
    fields = [day("admitted", width), day("discharged", width), {"name": "ward", "categories": list("ABC")}]
    return Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row", "rules": list(rules)}})


def stays(rows=12_000):
    """Ever more admissions a year, most of them in winter; stays of about nine days."""
    rng = np.random.default_rng(0)
    days = np.arange(7 * 365)
    rate = np.exp(2.6 * days / len(days)) * (1 + 0.4 * np.cos(2 * np.pi * days / 365.25))
    admitted = rng.choice(days, rows, p=rate / rate.sum())
    ward = rng.integers(0, 3, rows)
    left = admitted + np.minimum(rng.lognormal(1.4 + 0.3 * ward, 1.0), 180).astype(int)
    dates = {"admitted": START + pd.to_timedelta(admitted, "D"), "discharged": START + pd.to_timedelta(left, "D")}
    return pd.DataFrame(dates | {"ward": np.array(list("ABC"))[ward]})


def days_off(schema, frame, epsilon, mechanism="mst"):
    with insecure(1):
        release = us.synthesize(frame, schema, epsilon=epsilon, delta=1e-6, mechanism=mechanism)
    rows = release.sample(12_000, seed=1, as_="pandas")
    assert not (rows["admitted"] > rows["discharged"]).any()
    return [(rows[name].mean() - frame[name].mean()).total_seconds() / 86400 for name in ("admitted", "discharged")]


@pytest.mark.filterwarnings("ignore::understudy.errors.ManyRows")
@pytest.mark.parametrize(("epsilon", "mechanism"), [(1, "mst"), (0.5, "aim")])
def test_dates_in_order_are_not_pulled_apart_by_rare_bins_and_noise(epsilon, mechanism):
    off = days_off(schema_of("2 weeks"), stays(), epsilon, mechanism)
    assert np.abs(off).max() < 40  # drawn again until they are in order: 100 days and more


@pytest.mark.filterwarnings("ignore::understudy.errors.ManyRows")
def test_dates_in_order_are_not_pulled_apart_inside_a_bin():
    off = days_off(schema_of("1 year"), stays(), 20)
    assert np.abs(off).max() < 25  # bins of a year know no trend; drawn again until they are in order: 70 and 50 days


def exchange(left, right, groups=None, rules=({"order": ["admitted", "discharged"]},)):
    schema = schema_of("1 year", rules)
    dates = {"admitted": pa.array(left, pa.int32()), "discharged": pa.array(right, pa.int32())}
    table = pa.table({name: days.cast(pa.date32()) for name, days in dates.items()})
    codes = {
        name: schema.column(name).encode(table[name].combine_chunks(), schema.dialect)[name]
        for name in table.column_names
    }
    merged = {name: np.zeros(len(left), int) for name in codes} if groups is None else groups
    again, moved = exchange_values(schema, merged, codes, table, np.random.default_rng(0))
    for name in codes:
        assert sorted(again[name].tolist()) == sorted(codes[name].tolist())
        assert (
            again[name].tolist()
            == schema.column(name).encode(moved[name].combine_chunks(), schema.dialect)[name].tolist()
        )
    return [moved[name].cast(pa.int32()).to_pylist() for name in ("admitted", "discharged")]


@pytest.mark.parametrize("few", [2**16, 0])
def test_values_change_places_and_none_is_lost(few, monkeypatch):
    monkeypatch.setattr(exchange_module, "_FEW", few)
    rng = np.random.default_rng(1)
    left, right = rng.integers(17_000, 17_700, 500), rng.integers(17_100, 17_800, 500)
    assert (left > right).any()
    admitted, discharged = exchange(left, right)
    assert sorted(admitted) == sorted(left.tolist())
    assert sorted(discharged) == sorted(right.tolist())
    assert all(a <= b for a, b in zip(admitted, discharged, strict=True))


def test_values_stay_among_rows_of_one_code_and_empty_cells_where_they_are():
    left, right = [17_300, 17_200, 17_400, None], [17_250, 17_350, 17_100, 17_000]
    own = np.array([0, 0, 1, 1])
    admitted, discharged = exchange(left, right, {"admitted": own, "discharged": np.arange(4)})
    assert admitted == [17_200, 17_300, 17_400, None]
    assert discharged == right


def test_columns_of_other_rules_are_left_alone():
    rules = [{"order": ["admitted", "discharged"]}]
    rules += [{"impossible": {name: {"minimum": "2020-01-01"}, "ward": ["A"]}} for name in ("admitted", "discharged")]
    left, right = [17_300, 17_200], [17_250, 17_350]
    assert exchange(left, right, rules=rules) == [left, right]


@pytest.mark.filterwarnings("ignore::understudy.errors.ManyRows")
def test_neighbours_that_were_joined_are_not_called_rare():
    with insecure(1):
        release = us.synthesize(stays(), schema_of("2 months"), epsilon=1, delta=1e-6)
    assert len(release.recoding.merged_codes("admitted")) < 50
    assert release.merged["admitted"] == ["(missing)", "(other)"]
    weak = {w.column: w.values for w in list_weak_values(release, list_measured_marginals(release))}
    counts = {line.value: line.estimate for column in describe_columns(release)[:1] for line in column.lines}
    full = [estimate for estimate in counts.values() if estimate is not None and estimate > 100]
    assert len(full) > len(release.recoding.merged_codes("admitted")) / 2
    assert len(weak["admitted"]) < 60 - len(full)  # only those that are empty or nearly so
