"""The road from rows to a release: what is refused for free, what is kept when it fails after paying."""

from __future__ import annotations

import json
import sys
from collections import namedtuple
from dataclasses import replace
from functools import partial as partial_of

import polars as pl
import pytest

import understudy as us
from understudy import errors
from understudy.gate.randomness import is_insecure
from understudy.mechanism.independent import Independent
from understudy.mechanism.registry import MECHANISMS
from understudy.notice import WeakBudget
from understudy.release import read_partial
from understudy.synthesis import road

SCHEMA = us.Schema.from_domain({"a": 3, "b": 2, "c": 2})
KEPT = replace(SCHEMA, columns=tuple(column.model_copy(update={"on_unknown": "other"}) for column in SCHEMA.columns))
FRAME = pl.DataFrame({"a": [0, 1, 2, 1], "b": [0, 1, 1, 0], "c": [1, 1, 1, 0]})


def run(folder, **rest):
    given = {"epsilon": 1.0, "delta": 1e-6, "output": folder / "r.release", "dataset": "d", "mechanism": "independent"}
    given |= rest
    return us.synthesize(FRAME, SCHEMA, **given)


def test_a_run_leaves_the_release_and_a_line_in_the_book(tmp_path, book):
    release = run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["r.release"]
    assert us.Release.load(tmp_path / "r.release").receipt == release.receipt
    assert us.Book().spent("d").runs == 1
    assert [path.name for path in book.iterdir()] == ["d.jsonl"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks")
def test_a_run_that_goes_on_is_neither_finished_by_another_nor_run_over(tmp_path):
    told = []

    def meanwhile(step):
        if step.stage == "write" and not told:
            for other in (partial_of(us.resume, tmp_path / "r.release.partial"), partial_of(run, tmp_path)):
                with pytest.raises(errors.UnderstudyError) as refused:
                    other()
                told.append(str(refused.value))

    assert run(tmp_path, progress=meanwhile).receipt.epsilon == 1.0
    assert "its run is not interrupted, it still goes on; wait for it" in told[0]
    assert "another run is writing" in told[1]
    assert us.Book().spent("d").runs == 1


def test_without_output_nothing_but_the_book_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(tmp_path, output=None)
    assert list(tmp_path.iterdir()) == []


def test_a_weak_budget_is_told_before_it_is_spent(tmp_path):
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
    assert release.sample().height == 400


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
    assert release.sample().height == 400


def test_a_wrongly_declared_number_of_rows_does_not_lose_what_was_paid_for(tmp_path):
    schema = replace(KEPT, rows=4000)
    with pytest.raises(errors.Paid, match="contradicts"):
        us.synthesize(
            FRAME, schema, epsilon=30.0, delta=1e-6, mechanism="mst", dataset="d", output=tmp_path / "r.release"
        )
    release = us.resume(tmp_path / "r.release.partial")
    assert release.model.total < 40  # a standard deviation of the noise is about 1


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
    "no budget": ({"epsilon": None, "delta": None}, errors.SettingError, "state epsilon and delta"),
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
    monkeypatch.setattr(road, "open_source", lambda *_: pytest.fail("the table was read"))
    with pytest.raises(error, match=words):
        run(tmp_path, **given)
    assert list(tmp_path.iterdir()) == []
    assert us.Book().spent("d").runs == 0


@pytest.mark.parametrize("schema", [None, 3, ["a"], {"fields": []}])
def test_what_is_no_schema_is_told(schema):
    for call in (
        lambda: us.synthesize(FRAME, schema, epsilon=1.0, delta=1e-6),
        lambda: us.evaluate(FRAME, FRAME, schema),
        lambda: us.Schema.load(schema),
    ):
        with pytest.raises(errors.SchemaError, match="or the path of its file"):
            call()


@pytest.mark.parametrize("sizes", [None, ["a"], {"a": "2"}])
def test_what_is_no_domain_is_told(sizes):
    with pytest.raises(errors.SchemaError, match=r"mapping of columns to their sizes|must be a whole number"):
        us.Schema.from_domain(sizes)


def test_outputs_are_checked_before_reading_or_spending(tmp_path, monkeypatch):
    monkeypatch.setattr(road, "open_source", lambda *_: pytest.fail("the table was read"))
    (tmp_path / "r.release").write_text("kept")
    with pytest.raises(errors.OutputError, match="never overwritten"):
        run(tmp_path)
    (tmp_path / "r.release").unlink()
    (tmp_path / "r.release.partial").write_text("paid for")
    with pytest.raises(errors.OutputError, match="understudy resume"):
        run(tmp_path)
    with pytest.raises(errors.OutputError, match="make it first"):
        run(tmp_path / "no")
    assert us.Book().spent("d").runs == 0


def test_too_little_memory_or_disk_is_refused_before_spending(tmp_path, monkeypatch):
    for name, words in (("check_memory", "memory"), ("check_space", "room")):
        with monkeypatch.context() as patch:
            patch.setattr(f"understudy.synthesis.journal.{name}", _raising(errors.OutputError(words)))
            with pytest.raises(errors.OutputError, match=words):
                run(tmp_path)
    assert us.Book().spent("d").runs == 0


def _raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


def test_a_book_that_cannot_be_written_stops_the_run_unread(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNDERSTUDY_BOOK", str(tmp_path / "file" / "book"))
    monkeypatch.setattr(road, "open_source", lambda *_: pytest.fail("the table was read"))
    with pytest.raises(errors.OutputError, match="set UNDERSTUDY_BOOK"):
        run(tmp_path)


def test_a_book_that_fails_at_the_first_charge_stops_the_run_unread_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(us.Book, "append", _raising(errors.OutputError("the book is full; nothing was read")))
    from understudy.source import MemorySource

    monkeypatch.setattr(MemorySource, "counts", lambda *_: pytest.fail("rows were counted"))
    with pytest.raises(errors.OutputError, match="the book is full") as caught:
        run(tmp_path)
    assert type(caught.value) is errors.OutputError
    assert list(tmp_path.iterdir()) == []


# -- after the first charge --------------------------------------------------------------------------------------------


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
        (RuntimeError("boom"), errors.Paid),
        (MemoryError(), errors.Paid),
        (errors.SchemaError("ours"), errors.Paid),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(5), SystemExit),
    ],
)
def test_what_was_paid_for_is_kept_and_finished_at_no_cost(tmp_path, monkeypatch, error, raised, after):
    monkeypatch.setattr(Independent, "fit", stopping(error, after))
    with pytest.raises(raised) as caught:
        run(tmp_path)
    told = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    partial = tmp_path / "r.release.partial"
    assert "The charge stands" in told
    assert f"understudy resume {partial}" in told
    assert "boom" not in told
    assert [path.name for path in tmp_path.iterdir()] == [partial.name]
    assert us.Book().spent("d").runs == 1
    paid = read_partial(partial)
    assert len(paid.charges) == len(paid.measurements) == after

    release = us.resume(partial, output=tmp_path / "r.release")
    assert us.Book().spent("d").runs == 1
    assert release.receipt.charges == paid.charges
    assert release.receipt.epsilon == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["r.release"]
    loaded = us.Release.load(tmp_path / "r.release")
    assert loaded.sample(10, seed=1).num_rows == 10
    assert [m.clique for m in loaded.measurements] == [("a",), ("b",), ("c",)][:after]


def test_a_run_that_stops_after_paying_and_before_measuring_says_so(tmp_path, monkeypatch):
    from understudy.source import MemorySource

    monkeypatch.setattr(MemorySource, "counts", _raising(RuntimeError("boom")))
    with pytest.raises(errors.Paid, match="nothing had been measured yet") as caught:
        run(tmp_path)
    assert "RuntimeError at" in str(caught.value)
    with pytest.raises(errors.ReleaseError, match=r"nothing to finish. 3 charges were made and stand"):
        us.resume(tmp_path / "r.release.partial")


def test_a_run_that_stops_after_buying_its_schema_does_not_say_that_nothing_was_asked(tmp_path):
    def stop(step):
        if step.stage == "measure":
            raise RuntimeError("boom")

    field = {"name": "b", "type": "integer", "understudy": {"bounds": "discover"}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    given = {"epsilon": 1, "delta": 1e-6, "mechanism": "mst", "output": tmp_path / "r.release", "progress": stop}
    with pytest.raises(errors.Paid, match="no table was measured yet, only what the schema wants discovered"):
        us.synthesize(pl.DataFrame({"b": [*range(64)] * 50}), schema, **given)


def test_a_full_disk_at_the_end_keeps_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(us.Release, "save", _raising(errors.OutputError("r.release could not be written (No space)")))
    with pytest.raises(errors.Paid, match=r"No space.*The charge stands"):
        run(tmp_path)
    monkeypatch.undo()
    assert len(us.resume(tmp_path / "r.release.partial").measurements) == 3
    assert (tmp_path / "r.release.partial").exists()  # kept until a release was saved


def test_errors_before_spending_are_themselves_and_unforeseen_ones_tell_no_words(tmp_path, monkeypatch):
    monkeypatch.setattr(road, "open_source", _raising(errors.SchemaError("column 'a' is not in the table")))
    with pytest.raises(errors.SchemaError, match="column 'a'"):
        run(tmp_path)
    monkeypatch.setattr(road, "open_source", _raising(ValueError("cell 'secret'")))
    with pytest.raises(
        errors.Unforeseen, match=r"ValueError at test_synthesis.py:[0-9]+.; nothing was spent"
    ) as caught:
        run(tmp_path)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    for step in ("open_source", "prepared"):
        monkeypatch.setattr(road, step, _raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt) as caught:
            run(tmp_path)
        assert caught.value.__notes__ == ["Nothing was spent."]
    assert list(tmp_path.iterdir()) == []


# -- resume: damaged and tampered --------------------------------------------------------------------------------------


@pytest.fixture
def partial(tmp_path, monkeypatch):
    monkeypatch.setattr(us.Release, "save", _raising(RuntimeError()))
    with pytest.raises(errors.Paid):
        run(tmp_path)
    monkeypatch.undo()
    return tmp_path / "r.release.partial"


def _edit(path, change):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = change(lines) or lines
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [line for line in lines if "charge" not in line],
        lambda lines: [line for line in lines if "charge" not in line or line["charge"]["about"] != [["b"]]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: lines[0]["run"]["receipt"]["budget"].update(rho="1/1000000"),
        lambda lines: lines[0]["run"]["receipt"].pop("neighbours"),
        lambda lines: lines[0]["run"].pop("schema"),
        lambda lines: lines[0]["run"].update(schema={}),
        lambda lines: lines[0]["run"].update(mechanism="magic"),
        lambda lines: lines[0]["run"].update(settings={"level": 3}),
        lambda lines: lines[0]["run"].update(settings=None),
        lambda lines: lines[0].update(run=None),
    ],
)
def test_a_tampered_partial_release_is_refused_and_kept(partial, tmp_path, change):
    _edit(partial, change)
    with pytest.raises(errors.ReleaseError):
        us.resume(partial, output=tmp_path / "r.release")
    assert [path.name for path in tmp_path.iterdir()] == [partial.name]


def test_resume_never_overwrites(partial, tmp_path):
    (tmp_path / "r.release").write_text("kept")
    with pytest.raises(errors.OutputError, match="never overwritten"):
        us.resume(partial, output=tmp_path / "r.release")
    assert partial.exists()


# -- test mode ---------------------------------------------------------------------------------------------------------


def test_test_mode_is_reproducible_marked_and_kept_out_of_the_book(tmp_path):
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with us.testing.insecure(seed=7):
            made.append(run(tmp_path / name))
    assert made[0].receipt.insecure
    assert us.Release.load(tmp_path / "one" / "r.release").receipt.insecure
    assert (tmp_path / "one" / "r.release").read_bytes() == (tmp_path / "two" / "r.release").read_bytes()
    assert us.Book().spent("d").runs == 0


def test_test_mode_in_any_part_of_a_run_marks_the_whole(tmp_path):
    """Someone's progress callback enters and leaves test mode around the measurements."""
    mode = us.testing.insecure(seed=7)

    def sneak(step):
        if step.stage == "measure":
            mode.__enter__()
        if step.stage == "estimate":
            mode.__exit__(None, None, None)

    assert run(tmp_path, progress=sneak).receipt.insecure


@pytest.mark.parametrize("before", [1 << 40, 1 << 12])
def test_the_schema_that_is_bought_does_not_depend_on_the_memory_that_rows_take(monkeypatch, before):
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


def test_bins_of_a_single_value_leave_nothing_to_buy(tmp_path):
    field = {"name": "b", "type": "integer", "constraints": {"minimum": 3, "maximum": 3}}
    fields = [field | {"understudy": {"bins": "discover"}}, {"name": "a", "type": "string", "categories": ["x", "y"]}]
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    table = pl.DataFrame({"b": [3] * 50, "a": ["x", "y"] * 25})
    release = us.synthesize(table, schema, epsilon=1, delta=1e-6, mechanism="independent", output=tmp_path / "r")
    assert {charge.what for charge in us.Release.load(tmp_path / "r").receipt.charges} == {"measure"}
    assert release.schema.domain["b"] >= 1


def test_a_bought_schema_fits_into_the_machine(monkeypatch):
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory(1 << 13, 1 << 40))
    field = {"name": "b", "type": "integer", "understudy": {"bounds": "discover", "bins": "discover"}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    table = pl.DataFrame({"b": [*range(64)] * 50})
    release = us.synthesize(table, schema, epsilon=1e3, delta=1e-6, mechanism="independent")
    assert 64 * release.schema.domain["b"] <= 1 << 12


@pytest.mark.parametrize("step", [("select", "pairs of columns"), ("discover", "the values of a")])
def test_test_mode_around_one_step_marks_the_whole(step):
    """Choices and purchases as well: their noise could be recomputed as easily as that of measurements."""
    left = [us.testing.insecure(seed=7)]

    def sneak(now):
        if (now.stage, now.detail) == step and not is_insecure():
            left[0].__enter__()
        elif (now.stage, now.detail) != step and is_insecure():
            left.pop().__exit__(None, None, None)

    def field(name, kind, bought):
        return {"name": name, "type": kind} | (
            {"understudy": dict.fromkeys(bought, "discover")} if step[0] == "discover" else {"categories": known[kind]}
        )

    known = {"string": ["x", "y"], "integer": [0, 1]}
    fields = [field("a", "string", ["values"]), field("b", "integer", ["bounds", "bins"])]
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    table = pl.DataFrame({"a": ["x", "y"] * 50, "b": [0, 1] * 50})
    release = us.synthesize(table, schema, epsilon=1e3, delta=1e-6, progress=sneak, dataset="d")
    assert not left
    assert release.receipt.insecure


def test_a_resumed_run_is_marked_for_test_mode_after_its_beginning(tmp_path, monkeypatch):
    mode = us.testing.insecure(seed=7)

    def sneak(step):
        if step.stage == "select" and not is_insecure():
            mode.__enter__()
        elif step.stage != "select" and is_insecure():
            mode.__exit__(None, None, None)

    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "save", _raising(RuntimeError()))
        with pytest.raises(errors.Paid, match="RuntimeError"):
            run(tmp_path, mechanism="mst", progress=sneak, epsilon=1e3)  # little noise: something to choose
    assert not is_insecure()
    assert us.Book().spent("d").runs == 1
    assert us.resume(tmp_path / "r.release.partial").receipt.insecure


def test_a_resumed_test_run_stays_marked(tmp_path, monkeypatch):
    monkeypatch.setattr(us.Release, "save", _raising(RuntimeError()))
    with us.testing.insecure(seed=7), pytest.raises(errors.Paid):
        run(tmp_path)
    monkeypatch.undo()
    assert us.resume(tmp_path / "r.release.partial").receipt.insecure


def test_the_registry_is_as_it_was():
    assert MECHANISMS["independent"] is Independent
