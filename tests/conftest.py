"""Every test has noise, a ledger and a data folder of its own.

**Noise.** Random bits of the operating system are replaced by a sequence that depends on the test's name alone, not on
what ran before: in this process, in forked ones and in Python processes that a test starts. The package itself runs as
it does for users, and its releases are marked as secure. Two kinds of tests draw true random bits: those marked `law`,
which state the probability that they fail by chance (at most 10^-9), and those that draw noise by OpenDP, which has a
generator of its own. Two threads of one test may swap their bits.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import numpy.random  # draws bits when it is imported  # noqa: F401
import pytest
from hypothesis import HealthCheck, settings
from platformdirs import user_cache_path

from understudy.gate import randomness

SEEDED = Path(__file__).parent / "seeded"
_spec = importlib.util.spec_from_file_location("understudy_tests_seeded", SEEDED / "sitecustomize.py")
assert _spec is not None
assert _spec.loader is not None
seeded = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(seeded)
seeded.install()
_started = tempfile.TemporaryDirectory()
os.environ[seeded.STARTED] = _started.name
os.environ["PYTHONPATH"] = os.pathsep.join([str(SEEDED), *filter(None, [os.environ.get("PYTHONPATH")])])
collect_ignore = ["seeded"]

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


@contextmanager
def seed_by(label: str | None) -> Iterator[None]:
    """Draw all random bits within the block from the sequence of a label; with None, from the operating system."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeded, "current", seeded.Sequence(label))
        patch.setattr(randomness, "_threads", threading.local())  # streams that were keyed by another sequence
        if label is None:
            patch.delenv(seeded.LABEL, raising=False)
        else:
            patch.setenv(seeded.LABEL, label)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Seed a test by its name, unless it tests the law of the noise itself."""
    with seed_by(None if item.get_closest_marker("law") else item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Seed what several tests share by its own name, whichever of them is the first to need it."""
    if fixturedef.scope == "function":
        return (yield)
    law = request.node.get_closest_marker("law")
    name = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"
    with seed_by(None if law else name):
        return (yield)


@pytest.fixture
def seed() -> Callable[[str | None], AbstractContextManager[None]]:
    """Draw all random bits within a block from the sequence of another label."""
    return seed_by


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


@pytest.fixture(scope="session")
def contributing_example() -> Callable[[str], str]:
    """Return the Python code under a heading of CONTRIBUTING.md, such as "Add a metric"."""
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")

    def read(heading: str) -> str:
        section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        return textwrap.dedent(section.split("   ```python\n")[1].split("   ```\n")[0])

    return read


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
