"""The audit's arithmetic: bounds and verdicts from given statistics, the likelihood ratio, one run with canaries."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import understudy as us
from understudy.accounting import Budget
from understudy.accounting.ceiling import Ceiling
from understudy.accounting.charge import planned_charge
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.metric.roc import auc_of_mu, binomial_tail, mu_of_auc, proportion_low, roc, true_positives_at
from understudy.testing.audit import SLACK, audit_page, decide, judge_statistic, learn_discriminant
from understudy.testing.likelihood import LikelihoodRatio, WatchedTable
from understudy.testing.one_run import audit_once
from understudy.testing.pairs import Bench, Setup, worst_pairs


def gaussians(mu, pairs=4000, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=pairs), rng.normal(mu, size=pairs)


def finding(mu, name="likelihood", **given):
    return judge_statistic(name, *gaussians(mu, **given), 0.01, 0.05)


def test_bounds_are_below_the_truth_and_near_it():
    found = finding(1.0)
    assert found.mu_low < found.mu
    assert abs(found.mu - 1.0) < 4 * found.mu_error
    assert 0.9 < found.mu_low < 1.0
    assert found.epsilon_low < found.epsilon_low_gaussian < 2.5
    assert found.epsilon_low > 1.0


@pytest.mark.parametrize(("mu", "verdict"), [(0.45, "consistent"), (0.6, "unexplained"), (0.9, "broken")])
def test_verdicts(mu, verdict):
    claim, theory = Ceiling.of_budget(Budget.of(epsilon=1.0, delta=0.01)), 0.4548
    found = finding(mu, pairs=20_000)
    assert decide([found], claim, 1.0, theory, [found.epsilon_low])[0] == verdict
    assert SLACK * theory < 0.6 < mu_of_auc(claim.auc) < 0.9


def test_a_statistic_that_beats_the_likelihood_ratio_is_unexplained():
    claim = Ceiling.of_budget(Budget.of(rho=2.0))
    found = [finding(0.5), finding(1.2, "model")]
    verdict, reasons = decide(found, claim, 9.0, 2.0, [0.0, 0.0])
    assert verdict == "unexplained"
    assert "bypasses the gate" in reasons[0]


def test_what_is_learned_finds_the_difference_of_two_values_with_the_same_noise():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(100, 2, 1)) * 10
    seen = np.concatenate([noise, noise], axis=2) + rng.normal(size=(100, 2, 2)) * 1e-3
    seen[:, 1, 0] += 1
    weights = learn_discriminant(seen)
    assert weights[0] / weights[1] == pytest.approx(-1, abs=1e-2)


def test_roc_and_true_positives():
    false, true = roc([0, 1, 2, 3], [1, 2, 4, 5])
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(true, false) == pytest.approx(0.75)
    assert true_positives_at([0, 1, 2, 3], [1, 2, 4, 5], 0.0) == 0.5
    assert true_positives_at([0, 1, 2, 3], [1, 2, 4, 5], 0.25) == 0.5
    assert auc_of_mu(mu_of_auc(0.7)) == pytest.approx(0.7)


def test_a_choice_less_likely_with_the_target_counts_against_it():
    ratio = LikelihoodRatio()
    ratio.add_choice(0, (np.zeros(2), np.array([0.0, 2.0])), 0.287629 / 2)
    assert ratio.value == pytest.approx(-0.154120, abs=1e-6)


def test_laplace_noise_counts_absolute_differences():
    ratio = LikelihoodRatio()
    ratio.add_noisy(np.array([7, 3]), (np.array([5, 3]), np.array([6, 3])), 2.0, "laplace")
    assert ratio.value == pytest.approx(0.5)


@pytest.mark.parametrize("pure", [False, True])
def test_the_ratio_of_a_table_is_that_of_its_questions(pure):
    """All four questions, before and after merging codes, added up by hand."""
    budget = Budget.of(epsilon=8.0, delta=0) if pure else Budget.of(rho=4.0)
    pair = worst_pairs(Budget.of(rho=4.0))[1].tables(max_rows=1, rows_public=False)
    table = WatchedTable(pair.present, budget, pair=pair)
    (one,) = table.measure([("a",)], rho=1.0)
    (x0, x1) = (dict(source.counts([("a",)]))[("a",)] for source in (pair.absent, pair.present))
    if pure:
        by_hand = (np.abs(one.values - x0) - np.abs(one.values - x1)).sum() / 1.0
    else:
        by_hand = ((one.values - x0) ** 2 - (one.values - x1) ** 2).sum() / (2 * one.sigma**2)
    assert table.ratio.value == pytest.approx(by_hand)
    before = table.ratio.value
    table.dependence([("a", "b")], rho=0.5)
    table.select([("a", "b"), ("b", "c")], rho=0.5)
    assert table.ratio.value != before
    view = table.recode(us.schema.Recoding({"a": np.array([0, 0])}))
    assert isinstance(view, WatchedTable)
    before = table.ratio.value
    view.measure([("a",)], rho=0.5)
    merged = table.ratio.value - before
    assert merged != 0  # the number of rows tells the tables apart
    assert type(PrivateTable(pair.present, budget).recode(view.recoding)) is PrivateTable


def test_tables_of_a_pair_are_neighbours():
    for pair in worst_pairs(Budget.of(rho=1.0)):
        for max_rows, rows_public in ((1, False), (3, False), (1, True)):
            both = pair.tables(max_rows=max_rows, rows_public=rows_public)
            counts = [dict(source.counts([tuple(pair.sizes)])) for source in (both.absent, both.present)]
            one, other = (next(iter(found.values())) for found in counts)
            moved = np.abs(np.asarray(other, np.int64) - np.asarray(one, np.int64)).sum()
            assert moved == max_rows * (2 if rows_public else 1) or (rows_public and pair.name == "crowd")


def test_a_bench_runs_units_of_several_rows_and_public_numbers_of_rows():
    for given in ({"max_rows": 3}, {"rows_public": True}):
        bench = Bench(Setup("independent", **given), worst_pairs(Budget.of(rho=1.0))[0])
        assert bench.pairs(2).shape == (2, 2, 7)
        divergence, asked = bench.explore(2)
        assert math.sqrt(divergence) == pytest.approx(math.sqrt(2 * float(bench.budget.rho)), rel=1e-6)
        assert asked == 1


def test_the_facade_audits_by_name_and_by_object_and_writes_a_page():
    found = us.audit(us.MECHANISMS["independent"](), pairs=20, rho=0.5)
    assert (found.verdict, found.pairs, found.setup.budget) == ("consistent", 20, {"rho": 0.5})
    page = audit_page([found])
    assert "independent: consistent" in page
    assert page.count("<polyline") == 12
    data = found.to_dict()
    assert [one["name"] for one in data["statistics"]] == ["likelihood", "model", "rows", "total", "learned"]


def test_wrong_arguments_are_named():
    for given, words in (
        ({"mechanism": "nothing"}, "unknown"),
        ({"minutes": 0}, "minutes"),
        ({"confidence": 1.0}, "confidence"),
        ({"pairs": 3}, "pairs"),
        ({"wrong": 1}, "wrong"),
    ):
        with pytest.raises(SettingError, match=words):
            us.audit(**{"mechanism": "independent"} | given)


def test_one_run_with_canaries_is_consistent_and_finds_missing_noise(monkeypatch):
    found = audit_once("independent", canaries=400, rho=0.1)
    assert found.verdict == "consistent"
    monkeypatch.setattr(PrivateTable, "_draw", lambda table, charge, size: np.zeros(size, np.int64))
    broken = audit_once("independent", canaries=400, rho=0.1)
    assert (broken.right, broken.verdict) == (broken.guesses, "unexplained")
    assert audit_once("independent", canaries=400, rho=0.01).verdict == "broken"
    assert audit_once("independent", canaries=4000).verdict == "broken"
    assert audit_once("independent", canaries=400, epsilon=1.0, delta=1e-12).verdict == "broken"


def test_the_command_prints_writes_and_tells_a_broken_mechanism_by_its_exit_code(call, tmp_path, monkeypatch):
    page = tmp_path / "audit.html"
    code, out, _ = call("audit", "independent", "--pairs", 20, "--jobs", 1, "-o", page)
    assert code == 0
    assert "independent: consistent" in out
    assert "<svg" in page.read_text()
    code, out, _ = call("audit", "independent", "--one-run", "--json")
    assert code == 0
    assert '"one_run": true' in out
    code, _, err = call("audit", "independent", "mst", "--set", "a=1")
    assert code == 3
    assert "--set belongs to one mechanism" in err
    monkeypatch.setattr(PrivateTable, "_draw", lambda table, charge, size: np.zeros(size, np.int64))
    assert call("audit", "independent", "--pairs", 60, "--jobs", 1)[0] == 10


def test_processes_run_pairs_too():
    found = us.audit("independent", pairs=40, jobs=2)
    assert (found.verdict, found.pairs) == ("consistent", 40)


def test_an_answer_is_compared_with_its_charge():
    """Gaussian noise of sigma 2 on a count that moves by 1 has divergence 1/4: rho 1/8 pays for it, 1/9 does not."""
    ratio, paid = LikelihoodRatio(), planned_charge("measure", (("a",),), 1, sigma=2.0)
    ratio.add_noisy(7, (5, 6), 2.0, "gaussian")
    ratio.check_paid(ratio.divergence, [paid])
    assert ratio.unpaid == 0
    ratio.check_paid(ratio.divergence, [dataclasses.replace(paid, rho=Fraction(1, 9))])
    assert ratio.unpaid == pytest.approx(1 / 4 - 2 / 9)


def test_an_answer_that_is_not_paid_for_is_unexplained():
    verdict, reasons = decide([finding(0.4)], Ceiling.of_budget(Budget.of(rho=2.0)), 9.0, 2.0, [0.0], unpaid=0.5)
    assert (verdict, reasons) == (
        "unexplained",
        ["An answer tells the tables apart more than its charge allows: 0.5 beyond 2 rho."],
    )


@pytest.mark.parametrize("given", [{"max_rows": 3}, {"rows_public": True}, {"budget": {"epsilon": 4.0, "delta": 0.0}}])
@pytest.mark.parametrize("name", ["independent", "mst", "privbayes"])
def test_every_answer_of_correct_code_is_paid_for(name, given):
    if "budget" in given and name == "mst":
        name = "laplace"
    for pair in worst_pairs(Budget.of(rho=1.0)):
        assert Bench(Setup(name, **given), pair).run(True)[0].ratio.unpaid == 0


def test_the_power_is_that_of_the_verdict():
    """With the area that is said to be findable, 95 % of audits have as many wins as the verdict needs."""
    found = dataclasses.replace(us.audit("independent", pairs=10), findings=[finding(0.5, pairs=2000)])
    assert found.power == pytest.approx(0.28, abs=0.02)
    area = auc_of_mu(found.theory_mu + found.power)
    limit = min(found.claim.auc, auc_of_mu(SLACK * found.theory_mu))
    needed = next(k for k in range(1000, 2001) if proportion_low(k, 2000, 1e-6 / 6) > limit)
    assert binomial_tail(needed, 2000, area) == pytest.approx(0.95, abs=1e-3)
    assert "So few pairs" in us.audit("independent", pairs=10).text()


def test_tables_are_chosen_by_name():
    assert us.audit("independent", pairs=10, tables="lone").setup.pair == "lone"
    with pytest.raises(SettingError, match="choices are lone, tie, crowd, link, parity"):
        us.audit("independent", pairs=10, tables="other")
