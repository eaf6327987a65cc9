"""The search for bounds and bins, with noise that is simulated."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from understudy.discovery.search import MOST_BINS, Search, join_cells
from understudy.measurement import Measurement
from understudy.schema import Dialect
from understudy.schema.file import fill_field, parse_field

BOTH = {"bounds": "discover", "bins": "discover"}
ROWS = 20_000


def found(field, cells, sigma, *, most=1000, seed=1, noise="gaussian"):
    """The completed column, and how many rounds were paid."""
    opened = parse_field({"name": "x", **field}, 0)
    search, rng, rounds = Search(opened), np.random.default_rng(seed), 0
    while rounds < search.rounds:
        probe = search.probe()
        counts = np.bincount(probe.encode(cells, Dialect())["x"], minlength=probe.size)
        noisy = counts + np.rint(rng.normal(0, sigma, probe.size))
        rounds += 1
        if not search.learn(probe, Measurement(("x",), noisy, sigma, noise=noise)):
            break
    return parse_field(fill_field(opened.field, **search.result(most)), 0), rounds


def whole(**ours):
    return {"type": "integer", "understudy": ours or dict(BOTH)}


def shares(column, cells):
    """The part of the rows in each ordinary code."""
    codes = column.encode(cells, Dialect())["x"]
    return np.bincount(codes[codes < column.ordinary], minlength=column.ordinary) / len(cells)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_short_range_keeps_every_value(noise):
    cells = pa.array(np.random.default_rng(0).integers(17, 91, ROWS))
    column, rounds = found(whole(), cells, 30.0, noise=noise)
    assert column.bins is None
    assert 14 <= column.minimum <= 17
    assert 90 <= column.maximum <= 95
    assert rounds == 2


@pytest.mark.parametrize("low", [-5000, 0, 10**6])
def test_bounds_alone(low):
    cells = pa.array(np.random.default_rng(0).integers(low, low + 4000, ROWS))
    column, rounds = found(whole(bounds="discover"), cells, 20.0)
    assert rounds == 2
    span = max(abs(low), 4000)
    assert low - span <= column.minimum <= low + 400
    assert low + 3600 <= column.maximum <= low + 4000 + span


def test_a_heavy_value_has_a_bin_of_its_own_and_others_have_few_rows_each():
    rng = np.random.default_rng(0)
    amounts = np.where(rng.random(ROWS) < 0.5, 0, np.where(rng.random(ROWS) < 0.2, 5000, rng.integers(1, 9000, ROWS)))
    column, _ = found(whole(), pa.array(amounts), 15.0)
    heavy = [column.axis.lower[code] for code in np.flatnonzero(shares(column, pa.array(amounts)) > 0.05)]
    assert heavy[0] == 0
    assert len(heavy) == 2
    assert 4990 <= heavy[1] <= 5000
    assert 20 <= column.ordinary <= MOST_BINS + 1


def test_bins_hold_about_as_many_rows_each_where_the_density_is_smooth():
    amounts = np.exp(np.random.default_rng(0).normal(8, 1, ROWS))
    column, _ = found({"type": "number", "understudy": BOTH}, pa.array(amounts), 20.0)
    assert shares(column, pa.array(amounts)).max() < 0.05
    assert 0 <= column.minimum < np.quantile(amounts, 0.02)
    assert column.maximum > np.quantile(amounts, 0.99)


def test_more_noise_means_fewer_bins():
    amounts = pa.array(np.exp(np.random.default_rng(0).normal(8, 1, ROWS)).astype(int))
    few, many = found(whole(), amounts, 400.0)[0], found(whole(), amounts, 5.0)[0]
    assert few.ordinary < 20 < 90 < many.ordinary


def test_declared_bounds_stay_as_they_are():
    field = {"type": "integer", "constraints": {"minimum": -7, "maximum": 100_000}, "understudy": {"bins": "discover"}}
    cells = pa.array(np.random.default_rng(0).integers(300, 400, ROWS))
    column, _ = found(field, cells, 20.0)
    assert (column.minimum, column.maximum) == (-7, 100_000)
    assert shares(column, cells).max() < 0.1


@pytest.mark.parametrize("most", [1, 5, 32])
def test_no_more_codes_than_memory_has_room_for(most):
    amounts = pa.array(np.random.default_rng(0).integers(0, 90, ROWS))
    for field in (whole(), whole(bounds="discover")):
        assert found(field, amounts, 5.0, most=most)[0].ordinary <= most + 1


@pytest.mark.parametrize("kind", ["date", "datetime"])
def test_dates(kind):
    days = np.datetime64("2015-01-01") + np.random.default_rng(0).integers(0, 1500, ROWS)
    cells = pa.array(days.astype("datetime64[us]") if kind == "datetime" else days)
    column, _ = found({"type": kind, "understudy": BOTH}, cells, 20.0)
    assert "2009" < str(column.minimum) < "2015-02"
    assert "2019-01" < str(column.maximum) < "2021"
    assert shares(column, cells).max() < 0.1


def test_zero_among_real_numbers_is_a_value_of_its_own():
    rng = np.random.default_rng(0)
    cells = pa.array(np.where(rng.random(ROWS) < 0.6, 0.0, rng.exponential(3.0, ROWS)))
    column, _ = found({"type": "number", "understudy": BOTH}, cells, 20.0)
    assert column.spikes == (0.0,)
    everything_zero, _ = found({"type": "number", "understudy": BOTH}, pa.array(np.zeros(ROWS)), 20.0)
    assert everything_zero.spikes == (0.0,)
    assert abs(everything_zero.minimum) < 1e-3


TYPES = [
    whole(),
    whole(bounds="discover"),
    {"type": "integer", "understudy": BOTH | {"missing": {"-9": "a", "0": "b", "1": None}, "spikes": [40]}},
    {"type": "number", "understudy": BOTH | {"missing": {"-9": None}}},
    {"type": "number", "understudy": BOTH | {"decimals": 2}},
    {"type": "number", "understudy": BOTH | {"decimals": 9}},
    {"type": "date", "understudy": BOTH},
    {"type": "datetime", "understudy": BOTH | {"resolution": "day"}},
    {"type": "duration", "understudy": BOTH | {"resolution": "hour"}},
    {"type": "duration", "understudy": BOTH},
    {"type": "integer", "constraints": {"minimum": 3, "maximum": 3}, "understudy": {"bins": "discover"}},
    {"type": "integer", "constraints": {"minimum": 0, "maximum": 1},
     "understudy": {"bins": "discover", "spikes": [0, 1]}},
]  # fmt: skip


@pytest.mark.parametrize("field", TYPES, ids=lambda field: f"{field['type']}-{sorted(field['understudy'])}")
@pytest.mark.parametrize("seed", range(12))
def test_pure_noise_and_wild_cells_give_a_column_that_can_be_used(field, seed):
    cells = pa.array(["x", "1e308", "-1e308", "inf", "nan", "-9", "0", None, "", "9999-12-31", "0001-01-01", "1e-300"])
    column, _ = found(field, cells, 10.0 ** (seed % 4), seed=seed)
    codes = column.encode(cells, Dialect())["x"]
    assert ((codes >= 0) & (codes < column.size)).all()
    assert column.ordinary >= 1
    decoded = column.decode({"x": np.arange(column.size)}, np.random.default_rng(0))
    assert len(decoded) == column.size


def test_joining_keeps_apart_what_noise_does_not_explain():
    means, widths = np.array([100.0, 101, 99, 900, 100, 98]), np.ones(6)
    assert join_cells(means, np.full(6, 25.0), widths, heaviest=1e9, most=100) == [0, 3, 4]
    assert join_cells(means, np.full(6, 25.0), widths, heaviest=1e9, most=2) in ([0, 3], [0, 4])
    assert join_cells(means, np.full(6, 25.0), widths, heaviest=250, most=100) in ([0, 2, 3, 4], [0, 1, 3, 4])


def test_joining_goes_by_density_not_by_count():
    assert join_cells(np.array([100.0, 1000]), np.full(2, 4.0), np.array([1.0, 10]), heaviest=1e9, most=9) == [0]
