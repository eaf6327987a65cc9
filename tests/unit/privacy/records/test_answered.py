from __future__ import annotations

import pytest

from understudy.errors import OutputError
from understudy.privacy.records.answered import Answered


def test_a_run_of_which_nothing_is_known_was_given_nothing(tmp_path):
    assert Answered(tmp_path, "it").number == 0
    Answered(tmp_path, "it").forget()


def test_the_number_is_kept_by_run_in_one_place_of_one_size(tmp_path):
    one, other = Answered(tmp_path, "it"), Answered(tmp_path, "../../other")
    for number in (1, 2, 11):
        one.rise_to(number)
        assert Answered(tmp_path, "it").number == number
        assert [path.stat().st_size for path in tmp_path.iterdir()] == [20]
    other.rise_to(1)
    assert (one.number, other.number, len(list(tmp_path.iterdir()))) == (11, 1, 2)
    one.forget()
    assert (one.number, other.number) == (0, 1)


def test_what_cannot_be_read_or_written_stops_the_run(tmp_path):
    one = Answered(tmp_path, "it")
    one.rise_to(1)
    next(tmp_path.iterdir()).write_text("many")
    with pytest.raises(OutputError, match="cannot be read"):
        _ = one.number
    with pytest.raises(OutputError, match="stops before it gets an answer"):
        Answered(tmp_path / "none", "it").rise_to(1)
