"""What both tables look like under each other, before a classifier sees them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.errors import SettingError
from understudy.metric.propensity import Settings, score_held_out, stack_tables
from understudy.metric.registry import METRICS, measure, read_settings
from understudy.metric.tables import Rows

CODES = np.concatenate([np.repeat(np.arange(5), 40), np.arange(5, 60)])
SCHEMA = us.Schema.from_domain({"icd": 60, "sex": 2})


def tables():
    real = pd.DataFrame({"icd": CODES, "sex": CODES % 2})
    return Rows.of(real, SCHEMA), Rows.of(real[::-1], SCHEMA)


def data(**settings):
    return stack_tables(*tables(), Settings(numbers="codes", **settings), np.random.default_rng(0))


def test_of_many_values_the_commonest_have_a_term_and_the_others_one():
    few = data(terms=5)
    assert few.terms.shape == (2 * len(CODES), 5 + 1 + 2)
    assert few.terms[:, :6].sum(0).tolist() == [80, 80, 80, 80, 80, 110]
    assert (few.terms[:, :6].sum(1) == 1).all()
    assert few.notes == ("In a regression 5 values of 'icd' have a term, and the others one.",)
    assert few.features.shape[1] == 2


def test_of_few_values_each_has_one():
    assert data().terms.shape[1] == 60 + 2
    assert data().notes == ()
    with pytest.raises(SettingError, match=r"pmse\.terms: give a whole number of at least 1"):
        read_settings(METRICS["pmse"], {"terms": 0})


def test_folds_and_split_say_how_many_rows_are_scored():
    """Of 255 + 255 rows, five folds of 102 leave out 31 each; two folds of 255 or 256 leave out half."""
    both = data()
    assert len(both.synthetic) == 510
    for folds, split, held_out in ((5, 0.7, 5 * (102 - 71)), (2, 0.5, 128 + 127)):
        found = score_held_out("logistic", both, 0.0, np.random.default_rng(0), folds=folds, split=split)
        assert len(found.chance) == held_out
    given = {"specks": {"models": ["cart"], "folds": 3, "split": 0.5, "complexity": 0.02}}
    (score,) = measure(*tables(), SCHEMA, ["specks"], given)
    assert score.part("setting", "complexity") == 0.02
    with pytest.raises(SettingError, match=r"specks\.folds"):
        read_settings(METRICS["specks"], {"folds": 1})
