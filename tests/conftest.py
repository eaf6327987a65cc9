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
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy.random  # draws bits when it is imported  # noqa: F401
import pytest
from hypothesis import HealthCheck, settings
from platformdirs import user_cache_path

from understudy.gate import randomness
from understudy.model.device import find_device


def _load(path: Path) -> Any:
    """A file beside this one as a module."""
    spec = importlib.util.spec_from_file_location(f"understudy_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SEEDED = Path(__file__).parent / "seeded"
seeded, forked = _load(SEEDED / "sitecustomize.py"), _load(Path(__file__).parent / "forked.py")
seeded.install()
_started = tempfile.TemporaryDirectory()
os.environ[seeded.STARTED] = _started.name
os.environ["PYTHONPATH"] = os.pathsep.join([str(SEEDED), *filter(None, [os.environ.get("PYTHONPATH")])])
sys.path.insert(0, str(SEEDED))  # a process that is given the paths of this one finds it, too
collect_ignore = ["forked.py", "seeded"]

# Nothing is timed in a test, and the same examples are tried every time, so that a failure can be repeated.
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of public tables if the tables are not there, and those of a GPU if there is none."""
    absent = set() if (Path(__file__).resolve().parents[2] / "shared" / "data").exists() else {"tables"}
    absent |= set() if find_device() else {"gpu"}
    left_out = [item for item in items if any(map(item.get_closest_marker, absent))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, and so those of all services: what they share is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/services" if nodeid.startswith("tests/services/") else nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # the files with most tests are not those that take longest
    return ByFile(config, log)


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
        yield


@pytest.fixture(autouse=True)
def ledger_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("ledger")
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(folder / "ledger.db"))
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


@pytest.fixture(scope="session")
def forks() -> Iterator[Any]:
    """The module `forked`, with a process that others are forked from and a folder of programs that do so."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        forked.programs = Path(folder)
        for name in ("understudy", "python"):
            (forked.programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -IS {forked.__file__} {name} "$@"\n')
            (forked.programs / name).chmod(0o755)
        patch.setenv(forked.SERVER, f"{folder}/socket")
        line = [sys.executable, forked.__file__, "serve", f"{folder}/socket"]
        with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield forked
            server.terminate()


@pytest.fixture
def fork(forks: Any) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program, given as text, in a process that is forked from one that has loaded the package."""

    def run(program: str, *arguments: object, **place: object) -> subprocess.CompletedProcess[str]:
        words = ["program", *map(str, arguments)]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, Path(os.devnull).open() as empty:
            files = empty.fileno(), out.fileno(), err.fileno()
            code = forks.wait(forks.start(program, words, files, **place))
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    return run


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


@pytest.fixture
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training of paper mode is short: it asks the gate nothing, and takes most of the time."""
    monkeypatch.setattr("understudy.model.relaxed._CELL_STEPS", 50)
    monkeypatch.setattr("understudy.model.network._PAPER_STEPS", 2)
    monkeypatch.setattr("understudy.model.network._PAPER_HIDDEN", 16)
