import os
import stat

import pytest

from understudy.errors import OutputError
from understudy.written import write_page


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
