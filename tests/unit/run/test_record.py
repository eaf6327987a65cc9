"""A second attempt at a run: it is given what is on record, and stops where it would ask anything else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from understudy.accounting.charge import exponential, gaussian
from understudy.measurement import Measurement
from understudy.quality import Apart
from understudy.release import Partial
from understudy.schema import Recoding, Schema
from understudy.synthesis.earlier import Diverged, Earlier, decoded, encoded

FIRST, SECOND = (gaussian("measure", ((column,),), 1, share=Fraction(1, 3)) for column in "ab")
BOUGHT = gaussian("bounds", (("a",),), 1, share=Fraction(1, 9))
CHOICE = exponential([("a", "b"), ("a", "c")], Fraction(1), share=Fraction(1, 9), pure=False)
ANSWER = Measurement(("a",), np.array([3, 4]), 2.0)


def earlier(*records, schema=None, closed=False):
    declared = Schema.from_domain({"a": 2, "b": 3}).to_dict()
    kept = schema or declared
    return Earlier(Partial({"schema": declared}, (), (), Recoding.identity(), kept, records), closed=closed)


def test_charges_and_answers_come_back_in_order_until_the_record_ends():
    before = earlier(FIRST, SECOND, ANSWER, CHOICE, encoded(("a", "b")))
    assert before.charged([FIRST, SECOND]) == []
    assert before.answered(Measurement(("a",), np.array([9, 9]), 2.0)) is ANSWER
    assert before.charged([CHOICE]) == []
    assert before.answered(("a", "c")) == ("a", "b")
    assert before.charged([FIRST]) == [FIRST]
    assert before.answered(ANSWER) is None


def test_charges_of_one_call_may_have_been_cut_short_together():
    assert earlier(FIRST).charged([FIRST, SECOND]) == [SECOND]


def test_a_charge_without_its_answer_is_answered_now():
    before = earlier(FIRST, SECOND)
    assert before.charged([FIRST]) == []
    assert before.answered(ANSWER) is None


def test_another_charge_is_not_taken_for_the_one_on_record():
    with pytest.raises(Diverged, match="other questions"):
        earlier(FIRST).charged([SECOND])


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (ANSWER, Measurement(("b",), np.array([1, 2, 3]), 2.0)),
        (ANSWER, ("a", "b")),
        (encoded(("a", "b")), ANSWER),
        (encoded({("a", "b"): 4}), {("a", "c"): 1}),
        (encoded(Apart(2.0, 1.0, "gaussian")), ("a", "b")),
        ({"other": 1}, ("a", "b")),
    ],
)
def test_an_answer_to_another_question_is_not_given(known, asked):
    with pytest.raises(Diverged):
        earlier(known).answered(asked)


def test_of_an_older_copy_nothing_but_its_record_is_answered():
    before = earlier(FIRST, ANSWER, closed=True)
    assert before.charged([FIRST]) == []
    assert before.answered(ANSWER) is ANSWER
    with pytest.raises(Diverged, match="older copy"):
        before.charged([SECOND])
    with pytest.raises(Diverged, match="older copy"):
        before.answered(ANSWER)


def test_purchases_stand_and_are_taken_off_the_record():
    before = earlier(BOUGHT, FIRST)
    assert before.purchases() == [BOUGHT]
    assert before.bought() is None
    assert before.charged([FIRST]) == []
    complete = Schema.from_domain({"a": 2})
    assert earlier(BOUGHT, schema=complete.to_dict()).bought().domain == complete.domain


@pytest.mark.parametrize("answer", [("a", "b"), {("a", "b"): -4, ("b",): 0}, Apart(2.5, 0.5, "laplace")])
def test_an_answer_survives_being_written_down(answer):
    assert decoded(encoded(answer)) == answer
