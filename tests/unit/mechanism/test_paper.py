"""Paper mode: each mechanism as published, line by line where our defaults differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.accounting import Budget
from understudy.cli.commands import app
from understudy.domain import CodeGroups, Domain
from understudy.errors import SchemaError, SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism import MECHANISMS, make_mechanism
from understudy.mechanism.compress import compress
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.privsyn import PrivSyn
from understudy.model.estimate import estimate, estimate_as_printed
from understudy.model.fit import Generator
from understudy.model.generate import generate
from understudy.model.gum import UPDATES, GumModel, RowPlan
from understudy.release.rows import find_members
from understudy.run.file import RunFile
from understudy.schema import Recoding, Schema
from understudy.testing import insecure
from understudy.testing.tables import CodedSource

PUBLISHED = sorted(name for name, kind in MECHANISMS.items() if kind.paper)


def test_every_mechanism_but_our_own_has_a_paper_and_all_say_when_to_use_them():
    assert set(MECHANISMS) - set(PUBLISHED) == {"adaptive"}
    assert all(kind.when.endswith(".") for kind in MECHANISMS.values())


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_settings_are_settings_and_given_ones_win(name):
    kind = MECHANISMS[name]
    published = make_mechanism(name, paper=True)
    assert published.settings().items() >= kind(**kind.paper_settings()).settings().items()
    usual = {setting: getattr(kind(), setting) for setting in kind.paper_settings()}
    assert make_mechanism(name, paper=True, **usual) == kind()


def test_a_mechanism_without_a_paper_and_one_that_is_made_already_are_refused():
    with pytest.raises(SettingError, match="adaptive has no paper to follow"):
        make_mechanism("adaptive", paper=True)
    with pytest.raises(SettingError, match="paper: a mechanism object already has its settings"):
        make_mechanism(MECHANISMS["mst"](), paper=True)


# -- Algorithm 4 and step 8 of "Winning the NIST Contest" -------------------------------------------------------------


def test_domain_compression_merges_whatever_is_below_three_sigma_into_one_code():
    """An axis and a hierarchy make no difference, nor do many codes: mu_t >= 3 sigma stays."""
    counts = np.array([90, 5, 6, 5, 80, 59, 61, -7])
    ages = Measurement(("age",), counts, 20.0)
    groups = CodeGroups(axes={"age": 8}, order_columns=["age"])
    merged = compress(Domain({"age": 8}), [ages], groups, as_printed=True)
    assert merged.merged_codes("age") == [[0], [4], [6], [1, 2, 3, 5, 7]]
    assert compress(Domain({"age": 8}), [ages], groups) != merged
    many = Measurement(("age",), np.full(5000, 61), 20.0)
    assert not compress(Domain({"age": 5000}), [many], as_printed=True).columns
    assert compress(Domain({"age": 5000}), [many]).columns == ("age",)


@pytest.mark.parametrize(
    ("rule", "shares"), [("even", [1, 1 / 3, 1 / 3, 1 / 3]), ("counts", [1, 0.25, 0.75, 0]), ("spread", None)]
)
def test_merged_values_are_written_by_the_papers_rules(rule, shares):
    recoding = Recoding({"a": np.array([0, 1, 1, 1])})
    measured = [Measurement(("a",), np.array([500, 20, 60, -9]), 1.0)]
    found = find_members(recoding, Schema.from_domain({"a": 4}), measured, rule)["a"].chances
    assert shares is None or found.tolist() == pytest.approx(shares)
    assert found[1:].sum() == pytest.approx(1)


@pytest.mark.parametrize(("loss", "expected"), [("likelihood", 40 + 20 * 16 / 17), ("printed", 56)])
def test_the_loss_has_the_weights_of_the_authors_code_or_those_they_printed(loss, expected):
    """Two measurements of one column, sigma 1 and 4: the mean of 60 and 40 has weights 1 and 1/16, or 1 and 1/4."""
    measured = [Measurement(("a",), np.array([60, 40]), 1.0), Measurement(("a",), np.array([40, 60]), 4.0)]
    domain = Domain({"a": 2})
    estimate_with = estimate_as_printed if loss == "printed" else estimate
    assert estimate_with(domain, measured, total=100.0).project(("a",))[0] == pytest.approx(expected, abs=0.01)
    assert estimate_as_printed(domain, measured).total == pytest.approx(100)
    generator = make_mechanism("aim", paper=True, loss=loss).make_generator()
    fit = generate(generator, domain, measured, recoding=Recoding.identity(), total=100.0)
    assert fit.model.project(("a",))[0] == pytest.approx(expected, abs=0.01)
    assert make_mechanism("aim", paper=True).loss == "likelihood"


def test_the_rounds_of_aim_use_its_loss(monkeypatch):
    source = CodedSource({"a": 2, "b": 2}, np.random.default_rng(0).integers(2, size=(200, 2)))
    used = []
    monkeypatch.setattr(
        "understudy.mechanism.aim.estimate_as_printed", lambda *a, **k: used.append(1) or estimate_as_printed(*a, **k)
    )
    for loss in ("likelihood", "printed"):
        used.clear()
        chosen = make_mechanism("aim", paper=True, workload="all-2way", loss=loss)
        fit = chosen.fit(PrivateTable(source, Budget.of(rho=0.5)), rho=0.5)
        rounds = sum("chosen" in entry for entry in fit.rounds)
        assert len(used) == (rounds + 2 if loss == "printed" else 0)


def test_a_published_run_of_mst_spreads_rare_values_evenly_and_is_recorded(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": np.where(rng.random(2000) < 0.9, 0, rng.integers(1, 40, 2000)).astype(str)})
    frame["sex"] = rng.integers(2, size=2000).astype(str)
    schema = Schema.from_dict(
        {
            "fields": [
                {
                    "name": "town",
                    "type": "string",
                    "constraints": {"enum": [str(i) for i in range(40)], "required": True},
                },
                {"name": "sex", "type": "string", "constraints": {"enum": ["0", "1"]}},
            ],
            "understudy": {"privacy_unit": "row"},
        }
    )
    with insecure(3):
        release = us.synthesize(frame, schema, rho=0.02, mechanism="mst", paper=True, output=tmp_path / "r")
    assert release.settings["rare"] == "even"
    assert release.settings["split"] == pytest.approx((1 / 3,) * 3)
    loaded = us.Release.load(tmp_path / "r")
    assert loaded.generator == Generator("tree", as_printed=True)
    assert "town" in loaded.merged
    rare = (
        loaded.sample(40_000, seed=1)
        .to_pandas()["town"]
        .value_counts()[[v for v in loaded.merged["town"] if v != "(other)"]]
    )
    assert rare.max() - rare.min() <= 1


# -- Algorithms 1 and 2 of AIM -----------------------------------------------------------------------------------------


def choices_of(monkeypatch, mechanism, rho):
    """Run a mechanism on three columns of 2, 3 and 4 codes; returns what it selected from, and its charges."""
    asked, select = [], PrivateTable.select

    def watched(table, candidates, **given):
        asked.append(given | {"candidates": list(candidates)})
        return select(table, candidates, **given)

    monkeypatch.setattr(PrivateTable, "select", watched)
    rows = np.random.default_rng(5).integers((2, 3, 4), size=(400, 3))
    table = PrivateTable(CodedSource({"a": 2, "b": 3, "c": 4}, rows), Budget.of(rho=rho))
    mechanism.fit(table, rho=rho)
    return asked, table.account.charges


def test_published_mwem_selects_from_the_workload_by_error_minus_cells(monkeypatch):
    """Algorithm 1 with d = 3 rounds: sigma = sqrt(T / (2 alpha rho)), epsilon = sqrt(8 (1 - alpha) rho / T)."""
    asked, charges = choices_of(monkeypatch, make_mechanism("mwem", paper=True, workload="all-2way"), 2.0)
    assert len(asked) == 3
    for one in asked:
        assert one["candidates"] == [("a", "b"), ("a", "c"), ("b", "c")]
        assert set(one["weights"].values()) == {1.0}
        assert one["offsets"] == {("a", "b"): 6.0, ("a", "c"): 8.0, ("b", "c"): 12.0}
    assert [charge.what for charge in charges] == ["select", "measure"] * 3
    assert [charge.scale for charge in charges[::2]] == pytest.approx([np.sqrt(8 * 0.1 * 2 / 3)] * 3)
    assert [charge.scale for charge in charges[1::2]] == pytest.approx([np.sqrt(3 / (2 * 0.9 * 2))] * 3)


def test_published_aim_selects_from_the_closure_by_expected_improvement(monkeypatch):
    """Algorithm 2, lines 8 and 14: w_r sums the columns shared with the workload; noise costs sqrt(2/pi) sigma n_r."""
    asked, charges = choices_of(monkeypatch, make_mechanism("aim", paper=True, workload="all-2way"), 0.01)
    first = asked[0]
    cells = {("a",): 2, ("b",): 3, ("c",): 4, ("a", "b"): 6, ("a", "c"): 8, ("b", "c"): 12}
    assert set(first["candidates"]) == set(cells)
    assert first["weights"] == {clique: 2.0 if len(clique) == 1 else 4.0 for clique in cells}
    sigma = np.sqrt(16 * 3 / (2 * 0.9 * 0.01))
    assert [charge.scale for charge in charges if charge.what == "measure"][:3] == pytest.approx([sigma] * 3)
    assert first["offsets"] == pytest.approx({r: np.sqrt(2 / np.pi) * sigma * n for r, n in cells.items()}, rel=1e-3)
    assert charges[3].scale == pytest.approx(np.sqrt(8 * 0.1 * 0.01 / (16 * 3)))


def test_independent_columns_have_equal_noise_and_their_product_is_the_model():
    """Three columns at rho 2: sigma = sqrt(3 / (2 rho)) = 0.866."""
    rows = np.random.default_rng(5).integers((2, 3, 4), size=(400, 3))
    table = PrivateTable(CodedSource({"a": 2, "b": 3, "c": 4}, rows), Budget.of(rho=2.0))
    fit = make_mechanism("independent", paper=True).fit(table, rho=2.0)
    assert [m.sigma for m in fit.measurements] == pytest.approx([0.8660254] * 3)
    a, b = fit.model.project(("a",)), fit.model.project(("b",))
    assert fit.model.project(("a", "b")) == pytest.approx(np.outer(a, b) / a.sum())


# -- NIST-MST ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "weight"), [(0.3, 8), (1.0, 6), (4.0, 4)])
def test_nist_mst_weighs_the_income_score_by_epsilon(epsilon, weight):
    """Algorithm 5, line 6, and step 4: sigma is inversely proportional to the weight within a group."""
    chosen = NistMST.as_published(cliques=[("sex", "age")], income=("sex", "city", "income"))
    rows = np.random.default_rng(1).integers(2, size=(20_000, 4))
    source = CodedSource({"sex": 2, "city": 2, "income": 2, "age": 2}, rows)
    budget = Budget.of(epsilon=epsilon, delta=1e-9)
    fit = chosen.fit(PrivateTable(source, budget), rho=float(budget.capacity))
    sigma = {m.clique: m.sigma for m in fit.measurements}
    first, second = sigma["age",], sigma["sex", "age"]
    assert first / sigma["income",] == pytest.approx(2)
    assert first / sigma["city",] == pytest.approx(1)
    assert second / sigma["sex", "city", "income"] == pytest.approx(weight)
    assert second / sigma["city", "income"] == pytest.approx(2)
    assert {len(m.clique) for m in fit.measurements} == {1, 2, 3}
    assert chosen.plan(source.domain) == {}


MARKED = {
    "fields": [
        {"name": "sex", "type": "boolean", "understudy": {"role": "income_group"}},
        {"name": "pay", "type": "boolean", "understudy": {"role": "income"}},
        {"name": "age", "type": "boolean"},
        {"name": "city", "type": "boolean", "understudy": {"role": "income_group"}},
    ],
    "understudy": {"privacy_unit": "row"},
}


def test_the_income_columns_are_those_that_the_schema_marks():
    schema = Schema.from_dict(MARKED)
    assert Schema.from_dict(schema.to_dict()) == schema
    chosen = NistMST(cliques=[("sex", "age")])
    assert chosen.prepare(schema).income == ("sex", "city", "pay")
    assert replace(chosen, income=("age", "pay")).prepare(schema).income == ("age", "pay")
    assert replace(chosen, income=()).prepare(schema).income == ()
    assert chosen.prepare(Schema.from_domain({"sex": 2, "age": 2})).income == ()


def test_two_incomes_are_refused():
    fields = [{"name": name, "type": "boolean", "understudy": {"role": "income"}} for name in ("pay", "sex", "age")]
    with pytest.raises(SettingError, match="'pay' and 'sex' are both marked"):
        NistMST(cliques=[("sex", "age")]).prepare(Schema.from_dict(MARKED | {"fields": fields}))


def test_an_income_that_is_no_column_is_refused_before_anything_is_spent():
    with pytest.raises(SchemaError, match="pay"):
        NistMST(cliques=[("a", "b")], income=("pay",)).prepare(Schema.from_domain({"a": 2, "b": 2}))


# -- PrivSyn -----------------------------------------------------------------------------------------------------------


def test_the_papers_gradual_updates_start_from_independent_columns_and_decay_every_twenty_passes(monkeypatch):
    domain = Domain(dict.fromkeys("abcd", 2))
    joint = np.array([[40.0, 10.0], [10.0, 40.0]])
    tables = dict.fromkeys([("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")], joint)
    plan = RowPlan(domain, tables, UPDATES["privsyn"])
    assert [draw.column for draw in plan.appended] == ["d"]
    assert [(draw.column, draw.given) for draw in plan.started[0]] == [("a", ()), ("b", ()), ("c", ())]
    seen = []
    monkeypatch.setattr(
        "understudy.model.gum._Step.run",
        lambda step, alpha, share, state, *, part, nearest: seen.append((alpha, share, part, nearest)) or 0.5,
    )
    plan.run(domain, 10, np.random.default_rng(0))
    passes = seen[::3]
    assert len(seen) == 3 * 50
    assert [alpha for alpha, *_ in passes] == pytest.approx([1.0] * 20 + [0.84] * 20 + [0.84**2] * 10)
    assert [share for _, share, *_ in passes[:4]] == [0.5, 1.0, 0.5, 1.0]
    assert {rest for _, _, *rest in map(tuple, passes) for rest in [tuple(rest)]} == {(1.0, True)}


def test_published_updates_meet_tables_without_noise_and_are_saved():
    rng = np.random.default_rng(2)
    joint = rng.random((3, 2, 4))
    joint *= 10_000 / joint.sum()
    tables = {("a", "b"): joint.sum(2), ("b", "c"): joint.sum(0), ("a", "c"): joint.sum(1)}
    model = GumModel(Domain({"a": 3, "b": 2, "c": 4}), 10_000, tables, "privsyn")
    again = GumModel.from_arrays(model.domain, model.to_arrays())
    assert again.updates == "privsyn"
    rows = again.sample(10_000, rng)
    for clique, table in tables.items():
        have = np.zeros(table.shape)
        np.add.at(have, tuple(rows[column] for column in clique), 1)
        assert np.abs(have - table).sum() < 0.02 * 10_000


def test_published_privsyn_spends_tenths_and_measures_no_column_again():
    rng = np.random.default_rng(4)
    a = rng.integers(3, size=2000)
    source = CodedSource({"a": 3, "b": 3, "c": 2}, np.stack([a, a, rng.integers(2, size=2000)], axis=1))
    table = PrivateTable(source, Budget.of(rho=1.0))
    with insecure(1):
        fit = PrivSyn.as_published().fit(table, rho=1.0)
    spent = {"dependence": 0.0, "columns": 0.0, "tables": 0.0}
    for charge in table.account.charges:
        kind = "dependence" if charge.what == "dependence" else "columns" if len(charge.about[0]) == 1 else "tables"
        spent[kind] += float(charge.rho)
    assert spent == pytest.approx({"columns": 0.1, "dependence": 0.1, "tables": 0.8}, rel=1e-6)
    assert [m.clique for m in fit.measurements].count(("c",)) == 1
    assert fit.model.updates == "privsyn"


# -- the three ways to ask for it --------------------------------------------------------------------------------------


def test_paper_on_the_command_line_and_in_a_run_file(tmp_path):
    pd.DataFrame({"a": [0, 1, 1, 0] * 50, "b": [0, 1, 0, 0] * 50}).to_csv(tmp_path / "t.csv", index=False)
    Schema.from_domain({"a": 2, "b": 2}).save(tmp_path / "s.yaml")
    (tmp_path / "run.yaml").write_text(
        "data: t.csv\nschema: s.yaml\nbudget: {rho: 1}\nmechanism: {name: aim, rounds: 4}\npaper: true\n"
    )
    spec = RunFile.load(tmp_path / "run.yaml").spec()
    made = make_mechanism(spec.mechanism, paper=spec.paper, **spec.settings)
    assert (made.second, made.rounds, made.as_printed) == (0.0, 4, True)
    (tmp_path / "run.yaml").write_text("data: t.csv\nschema: s.yaml\nbudget: {rho: 1}\npaper: 1\n")
    with pytest.raises(SettingError, match="`paper` must be true or false"):
        RunFile.load(tmp_path / "run.yaml").spec()
    given = ["synthesize", str(tmp_path / "t.csv"), "-s", str(tmp_path / "s.yaml"), "--rho", "1", "--paper"]
    refused = CliRunner().invoke(app, [*given, "-m", "adaptive", "-o", str(tmp_path / "no.release")])
    assert "adaptive has no paper to follow" in refused.output
    unnamed = CliRunner().invoke(app, [*given, "-o", str(tmp_path / "no.release")])
    assert "paper: name the mechanism" in unnamed.output
    done = CliRunner().invoke(
        app, [*given, "-m", "mst", "--set", "penalty=0.25", "-o", str(tmp_path / "r.release"), "--quiet"]
    )
    assert done.exit_code == 0, done.exception
    assert us.Release.load(tmp_path / "r.release").settings["penalty"] == 0.25
    assert us.Release.load(tmp_path / "r.release").settings["rare"] == "even"
