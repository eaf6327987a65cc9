"""MST and NIST-MST from the command line: forced tables, the public table, rare values, interrupted runs."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.errors import SettingError

SCHEMA = """
fields:
  - {name: sex, type: string, categories: [f, m], understudy: {on_unknown: other}}
  - {name: city, type: string, categories: [Rome, Pisa, Lyon, Metz, Nice, Ulm], understudy: {on_unknown: other}}
  - {name: age, type: integer, constraints: {minimum: 0, maximum: 99}, understudy: {bins: 10}}
understudy:
  privacy_unit: row
"""


def people(rows, seed):
    rng = np.random.default_rng(seed)
    city = rng.choice(["Rome", "Pisa", "Lyon"], rows, p=[0.6, 0.35, 0.05])
    sex = np.where(rng.random(rows) < np.where(city == "Rome", 0.8, 0.2), "f", "m")
    return pd.DataFrame({"sex": sex, "city": city, "age": rng.integers(20, 60, rows)})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA)
    people(3000, 1).to_csv(tmp_path / "t.csv", index=False)
    people(2000, 2).assign(sex="f").to_csv(tmp_path / "public.csv", index=False)
    return tmp_path


def only_run():
    (run,) = us.Ledger().reservations()
    return run.run


@pytest.fixture
def made(folder, shell):
    """Makes a release with these options: the exit code."""
    start = ("synthesize", folder / "t.csv", "-s", folder / "s.yaml", "-o", folder / "r.release", "--rho", "0.5", "-q")
    return lambda *options: shell(*start, *options)


def test_forced_tables_by_option(folder, made):
    with us.testing.insecure(1):  # one time in 250, noise lifts a city where nobody lives over the limit
        assert made("-m", "mst", "--keep", "sex,age:3", "--keep", "city") == 0
    release = us.Release.load(folder / "r.release")
    assert release.settings["keep"] == [[["sex", "age"], 3.0], [["city"], 1.0]]
    assert ("sex", "age") in {measurement.clique for measurement in release.measurements}
    assert set(release.merged["city"]) >= {"Metz", "Nice", "Ulm"}
    cities = set(release.sample(500, seed=1, as_="pandas")["city"])
    assert not cities & {"Metz", "Nice", "Ulm"}


@pytest.mark.parametrize("keep", ["sex,,age", "nope,age", "sex:0"])
def test_forced_tables_that_make_no_sense_cost_nothing(folder, made, shell, keep):
    assert made("-m", "mst", "--keep", keep) in (3, 4)
    assert not (folder / "r.release").exists()
    assert us.Ledger().total("t").runs == 0


def test_the_public_table_chooses_is_named_and_is_not_kept(folder, made, capsys):
    assert made("-m", "nist-mst", "--public", folder / "public.csv") == 0
    release = us.Release.load(folder / "r.release")
    assert "declared public by the custodian: the table public.csv" in release.receipt.text()
    assert release.settings["public"] is None
    chosen = {tuple(clique) for clique, _ in release.settings["cliques"]}
    assert chosen
    assert len(release.receipt.charges) == 3 + sum(len(m.clique) > 1 for m in release.measurements)
    with zipfile.ZipFile(folder / "r.release") as archive:
        sizes = {item.filename: item.file_size for item in archive.infolist()}
    assert sum(sizes.values()) < 100_000


@pytest.mark.parametrize("same", ["t.csv", "./t.csv", "link.csv"])
def test_the_private_table_as_the_public_one_is_refused_before_spending(folder, made, same, capsys):
    """By its address: a refusal that depends on what is in the rows would be a free test of them."""
    frame = pd.read_csv(folder / "t.csv")
    (folder / "link.csv").symlink_to(folder / "t.csv")
    assert made("-m", "nist-mst", "--public", folder / same) == 3
    assert "sensitive table itself" in capsys.readouterr().err
    assert not (folder / "r.release").exists()
    with pytest.raises(SettingError, match="itself"):
        us.synthesize(frame, folder / "s.yaml", rho=1.0, mechanism="nist-mst", public=frame)
    assert us.Ledger().total("t").runs == 0


def test_nist_mst_needs_a_public_table_and_mst_may_have_one(folder, made, capsys):
    assert made("-m", "nist-mst") == 3
    assert "--public" in capsys.readouterr().err
    assert made("-m", "mst", "--public", folder / "public.csv") == 0
    facts = us.Release.load(folder / "r.release").receipt.facts
    assert facts["the table public.csv"] == "declared public by the custodian"


def test_sample_takes_the_rule_for_rare_values(folder, made, shell):
    assert made("-m", "mst") == 0
    done = shell("sample", folder / "r.release", "-n", 50, "--rare", "spread", "-o", folder / "rows.csv", "-q")
    assert done == 0
    assert len(pd.read_csv(folder / "rows.csv")) == 50
    assert shell("sample", folder / "r.release", "--rare", "nonsense", "-o", folder / "x.csv") == 3


def test_an_interrupted_run_with_a_public_table_is_finished_without_it(folder, made, shell, monkeypatch):
    from understudy.model import generate

    def broken(*given, **rest):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(generate, "fit_tree", broken)
        assert made("-m", "nist-mst", "--public", folder / "public.csv") == 7
    (folder / "public.csv").unlink()
    assert shell("resume", only_run(), "-q") == 0
    assert us.Ledger().total("t").runs == 1
    release = us.Release.load(folder / "r.release")
    assert json.dumps(dict(release.settings))
    assert len(release.sample(20, as_="pandas")) == 20


@pytest.mark.parametrize("mechanism", ["aim", "gaussian", "mst", "mwem", "privbayes", "privsyn"])
@pytest.mark.parametrize(("generator", "kind"), [("pgm", "graphical"), ("gum", "gum")])
def test_rows_are_made_by_the_generator_that_was_asked_for(folder, made, mechanism, generator, kind):
    assert made("-m", mechanism, "--generator", generator) == 0
    release = us.Release.load(folder / "r.release")
    assert release.settings["generator"] == generator
    assert release.model.kind == kind
    assert len(release.sample(20, as_="pandas")) == 20


@pytest.mark.parametrize(
    ("mechanism", "generator", "said"), [("independent", "gum", "generator"), ("mst", "gan", "pgm")]
)
def test_a_generator_that_cannot_be_had_costs_nothing(folder, made, capsys, mechanism, generator, said):
    assert made("-m", mechanism, "--generator", generator) == 3
    assert said in capsys.readouterr().err
    assert us.Ledger().total("t").runs == 0


def test_an_interrupted_run_is_finished_by_the_generator_it_was_started_with(folder, made, shell, monkeypatch):
    from understudy.model import generate

    def broken(*given, **rest):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(generate, "fit_gum", broken)
        assert made("-m", "aim", "--workload", "all-2way", "--generator", "gum") == 7
    assert shell("resume", only_run(), "-q") == 0
    assert us.Release.load(folder / "r.release").model.kind == "gum"
