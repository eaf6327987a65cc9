"""More rows than the true table can have: noticed in Python and told on the command line."""

from __future__ import annotations

import warnings

import pytest

import understudy as us
from understudy.errors import ManyRows
from understudy.planning.made_up import rehearsal_rows

SCHEMA = us.Schema.from_domain({"a": 2, "b": 2})


@pytest.fixture(scope="module")
def release():
    with us.testing.insecure(1):
        return us.synthesize(rehearsal_rows(SCHEMA, 100), SCHEMA, rho=1.0, mechanism="independent")


def test_more_rows_than_there_can_be_are_noticed(release):
    words = r"at most about \d+ rows \(without rows with an unknown cell\); more synthetic ones add no evidence"
    with pytest.warns(ManyRows, match=words):
        assert release.sample(5000, seed=1).num_rows == 5000
    with pytest.warns(ManyRows):
        release.stream(5000)


def test_as_many_as_there_can_be_are_not(release):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release.sample(seed=1)
        release.sample(90, seed=1)
        release.sample(int(release.most_rows))
        release.sample(5000, where={"a": 0})


@pytest.mark.parametrize(("extra", "told"), [([], True), (["--quiet"], False), (["--json"], False)])
def test_the_command_line_reports_it_in_one_line(release, tmp_path, call, extra, told):
    release.save(tmp_path / "r.release")
    code, _, err = call("sample", tmp_path / "r.release", "-n", 5000, "-o", tmp_path / "rows.csv", *extra)
    assert code == 0
    notes = err.splitlines()
    assert len(notes) == int(told)
    assert all(note.startswith("note: the true table has at most about") for note in notes)
