"""What a plan says before a row is read: errors that come true, odds, a delta that fits, and advice."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

import understudy as us
from understudy.accounting import Budget
from understudy.accounting.calibrate import certify_plan
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.selection import merge_codes
from understudy.mechanism import Mechanism, make_mechanism, registry
from understudy.mechanism.base import Footprint
from understudy.mechanism.registry import MECHANISMS
from understudy.metric import Rows
from understudy.metric.numbers import Settings, numbers
from understudy.planning import Accuracy, Plan, check_delta, default_delta, odds_of, plan
from understudy.planning.made_up import EVENEST, EVENNESS, VARIED, MadeUpSource, assume_facts, made_up_codes
from understudy.planning.plan import Line, _find_epsilon, recommend
from understudy.planning.predict import (
    COLUMNS,
    FACTOR,
    TABLES,
    Expected,
    PlannedTable,
    Prediction,
    _make_up,
    _run_trials,
    predict,
)
from understudy.progress import silent
from understudy.schema import PrivacyUnit, Schema
from understudy.testing import insecure
from understudy.testing.tables import CodedSource

SIZES = {"a": 12, "b": 7, "c": 2, "d": 20, "e": 5}
DOMAIN = Domain(SIZES)
NUMBERS = {
    "understudy": {"privacy_unit": "row"},
    "fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 15, "maximum": 94}},
        {"name": "pay", "type": "number", "constraints": {"minimum": 0, "maximum": 9000}, "understudy": {"bins": 60}},
        {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
        {"name": "town", "type": "string", "constraints": {"enum": ["a", "b", "c", "d", "e"]}},
    ],
}
SLOW = {"dp-wgan", "gem", "rap"}  # seconds for each plan
EVERY = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in sorted(MECHANISMS)]


def planned(sizes=SIZES, rows=8000, *, rows_public=False, **facts):
    schema = replace(Schema.from_domain(sizes), rows=rows if rows_public else None, **facts)
    return PlannedTable.of(schema, rows)


def expect(mechanism, sizes=SIZES, rows=8000, epsilon=1.0, delta=1e-6, **facts):
    return predict(mechanism, planned(sizes, rows, **facts), Budget.of(epsilon=epsilon, delta=delta))


def covered(fit, order):
    """The columns, or pairs of columns, that some measured table holds."""
    return sorted({part for m in fit.measurements for part in combinations(DOMAIN.canonical(m.clique), order)})


class TestMadeUpRows:
    def test_are_codes_of_the_columns_and_the_same_every_time(self):
        made = [made_up_codes(np.random.default_rng(seed), SIZES, 3000) for seed in (1, 1, 2)]
        assert list(made[0]) == list(SIZES)
        for name, size in SIZES.items():
            assert len(made[0][name]) == 3000
            assert made[0][name].max() < size
            assert (made[0][name] == made[1][name]).all()
        assert any((made[0][name] != made[2][name]).any() for name in SIZES)

    def test_a_few_columns_say_the_same_and_most_pairs_are_nearly_independent(self):
        """The statistics of Adult and Fire: half of the pairs are within 0.13 of independence, the closest beyond 1."""
        sizes = {f"c{i}": 4 + i for i in range(15)}
        medians, closest = [], []
        for seed in range(4):
            source = MadeUpSource(Domain(sizes), made_up_codes(np.random.default_rng(seed), sizes, 20_000))
            found = []
            for (one, other), counts in source.counts(combinations(sizes, 2)):
                table = counts.reshape(sizes[one], sizes[other]) / 20_000
                found.append(np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0))).sum())
            medians.append(np.median(found))
            closest.append(max(found))
        assert 0.05 < np.mean(medians) < 0.25
        assert np.mean(closest) > 1

    def test_further_tables_are_more_and_less_even_and_dependent(self):
        sizes = {f"c{i}": 6 + i for i in range(10)}
        entropies, distances = [], []
        for varied in ((1.0, 1.0), *VARIED):
            codes = made_up_codes(np.random.default_rng(1), sizes, 20_000, varied=varied)
            source, entropy, distance = MadeUpSource(Domain(sizes), codes), 0.0, 0.0
            for (one, other), counts in source.counts(combinations(sizes, 2)):
                table = counts.reshape(sizes[one], sizes[other]) / 20_000
                shares = table.sum(axis=1)
                entropy -= float(shares @ np.log(np.maximum(shares, 1e-9)))
                distance += np.abs(table - np.outer(shares, table.sum(axis=0))).sum()
            entropies.append(entropy)
            distances.append(distance)
        usual, dependent, uneven, even = range(4)
        assert entropies[uneven] < 0.95 * entropies[usual] < entropies[usual] < 0.95 * entropies[even]
        assert distances[dependent] > 1.2 * distances[usual]

    def test_no_tree_of_pairs_explains_all(self):
        """As in real tables, where the best tree leaves a sixth to a half of the distance from independence."""
        sizes = {f"c{i}": 4 + i for i in range(12)}
        parts = []
        for seed in range(3):
            codes = made_up_codes(np.random.default_rng(seed), sizes, 20_000)
            source = MadeUpSource(Domain(sizes), codes)
            wrong = []
            for name in ("independent", "mst"):
                with insecure(seed):
                    fit = make_mechanism(name).fit(PrivateTable(source, Budget.of(rho=1e6)), rho=1e6)
                tables = source.counts(combinations(sizes, 2))
                recoded = {
                    pair: merge_codes(counts, source.domain.shape(pair), [fit.recoding.maps.get(c) for c in pair])
                    for pair, counts in tables
                }
                wrong.append(sum(np.abs(fit.model.project(p).reshape(-1) - true).sum() for p, true in recoded.items()))
            parts.append(wrong[1] / wrong[0])
        assert 0.12 < np.mean(parts) < 0.5

    @pytest.mark.parametrize("size", [2, 12, 50])
    def test_columns_are_even_and_uneven(self, size):
        """The entropies of columns lie on the quantiles that were fitted; columns of many codes are less even."""
        sizes = {f"c{i}": size for i in range(10)}
        found = []
        for codes in made_up_codes(np.random.default_rng(2), sizes, 50_000).values():
            shares = np.bincount(codes, minlength=size) / 50_000
            found.append(-np.sum(shares * np.log(np.maximum(shares, 1e-300))) / math.log(size))
        power = EVENNESS / size**0.2
        expected = [EVENEST * (1 - (1 - (i + 0.5) / 10) ** power) for i in range(10)]
        assert sorted(found) == pytest.approx(expected, abs=0.05)

    def test_most_declared_codes_occur_in_uneven_columns_too(self):
        """In Adult and Fire 0.92 and 0.99 of them do; codes whose shares fall geometrically would rarely occur."""
        sizes = {f"c{i}": 16 for i in range(15)}
        occurring = [
            len(np.unique(codes)) / 16
            for seed in range(3)
            for codes in made_up_codes(np.random.default_rng(seed), sizes, 40_000).values()
        ]
        assert np.mean(occurring) > 0.9

    def test_numbers_rise_to_a_peak_and_fall(self):
        sizes = {f"c{i}": 33 for i in range(8)}
        made = made_up_codes(np.random.default_rng(4), sizes, 200_000, axes=dict.fromkeys(sizes, 30), unknown=sizes)
        peaks = set()
        for codes in made.values():
            counts = np.bincount(codes, minlength=33)
            peak = counts[:30].argmax()
            noise = 5 * np.sqrt(counts.max())
            assert (np.diff(counts[: peak + 1]) > -noise).all()
            assert (np.diff(counts[peak:30]) < noise).all()
            assert counts[30:32].max() <= counts[:30][counts[:30] > 0].min() + noise
            assert counts[32] == 0
            peaks.add(int(peak))
        assert len(peaks) > 4

    def test_even_rows_have_every_code(self):
        made = made_up_codes(np.random.default_rng(5), SIZES, 3000, even=True)
        assert all(len(np.unique(made[name])) == size for name, size in SIZES.items())

    def test_a_row_can_stand_for_several(self):
        codes = made_up_codes(np.random.default_rng(3), SIZES, 100)
        one, seven = (MadeUpSource(DOMAIN, codes, weight=weight) for weight in (1, 7))
        [(_, single)], [(_, several)] = one.counts([("a", "b")]), seven.counts([("a", "b")])
        assert (several == 7 * single).all()
        assert seven.rows == 700

    def test_stand_odd_columns(self):
        made = made_up_codes(np.random.default_rng(1), {"a": 1, "b": 3000, "c": 1}, 50)
        assert set(made["a"]) == set(made["c"]) == {0}


@pytest.fixture
def one_table(monkeypatch):
    """Trials on one made-up table, to save time; predictions made so are forgotten."""
    predict.cache_clear()
    monkeypatch.setattr("understudy.planning.predict.TABLES", 1)
    yield
    predict.cache_clear()


class TestPrediction:
    @pytest.mark.parametrize("mechanism", ["aim", "gaussian", "mst", "mwem"])
    def test_comes_true_for_a_table_of_that_kind(self, mechanism):
        """A made-up table that the plan does not use, a few runs with the gate's own noise: the errors agree within a
        half (five columns of few codes vary much)."""
        codes = made_up_codes(np.random.default_rng(11), SIZES, 8000)
        source = CodedSource(SIZES, np.stack(list(codes.values()), axis=1))
        budget = Budget.of(epsilon=1.0, delta=1e-6)
        found = {1: [], 2: []}
        with insecure(5):
            for _ in range(4):
                fit = make_mechanism(mechanism).fit(PrivateTable(source, budget), rho=float(budget.capacity))
                for clique, counts in source.counts(covered(fit, 1) + covered(fit, 2)):
                    true = merge_codes(counts, source.domain.shape(clique), [fit.recoding.maps.get(c) for c in clique])
                    found[len(clique)].append(np.abs(fit.model.project(clique).reshape(-1) - true).mean())
        expected = expect(mechanism).expected
        assert expected.one_way == pytest.approx(np.mean(found[1]), rel=0.5)
        assert expected.two_way == pytest.approx(np.mean(found[2]), rel=0.5)

    @pytest.mark.parametrize("mechanism", EVERY)
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_every_mechanism_has_one_and_it_grows_as_the_budget_shrinks(self, mechanism, delta, one_table):
        if delta == 0 and not MECHANISMS[mechanism].pure:
            with pytest.raises(SettingError, match=f"{mechanism} needs Gaussian noise: give a delta above 0"):
                expect(mechanism, delta=0.0)
            return
        small, large = (expect(mechanism, rows=50_000, epsilon=epsilon, delta=delta).expected for epsilon in (0.5, 2.0))
        networks = ("gem", "dp-wgan")  # which err more than their noise, and whose training amplifies rounding errors
        if mechanism not in ("privbayes", "privmrf", "adaptive", "rap", *networks):  # more budget buys larger tables
            assert small.one_way > 2 * large.one_way > 0
            assert small.group > 2.5 * large.group
        if mechanism in ("adaptive", "rap"):  # the relaxed rows of rap err, too
            assert small.one_way > large.one_way > 0
            assert small.group > 2 * large.group
        assert (large.two_way is None) == (large.pairs == 0) == (mechanism in ("independent", "dp-wgan"))
        assert large.pairs <= 10
        assert 0 < large.misplaced < (1.5 if mechanism in networks else 1.01) * small.misplaced < 1

    def test_of_numbers_comes_true_for_a_table_of_that_kind(self):
        """The metric of `evaluate` on rows that the plan does not use: within a factor of two, with few runs."""
        schema, found = Schema.from_dict(NUMBERS), []
        for seed in range(20, 24):
            rng = np.random.default_rng(seed)
            codes = made_up_codes(rng, schema.domain, 4000, axes={"age": 80, "pay": 60}, unknown=schema.domain)
            table = schema.decode(codes, rng)
            made = us.synthesize(table, schema, mechanism="mst", epsilon=0.5, delta=1e-6)
            real, synthetic = (Rows.of(frame, schema) for frame in (table, made.sample(seed=1)))
            found.append(numbers(real, synthetic, schema, Settings(), rng).value)
        budget = Budget.of(epsilon=0.5, delta=1e-6)
        expected = predict("mst", PlannedTable.of(schema, 4000), budget).expected
        assert set(expected.statistics) == {"age", "pay"}
        assert np.mean(found) / 2 < expected.numbers < 2 * np.mean(found)
        more = predict("mst", PlannedTable.of(schema, 4000), Budget.of(epsilon=5.0, delta=1e-6)).expected
        assert more.numbers < expected.numbers / 2

    def test_numbers_that_may_be_codes_are_not_numeric(self):
        expected = expect("independent").expected
        assert expected.numbers is None
        assert expected.statistics == {}

    def test_trials_use_axes(self, monkeypatch):
        """The gate hears of the axes, so that numbers are estimated as in a run."""
        seen = []
        original = MadeUpSource.__init__

        def spy(self, *args, **rest):
            original(self, *args, **rest)
            seen.append(self.code_groups)

        monkeypatch.setattr(MadeUpSource, "__init__", spy)
        predict("independent", PlannedTable.of(Schema.from_dict(NUMBERS), 4321), Budget.of(epsilon=1.0, delta=1e-6))
        assert {(groups.axis("age"), groups.axis("pay"), groups.axis("sex")) for groups in seen} == {(80, 60, 0)}

    def test_noise_of_fixed_measurements_is_that_of_the_exact_curve(self):
        weights = make_mechanism("independent").plan(DOMAIN)
        sigmas, _ = certify_plan(weights, Budget.of(epsilon=1.0, delta=1e-6), Neighbours())
        expected = expect("independent").expected
        assert expected.group == pytest.approx(3 * np.median(list(sigmas.values())), rel=2e-3)

    def test_a_part_of_the_columns_has_the_noise_of_all(self):
        """Measurements fixed in advance: the noise on a table does not depend on which others are made up."""
        sizes = {f"c{i}": 4 for i in range(COLUMNS + 14)}
        expected = predict("independent", planned(sizes), Budget.of(rho=0.1)).expected
        assert expected.group == pytest.approx(3 * math.sqrt(len(sizes) / 0.2), rel=0.01)

    @pytest.mark.parametrize("unit", [PrivacyUnit(), PrivacyUnit("id", 3)])
    @pytest.mark.parametrize("rows_public", [False, True])
    def test_noise_is_that_of_the_units(self, unit, rows_public):
        near = Neighbours(unit.column, unit.max_rows, rows_public)
        table = planned(privacy_unit=unit, rows_public=rows_public)
        sigma = math.sqrt(len(SIZES) * near.marginal_l2_squared / 0.2)
        assert predict("independent", table, Budget.of(rho=0.1)).expected.group == pytest.approx(3 * sigma, rel=0.01)

    def test_of_many_columns_some_are_made_up(self):
        wide = {f"c{i}": 2 + i % 20 for i in range(60)}
        assert len(planned(wide).choose_columns(COLUMNS)) == COLUMNS
        assert expect("mst", wide, rows=20_000).expected.pairs == pytest.approx(59, abs=1)
        assert expect("gaussian", wide, rows=20_000).expected.pairs == 60 * 59 // 2

    def test_few_columns_are_tried_on_several_tables_and_show_their_range(self):
        assert planned().tables == TABLES
        found = expect("mst").expected
        assert found.one_way_range[0] < found.one_way < found.one_way_range[1]
        assert found.two_way_range[0] < found.two_way < found.two_way_range[1]
        assert found.one_way**2 == pytest.approx(found.one_way_range[0] * found.one_way_range[1])
        wide = {f"c{i}": 3 for i in range(40)}
        assert planned(wide).tables == 1
        alone = expect("adaptive", wide).expected
        assert alone.one_way_range == pytest.approx((alone.one_way / FACTOR, alone.one_way * FACTOR))
        assert expect("independent", wide).expected.two_way_range is None

    @pytest.mark.parametrize(("apart", "tried"), [(1.1, TABLES), (1.5, TABLES + len(VARIED))])
    def test_a_mechanism_is_tried_on_further_tables_if_its_errors_differ_much(self, apart, tried):
        def run(number):
            return SimpleNamespace(errors={1: [apart**number], 2: []}, rounds=1)

        assert len(_run_trials(planned(), run)) == tried

    def test_does_not_depend_on_the_mechanisms_that_were_tried_before(self):
        table, budget = planned({f"c{i}": 3 for i in range(40)}), Budget.of(epsilon=1.0, delta=1e-6)
        _make_up.cache_clear()
        first = predict.__wrapped__("mst", table, budget)
        predict.__wrapped__("privbayes", table, budget)  # it counts marginals of four columns
        again = predict.__wrapped__("mst", table, budget)
        assert (again.expected, again.memory_bytes) == (first.expected, first.memory_bytes)

    def test_is_the_same_each_time(self, one_table):
        for mechanism in set(MECHANISMS) - SLOW:
            budget = Budget.of(epsilon=1.0, delta=1e-6)
            first, second = (predict.__wrapped__(mechanism, planned(), budget) for _ in range(2))
            assert first.expected == second.expected

    @pytest.mark.parametrize("mechanism", EVERY)
    @pytest.mark.parametrize("sizes", [{"a": 1}, {"a": 30}, {"a": 1, "b": 2}, {"a": 3000, "b": 3000, "c": 2}])
    @pytest.mark.parametrize("epsilon", [0.01, 1.0])
    def test_stands_odd_domains(self, mechanism, sizes, epsilon):
        expected = expect(mechanism, sizes, rows=100, epsilon=epsilon).expected
        assert math.isfinite(expected.one_way)
        assert expected.group > 0

    def test_columns_that_a_mechanism_refuses_have_no_memory(self):
        wide = {"a": 3000, "b": 3000, "c": 2}
        assert expect("mwem", wide, rows=100_000).memory_bytes is None
        assert expect("mst", wide, rows=100_000).memory_bytes > 0

    def test_memory_follows_what_merging_leaves(self):
        """Where noise drowns nearly all codes, the candidates of `aim` are few and small."""
        sizes = {f"c{i}": 90 for i in range(8)}
        declared = make_mechanism("aim").footprint(Domain(sizes)).memory_bytes
        drowned = expect("aim", sizes, rows=1000, epsilon=0.1)
        assert drowned.memory_bytes < declared / 2

    def test_groups_are_off_by_about_the_noise(self):
        made = expect("independent", rows=20_000)
        assert made.error_of_groups(500) == pytest.approx(1.96 * made.expected.group / 3, rel=0.3)
        assert made.error_of_groups(10**9) == math.inf

    def test_touches_no_ledger_and_no_secure_randomness(self, ledger_folder, monkeypatch):
        def refuse():
            raise AssertionError("a plan drew from the stream that protects people")

        monkeypatch.setattr("understudy.gate.noise.stream", refuse)
        monkeypatch.setattr("understudy.gate.selection.stream", refuse)
        for mechanism in ("mst", "privsyn"):
            predict.__wrapped__(mechanism, planned(rows=900), Budget.of(epsilon=1.0, delta=1e-6))
        assert list(ledger_folder.iterdir()) == []


class Stranger(Mechanism):
    """A mechanism that planning has never heard of: columns, and then the first pair."""

    name = "stranger"
    pure = False

    def fit(self, table, *, rho, progress=silent):
        ones = table.measure([(column,) for column in table.domain], rho=rho / 2)
        pair = table.measure([tuple(table.domain)[:2]], rho=rho / 2)
        return self.conclude(table, [*ones, *pair], progress=progress)

    def footprint(self, domain):
        return Footprint(memory_bytes=1 << 30, disk_bytes=1 << 20)


class TestAStrangersMechanism:
    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch):
        monkeypatch.setitem(registry.MECHANISMS, "stranger", Stranger)

    def test_is_predicted_as_ours_are(self):
        made = plan(Schema.from_domain(SIZES), people=20_000, epsilons=[1], mechanisms=["stranger", "independent"])
        [line, alone] = made.lines
        assert line.expected.pairs == 1
        assert line.expected.two_way > 0
        assert line.expected.group > alone.expected.group
        assert line.memory_bytes == (1 << 30) + 12 * 20_000 * 5 + (200 << 20)  # footprint, rows, program
        assert 200 << 20 < alone.memory_bytes < 300 << 20

    def test_that_cannot_be_pure_is_refused_without_a_delta(self):
        with pytest.raises(SettingError, match="stranger needs Gaussian noise"):
            plan(Schema.from_domain(SIZES), people=20_000, delta=0, mechanisms=["stranger"])


class TestOdds:
    def test_are_the_exact_bound_of_a_test(self):
        odds = odds_of(math.log(3), 0.0)
        assert (odds.factor, odds.coin, odds.tenth) == pytest.approx((3, 0.75, 0.25))

    def test_delta_makes_them_worse(self):
        assert odds_of(1.0, 0.01).coin > odds_of(1.0, 0.0).coin
        assert "0.01" in odds_of(1.0, 0.01).text()

    def test_never_pass_certainty(self):
        assert odds_of(5000.0, 0.5).coin == 1.0


class TestDelta:
    @pytest.mark.parametrize(("people", "delta"), [(10, 1e-6), (20_000, 1e-6), (100_000, 1e-6), (10**9, 1e-10)])
    def test_default(self, people, delta):
        assert default_delta(people) == delta
        check_delta(delta, people)

    def test_too_large_is_refused(self):
        with pytest.raises(SettingError, match="at most"):
            check_delta(1e-4, 20_000)
        with pytest.raises(SettingError, match="below 1"):
            check_delta(-0.1, 20_000)


class TestPlan:
    schema = Schema.from_domain(SIZES)

    def test_has_a_line_for_each_budget_and_mechanism(self):
        made = plan(self.schema, people=20_000, epsilons=[1, 2], mechanisms=["mst", "aim"])
        assert [(line.epsilon, line.mechanism) for line in made.lines] == [
            (1, "mst"), (1, "aim"), (2, "mst"), (2, "aim"),
        ]  # fmt: skip
        assert all(line.expected.two_way > 0 for line in made.lines)

    def test_forgets_the_true_count(self):
        made = plan(self.schema, people=20_417)
        assert made.people == 20_000
        assert "20417" not in str(made.to_dict())

    def test_few_people_and_little_budget_make_columns_independent(self):
        made = plan(self.schema, people=300, epsilons=[0.05, 4], mechanisms=["independent", "mst"])
        assert made.recommended[0.05][0] == "independent"
        assert made.recommended[4][0] == "mst"

    def test_the_advice_passes_over_what_drowns(self):
        made = plan(self.schema, people=200, epsilons=[0.05, 8], mechanisms=["gaussian", "mwem"])
        assert "larger budget" in made.recommended[0.05][1]
        assert "pairs" in made.recommended[8][1]

    @pytest.mark.parametrize("mechanism", EVERY)
    def test_any_mechanism_can_be_compared(self, mechanism):
        made = plan(self.schema, people=20_000, epsilons=[1], mechanisms=[mechanism])
        assert made.recommended[1] == (mechanism, "the only one compared")
        assert made.lines[0].expected.one_way > 0
        assert bool(made.assumed) == (mechanism == "nist-mst")

    def test_pure_dp(self):
        made = plan(self.schema, people=20_000, epsilons=[1], delta=0)
        assert made.lines[0].expected.one_way > 0
        assert made.odds[1].except_with == 0

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"people": None}, "people is missing"),
            ({"people": 3}, "people must be at least 10"),
            ({"people": "~3000"}, "people must be a whole number"),
            ({"people": 3000.5}, "people must be a whole number"),
            ({"people": True}, "people must be a whole number"),
            ({"people": math.nan}, "people must be a whole number"),
            ({"people": [3000]}, "people must be a whole number"),
            ({"people": -5}, "people must be"),
            ({"delta": 0.01}, "delta 0.01 is too large"),
            ({"delta": -1e-9}, "delta must be a number"),
            ({"delta": "1e-9"}, "delta must be a number"),
            ({"delta": math.nan}, "delta must be a number"),
            ({"delta": True}, "delta must be a number"),
            ({"epsilons": [-1]}, "epsilon must be a positive"),
            ({"epsilons": [1, math.inf]}, "epsilon must be a positive"),
            ({"epsilons": []}, "epsilons: give a list"),
            ({"epsilons": "1"}, "epsilons: give a list"),
            ({"epsilons": ["1"]}, "epsilons: give a list"),
            ({"epsilons": [True]}, "epsilons: give a list"),
            ({"epsilons": [None]}, "epsilons: give a list"),
            ({"epsilons": [[1]]}, "epsilon must be a number"),
            ({"mechanisms": ["magic"]}, "'magic' is unknown"),
            ({"mechanisms": []}, "mechanisms: give at least one"),
            ({"mechanisms": 3}, "mechanisms: give a list of names"),
            ({"mechanisms": [3]}, "mechanisms: give a list of names"),
            ({"mechanisms": None}, "mechanisms: give a list of names"),
            ({"accuracy": 200}, "accuracy: give a group"),
            ({"accuracy": "200"}, "accuracy: give a group"),
            ({"accuracy": (200, 0.1)}, "accuracy: give a group"),
            ({"mechanisms": ["mst", "dp-wgan"], "delta": 0}, "dp-wgan needs Gaussian noise: give a delta above 0"),
        ],
    )
    def test_refuses_before_anything_runs(self, given, match, monkeypatch):
        monkeypatch.setattr(sys.modules[Plan.__module__], "predict", lambda *args: pytest.fail("a mechanism ran"))
        with pytest.raises(SettingError, match=match):
            plan(self.schema, **{"people": 1000} | given)

    @pytest.mark.parametrize("schema", [None, "people.schema.yaml", SIZES, DOMAIN])
    def test_refuses_what_is_not_a_schema(self, schema):
        with pytest.raises(SettingError, match="schema: give the schema of one table"):
            plan(schema, people=1000)

    def test_takes_one_epsilon_one_name_and_an_accuracy_as_text(self):
        made = plan(self.schema, people=np.int64(20_000), epsilons=1, mechanisms="independent", accuracy="200:10%")
        assert [(line.epsilon, line.mechanism) for line in made.lines] == [(1.0, "independent")]
        assert made.accuracy == Accuracy(200, 0.1)


class TestAdvice:
    def line(self, mechanism, misplaced, pairs=3, seconds=1.0):
        return Line(
            1.0, mechanism, Expected(1.0, (1.0, 1.0), 1.0, (1.0, 1.0), 3.0, 3.0, pairs, misplaced), 1, seconds, 10
        )

    def test_takes_what_misplaces_fewest_rows(self):
        lines = [self.line("x", 0.2), self.line("y", 0.1), self.line("columns", 0.3, pairs=0)]
        name, why = recommend(lines, 5)
        assert name == "y"
        assert "10 % of the rows" in why
        assert "20 % with x" in why
        assert why.endswith("3 of 10 pairs")

    def test_says_only_the_most_pairs_of_mechanisms_that_choose_them_by_the_rows(self):
        """Made-up columns depend on each other; a schema does not show whether the table's do."""
        for name in ("adaptive", "aim:max_mib=4", "privsyn"):
            why = recommend([self.line(name, 0.1), self.line("mst", 0.2)], 5)[1]
            assert why.endswith("it measures up to 6 of 10 pairs")
        assert self.line("privsyn", 0.1, pairs=9).describe()["pairs"] == "up to 10"
        assert recommend([self.line("adaptive", 0.2), self.line("mst", 0.1)], 5)[1].endswith("3 of 10 pairs")

    def test_passes_over_what_takes_hours(self):
        name, why = recommend([self.line("x", 0.1, seconds=9000), self.line("y", 0.2)], 90)
        assert name == "y"
        assert "with 90 columns x would take hours" in why

    def test_takes_columns_alone_where_pairs_are_no_better(self):
        lines = [self.line("x", 0.2), self.line("columns", 0.2, pairs=0)]
        assert recommend(lines, 5)[0] == "columns"
        assert recommend([self.line("x", 0.1), lines[1]], 1)[0] == "columns"

    def test_a_mechanism_that_measures_no_pair_is_not_better_than_columns(self):
        """Where a mechanism would find no pair to measure, it must not be recommended for its pairs."""
        lines = [self.line("x", 0.35, pairs=0), self.line("columns", 0.3, pairs=0)]
        assert recommend(lines, 5)[0] == "columns"


class TestAccuracy:
    schema = Schema.from_domain(SIZES)

    @pytest.mark.parametrize("text", ["200:10%", "200:0.1", "~200 : 10 %"])
    def test_is_read(self, text):
        assert Accuracy.parse(text) == Accuracy(200, 0.1)

    @pytest.mark.parametrize("text", ["", "200", "200:", ":10%", "200:0", "200:200%", "0:10%", "many:few"])
    def test_refuses(self, text):
        with pytest.raises(SettingError, match="200:10%"):
            Accuracy.parse(text)

    def test_is_met_by_the_epsilon_that_is_said_to_be_needed(self):
        made = plan(self.schema, people=20_000, mechanisms=["independent", "mst"], accuracy=Accuracy(200, 0.1))
        (alone, no_pairs), (tree, pairs) = made.needed["independent"], made.needed["mst"]
        assert no_pairs is None
        assert min(tree, pairs) > 0
        assert list(made.odds) == [min(alone, tree)]
        found = expect("independent", rows=20_000, epsilon=alone)
        assert found.error_of_groups(200) == pytest.approx(20, rel=0.15)

    @pytest.mark.parametrize(
        ("people", "within"),
        [("200", 0.1), (200, "10%"), (200.5, 0.1), (math.nan, 0.1), (math.inf, 0.1), (200, math.nan), (True, 0.1)],
    )
    def test_refuses_wrong_numbers(self, people, within):
        with pytest.raises(SettingError, match="200:10%"):
            Accuracy(people, within)

    @pytest.mark.parametrize(
        ("error", "epsilon"),
        [
            (lambda e: 60 / e, 3.0),
            (lambda e: 60 / math.sqrt(e), 9.0),
            (lambda e: 60 / e**2, 1.8),
            (lambda e: 0.05 / e, 0.01),
            (lambda e: 0.0, 0.01),
            (lambda e: 60 / e if e > 2 else math.inf, 3.0),  # a mechanism that measures no pair with less
            (lambda e: 399 / e, 20.0),
            (lambda e: 401 / e, None),
            (lambda e: math.inf, None),
            (lambda e: 25 + 1 / e, None),
        ],
    )
    def test_is_searched_for(self, error, epsilon):
        def predicted(epsilon):
            cells = np.array([[200.0], [error(epsilon)]])[:, : error(epsilon) < math.inf]
            return Prediction(Expected(1.0, (1.0, 1.0), None, None, 1.0, None, 0, 0.1), 1, 1.0, cells, cells)

        found = _find_epsilon(Accuracy(200, 0.1), predicted, pairs=False)
        assert found == epsilon
        assert found is None or error(found) <= 20

    def test_smaller_groups_need_more(self):
        needed = [
            plan(self.schema, people=20_000, mechanisms=["mst"], accuracy=Accuracy(size, 0.1)).needed["mst"][0]
            for size in (100, 400)
        ]
        assert needed[0] > 2 * needed[1]

    def test_out_of_reach_is_said(self):
        made = plan(self.schema, people=20_000, mechanisms=["mst"], accuracy=Accuracy(2, 0.01))
        assert made.needed["mst"] == (None, None)
        assert made.to_dict()["accuracy"]["epsilon"]["mst"] == {"one_column": None, "pair": None}


OPEN = """
understudy: {privacy_unit: row}
fields:
  - {name: age, type: integer, understudy: {bounds: discover}}
  - {name: income, type: number, understudy: {bounds: discover, bins: discover}}
  - {name: visits, type: integer, constraints: {minimum: 0, maximum: 100000}, understudy: {bins: discover}}
  - {name: city, type: string, understudy: {values: discover, missing: {"?": null}}}
  - {name: remark, type: discover}
  - {name: born, type: date, understudy: {bounds: discover}}
  - {name: sex, type: string, constraints: {enum: [f, m]}}
  - {name: pay, type: number, understudy: {bounds: discover, bins: 12, spikes: [-5, 5000]}}
"""


class TestFactsToDiscover:
    @pytest.fixture
    def schema(self, tmp_path):
        (tmp_path / "open.yaml").write_text(OPEN)
        return Schema.load(tmp_path / "open.yaml")

    def test_are_assumed_and_said(self, schema):
        made = plan(schema, people=20_000, epsilons=[1])
        assert made.columns == 8
        assert made.to_dict()["assumed"] == [
            "age, born: 100 bins", "income, visits: 32 bins", "city, remark: 16 values", "pay: 12 bins",
            "a tenth of the budget is spent on discovering these facts, and a tenth of delta is set aside",
        ]  # fmt: skip

    def test_cost_a_tenth_of_the_budget(self, schema):
        filled, _ = assume_facts(schema)
        [discovered] = plan(schema, people=20_000, epsilons=[1], mechanisms=["mst"]).lines
        [declared] = plan(filled, people=20_000, epsilons=[1], mechanisms=["mst"]).lines
        assert discovered.expected.group / declared.expected.group == pytest.approx((0.9 * 0.985) ** -0.5, rel=0.02)

    def test_need_a_delta_where_values_are_published(self, schema):
        with pytest.raises(SettingError, match="city"):
            plan(schema, people=20_000, delta=0)

    def test_a_declared_schema_is_taken_as_it_is(self):
        schema = Schema.from_domain(SIZES)
        assert assume_facts(schema) == (schema, ())
