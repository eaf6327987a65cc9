"""Columns with an axis: counts by cumulative counts, whose mean and percentiles are right on average."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.domain import CodeGroups, Domain
from understudy.measurement import Measurement
from understudy.mechanism import make_mechanism
from understudy.mechanism.compress import compress
from understudy.model.consistency import norm_sub
from understudy.model.generate import generate, re_express_all
from understudy.model.ordered import _combine_margins, fit_ordered_counts, nearest_distribution, order_groups
from understudy.schema import Recoding, Schema
from understudy.source import MemorySource

TAIL = np.round(8000 * 0.6 * 0.4 ** np.arange(30))  # a number of contacts: a third of the codes are empty
DOMAIN, GROUPS = Domain({"contacts": 30, "sex": 2}), CodeGroups(axes={"contacts": 30})


def draws(sigma, count=400, truth=TAIL):
    rng = np.random.default_rng(5)
    for _ in range(count):
        noisy = truth + rng.normal(0, sigma, len(truth))
        yield noisy + (truth.sum() - noisy.sum()) / len(truth)


def bias_in_deviations(fit, sigma=20.0):
    """The bias of the column's mean, in standard deviations of one release."""
    codes, rows = np.arange(len(TAIL)), TAIL.sum()
    off = np.array([codes @ (fit(noisy, sigma, rows) - TAIL) / rows for noisy in draws(sigma)])
    return off.mean() / off.std()


def test_the_mean_of_a_long_tail_is_not_pushed_up():
    assert bias_in_deviations(lambda noisy, sigma, rows: norm_sub(noisy, rows)) > 2  # every code by itself
    assert abs(bias_in_deviations(nearest_distribution)) < 0.5


def test_bounds_that_are_too_wide_stay_empty():
    beyond = int(np.flatnonzero(TAIL).max()) + 1
    rows = TAIL.sum()
    found = [nearest_distribution(noisy, 20.0, rows)[beyond:].sum() / rows for noisy in draws(20.0)]
    old = [norm_sub(noisy, rows)[beyond:].sum() / rows for noisy in draws(20.0)]
    assert np.mean(found) < 0.001 < np.mean(old)


def test_the_95th_percentile_is_right_on_average():
    truth = np.round(400 * np.exp(-np.arange(100) / 12.0))
    rows, exact = truth.sum(), np.searchsorted(np.cumsum(truth) / truth.sum(), 0.95)
    made = [nearest_distribution(noisy, 15.0, rows) for noisy in draws(15.0, truth=truth)]
    found = np.array([np.searchsorted(np.cumsum(counts) / rows, 0.95) for counts in made])
    assert abs(found.mean() - exact) < 0.5 * found.std()


def test_counts_are_not_negative_and_add_up():
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 50):
        for total in (0.0, 1.0, 500.0):
            counts = nearest_distribution(rng.normal(total / size, 30, size), 30.0, total)
            assert counts.min() >= 0
            assert counts.sum() == pytest.approx(total)


def test_counts_far_above_the_noise_stay_as_they_are():
    counts = np.array([500.0, 200.0, 300.0, 1000.0])
    assert nearest_distribution(counts, 1.0, 2000.0) == pytest.approx(counts)


@pytest.mark.parametrize(("part", "kept"), [(0.98, False), (1.02, True)])
def test_an_end_is_empty_up_to_what_noise_explains(part, kept):
    # One of three codes: its noise is sigma, and it needs 1.1 sqrt(1 + log 3) times that.
    few = part * 11.0 * np.sqrt(1 + np.log(3))
    assert (nearest_distribution(np.array([few, 900.0, 100.0 - few]), 10.0, 1000.0)[0] > 0) == kept
    assert (nearest_distribution(np.array([100.0 - few, 900.0, few]), 10.0, 1000.0)[2] > 0) == kept


@pytest.mark.parametrize(("part", "kept"), [(0.98, False), (1.02, True)])
def test_the_noise_of_a_level_is_that_of_a_mean_of_sums(part, kept):
    # Three cumulative counts of one level: sums of noise over 1, 2 and 3 codes from above. Their mean has the variance
    # (1 + (2/3)^2 + (1/3)^2) sigma^2 = 14/9 sigma^2; three of four codes need 1.1 sqrt(1 + log(4/3)) times its root.
    few = part * 11.0 * np.sqrt(14 / 9 * (1 + np.log(4 / 3)))
    sums = 1000.0 - few + np.array([3.0, 0.0, -3.0])
    counts = np.diff(sums, prepend=0.0, append=1000.0)
    assert (nearest_distribution(counts, 10.0, 1000.0)[1:].sum() > 0) == kept


def test_codes_beside_the_axis_are_fitted_by_themselves():
    groups = CodeGroups(axes={"a": 3})
    missing = Measurement(("a",), np.array([40.0, 30.0, 10.0, 20.0, -5.0]), 0.1)
    found = fit_ordered_counts(Domain({"a": 5}), [missing], Recoding.identity(), groups, 100.0)["a"]
    assert found.sum() == pytest.approx(100.0)
    assert found[3] == pytest.approx(21.0)
    assert found[4] == 0.0


def test_columns_without_an_axis_are_left_alone():
    codes = Measurement(("sex",), np.array([3.0, -1.0]), 1.0)
    assert fit_ordered_counts(DOMAIN, [codes], Recoding.identity(), GROUPS) == {}
    assert re_express_all(DOMAIN, [codes], Recoding.identity(), GROUPS) == [codes]


def test_margins_of_larger_tables_count_by_their_precision():
    domain, groups = Domain({"a": 2, "b": 2}), CodeGroups(axes={"a": 2})
    own = Measurement(("a",), np.array([60.0, 40.0]), 1.0)
    pair = Measurement(("b", "a"), np.array([40.0, 20.0, 32.0, 8.0]), 1.0)  # margin 72, 28: twice the variance
    found = fit_ordered_counts(domain, [own, pair], Recoding.identity(), groups, 100.0)["a"]
    assert found == pytest.approx([64.0, 36.0])


def test_margins_of_merged_codes_are_divided_among_their_codes():
    domain, groups = Domain({"a": 3, "b": 2}), CodeGroups(axes={"a": 3})
    recoding = Recoding({"a": np.array([0, 1, 1])})
    own = Measurement(("a",), np.array([50.0, 30.0, 20.0]), 1.0)
    pair = Measurement(("a", "b"), np.array([20.0, 24.0, 30.0, 26.0]), 1e-3)  # margin 44, 56, all but exact
    found = fit_ordered_counts(domain, [own, pair], recoding, groups, 100.0)["a"]
    assert found == pytest.approx([44.0, 33.0, 23.0], abs=1e-3)


def test_variances_of_sums_are_those_of_the_averaged_counts():
    domain, recoding = Domain({"a": 6, "b": 2}), Recoding({"a": np.array([0, 1, 1, 1, 2, 2])})
    parts = []
    for cell in np.diag([2.0] * 6 + [3.0] * 6):  # one standard deviation of noise in one cell of either table
        tables = [Measurement(("a",), cell[:6], 2.0), Measurement(("a", "b"), cell[6:], 3.0)]
        combined = _combine_margins(domain, "a", tables[:1], tables, recoding)
        parts.append(combined.counts)
    noise = np.stack(parts)  # of every count, by its source
    for codes in (np.arange(6), np.arange(6)[::-1], np.array([2, 0, 5])):
        sums = np.cumsum(noise[:, codes], axis=1)
        assert combined.variances_of_sums(codes) == pytest.approx(np.r_[0.0, (sums**2).sum(axis=0)])


def test_two_independent_numbers_are_not_correlated():
    rng = np.random.default_rng(7)
    domain, groups = Domain({"a": 12, "b": 40}), CodeGroups(axes={"a": 12, "b": 40})
    one, other = 0.5 ** np.arange(12.0), np.exp(-np.arange(40.0) / 12)
    truth = 40_000 * np.outer(one / one.sum(), other / other.sum())
    ones = [Measurement(("a",), truth.sum(axis=1), 1.0), Measurement(("b",), truth.sum(axis=0), 1.0)]

    def correlation(table):
        table = table / table.sum()
        a, b = np.arange(12) - np.arange(12) @ table.sum(axis=1), np.arange(40) - np.arange(40) @ table.sum(axis=0)
        return a @ table @ b / np.sqrt((a**2 @ table.sum(axis=1)) * (b**2 @ table.sum(axis=0)))

    fitted, clipped = [], []
    for _ in range(30):
        cells = truth + rng.normal(0, 25, truth.shape)
        pair = Measurement(("a", "b"), cells.ravel(), 25.0)
        found = order_groups(domain, [*ones, pair], Recoding.identity(), groups)[2].values
        fitted.append(correlation(found.reshape(12, 40)))
        clipped.append(correlation(np.maximum(cells, 0.0)))
    assert np.mean(clipped) > 0.05
    assert abs(np.mean(fitted)) < 0.5 * np.std(fitted)


def test_an_end_with_a_twentieth_of_the_rows_is_kept_however_large_the_noise():
    counts = np.r_[np.full(10, 90.0), np.full(10, 10.0)]
    assert nearest_distribution(counts, 100.0, 1000.0)[10:].sum() == 0
    assert nearest_distribution(counts, 100.0, 1000.0, kept=0.05)[10:].sum() > 50
    counts = np.r_[np.full(10, 98.0), np.full(10, 2.0)]
    assert nearest_distribution(counts, 100.0, 1000.0, kept=0.05)[10:].sum() == 0


def test_the_95th_percentile_of_a_small_table_is_not_pushed_up():
    rng = np.random.default_rng(5)
    truth = np.where(np.arange(100) < 60, np.round(80 * np.exp(-np.arange(100) / 12.0)), 0.0)
    domain, groups, rows = Domain({"a": 100}), CodeGroups(axes={"a": 100}), truth.sum()
    found = []
    for _ in range(200):
        own = Measurement(("a",), truth + rng.normal(0, 20, 100), 20.0)
        counts = fit_ordered_counts(domain, [own], Recoding.identity(), groups, rows)["a"]
        found.append(np.searchsorted(np.cumsum(counts), 0.95 * rows - 1e-6))
    off = np.array(found) - np.searchsorted(np.cumsum(truth), 0.95 * rows)
    assert abs(off.mean()) < 0.25 * off.std()


def test_precise_sums_of_merged_codes_do_not_fill_the_empty_end_of_an_axis():
    rng = np.random.default_rng(5)
    domain, groups = Domain({"a": 150, "b": 4}), CodeGroups(axes={"a": 150})
    truth = np.where(np.arange(150) < 80, 300.0 + 800 * np.exp(-(((np.arange(150) - 30) / 15) ** 2)), 0.0)
    total = truth.sum()
    beyond, means = [], []
    for _ in range(40):
        own = Measurement(("a",), truth + rng.normal(0, 60, 150), 60.0)
        recoding = compress(domain, [own], groups)
        place = recoding.maps["a"]
        sums = np.outer(np.bincount(place, truth), np.full(4, 0.25)).ravel()
        pair = Measurement(("a", "b"), sums + rng.normal(0, 60, len(sums)), 60.0)
        found = fit_ordered_counts(domain, [own, pair], recoding, groups, total)["a"]
        beyond.append(found[80:].sum() / total)
        means.append(found @ np.arange(150) / total)
    assert np.mean(beyond) < 0.001
    assert np.sqrt(np.mean((np.array(means) - truth @ np.arange(150) / total) ** 2)) < 0.5


def test_the_mean_of_a_small_group_is_not_pulled_to_the_middle_of_the_axis():
    rng = np.random.default_rng(6)
    domain, groups = Domain({"a": 60, "b": 2}), CodeGroups(axes={"a": 60})
    place = np.arange(60)
    large = 20_000 * np.exp(-(((place - 30) / 8) ** 2) / 2) / (8 * np.sqrt(2 * np.pi))
    small = 600 * np.exp(-(((place - 50) / 3) ** 2) / 2) / (3 * np.sqrt(2 * np.pi))
    found = {"fitted": [], "cell by cell": []}
    for _ in range(30):
        cells = np.stack((large, small), axis=1) + rng.normal(0, 15, (60, 2))
        measured = [
            Measurement(("b",), np.array([large.sum(), small.sum()]) + rng.normal(0, 15, 2), 15.0),
            Measurement(("a", "b"), cells.ravel(), 15.0),
        ]
        fitted = order_groups(domain, measured, Recoding.identity(), groups)[1].values.reshape(60, 2)
        assert fitted.min() >= 0
        for name, table in (("fitted", fitted), ("cell by cell", np.maximum(cells, 0.0))):
            found[name].append(place @ table[:, 1] / table[:, 1].sum())
    truth = place @ small / small.sum()
    assert np.mean(found["cell by cell"]) < truth - 3
    assert abs(np.mean(found["fitted"]) - truth) < 0.5 * np.std(found["fitted"])


def test_codes_from_both_ends_have_no_place_on_the_axis():
    domain, groups = Domain({"a": 9, "b": 2}), CodeGroups(axes={"a": 8})
    recoding = Recoding({"a": np.array([4, 0, 1, 1, 2, 2, 3, 4, 5])})  # 4: both ends, 5: not on the axis
    cells = np.array([[9, 20, 30, 5, -3, 4], [9, 20, 30, 5, 3, 4]], dtype=float)
    found = order_groups(domain, [Measurement(("b", "a"), cells.ravel(), 1.0)], recoding, groups)[0].values
    assert found.reshape(2, 6)[1] == pytest.approx(cells[1])
    assert found.reshape(2, 6)[0].min() >= 0


@pytest.mark.parametrize("name", ["product", "tree", "pgm", "gum"])
def test_every_generator_follows_the_counts(name):
    rng = np.random.default_rng(2)
    pair = np.outer(TAIL, [0.5, 0.5]).ravel() + rng.normal(0, 20, 60)
    own = Measurement(("contacts",), TAIL + rng.normal(0, 20, 30), 20.0)
    measured = [own] if name == "product" else [own, Measurement(("contacts", "sex"), pair, 20.0)]
    model = generate(name, DOMAIN, measured, recoding=Recoding.identity(), groups=GROUPS, total=8000.0).model
    wanted = fit_ordered_counts(DOMAIN, measured, Recoding.identity(), GROUPS, 8000.0)["contacts"]
    found = model.project(("contacts",))
    assert np.abs(found - wanted).sum() < 0.004 * 8000
    assert found[15:].sum() < 0.002 * 8000


def skewed(rows=6000):
    rng = np.random.default_rng(3)
    sex = rng.integers(2, size=rows)
    contacts = np.minimum(rng.geometric(np.where(sex, 0.4, 0.5)), 40)
    return pd.DataFrame({"contacts": contacts, "sex": np.where(sex, "f", "m")})


SCHEMA = Schema.from_dict(
    {
        "fields": [
            {"name": "contacts", "type": "integer", "constraints": {"minimum": 1, "maximum": 30, "required": True}},
            {"name": "sex", "type": "string", "categories": ["f", "m"], "constraints": {"required": True}},
        ],
        "understudy": {"privacy_unit": "row"},
    }
)


@pytest.mark.parametrize("name", ["independent", "mst", "aim", "privsyn"])
def test_synthetic_rows_of_every_mechanism_have_the_mean_of_the_table(name):
    frame = skewed()
    means, beyond = [], []
    for _ in range(8):
        release = us.synthesize(frame, SCHEMA, epsilon=0.5, delta=1e-9, mechanism=name)
        rows = release.sample(6000, seed=0, as_="arrow")["contacts"].to_numpy()
        means.append(rows.mean())
        beyond.append((rows > frame["contacts"].max()).mean())
    means = np.array(means)
    error = np.sqrt(np.mean((means - frame["contacts"].mean()) ** 2))
    assert error < 0.15
    assert np.mean(beyond) < 0.002


def test_an_interrupted_run_is_finished_with_the_same_counts():
    table = us.PrivateTable(MemorySource(skewed(), SCHEMA), us.Budget.of(rho=0.01))
    mechanism = make_mechanism("mst")
    fit = mechanism.fit(table, rho=0.01)
    again = mechanism.finish(
        SCHEMA.domain, fit.measurements, recoding=fit.recoding, groups=SCHEMA.code_groups, total=None
    )
    assert again.model.project(("contacts",)) == pytest.approx(fit.model.project(("contacts",)))
