"""Estimates with intervals: the worked numbers of the method, brute force on small cases, and what is refused."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app
from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.model.graphical import GraphicalModel
from understudy.model.product import ProductModel
from understudy.release.inference import infer
from understudy.release.inference.corrected import CorrectedTables
from understudy.release.inference.gap import Gaps
from understudy.release.inference.selection import widen_sampling
from understudy.schema import Recoding, Schema
from understudy.schema.schema import PrivacyUnit

NOISY = np.array([[30, 10], [5, 55]])
CLOSE = [[0.28, 0.12], [0.07, 0.53]]


def release_of(
    model: Any,
    measurements: list[Measurement],
    *,
    recoding: Recoding | None = None,
    rows: int | None = None,
    **more: Any,
) -> Any:
    """A release as `infer` sees it, of a table with codes."""
    sizes = dict(model.domain)
    if recoding is not None:
        sizes |= {column: len(array) for column, array in recoding.maps.items()}
    schema = Schema.from_domain({column: size - (rows is not None) for column, size in sizes.items()})
    if rows is not None:  # the last code is for unknown cells: no row is left out
        columns = [column.model_copy(update={"on_unknown": "other", "outside": "clip"}) for column in schema.columns]
        schema = replace(schema, columns=tuple(columns), rows=rows)
    found = SimpleNamespace(
        schema=schema,
        model=model,
        measurements=measurements,
        recoding=recoding or Recoding.identity(),
        receipt=SimpleNamespace(budget=SimpleNamespace(capacity=1), charges=()),
        **{"rounds": [], "mechanism": "mst", **more},
    )
    found.corrected = CorrectedTables(found)
    found.gaps = Gaps(found, found.corrected)
    return found


def joint(shares: Any, **sizes: int) -> GraphicalModel:
    return GraphicalModel(us.Domain(sizes), {tuple(sizes): np.log(np.asarray(shares))}, total=100.0)


def binary(shares: Any = NOISY / 100, more: tuple[Measurement, ...] = (), **options: Any) -> Any:
    pair = Measurement(("a", "b"), NOISY.reshape(-1), 2.0)
    return release_of(joint(shares, a=2, b=2), [pair, *more], **options)


# -- the worked numbers of the method


@pytest.mark.parametrize("shares", [NOISY / 100, CLOSE], ids=["exact", "close"])
def test_a_share_of_a_measured_cell_is_its_noisy_count(shares):
    (line,) = infer(binary(shares), "share(a=0, b=0)").lines
    assert line.estimate == pytest.approx(0.30)
    assert line.se**2 == pytest.approx(3.04e-4)
    assert (line.privacy, line.sampling, line.model, line.p, line.df) == (1.0, 0.0, 0.0, None, None)
    assert (line.low, line.high) == pytest.approx((0.30 - 1.959964 * line.se, 0.30 + 1.959964 * line.se))


def test_a_public_number_of_rows_adds_no_variance():
    pair = Measurement(("a", "b"), np.array([[30, 10, 0], [5, 55, 0], [0, 0, 0]]).reshape(-1), 2.0)
    (line,) = infer(release_of(joint(np.full((3, 3), 1 / 9), a=3, b=3), [pair], rows=100), "share(a=0, b=0)").lines
    others = np.full(9, -0.3)
    others[0] = 0.7
    assert line.se**2 == pytest.approx(4e-4 * float(((others - others.mean()) ** 2).sum()))


def test_only_the_noise_of_the_differences_counts_if_the_number_of_rows_is_public(monkeypatch):
    monkeypatch.setattr(Schema, "rows_used", 100)
    (line,) = infer(binary(), "share(a=0, b=0)").lines
    assert line.se**2 == pytest.approx(3.00e-4)


def test_the_slope_of_two_binary_columns():
    slope = infer(binary(), "b ~ a", family="gaussian").lines[1]
    assert slope.estimate == pytest.approx(2 / 3)
    assert slope.se**2 == pytest.approx(2.5039e-3, rel=1e-4)
    drawn = infer(binary(), "b ~ a", family="gaussian", target="population").lines[1]
    assert drawn.se == pytest.approx(0.0920, rel=1e-3)
    assert drawn.privacy == pytest.approx(0.296, abs=1e-3)
    assert drawn.sampling * drawn.se**2 == pytest.approx(5.9606e-3, rel=1e-4)


def test_a_column_of_one_value_has_no_term_in_a_logistic_regression():
    pair = Measurement(("a", "b"), np.array([60, 40]), 0.5)
    (line,) = infer(release_of(joint([[0.6], [0.4]], a=2, b=1), [pair]), "a ~ C(b)").lines
    assert line.estimate == pytest.approx(np.log(0.4 / 0.6), rel=1e-6)


def test_several_looks_at_a_column_are_averaged():
    (line,) = infer(binary(more=(Measurement(("a",), np.array([41, 59]), 1.0),)), "share(a=0)").lines
    assert line.estimate == pytest.approx(0.40889, abs=1e-5)
    assert line.se**2 == pytest.approx(1e-4 * (1.77778 * (0.5 - 0.40889) ** 2 + 0.88889 / 2), rel=1e-4)
    assert line.se**2 == pytest.approx(4.622e-5, rel=0.01)  # about the model's share of 0.4 instead of the estimate


def test_a_relation_that_was_not_measured_widens_the_interval_and_warns():
    ones = [Measurement(("a",), np.array([40, 60]), 2.0), Measurement(("b",), np.array([35, 65]), 2.0)]
    model = ProductModel(us.Domain({"a": 2, "b": 2}), 100.0, {"a": np.array([0.4, 0.6]), "b": np.array([0.35, 0.65])})
    release = release_of(model, ones)
    with pytest.raises(SettingError, match=r"\(a, b\).*assume=0.1"):
        infer(release, "share(a=0, b=0)")
    found = infer(release, "share(a=0, b=0)", assume=0.05)
    (line,) = found.lines
    assert line.estimate == pytest.approx(0.14)
    assert line.privacy * line.se**2 == pytest.approx(6.01e-5, rel=0.01)
    assert line.se**2 == pytest.approx(1.966e-4, rel=1e-3)
    assert line.df == pytest.approx(16.6, abs=0.05)
    assert (line.low, line.high) == pytest.approx((0.110, 0.170), abs=5e-4)
    assert "not measured: (a, b)" in found.warnings[0]
    assert "keep=[('a', 'b')]" in found.warnings[0]


@pytest.mark.parametrize("share", [0.5, 0.4])
def test_the_share_of_a_merged_value_is_what_was_measured_before_merging(share):
    recoding = Recoding({"a": np.array([0, 1, 1])})
    model = ProductModel(us.Domain({"a": 2}), 100.0, {"a": np.array([share, 1 - share])})
    release = release_of(model, [Measurement(("a",), np.array([50, 30, 20]), 2.0)], recoding=recoding)
    (line,) = infer(release, "share(a=1)").lines
    assert line.estimate == pytest.approx(0.30)
    assert line.se**2 == pytest.approx(2.68e-4, rel=2e-3)


def test_merged_numbers_may_be_related_as_much_as_the_others(monkeypatch):
    true = np.array([[80, 20, 5, 5], [20, 80, 5, 5], [5, 5, 40, 40], [2, 2, 3, 70], [2, 2, 70, 3]])
    merged = np.array([*true[:3], true[3] + true[4]])
    counts = [Measurement(("b", "a"), merged.reshape(-1), 1.0), Measurement(("b",), true.sum(axis=1), 1.0)]
    model = joint(merged / merged.sum(), b=4, a=4)
    release = release_of(model, counts, recoding=Recoding({"b": np.array([0, 1, 2, 3, 3])}))
    (line,) = infer(release, "corr(a, b)").lines
    b, a = np.indices((3, 4)).reshape(2, 12)
    others = np.corrcoef(np.repeat(b, true[:3].reshape(-1)), np.repeat(a, true[:3].reshape(-1)))[0, 1]
    assert others > 0.5
    module = importlib.import_module("understudy.release.inference.infer")
    monkeypatch.setattr(module, "_find_relation_within", lambda *_: 0.2)
    (usual,) = infer(release, "corr(a, b)").lines
    assert usual.model > 0
    assert line.model * line.se**2 == pytest.approx(usual.model * usual.se**2 * (others / 0.2) ** 2)


def test_merged_values_keep_their_own_share_in_larger_tables():
    """Also a value to which the rows of the merged code are never given: noise left nothing of it."""
    recoding = Recoding({"a": np.array([0, 1, 1, 1])})
    measured = [
        Measurement(("a",), np.array([500, 60, 50, -90]), 20.0),
        Measurement(("a", "b"), np.array([300, 200, 20, 10]), 5.0),
    ]
    tables = release_of(joint([[0.5, 0.4], [0.06, 0.04]], a=2, b=2), measured, recoding=recoding).corrected
    alone = tables.table(("a",))
    assert tables.table(("a", "b")).sum(axis=1) == pytest.approx(alone)
    assert alone[1:].sum() == pytest.approx(tables.table(("a", "b"))[1:].sum())
    assert alone[3] < 0 < alone[1]
    values = np.arange(8.0).reshape(4, 2)
    values = values - float((values * tables.table(("a", "b"))).sum())
    one = tables.uncertainty({("a", "b"): values[None]})
    assert one.noise[0, 0] > 0
    assert one.merged[("a", "b")][0] == pytest.approx(0.0, abs=1e-9)  # a sum of functions of a and of b


def test_combining_rules():
    given = {"estimates": [1.0, 1.2, 0.9, 1.1], "variances": [0.01] * 4}
    one = us.combine(**given, rule="reiter")
    assert (one.se**2, one.df) == pytest.approx((0.014167, 34.68), rel=1e-4)
    two = us.combine(**given, rule="raghunathan")
    assert (two.se**2, two.df) == pytest.approx((0.010833, 0.811), rel=1e-3)
    three = us.combine(given["estimates"], rule="replicates", centre=1.0)
    assert (three.estimate, three.se**2, three.df) == pytest.approx((1.0, 1.25 / 60, 3))
    assert "were measured" in three.condition


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"estimates": [1.0], "rule": "reiter"}, "at least two"),
        ({"estimates": ["x", "y"], "rule": "reiter"}, "at least two"),
        ({"estimates": [1.0, 2.0], "rule": "rubin"}, "unknown"),
        ({"estimates": [1.0, 2.0], "rule": "replicates"}, "centre"),
        ({"estimates": [1.0, 2.0], "variances": [1.0], "rule": "reiter"}, "at least two"),
        ({"estimates": [1.0, 1.1], "variances": [9.0, 9.0], "rule": "raghunathan"}, "negative"),
        ({"estimates": [1.0, 2.0], "variances": [1.0, 1.0], "rule": "reiter", "confidence": 95}, "confidence"),
    ],
)
def test_combining_refuses(given, message):
    with pytest.raises(SettingError, match=message):
        us.combine(**given)


# -- against brute force: the best linear unbiased estimate, found by weighted least squares over all measurements


def test_estimates_of_measured_tables_are_the_best_linear_unbiased_ones():
    rng = np.random.default_rng(1)
    sizes = {"a": 3, "b": 2, "c": 4}
    cliques = [("a",), ("a", "b"), ("b", "c"), ("a", "b", "c"), ("c",), ("a", "b")]
    true = rng.integers(5, 200, (3, 2, 4)).astype(float)
    axes = {column: axis for axis, column in enumerate(sizes)}
    measured, rows, values, weights = [], [], [], []
    for clique in cliques:
        sigma = float(rng.uniform(2, 6))
        others = tuple(axes[c] for c in sizes if c not in clique)
        noisy = np.rint(true.sum(axis=others) + rng.normal(0, sigma, [sizes[c] for c in clique]))
        measured.append(Measurement(clique, noisy.reshape(-1), sigma))
        sums = np.array([np.eye(24)[i].reshape(3, 2, 4).sum(axis=others).reshape(-1) for i in range(24)]).T
        rows.append(sums / sigma)
        values.append(noisy.reshape(-1) / sigma)
        weights.append(sigma)
    matrix, answers = np.concatenate(rows), np.concatenate(values)
    best = np.linalg.lstsq(matrix, answers, rcond=None)[0].reshape(3, 2, 4)
    release = release_of(joint(rng.dirichlet(np.ones(24)).reshape(3, 2, 4), a=3, b=2, c=4), measured)
    tables = release.corrected
    assert tables.table(("a", "b", "c")) * tables.rows == pytest.approx(best)
    assert tables.table(("a", "c")) * tables.rows == pytest.approx(best.sum(axis=1))
    assert tables.rows == pytest.approx(best.sum())
    inverse = np.linalg.inv(matrix.T @ matrix)
    function = rng.normal(size=(3, 2, 4))
    function -= float((function * best).sum() / best.sum())
    noise = tables.uncertainty({("a", "b", "c"): function[None]}).noise[0, 0]
    assert noise == pytest.approx(function.reshape(-1) @ inverse @ function.reshape(-1) / tables.rows**2)


def test_what_does_not_depend_on_an_unmeasured_relation_is_the_same_in_a_larger_table():
    pairs = [Measurement(pair, np.array([40, 20, 10, 30]) + n, 2.0) for n, pair in enumerate([("a", "b"), ("b", "c")])]
    release = release_of(joint(np.random.default_rng(2).dirichlet(np.ones(8)).reshape(2, 2, 2), a=2, b=2, c=2), pairs)
    tables = release.corrected
    whole = tables.table(("a", "b", "c"))
    for pair in (("a", "b"), ("b", "c")):
        axis = next(i for i, column in enumerate("abc") if column not in pair)
        assert whole.sum(axis=axis) == pytest.approx(tables.table(pair), abs=1e-7)
    small = np.array([[1.0, 0.0], [0.0, 0.0]])[None] - tables.table(("a", "b"))[0, 0]
    large = np.repeat(small[..., None], 2, axis=-1)
    one, two = tables.uncertainty({("a", "b"): small}), tables.uncertainty({("a", "b", "c"): large})
    assert two.noise == pytest.approx(one.noise)
    assert two.gaps[("a", "b", "c")] == pytest.approx([0.0], abs=1e-9)


# -- regressions agree with the usual ones where there is next to no noise


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    rows = 20_000
    region, age = rng.choice(3, rows, p=[0.5, 0.3, 0.2]), rng.integers(0, 30, rows)
    sex = rng.integers(0, 2, rows)
    hours = np.clip(np.rint(age / 3 + 2 * region + rng.normal(0, 2, rows)), 0, 15).astype(int)
    rich = rng.random(rows) < 1 / (1 + np.exp(2 - 0.08 * age - 0.7 * sex))
    return pd.DataFrame({"region": region, "age": age, "sex": sex, "hours": hours, "rich": rich.astype(int)})


@pytest.fixture(scope="module")
def precise(people) -> us.Release:
    sizes = {"region": 3, "age": 30, "sex": 2, "hours": 16, "rich": 2}
    keep = [*combinations(("region", "age", "hours"), 2), ("age", "sex", "rich"), ("sex", "hours")]
    return us.synthesize(people, Schema.from_domain(sizes), rho=2000.0, mechanism="mst", keep=keep, threshold=0.0)


def test_least_squares(precise, people):
    found = precise.infer("hours ~ age + C(region)")
    design = np.column_stack([np.ones(len(people)), people.age, people.region == 1, people.region == 2])
    true = np.linalg.lstsq(design, people.hours.to_numpy(float), rcond=None)[0]
    assert [line.term for line in found.lines] == ["Intercept", "age", "C(region)[T.1]", "C(region)[T.2]"]
    assert [line.estimate for line in found.lines] == pytest.approx(true, abs=0.02)
    assert not found.warnings
    drawn = precise.infer("hours ~ age + C(region)", target="population")
    rest = people.hours - design @ true
    bread = np.linalg.inv(design.T @ design)
    robust = np.sqrt(np.diag(bread @ ((design * (rest**2).to_numpy()[:, None]).T @ design) @ bread))
    assert [line.se for line in drawn.lines] == pytest.approx(robust, rel=0.05)


def test_logistic_regression(precise, people):
    import statsmodels.api as sm

    found = precise.infer("rich ~ age + sex", target="population")
    usual = sm.Logit(people.rich, sm.add_constant(people[["age", "sex"]])).fit(disp=0)
    assert [line.estimate for line in found.lines] == pytest.approx(usual.params.tolist(), abs=0.01)
    assert [line.se for line in found.lines] == pytest.approx(usual.bse.tolist(), rel=0.05)
    assert found.method == "logistic regression of rich"


def test_means_shares_correlations_and_parts_of_the_table(precise, people):
    by_region = people.groupby("region").age.mean()
    assert [x.estimate for x in precise.infer("mean(age) | region").lines] == pytest.approx(
        by_region.tolist(), abs=0.05
    )
    assert precise.infer("corr(age, hours)").lines[0].estimate == pytest.approx(people.age.corr(people.hours), abs=0.01)
    women = people[people.sex == 1]
    assert precise.infer("age ~ 1", where="sex=1").lines[0].estimate == pytest.approx(women.age.mean(), abs=0.05)
    share = precise.infer("share(rich=1, age=..9) | sex").lines[1]
    assert share.term == "share(rich=1, age=..9) | sex=1"
    assert share.estimate == pytest.approx(((women.rich == 1) & (women.age < 10)).mean(), abs=0.01)


def test_independence(precise, people):
    from scipy.stats import chi2_contingency

    found = precise.infer("chisq(region, hours)").lines[0]
    assert found.p < 1e-6
    usual = chi2_contingency(pd.crosstab(people.sex, people.hours), correction=False)
    tested = precise.infer("chisq(sex, hours)").lines[0]
    assert tested.estimate == pytest.approx(usual.statistic, rel=0.25)
    assert tested.df == pytest.approx(usual.dof, rel=0.1)


# -- noise, seen many times: what is stated is what happens


def test_standard_errors_are_those_of_the_noise():
    """100 drawings of the noise: the mean square of z is within 5 standard deviations of 1."""
    rng = np.random.default_rng(5)
    true = np.array([[300, 120, 80], [150, 250, 100]])
    numbers, groups = np.arange(3.0), true.sum(axis=1)
    slope = (true @ numbers / groups)[1] - (true @ numbers / groups)[0]
    squares = []
    for _ in range(100):
        noisy = true + np.rint(rng.normal(0, 8, true.shape))
        model = joint(np.maximum(noisy, 1) / np.maximum(noisy, 1).sum(), a=2, b=3)
        line = infer(release_of(model, [Measurement(("a", "b"), noisy.reshape(-1), 8.0)]), "b ~ a").lines[1]
        squares.append(((line.estimate - slope) / line.se) ** 2)
    assert 0.3 < float(np.mean(squares)) < 1.7


def test_laplace_noise_has_longer_tails():
    table = Measurement(("a", "b"), NOISY.reshape(-1), 2.0, noise="laplace")
    (line,) = infer(release_of(joint(NOISY / 100, a=2, b=2), [table]), "share(a=0, b=0)").lines
    assert (line.high - line.estimate) / line.se == pytest.approx(2.1183, abs=1e-4)


# -- mechanisms, files and the command line


@pytest.mark.parametrize(
    "mechanism", ["mst", "aim", "adaptive", "privsyn", "privbayes", "independent", "mwem", "gaussian"]
)
def test_every_mechanism_answers_or_says_why_not(mechanism, people, tmp_path):
    schema = Schema.from_domain({"region": 3, "age": 30, "sex": 2, "hours": 16, "rich": 2})
    path = tmp_path / "people.release"
    us.synthesize(people, schema, epsilon=2.0, delta=1e-9, mechanism=mechanism).save(path)
    release = us.Release.load(path)
    share = release.infer("share(sex=1)").lines[0]
    assert share.low < people.sex.mean() < share.high
    for asked in ("hours ~ age", "share(rich=1) | region", "corr(age, hours)"):
        if mechanism == "independent":
            with pytest.raises(SettingError, match="not measured"):
                release.infer(asked)
        found = release.infer(asked, assume=0.1 if mechanism in ("independent", "privbayes") else None)
        assert all(line.low <= line.estimate <= line.high for line in found.lines)


def test_rounds_and_scores_say_how_strong_a_missed_relation_may_be(people):
    schema = Schema.from_domain({"region": 3, "age": 30, "sex": 2, "hours": 16, "rich": 2})
    for mechanism in ("mst", "aim", "privsyn"):
        release = us.synthesize(people, schema, epsilon=2.0, delta=1e-9, mechanism=mechanism)
        known = release.gaps.correlation(("region", "sex"))
        assert known is not None
        assert 0.03 <= known < 0.6


@pytest.mark.parametrize("mechanism", ["privmrf", "privbayes", "rap"])
def test_pairs_that_other_mechanisms_chose_are_no_tree(mechanism):
    """A pair that lost against others in some other way says nothing; its intervals held in 27 % of cases once."""
    pairs = [Measurement(pair, np.array([30, 20, 20, 30]), 2.0) for pair in (("a", "b"), ("b", "c"))]
    rounds = [{"chosen": ["a", "b"]}, {"chosen": ["b", "c"]}]
    model = joint(np.full((2, 2, 2), 1 / 8), a=2, b=2, c=2)
    assert release_of(model, pairs, rounds=rounds).gaps.correlation(("a", "c")) is not None
    with pytest.raises(SettingError, match=r"\(a, c\).*does not say how strong.*assume=0.1"):
        infer(release_of(model, pairs, rounds=rounds, mechanism=mechanism), "corr(a, c)")


def test_the_distance_of_binary_columns_is_their_correlation_times_twice_their_deviations():
    shares = np.array([[0.6, 0.1], [0.1, 0.2]])
    noisy = (100 * shares).astype(int)
    pairs = [Measurement(("a", "b"), noisy.reshape(-1), 2.0), Measurement(("c",), np.array([40, 60]), 2.0)]
    scores = {"scored": [["a", "b"], ["a", "c"], ["b", "c"]], "scores": [0, 30, 0], "scores_sigma": 4.0}
    table = np.multiply.outer(shares, [0.4, 0.6])
    release = release_of(joint(table, a=2, b=2, c=2), pairs, rounds=[scores])
    spread = (2 * np.sqrt(0.7 * 0.3)) * (2 * np.sqrt(0.4 * 0.6))
    assert release.gaps.correlation(("a", "c")) == pytest.approx(0.34 / (2.5 * spread), rel=1e-3)


def test_columns_of_nearly_one_value_have_small_distances():
    """Fire's City: 98.6 % of the rows have one of its 9 values; its intervals held in 78 % of cases once."""
    city, district = np.array([0.96, 0.02, 0.01, 0.01]), np.full(4, 0.25)
    ones = [Measurement(("a",), (100 * city).astype(int), 2.0), Measurement(("b",), (100 * district).astype(int), 2.0)]
    scores = {"scored": [["a", "b"]], "scores": [10], "scores_sigma": 4.0}
    release = release_of(joint(np.outer(city, district), a=4, b=4), ones, rounds=[scores])
    spread = np.sqrt(2 * (1 - (city**2).sum()))
    assert spread < 0.4
    assert release.gaps.correlation(("a", "b")) == pytest.approx(0.14 / (2.5 * spread), rel=1e-3)


def test_a_pair_that_lost_every_selection_is_at_most_as_wrong_as_the_score_of_the_last_one_allows():
    """Worked numbers: the model expected (25, 25, 25, 25) of the chosen pair and 24 ones of noise were added to 60."""
    even = np.full((2, 2, 2), 1 / 8)
    ones = [Measurement((column,), np.array([50, 50]), 2.0) for column in "abc"]
    pair = Measurement(("a", "b"), np.array([45, 5, 5, 45]), 5.0)
    entry = {
        "measured": 1, "share": 0.5, "chosen": ["a", "b"], "epsilon": 2.0, "sensitivity": 3.0,
        "candidates": np.array([0, 1]), "offsets": np.array([8.0, 6.0]), "last": np.array([0, 1]),
        "kind": "graphical", "model": joint(even, a=2, b=2, c=2).to_arrays(),
    }  # fmt: skip
    first = {"measured": 3, "share": 0.5, "cliques": [["a", "b"], ["a", "c"]], "weights": np.array([1.0, 2.0])}
    release = release_of(joint(even, a=2, b=2, c=2), [*ones, pair], rounds=[first, entry], mechanism="aim")
    error = np.sqrt(80.0**2 - (np.sqrt(2 / np.pi) * 5 * 4) ** 2)  # of 4 * 20 rows, the noise explains some
    distance = (6 + (error - 8 + 3) / 2) / 100
    assert release.gaps.correlation(("a", "c")) == pytest.approx(distance / 2.5, rel=1e-3)
    assert release.gaps.correlation(("b", "c")) is None  # never a candidate
    release.rounds[0]["cliques"][1] = ["a", "b", "c"]  # a pair is at most as wrong as a clique that contains it
    assert Gaps(release, release.corrected).correlation(("b", "c")) == pytest.approx(distance / 2.5, rel=1e-3)


def test_a_pair_of_too_many_cells_to_be_a_candidate_is_not_judged(people):
    schema = Schema.from_domain({"region": 3, "age": 30, "sex": 2, "hours": 16, "rich": 2})
    release = us.synthesize(people, schema, epsilon=1.0, delta=1e-9, mechanism="aim", max_cells=400)
    assert release.gaps.correlation(("region", "rich")) is not None
    with pytest.raises(SettingError, match=r"\(age, hours\).*does not say how strong.*assume=0.1"):
        release.infer("corr(age, hours)")
    (line,) = release.infer("corr(age, hours)", assume=0.9).lines
    assert line.low < people.age.corr(people.hours) < line.high


# -- pairs that were chosen because of the rows


def chance_beyond(reach: float, part: float, candidates: float) -> float:
    """P(|sqrt(part) Z1 + sqrt(1 - part) Z2| > reach), given that |Z1| is among the largest 1 / candidates."""
    least = stats.norm.isf(0.5 / candidates)
    size = np.linspace(least, least + 10, 4001)
    rest = max(1 - part, 1e-12) ** 0.5
    beyond = stats.norm.sf((reach - part**0.5 * size) / rest) + stats.norm.sf((reach + part**0.5 * size) / rest)
    return float(np.trapezoid(2 * candidates * stats.norm.pdf(size) * beyond, size))


@given(st.floats(0.01, 0.99), st.floats(1.0, 300.0), st.sampled_from([0.9, 0.95, 0.99]))
def test_intervals_of_the_most_extreme_pairs_hold(part, candidates, confidence):
    """However much of the variance is sampling, and however few of the candidates were chosen."""
    usual = stats.norm.isf((1 - confidence) / 2)
    wider = widen_sampling(np.array([1 - part]), np.array([part]), candidates, confidence)[0]
    assert wider >= part * (1 - 1e-12)
    assert chance_beyond(usual * np.sqrt(1 - part + wider), part, candidates) <= (1 - confidence) * 1.005


def test_without_it_the_most_extreme_of_twenty_pairs_is_significant_twice_as_often():
    assert chance_beyond(1.959964, 0.1, 20) > 0.1
    assert chance_beyond(1.959964, 0.9, 20) > 0.6
    wider = widen_sampling(np.array([0.9]), np.array([0.1]), 20, 0.95)[0]
    c = stats.norm.isf(0.025)
    assert wider == pytest.approx(0.1 * (1 + 2 * 20 * c * stats.norm.pdf(c)))


def test_only_the_sampling_error_of_chosen_pairs_is_widened():
    sizes = dict.fromkeys("abcd", 2)
    pairs = [Measurement(pair, np.array([30, 20, 20, 30]), 2.0) for pair in (("a", "b"), ("b", "c"), ("c", "d"))]
    tree = [{"chosen": ["a", "b"]}, {"chosen": ["c", "d"]}]  # b and c are in `keep`
    release = release_of(joint(np.full((2,) * 4, 1 / 16), **sizes), pairs, rounds=tree)
    fixed = release_of(joint(np.full((2,) * 4, 1 / 16), **sizes), pairs, rounds=[{"chosen": ["a", "d"]}])
    asked = ("corr(a, b)", "corr(b, c)", "mean(a)")
    drawn, plain = ([infer(r, q, target="population").lines[0] for q in asked] for r in (release, fixed))
    own = [line.se**2 * line.sampling for line in drawn]
    usual = [line.se**2 * line.sampling for line in plain]
    assert own[1:] == pytest.approx(usual[1:])
    noise = plain[0].se ** 2 * plain[0].privacy
    assert own[0] == pytest.approx(widen_sampling(np.array([noise]), np.array([usual[0]]), 3.0, 0.95)[0])
    assert own[0] > 1.5 * usual[0]
    assert drawn[0].p > plain[0].p
    assert infer(release, asked[0]).lines[0].se == pytest.approx(infer(fixed, asked[0]).lines[0].se)
    tests = [infer(r, "chisq(a, b)").lines[0] for r in (release, fixed)]
    assert tests[0].estimate == tests[1].estimate
    assert tests[0].p == pytest.approx(min(3 * tests[1].p, tests[0].p))
    assert tests[0].p > 1.5 * tests[1].p


def test_tables_of_a_model_need_not_agree_with_each_other():
    """A model made of rows has other margins in a larger table than in the table of a measured pair."""

    class Rows(GraphicalModel):
        def project(self, clique: Any) -> Any:
            found = super().project(clique)
            return np.full_like(found, found.sum() / found.size) if len(clique) == 3 else found

    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.ones(8)).reshape(2, 2, 2)
    columns = ("a", "b", "c")
    noisy = {pair: 100 * shares.sum(axis=3 - sum(map(columns.index, pair))) for pair in combinations(columns, 2)}
    measured = [Measurement(pair, np.rint(counts).astype(int).reshape(-1), 2.0) for pair, counts in noisy.items()]
    model = Rows(us.Domain(dict.fromkeys(columns, 2)), {columns: np.log(shares)}, total=100.0)
    tables = release_of(model, measured).corrected
    together = tables.table(columns)
    for pair in noisy:
        other = 3 - sum(map(columns.index, pair))
        np.testing.assert_allclose(together.sum(axis=other), tables.table(pair), atol=1e-6)


def test_missing_values_rare_values_and_bins():
    rng = np.random.default_rng(7)
    rows = 8000
    frame = pd.DataFrame(
        {
            "income": np.where(rng.random(rows) < 0.2, np.nan, rng.gamma(3, 900, rows).round()),
            "town": rng.choice(["Aldham", "Bourne", "x", "y", "z"], rows, p=[0.6, 0.397, 0.001, 0.001, 0.001]),
        }
    )
    content = {
        "fields": [
            {"name": "income", "type": "integer", "constraints": {"minimum": 0, "maximum": 9999}},
            {"name": "town", "type": "string", "constraints": {"enum": ["Aldham", "Bourne", "x", "y", "z"]}},
        ],
        "understudy": {"privacy_unit": "row"},
    }
    for field in content["fields"]:
        field["understudy"] = {"status": "reviewed"}
    schema = Schema.from_dict(content)
    release = us.synthesize(frame, schema, epsilon=5.0, delta=1e-9, mechanism="mst", keep=[("income", "town")])
    mean = release.infer("mean(income)").lines[0]
    assert mean.low - 20 < frame.income.clip(0, 9999).mean() < mean.high + 20
    found = release.infer("mean(income) | town")
    assert [line.term for line in found.lines] == [f"mean(income) | town={t}" for t in ("Aldham", "Bourne", "(rare)")]
    assert found.lines[2].estimate is None
    assert "too few rows" in found.warnings[0]
    aldham = release.infer("I(town == 'Aldham') ~ 1", family="gaussian").lines[0]
    assert aldham.low < 0.6 < aldham.high + 0.02


@pytest.fixture(scope="module")
def years() -> pd.DataFrame:
    """Numbers far from 0, of which one in a thousand is missing, and incomes in bins."""
    rng = np.random.default_rng(8)
    rows = 40_000
    year, sex = rng.integers(1990, 2021, rows).astype(float), rng.choice(["F", "M"], rows)
    hours = np.clip(np.rint(year - 1990 + 4 * (sex == "F") + rng.normal(0, 5, rows)), 0, 50)
    frame = pd.DataFrame({"year": year, "hours": hours, "sex": sex, "income": 90 * hours})
    return frame.mask(rng.random(frame.shape) < [0.001, 0.001, 0.0015, 0])


@pytest.fixture(scope="module")
def dated(years) -> us.Release:
    number = {"year": (1990, 2020), "hours": (0, 50), "income": (0, 9999)}
    bounds = {name: {"minimum": low, "maximum": high} for name, (low, high) in number.items()}
    fields = [{"name": name, "type": "integer", "constraints": limits} for name, limits in bounds.items()]
    fields.append({"name": "sex", "type": "string", "constraints": {"enum": ["F", "M"]}})
    content = {
        "fields": [field | {"understudy": {"status": "reviewed"}} for field in fields],
        "understudy": {"privacy_unit": "row"},
    }
    keep = list(combinations(("year", "hours", "sex"), 2))
    return us.synthesize(years, Schema.from_dict(content), rho=500.0, mechanism="mst", keep=keep, threshold=0.0)


@pytest.mark.parametrize(
    ("asked", "terms"),
    [
        ("mean(year)", []),
        ("mean(year) | sex", []),
        ("corr(year, hours)", []),
        ("hours ~ year", ["year"]),
        ("year ~ hours", ["hours"]),
        ("hours ~ year + C(sex)", ["year", "C(sex)[T.M]"]),
    ],
)
def test_few_missing_values_of_numbers_far_from_zero_are_left_out(dated, years, asked, terms):
    """They counted as the year 0 once, which moved the mean by 2 years and the slope to nearly 0."""
    import statsmodels.formula.api as smf

    found = {line.term: line for line in dated.infer(asked).lines}
    if terms:
        usual = smf.ols(asked, years).fit().params
        true = {term: usual[term] for term in terms}
    elif asked.startswith("corr"):
        true = {asked: years.year.corr(years.hours)}
    else:
        groups = {"": years.year.mean()} if "|" not in asked else years.groupby("sex").year.mean().to_dict()
        true = {f"{asked}={group}" if group else asked: mean for group, mean in groups.items()}
    for term, value in true.items():
        filled = 0.002 * abs(value) if "+" in asked else 0.0  # a regression of three columns gives them the mean
        assert abs(found[term].estimate - value) < 6 * found[term].se + filled
        assert found[term].se < 0.02 * max(abs(value), 1)


def test_nothing_is_known_within_bins(dated, years):
    with pytest.raises(SettingError, match=r"where: .*'income' cuts through the bin 0 to 99"):
        dated.infer("mean(year)", where="income=0")
    assert not dated.infer("share(income=..899)").warnings
    found = dated.infer("share(income=..850)")
    (line,), true = found.lines, (years.income <= 850).mean()
    ends = [dated.infer(f"share(income=..{end})").lines[0] for end in (799, 899)]
    assert (line.low, line.high) == (ends[0].low, ends[1].high)
    assert line.low < true < line.high
    assert abs(line.estimate - true) > 10 * line.se
    assert "cuts through the bin 800 to 899" in found.warnings[0]
    with pytest.raises(SettingError, match=r"'I\(income == 0\)' is 0 for all values of income.*mean of its bin"):
        dated.infer("year ~ I(income == 0)")


def test_numbers_are_printed_down_to_the_second_digit_of_their_standard_error(dated):
    shown = str(dated.infer("mean(year)")).splitlines()[2].split()
    assert shown[1].startswith("2005.") or shown[1].startswith("2004.")
    assert float(shown[3]) < float(shown[1]) < float(shown[4])


def test_no_end_of_an_interval_lies_beyond_what_is_possible():
    (line,) = infer(binary(more=(Measurement(("a",), np.array([-60, 160]), 1.0),)), "share(a=0)").lines
    assert (line.low, line.high) == (0.0, 0.0)


def test_the_command_line(precise, tmp_path):
    precise.save(tmp_path / "people.release")
    run = CliRunner().invoke(app, ["infer", str(tmp_path / "people.release"), "hours ~ age", "--population", "--json"])
    data = json.loads(run.stdout)
    assert (data["target"], [line["term"] for line in data["lines"]]) == ("population", ["Intercept", "age"])
    shown = CliRunner().invoke(app, ["infer", str(tmp_path / "people.release"), "mean(age) | sex", "--where", "rich=1"])
    assert "mean(age) | sex=0" in shown.stdout
    assert precise.infer("hours ~ age").to_frame().loc["age", "estimate"] > 0
    assert str(precise.infer("hours ~ age")).splitlines()[1].split()[:3] == ["term", "estimate", "se"]


# -- bad input


@pytest.mark.parametrize(
    ("asked", "options", "message"),
    [
        ("hours ~ wage", {}, "'wage' does not exist; the columns are region"),
        ("hours ~ hours", {}, "the response 'hours' is also a term"),
        ("", {}, "is not a statistic"),
        ("hello", {}, "is not a statistic"),
        ("hours ~ age +", {}, "not a formula"),
        ("hours ~ (age", {}, "not a formula"),
        ("~ age", {}, "response"),
        ("C(region) ~ age", {}, r"'C\(region\)' has 3 values; choose one of them, as in I\(region =="),
        ("hours + rich ~ age", {}, "one response"),
        ("hours ~ age + I(2 * age)", {}, r"I\(2 \* age\).*follows from"),
        ("hours ~ __import__('os')", {}, "not allowed"),
        ("hours ~ age.mean()", {}, "not allowed"),
        ("hours ~ C(age, 3)", {}, "not allowed"),
        ("hours ~ (lambda: 1)()", {}, "not"),
        ("hours ~ log(age)", {}, "infinite"),
        ("hours ~ I(sex == 'F')", {}, "'F' is not a value of sex"),
        ("hours ~ age", {"family": "poisson"}, "family"),
        ("hours ~ age", {"family": "binomial"}, "other values than 0 and 1"),
        ("hours ~ age", {"target": "world"}, "target"),
        ("hours ~ age", {"confidence": 95}, "confidence"),
        ("hours ~ age", {"assume": 2}, "assume"),
        ("hours ~ age", {"where": "wage=3"}, "'wage'"),
        ("corr(age)", {}, r"corr: write corr\(age, hours\)"),
        ("corr(age, age)", {}, "corr: write"),
        ("chisq(sex, region) | rich", {}, "chisq: write"),
        ("chisq(region, sex)", {}, "not measured together"),
        ("mean(wage) | sex", {}, "'wage'"),
        ("share(sex=9)", {}, "sex"),
        ("median(age)", {}, "is not a statistic"),
        (3, {}, "as text"),
    ],
)
def test_refused_with_the_remedy(precise, asked, options, message):
    with pytest.raises(SettingError, match=message):
        precise.infer(asked, **options)


def test_a_term_of_too_many_levels_is_refused():
    model = ProductModel(us.Domain({"a": 10_000, "b": 2}), 9.0, {"a": np.full(10_000, 1e-4), "b": np.array([0.5, 0.5])})
    ones = [Measurement(("a",), np.ones(10_000), 2.0), Measurement(("b",), np.array([5000, 5000]), 2.0)]
    with pytest.raises(SettingError, match=r"'a' has 10000 levels"):
        infer(release_of(model, ones), "b ~ C(a)")


def test_a_column_whose_values_were_all_merged_is_refused():
    recoding = Recoding({"b": np.array([0, 0, 0])})
    counts = [Measurement(("a",), np.array([40, 60]), 2.0), Measurement(("b",), np.array([50, 30, 20]), 2.0)]
    release = release_of(joint([[0.4], [0.6]], a=2, b=1), counts, recoding=recoding)
    with pytest.raises(SettingError, match="all values of column 'b' were merged"):
        infer(release, "a ~ C(b)")


def test_a_group_that_the_noise_hides_is_refused():
    table = Measurement(("a", "b"), np.array([900, 700, 20, 10]), 8.0)
    release = release_of(joint([[0.55, 0.43], [0.01, 0.01]], a=2, b=2), [table])
    with pytest.raises(SettingError, match="too few rows differ in 'a'"):
        infer(release, "b ~ a", family="gaussian")
    with pytest.raises(SettingError, match="too few rows"):
        infer(release, "b ~ a")
    found = infer(release, "mean(b) | a")
    assert [line.estimate is None for line in found.lines] == [False, True]


def separated(successes: list[int], failures: list[int]) -> Any:
    """A number from 0 to 4 and an outcome that all rows have where the number is not 0; noise is left of the others."""
    counts = np.array([failures, successes]).T
    shares = np.maximum(counts, 0.5) / np.maximum(counts, 0.5).sum()
    model = joint(shares, number=len(counts), outcome=2)
    return release_of(model, [Measurement(("number", "outcome"), counts.reshape(-1), 8.0)])


def test_a_logistic_regression_without_a_finite_solution_is_refused():
    release = separated([500, 400, 500, 450, 380], [900, 6, -3, 9, 4])
    with pytest.raises(SettingError, match=r"where 'number' differs, too few rows have, or lack, outcome"):
        infer(release, "outcome ~ number")
    with pytest.raises(SettingError, match=r"'C\(number\)\[T.4\]' too few rows have, or lack, outcome"):
        infer(release, "outcome ~ C(number)")
    assert infer(release, "outcome ~ number", family="gaussian").lines[1].low > 0
    found = infer(separated([500, 400, 500, 450, 380], [900, 200, 180, 90, 60]), "outcome ~ number")
    assert 0.3 < found.lines[1].low < found.lines[1].high < 1.2


def test_values_outside_of_the_condition_are_no_levels():
    counts = np.array([[1, -2], [30, 60], [55, 20]])
    release = release_of(joint(np.maximum(counts, 0.1), a=3, b=2), [Measurement(("a", "b"), counts.reshape(-1), 2.0)])
    with pytest.raises(SettingError, match=r"the first group of a too few rows.*where"):
        infer(release, "b ~ C(a)")
    found = infer(release, "b ~ C(a)", where="a=1..2")
    assert [line.term for line in found.lines] == ["Intercept", "C(a)[T.2]"]
    assert found.lines[1].estimate == pytest.approx(np.log((20 / 55) / (60 / 30)), rel=0.02)


def test_dropped_columns_and_several_rows_of_a_person_are_named(precise):
    from understudy.schema.column import Dropped

    schema = replace(precise.schema, columns=(*precise.schema.columns, Dropped(name="name")))
    with pytest.raises(SettingError, match="'name' is not in the release"):
        infer(replace(precise, schema=schema), "hours ~ name")
    several = replace(schema, privacy_unit=PrivacyUnit("name", 3))
    with pytest.raises(SettingError, match="rows of one 'name' are not independent"):
        infer(replace(precise, schema=several), "mean(hours)", target="population")
