"""Rare values: what the release says about them, and what stands for them in rows."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.release.rows import list_merged_values, undo_merging
from understudy.schema import Recoding, Schema

SCHEMA = Schema.from_dict(
    {
        "fields": [
            {
                "name": "city",
                "type": "string",
                "categories": ["Rome", "Pisa", "Lyon", "Metz", "Nice"],
                "constraints": {"required": True},
                "understudy": {
                    "levels": [{"name": "country", "groups": {"it": ["Rome", "Pisa"], "fr": ["Lyon", "Metz", "Nice"]}}]
                },
            },
            {
                "name": "age",
                "type": "integer",
                "constraints": {"required": True, "minimum": 0, "maximum": 39},
                "understudy": {"bins": {"width": 10}, "on_unknown": "drop_row"},
            },
        ],
        "understudy": {"privacy_unit": "row"},
    }
)
OTHER = 5


def undone(recoding, codes, measurements=(), rare=None, seed=0):
    return undo_merging(codes, recoding, SCHEMA, measurements, np.random.default_rng(seed), rare)


def counts(array, size):
    return np.bincount(array, minlength=size).tolist()


CITY = Recoding({"city": np.array([0, 1, 2, 2, 2, 2])})


def test_the_domain_is_as_the_tests_take_it():
    assert dict(SCHEMA.domain) == {"city": 6, "age": 4}
    assert SCHEMA.column("city").other_code == OTHER


def test_values_that_can_say_other_do_so_by_default_and_kept_codes_stay():
    out = undone(CITY, {"city": np.array([0, 1, 2, 2, 2]), "age": np.array([0, 1, 2, 3, 3])})
    assert out["city"].tolist() == [0, 1, OTHER, OTHER, OTHER]
    assert out["age"].tolist() == [0, 1, 2, 3, 3]


def test_numbers_are_spread_by_default():
    recoding = Recoding({"age": np.array([0, 1, 1, 1])})
    out = undone(recoding, {"city": np.zeros(300, int), "age": np.ones(300, int)})
    assert counts(out["age"], 4) == [0, 100, 100, 100]


def test_spread_follows_what_was_measured_as_far_as_noise_allows():
    codes = {"city": np.full(1000, 2), "age": np.zeros(1000, int)}
    clear = Measurement(("city",), np.array([900, 800, 60, 30, 10, 0]), 0.1)
    assert counts(undone(CITY, codes, [clear], "spread")["city"], 6) == [0, 0, 600, 300, 100, 0]
    drowned = Measurement(("city",), np.array([900, 800, 60, 30, 10, 0]), 100.0)
    assert counts(undone(CITY, codes, [drowned], "spread")["city"], 6) == [0, 0, 250, 250, 250, 250]
    between = counts(undone(CITY, codes, [Measurement(("city",), clear.values, 15.0)], "spread")["city"], 6)
    assert 250 < between[2] < 600
    assert between[2] > between[3] > between[4]


def test_without_a_table_of_the_declared_codes_shares_are_equal():
    codes = {"city": np.full(400, 2), "age": np.zeros(400, int)}
    merged = Measurement(("city",), np.array([9, 9, 9]), 1.0)
    assert counts(undone(CITY, codes, [merged], "spread")["city"], 6) == [0, 0, 100, 100, 100, 100]


def test_hierarchy_goes_by_groups_of_the_first_level():
    recoding = Recoding({"city": np.array([0, 1, 1, 1, 1, 2])})
    codes = {"city": np.ones(900, int), "age": np.zeros(900, int)}
    measured = Measurement(("city",), np.array([500, 30, 40, 10, 10, 0]), 0.01)
    assert counts(undone(recoding, codes, [measured], "hierarchy")["city"], 6) == [0, 300, 200, 200, 200, 0]


def test_one_rule_by_column():
    recoding = Recoding({"city": np.array([0, 1, 2, 2, 2, 2]), "age": np.array([0, 0, 1, 1])})
    codes = {"city": np.full(4, 2), "age": np.zeros(4, int)}
    out = undone(recoding, codes, rare={"city": "spread"})
    assert sorted(out["city"].tolist()) == [2, 3, 4, 5]
    assert sorted(out["age"].tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("rare", "words"),
    [
        ("nonsense", "unknown"),
        ({"nope": "spread"}, "no column"),
        ({"age": "other"}, "no code"),
        ({"age": "hierarchy"}, "levels"),
    ],
)
def test_rules_that_cannot_be_followed(rare, words):
    recoding = Recoding({"age": np.array([0, 1, 1, 1])})
    with pytest.raises(SettingError, match=words):
        undone(recoding, {"city": np.zeros(1, int), "age": np.zeros(1, int)}, rare=rare)


def test_counts_are_the_expected_ones_rounded_and_the_order_is_random():
    recoding = Recoding({"age": np.array([0, 0, 0, 1])})
    out = undone(recoding, {"city": np.zeros(100, int), "age": np.zeros(100, int)})["age"]
    assert sorted(counts(out, 4)[:3]) in ([33, 33, 34],)
    assert (np.diff(out.astype(int)) < 0).any()


def test_merged_values_are_listed_in_words():
    recoding = Recoding({"city": np.array([0, 1, 2, 2, 2, 2]), "age": np.array([0, 2, 1, 2])})
    assert list_merged_values(recoding, SCHEMA) == {
        "city": ["Lyon", "Metz", "Nice", "(other)"],
        "age": ["10 to 19", "30 to 39"],
    }


def test_intervals_of_an_axis_are_neither_listed_nor_called_other():
    field = {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 3}}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    recoding = Recoding({"age": np.array([0, 0, 1, 1, 2, 2])})  # two intervals; the empty and the unknown cell
    assert list_merged_values(recoding, schema) == {"age": ["(missing)", "(other)"]}
    codes = {"age": np.repeat([0, 1, 2], 10)}
    out = undo_merging(codes, recoding, schema, (), np.random.default_rng(0), "other")["age"]
    assert counts(out, 6) == [5, 5, 5, 5, 0, 10]


def test_years_are_no_thousands_and_empty_cells_are_missing():
    born = {"name": "born", "type": "integer", "constraints": {"minimum": 1900, "maximum": 2029}}
    paid = {"name": "paid", "type": "integer", "constraints": {"minimum": 0, "maximum": 29999}}
    fields = [field | {"understudy": {"bins": 3}} for field in (born, paid)]
    schema = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    recoding = Recoding({name: np.array([0, 1, 1, 1, 1]) for name in ("born", "paid")})
    assert list_merged_values(recoding, schema) == {
        "born": ["1943 to 1985", "1986 to 2029", "(missing)", "(other)"],
        "paid": ["10,000 to 19,999", "20,000 to 29,999", "(missing)", "(other)"],
    }
