"""Every test has a book and data folder of its own: none may touch those of the person who runs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("understudy", deadline=None)  # nothing is timed in a test
settings.load_profile("understudy")


@pytest.fixture(autouse=True)
def book(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("book")
    monkeypatch.setenv("UNDERSTUDY_BOOK", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    return folder
