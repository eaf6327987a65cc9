"""Runs from rows to a release: what is refused for free, what is kept when a run fails after an answer."""

from __future__ import annotations

import errno
import os
from collections import namedtuple
from dataclasses import replace

import pandas as pd
import polars as pl
import pytest

import understudy as us
from understudy import errors
from understudy.errors import WeakBudget
from understudy.gate import PrivateTable
from understudy.gate.randomness import is_insecure
from understudy.ledger import Ledger
from understudy.mechanism.independent import Independent
from understudy.mechanism.registry import MECHANISMS
from understudy.run import pipeline
from understudy.source import MemorySource
from understudy.testing.twin import describe_error as whole_message

SCHEMA = us.Schema.from_domain({"a": 3, "b": 2, "c": 2})
KEPT = replace(SCHEMA, columns=tuple(column.model_copy(update={"on_unknown": "other"}) for column in SCHEMA.columns))
FRAME = pl.DataFrame({"a": [0, 1, 2, 1], "b": [0, 1, 1, 0], "c": [1, 1, 1, 0]})


def run(folder, **rest):
    given = {"epsilon": 1.0, "delta": 1e-6, "output": folder / "r.release", "dataset": "d", "mechanism": "independent"}
    given |= rest
    return us.synthesize(FRAME, SCHEMA, **given)


def states(dataset="d"):
    return [one.state for one in Ledger().reservations(dataset)]


def kinds():
    return [entry.kind for entry in Ledger().entries()]


def test_a_run_leaves_the_release_and_its_entries_in_the_ledger(tmp_path):
    release = run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["r.release"]
    assert us.Release.load(tmp_path / "r.release").receipt == release.receipt
    assert us.Ledger().total("d").runs == 1
    assert kinds() == ["dataset", "reserve", "attempt", "answer", "finish"]
    assert Ledger().verify() == []


def test_every_answer_is_recorded_before_the_next_question_and_nothing_before_the_reservation(tmp_path, monkeypatch):
    """Rows are opened when the budget is reserved; with each answer the ledger has one entry more."""
    seen, opened = [], pipeline.open_source
    monkeypatch.setattr(pipeline, "open_source", lambda *given: seen.append(kinds()) or opened(*given))
    original = PrivateTable._draw
    monkeypatch.setattr(PrivateTable, "_draw", lambda *given: seen.append(kinds()) or original(*given))
    run(tmp_path, mechanism="mst", rho=1000, epsilon=None, delta=None)
    begun = ["dataset", "reserve", "attempt"]
    assert seen[0] == begun
    assert [len(one) - len(begun) for one in seen[1:]] == sorted(len(one) - len(begun) for one in seen[1:])
    assert set(seen[-1]) == {*begun, "answer"}


def test_a_run_that_is_continued_is_not_continued_by_another_process(tmp_path, monkeypatch):
    """The other process is played by this one under another number."""
    told = []

    def meanwhile(step):
        if step.stage == "write" and not told:
            (one,) = Ledger().reservations("d")
            with pytest.MonkeyPatch.context() as patch:
                pid = os.getpid()
                patch.setattr("understudy.ledger.ledger.os.getpid", lambda: pid + 1)
                with pytest.raises(errors.OutputError) as refused:
                    us.resume(one.run)
            told.append(str(refused.value))

    assert run(tmp_path, progress=meanwhile).receipt.epsilon == 1.0
    assert "is working on run" in told[0]
    assert "Nothing was read" in told[0]
    assert us.Ledger().total("d").runs == 1


def test_without_output_only_the_ledger_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(tmp_path, output=None)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_can_be_named(tmp_path):
    run(tmp_path, ledger=tmp_path / "mine.db")
    assert us.Ledger(tmp_path / "mine.db").total("d").runs == 1
    assert us.Ledger().total("d").runs == 0


def test_a_weak_budget_is_reported_before_it_is_spent(tmp_path):
    with pytest.warns(WeakBudget, match=r"delta 0\.1 is large"):
        run(tmp_path, delta=0.1)


@pytest.mark.parametrize(
    ("given", "proof"),
    [
        ({"epsilon": 1.0, "delta": 1e-6}, "pld"),
        ({"epsilon": 1.0, "delta": 0}, "pure"),
        ({"epsilon": None, "delta": None, "rho": 0.1}, "zcdp"),
        ({"epsilon": None, "delta": 1e-6, "rho": 0.1}, "zcdp"),
    ],
)
def test_every_way_to_state_a_budget(tmp_path, given, proof):
    receipt = run(tmp_path, **given).receipt
    assert receipt.budget.proof == proof
    assert len(receipt.charges) == 3
    spent = sum(c.epsilon for c in receipt.charges) if proof == "pure" else receipt.exact_rho
    assert 0.999 * receipt.budget.capacity < spent <= receipt.budget.capacity
    assert "rho" not in given or spent <= given["rho"]


@pytest.mark.parametrize("mechanism", ["independent", "mst"])
def test_declared_rows_are_not_taken_for_those_counted_where_units_are_cut(tmp_path, mechanism):
    schema = replace(SCHEMA, privacy_unit=us.schema.PrivacyUnit("person", 1), rows=400)
    frame = pl.concat([FRAME] * 100).with_columns(person=pl.Series([i // 8 for i in range(400)]))
    given = {"epsilon": 30.0, "delta": 1e-6, "mechanism": mechanism}
    release = us.synthesize(frame, schema, dataset="d", **given)
    assert release.receipt.neighbours.replace_one
    assert release.model.total == pytest.approx(50, abs=15)
    assert release.sample().num_rows == 400


@pytest.mark.parametrize("mechanism", ["independent", "mst"])
def test_declared_rows_are_not_taken_for_those_counted_where_rows_are_dropped(mechanism):
    """A quarter of the rows is kept; a run that took all 400 for counted would contradict itself, or bound wrongly."""
    frame = pl.concat([FRAME] * 100).with_columns(b=pl.Series([0, 7, 7, 7] * 100))
    given = {"epsilon": 30.0, "delta": 1e-6, "mechanism": mechanism}
    release = us.synthesize(frame, replace(SCHEMA, rows=400), dataset="d", **given)
    assert release.receipt.neighbours.replace_one
    assert {charge.sensitivity for charge in release.receipt.charges if charge.what == "measure"} == {2**0.5}
    assert release.model.total == pytest.approx(100, abs=15)
    answer = release.answer({"a": 0}, confidence=1 - 1e-9)
    assert answer.low <= 100 <= answer.high
    assert release.sample().num_rows == 400


def test_a_wrongly_declared_number_of_rows_does_not_lose_what_was_paid_for(tmp_path):
    schema = replace(KEPT, rows=4000)
    given = {"epsilon": 30.0, "delta": 1e-6, "mechanism": "mst", "dataset": "d", "output": tmp_path / "r.release"}
    with pytest.raises(errors.RunInterrupted, match="contradicts"):
        us.synthesize(FRAME, schema, **given)
    release = us.resume(Ledger().reservations("d")[0].run)  # without the frame: from what was measured
    assert release.model.total < 40  # a standard deviation of the noise is about 1
    again = us.resume(Ledger().reservations("d")[0].run, data=FRAME, output=tmp_path / "again.release")
    assert again.model.total == release.model.total
    assert us.Ledger().total("d").runs == 1


def test_several_rows_per_unit_rest_on_zcdp(tmp_path):
    schema = replace(SCHEMA, privacy_unit=us.schema.PrivacyUnit("person", 2))
    frame = FRAME.with_columns(person=pl.Series([1, 1, 1, 2]))
    receipt = us.synthesize(frame, schema, epsilon=1.0, delta=1e-6, mechanism="independent").receipt
    assert receipt.budget.proof == "zcdp"
    assert receipt.neighbours.max_rows == 2
    assert receipt.charges[0].sensitivity == 2


def test_a_declared_number_of_rows_makes_neighbours_replace():
    release = us.synthesize(FRAME, replace(KEPT, rows=4), epsilon=1.0, delta=1e-6, mechanism="independent")
    assert release.receipt.neighbours.replace_one
    assert release.default_rows == release.model.total == 4


class Picky(Independent):
    """A mechanism that needs Gaussian noise and has settings."""

    name = "picky"
    pure = False
    level: object = 1


DOOMED = {
    "no budget": ({"epsilon": None, "delta": None}, errors.SettingError, "give epsilon and delta"),
    "epsilon 0": ({"epsilon": 0}, errors.SettingError, "epsilon must be a positive"),
    "delta 1": ({"delta": 1}, errors.SettingError, "below 1"),
    "rows 0": ({"rows": 0}, errors.SettingError, "rows must be a whole number of at least 1"),
    "mechanism": ({"mechanism": "magic"}, errors.SettingError, "the choices are"),
    "setting": ({"level": 3}, errors.SettingError, "no setting 'level'"),
    "settings of an object": (
        {"mechanism": Independent(), "level": 3},
        errors.SettingError,
        "already has its settings",
    ),
    "a setting that cannot be written": ({"mechanism": Picky(level=object())}, errors.SettingError, "plain values"),
    "pure": ({"mechanism": Picky(), "delta": 0}, errors.SettingError, "give a delta above 0"),
    "noise": ({"noise": "loud"}, errors.SettingError, "the choices are exact, opendp"),
    "noise object": ({"noise": [1]}, errors.SettingError, "the choices are exact, opendp"),
    "dataset": ({"dataset": "../etc"}, errors.SettingError, "letters, digits"),
    "dataset number": ({"dataset": 3}, errors.SettingError, "letters, digits"),
    "rows text": ({"rows": "many"}, errors.SettingError, "rows must be a whole number of at least 1"),
    "mechanism nothing": ({"mechanism": None}, errors.SettingError, 'give a name such as "mst"'),
    "mechanism class": ({"mechanism": Independent}, errors.SettingError, 'give a name such as "mst"'),
}


@pytest.mark.parametrize("case", DOOMED)
def test_a_doomed_run_is_refused_before_reading_or_spending(case, tmp_path, monkeypatch):
    given, error, words = DOOMED[case]
    monkeypatch.setattr(pipeline, "open_source", lambda *_: pytest.fail("the table was read"))
    with pytest.raises(error, match=words):
        run(tmp_path, **given)
    assert list(tmp_path.iterdir()) == []
    assert us.Ledger().total("d").runs == 0


@pytest.mark.parametrize("schema", [None, 3, ["a"], {"fields": []}])
def test_anything_but_a_schema_is_reported(schema):
    for call in (
        lambda: us.synthesize(FRAME, schema, epsilon=1.0, delta=1e-6),
        lambda: us.evaluate(FRAME, FRAME, schema),
        lambda: us.Schema.load(schema),
    ):
        with pytest.raises(errors.SchemaError, match="or the path of its file"):
            call()


@pytest.mark.parametrize("sizes", [None, ["a"], {"a": "2"}])
def test_anything_but_a_domain_is_reported(sizes):
    with pytest.raises(errors.SchemaError, match=r"mapping of columns to their sizes|must be a whole number"):
        us.Schema.from_domain(sizes)


def test_outputs_are_checked_before_reading_or_spending(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "open_source", lambda *_: pytest.fail("the table was read"))
    (tmp_path / "r.release").write_text("kept")
    with pytest.raises(errors.OutputError, match="never overwritten"):
        run(tmp_path)
    with pytest.raises(errors.OutputError, match="create it first"):
        run(tmp_path / "no")
    assert us.Ledger().total("d").runs == 0


def test_too_little_memory_or_disk_is_refused_before_spending(tmp_path, monkeypatch):
    for name, words in (("check_memory", "memory"), ("check_space", "room")):
        with monkeypatch.context() as patch:
            patch.setattr(f"understudy.run.pipeline.{name}", _raising(errors.OutputError(words)))
            with pytest.raises(errors.OutputError, match=words):
                run(tmp_path)
    assert us.Ledger().total("d").runs == 0


def _raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


def test_a_ledger_that_cannot_be_written_stops_the_run_unread(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "file" / "ledger.db"))
    monkeypatch.setattr(pipeline, "open_source", lambda *_: pytest.fail("the table was read"))
    with pytest.raises(errors.LedgerError, match="set UNDERSTUDY_LEDGER"):
        run(tmp_path)


def test_a_ledger_that_cannot_reserve_stops_the_run_unread_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Ledger, "reserve", _raising(errors.LedgerError("the ledger is full; nothing was read")))
    monkeypatch.setattr(pipeline, "open_source", lambda *_: pytest.fail("the table was read"))
    with pytest.raises(errors.LedgerError, match="the ledger is full") as caught:
        run(tmp_path)
    assert type(caught.value) is errors.LedgerError
    assert list(tmp_path.iterdir()) == []


def test_a_run_beyond_its_grant_is_refused_unread(tmp_path, monkeypatch):
    Ledger().grant(us.ledger.Grant("d", rho=0.3))
    run(tmp_path, output=None, rho=0.2, epsilon=None, delta=None)
    monkeypatch.setattr(pipeline, "open_source", lambda *_: pytest.fail("the table was read"))
    with pytest.raises(errors.BudgetExceeded, match=r"'d' would reach rho 0\.4.*Nothing was read"):
        run(tmp_path, rho=0.2, epsilon=None, delta=None)
    assert us.Ledger().total("d").runs == 1
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_cannot_record_the_first_answer_stops_the_run_and_nothing_is_spent(tmp_path, monkeypatch):
    monkeypatch.setattr(Ledger, "record", _raising(errors.LedgerError("the ledger is full")))
    with pytest.raises(errors.LedgerError, match="the ledger is full"):
        run(tmp_path)
    assert states() == ["cancelled"]
    assert us.Ledger().total("d").runs == 0
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_right_after_the_reservation_gives_it_back(tmp_path, monkeypatch):
    reserve = Ledger.reserve

    def interrupted(*arguments, **rest):
        reserve(*arguments, **rest)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "reserve", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(tmp_path)
    assert caught.value.__notes__ == ["Nothing was spent."]
    assert [one.state for one in Ledger().reservations("d")] == ["cancelled"]


def test_a_reservation_that_cannot_be_given_back_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(Ledger, "abandon", _raising(errors.LedgerError("away")))
    monkeypatch.setattr(pipeline, "open_source", _raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt) as caught:
        run(tmp_path)
    (one,) = Ledger().reservations("d")
    said = f"The budget of run {one.run} stays reserved until `understudy ledger cancel {one.run}`."
    assert caught.value.__notes__ == [said]
    assert us.Ledger().total("d").runs == 1


# -- after the first answer --------------------------------------------------------------------------------------------


def stopping(error, after):
    """A `fit` that stops with an error after measuring so many columns."""

    def fit(mechanism, table, *, rho, progress):
        for column in list(table.domain)[:after]:
            table.measure([(column,)], rho=rho / 3)
        raise error

    return fit


@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("boom"), errors.RunInterrupted),
        (MemoryError(), errors.RunInterrupted),
        (errors.SchemaError("ours"), errors.RunInterrupted),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(5), SystemExit),
    ],
)
def test_what_was_paid_for_is_kept_and_finished_at_no_cost(tmp_path, monkeypatch, error, raised, after):
    with monkeypatch.context() as patch:
        patch.setattr(Independent, "fit", stopping(error, after))
        with pytest.raises(raised) as caught:
            run(tmp_path)
    message = whole_message(caught.value)
    (one,) = Ledger().reservations("d")
    assert "The charges stand and every answer is recorded" in message
    assert f"understudy resume {one.run}" in message
    assert "boom" not in message
    assert list(tmp_path.iterdir()) == []
    assert (one.state, one.answers) == ("unfinished", after)
    assert us.Ledger().total("d").runs == 1

    paid = recorded(one.run)
    release = us.resume(one.run)  # the frame is gone: finished from what was measured
    assert us.Ledger().total("d").runs == 1
    assert len(release.receipt.charges) == after
    assert release.receipt.epsilon == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["r.release"]
    loaded = us.Release.load(tmp_path / "r.release")
    assert loaded.sample(10, seed=1).num_rows == 10
    assert [m.clique for m in loaded.measurements] == [("a",), ("b",), ("c",)][:after]
    assert recorded(one.run) == paid
    assert states() == ["finished"]


def recorded(run):
    """The answers on record, as bytes."""
    entries = [entry for entry in Ledger().entries() if entry.run == run and entry.kind == "answer"]
    return [(dict(entry.body), entry.payload) for entry in entries]


def test_a_run_that_stops_before_its_first_answer_gives_its_budget_back(tmp_path, monkeypatch):
    monkeypatch.setattr(MemorySource, "counts", _raising(RuntimeError("boom")))
    with pytest.raises(errors.InternalError, match=r"RuntimeError at .*; nothing was spent") as caught:
        run(tmp_path)
    assert "boom" not in whole_message(caught.value)
    (one,) = Ledger().reservations("d")
    assert one.state == "cancelled"
    assert us.Ledger().total("d").runs == 0
    with pytest.raises(errors.LedgerError, match="was cancelled; start a new one"):
        us.resume(one.run, data=FRAME)


def open_schema():
    field = {"name": "b", "type": "integer", "understudy": {"bounds": "discover"}}
    return us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})


DISCOVERED = {"epsilon": 1, "delta": 1e-6, "mechanism": "mst", "dataset": "d"}
NUMBERS = pl.DataFrame({"b": [*range(64)] * 50})


def stop_at(stage):
    def stop(step):
        if step.stage == stage:
            raise RuntimeError("boom")

    return stop


def test_a_run_that_stops_after_discovery_continues_with_its_schema_and_needs_rows(tmp_path):
    with pytest.raises(errors.RunInterrupted, match="The charges stand"):
        us.synthesize(NUMBERS, open_schema(), output=tmp_path / "r.release", progress=stop_at("measure"), **DISCOVERED)
    (one,) = Ledger().reservations("d")
    with pytest.raises(errors.RunInterrupted, match=r"the table is not available.*nothing was measured yet"):
        us.resume(one.run)
    assert states() == ["unfinished"]
    paid = recorded(one.run)
    release = us.resume(one.run, data=NUMBERS)
    assert recorded(one.run)[: len(paid)] == paid
    assert [charge.what for charge in release.receipt.charges].count("bounds") == len(
        [body for body, _ in paid if body["charges"][0]["what"] == "bounds"]
    )
    assert us.Ledger().total("d").runs == 1


def test_discovery_that_stopped_half_way_continues_with_its_answers_and_not_without_rows(tmp_path, monkeypatch):
    original, asked = PrivateTable.tally, []

    def tally(table, *args, **rest):
        if len(asked) == 1:
            raise RuntimeError("boom")
        asked.append(original(table, *args, **rest))
        return asked[-1]

    with monkeypatch.context() as patch:
        patch.setattr(PrivateTable, "tally", tally)
        with pytest.raises(errors.RunInterrupted, match="The charges stand"):
            us.synthesize(NUMBERS, BOTH, output=tmp_path / "r.release", **DISCOVERED)
    (one,) = Ledger().reservations("d")
    with pytest.raises(errors.RunInterrupted, match="discovery was not finished"):
        us.resume(one.run)
    drawn, draw = [], PrivateTable._draw
    monkeypatch.setattr(PrivateTable, "_draw", lambda t, charge, size: drawn.append(charge) or draw(t, charge, size))
    release = us.resume(one.run, data=NUMBERS)
    assert list(release.receipt.charges[1:]) == drawn  # the first was not drawn again
    assert release.receipt.charges[0].what == "bounds"
    assert us.Ledger().total("d").runs == 1


BOTH = us.Schema.from_dict(
    {
        "fields": [{"name": "b", "type": "integer", "understudy": {"bounds": "discover", "bins": "discover"}}],
        "understudy": {"privacy_unit": "row"},
    }
)


def test_a_full_disk_at_the_end_keeps_everything(tmp_path, monkeypatch):
    full = errors.OutputError("r.release could not be written (No space)")
    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "save", _raising(full))
        with pytest.raises(errors.RunInterrupted, match=r"No space.*The charges stand"):
            run(tmp_path)
    (one,) = Ledger().reservations("d")
    assert len(us.resume(one.run, output=tmp_path / "elsewhere.release").measurements) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere.release"]


STEPS = {
    "opening": (pipeline, "open_source"),
    "answer": (PrivateTable, "_new_answer"),
    "record": (Ledger, "record"),
    "fit": (Independent, "finish"),
    "save": (us.Release, "save"),
    "finish": (Ledger, "finish"),
    "publish": (pipeline, "publish"),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_between_any_two_steps_the_run_is_counted_once_and_keeps_its_answers(tmp_path, monkeypatch, step, when):
    """Killed: nothing that would tidy up runs. Then it goes on from the ledger alone, with the same table."""
    owner, name = STEPS[step]
    original = getattr(owner, name)

    def dies(*args, **rest):
        if when == "after":
            original(*args, **rest)
        raise Killed

    FRAME.write_csv(tmp_path / "t.csv")
    given = {"epsilon": 1.0, "delta": 1e-6, "mechanism": "independent", "dataset": "d"}
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        patch.setattr(pipeline, "_explain", lambda error, *_: error)
        with pytest.raises(Killed):
            us.synthesize(tmp_path / "t.csv", SCHEMA, output=tmp_path / "r.release", **given)
    (one,) = Ledger().reservations("d")
    published = (step, when) == ("publish", "after")
    assert (tmp_path / "r.release").exists() is published
    before = recorded(one.run)
    answered = step not in ("opening", "answer") and (step, when) != ("record", "before")
    assert (len(before), one.answers) == (int(answered), int(answered))
    if published:
        (tmp_path / "r.release").unlink()
    release = us.resume(one.run)
    assert recorded(one.run)[: len(before)] == before
    assert len(recorded(one.run)) == 1
    assert len(release.measurements) == 3
    assert us.Ledger().total("d").runs == 1
    assert states() == ["finished"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.release", "t.csv"]
    assert Ledger().verify() == []


class Killed(BaseException):
    """The end of a process, which no handler of ours gets to see."""


def test_a_finished_run_is_made_again_from_its_answers_alone(tmp_path, monkeypatch):
    first = run(tmp_path)
    monkeypatch.setattr(pipeline, "open_source", lambda *_: pytest.fail("the table was read"))
    again = us.resume(Ledger().reservations("d")[0].run, output=tmp_path / "again.release")
    assert [m.values.tolist() for m in again.measurements] == [m.values.tolist() for m in first.measurements]
    assert again.receipt == first.receipt
    assert us.Ledger().total("d").runs == 1


@pytest.mark.parametrize(
    "mechanism", ["mst", "aim", "adaptive", "privbayes", "privsyn", "nist-mst", "gaussian", "mwem"]
)
def test_every_mechanism_continues_with_its_answers_and_asks_only_what_is_missing(tmp_path, monkeypatch, mechanism):
    """Stopped after two answers, or after the first of mechanisms that ask little."""
    extra = {"public": FRAME} if mechanism == "nist-mst" else {}
    extra |= {"workload": "all-2way"} if mechanism in ("aim", "adaptive", "gaussian", "mwem") else {}
    extra |= {"rounds": 2} if mechanism in ("aim", "adaptive", "mwem") else {}
    table = pl.concat([FRAME] * 200)
    record, calls, most = Ledger.record, [], 1 if mechanism in ("gaussian", "nist-mst") else 2

    def stops(*args):
        calls.append(1)
        if len(calls) > most:
            raise KeyboardInterrupt
        return record(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record", stops)
        patch.setattr(us.Release, "of", _raising(KeyboardInterrupt()))  # where it has nothing more to ask
        with pytest.raises(KeyboardInterrupt):
            us.synthesize(table, SCHEMA, rho=50.0, mechanism=mechanism, dataset="d", **extra)
    (one,) = Ledger().reservations("d")
    before = recorded(one.run)
    assert len(before) == most
    counted, draw = [], PrivateTable._draw
    monkeypatch.setattr(PrivateTable, "_draw", lambda t, charge, size: counted.append(charge) or draw(t, charge, size))
    release = us.resume(one.run, data=table)
    after = recorded(one.run)
    assert after[: len(before)] == before
    new = [charge for body, _ in after[most:] for charge in body["charges"] if charge["noise"] == "gaussian"]
    assert sorted(map(repr, new)) == sorted(repr(charge.to_dict()) for charge in counted)
    assert [charge.to_dict() for charge in release.receipt.charges] == [c for body, _ in after for c in body["charges"]]
    assert us.Ledger().total("d").runs == 1


def test_a_process_that_was_overtaken_does_not_cancel_the_run_of_the_other(tmp_path):
    """As on two machines that share a ledger: the slower one stops before the quicker one was answered."""
    taken = []

    def meanwhile(step):
        if step.stage == "measure":
            taken.append(Ledger().continue_run(Ledger().reservations("d")[0].run))

    with pytest.raises(errors.OutputError, match="another process is continuing run"):
        run(tmp_path, progress=meanwhile)
    assert states() == ["unfinished"]
    Ledger().record(taken[0], {"charges": []}, None)  # the other one can still record


def test_a_version_that_asks_other_questions_finishes_from_what_was_measured(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Independent, "fit", stopping(KeyboardInterrupt(), 2))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    (one,) = Ledger().reservations("d")
    monkeypatch.setattr(PrivateTable, "_draw", lambda *_: pytest.fail("something was asked"))
    release = us.resume(one.run, data=FRAME)
    assert [m.clique for m in release.measurements] == [("a",), ("b",)]
    assert len(release.receipt.charges) == 2
    assert us.Ledger().total("d").runs == 1


def test_a_receipt_counts_answers_that_this_attempt_did_not_need(tmp_path, monkeypatch):
    """Another version that asks less: what was answered before is paid all the same."""
    with monkeypatch.context() as patch:
        patch.setattr(Independent, "fit", stopping(KeyboardInterrupt(), 3))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)

    def less(mechanism, table, *, rho, progress):
        ones = table.measure([("a",)], rho=rho / 3)
        return mechanism.finish(table.domain, ones, recoding=us.schema.Recoding.identity())

    monkeypatch.setattr(Independent, "fit", less)
    release = us.resume(Ledger().reservations("d")[0].run, data=FRAME)
    assert len(release.receipt.charges) == 3


def test_a_run_without_its_table_that_was_answered_nothing_says_so(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "open_source", _raising(Killed()))
        patch.setattr(pipeline, "_explain", lambda error, *_: error)
        with pytest.raises(Killed):
            run(tmp_path)
    (one,) = Ledger().reservations("d")
    with pytest.raises(errors.UnderstudyError, match=r"the table is not available.*nothing was measured yet"):
        us.resume(one.run)
    assert us.Ledger().total("d").runs == 0


def test_nothing_private_is_shown_when_a_run_breaks_after_an_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(us.Release, "of", _raising(ValueError("the cell holds 4711")))
    with pytest.raises(errors.RunInterrupted, match=r"ValueError at test_pipeline.py:[0-9]+") as caught:
        run(tmp_path)
    assert "4711" not in whole_message(caught.value)


def test_what_is_in_the_ledger_starts_the_run_again_and_holds_no_seed_and_no_row(tmp_path):
    frame = pd.DataFrame({"a": [0, 1, 2] * 9, "b": [0, 1, 1] * 9, "c": [1, 1, 0] * 9})
    us.synthesize(frame, SCHEMA, rho=1.0, mechanism="nist-mst", public=FRAME, dataset="d", rows=7, quality="5%")
    (spec,) = [entry.body["spec"] for entry in Ledger().entries() if entry.kind == "reserve"]
    assert spec["data"] is None
    assert spec["settings"]["public"] is None
    assert (spec["rho"], spec["rows"], spec["quality"]) == (1.0, 7, 0.05)
    again = pipeline.RunSpec.from_dict(spec, "d")
    assert again.schema == SCHEMA
    assert again.to_dict(pipeline.resolve(again).mechanism) == spec


def test_a_password_in_an_address_stays_out_of_the_ledger():
    spec = pipeline.RunSpec(data="postgresql://me:secret@host/db?table=t", schema=SCHEMA, rho=1.0)
    assert spec.to_dict(Independent())["data"] is None
    kept = pipeline.RunSpec(data="postgresql://me@host/db?table=t", schema=SCHEMA, rho=1.0)
    assert kept.to_dict(Independent())["data"] == "postgresql://me@host/db?table=t"


def test_errors_before_spending_are_themselves_and_unforeseen_ones_tell_no_words(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "open_source", _raising(errors.SchemaError("column 'a' is not in the table")))
    with pytest.raises(errors.SchemaError, match="column 'a'"):
        run(tmp_path)
    monkeypatch.setattr(pipeline, "open_source", _raising(ValueError("cell 'secret'")))
    with pytest.raises(errors.InternalError, match=r"at test_pipeline.py:[0-9]+.; nothing was spent") as caught:
        run(tmp_path)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    for step in ("open_source", "resolve", "_reserve"):
        monkeypatch.setattr(pipeline, step, _raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt) as caught:
            run(tmp_path)
        assert caught.value.__notes__ == ["Nothing was spent."]
    assert list(tmp_path.iterdir()) == []


def test_resume_never_overwrites(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "save", _raising(RuntimeError()))
        with pytest.raises(errors.RunInterrupted):
            run(tmp_path)
    (tmp_path / "r.release").write_text("kept")
    (one,) = Ledger().reservations("d")
    with pytest.raises(errors.OutputError, match="never overwritten"):
        us.resume(one.run)
    assert (tmp_path / "r.release").read_text() == "kept"
    assert us.resume(one.run, output=tmp_path / "other.release").receipt.epsilon == 1.0


def test_a_release_that_appears_meanwhile_is_not_overwritten(tmp_path):
    def meanwhile(step):
        if step.stage == "write":
            (tmp_path / "r.release").write_text("kept")

    with pytest.raises(errors.RunInterrupted, match="was created in the meantime; the release was kept as"):
        run(tmp_path, progress=meanwhile)
    assert (tmp_path / "r.release").read_text() == "kept"
    (staged,) = tmp_path.glob(".r.release.*")
    assert us.Release.load(staged).receipt.epsilon == 1.0


# -- test mode ---------------------------------------------------------------------------------------------------------


def test_test_mode_is_reproducible_marked_and_kept_out_of_the_ledger(tmp_path):
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with us.testing.insecure(seed=7):
            made.append(run(tmp_path / name))
    assert made[0].receipt.insecure
    assert us.Release.load(tmp_path / "one" / "r.release").receipt.insecure
    assert (tmp_path / "one" / "r.release").read_bytes() == (tmp_path / "two" / "r.release").read_bytes()
    assert us.Ledger().total("d").runs == 0


def test_test_mode_that_begins_in_a_run_is_refused_before_a_row_is_read(tmp_path):
    """Someone's progress callback enters and leaves test mode around the measurements."""
    mode = us.testing.insecure(seed=7)

    def sneak(step):
        if step.stage == "measure":
            mode.__enter__()

    with pytest.raises(errors.SettingError, match="refuses answers in test mode"):
        run(tmp_path, progress=sneak)
    mode.__exit__(None, None, None)
    assert states() == ["cancelled"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [1 << 40, 1 << 12])
def test_the_discovered_schema_does_not_depend_on_the_memory_that_rows_take(monkeypatch, before):
    """Rows fill memory: what is left tells how many there are, of a frame before the run begins."""
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory(1 << 40, before))

    def fills(step):
        if step.stage == "discover":
            monkeypatch.setattr("psutil.virtual_memory", lambda: memory(1 << 40, 1 << 10))

    field = {"name": "b", "type": "integer", "understudy": {"bounds": "discover", "bins": "discover"}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    table = pl.DataFrame({"b": [*range(64)] * 50})
    release = us.synthesize(table, schema, epsilon=1e3, delta=1e-6, mechanism="independent", progress=fills)
    assert release.schema.domain["b"] > 64


def test_bins_of_a_single_value_leave_nothing_to_discover(tmp_path):
    field = {"name": "b", "type": "integer", "constraints": {"minimum": 3, "maximum": 3}}
    fields = [field | {"understudy": {"bins": "discover"}}, {"name": "a", "type": "string", "categories": ["x", "y"]}]
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    table = pl.DataFrame({"b": [3] * 50, "a": ["x", "y"] * 25})
    release = us.synthesize(table, schema, epsilon=1, delta=1e-6, mechanism="independent", output=tmp_path / "r")
    assert {charge.what for charge in us.Release.load(tmp_path / "r").receipt.charges} == {"measure"}
    assert release.schema.domain["b"] >= 1


def test_a_discovered_schema_fits_into_the_machine(monkeypatch):
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory(1 << 13, 1 << 40))
    field = {"name": "b", "type": "integer", "understudy": {"bounds": "discover", "bins": "discover"}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    table = pl.DataFrame({"b": [*range(64)] * 50})
    release = us.synthesize(table, schema, epsilon=1e3, delta=1e-6, mechanism="independent")
    assert 64 * release.schema.domain["b"] <= 1 << 12


@pytest.mark.parametrize("step", [("select", "pairs of columns"), ("discover", "the values of a")])
def test_test_mode_around_one_step_is_refused_too(step):
    """Selections and discovery as well: their noise could be recomputed as easily as that of measurements."""
    mode = us.testing.insecure(seed=7)

    def sneak(now):
        if (now.stage, now.detail) == step and not is_insecure():
            mode.__enter__()

    def field(name, kind, discovered):
        return {"name": name, "type": kind} | (
            {"understudy": dict.fromkeys(discovered, "discover")}
            if step[0] == "discover"
            else {"categories": known[kind]}
        )

    known = {"string": ["x", "y"], "integer": [0, 1]}
    fields = [field("a", "string", ["values"]), field("b", "integer", ["bounds", "bins"])]
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    table = pl.DataFrame({"a": ["x", "y"] * 50, "b": [0, 1] * 50})
    with pytest.raises(errors.RunInterrupted, match="refuses answers in test mode"):
        us.synthesize(table, schema, epsilon=1e3, delta=1e-6, mechanism="mst", progress=sneak, dataset="d")
    mode.__exit__(None, None, None)
    (one,) = Ledger().reservations("d")
    answered = recorded(one.run)
    release = us.resume(one.run, data=table)
    assert not release.receipt.insecure
    assert recorded(one.run)[: len(answered)] == answered


def test_test_mode_that_ends_in_a_run_leaves_the_whole_marked(tmp_path):
    mode = us.testing.insecure(seed=7)
    mode.__enter__()

    def leave(step):
        if step.stage == "measure":
            mode.__exit__(None, None, None)

    assert run(tmp_path, progress=leave).receipt.insecure
    assert us.Ledger().total("d").runs == 0


def test_a_run_is_not_gone_on_with_in_test_mode(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "save", _raising(RuntimeError()))
        with pytest.raises(errors.RunInterrupted):
            run(tmp_path)
    (one,) = Ledger().reservations("d")
    with us.testing.insecure(seed=7), pytest.raises(errors.SettingError, match="refuses runs in test mode"):
        us.resume(one.run, data=FRAME)
    assert states() == ["unfinished"]
    assert not us.resume(one.run, data=FRAME).receipt.insecure


def test_the_registry_is_as_it_was():
    assert MECHANISMS["independent"] is Independent


def test_a_full_disk_is_named_and_nothing_was_spent(tmp_path):
    """The engines write to `temp_dir` while they read."""

    def fill(step):
        if step.stage == "read":
            raise OSError(errno.ENOSPC, "No space left on device")

    table = pd.DataFrame({"a": [0, 1] * 20})
    with pytest.raises(errors.OutputError, match=r"the disk is full.*--temp-dir.*Nothing was spent"):
        us.synthesize(table, us.Schema.from_domain({"a": 2}), rho=0.1, mechanism="independent", progress=fill)
