import os
import stat

import pytest

from understudy.errors import OutputError
from understudy.page import write_page


@pytest.mark.parametrize(("private", "others"), [(True, 0), (False, stat.S_IRGRP | stat.S_IROTH)])
def test_a_private_page_is_for_its_owner_alone(tmp_path, private, others):
    path, before = tmp_path / "p.html", os.umask(0o022)
    try:
        write_page("page", path, private=private)
    finally:
        os.umask(before)
    assert path.read_text() == "page"
    assert path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == others
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(OutputError, match="could not be written"):
        write_page("page", tmp_path / "no" / "p.html")


def test_a_private_page_does_not_take_over_who_could_read_the_one_before(tmp_path):
    path = tmp_path / "p.json"
    for old in (path, tmp_path / f".p.json.{os.getpid()}.tmp"):  # the second: of a killed process with our number
        old.write_text("old")
        old.chmod(0o644)
    write_page("page", path, private=True)
    assert path.read_text() == "page"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_below_a_file_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="could not be written"):
        write_page("page", tmp_path / "file" / "p.html")
