import errno
import os
import secrets
import stat
import subprocess
import sys

import pytest

from understudy import files
from understudy.errors import OutputError
from understudy.files import write_atomically, write_text


@pytest.mark.parametrize(("private", "others"), [(True, 0), (False, stat.S_IRGRP | stat.S_IROTH)])
def test_a_private_page_is_for_its_owner_alone(tmp_path, private, others):
    path, before = tmp_path / "p.html", os.umask(0o022)
    try:
        write_text("page", path, private=private)
    finally:
        os.umask(before)
    assert path.read_text() == "page"
    assert path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == others
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(OutputError, match="could not be written"):
        write_text("page", tmp_path / "no" / "p.html")


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "make room there"), (errno.EACCES, "check that the folder exists")]
)
def test_what_could_not_be_written_names_the_remedy(number, remedy):
    words = str(files.could_not_write("rows.csv", OSError(number, "a library's words, which may quote a cell")))
    assert words.startswith("rows.csv could not be written")
    assert remedy in words
    assert "quote a cell" not in words


def test_a_private_page_does_not_take_over_who_could_read_the_one_before(tmp_path):
    path = tmp_path / "p.json"
    path.write_text("old")
    path.chmod(0o644)
    write_text("page", path, private=True)
    assert path.read_text() == "page"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_below_a_file_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="could not be written"):
        write_text("page", tmp_path / "file" / "p.html")


def test_a_link_at_the_temporary_name_is_never_followed(tmp_path, monkeypatch):
    victim, path = tmp_path / "victim", tmp_path / "p.json"
    victim.write_text("precious")
    (tmp_path / f".p.json.{os.getpid()}.tmp").symlink_to(victim)  # a name that anybody can guess
    write_text("page", path)
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "guessed")
    files.draft_path(path).symlink_to(victim)
    with pytest.raises(OutputError, match="could not be written"):
        write_text("another", path)
    assert victim.read_text() == "precious"
    assert files.draft_path(path).is_symlink()  # not ours to remove
    assert path.read_text() == "page"


def test_temporary_names_cannot_be_guessed_and_are_short_enough(tmp_path):
    long = tmp_path / ("ü" * 120 + ".html")
    names = {files.draft_path(long).name for _ in range(100)}
    assert len(names) == 100
    assert max(len(os.fsencode(name)) for name in names) < 255
    write_text("page", long)
    assert long.read_text() == "page"


def test_what_fails_or_is_stopped_leaves_the_file_before(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(b"before")

    def stopped() -> None:
        with write_atomically(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_drafts_of_processes_that_are_no_more_are_removed_and_no_others(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    path = tmp_path / "rows[1].csv"
    for owner in (gone.pid, os.getpid(), "x"):
        (tmp_path / f".rows[1].csv.{owner}.{secrets.token_hex(8)}.tmp").touch()
    others = [
        f".other.csv.{gone.pid}.{'0' * 16}.tmp",
        f".rows[1].csv.{gone.pid}.1.{'0' * 16}.tmp",
    ]  # of rows[1].csv.PID
    for name in others:
        (tmp_path / name).touch()
    write_text("new", path)
    left = sorted(draft.name.split(".")[3] for draft in tmp_path.glob(".rows*") if draft.name not in others)
    assert left == sorted([str(os.getpid()), "x"])
    assert all((tmp_path / name).exists() for name in others)
