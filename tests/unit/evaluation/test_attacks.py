"""Attacks on a release: worked numbers, a release without protection is found out, results are the custodian's."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.domain import Domain
from understudy.errors import InputError, SettingError
from understudy.evaluation.attacks import PairTree, attack, match_counts
from understudy.report import public_report
from understudy.report.page import _draw_attacks, load_template

RNG = np.random.default_rng(0)


def people(count):
    colour = RNG.integers(30, size=count)
    shape = (colour + RNG.integers(3, size=count)) % 30
    return pd.DataFrame({"colour": colour, "shape": shape, "size": RNG.integers(30, size=count)})


ROWS, OTHERS = people(600), people(600)
SCHEMA = us.Schema.from_domain({"colour": 30, "shape": 30, "size": 30})


@pytest.fixture(scope="module")
def release():
    return us.synthesize(ROWS, SCHEMA, epsilon=1.0, delta=1e-5, dataset="attacked")


@pytest.fixture(scope="module")
def found(release):
    return attack(release, ROWS)


def test_the_score_of_two_cells_is_the_worked_number():
    shares = np.array([0.01, 0.02])
    joint = np.array([[0.01, 0.005], [0.005, 0.02]])
    score, power = match_counts(np.array([14.0, 23.0]), np.array([5.0, 5.0]), shares, joint, 1000, np.inf)
    assert (power, score) == (pytest.approx(0.210448, abs=1e-6), pytest.approx(0.138371, abs=1e-6))
    _, weaker = match_counts(np.array([14.0]), np.array([5.0]), shares[:1], joint[:1, :1], 1000, 5000)
    assert weaker == pytest.approx(0.163020, abs=1e-6)


def test_a_tree_knows_the_probabilities_of_dependent_columns():
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=4000).astype(np.uint8)
    codes = {"a": a, "b": a, "c": rng.integers(2, size=4000).astype(np.uint8)}
    tree = PairTree.of_rows(codes, Domain({"a": 2, "b": 2, "c": 2}))
    assert ("a", "b") in tree.edges
    assert np.exp(tree.log_density({k: v[:1] for k, v in codes.items()}))[0] == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(tree.guess("b", codes), codes["a"])


def test_attacks_on_a_private_release_are_near_guessing(found):
    assert (found.game, found.runs) == ("refold", 10)
    assert [score.attack for score in found.scores][:1] == ["likelihood ratio of the measurements"]
    for score in found.scores:
        assert score.auc[0] < found.ceiling["auc"] + 0.05
    assert found.ceiling["auc"] == pytest.approx(0.593, abs=1e-3)
    assert found.full_knowledge < found.ceiling["auc"]
    assert found.attributes is not None
    assert abs(found.attributes.advantage[0]) < 0.05
    assert found.attributes.outside < found.attributes.ceiling


def test_a_release_without_protection_is_found_out():
    weak = us.synthesize(ROWS, SCHEMA, rho=500.0, mechanism="gaussian", dataset="attacked")
    found = attack(weak, ROWS, holdout=OTHERS)
    assert found.scores[0].auc[0] > 0.8
    assert found.attributes is None


def test_the_section_shows_every_attack_and_the_ceiling_and_the_public_report_none(release, found):
    page = load_template("attacks.html.j2").render(attacks=found.to_dict() | {"chart": _draw_attacks(found)})
    assert page.count("<polyline") == 5
    assert page.count("<tr><td>") == len(found.scores) + 2
    assert f"{found.ceiling['auc']:.3f}" in page
    assert "ttack" not in public_report(release)


def test_the_command_marks_its_output(call, release, tmp_path):
    release.save(tmp_path / "r.release")
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    given = ("--real", tmp_path / "rows.csv", "--minutes", 0.001)
    code, out, _ = call("attack", tmp_path / "r.release", *given, "-o", tmp_path / "attacks.json")
    assert code == 0
    assert out.startswith("For the custodian only")
    data = json.loads((tmp_path / "attacks.custodian-only.json").read_text())
    assert data["runs"] == 2
    assert not (tmp_path / "attacks.json").exists()


def test_what_cannot_be_attacked_is_refused(release):
    with pytest.raises(InputError, match="fewer than 40 rows"):
        attack(release, ROWS.head(10))
    with pytest.raises(SettingError, match="no synthesised column 'wrong'"):
        attack(release, ROWS, secrets=["wrong"])
