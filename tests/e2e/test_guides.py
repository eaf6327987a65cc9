"""The guides, followed word for word: every ```sh and ```python block runs, in order, in a folder of its own.

`tests/follow_guide.py` follows them, here in the environment of the tests and in `make clean-machine` on bare systems.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guide"
PAGES = sorted(path.name for path in GUIDES.glob("*.md"))
FOLLOWED = {"first-release.md", "analysts.md", "budget.md", "rules.md", "on-disk.md", "run.md", "bounds.md", "mst.md",
            "privbayes.md", "privsyn.md", "discovery.md", "databases.md", "evaluate.md", "schema.md",
            "ledger.md", "public.md", "audit.md", "compare.md", "linked.md"}  # fmt: skip
"""Guides that a test below follows; what `air-gapped.md` says is installed, so only `make clean-machine` can."""


@pytest.fixture(scope="module")
def follow(forks):
    """Run a guide's blocks as a reader would, with the programs of this environment; returns all that was said."""
    return functools.partial(_follow, forks.programs)


def _follow(programs: Path, name: str, folder: Path, answers: str = "") -> str:
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    ledger = str(folder / ".ledger.db")
    environment = {**os.environ, "PATH": path, "PYTHONWARNINGS": "error", "UNDERSTUDY_LEDGER": ledger}
    command = [sys.executable, ROOT / "tests" / "follow_guide.py", GUIDES / name]
    options = {"cwd": folder, "env": environment, "input": answers, "text": True}
    done = subprocess.run(command, **options, capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def first(tmp_path_factory, follow):
    """The first guide, followed to its end: (folder, what was said)."""
    folder = tmp_path_factory.mktemp("first")
    return folder, follow("first-release.md", folder)


@pytest.fixture
def after(first, tmp_path):
    """A folder in which the first guide has been followed, to go on in."""
    shutil.copytree(first[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_first_release(first):
    folder, said = first
    assert "(epsilon = 1, delta = 1e-06)-differential privacy" in said
    assert "people: 1 run, epsilon 1 in total" in said
    assert (folder / "people-for-analysts" / "README.md").exists()
    assert (folder / "practice" / "rehearsal-report.html").exists()


def test_nothing_else_is_left_on_disk(first):
    """Besides what was asked for, a release leaves the draft and the ledger."""
    folder, _ = first
    assert {path.name for path in folder.iterdir()} == {
        "make_people.py", "people.csv", "people.schema.custodian-only.yaml", "people.schema.yaml", "practice",
        "people.release", "report.html", "stand-in.csv", "people-for-analysts", ".ledger.db",
    }  # fmt: skip


def test_analysts(after, follow):
    said = follow("analysts.md", after / "people-for-analysts")
    assert "by the model" in said
    assert "+/-" in said


def test_analysts_in_r(after, forks):
    """The first block of R gives the table of coefficients that the guide shows."""
    r = shutil.which("Rscript")
    if r is None or subprocess.run([r, "-e", "library(jsonlite)"], check=False).returncode:
        pytest.skip("needs R with jsonlite: apt-get install r-base-core r-cran-jsonlite")
    block = re.search(r"^```r\n(.*?)^```$", (GUIDES / "analysts.md").read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    path = os.pathsep.join([str(forks.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    options = {"cwd": after / "people-for-analysts", "env": {**os.environ, "PATH": path}, "text": True}
    done = subprocess.run([r, "-e", block[1]], **options, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"term +estimate +se +low +high +p\n1 +Intercept .*\n2 +age .*\n3 C\(sex\)\[T\.M\]", done.stdout)
    assert "missed correlation of 0." in done.stdout


def test_what_analysts_get_is_what_the_guide_lists(first):
    folder, _ = first
    listed = set(re.findall(r"`([\w-]+\.(?:csv|parquet|html|release|json))`", (GUIDES / "analysts.md").read_text()))
    assert listed <= {path.name for path in (folder / "people-for-analysts").iterdir()}


def test_budget(after, follow):
    said = follow("budget.md", after)
    for row in re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \|$", (GUIDES / "budget.md").read_text(), re.M):
        epsilon, coin, tenth = row
        if f"epsilon {epsilon}\n" in said:
            assert f"held at 50 % becomes at most {coin} %, one held at 10 % at most {tenth} %" in said
    assert said.count("recommended: ") == 4
    assert "epsilon for groups of 200 people within 10 %" in said


def test_rules(tmp_path, follow):
    said = follow("rules.md", tmp_path)
    assert "no rule is broken" in said
    assert "order: ['admitted', 'discharged']: broken by 0 rows" in said


def test_on_disk(after, follow):
    assert "people.schema.custodian-only.yaml" in follow("on-disk.md", after)


def test_run(after, follow):
    said = follow("run.md", after)
    assert "people: 2 runs" in said
    assert "epsilon 4 at delta 1e-06 in any 365 days to anyone; " in said
    named = set(re.findall(r"`out/([\w.-]+)`", (GUIDES / "run.md").read_text()))
    assert {path.name for path in (after / "out").iterdir() if path.name[0] != "."} == named


def test_ledger(after, follow):
    said = follow("ledger.md", after)
    assert "refused with exit code 6" in said
    assert "people: 1 run, epsilon 1 in total" in said
    assert " is revoked." in said
    assert said.count("Every entry is intact; checkpoints cover the first ") == 2
    assert (after / "again.release").read_bytes() == (after / "people.release").read_bytes()
    kinds = [json.loads(line)["kind"] for line in (after / "ledger.jsonl").read_text().splitlines()]
    assert {"dataset", "reserve", "attempt", "answer", "finish", "grant", "revoke"} == set(kinds)


def test_compare(after, follow):
    said = follow("compare.md", after)
    assert "2 runs cost epsilon" in said
    assert "refused" in said
    assert "people: 2 runs" in said
    named = re.findall(r"`([\w.]+\.(?:html|parquet|csv|jsonl))`", (GUIDES / "compare.md").read_text())
    charts = {"workload_error-census.svg", "workload_error-ratios.svg"}
    assert {path.name for path in (after / "comparison").iterdir()} == {*named, *charts}
    assert all(".custodian-only." in path.name for path in (after / "private").iterdir())


def test_bounds(after, follow):
    said = follow("bounds.md", after)
    assert "marginals have a bound (confidence 0.95)" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "releases"),
    [
        ("mst.md", {"mst.release", "nist.release"}),
        ("privbayes.md", {"network.release", "fitted.release"}),
        ("privsyn.md", {"privsyn.release", "graphical.release"}),
        ("discovery.md", {"discovered.release"}),
        ("public.md", {"with-census.release"}),
    ],
)
def test_mechanisms(after, name, releases, follow):
    follow(name, after)
    assert {path.name for path in after.glob("*.release")} == {"people.release", *releases}


def test_databases(tmp_path, follow):
    pytest.importorskip("duckdb")
    assert "Spent on 'visits' so far: 2 runs" in follow("databases.md", tmp_path)


def test_schema(first, tmp_path, follow):
    shutil.copy(first[0] / "people.csv", tmp_path)
    said = follow("schema.md", tmp_path, answers="nobody\nrow\nd\np\na\nx\na\na\n")
    assert said.count("Error: ") == 2, "a wrong answer is asked again"
    assert "Every column is reviewed." in said


@pytest.mark.slow
def test_evaluate(after, follow):
    """Every metric twice, and the custodian's report: minutes."""
    said = follow("evaluate.md", after)
    assert "for the custodian only" in said.lower()
    assert (after / "real.custodian-only.html").exists()


@pytest.mark.slow
def test_audit(after, follow):
    said = follow("audit.md", after)
    assert "independent: consistent" in said
    assert (after / "attacks.custodian-only.json").exists()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_with_something_to_run_is_followed(name):
    """A block without a language is an illustration: of our commands, only those on a database stand in one."""
    text = (GUIDES / name).read_text(encoding="utf-8")
    if re.search(r"^```(sh|python)$", text, re.M):
        assert name in FOLLOWED | {"air-gapped.md"}
    for kind, block in re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines():
            assert kind or not line.startswith("understudy ") or "postgresql://" in line, line


def test_linked(follow, tmp_path):
    said = follow("linked.md", tmp_path)
    assert "P0001" in said
    assert sorted(file.name for file in (tmp_path / "synthetic").iterdir()) == [
        "datapackage.json",
        "patients.csv",
        "visits.csv",
    ]
