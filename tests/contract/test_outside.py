"""The mechanism of CONTRIBUTING.md as another package: commands, comparisons, the contract and the audit accept it."""

from __future__ import annotations

import sys
from importlib import import_module

import pandas as pd
import pytest

import understudy as us
from understudy.errors import RunInterrupted, SettingError
from understudy.model import generate
from understudy.testing.contract import CHECKS

ROWS = pd.DataFrame({"a": [0, 1, 2] * 200, "b": [0, 1, 1] * 200, "c": [0, 1, 2, 3] * 150})
SCHEMA = us.Schema.from_domain({"a": 3, "b": 2, "c": 4})


@pytest.fixture(autouse=True)
def strongest(tmp_path_factory, monkeypatch, contributing_example):
    """The package, installed in a folder of its own: its module, and the metadata by which it offers a mechanism."""
    folder = tmp_path_factory.mktemp("site-packages")
    (folder / "outside_package.py").write_text(contributing_example("Add a mechanism"))
    info = folder / "outside_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[understudy.mechanisms]\nstrongest = outside_package:Strongest\n")
    monkeypatch.syspath_prepend(folder)
    yield import_module("outside_package").Strongest
    del sys.modules["outside_package"]


def test_it_has_thirty_lines(contributing_example):
    assert len(contributing_example("Add a mechanism").strip().splitlines()) <= 30


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_passes_the_contract(strongest, check):
    check(strongest())


def test_it_is_synthesised_saved_sampled_answered_and_replicated(tmp_path):
    release = us.synthesize(ROWS, SCHEMA, rho=20.0, mechanism="strongest", ones=0.25, output=tmp_path / "r.release")
    assert (release.mechanism, release.settings) == ("strongest", {"ones": 0.25})
    loaded = us.Release.load(tmp_path / "r.release")
    assert {m.clique for m in loaded.measurements} == {("a",), ("b",), ("c",), ("a", "b")}
    assert loaded.answer({"a": 1, "b": 1}).value == pytest.approx(200, abs=30)
    assert len(loaded.sample(50, seed=1, as_="pandas")) == 50
    one, other = loaded.replicates(2, rows=30, seed=1)
    assert one.num_rows == other.num_rows == 30
    assert loaded.bounds("all-2way")


def test_its_settings_are_checked():
    with pytest.raises(SettingError, match=r"strongest.ones: give a number above 0 and below 1"):
        us.synthesize(ROWS, SCHEMA, rho=1.0, mechanism="strongest", ones=1.5)
    with pytest.raises(SettingError, match="its settings are: ones"):
        us.synthesize(ROWS, SCHEMA, rho=1.0, mechanism="strongest", twos=0.5)


def test_an_interrupted_run_of_it_is_resumed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(generate, "estimate", lambda *given, **rest: 1 / 0)
        with pytest.raises(RunInterrupted):
            us.synthesize(ROWS, SCHEMA, rho=2.0, mechanism="strongest", output=tmp_path / "r")
    (one,) = us.Ledger().reservations()
    release = us.resume(one.run, output=tmp_path / "r")
    assert len(release.measurements) == 4
    assert us.Release.load(tmp_path / "r").mechanism == "strongest"


def test_the_commands_take_it(shell, tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    SCHEMA.save(tmp_path / "rows.schema.yaml")
    given = ("-s", tmp_path / "rows.schema.yaml", "--epsilon", 2, "--delta", 1e-6)
    assert (
        shell("synthesize", tmp_path / "rows.csv", *given, "-m", "strongest", "-o", tmp_path / "r.release", "-q") == 0
    )
    assert shell("report", tmp_path / "r.release", "-o", tmp_path / "report.html") == 0
    assert "strongest" in (tmp_path / "report.html").read_text()
    assert shell("bundle", tmp_path / "r.release", "-o", tmp_path / "bundle") == 0
    assert list((tmp_path / "bundle").iterdir())
    assert shell("plan", tmp_path / "rows.schema.yaml", "--people", 600, "-m", "strongest") == 0
    lines = ("data: rows.csv", "schema: rows.schema.yaml", "budget: {rho: 1}", "mechanism: strongest")
    (tmp_path / "run.yaml").write_text("\n".join(lines))
    assert shell("run", tmp_path / "run.yaml", "-o", tmp_path / "out", "-q") == 0
    assert shell("run", tmp_path / "run.yaml", "--rehearse", "-o", tmp_path / "rehearsed", "-q") == 0


def test_it_is_compared_with_others(tmp_path):
    given = {"epsilons": 20.0, "delta": 1e-6, "workload": "all-2way", "public": True, "jobs": 1}
    found = us.compare(ROWS, SCHEMA, mechanisms=["independent", "strongest:ones=0.3"], output=tmp_path / "out", **given)
    assert set(found.frame.outcome) == {"done"}
    error = found.frame[found.frame.part == ""].groupby("mechanism").value.mean()
    assert error["strongest:ones=0.3"] < error["independent"]  # it measures the pair a, b


def test_the_audit_takes_it_by_its_name():
    found = us.audit("strongest", pairs=10)
    assert found.verdict == "consistent"
    assert found.pair_mu > 0.9 * found.theory_mu
