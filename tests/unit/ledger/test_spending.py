"""What reservations come to, what a grant allows, and who is told."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

import understudy as us
from understudy import errors
from understudy import run as runs
from understudy.accounting import Budget, epsilon_of
from understudy.accounting.neighbours import Neighbours
from understudy.ledger import Grant, Ledger, Reservation
from understudy.ledger.spending import add_up, budget_from_dict, budget_to_dict
from understudy.planning.made_up import rehearsal_rows

ONE = Budget.of(epsilon=1.0, delta=1e-9)
SCHEMA = us.Schema.from_domain({"a": 3, "b": 2})
UNIT = Neighbours().describe()
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def reservation(budget=ONE, unit=UNIT, time=NOW, last=None, **rest):
    return Reservation("it", "people", budget, unit, time, last or time, "user:me", **rest)


# -- sums --


def test_a_single_run_costs_what_it_says():
    total = add_up([reservation()])
    assert (total.runs, total.epsilon, total.delta) == (1, 1.0, 1e-9)
    assert str(total) == "1 run, epsilon 1 in total at delta 1e-09"


def test_two_runs_add_epsilons_and_deltas_where_that_is_smaller():
    total = add_up([reservation(Budget.of(epsilon=0.01, delta=1e-9).certify(1))] * 2)
    assert total.epsilon == pytest.approx(0.02)
    assert total.delta == pytest.approx(2e-9)


def test_many_runs_add_rhos_where_that_is_smaller():
    total = add_up([reservation()] * 50)
    assert total.epsilon == pytest.approx(epsilon_of(50 * ONE.rho, 50e-9), rel=1e-9)
    assert total.epsilon < 20


def test_the_sum_of_several_runs_says_under_which_assumption_it_holds():
    words = (
        "; for budgets fixed in advance (if later budgets were chosen after seeing earlier results, the delta doubles)"
    )
    pure = reservation(Budget.of(epsilon=1.0, delta=0))
    assert str(add_up([pure] * 2)) == f"2 runs, epsilon 2 in total at delta 0{words}"
    assert words not in str(add_up([pure]))
    rho = reservation(Budget.of(rho=0.25))
    assert str(add_up([rho] * 2)) == "2 runs, rho 0.5 in total"  # a sum of rhos holds for later choices as well


def test_pure_runs_stay_pure_and_mixed_ones_take_the_stated_delta():
    pure = [reservation(Budget.of(epsilon=epsilon, delta=0)) for epsilon in (0.5, 0.25)]
    assert (add_up(pure).epsilon, add_up(pure).delta) == (0.75, 0.0)
    total = add_up([*pure, reservation()])
    assert (total.epsilon, total.delta) == (1.75, 1e-9)


def test_a_run_that_stated_rho_alone_is_counted_by_rho():
    alone = reservation(Budget.of(rho=0.5))
    assert (add_up([alone]).epsilon, add_up([alone]).rho) == (None, 0.5)
    assert str(add_up([alone])) == "1 run, rho 0.5 in total"
    assert add_up([alone, reservation(Budget.of(epsilon=1.0, delta=1e-6))]).epsilon > epsilon_of(0.5, 1e-6)


def test_sums_convert_at_the_delta_that_discovery_leaves():
    plain, aside = Budget.of(epsilon=1.0, delta=1e-6), Budget.of(epsilon=1.0, delta=1e-6, discovery_delta=9e-7)
    first, second = (add_up([reservation(budget)] * 10) for budget in (plain, aside))
    assert second.epsilon == pytest.approx(epsilon_of(second.rho, 1e-6), rel=1e-6)
    assert first.epsilon == pytest.approx(epsilon_of(first.rho, 1e-5), rel=1e-6)
    assert second.delta == first.delta == pytest.approx(1e-5)


def test_a_sum_is_never_rounded_down():
    third = Budget(proof="zcdp", rho=Fraction(1, 3), epsilon=None, delta=None)
    assert Fraction(add_up([reservation(third)]).rho) >= Fraction(1, 3)
    assert Fraction(Grant("people", rho=9.0).amount_used([reservation(third)], NOW)) >= Fraction(1, 3)


def test_cancelled_runs_do_not_count_and_unfinished_ones_do():
    runs_made = [reservation(state=state) for state in ("cancelled", "unfinished", "finished")]
    assert add_up(runs_made).runs == 2
    assert Grant("people", epsilon=9.0).amount_used(runs_made, NOW) == Grant("people", epsilon=9.0).amount_used(
        runs_made[1:], NOW
    )
    assert str(add_up(runs_made[:1])) == "0 runs, rho 0 in total"


def test_runs_that_protect_different_units_are_distinguished():
    assert not add_up([reservation()] * 2).mixed
    total = add_up([reservation(), reservation(unit="everything of one person")])
    assert total.mixed
    assert "different units" in str(total)


# -- grants --


def test_small_runs_draw_by_the_smaller_of_two_valid_bounds():
    grant = Grant("people", epsilon=4.0)
    assert grant.amount_used([], NOW) == 0.0
    assert grant.amount_used([reservation()], NOW) == pytest.approx(min(1.0, epsilon_of(ONE.rho, 1e-6)))
    many = [reservation()] * 30
    assert grant.amount_used(many, NOW) == pytest.approx(epsilon_of(30 * ONE.rho, 1e-6), rel=1e-9)
    assert grant.amount_used(many, NOW) < 30


def test_runs_of_large_delta_are_counted_at_the_grants_own():
    loose = reservation(Budget.of(epsilon=1.0, delta=1e-3))
    used = Grant("people", epsilon=4.0, delta=1e-6).amount_used([loose], NOW)
    assert used == pytest.approx(epsilon_of(loose.budget.rho, 1e-6))
    assert used > 1.0


def test_a_grant_in_rho_is_a_sum():
    grant, small = Grant("people", rho=0.5, number=7), reservation(Budget.of(rho=0.2))
    assert grant.amount_used([small] * 2, NOW) == pytest.approx(0.4)
    assert grant.refusal([small] * 2, reservation(Budget.of(rho=0.1))) is None
    words = grant.refusal([small] * 2, small) or ""
    assert words.startswith("'people' would reach rho 0.6")
    assert words.endswith("; grant 7 allows rho 0.5 in total to anyone")


def test_the_last_bits_of_a_sum_do_not_refuse_a_run():
    grant, tenth = Grant("people", rho=0.5), reservation(Budget.of(rho=0.1))
    assert grant.refusal([tenth] * 4, tenth) is None
    assert grant.refusal([tenth] * 5, tenth) is not None


def test_delta_set_aside_for_discovery_is_not_used_twice():
    discovered = reservation(Budget.of(epsilon=1.0, delta=1e-6, discovery_delta=9e-7))
    assert Grant("people", epsilon=9.0, delta=1e-6).amount_used([discovered] * 2, NOW) == math.inf
    assert Grant("people", epsilon=9.0, delta=1e-5).amount_used([discovered] * 2, NOW) <= 2.0
    assert "too much" in (Grant("people", epsilon=9.0, delta=1e-6).refusal([discovered], discovered) or "")


def test_a_yearly_grant_counts_the_last_365_days_and_a_total_everything():
    old, new = (reservation(time=NOW - timedelta(days=days)) for days in (366, 364))
    year, total = Grant("people", rho=9.0, per="year"), Grant("people", rho=9.0)
    assert year.amount_used([old, new], NOW) == year.amount_used([new], NOW) == pytest.approx(float(ONE.rho))
    assert total.amount_used([old, new], NOW) == pytest.approx(2 * float(ONE.rho))


def test_a_run_that_was_gone_on_with_months_later_counts_from_then_on():
    """Its last answers were given then: any 365 days around them hold it."""
    long = reservation(time=NOW - timedelta(days=400), last=NOW - timedelta(days=3))
    year = Grant("people", rho=9.0, per="year")
    assert year.amount_used([long], NOW) > 0
    assert year.amount_used([replace(long, last=long.time)], NOW) == 0


def test_a_run_of_the_future_counts():
    """A clock may have been ahead: what it wrote is not forgotten when the clock is put right."""
    ahead = reservation(time=NOW + timedelta(days=5000))
    assert Grant("people", rho=9.0, per="year").amount_used([ahead], NOW) > 0


@pytest.mark.parametrize(
    "given", [{}, {"epsilon": 0.0}, {"epsilon": -1}, {"epsilon": 1, "rho": 1}, {"rho": float("nan")},
              {"rho": math.inf}, {"epsilon": 1, "delta": 0}, {"epsilon": 1, "delta": 1}, {"epsilon": "1"},
              {"epsilon": 1, "per": "month"}, {"epsilon": 1, "to": "somebody"}, {"epsilon": 1, "to": "user:"},
              {"epsilon": 1, "to": "user: x"}]
)  # fmt: skip
def test_a_grant_that_makes_no_sense_is_refused(given):
    with pytest.raises(errors.SettingError, match="grant: "):
        Grant("people", **given)


OTHER = [Neighbours(unit="patient"), Neighbours(replace_one=True), Neighbours(unit="house", max_rows=2)]


@pytest.mark.parametrize("grant", [Grant("people", rho=9.0), Grant("people", epsilon=99.0)])
@pytest.mark.parametrize("other", OTHER)
def test_runs_that_protect_different_units_have_no_sum_and_pass_any_grant(grant, other):
    drawn, another = [reservation()], reservation(unit=other.describe())
    assert grant.refusal(drawn, reservation()) is None
    assert "protect different units" in (grant.refusal(drawn, another) or "")
    assert grant.amount_used([*drawn, another], NOW) == math.inf


@pytest.mark.parametrize("linked", [False, True])
def test_how_many_rows_of_a_unit_are_used_does_not_change_the_unit(linked):
    def protect(rows):
        tables = (("patients", 1), ("visits", rows), ("lab-results", 2 * rows)) if linked else ()
        return reservation(unit=Neighbours("patient", 1 if linked else rows, tables=tables).describe())

    few, many = protect(1), protect(20)
    assert not add_up([few, many]).mixed
    assert Grant("people", epsilon=4.0).refusal([few, many], many) is None


# -- budgets as plain data --


@pytest.mark.parametrize(
    "budget",
    [
        ONE,
        Budget.of(epsilon=1.0, delta=0),
        Budget.of(rho=0.1),
        Budget.of(rho=0.1, delta=1e-6, discovery_delta=5e-7),
        ONE.certify(Fraction(1, 3)),
    ],
)
def test_a_budget_survives_being_written_exactly(budget):
    again = budget_from_dict(json.loads(json.dumps(budget_to_dict(budget))))
    assert replace(again, rho_stated=budget.rho_stated) == budget


def test_delta_set_aside_is_read_from_older_ledgers():
    budget = Budget.of(rho=0.1, delta=1e-6, discovery_delta=5e-7)
    older = budget_to_dict(budget)
    older["purchase_delta"] = older.pop("discovery_delta")
    assert budget_from_dict(older) == budget_from_dict(budget_to_dict(budget))
    assert budget_from_dict(older).discovery_delta == budget.discovery_delta > 0


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"rho": None},
        {"rho": "-1"},
        {"rho": "1e9999999"},
        {"rho": "many"},
        {"rho": "1", "epsilon": "1"},
        {"rho": "1", "epsilon": "1", "delta": "-1"},
        {"rho": "1", "epsilon": "1", "delta": "0", "discovery_delta": "-1/9"},
    ],
)
def test_numbers_that_no_run_reserves_are_refused(data):
    with pytest.raises(ValueError, match=r"\w"):
        budget_from_dict(data)


# -- in runs and on the command line --


@pytest.fixture
def folder(tmp_path):
    import pyarrow.csv as pa_csv

    pa_csv.write_csv(rehearsal_rows(SCHEMA, 50), tmp_path / "people.csv")
    SCHEMA.save(tmp_path / "s.yaml")
    (tmp_path / "run.yaml").write_text(
        "data: people.csv\nschema: s.yaml\nbudget: {rho: 0.2}\nmechanism: independent\noutputs: {report: []}"
    )
    return tmp_path


def synthesis():
    return us.synthesize(rehearsal_rows(SCHEMA, 50), SCHEMA, rho=0.2, mechanism="independent", dataset="people")


def test_run_and_synthesize_are_refused_beyond_a_grant_and_a_paid_run_is_not_asked_again(folder):
    Ledger().grant(Grant("people", rho=0.3))
    assert runs.run(folder / "run.yaml", folder / "one").status == "made"
    for attempt in (lambda: runs.run(folder / "run.yaml", folder / "two"), synthesis):
        with pytest.raises(errors.BudgetExceeded, match=r"would reach rho 0\.4.*Nothing was read"):
            attempt()
    assert Ledger().total("people").runs == 1
    assert runs.run(folder / "run.yaml", folder / "one").status == "unchanged"
    assert runs.run(folder / "run.yaml", folder / "three", rehearse=True).status == "made"
    Ledger().grant(Grant("people", rho=0.5))
    assert runs.run(folder / "run.yaml", folder / "two").status == "made"
    assert Ledger().total("people").runs == 2


def test_a_run_that_protects_another_unit_than_those_before_is_refused_and_reported(folder, call):
    before = Neighbours(unit="patient", max_rows=3).describe()
    Ledger().reserve("people", Budget.of(rho=0.1), unit=before, spec={})
    Ledger().grant(Grant("people", rho=9.0))
    with pytest.raises(errors.BudgetExceeded, match="protect different units"):
        runs.run(folder / "run.yaml", folder / "one")
    assert Ledger().total("people").runs == 1
    Ledger().revoke(Ledger().grants("people")[0].number)
    assert runs.run(folder / "run.yaml", folder / "one").status == "made"
    told = json.loads(call("ledger", "show", "people", "--json")[1])
    assert told["mixed_units"] is True
    assert told["grants"][0]["used"] is None
    assert "revoked; more than can be stated used" in call("ledger", "show", "people")[1]


def test_the_commands_grant_show_and_revoke(call):
    assert call("ledger", "show")[1] == "The ledger is empty.\n"
    synthesis()
    code, out, _ = call("ledger", "grant", "people", "--epsilon", 4)
    assert code == 0
    assert out.endswith("for people: epsilon 4 at delta 1e-06 in total to anyone\n")
    out = call("ledger", "show", "people")[1]
    assert "people: 1 run, rho 0.2 in total" in out
    assert "epsilon 4 at delta 1e-06 in total to anyone; 3." in out
    told = json.loads(call("ledger", "show", "people", "--json")[1])
    assert (told["runs"], told["grants"][0]["amount"], told["grants"][0]["unit"]) == (1, 4.0, "epsilon")
    assert told["grants"][0]["used"] == pytest.approx(epsilon_of(0.2, 1e-6))
    assert json.loads(call("ledger", "show", "--json")[1])["datasets"] == [told]
    number = told["grants"][0]["grant"]
    assert call("ledger", "revoke", number)[0] == 0
    assert json.loads(call("ledger", "show", "people", "--json")[1])["grants"][0]["revoked"] is True
    assert call("ledger", "revoke", number)[0] == 3


def test_the_commands_refuse_half_a_grant_and_unknown_datasets(call):
    assert call("ledger", "grant", "people")[0] == 3
    assert call("ledger", "grant", "people", "--rho", 1, "--epsilon", 1)[0] == 3
    assert call("ledger", "grant", "../up", "--rho", 1)[0] == 3
    synthesis()
    code, _, err = call("ledger", "show", "nobody")
    assert code == 3
    assert "dataset 'nobody' is not in the ledger; it has people" in err


def test_the_command_line_refuses_beyond_a_grant_in_one_line(call, folder):
    words = ["synthesize", folder / "people.csv", "-s", folder / "s.yaml", "--rho", 0.4, "-m", "independent"]
    Ledger().grant(Grant("people", rho=0.3))
    code, out, err = call(*words, "-o", folder / "r.release")
    assert (code, out) == (6, "")
    assert err.startswith("error: 'people' would reach rho 0.4; grant")
    assert len(err.splitlines()) == 1
    assert not (folder / "r.release").exists()
