"""The contest entries and the baselines: worked numbers of their specifications, and what must be refused."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from understudy.accounting import Budget, Receipt
from understudy.domain import Domain
from understudy.errors import SchemaError, SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism import column_groups, make_mechanism
from understudy.mechanism.dpfieldgroups import DPFieldGroups, threshold_of
from understudy.mechanism.dpsyn import DPSyn, keep_frequent
from understudy.mechanism.gaussian import Gaussian
from understudy.mechanism.laplace import Laplace
from understudy.mechanism.pfr import PFR, denoise
from understudy.testing import insecure
from understudy.testing.contract import CHECKS
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource, SealedSource
from understudy.testing.twin import record_answers, replay_answers

SIZES = {"a": 3, "b": 3, "c": 2, "d": 2}
OURS = ["dpfieldgroups", "dpsyn", "laplace", "pfr"]


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    a, c = rng.integers(3, size=count), rng.integers(2, size=count)
    return np.stack([a, a, c, c], axis=1)


def table(budget=None, count=2000, cls=CodedSource, **given):
    return PrivateTable(cls(SIZES, rows(count), **given), budget or Budget.of(rho=1.0))


def joint(model, clique):
    return model.project(clique) / model.total


# -- DPFieldGroups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cells", "survivors"), [(10, 0.748), (10**3, 1.673), (10**5, 3.743), (10**6, 5.598)])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_as_many_empty_cells_pass_the_threshold_as_the_specification_says(cells, survivors, noise):
    """0.5 B^0.17484 of B empty cells, whatever the noise."""
    sigma = 39 * math.sqrt(2)
    threshold = threshold_of(Measurement(("a",), np.zeros(cells), sigma, noise=noise))
    tail = 0.5 * math.exp(-threshold / 39) if noise == "laplace" else 0.5 * math.erfc(threshold / sigma / math.sqrt(2))
    assert cells * tail == pytest.approx(survivors, abs=1e-3)


def test_thirty_nine_groups_at_epsilon_one_have_a_scale_of_39_and_a_threshold_of_222():
    sizes = {f"x{i}": 1000 if i == 0 else 2 for i in range(39)}
    private = PrivateTable(CodedSource(sizes, np.zeros((9, 39), int)), Budget.of(epsilon=1.0, delta=0))
    fit = DPFieldGroups.as_published().fit(private, rho=1.0)
    assert [charge.scale for charge in private.account.charges] == pytest.approx([39.0] * 39)
    assert threshold_of(fit.measurements[0]) == pytest.approx(222.3, abs=0.1)


def test_given_groups_keep_their_joint_distribution_and_are_independent_of_each_other():
    fit = DPFieldGroups.as_published(groups=[["a", "b"], ["d", "c"]]).fit(table(Budget.of(rho=1e6)), rho=1e6)
    assert joint(fit.model, ("a", "b")) == pytest.approx(np.diag(joint(fit.model, ("a",))), abs=1e-3)
    apart = np.multiply.outer(joint(fit.model, ("a",)), joint(fit.model, ("c",)))
    assert joint(fit.model, ("a", "c")) == pytest.approx(apart, abs=1e-9)


def test_groups_are_chosen_by_dependence_and_an_empty_table_is_almost_empty():
    with insecure(1):
        private = table()
        fit = DPFieldGroups(group_cells=9).fit(private, rho=1.0)
    assert {m.clique for m in fit.measurements} == {("a", "b"), ("c", "d")}
    assert float(private.account.spent) == pytest.approx(1.0)
    empty = Measurement(
        ("x",), np.random.default_rng(0).laplace(0, 39, 10**5).round(), 39 * math.sqrt(2), noise="laplace"
    )
    assert np.count_nonzero(DPFieldGroups().clean(empty)) < 25


# -- pfr ---------------------------------------------------------------------------------------------------------------


def test_twice_the_negative_cells_are_thought_empty_and_the_sum_stays():
    values = np.array([100.0, -4.0, 60.0, 5.0, 40.0, -1.0, 2.0, 1.0])
    out = denoise(values)
    assert np.flatnonzero(out).tolist() == [0, 2, 3, 4]
    assert out.sum() == pytest.approx(values.sum())
    assert denoise(np.full(4, -3.0)).tolist() == [0.0] * 4


def test_a_group_of_ten_of_32_columns_gets_its_part_of_epsilon():
    sizes = {f"x{i}": 2 for i in range(32)}
    groups = [list(sizes)[:10], list(sizes)[10:20], list(sizes)[20:30], list(sizes)[30:]]
    private = PrivateTable(CodedSource(sizes, np.zeros((99, 32), int)), Budget.of(epsilon=1.0, delta=0))
    PFR(groups=groups).fit(private, rho=1.0)
    assert [float(c.epsilon) for c in private.account.charges] == pytest.approx(
        [0.3125, 0.3125, 0.3125, 0.0625], abs=1e-6
    )


def test_a_table_that_noise_hides_is_uniform():
    hidden = Measurement(("a",), np.array([30, 0, -5, 1]), 100.0)
    assert PFR().clean(hidden).tolist() == [0.0] * 4
    assert PFR(dropped=0).clean(hidden).sum() == pytest.approx(26)


# -- DPSyn -------------------------------------------------------------------------------------------------------------


def test_all_tables_have_the_same_noise_and_codes_are_kept_by_the_contests_rules():
    private = table()
    fit = DPSyn.as_published().fit(private, rho=1.0)
    assert len(fit.measurements) == 4 + 6
    assert {round(m.sigma, 6) for m in fit.measurements} == {round(math.sqrt(10 / 2), 6)}
    assert fit.model.updates == "dpsyn"
    assert fit.generator.as_printed  # columns with an axis are not estimated by cumulative counts
    counts = np.array([5000, 799, 801, 90_000, 2, 566_000])
    ages = Measurement(("age",), counts, 100.0)  # 4.5 sigma is 450, 800 of 662,602 rows decide
    assert keep_frequent([ages], significant=4.5, least=800 / 662_000, most=19).merged_codes("age") == [
        [0],
        [2],
        [3],
        [5],
        [1, 4],
    ]
    assert keep_frequent([ages], significant=4.5, least=0.0, most=2).merged_codes("age") == [[3], [5], [0, 1, 2, 4]]


def test_the_187_tables_of_the_entry_have_the_noise_of_its_specification():
    """At two thirds of epsilon 1 and delta 1e-12: sigma = sqrt(187 / (2 rho)) = 153.3225, by its conversion to rho."""
    columns, log = [f"x{i}" for i in range(18)], math.log(1e12)
    tables = [*combinations(columns, 2), *combinations(columns[:5], 3), *combinations(columns[5:9], 3)]
    rho = (math.sqrt(0.667 + log) - math.sqrt(log)) ** 2
    private = PrivateTable(CodedSource(dict.fromkeys(columns, 2), np.zeros((9, 18), int)), Budget.of(rho=rho))
    DPSyn.as_published(cliques=[*tables, columns[9:12], columns[12:15]], least=0.0, significant=0.0).fit(
        private, rho=rho
    )
    measured = [charge.scale for charge in private.account.charges for _ in charge.about]
    assert measured == pytest.approx([153.3225] * 187, abs=1e-3)


def test_rows_of_dpsyn_follow_dependent_columns():
    for mechanism in (DPSyn(), DPSyn.as_published()):
        rows = mechanism.fit(table(Budget.of(rho=100.0)), rho=100.0).model.sample(3000, np.random.default_rng(0))
        assert (rows["a"] == rows["b"]).mean() > 0.95
        assert (rows["c"] == rows["d"]).mean() > 0.95


# -- baselines ---------------------------------------------------------------------------------------------------------


def test_the_joint_table_with_laplace_noise():
    """One table of all cells, scale 1/epsilon, negative counts set to zero."""
    private = table(Budget.of(epsilon=0.5, delta=0))
    (measured,) = (fit := Laplace().fit(private, rho=0.5)).measurements
    assert measured.clique == tuple(SIZES)
    assert private.account.charges[0].scale == pytest.approx(2.0)
    clipped = np.maximum(measured.values, 0).reshape(3, 3, 2, 2)
    assert joint(fit.model, tuple(SIZES)) == pytest.approx(clipped / clipped.sum())
    assert [m.clique for m in Laplace(group_cells=6).fit(table(), rho=1.0).measurements] == [("a",), ("b", "c"), ("d",)]


def test_the_gaussian_baseline_has_the_allocation_of_the_privsyn_paper(tmp_path):
    """Marginals of 6, 20 and 100 cells at rho 1: shares 0.102499, 0.228720, 0.668781; an L1 error of 103.157."""
    (tmp_path / "workload.yaml").write_text("- [a, b]\n- [c, d]\n- [e, f]\n")
    sizes = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 10, "f": 10}
    private = PrivateTable(CodedSource(sizes, np.zeros((99, 6), int)), Budget.of(rho=1.0))
    fit = Gaussian.as_published(workload=str(tmp_path / "workload.yaml")).fit(private, rho=1.0)
    sigma = [m.sigma for m in fit.measurements]
    assert sigma == pytest.approx([(2 * share) ** -0.5 for share in (0.102499, 0.228720, 0.668781)], rel=1e-5)
    error = sum(len(m.values) * m.sigma * math.sqrt(2 / math.pi) for m in fit.measurements)
    assert error == pytest.approx(103.157, abs=1e-3)


def test_raw_answers_of_the_gaussian_baseline_are_kept_and_fit_no_model():
    fit = Gaussian.as_published(workload="all-3way").fit(table(Budget.of(rho=1e4)), rho=1e4)
    truth = np.zeros((3, 3, 2))
    np.add.at(truth, tuple(rows(2000)[:, :3].T), 1)
    (answer,) = [m for m in fit.measurements if m.clique == ("a", "b", "c")]
    assert np.abs(answer.values.reshape(truth.shape) - truth).max() < 3
    assert (fit.model.kind, fit.generator) == ("product", None)
    assert joint(fit.model, ("a",)) == pytest.approx(truth.sum(axis=(1, 2)) / 2000, abs=0.01)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_raw_answers(check):
    check(Gaussian(raw=True))


# -- for all of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("pfr", {"groups": [["a", "b"], ["b"]]}, "column 'b' is in two groups"),
        ("pfr", {"groups": ["ab"]}, "give lists of columns"),
        ("dpfieldgroups", {"choose": 1.0}, "below 1"),
        ("dpfieldgroups", {"group_cells": 0}, "at least 1"),
        ("laplace", {"generator": "gum"}, "laplace has no setting 'generator'"),
        ("dpsyn", {"updates": "privsyn"}, "one of tree, dpsyn"),
        ("hdmm", {"answers": "means"}, "one of ranges, prefixes, cells"),
    ],
)
def test_settings_out_of_range_are_refused(name, settings, said):
    with pytest.raises(SettingError, match=said):
        make_mechanism(name, **settings)


@pytest.mark.parametrize("name", ["dpfieldgroups", "laplace", "pfr"])
def test_groups_of_unknown_columns_are_refused_before_anything_is_spent(name):
    mechanism = make_mechanism(name, groups=[["a", "zip"]])
    with pytest.raises(SettingError, match="no column 'zip'"):
        mechanism.footprint(Domain(SIZES))
    with pytest.raises(SettingError, match="no column 'zip'"):
        mechanism.fit(table(cls=SealedSource), rho=1.0)


def test_tables_of_unknown_columns_are_refused():
    with pytest.raises(SchemaError):
        DPSyn(cliques=[["a", "zip"]]).footprint(Domain(SIZES))


# -- mistakes made on purpose ------------------------------------------------------------------------------------------


def seen(name, count, seed):
    fit = make_mechanism(name).fit(PrivateTable(CodedSource(SIZES, rows(count, seed)), Budget.of(rho=1.0)), rho=1.0)
    return {key: array.tobytes() for key, array in fit.model.to_arrays().items()}, fit.model.total


def only_answers_tell_the_tables_apart(name, other=90):
    with record_answers() as answers:
        first = seen(name, 500, 0)
    with replay_answers(answers):
        assert seen(name, other, 1) == first


def watch(patch):
    truth, init = {}, PrivateTable.__init__

    def watched(private, source, *given, **rest):
        truth["count"] = lambda clique: np.asarray(dict(source.counts([clique]))[clique])
        init(private, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", watched)
    return truth


@pytest.mark.parametrize("name", ["dpfieldgroups", "laplace", "pfr"])
def test_tables_cleaned_by_exact_counts_are_caught(name, monkeypatch):
    only_answers_tell_the_tables_apart(name)
    truth = watch(monkeypatch)
    fit = column_groups.ColumnGroups.finish

    def peeking(self, domain, measurements, **rest):
        exact = [Measurement(m.clique, truth["count"](m.clique), m.sigma) for m in measurements]
        return fit(self, domain, exact, **rest)

    monkeypatch.setattr(column_groups.ColumnGroups, "finish", peeking)
    with pytest.raises(AssertionError):
        only_answers_tell_the_tables_apart(name)


def test_codes_kept_by_exact_counts_are_caught(monkeypatch):
    only_answers_tell_the_tables_apart("dpsyn")
    truth, module = watch(monkeypatch), "understudy.mechanism.dpsyn.keep_frequent"

    def peeking(ones, **rest):
        return keep_frequent([Measurement(m.clique, truth["count"](m.clique), m.sigma) for m in ones], **rest)

    monkeypatch.setattr(module, peeking)
    with pytest.raises((AssertionError, KeyError)):
        only_answers_tell_the_tables_apart("dpsyn", other=2)


@pytest.mark.parametrize("name", OURS)
def test_half_of_the_noise_is_caught(name, monkeypatch):
    def spied():
        budget = Budget.of(rho=1.0)
        with Spy() as spy:
            private = table(budget, 60)
            make_mechanism(name).fit(private, rho=1.0)
        check_spent(spy, Receipt(budget, private.account.charges, private.neighbours))

    spied()
    draw = PrivateTable._draw
    monkeypatch.setattr(PrivateTable, "_draw", lambda self, charge, size: draw(self, charge, size) // 2)
    with pytest.raises(AssertionError):
        spied()
