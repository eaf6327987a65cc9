from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import CodeGroups, Domain
from understudy.errors import InputError, SettingError
from understudy.measurement import Measurement
from understudy.mechanism.compress import compress
from understudy.model.generate import re_express, re_express_all
from understudy.schema import Recoding, Schema

DOMAIN = Domain({"a": 5, "b": 2, "c": 3})


def measured(column: str, *values: float, sigma: float = 10.0) -> Measurement:
    return Measurement((column,), np.array(values), sigma)


def test_codes_below_three_sigma_become_one_code_at_the_end() -> None:
    recoding = compress(DOMAIN, [measured("a", 29.9, 30.0, -4, 100, 0), measured("b", 50, 60)])
    assert recoding.merged_codes("a") == [[1], [3], [0, 2, 4]]
    assert recoding.columns == ("a",)
    assert recoding.recode(DOMAIN) == Domain({"a": 3, "b": 2, "c": 3})


def test_an_axis_is_halved_as_long_as_there_are_enough_rows() -> None:
    domain = Domain({"day": 8})
    groups = CodeGroups(
        axes={"day": 6}, order_columns=["day"]
    )  # six bins, then two codes that have no place among them
    days = measured("day", 90, 80, 4, 3, 70, 0, 2, 50)
    assert compress(domain, [days], groups).merged_codes("day") == [[0], [1], [2, 3], [4], [5], [7], [6]]
    assert compress(domain, [days], groups, once=True).merged_codes("day") == [[0], [1], [2, 3], [4, 5], [7], [6]]
    assert compress(domain, [measured("day", *[900.0] * 8)], groups, once=True) == Recoding.identity()
    assert compress(domain, [measured("day", *[-1.0] * 8)], groups).merged_codes("day") == [[0, 1, 2, 3, 4, 5], [6, 7]]
    assert compress(Domain({"day": 8}), [days]).merged_codes("day") == [[0], [1], [4], [7], [2, 3, 5, 6]]


def test_codes_of_an_axis_become_intervals_that_are_narrow_where_many_rows_are() -> None:
    domain, groups = Domain({"day": 9}), CodeGroups(axes={"day": 8})
    even = measured("day", *[150.0] * 8, 50.0)  # all 8 places: intervals with 8 x 10 sigma x 10 places are halved
    merged = compress(domain, [even], groups)
    assert merged.merged_codes("day") == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    assert merged.intervals("day", 8) == 8
    assert Recoding.identity().intervals("day", 8) == 0
    spike = measured("day", 120, 120, 120, 900, 120, 120, 120, 120, 50)
    assert compress(domain, [spike], groups).merged_codes("day") == [[0, 1], [2], [3], [4, 5], [6, 7], [8]]
    few = measured("day", 900, 900, 900, 900, 20, 22, 18, 20, 50)  # fewer than nine standard deviations together
    assert compress(domain, [few], groups).merged_codes("day") == [[0], [1], [2], [3], [4, 5, 6, 7], [8]]
    assert compress(domain, [measured("day", *[150.0] * 8, 50.0, sigma=1.0)], groups) == Recoding.identity()


def test_a_distant_value_does_not_widen_the_intervals() -> None:
    counts = np.zeros(128)
    counts[:16] = 300.0
    far = counts.copy()
    far[127] = 50.0
    near, distant = (
        compress(Domain({"day": size}), [measured("day", *values)], CodeGroups(axes={"day": size})).maps["day"][:16]
        for size, values in ((16, counts[:16]), (128, far))
    )
    assert near.tolist() == distant.tolist()


def test_a_column_that_was_measured_roughly_is_merged_by_the_counts_of_one_like_it() -> None:
    domain, groups = Domain({"before": 9, "day": 9}), CodeGroups(axes={"day": 8})
    day = measured("day", 900, 900, 300, 300, 50, 50, 30, 30, 100)
    before = measured("before", -60, 60, 700, 1300, 160, 300, -50, 90, 20, sigma=50.0)  # and it has no axis of its own
    alone = compress(domain, [before, day], groups, threshold=2.0)
    assert alone.merged_codes("before") == [[2], [3], [4], [5], [0, 1, 6, 7, 8]]
    alike = compress(domain, [before, day], groups, threshold=2.0, alike={"before": "day"})
    assert alike.merged_codes("before") == [[0], [1], [2], [3], [4, 5, 6, 7], [8]]  # 300 rows are 3 x 2 x 50
    assert alike.merged_codes("day") == alone.merged_codes("day")
    other = compress(domain, [before, day], groups, threshold=2.0, alike={"before": "elsewhere"})
    assert other.maps["before"].tolist() == alone.maps["before"].tolist()


def test_the_noise_of_larger_tables_can_tell_how_many_rows_a_code_needs() -> None:
    domain, groups = Domain({"day": 9}), CodeGroups(axes={"day": 8})
    day = [measured("day", 900, 900, 300, 300, 50, 50, 30, 30, 100, sigma=2.0)]
    assert compress(domain, day, groups, threshold=2.0) == Recoding.identity()
    merged = compress(domain, day, groups, threshold=2.0, noise={"day": 50.0})
    assert merged.merged_codes("day") == [[0], [1], [2], [3], [4, 5, 6, 7], [8]]
    assert compress(domain, day, groups, threshold=2.0, noise={"day": 1.0}) == Recoding.identity()
    tied = CodeGroups(axes={"day": 8}, order_columns=["day"])
    assert compress(domain, day, tied, threshold=2.0, noise={"day": 50.0}) == Recoding.identity()


def test_published_compression_knows_no_axis() -> None:
    domain, groups = Domain({"day": 9}), CodeGroups(axes={"day": 8})
    days = measured("day", 100, 100, 20, 25, 1, 2, 0, 1, 3)
    assert compress(domain, [days], groups, as_printed=True) == compress(domain, [days])
    assert compress(domain, [days]).merged_codes("day") == [[0], [1], [2, 3, 4, 5, 6, 7, 8]]


def test_codes_have_no_axis_unless_an_order_rule_says_so() -> None:
    codes = Schema.from_domain({"a": 5, "b": 40})
    assert [codes.code_groups.axis(column) for column in "ab"] == [0, 0]
    tied = Schema.from_dict(
        codes.to_dict() | {"understudy": {"privacy_unit": "row", "rules": [{"order": ["a", "b"]}]}}
    ).code_groups
    assert [tied.axis(column) for column in "ab"] == [5, 40]


def test_the_threshold_counts_standard_deviations() -> None:
    table = measured("c", 15, 25, 300)
    assert compress(DOMAIN, [table], threshold=2.0).columns == ()  # one rare code stays where it is
    assert compress(DOMAIN, [table]).merged_codes("c") == [[2], [0, 1]]
    assert compress(DOMAIN, [table], threshold=0.0).columns == ()
    with pytest.raises(SettingError, match="threshold"):
        compress(DOMAIN, [table], threshold=float("nan"))


def test_a_column_without_a_kept_value_becomes_a_single_code() -> None:
    recoding = compress(DOMAIN, [measured("a", 1, 2, 3, -4, 0)])
    assert recoding.recode(DOMAIN)["a"] == 1
    again = re_express(DOMAIN, measured("a", 1, 2, 3, -4, 0), recoding)
    again.check(recoding.recode(DOMAIN))
    assert again.values == pytest.approx([2 / np.sqrt(5)])


def test_repeated_measurements_are_averaged_by_precision() -> None:
    loose, tight = measured("c", 900, 900, 900, sigma=100.0), measured("c", 0, 0, 900, sigma=1.0)
    assert compress(DOMAIN, [tight, loose]).merged_codes("c") == [[2], [0, 1]]
    assert compress(DOMAIN, [loose]).columns == ()


def test_pairs_and_queries_do_not_decide() -> None:
    pair = Measurement(("a", "b"), np.zeros(10), 10.0)
    assert compress(DOMAIN, [pair]) == Recoding.identity()


def test_re_expressed_noise_has_one_sigma() -> None:
    recoding = Recoding({"a": np.array([0, 2, 1, 2, 2])})
    rng = np.random.default_rng(1)
    truth = np.array([40.0, 3, 50, 1, 2])
    noisy = truth + rng.normal(0, 10.0, (2_000, 5))
    again = [re_express(DOMAIN, Measurement(("a",), row, 10.0), recoding) for row in noisy]
    values = np.stack([measurement.values for measurement in again])
    assert again[0].query is not None
    # 2,000 draws: the standard error of the sd is 0.016 and of the mean 0.22; both limits are beyond six of them
    assert np.allclose(values.std(axis=0) / 10.0, 1.0, atol=0.1)
    assert np.allclose(values.mean(axis=0), again[0].query @ np.array([40.0, 50, 6]), atol=1.4)
    assert np.array_equal(values[:, 0], noisy[:, 0])
    assert np.array_equal(values[:, 1], noisy[:, 2])


def test_a_pair_is_re_expressed_along_both_axes() -> None:
    recoding = Recoding({"a": np.array([0, 1, 1, 1, 1]), "c": np.array([0, 0, 0])})
    table = np.arange(30.0).reshape(5, 2, 3)
    again = re_express(DOMAIN, Measurement(("a", "b", "c"), table, 1.0), recoding)
    again.check(recoding.recode(DOMAIN))
    sums = np.stack([table[:1].sum(axis=(0, 2)), table[1:].sum(axis=(0, 2))])
    weights = 1 / np.sqrt(np.array([[3, 3], [12, 12]]))
    assert np.allclose(again.values, (sums * weights).reshape(-1))
    assert again.query is not None
    assert np.allclose(again.query @ sums.reshape(-1), again.values)


def test_untouched_columns_and_later_measurements_stay_as_they_are() -> None:
    recoding = Recoding({"a": np.array([0, 1, 1, 1, 1])})
    before, other, after = measured("a", 9, 1, 1, 1, 1), measured("b", 7, 6), Measurement(("a", "b"), np.ones(4), 2.0)
    settled = re_express_all(DOMAIN, [before, other, after], recoding)
    assert settled[1] is other
    assert settled[2] is after
    assert settled[0].values == pytest.approx([9, 2])
    assert re_express_all(DOMAIN, settled, recoding)[0] is settled[0]


def test_what_does_not_fit_is_refused() -> None:
    recoding = Recoding({"a": np.array([0, 1, 1, 1, 1])})
    twice = re_express(DOMAIN, measured("a", 9, 1, 1, 1, 1), recoding)
    with pytest.raises(InputError, match="query"):
        re_express(DOMAIN, twice, recoding)
    with pytest.raises(InputError, match="'a'"):
        re_express_all(DOMAIN, [measured("a", 1, 2, 3)], recoding)
