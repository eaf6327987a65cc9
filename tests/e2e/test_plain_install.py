"""The commands with the packages of a plain `pip install understudy`: those of extras cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


NEEDED = {
    "evaluate people.csv people.csv -s schema.yaml --metric pmse": "eval",
    "evaluate people.csv people.csv -s schema.yaml --metric ml_efficacy": "eval",
    "synthesize duckdb://people.db?table=people -s schema.yaml --epsilon 1 --delta 1e-6 -o x.release": "sql",
    "synthesize people.xlsx -s schema.yaml --epsilon 1 --delta 1e-6 -o x.release": "office",
    "synthesize people.csv -s schema.yaml --epsilon 1 --delta 1e-6 -o x.release --noise opendp": "opendp",
    "demo --output demo": "demo",
}


def test_what_needs_an_extra_names_it(folder, blocked):
    for name in ("people.db", "people.xlsx"):
        (folder / name).write_bytes(b"PK\x03\x04 not a real one")
    for extra, (code, said) in zip(NEEDED.values(), start(folder, blocked, *NEEDED), strict=True):
        assert code == 3, said
        assert f"pip install 'understudy[{extra}]'" in " ".join(said.split())
