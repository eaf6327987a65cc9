"""Checks: counts of what does not fit, and what the binning alone loses."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from understudy.cli.schema import format_fit
from understudy.schema import Schema
from understudy.schema.check import check

SCHEMA = Schema.from_dict(
    {
        "fields": [
            {"name": "pid", "understudy": {"kind": "id"}},
            {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99},
             "understudy": {"bins": 2, "missing": {"-9": "refused", "?": None}}},
            {"name": "word", "type": "string", "categories": ["a", "other"], "understudy": {"status": "draft"}},
            {"name": "code", "type": "integer", "categories": [1, 2], "constraints": {"required": True},
             "understudy": {"on_unknown": "drop_row"}},
        ],
        "understudy": {
            "privacy_unit": {"column": "pid", "max_rows": 1},
            "rules": [{"impossible": {"word": ["a"], "code": [2]}}],
        },
    }
)  # fmt: skip
FRAME = pd.DataFrame(
    {
        "pid": ["p", "p", "p", "q", "r", None],
        "age": ["10", "120", "-9", "?", "abc", "60"],
        "word": ["a", "zzz", "other", "", "a", "a"],
        "code": ["1", "2", "2", "3", "2", "1"],
    }
)


@pytest.fixture(scope="module")
def fit():
    return check(SCHEMA, FRAME)


def test_counts_of_what_does_not_fit(fit):
    age, word, code = fit.columns
    assert (age.unknown, age.clipped, age.null, age.missing) == (1, 1, 1, {"refused": 1})
    assert (word.unknown, word.null) == (1, 1)
    assert code.unknown == 1
    assert (fit.rows, fit.dropped) == (6, 1)
    assert fit.drafts == ("word",)


def test_units_and_rules(fit):
    assert fit.units == (2, 2)
    assert list(fit.broken.values()) == [1]


def test_numbers_that_a_frame_holds_as_categories_are_numbers_whatever_marks_the_file_has():
    dose = {"name": "dose", "type": "number", "constraints": {"minimum": 0, "maximum": 9}}
    ours = {"privacy_unit": "row", "dialect": {"delimiter": ";", "decimal": ",", "group": "."}}
    frame = pd.DataFrame({"dose": pd.Categorical([1.5, 2.5, 2.5])})
    (found,) = check(Schema.from_dict({"fields": [dose], "understudy": ours}), frame).columns
    assert found.clipped == 0
    assert [loss.before for loss in found.losses if loss.statistic == "median"] == [2.5]


def test_the_loss_of_the_bins_is_measured():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"pid": "p", "age": rng.integers(0, 50, 4000), "word": "a", "code": 1})
    losses = {loss.statistic: loss for loss in check(SCHEMA, frame).columns[0].losses}
    assert losses["mean"].before == pytest.approx(frame.age.mean())
    assert losses["mean"].relative < 0.03
    frame["age"] = 3
    losses = {loss.statistic: loss for loss in check(SCHEMA, frame).columns[0].losses}
    assert losses["mean"].relative > 5


def test_an_unknown_that_becomes_null_is_distinguished_from_an_empty_cell():
    field = {"name": "w", "type": "string", "categories": ["a"], "understudy": {"on_unknown": "null"}}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    column = check(schema, pd.DataFrame({"w": ["a", "z", None]})).columns[0]
    assert (column.unknown, column.null) == (1, 1)


def test_the_result_is_marked_and_plain(fit):
    content = json.loads(json.dumps(fit.to_dict()))
    assert content["custodian_only"].startswith("CUSTODIAN ONLY")
    assert content["columns"][0]["losses"][0]["relative"] >= 0


@pytest.mark.parametrize("kind", ["date", "datetime"])
def test_what_bins_do_to_dates_is_measured_by_their_bounds_and_shown_as_dates(kind):
    """Not by 1970, which would hide half a year of two: 1 percent of all the days since."""
    end = {"date": "", "datetime": "T00:00:00"}[kind]
    field = {"name": "d", "type": kind, "constraints": {"minimum": f"2022-01-01{end}", "maximum": f"2023-12-31{end}"}}
    schema = Schema.from_dict({"fields": [field | {"understudy": {"bins": 1}}], "understudy": {"privacy_unit": "row"}})
    fit = check(schema, pd.DataFrame({"d": [f"2022-01-0{day}{end}" for day in range(1, 10)] * 50}))
    mean = fit.columns[0].losses[0]
    assert mean.relative > 0.3
    told = format_fit(fit)
    assert "d: binning alone changes the mean from 2022-01-05 to 202" in told
    assert re.search(r"the standard deviation from 2\.58199 days to [12]\d\d\.?\d* days", told)
