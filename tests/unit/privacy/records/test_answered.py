from __future__ import annotations

import os
from contextlib import suppress

import pytest
from understudy.privacy.records.answered import Answered

from understudy.errors import OutputError


def test_a_run_of_which_nothing_is_known_was_given_nothing(tmp_path):
    assert Answered(tmp_path, "it").number == 0
    Answered(tmp_path, "it").forget()


def test_a_run_that_was_killed_before_its_first_answer_was_given_nothing(tmp_path):
    one = Answered(tmp_path, "it")
    one.rise_to(1)
    one.close()
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0]
    assert one.number == 0


def test_the_number_is_kept_by_run_in_one_place_of_one_size(tmp_path):
    one, other = Answered(tmp_path, "it"), Answered(tmp_path, "../../other")
    for number in (1, 2, 11):
        one.rise_to(number)()
        one.settle()
        assert Answered(tmp_path, "it").number == number
        assert [path.stat().st_size for path in tmp_path.iterdir()] == [20]
    other.rise_to(1)()
    assert (one.number, other.number, len(list(tmp_path.iterdir()))) == (11, 1, 2)
    one.close()
    other.close()
    one.forget()
    assert (one.number, other.number) == (0, 1)


def test_of_two_that_count_the_same_answer_one_is_refused(tmp_path):
    """As a process and its snapshot, which know the same, or two that go on from copies of one record."""
    one, other = Answered(tmp_path, "it"), Answered(tmp_path, "it")
    first, second = one.rise_to(3), other.rise_to(3)
    first()
    with pytest.raises(OutputError, match="another process was given the answer"):
        second()
    assert one.number == 3
    other.rise_to(4)()
    assert one.number == 4
    one.close()
    other.close()


def test_what_cannot_be_read_or_written_stops_the_run(tmp_path):
    one = Answered(tmp_path, "it")
    one.rise_to(1)()
    one.settle()
    next(tmp_path.iterdir()).write_text("many")
    one.close()
    with pytest.raises(OutputError, match="cannot be read"):
        _ = one.number
    with pytest.raises(OutputError, match="stops before it gets an answer"):
        Answered(tmp_path / "none", "it").rise_to(1)


def test_a_number_that_cannot_be_written_is_told_by_what_writes_it(tmp_path):
    """And not by an error of the system, after which the record would be moved elsewhere and the answer given."""
    one = Answered(tmp_path, "it")
    count = one.rise_to(1)
    os.close(count.args[0].fileno())
    with pytest.raises(OutputError, match="stops before it gets an answer"):
        count()
    with suppress(OSError):
        one.close()
