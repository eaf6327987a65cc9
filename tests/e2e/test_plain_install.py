"""What a plain `pip install understudy` gives: the commands without extras, the wheel, and fresh environments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import understudy as us

ROOT = Path(__file__).parents[2]

PLAIN = """
import json, os, sys
from importlib.machinery import PathFinder
blocked, commands = json.loads(sys.argv[1])
class Plain:
    find_distributions = PathFinder.find_distributions
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [Plain if finder is PathFinder else finder for finder in sys.meta_path]
from understudy.cli import main
import understudy.cli.commands, understudy.run, understudy.mechanism.registry
for place, command in enumerate(commands):
    if (child := os.fork()) == 0:
        said = os.open(f"{place}.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = ["understudy", *command.split()]
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs commands without the packages of extras, each in a process forked from one that has loaded the package."""


def plain_packages(name: str = "understudy", seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The distributions that a plain install of one brings along."""
    if (name := canonicalize_name(name)) in seen:
        return seen
    seen |= {name}
    for needed in map(Requirement, requires(name) or ()):
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            seen = plain_packages(needed.name, seen)
    return seen


@pytest.fixture(scope="module")
def blocked() -> set[str]:
    plain = plain_packages()
    names = {
        module
        for module, homes in packages_distributions().items()
        if not any(canonicalize_name(home) in plain for home in homes)
    }
    assert {"pandas", "sklearn", "scipy", "duckdb"} <= names
    assert not {"numpy", "numba", "pyarrow", "jinja2", "sqlalchemy", "understudy"} & names
    return names


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    rows = "".join(f"{age},{'FM'[age % 2]}\n" for age in rng.integers(18, 90, 500))
    (tmp_path / "people.csv").write_text("age,sex\n" + rows)
    (tmp_path / "schema.yaml").write_text(
        "understudy: {privacy_unit: row}\nfields:\n"
        "  - {name: age, type: integer, constraints: {minimum: 0, maximum: 100}, understudy: {bins: 20}}\n"
        "  - {name: sex, type: string, constraints: {enum: [F, M]}}\n"
    )
    (tmp_path / "run.yaml").write_text(
        "data: people.csv\nschema: schema.yaml\nbudget: {epsilon: 1, delta: 1.0e-6}\n"
        "outputs: {rows: [csv, parquet], report: [public]}\n"
    )
    return tmp_path


def start(folder, blocked, *commands):
    """The exit code of each command, and what it said."""
    line = [sys.executable, "-c", PLAIN, json.dumps([sorted(blocked), commands])]
    codes = subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return [(int(code), (folder / f"{place}.txt").read_text()) for place, code in enumerate(codes)]


def test_a_plain_install_makes_releases_rows_reports_and_bundles(folder, blocked):
    commands = (
        "synthesize people.csv -s schema.yaml --epsilon 1 --delta 1e-6 -o people.release",
        "sample people.release -n 100 --seed 1 -o rows.csv",
        "answer people.release sex=F",
        "bounds people.release",
        "inspect people.release",
        "report people.release -o report.html",
        "report people.release --real people.csv -o compared.html",
        "bundle people.release -o bundle",
        "run run.yaml -o out",
        "runs",
        "ledger show",
        "plan schema.yaml --people 500",
        "schema draft people.csv -o draft.yaml",
        "schema check schema.yaml people.csv",
    )
    for command, (code, said) in zip(commands, start(folder, blocked, *commands), strict=True):
        assert code == 0, f"{command}: {said}"
    page = (folder / "compared.custodian-only.html").read_text()
    assert "Machine-learning efficacy was not computed" in page
    assert "pip install &#39;understudy[eval]&#39;" in page or "pip install 'understudy[eval]'" in page


NEEDED = {
    "evaluate people.csv people.csv -s schema.yaml --metric pmse": "eval",
    "evaluate people.csv people.csv -s schema.yaml --metric ml_efficacy": "eval",
    "report people.release --real people.csv --full -o full.html": "eval",
    "infer people.release mean(age)": "infer",
    "studio --no-browser": "studio",
    "synthesize postgresql://nobody@127.0.0.1:9/db?table=t -s schema.yaml --rho 1 -o x.release": "sql",
    "synthesize duckdb://people.db?table=people -s schema.yaml --epsilon 1 --delta 1e-6 -o x.release": "sql",
    "synthesize people.xlsx -s schema.yaml --epsilon 1 --delta 1e-6 -o x.release": "office",
    "synthesize people.csv -s schema.yaml --epsilon 1 --delta 1e-6 -o x.release --noise opendp": "opendp",
    "demo --output demo": "demo",
}


def test_what_needs_an_extra_names_it(folder, blocked):
    for name in ("people.db", "people.xlsx"):
        (folder / name).write_bytes(b"PK\x03\x04 not a real one")
    us.synthesize(folder / "people.csv", folder / "schema.yaml", rho=1, output=folder / "people.release")
    for extra, (code, said) in zip(NEEDED.values(), start(folder, blocked, *NEEDED), strict=True):
        assert code == 3, said
        assert f"pip install 'understudy[{extra}]'" in " ".join(said.split())


# -- The wheel, and environments in which nothing but the wheel and its dependencies is installed.


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel of this source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--wheel-dir", str(folder)]
    options += ["--no-build-isolation"] if find_spec("hatchling") else []
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_serves_every_system_and_holds_every_file(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("understudy/")}
    files = (path for path in (ROOT / "src" / "understudy").rglob("*") if path.is_file())
    wanted = {path.relative_to(ROOT / "src").as_posix() for path in files if "__pycache__" not in path.parts}
    guide = "understudy/report/analysts.md"  # the wheel's copy of docs/guide/analysts.md
    assert {name for name in wanted if not name.endswith((".nbi", ".nbc"))} | {guide} == packed


def make_environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with the wheel and nothing else; its dependencies are links to those of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    here = Path(distribution("numpy").locate_file(""))
    site = Path(
        subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    )
    for name in plain_packages() - {"understudy"}:
        for top in {file.parts[0] for file in distribution(name).files or () if file.parts[0] != ".."}:
            if (here / top).exists() and top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(here / top)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True)
    return python


def run_journeys(python: Path, folder: Path, *names: str) -> None:
    """Run journeys with the programs of an environment, as `python examples/journeys/NAME.py OUT`."""
    cache = folder / "compiled"
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    for name in names:
        command = [python, ROOT / "examples" / "journeys" / f"{name}.py", folder / name]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_journey_in_a_fresh_environment(wheel, tmp_path):
    python = make_environment(tmp_path / "environment", wheel)
    where = "import understudy, sys; assert understudy.__file__.startswith(sys.prefix)"
    subprocess.run([python, "-c", where], check=True, cwd=tmp_path)
    for absent in ("pandas", "sklearn", "duckdb"):
        assert subprocess.run([python, "-c", f"import {absent}"], check=False, capture_output=True).returncode
    run_journeys(python, tmp_path, "analyst")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_journey_and_the_demo_with_each_python(wheel, tmp_path, version):
    """Installs from the package index, as a user does; minutes for each version."""
    program = shutil.which(f"python{version}")
    if program is None or subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no python{version} on the PATH")
    subprocess.run([program, "-m", "venv", tmp_path / "environment"], check=True)
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    run_journeys(python, tmp_path, "hospital", "company_nightly", "analyst", "researcher", "statistics_office")
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[demo,infer,sql]"], check=True)
    run_journeys(python, tmp_path / "environment", "company_nightly", "analyst")
    subprocess.run([python, "-m", "understudy", "demo", "--output", tmp_path / "demo"], check=True)


WITHOUT_POSIX = """
import builtins, os, sys, types
posix = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}
plain = builtins.__import__
def ours():
    return sys._getframe(2).f_globals.get("__name__", "").startswith("understudy")
def load(name, *rest, **more):
    if name in posix and ours():
        raise ModuleNotFoundError(f"No module named {name!r}")
    return plain(name, *rest, **more)
builtins.__import__ = load
gone = {"sysconf", "geteuid", "getuid", "getgid", "getgroups", "fork", "sched_getaffinity", "O_NOFOLLOW", "statvfs"}
class Windows(type(os)):
    def __getattribute__(self, name):
        here = sys._getframe(1).f_globals.get("__name__", "")
        if name in gone and here.startswith("understudy"):
            raise AttributeError(name)
        return super().__getattribute__(name)
os.__class__ = Windows
from understudy.cli import main
from understudy.ledger import ledger
ledger.sys = types.SimpleNamespace(platform="win32")
for command in sys.argv[1:]:
    sys.argv = ["understudy", *command.split()]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
"""Runs commands without the modules and functions that only POSIX systems have, as far as our own code sees."""


def test_the_commands_need_nothing_that_only_posix_systems_have(folder):
    commands = (
        "synthesize people.csv -s schema.yaml --epsilon 1 --delta 1e-6 -o people.release --dataset windows",
        "sample people.release -n 100 --seed 1 -o rows.csv",
        "report people.release -o report.html",
        "bundle people.release -o bundle",
        "run run.yaml -o out",
        "runs",
        "ledger show",
        "ledger checkpoint -o a.checkpoint --key office.key",
        "compare people.csv -s schema.yaml --public --mechanisms independent --epsilon 1 -o grid",
    )
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *commands], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert us.Ledger().total("windows").runs == 1
