from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import namedtuple
from pathlib import Path

import pytest

from understudy.accounting import Budget
from understudy.errors import OutputError, SettingError, WeakBudget
from understudy.files import check_space
from understudy.run.checks import (
    check_memory,
    check_noise,
    check_output,
    find_compiler_cache,
    warn_of_weak_budget,
)


def test_a_free_path_in_a_folder_passes_and_nothing_is_left(tmp_path):
    check_output(tmp_path / "r.release")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_never_overwritten(tmp_path):
    (tmp_path / "r").write_text("kept")
    with pytest.raises(OutputError, match="never overwritten; choose another"):
        check_output(tmp_path / "r")
    with pytest.raises(OutputError, match="never overwritten"):
        check_output(tmp_path)


@pytest.mark.parametrize("name", ["people.csv", "people.PARQUET", "people.xlsx"])
def test_a_release_is_not_called_a_table(tmp_path, name):
    with pytest.raises(OutputError, match=r"not a table of rows; name it people.release, and .* -o people"):
        check_output(tmp_path / name)


@pytest.mark.parametrize(
    ("given", "words"),
    [({"epsilon": 1, "delta": 0.1}, ["delta 0.1 is large"]), ({"epsilon": 100, "delta": 1e-6}, ["epsilon 100"]),
     ({"rho": 40, "delta": 1e-3}, ["delta 0.001", "epsilon 7"]), ({"rho": 40}, []), ({"epsilon": 8, "delta": 0}, [])],
)  # fmt: skip
def test_a_budget_that_promises_hardly_anything_is_reported(given, words):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warn_of_weak_budget(Budget.of(**given))
    assert [word for word, line in zip(words, told, strict=True) if str(line.message).startswith(word)] == words
    assert all(line.category is WeakBudget for line in told)


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(OutputError, match="does not exist; create it first"):
        check_output(tmp_path / "no" / "r")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_cannot_be_is_reported(tmp_path, name):
    with pytest.raises(OutputError, match="cannot be written"):
        check_output(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.touch", refuse)
    with pytest.raises(OutputError, match="cannot be written; choose another output"):
        check_output(tmp_path / "r")


def test_a_full_disk_is_reported_with_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: namedtuple("usage", "free")(5 << 20))
    check_space(tmp_path, 3 << 20)
    with pytest.raises(OutputError, match="5 MiB free and up to 41 MiB may be needed; make room"):
        check_space(tmp_path, 40 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda _: namedtuple("usage", "free")(1 << 19))
    with pytest.raises(OutputError, match="0 MiB free and up to 2 MiB may be needed"):  # not 1 MiB of 1 MiB
        check_space(tmp_path, 1)


def test_too_little_memory_is_reported_with_what_needs_less(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: namedtuple("memory", "available")(1 << 30))
    check_memory(1 << 29)
    with pytest.raises(SettingError, match="2048 MiB of memory and 1024 MiB are free: use coarser bins"):
        check_memory(2 << 30)


def test_noise_is_known_and_installed(monkeypatch):
    check_noise("exact")
    with pytest.raises(SettingError, match="the choices are exact, opendp"):
        check_noise("gaussian")
    monkeypatch.setattr("understudy.run.checks.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pip install 'understudy\[opendp\]'"):
        check_noise("opendp")


def test_compiled_loops_find_a_place_on_a_read_only_system(monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    find_compiler_cache()
    assert "NUMBA_CACHE_DIR" not in os.environ  # the package's folder or the user's cache will do
    monkeypatch.setattr("understudy.run.checks._can_write", lambda _: False)
    find_compiler_cache()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("NUMBA_CACHE_DIR", "chosen")
    find_compiler_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == "chosen"


def test_what_a_killed_run_left_of_its_check_is_removed_by_the_next(tmp_path):
    killed = f"import os, pathlib; pathlib.Path.unlink = lambda *_, **__: os.kill(os.getpid(), 9)\n{CHECK}"
    assert subprocess.run([sys.executable, "-c", killed, str(tmp_path / "r.release")], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    check_output(tmp_path / "r.release")
    assert list(tmp_path.iterdir()) == []


CHECK = "import sys; from understudy.run.checks import check_output; check_output(pathlib.Path(sys.argv[1]))"
