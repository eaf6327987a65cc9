"""Every worked number of the metrics' published definitions."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.metric.disclosure import Settings as Disclosure
from understudy.metric.disclosure import disclosure
from understudy.metric.k_marginal import Settings as KMarginal
from understudy.metric.k_marginal import grouped_distance, k_marginal
from understudy.metric.mgd import Attribute, aemc, mgd
from understudy.metric.mgd import Settings as Marginals
from understudy.metric.ml_efficacy import Settings as Efficacy
from understudy.metric.ml_efficacy import ml_efficacy
from understudy.metric.nist_conjunctions import conjunction_score
from understudy.metric.nist_contest import Settings as Contest
from understudy.metric.nist_contest import nist_contest
from understudy.metric.nist_density import Settings as Density
from understudy.metric.nist_density import assign_buckets, nist_density
from understudy.metric.nist_income import Wages, compute_gini, income_scores
from understudy.metric.numbers import Settings as Numbers
from understudy.metric.numbers import numbers
from understudy.metric.pie_chart import jensen_shannon, pie_score
from understudy.metric.propensity import Settings as Propensity
from understudy.metric.propensity import (
    null_deviation,
    null_expectation,
    pmse,
    pmse_ratio,
    score_in_sample,
    specks,
    stack_tables,
)
from understudy.metric.range_queries import Settings as Ranges
from understudy.metric.range_queries import range_queries
from understudy.metric.tables import Answers, PairedCells, Rows
from understudy.metric.workload import Settings as Workload
from understudy.metric.workload import workload_error
from understudy.schema import Schema
from understudy.schema.categorical import Categorical


def rows_of(counts: list[int], schema: Schema) -> Rows:
    import pyarrow as pa

    values = np.repeat([f"v{code}" for code in range(len(counts))], counts)
    return Rows.of(pa.table({"a": values.tolist()}), schema)


def one_column(size: int) -> Schema:
    names = tuple(f"v{code}" for code in range(size))
    return Schema((Categorical(name="a", values=names, nullable=False, on_unknown="drop_row"),))


RNG = np.random.default_rng


def test_density_example() -> None:
    schema = one_column(4)
    real, made = rows_of([5, 3, 2, 0], schema), rows_of([4, 3, 2, 1], schema)
    score = nist_density(real, made, schema, Density(), RNG(0))
    assert score.value == pytest.approx(900_000)
    assert score.part("error", "mean half L1") == pytest.approx(0.1)


def test_density_buckets_are_a_little_wider_than_a_hundredth() -> None:
    values = np.array([0.0, 1.0, 1.0001, 99.99, 100.0, np.nan])
    assert assign_buckets(values, 0.0, 100.0).tolist() == [0, 0, 1, 99, 99, 100]


@pytest.mark.parametrize(
    ("real", "made", "rms", "score"),
    [
        ([0.1], [0.05], 0.693147, 0.899657e6),
        ([0.1], [0.0], 11.512925, 0.0),
        ([0.1, 0.02, 0.5], [0.09, 0.0, 0.55], 5.718370, 0.172181e6),
    ],
)
def test_conjunction_examples(real: list[float], made: list[float], rms: float, score: float) -> None:
    found = conjunction_score(np.array(real), np.array(made))
    assert found[0] == pytest.approx(rms, abs=1e-6)
    assert found[1] == pytest.approx(score, abs=1)


@pytest.mark.parametrize(("wages", "expected"), [((1, 1, 1, 1), 0.0), ((0, 0, 0, 1), 0.75), ((1, 2, 3), 0.222222)])
def test_the_scripts_gini_is_the_usual_one_shifted(wages: tuple[int, ...], expected: float) -> None:
    amounts = np.array(wages, dtype=float)
    assert compute_gini(amounts) == pytest.approx(expected - 1 / len(wages), abs=1e-6)


def test_gini_of_nothing_is_one() -> None:
    assert compute_gini(np.zeros(0)) == compute_gini(np.zeros(3)) == 1.0


def test_income_scores_by_hand() -> None:
    group = np.array([0, 0, 1, 1])
    real = Wages(group, np.array([0, 1, 0, 1]), np.array([30.0, 10.0, 20.0, 20.0]))
    assert income_scores(real, real) == pytest.approx((5e5, 5e5))
    swapped = Wages(group, np.array([1, 0, 0, 1]), np.array([30.0, 10.0, 20.0, 20.0]))
    inequality, gap = income_scores(real, swapped)
    assert inequality == pytest.approx(5e5)
    assert gap == 0.0  # two groups, both one place off out of one
    gone = Wages(np.array([0, 0]), np.array([0, 1]), np.array([30.0, 10.0]))
    inequality, gap = income_scores(real, gone)
    assert inequality == pytest.approx(5e5 * np.sqrt(1 / 2))
    # the group that is missing has a gap of 0 in the synthetic table and still ranks second
    assert gap == pytest.approx(5e5 * np.sqrt(1 / 2))


@pytest.mark.parametrize(
    ("real", "made", "value", "null", "ratio", "distance"),
    [
        ([60, 40], [50, 50], 0.00252525, 0.000625, 4.0404, 0.1),
        ([60, 40], [100, 100], 0.00198413, 0.000246914, 8.0357, 0.1),
    ],
)
def test_propensity_examples(
    real: list[int], made: list[int], value: float, null: float, ratio: float, distance: float
) -> None:
    schema = one_column(2)
    tables, settings = (rows_of(real, schema), rows_of(made, schema)), Propensity(models=("logistic",))
    assert pmse(*tables, schema, settings, RNG(0)).value == pytest.approx(value, abs=1e-8)
    share = sum(made) / (sum(real) + sum(made))
    assert null_expectation(2, sum(real) + sum(made), share) == pytest.approx(null, abs=1e-9)
    found = pmse_ratio(*tables, schema, settings, RNG(0))
    assert found.value == pytest.approx(ratio, abs=1e-4)
    assert found.part("setting", "null of logistic") == pytest.approx(null, abs=1e-9)
    assert specks(*tables, schema, settings, RNG(0)).value == pytest.approx(distance, abs=1e-9)


def test_saturated_pmse_is_the_chi_square_statistic() -> None:
    from scipy.stats import chi2_contingency

    schema, real, made = one_column(3), [50, 30, 20], [20, 50, 40]
    n1, n2 = sum(real), sum(made)
    chi2 = chi2_contingency([real, made], correction=False).statistic
    found = pmse(rows_of(real, schema), rows_of(made, schema), schema, Propensity(models=("logistic",)), RNG(0))
    share = n2 / (n1 + n2)
    assert found.value == pytest.approx(chi2 * share * (1 - share) / (n1 + n2), rel=1e-6)
    assert chi2_contingency([[60, 40], [50, 50]], correction=False).statistic == pytest.approx(2.0202, abs=1e-4)


def test_parameters_count_only_what_is_not_aliased() -> None:
    schema = one_column(3)
    data = stack_tables(rows_of([5, 4, 3], schema), rows_of([3, 4, 5], schema), Propensity(), RNG(0))
    assert score_in_sample("logistic", data, 0.0).parameters == 3  # intercept and two of three dummies
    assert null_deviation(3, 24, 0.5) == pytest.approx(2 * 0.125 / 24)


MONTHS = [Attribute(3, Fraction(1), chain=3)]
TYPES = [Attribute(3)]


@pytest.mark.parametrize(
    ("made", "costs"),
    [
        ((4, 5, 1), (0.05, 0.0)),
        ((4, 4, 2), (0.1, 0.0)),
        ((8, 1, 1), (0.15, 0.10, 0.05)),
        ((20, 4, 1), (1.5, 1.35, 1.2)),
    ],
)
@pytest.mark.parametrize("solver", ["nearby", "ortools"])
def test_aemc_examples(made: tuple[int, ...], costs: tuple[float, ...], solver: str) -> None:
    for tolerance, cost in enumerate(costs):
        found = aemc(np.array(made), np.array([5, 4, 1]), MONTHS, tolerance=tolerance, solver=solver)  # type: ignore[arg-type]
        assert found.cost == pytest.approx(cost, abs=1e-12)


@pytest.mark.parametrize(("made", "cost"), [((4, 5, 1), 0.2), ((4, 4, 2), 0.2), ((8, 1, 1), 0.6), ((20, 4, 1), 1.5)])
def test_aemc_with_infinite_weights_is_l1(made: tuple[int, ...], cost: float) -> None:
    assert aemc(np.array(made), np.array([5, 4, 1]), TYPES).cost == pytest.approx(cost)


def move_one_row(attribute: Attribute, start: int, end: int) -> float:
    made, real = (np.eye(attribute.size, dtype=np.int64)[place] for place in (start, end))
    return aemc(made, real, [attribute]).cost


def test_a_row_moves_at_the_semantic_distance() -> None:
    assert move_one_row(Attribute(13, Fraction(1), chain=13), 1, 8) == pytest.approx(7 / 12)
    cities = Attribute(4, Fraction(1), levels=(np.array([0, 0, 1, 1]),))
    assert (move_one_row(cities, 0, 1), move_one_row(cities, 0, 2)) == (0.5, 1.0)
    assert move_one_row(Attribute(4, Fraction(1)), 0, 3) == 1.0


def test_pie_chart_examples() -> None:
    real = np.array([[60.0, 30, 6, 4]])
    assert pie_score(real, np.array([[50.0, 30, 10, 10]]))[0] == pytest.approx(0.558626, abs=1e-6)
    kept, shown = np.array([[60.0, 30, 6, 0]]) + 1e-9, np.array([[50.0, 30, 10, 10]]) + 1e-9
    assert jensen_shannon(kept, shown)[0] == pytest.approx(0.241374, abs=1e-6)
    assert jensen_shannon(kept, np.full((1, 4), 1e-9))[0] == pytest.approx(0.480462, abs=1e-6)
    assert pie_score(real, np.zeros((1, 4)))[0] == pytest.approx(1 - 0.480462, abs=1e-6)
    assert pie_score(real, real)[0] == 1.0


def test_pie_chart_penalises_totals_far_apart() -> None:
    real = np.array([[600.0, 600]])
    assert pie_score(real, real + 300)[0] == pytest.approx(0.75, abs=1e-6)
    assert pie_score(real, real + 250)[0] == pytest.approx(1.0, abs=1e-6)  # 500 apart is not more than 500


@pytest.mark.parametrize(("made", "score"), [([5, 5], 1000.0), ([6, 4], 900.0)])
def test_k_marginal_examples(made: list[int], score: float) -> None:
    schema = one_column(2)
    found = k_marginal(rows_of([5, 5], schema), rows_of(made, schema), schema, KMarginal(k=1, draws=3), RNG(0))
    assert found.value == pytest.approx(score)


def test_k_marginal_of_disjoint_supports_is_0() -> None:
    schema = one_column(2)
    found = k_marginal(rows_of([5, 0], schema), rows_of([0, 5], schema), schema, KMarginal(k=1), RNG(0))
    assert found.value == 0.0


def test_k_marginal_groups() -> None:
    # groups of two cells each: equal shares, half wrong (L1 = 1), and one that only one table has
    pair = PairedCells(
        ("g", "a"), np.array([0, 1, 2, 3, 4]), np.array([1.0, 1, 4, 0, 3]), np.array([10.0, 10, 2, 2, 0])
    )
    assert grouped_distance(pair, 2, KMarginal()) == pytest.approx((0 + 1 + 2) / 3)
    assert grouped_distance(pair, 2, KMarginal(cutoff=18)) == pytest.approx((0 + 1 + 2) / 3)
    assert grouped_distance(pair, 2, KMarginal(cutoff=18, cutoff_included=True)) == pytest.approx((2 + 1 + 2) / 3)


def test_workload_by_hand() -> None:
    schema = one_column(3)
    real, made = rows_of([5, 4, 1], schema), rows_of([8, 1, 1], schema)
    score = workload_error(real, made, schema, Workload(cliques=(("a",),)), RNG(0))
    assert score.value == pytest.approx(0.6)
    assert score.part("norm", "l2") == pytest.approx(np.sqrt(18) / 10)
    assert score.part("norm", "linf") == pytest.approx(0.3)
    assert score.part("share", "mean") == pytest.approx(0.3)
    weighted = workload_error(real, made, schema, Workload(cliques=(("a",),), weights=(2.0,)), RNG(0))
    assert weighted.value == pytest.approx(1.2)


def test_workload_error_of_answers_without_rows() -> None:
    """Two answers (4, 7) and (6, 3) of sigma 1 average to (5, 5): 2 |6 - 5| / 10 rows."""
    schema, real = one_column(2), rows_of([6, 4], one_column(2))
    answers = Answers(schema.domain, [Measurement(("a",), np.array(values), 1.0) for values in ([4, 7], [6, 3])])
    assert answers.rows == 10
    assert workload_error(real, answers, schema, Workload(cliques=(("a",),)), RNG(0)).value == pytest.approx(0.2)
    with pytest.raises(SettingError, match="the marginal of a was not measured"):
        workload_error(real, Answers(schema.domain, []), schema, Workload(cliques=(("a",),)), RNG(0))


def test_numbers_of_a_shifted_column() -> None:
    """Values 10, 20, 30, 40 have the variance 125; everything is 5 too high, 5 / sqrt(125) standard deviations."""
    import pyarrow as pa

    number = {"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 99, "required": True}}
    group = {"name": "g", "type": "string", "categories": ["low", "high"], "constraints": {"required": True}}
    schema = Schema.from_dict({"fields": [number, group], "understudy": {"privacy_unit": "row"}})
    values, groups = np.repeat([10, 20, 30, 40], 10), np.repeat(["low", "high"], 20)
    real, made = (Rows.of(pa.table({"x": values + more, "g": groups}), schema) for more in (0, 5))
    score = numbers(real, made, schema, Numbers(fewest=20), RNG(0))
    shift = 5 / 125**0.5
    assert score.value == pytest.approx(shift)
    assert score.part("column", "x") == pytest.approx(shift)
    assert score.part("error", "median of x") == pytest.approx(shift)
    assert score.part("group", "mean of x by g") == pytest.approx(shift)
    assert score.part("noise", "mean of x") == pytest.approx(5 / (2 * 125 / 40) ** 0.5)
    assert score.part("noise", "mean of x by g") == pytest.approx(5 / (2 * 25 / 20) ** 0.5)  # 10 and 20: variance 25
    swapped = Rows.of(pa.table({"x": values, "g": groups[::-1]}), schema)  # the column is right, its groups are not
    score = numbers(real, swapped, schema, Numbers(fewest=20), RNG(0))
    assert score.part("column", "x") == 0.0
    assert score.part("group", "mean of x by g") == 1.0  # 20 apart: more than one standard deviation counts as one
    assert score.value == pytest.approx(0.5)


def test_a_workload_names_its_marginals() -> None:
    """Of columns a, b and c, target:c names (a, b, c); what skewed:0 names twice counts as two of its 256."""
    schema = Schema.from_domain({"a": 2, "b": 2, "c": 2, "d": 2})
    real, made = (Rows.of(pd.DataFrame(rows, columns=list("abcd")), schema) for rows in ([[0] * 4] * 4, [[1] * 4] * 4))
    for text in ("target:c", "skewed:0", "all-3way"):
        score = workload_error(real, made, schema, Workload(workload=text), RNG(0))
        assert score.value == 2.0  # every row is in another cell of every marginal
    half = Rows.of(pd.DataFrame([[0] * 4] * 2 + [[0, 0, 1, 0]] * 2, columns=list("abcd")), schema)
    # the three triples of target:c all see the two moved rows, 4 / 4; of all four triples, (a, b, d) does not
    assert workload_error(real, half, schema, Workload(workload="target:c"), RNG(0)).value == 1.0
    assert workload_error(real, half, schema, Workload(workload="all-3way"), RNG(0)).value == 0.75


def test_aemc_with_a_distance_table_and_alpha() -> None:
    """Three places on a line at 0, 0.3 and 1: a row moves at their distance, or is removed and added for 2 alpha."""
    places = np.array([[0, 0.3, 1], [0.3, 0, 0.7], [1, 0.7, 0]])
    town = Attribute(3, Fraction(1), distances=places)
    assert [round(move_one_row(town, 0, end), 12) for end in (1, 2)] == [0.3, 1.0]
    made, real = np.array([0, 4, 1]), np.array([4, 0, 1])
    assert aemc(made, real, [town]).cost == pytest.approx(4 * 0.3 / 5)
    assert aemc(made, real, [town], alpha=Fraction(1, 10)).cost == pytest.approx(8 * 0.1 / 5)  # cheaper than moving
    assert aemc(made, real, [Attribute(3)], alpha=Fraction(1, 2)).cost == pytest.approx(8 * 0.5 / 5)
    with pytest.raises(SettingError, match="detour"):
        aemc(made, real, [Attribute(3, Fraction(1), distances=np.array([[0, 0.1, 1], [0.1, 0, 0.1], [1, 0.1, 0]]))])


def test_mgd_of_marginals_with_settings_of_their_own() -> None:
    """Costs 0.6 (nothing moves, L1) with tolerance 0 and 0.2 with tolerance 2, weighted 3 to 1."""
    schema = one_column(3)
    real, made = rows_of([5, 4, 1], schema), rows_of([8, 1, 1], schema)
    targets = ({"clique": ("a",), "weight": 3, "tolerance": 0}, {"clique": ("a",), "tolerance": 2})
    found = mgd(real, made, schema, Marginals(marginals=targets), RNG(0))
    assert found.value == pytest.approx((3 * 0.6 + 0.2) / 4)
    apart = [[0, 0.2, 1], [0.2, 0, 0.8], [1, 0.8, 0]]
    found = mgd(real, made, schema, Marginals(marginals=(("a",),), tolerance=0, distance={"a": apart}), RNG(0))
    assert found.value == pytest.approx(3 * 0.2 / 10)
    with pytest.raises(SettingError, match="has no 'tolerances'"):
        mgd(real, made, schema, Marginals(marginals=({"clique": ("a",), "tolerances": 1},)), RNG(0))


def test_range_queries_by_hand() -> None:
    """A third of three categories is one value: shares differ by 0.3, 0.3 and 0, and counts by 3/5, 3/4 and 0."""
    schema = one_column(3)
    real, made = rows_of([5, 4, 1], schema), rows_of([8, 1, 1], schema)
    found = range_queries(real, made, schema, Ranges(form="shares", share=0.34, ways=(1,), queries=3000), RNG(0))
    assert found.value == found.part("error", "relative") == pytest.approx((0.6 + 0.75 + 0) / 3, abs=0.02)
    assert found.part("marginal", "a") == pytest.approx(0.2, abs=0.01)
    whole = range_queries(real, made, schema, Ranges(form="shares", share=1.0, ways=(1,)), RNG(0))
    assert whole.value == 0.0
    ranges = range_queries(real, made, schema, Ranges(ways=(1,), queries=3000), RNG(0))
    # sets of one, two or three values alike: 0.2 for one, 0.2 for two (their complement), 0 for three
    assert ranges.value == pytest.approx(0.4 / 3, abs=0.01)
    codes = Schema.from_domain({"a": 3})  # values with an order
    tables = [Rows.of(pd.DataFrame({"a": np.repeat([0, 1, 2], counts)}), codes) for counts in ([5, 4, 1], [8, 1, 1])]
    cut = range_queries(tables[0], tables[1], codes, Ranges(ways=(1,), queries=4000), RNG(0))
    # nine pairs of ends: aa 0.3, bb 0.3, cc 0, ab twice 0, bc twice 0.3, ac twice 0
    assert cut.value == pytest.approx(1.2 / 9, abs=0.01)


def test_a_match_is_the_mean_of_its_scores() -> None:
    schema = Schema.from_domain({"a": 2, "b": 2, "c": 2})
    rng = np.random.default_rng(3)
    real, made = (Rows.of(pd.DataFrame(rng.integers(0, 2, (200, 3)), columns=list("abc")), schema) for _ in range(2))
    first = nist_contest(real, made, schema, Contest(match=1, triples=10), RNG(0))
    both = nist_contest(real, made, schema, Contest(match=2, triples=10), RNG(0))
    assert first.value == first.part("part", "nist_density") == both.part("part", "nist_density")
    assert both.value == pytest.approx((first.value + both.part("part", "nist_conjunctions")) / 2)
    with pytest.raises(SettingError, match="match 3 needs group"):
        nist_contest(real, made, schema, Contest(match=3), RNG(0))


def test_scores_of_several_tables_are_averaged() -> None:
    schema = Schema.from_domain({"a": 3})
    frames = [pd.DataFrame({"a": np.repeat([0, 1, 2], counts)}) for counts in ([5, 4, 1], [8, 1, 1], [5, 4, 1])]
    given = {"metrics": ["workload_error"], "workload_error": {"ways": [1]}}
    found = us.evaluate(frames[0], frames[1:], schema, **given)
    assert found[found.kind == "score"].value.tolist() == pytest.approx([0.3])  # of 0.6 and 0
    assert "mean over 2" in found[found.kind == "score"].note.iloc[0]


def test_accuracy_lost_by_hand() -> None:
    """The real b equals a. A tree that learned the opposite is never right, one that learned nothing half the time."""
    schema = Schema.from_domain({"a": 2, "b": 2})
    a = np.arange(200) % 2
    real, opposite, blind = (
        Rows.of(pd.DataFrame({"a": one, "b": b}), schema) for one, b in ((a, a), (a, 1 - a), (a, np.zeros(200, int)))
    )
    lost = [
        ml_efficacy(real, made, schema, Efficacy(models=("tree",)), RNG(0)).value for made in (real, opposite, blind)
    ]
    assert lost == [0.0, 1.0, 0.5]


def test_copied_rows_by_hand() -> None:
    """No two real rows are equal, so no held-out row matches; of a copy of the table, half match the reference half."""
    schema = Schema.from_domain({"a": 200})
    real = Rows.of(pd.DataFrame({"a": np.arange(200)}), schema)
    assert disclosure(real, real, schema, Disclosure(), RNG(0)).value == 0.5
    assert disclosure(real, real.take(np.zeros(50, int)), schema, Disclosure(), RNG(0)).value in (0.0, 1.0)
