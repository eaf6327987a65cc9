"""Every test has a book and data folder of its own: none may touch those of the person who runs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Nothing is timed in a test, and the same examples are tried every time: what fails does so for whoever runs it next.
# `pytest --hypothesis-profile=explore` tries others.
_steady = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("understudy", derandomize=True, **_steady)
settings.register_profile("explore", derandomize=False, **_steady)
settings.load_profile("understudy")


@pytest.fixture(autouse=True)
def book(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("book")
    monkeypatch.setenv("UNDERSTUDY_BOOK", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    return folder
