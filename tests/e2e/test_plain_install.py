"""What a plain `pip install understudy` gives: the commands without extras, the wheel, and the journeys."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import understudy as us

ROOT = Path(__file__).parents[2]
JOURNEYS, SEEDED = ROOT / "examples" / "journeys", ROOT / "tests" / "seeded"

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
        "evaluate people.csv rows.csv -s schema.yaml --metric pmse",
        "schema draft people.csv -o draft.yaml",
        "schema check schema.yaml people.csv",
    )
    for command, (code, said) in zip(commands, start(folder, blocked, *commands), strict=True):
        assert code == 0, f"{command}: {said}"
    page = (folder / "compared.custodian-only.html").read_text()
    assert "Machine-learning efficacy was not computed" in page
    assert "pip install &#39;understudy[eval]&#39;" in page or "pip install 'understudy[eval]'" in page


NEEDED = {
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


def run_in(python: Path, *arguments: object, cache: Path, folder: Path) -> None:
    """Run Python of an environment, whose programs come first on the PATH and which sees no other packages."""
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    settings = {"PATH": path, "PYTHONPATH": str(SEEDED), "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    line = [python, *arguments]
    done = subprocess.run(line, env=os.environ | settings, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """Make the environment that all journeys share; returns its Python."""
    folder = tmp_path_factory.mktemp("fresh")
    python = make_environment(folder / "environment", wheel)
    absent = ("pandas", "sklearn", "duckdb", "scipy")
    run_in(python, "-c", ALONE, *absent, cache=folder, folder=folder)
    return python


ALONE = """
import sys, understudy
from importlib.util import find_spec
assert understudy.__file__.startswith(sys.prefix)
assert not [name for name in sys.argv[1:] if find_spec(name)]
"""

JOURNEY = """
import importlib, json, pathlib, sys
sys.path.insert(0, sys.argv[1])
told = importlib.import_module(sys.argv[2]).main(pathlib.Path(sys.argv[3]))
show = lambda value: {"html": value._repr_html_(), "columns": list(getattr(value, "domain", ()))}
pathlib.Path("told.json").write_text(json.dumps(told, default=show))
"""


@pytest.fixture
def travel(environment, tmp_path):
    """Make a journey in the fresh environment; returns what it tells. Loops that one compiled, the next reuses."""

    def main(name: str) -> dict[str, Any]:
        cache = environment.parents[2] / "compiled"
        run_in(environment, "-c", JOURNEY, JOURNEYS, name, tmp_path, cache=cache, folder=tmp_path)
        return json.loads((tmp_path / "told.json").read_text())

    return main


def test_all_of_them_are_here():
    assert {path.stem for path in JOURNEYS.glob("*.py")} == {
        "statistics_office", "hospital", "company_nightly", "analyst", "researcher", "shell",
    }  # fmt: skip


def test_statistics_office(tmp_path, travel):
    told = travel("statistics_office")
    assert 0.02 < told["refused"] < 0.15
    assert 0 < told["weighted error"] < 0.3
    assert 0 < told["high"] < 0.3
    assert {"rows.csv", "report.html"} <= {path.name for path in (tmp_path / "release").iterdir()}
    assert "How good it is" in (tmp_path / "release" / "report.html").read_text()
    assert us.Ledger().total("living-conditions").runs == 1


def test_hospital(tmp_path, travel):
    said = travel("hospital")
    assert "Column 'patient' looks like a key and repeats" in said["draft"]
    assert said["review"].count("Column 2 of 10: patient") == 2, "going back shows the column again"
    assert "Column 4 of 10: admitted (dates)" in said["review"]
    assert "written as      %d.%m.%Y, as in 01.01.2023" in said["review"]
    assert "recommended: mst" in said["plan"]
    assert "Every column is reviewed. Dropped: case." in said["review"]
    assert "of every 1,000 people, the whole rows of 10 might leak" in said["delta"]
    assert "Nothing was spent" in said["delta"]
    assert str(us.Ledger().address) in said["run"].replace("\n", "")
    assert "its values are N, Y" in said["value"]
    rows = pa_csv.read_csv(tmp_path / "release" / "rows.csv", parse_options=pa_csv.ParseOptions(delimiter=";"))
    forms = {"patient": r"P\d{5}", "admitted": r"\d\d\.\d\d\.2023", "cost": r"\d+,\d\d", "alive": "[YN]"}
    forms["discharged"] = r"\d{4}-\d\d-\d\d \d\d:\d\d:00"
    for name, form in forms.items():
        assert all(re.fullmatch(form, str(cell)) for cell in rows[name].to_pylist() if cell != "other"), name
    assert all(len(str(cell)) in (5, 8) for cell in rows["time"].to_pylist()), "times of day, not seconds"
    assert (tmp_path / "rehearsal" / "rehearsal-report.html").exists()
    assert (tmp_path / "compared.custodian-only.html").exists()
    assert (tmp_path / "for-analysts" / "codebook.html").exists()
    assert us.Ledger().total("stays").runs == 1


def test_company_nightly(tmp_path, travel):
    told = travel("company_nightly")
    assert told["statuses"] == ["made", "unchanged", "made", "unchanged", "stopped"]
    assert us.Ledger().total("orders").runs == 2
    assert [re.search(r"value of '(\w+)'", note)[1] for note in told["notes"]] == ["country"]
    assert "6000 rows; 0 are not used" in told["check"]
    assert (tmp_path / "compared.custodian-only.html").exists()
    assert "nightly/part-1.parquet: damaged, cut short or not Parquet" in told["cut short"]
    assert "(new: it knows of no earlier spending)" in told["ledger"]
    assert "pip install 'understudy[sql]'" in told["closed port"]
    rows = pq.read_table(tmp_path / "night-2" / "rows.parquet")
    assert rows.column_names == ["country", "channel", "amount", "returned"]


def test_analyst(tmp_path, travel):
    told = travel("analyst")
    assert told["readme"].startswith("# Health survey")
    assert set(told["rows"][0]) == {"sex", "age", "interviewed", "icd", "smoker"}
    assert {row["smoker"] for row in told["rows"]} - {""} == {"Y", "N"}  # as the file writes it, not true and false
    for query in ("age>64", "icd=J*", "interviewed>=01.07.2023", "smoker=Y, sex=F"):
        assert "in the true table, with confidence 0.95" in told[query]
    assert "pip install 'understudy[infer]'" in told["estimates"]
    assert (tmp_path / "age.svg").read_text().startswith("<svg")


def test_researcher(travel):
    told = travel("researcher")
    assert [schema["columns"] for schema in told["schemas"]] == [["a", "b", "c", "d"], ["a"], ["SEX"], ["AGEP"]]
    assert all(1 < len(value["html"]) < 20_000 for value in told["shown"])
    errors = told["errors"]
    assert set(errors) == set(us.MECHANISMS)
    assert errors["mst"] < errors["independent"]
    assert us.Ledger().total("journey-researcher").runs == len(us.MECHANISMS)


def test_what_extras_add_to_the_journeys(tmp_path, monkeypatch, forks):
    monkeypatch.syspath_prepend(str(JOURNEYS))
    monkeypatch.setenv("PATH", os.pathsep.join([str(forks.programs), os.environ["PATH"]]))
    nightly, analyst = (importlib.import_module(name).main(tmp_path / name) for name in ("company_nightly", "analyst"))
    assert "no database server answers there" in nightly["closed port"]
    assert "mean(age) | sex=F" in analyst["estimates"]
    assert "C(sex)[T.M]" in analyst["regression"]


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
    for name in ("hospital", "company_nightly", "analyst", "researcher", "statistics_office"):
        run_in(python, JOURNEYS / f"{name}.py", tmp_path / name, cache=tmp_path / "compiled", folder=tmp_path)
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[demo,infer,sql]"], check=True)
    for name in ("company_nightly", "analyst"):
        run_in(python, JOURNEYS / f"{name}.py", tmp_path / "more" / name, cache=tmp_path / "compiled", folder=tmp_path)
    run_in(python, "-m", "understudy", "demo", "--output", "demo", cache=tmp_path / "compiled", folder=tmp_path)


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
