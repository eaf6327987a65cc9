"""Mistakes made on purpose. Each must be caught by a check that the correct code passes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pytest

import understudy as us
from understudy.accounting import Budget, Receipt
from understudy.accounting import calibrate as plans
from understudy.accounting.budget import Account
from understudy.accounting.charge import Charge
from understudy.accounting.neighbours import Neighbours
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.run import pipeline
from understudy.run.record import CannotContinue, RunRecorder
from understudy.testing.audit import check_claim
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource, SealedSource
from understudy.testing.twin import check_twins

from .trials import (
    cells_trial,
    dependence_trial,
    distances_trial,
    gaussian_trial,
    independent_trial,
    laplace_trial,
    noise_halved,
    selection_trial,
)

SIZES = {"a": 3, "b": 2, "c": 2}
ROWS = [[0, 0, 0], [1, 1, 0], [2, 1, 1], [2, 0, 1], [0, 1, 1]]
ONES = [("a",), ("b",), ("c",)]
PAIRS = [("a", "b"), ("b", "c")]


# -- the mistakes ------------------------------------------------------------------------------------------------------


def noise_left_out(patch):
    original = PrivateTable._noisy
    patch.setattr(
        PrivateTable, "_noisy", lambda t, clique, counts, *rest: _exact(original(t, clique, counts, *rest), counts)
    )


def _exact(measurement, counts):
    return replace(measurement, values=np.array(counts))


def noise_used_twice(patch):
    drawn = {}
    original = PrivateTable._draw

    def draw(table, charge, size):
        key = (charge.scale, size)
        return drawn.setdefault(key, original(table, charge, size))

    patch.setattr(PrivateTable, "_draw", draw)


def composition_forgotten(patch):
    patch.setattr(gate, "divide", lambda cliques, weights, share, *, squared: dict.fromkeys(cliques, share))
    patch.setattr(
        Budget,
        "cost",
        lambda budget, charges: max(
            ((c.epsilon or Fraction(0)) if budget.pure else c.rho for c in charges), default=Fraction(0)
        ),
    )


def dependence_composed_as_one(patch):
    original = gate.gaussian_charge
    patch.setattr(
        gate,
        "gaussian_charge",
        lambda what, about, squared, *, share: original(
            what, about, squared // (len(about) if what == "dependence" else 1), share=share
        ),
    )


def distances_composed_as_one(patch):
    """The noise of a single distance for all of them."""
    gaussian, laplace = gate.gaussian_charge, gate.laplace_charge
    patch.setattr(
        gate,
        "gaussian_charge",
        lambda what, about, squared, *, share: gaussian(what, about, _of_one(what, squared), share=share),
    )
    patch.setattr(
        gate,
        "laplace_charge",
        lambda what, about, reach, *, share: laplace(what, about, _of_one(what, reach), share=share),
    )


def _of_one(what, reach):
    return reach // 2 if what == "distances" else reach


def distances_in_rows_with_the_noise_of_units(patch):
    """Noise for a sensitivity of one, although a row is 2^16 units."""
    original = PrivateTable._draw
    patch.setattr(
        PrivateTable,
        "_draw",
        lambda t, charge, size: original(
            t, replace(charge, scale=charge.scale / 2**16) if charge.what == "distances" else charge, size
        ),
    )


def selection_without_its_half(patch):
    original = gate.exponential_mechanism
    patch.setattr(gate, "exponential_mechanism", lambda scores, rate: original(scores, 2 * rate))


def selection_with_half_the_sensitivity(patch):
    original = Neighbours.score
    patch.setattr(Neighbours, "score", lambda neighbours, weight: original(neighbours, weight) / 2)


def cells_without_their_half(patch):
    original = gate.exponential_mechanism_many
    patch.setattr(gate, "exponential_mechanism_many", lambda scores, rate, *rest: original(scores, 2 * rate, *rest))


def all_selections_of_cells_for_the_price_of_one(patch):
    """Each of two selections has the epsilon of both, and is entered with its part."""
    original = gate.exponential_charge

    def charge(candidates, sensitivity, *, share, pure):
        paid = original(candidates, sensitivity, share=share, pure=pure)
        if candidates:
            return paid
        return replace(paid, scale=original(candidates, sensitivity, share=2 * share, pure=pure).scale)

    patch.setattr(gate, "exponential_charge", charge)


def cells_of_half_their_sensitivity(patch):
    patch.setattr(Neighbours, "cell", property(lambda near: Fraction(near.max_rows, 2)))


def one_row_per_unit_assumed(patch):
    for name in ("marginal_l2_squared", "marginal_l1", "cell"):
        original = getattr(Neighbours, name).fget
        patch.setattr(Neighbours, name, property(lambda n, f=original: f(replace(n, max_rows=1))))


def replacing_charged_as_adding(patch):
    for name in ("marginal_l2_squared", "marginal_l1", "indif"):
        original = getattr(Neighbours, name).fget
        patch.setattr(Neighbours, name, property(lambda n, f=original: f(replace(n, replace_one=False))))


def replacing_planned_as_adding(patch):
    original = plans.calibrate_sigma
    patch.setattr(plans, "calibrate_sigma", lambda *given, replace_one: original(*given, replace_one=False))


def spread_forgotten(patch):
    """The sigmas are calibrated for their weights, and then all get the common one."""
    divide, calibrate = plans.divide_sigma, plans.calibrate_sigma

    def calibrated(*args, **kwargs):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(plans, "divide_sigma", divide)
            return calibrate(*args, **kwargs)

    patch.setattr(plans, "calibrate_sigma", calibrated)
    patch.setattr(plans, "divide_sigma", lambda sigma, weights: [sigma] * len(weights))


def indif_taken_as_a_count(patch):
    patch.setattr(Neighbours, "indif", property(lambda n: n.marginal_l1))


def answer_returned_before_it_is_recorded(patch):
    """The mechanism has the answer by then: the run is killed, started again, and answered a second time."""

    def answered(table, charges, compute):
        recorder = table._PrivateTable__recorder
        table.account.pay(charges)
        answer = table._new_answer(compute())
        told.append(answer)
        recorder.record(charges, answer, table._PrivateTable__recoding)
        return answer

    told = TOLD
    patch.setattr(PrivateTable, "_answer", answered)


def answer_never_recorded(patch):
    patch.setattr(RunRecorder, "record", lambda *given: None)


def rows_read_before_the_reservation(patch):
    reserve = pipeline._reserve

    def late(run, ledger, name):
        open_source = pipeline.open_source(run.spec.data, run.schema)
        list(open_source.counts([]))
        return reserve(run, ledger, name)

    patch.setattr(pipeline, "_reserve", late)


def rows_read_for_recalled_answers(patch):
    """Every answer is computed anew: a run that is started again gives a second one for the same price."""
    recall = RunRecorder.recall

    def forgets(recorder, charges, recoding):
        recall(recorder, charges, recoding)

    patch.setattr(RunRecorder, "recall", forgets)


def other_questions_given_recorded_answers(patch):
    """The first recorded answer is given to whichever question is asked next, and its charge with it."""
    recall = RunRecorder.recall

    def any_question(recorder, charges, recoding):
        known = recorder._answers[recorder._next : recorder._next + 1]
        charges = [Charge.from_dict(one) for one in known[0][0]["charges"]] if known else charges
        return recall(recorder, charges, recoding)

    patch.setattr(RunRecorder, "recall", any_question)


def recalled_answers_free(patch):
    """A run that is started again has its whole budget once more."""
    answer = PrivateTable._answer

    def answered(table, charges, compute):
        recorder = table._PrivateTable__recorder
        if recorder is not None and (recorded := recorder.recall(charges, table._PrivateTable__recoding)) is not None:
            return recorded
        with mock.patch.object(RunRecorder, "recall", return_value=None):
            return answer(table, charges, compute)

    patch.setattr(PrivateTable, "_answer", answered)


def rows_read_before_paying(patch):
    original = PrivateTable._check_cliques

    def checked(table, cliques):
        wanted = original(table, cliques)
        list(table._counts(wanted))
        return wanted

    patch.setattr(PrivateTable, "_check_cliques", checked)


def filter_switched_off(patch):
    patch.setattr(Account, "pay", lambda account, charges: account._charges.extend(charges))
    patch.setattr(Account, "share", lambda account, amount: Fraction(amount))


def true_total_in_the_model(patch):
    from understudy.model import generate

    truth = {}
    original, init = generate.fit_product, PrivateTable.__init__

    def watched(table, source, *args, **rest):
        truth["n"] = int(dict(source.counts([()]))[()].sum())
        init(table, source, *args, **rest)

    patch.setattr(PrivateTable, "__init__", watched)
    patch.setattr(generate, "fit_product", lambda domain, ms, total=None: original(domain, ms, total=truth["n"]))


def true_number_of_rows_as_default(patch):
    original, opened = us.Release.of.__func__, pipeline.open_source
    truth = {}

    def watched(data, schema):
        truth["n"] = len(data)
        return opened(data, schema)

    def made(cls, fit, schema, receipt, **label):
        return original(cls, fit, schema, receipt, **{**label, "rows": truth["n"]})

    patch.setattr(pipeline, "open_source", watched)
    patch.setattr(us.Release, "of", classmethod(made))


# -- the checks --------------------------------------------------------------------------------------------------------


def spied(*, max_rows=1, rows_public=None, pure=False):
    """Measure, choose, ask for dependence and for distances, watched by the spy."""
    budget = Budget.of(epsilon=1.5, delta=0) if pure else Budget.of(rho=0.75)
    third = float(budget.capacity) / 3
    with Spy() as spy:
        table = PrivateTable(CodedSource(SIZES, ROWS, max_rows=max_rows, rows_public=rows_public), budget)
        table.measure(ONES, rho=third, weights={("a",): 2.0, ("b",): 1.0, ("c",): 0.3})
        against = {pair: np.full(table.domain.cells(pair), 0.7) for pair in PAIRS}
        table.select(
            PAIRS,
            against=against,
            rho=third,
            weights={PAIRS[0]: 0.5, PAIRS[1]: 2.0},
            offsets={PAIRS[0]: 1.25, PAIRS[1]: 0.1},
        )
        table.dependence(PAIRS, rho=third / 4)
        table.distances(PAIRS, against=against, rho=third / 4)
        (first, second) = table.select_cells(PAIRS, against=against, count=2, rho=third / 4)
        table.measure([first.clique], rho=third / 8, queries={first.clique: first.query(table.domain)})
        table.select_cells(PAIRS, against=against, count=1, rho=third / 8, used=[first, second])
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


def spied_independent(*, rows_public=None):
    """A whole run, its noise judged by dp-accounting's exact curve."""
    schema = replace(us.Schema.from_domain(dict.fromkeys("abcdef", 2)), rows=rows_public)
    frame = pl.DataFrame({name: [0, 1, 1] for name in "abcdef"})
    with Spy() as spy:
        release = us.synthesize(frame, schema, epsilon=1.0, delta=1e-3, mechanism="independent")
    assert release.receipt.budget.proof == "pld"
    check_spent(spy, release.receipt)


TOLD = []
"""What a mechanism was given before it was on record."""


def paid_before_rows_are_read():
    class Watching(CodedSource):
        def counts(self, cliques):
            assert len(table.account.charges) > before, "rows were read before they were paid for"
            return super().counts(cliques)

    table = PrivateTable(Watching(SIZES, ROWS), Budget.of(rho=1.0))
    for ask in _asks(table, 0.2):
        before = len(table.account.charges)
        ask()


def an_answer_is_on_record_before_anybody_sees_it():
    """The ledger goes away at the moment of recording; whoever asked must have nothing in hand."""
    for number in range(5):
        ledger = us.Ledger()
        budget = Budget.of(rho=1.0)
        handle = ledger.reserve("people", budget, unit="one row", spec={})
        table = PrivateTable(CodedSource(SIZES, ROWS), budget, recorder=RunRecorder(ledger, handle))
        TOLD.clear()
        seen = []
        away = mock.patch.object(us.Ledger, "record", side_effect=us.errors.LedgerError("away"))
        with away, suppress(us.errors.LedgerError):
            seen.append(_asks(table, 0.2)[number]())
        assert not seen, "an answer was given that is not on record"
        assert not TOLD, "an answer was given before it was on record"


def rows_are_opened_once_the_budget_is_reserved():
    schema = us.Schema.from_domain({"a": 3})
    opened, states = pipeline.open_source, []

    def watched(data, schema):
        states.append([one.state for one in us.Ledger().reservations()])
        return opened(data, schema)

    with mock.patch.object(pipeline, "open_source", watched):
        us.synthesize(pl.DataFrame({"a": [0, 1]}), schema, rho=1.0, mechanism="independent")
    assert states
    assert all(state == ["unfinished"] for state in states), "the table was opened before the budget was reserved"


def a_run_started_again_reads_nothing_twice_and_pays_once():
    """Asked about `a`, killed, started again: `a` comes from the record, `b` from the rows, `c` finds nothing left."""

    class Watching(CodedSource):
        def counts(self, cliques):
            read.extend(cliques)
            return super().counts(cliques)

    read, ledger, budget = [], us.Ledger(), Budget.of(rho=1.0)
    handle = ledger.reserve("people", budget, unit="one row", spec={})
    first = PrivateTable(Watching(SIZES, ROWS), budget, recorder=RunRecorder(ledger, handle))
    (known,) = first.measure([("a",)], rho=0.5)
    again = PrivateTable(Watching(SIZES, ROWS), budget, recorder=RunRecorder(ledger, ledger.continue_run(handle.run)))
    (told,) = again.measure([("a",)], rho=0.5)
    assert read == [("a",)], "rows were read for an answer that is on record"
    assert told.values.tolist() == known.values.tolist(), "a question was answered a second time"
    again.measure([("b",)], rho=0.5)
    assert again.account.remaining == 0, "a recalled answer was not counted"
    assert len(ledger.continue_run(handle.run).answers) == 2


def a_recorded_answer_is_given_to_its_own_question_alone():
    ledger, budget = us.Ledger(), Budget.of(rho=1.0)
    handle = ledger.reserve("people", budget, unit="one row", spec={})
    PrivateTable(CodedSource(SIZES, ROWS), budget, recorder=RunRecorder(ledger, handle)).measure([("a",)], rho=0.5)
    again = PrivateTable(
        SealedSource(SIZES, ROWS), budget, recorder=RunRecorder(ledger, ledger.continue_run(handle.run))
    )
    with pytest.raises(CannotContinue):
        again.measure([("b",)], rho=0.5)


def what_cannot_be_paid_is_refused_unread():
    for ask in _asks(PrivateTable(SealedSource(SIZES, ROWS), Budget.of(rho=0.1)), 0.2):
        with pytest.raises(us.errors.BudgetExceeded):
            ask()


def _asks(table, rho):
    against = {pair: np.ones(table.domain.cells(pair)) for pair in PAIRS}
    return (
        lambda: table.measure(ONES, rho=rho),
        lambda: table.select(PAIRS, against=against, rho=rho),
        lambda: table.dependence(PAIRS, rho=rho),
        lambda: table.distances(PAIRS, against=against, rho=rho),
        lambda: table.select_cells(PAIRS, against=against, count=2, rho=rho),
    )


def only_answers_tell_the_tables_apart(tmp_path: Path):
    schema = us.Schema.from_domain({"a": 3, "b": 2})
    first = pl.DataFrame({"a": [0, 1, 2, 1], "b": [0, 1, 1, 0]})
    second = pl.DataFrame({"a": [2] * 9, "b": [1] * 9})

    def run(frame, folder):
        us.synthesize(frame, schema, rho=0.05, mechanism="independent", output=folder / "r.release", dataset="d")

    check_twins(run, first, second, tmp_path / "twin")


def audited(trial, runs=2500):
    """The runs are seeded, as in every test that is not of a law: a mistake of a factor of two is caught each time."""
    check_claim(replace(trial, runs=runs))


KILLS = [
    (noise_halved, lambda: audited(gaussian_trial())),
    (noise_halved, lambda: audited(laplace_trial())),
    pytest.param(noise_halved, lambda: audited(dependence_trial()), marks=pytest.mark.slow),
    (noise_halved, lambda: spied()),
    (noise_halved, lambda: spied(pure=True)),
    (noise_left_out, lambda: spied()),
    (noise_used_twice, lambda: spied_independent()),
    (composition_forgotten, lambda: audited(gaussian_trial())),
    pytest.param(composition_forgotten, lambda: audited(laplace_trial()), marks=pytest.mark.slow),
    (composition_forgotten, lambda: spied()),
    (composition_forgotten, lambda: spied(pure=True)),
    (dependence_composed_as_one, lambda: spied()),
    (distances_composed_as_one, lambda: spied()),
    (distances_composed_as_one, lambda: spied(pure=True)),
    (distances_in_rows_with_the_noise_of_units, lambda: audited(distances_trial(pure=False), runs=1200)),
    (distances_in_rows_with_the_noise_of_units, lambda: audited(distances_trial(pure=True), runs=1200)),
    (distances_in_rows_with_the_noise_of_units, lambda: spied()),
    (selection_without_its_half, lambda: audited(selection_trial(pure=True))),
    pytest.param(selection_without_its_half, lambda: audited(selection_trial(pure=False)), marks=pytest.mark.slow),
    (selection_with_half_the_sensitivity, lambda: spied()),
    (selection_with_half_the_sensitivity, lambda: spied(pure=True)),
    (cells_without_their_half, lambda: audited(cells_trial(pure=True))),
    pytest.param(cells_without_their_half, lambda: audited(cells_trial(pure=False)), marks=pytest.mark.slow),
    (all_selections_of_cells_for_the_price_of_one, lambda: spied()),
    (all_selections_of_cells_for_the_price_of_one, lambda: spied(pure=True)),
    (cells_of_half_their_sensitivity, lambda: spied()),
    (cells_of_half_their_sensitivity, lambda: audited(cells_trial(pure=True))),
    (one_row_per_unit_assumed, lambda: audited(cells_trial(pure=True))),
    (one_row_per_unit_assumed, lambda: audited(gaussian_trial(), runs=1200)),
    pytest.param(one_row_per_unit_assumed, lambda: audited(laplace_trial()), marks=pytest.mark.slow),
    (one_row_per_unit_assumed, lambda: spied(max_rows=3)),
    (one_row_per_unit_assumed, lambda: spied(max_rows=3, pure=True)),
    (replacing_charged_as_adding, lambda: spied(rows_public=5)),
    (replacing_charged_as_adding, lambda: spied(rows_public=5, max_rows=3, pure=True)),
    (replacing_planned_as_adding, lambda: audited(independent_trial(replace_one=True))),
    (replacing_planned_as_adding, lambda: spied_independent(rows_public=3)),
    (spread_forgotten, lambda: audited(independent_trial(replace_one=False), runs=1200)),
    (spread_forgotten, lambda: spied_independent()),
    (indif_taken_as_a_count, lambda: audited(dependence_trial(), runs=1200)),
    (indif_taken_as_a_count, lambda: spied()),
    (answer_returned_before_it_is_recorded, an_answer_is_on_record_before_anybody_sees_it),
    (answer_never_recorded, an_answer_is_on_record_before_anybody_sees_it),
    (answer_never_recorded, a_run_started_again_reads_nothing_twice_and_pays_once),
    (rows_read_before_the_reservation, rows_are_opened_once_the_budget_is_reserved),
    (rows_read_for_recalled_answers, a_run_started_again_reads_nothing_twice_and_pays_once),
    (recalled_answers_free, a_run_started_again_reads_nothing_twice_and_pays_once),
    (other_questions_given_recorded_answers, a_recorded_answer_is_given_to_its_own_question_alone),
    (rows_read_before_paying, paid_before_rows_are_read),
    (rows_read_before_paying, what_cannot_be_paid_is_refused_unread),
    (filter_switched_off, what_cannot_be_paid_is_refused_unread),
]  # fmt: skip


def _pair(kill):
    return getattr(kill, "values", kill)


@pytest.mark.parametrize(
    ("mutant", "check"), KILLS, ids=[f"{_pair(kill)[0].__name__}-{i}" for i, kill in enumerate(KILLS)]
)
def test_mutant_is_killed(mutant, check, monkeypatch):
    mutant(monkeypatch)
    # A check that fails inside a paid run is told by its type: our errors never quote others.
    with pytest.raises((AssertionError, pytest.fail.Exception, us.errors.RunInterrupted)) as caught:
        check()
    assert not isinstance(caught.value, us.errors.RunInterrupted) or "AssertionError" in str(caught.value)


@pytest.mark.parametrize("mutant", [true_total_in_the_model, true_number_of_rows_as_default])
def test_the_true_number_of_rows_is_caught_by_the_twin(mutant, monkeypatch, tmp_path):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        only_answers_tell_the_tables_apart(tmp_path)


@pytest.mark.parametrize("max_rows", [1, 3])
@pytest.mark.parametrize("rows_public", [None, 5])
@pytest.mark.parametrize("pure", [False, True])
def test_the_spy_agrees_with_the_receipt(max_rows, rows_public, pure):
    spied(max_rows=max_rows, rows_public=rows_public, pure=pure)


@pytest.mark.parametrize("rows_public", [None, 3])
def test_the_spy_agrees_with_a_certified_run(rows_public):
    spied_independent(rows_public=rows_public)


@pytest.mark.parametrize(
    "check",
    [
        paid_before_rows_are_read,
        an_answer_is_on_record_before_anybody_sees_it,
        rows_are_opened_once_the_budget_is_reserved,
        a_run_started_again_reads_nothing_twice_and_pays_once,
        a_recorded_answer_is_given_to_its_own_question_alone,
    ],
)
def test_answers_are_paid_and_recorded_in_order(check):
    check()


def test_what_cannot_be_paid_is_refused_before_rows_are_read():
    what_cannot_be_paid_is_refused_unread()


def test_only_answers_distinguish_two_tables(tmp_path):
    only_answers_tell_the_tables_apart(tmp_path)


def test_every_mistake_is_tried():
    mistakes = {value for value in globals().values() if callable(value) and _takes_patch(value)}
    tried = {_pair(kill)[0] for kill in KILLS} | {true_total_in_the_model, true_number_of_rows_as_default}
    assert mistakes == tried


def _takes_patch(value):
    names = getattr(getattr(value, "__code__", None), "co_varnames", ())
    return names[:1] == ("patch",) and value.__code__.co_argcount == 1
