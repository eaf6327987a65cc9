"""What a plan says before a row is read: errors that come true, odds, a delta that fits, and advice."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.accounting.calibrate import certified_plan
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.selection import merged
from understudy.mechanism import mechanism_named
from understudy.mechanism.aim import AIM
from understudy.mechanism.mwem import MWEM
from understudy.mechanism.registry import MECHANISMS
from understudy.planning import check_delta, default_delta, odds_of, plan
from understudy.planning.assume import assumed
from understudy.planning.measured import Measured, errors_of
from understudy.planning.noise import PlannedNoise
from understudy.planning.plausible import Pair, Problem, fitted, plausible_table
from understudy.planning.predict import PLAYS, expected_of
from understudy.planning.rounds import of_rounds
from understudy.schema import Schema
from understudy.testing import insecure
from understudy.testing.tables import CodedSource

SIZES = {"a": 12, "b": 7, "c": 2, "d": 20, "e": 5}
DOMAIN = Domain(SIZES)


def noise(epsilon=1.0, delta=1e-6, neighbours=None):
    return PlannedNoise(Budget.of(epsilon=epsilon, delta=delta), neighbours or Neighbours())


def covered(fit, order):
    """The columns, or pairs of columns, that some measured table holds."""
    return sorted({part for m in fit.measurements for part in combinations(DOMAIN.canonical(m.clique), order)})


class TestNoise:
    @pytest.mark.parametrize("neighbours", [Neighbours(), Neighbours("id", 3), Neighbours(None, 1, True)])
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_is_that_of_the_gate(self, neighbours, delta):
        budget = Budget.of(epsilon=1.0, delta=delta)
        source = CodedSource(
            SIZES, [[0] * 5] * 4, max_rows=neighbours.max_rows, rows_public=4 if neighbours.replace_one else None
        )
        weights = {("a",): 1.0, ("b", "c"): 2.5}
        rho = float(budget.capacity) / 2
        measured = PrivateTable(source, budget).measure(weights, rho=rho, weights=weights)
        told = noise(1.0, delta, neighbours).sigmas(np.array(list(weights.values())), rho)
        assert told == pytest.approx([m.sigma for m in measured], rel=2e-2 if delta == 0 else 1e-9)

    def test_fixed_measurements_use_the_exact_curve(self):
        weights = mechanism_named("independent").plan(DOMAIN)
        sigmas, _ = certified_plan(weights, Budget.of(epsilon=1.0, delta=1e-6), Neighbours())
        assert noise().fixed(weights) == pytest.approx(list(sigmas.values()), rel=2e-3)


class TestFit:
    def test_without_nonnegativity_is_least_squares(self):
        rng = np.random.default_rng(3)
        true = rng.uniform(500, 900, (3, 4))
        rows, columns = true.sum(axis=1) + rng.normal(0, 5, 3), true.sum(axis=0) + rng.normal(0, 8, 4)
        noisy, total = true + rng.normal(0, 10, (3, 4)), float(true.sum())
        pair = Pair(0, 1, true, rows, np.full(3, 5.0), columns, np.full(4, 8.0))
        equations = [np.eye(12) / 10, np.kron(np.eye(3), np.ones(4)) / 5, np.kron(np.ones(3), np.eye(4)) / 8]
        sides = [noisy.reshape(-1) / 10, rows / 5, columns / 8]
        exactly = 1e6  # the total is a constraint
        best = np.linalg.lstsq(
            np.vstack([*equations, exactly * np.ones((1, 12))]), np.concatenate([*sides, [exactly * total]]), rcond=None
        )[0]
        [made] = fitted([Problem(pair, noisy, 10.0, total)])
        assert made.reshape(-1) == pytest.approx(best, abs=0.5)

    def test_never_negative(self):
        rng = np.random.default_rng(4)
        true = plausible_table(rng, 9, 9, 200)
        sigma = np.full(9, 30.0)
        pair = Pair(0, 1, true, true.sum(axis=1), sigma, true.sum(axis=0), sigma)
        [made] = fitted([Problem(pair, true + rng.normal(0, 30, true.shape), 30.0, 200.0)])
        assert made.min() >= 0

    def test_merging_keeps_the_counts(self):
        true = plausible_table(np.random.default_rng(5), 10, 6, 1000)
        rows, columns = true.sum(axis=1), true.sum(axis=0)
        pair = Pair(0, 1, true, rows, np.full(10, 20.0), columns, np.full(6, 20.0)).merged(3.0)
        kept = int((rows >= 60).sum())
        assert pair.counts.shape[0] == (kept + 1 if kept < 9 else 10)
        assert pair.counts.sum() == true.sum()
        assert pair.rows == pytest.approx(pair.counts.sum(axis=1))


class TestPrediction:
    @pytest.mark.parametrize("mechanism", ["aim", "gaussian", "mst", "mwem"])
    def test_comes_true_for_a_table_of_that_kind(self, mechanism):
        """A made-up table, a few runs: the errors agree within a half (five columns of few codes vary much)."""
        rng = np.random.default_rng(11)
        rows = [rng.choice(size, 8000, p=rng.dirichlet(np.full(size, 0.7))) for size in SIZES.values()]
        source = CodedSource(SIZES, np.stack(rows, axis=1))
        budget = Budget.of(epsilon=1.0, delta=1e-6)
        found = {1: [], 2: []}
        with insecure(5):
            for _ in range(4):
                fit = mechanism_named(mechanism).fit(PrivateTable(source, budget), rho=float(budget.capacity))
                for clique, counts in source.counts(covered(fit, 1) + covered(fit, 2)):
                    true = merged(counts, source.domain.shape(clique), [fit.recoding.maps.get(c) for c in clique])
                    found[len(clique)].append(np.abs(fit.model.project(clique).reshape(-1) - true).mean())
        told = expected_of(mechanism, DOMAIN, 8000, noise())
        assert told.one_way == pytest.approx(np.mean(found[1]), rel=0.5)
        assert told.two_way == pytest.approx(np.mean(found[2]), rel=0.5)

    @pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
    @pytest.mark.parametrize("delta", [0.0, 1e-6])
    def test_every_mechanism_has_one_and_it_grows_as_the_budget_shrinks(self, mechanism, delta):
        small, large = (expected_of(mechanism, DOMAIN, 50_000, noise(epsilon, delta)) for epsilon in (0.5, 2.0))
        assert small.one_way > 2 * large.one_way > 0
        assert small.group > 3 * large.group
        assert (large.two_way is None) == (large.pairs == 0) == (mechanism == "independent")
        assert large.pairs <= 10

    def test_more_columns_than_adaptive_mechanisms_take_are_played_in_part(self):
        told = expected_of("aim", Domain({f"c{i}": 4 for i in range(60)}), 20_000, noise())
        assert 60 < told.pairs < 60 * 59 / 2
        assert told.two_way > expected_of("aim", Domain({f"c{i}": 4 for i in range(15)}), 20_000, noise()).two_way

    def test_of_a_strangers_mechanism_there_is_none(self):
        assert expected_of("magic", DOMAIN, 1000, noise()) is None

    def test_is_the_same_each_time(self):
        for mechanism in PLAYS:
            assert expected_of(mechanism, DOMAIN, 5000, noise()) == expected_of(mechanism, DOMAIN, 5000, noise())

    @pytest.mark.parametrize("mechanism", sorted(PLAYS))
    @pytest.mark.parametrize("sizes", [{"a": 1}, {"a": 30}, {"a": 1, "b": 2}, {"a": 3000, "b": 3000, "c": 2}])
    @pytest.mark.parametrize("epsilon", [0.01, 1.0])
    def test_stands_odd_domains(self, mechanism, sizes, epsilon):
        told = expected_of(mechanism, Domain(sizes), 100, noise(epsilon))
        assert math.isfinite(told.one_way)
        assert told.group > 0


class TestMeasured:
    run = Measured(np.array([9, 6, 4]), np.array([9, 6, 4]), np.array([0.01, 0.01, 0.01]), [(0, 1)], [10.0])

    def errors(self, **changed):
        run = replace(self.run, **changed)
        return errors_of(np.random.default_rng(1), [run], 9000, noise(), pairs=400, cells=10**6)

    def test_a_pair_that_nothing_covers_is_not_counted(self):
        assert self.errors().pairs == 1
        assert self.errors(cliques=[(0, 1, 2)]).pairs == 3
        assert self.errors(cliques=[], sigmas=[]).two_way is None

    def test_a_larger_table_tells_its_pairs_less_well(self):
        assert self.errors(cliques=[(0, 1, 2)]).pair_sigma > self.errors().pair_sigma

    def test_two_tables_of_a_pair_tell_more_than_one(self):
        twice = self.errors(cliques=[(0, 1), (0, 1)], sigmas=[10.0, 10.0])
        assert twice.pair_sigma == pytest.approx(self.errors().pair_sigma / math.sqrt(2))

    def test_the_group_of_a_column_counts_its_looks_and_its_tables(self):
        assert self.errors(cliques=[], sigmas=[]).sigma == pytest.approx(10.0)
        assert self.errors(cliques=[(0, 1), (1, 2)], sigmas=[1.0, 1.0]).sigma < 5


class TestRounds:
    def test_what_adaptive_mechanisms_spend_is_all_there_is(self):
        """The precision of looks and tables together costs the whole budget but what choosing takes."""
        budget = noise()
        for settings in (AIM(), MWEM().as_aim()):
            run = of_rounds(np.random.default_rng(1), settings, DOMAIN, 20_000, budget)
            looks, tables = (run.looks / 2).sum(), sum(1 / (2 * sigma**2) for sigma in run.sigmas)
            assert looks + tables / settings.measured == pytest.approx(budget.capacity)

    def test_tables_of_too_many_cells_are_no_candidates(self):
        wide = Domain({"a": 3000, "b": 3000, "c": 20, "d": 20})
        run = of_rounds(np.random.default_rng(1), MWEM().as_aim(), wide, 20_000, noise())
        assert run.cliques
        assert all(run.sizes[list(clique)].prod() <= MWEM().max_cells for clique in run.cliques)

    def test_looks_are_those_of_the_mechanism(self):
        """Columns alone follow from the number of rows; a run with next to no noise in it says which they are."""
        source = CodedSource(SIZES, [[0] * 5] * 8000)
        with insecure(3):
            table = PrivateTable(source, noise().budget)
            fit = AIM().fit(table, rho=noise().capacity)
        precision = dict.fromkeys(SIZES, 0.0)
        for measurement in fit.measurements[: fit.rounds[0]["measured"] + fit.rounds[1]["measured"]]:
            precision[measurement.clique[0]] += measurement.sigma**-2
        run = of_rounds(np.random.default_rng(1), AIM(), DOMAIN, 8000, noise())
        assert run.looks == pytest.approx(list(precision.values()), rel=0.1)


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

    def test_many_columns_are_not_for_aim(self):
        wide = Schema.from_domain({f"c{i}": 3 for i in range(40)})
        made = plan(wide, people=20_000, epsilons=[1])
        assert made.recommended[1][0] == "mst"
        assert plan(self.schema, people=20_000, epsilons=[1]).recommended[1][0] == "aim"

    def test_the_advice_passes_over_what_drowns(self):
        made = plan(self.schema, people=200, epsilons=[0.05, 8], mechanisms=["gaussian", "mwem"])
        assert made.recommended[0.05] == ("gaussian", made.recommended[0.05][1])
        assert "larger budget" in made.recommended[0.05][1]
        assert "pairs" in made.recommended[8][1]

    @pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
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
            ({}, "--people"),
            ({"people": 3}, "at least 10"),
            ({"people": 1000, "delta": 0.01}, "delta"),
            ({"people": 1000, "epsilons": [-1]}, "epsilon"),
            ({"people": 1000, "mechanisms": ["magic"]}, "magic"),
        ],
    )
    def test_refuses(self, given, match):
        with pytest.raises(SettingError, match=match):
            plan(self.schema, **given)


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


class TestFactsToBuy:
    @pytest.fixture
    def schema(self, tmp_path):
        (tmp_path / "open.yaml").write_text(OPEN)
        return Schema.load(tmp_path / "open.yaml")

    def test_are_assumed_and_said(self, schema):
        made = plan(schema, people=20_000, epsilons=[1])
        assert made.columns == 8
        assert made.to_dict()["assumed"] == [
            "age, born: 100 bins", "income, visits: 32 bins", "city, remark: 16 values", "pay: 12 bins",
            "a tenth of the budget buys these facts, and a tenth of delta is set aside",
        ]  # fmt: skip

    def test_cost_a_tenth_of_the_budget(self, schema):
        filled, _ = assumed(schema)
        [bought] = plan(schema, people=20_000, epsilons=[1], mechanisms=["mst"]).lines
        [declared] = plan(filled, people=20_000, epsilons=[1], mechanisms=["mst"]).lines
        assert bought.expected.group / declared.expected.group == pytest.approx((0.9 * 0.985) ** -0.5, rel=0.02)

    def test_need_a_delta_where_values_are_told(self, schema):
        with pytest.raises(SettingError, match="city"):
            plan(schema, people=20_000, delta=0)

    def test_a_declared_schema_is_taken_as_it_is(self):
        schema = Schema.from_domain(SIZES)
        assert assumed(schema) == (schema, ())
