"""The guides, followed word for word: every ```sh and ```python block runs, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guide"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(name: str) -> list[tuple[str, str]]:
    return BLOCK.findall((GUIDES / name).read_text(encoding="utf-8"))


def follow(steps: list[tuple[str, str]], folder: Path) -> str:
    """Run blocks as a reader would: a shell, and a Python, both of this environment; returns all that was said."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONWARNINGS": "error"}
    said = []
    for kind, text in steps:
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        said.append(done.stdout)
    return "\n".join(said)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first guide, followed to its end: (folder, what was said)."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERSTUDY_BOOK", str(folder / ".book"))
        return folder, follow(blocks("first-release.md"), folder)


def test_first_release(first):
    folder, said = first
    assert "(epsilon = 1, delta = 1e-06)-differential privacy" in said
    assert "people: 1 run, epsilon 1 in all" in said
    assert (folder / "people-for-analysts" / "README.md").exists()
    assert (folder / "practice" / "rehearsal-report.html").exists()


def test_analysts(first):
    folder, _ = first
    said = follow(blocks("analysts.md"), folder / "people-for-analysts")
    assert "by the model" in said
    assert "+/-" in said


def test_what_analysts_get_is_what_the_guide_lists(first):
    folder, _ = first
    listed = set(re.findall(r"`([\w-]+\.(?:csv|parquet|html|release|json))`", (GUIDES / "analysts.md").read_text()))
    assert listed <= {path.name for path in (folder / "people-for-analysts").iterdir()}


def test_budget(first):
    folder, _ = first
    (folder / "people.schema.yaml").write_bytes((folder / "people.yaml").read_bytes())
    said = follow(blocks("budget.md"), folder)
    for row in re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \|$", (GUIDES / "budget.md").read_text(), re.M):
        epsilon, coin, tenth = row
        if f"epsilon {epsilon}\n" in said:
            assert f"held at 50 % becomes at most {coin} %, one held at 10 % at most {tenth} %" in said
    assert said.count("recommended: ") == 3


def test_rules(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERSTUDY_BOOK", str(tmp_path / ".book"))
        said = follow(blocks("rules.md"), tmp_path)
    assert "no rule is broken" in said
    assert "order: ['admitted', 'discharged']: broken by 0 rows" in said


def test_on_disk(first):
    folder, _ = first
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERSTUDY_BOOK", str(folder / ".book"))
        said = follow(blocks("on-disk.md"), folder)
    assert "people.custodian-only.yaml" in said


def test_nothing_else_is_left_on_disk(first):
    """Besides what was asked for, a release leaves the draft and the book."""
    folder, _ = first
    left = {path.name for path in folder.iterdir()} - {"people.schema.yaml"}
    assert left == {
        "make_people.py", "people.csv", "people.custodian-only.yaml", "people.yaml", "practice", "people.release",
        "report.html", "stand-in.csv", "people-for-analysts", ".book",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["first-release.md", "analysts.md", "budget.md", "air-gapped.md", "on-disk.md"])
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (GUIDES / name).read_text(encoding="utf-8")):
        assert (GUIDES / target).exists(), target
    assert all(len(block) for block in blocks(name))
