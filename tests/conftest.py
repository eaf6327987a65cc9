"""Every test has a ledger and data folder of its own: none may touch those of the person who runs it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from platformdirs import user_cache_path

# Nothing is timed in a test, and the same examples are tried every time: what fails does so for whoever runs it next.
# `pytest --hypothesis-profile=explore` tries others.
_steady = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("understudy", derandomize=True, **_steady)
settings.register_profile("explore", derandomize=False, **_steady)
settings.load_profile("understudy")

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    # numba takes no lock on its cache: two processes that compile two variants of one loop can mistake them later
    compiled = user_cache_path("understudy-tests") / worker
    with suppress(OSError):
        compiled.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("NUMBA_CACHE_DIR", str(compiled))


@pytest.fixture(autouse=True, scope="session")
def shared_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The ledger of fixtures that several tests share: they are made before a test has one of its own."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERSTUDY_LEDGER", str(folder / "ledger.db"))
        patch.setenv("UNDERSTUDY_BOOK", str(folder))
        yield


@pytest.fixture(autouse=True)
def book(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("book")
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(folder / "ledger.db"))
    monkeypatch.setenv("UNDERSTUDY_BOOK", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    return folder


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command in this process as the shell would: its exit code."""
    from understudy.cli import app

    def run(*arguments: object) -> int:
        words = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        with pytest.raises(SystemExit) as left:
            app(words)
        sys.stdout.flush()
        return int(left.value.code or 0)

    return run


@pytest.fixture
def call(shell: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command as the shell would: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = shell(*arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help is laid out for 80 columns, however wide the terminal is."""
    monkeypatch.setenv("COLUMNS", "80")
