"""Questions and answers between gate and ledger: recorded before they are seen, recalled exactly and in order."""

from __future__ import annotations

import json
import sqlite3
import zlib
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from understudy.accounting import Budget
from understudy.accounting.charge import gaussian_charge
from understudy.errors import LedgerError, OutputError, SettingError
from understudy.gate import PrivateTable
from understudy.ledger import Ledger
from understudy.ledger.ledger import _leaf_data
from understudy.ledger.log import leaf_hash
from understudy.measurement import Cell, KroneckerQuery, Measurement
from understudy.run.record import CannotContinue, RunRecorder
from understudy.schema import Recoding, Schema
from understudy.schema.open import Words
from understudy.source import MemorySource
from understudy.testing import insecure
from understudy.testing.tables import CodedSource, SealedSource

SIZES = {"a": 3, "b": 2, "c": 2}
ROWS = [[0, 0, 0], [1, 1, 0], [2, 1, 1], [2, 0, 1], [0, 1, 1]] * 40
PAIRS = [("a", "b"), ("b", "c"), ("a", "c")]
MERGED = Recoding({"a": np.array([0, 1, 1])})
BUDGETS = {
    "gaussian": Budget.of(rho=2.0, delta=1e-6, discovery_delta=1e-7),
    "laplace": Budget.of(epsilon=2.0, delta=0),
}


@pytest.fixture
def ledger():
    return Ledger()


def reserve(ledger, budget=BUDGETS["gaussian"]):
    return ledger.reserve("people", budget, unit="one row", spec={"place": {}}, key="it")


def ask_everything(table, *, recoded=True):
    """Every kind of answer about codes, in order; `recoded` merges codes before the last measurement."""
    against = {pair: np.full(table.domain.cells(pair), 0.5) for pair in PAIRS}
    return [
        table.tally({"a": Fraction(1, 10), "b": Fraction(1, 20)}, what={"a": "bounds", "b": "bins"}),
        table.measure([("a",), ("b", "c")], rho=0.1, weights={("a",): 2.0, ("b", "c"): 1.0}),
        table.select(PAIRS, against=against, rho=0.1),
        table.dependence(PAIRS, rho=0.1),
        (table.recode(MERGED) if recoded else table).measure([("a", "b")], rho=0.1),
        table.error(against, weights=dict.fromkeys(PAIRS, 1), rho=0.1),
        table.distances(PAIRS, against=against, rho=0.1),
        table.select_cells(PAIRS, against=against, count=3, rho=0.1, used=[Cell(("b", "c"), 1)]),
    ]


def plain(answer):
    """An answer in a form that compares by value, types included."""
    if isinstance(answer, Measurement):
        sizes = (answer.values.dtype.str, answer.values.tolist())
        return (answer.clique, sizes, answer.sigma, answer.noise, answer.query)
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items()}
    return [plain(one) for one in answer] if isinstance(answer, list) else (type(answer), answer)


@pytest.mark.parametrize("noise", BUDGETS)
def test_answers_of_every_kind_come_back_exactly_and_no_row_is_read_for_them(ledger, noise):
    handle = reserve(ledger, BUDGETS[noise])
    table = PrivateTable(CodedSource(SIZES, ROWS), BUDGETS[noise], recorder=RunRecorder(ledger, handle))
    first = ask_everything(table)
    assert {kind.noise for kind in table.account.charges} == {noise, "exponential"}

    recorder = RunRecorder(ledger, ledger.continue_run(handle.run))
    again = PrivateTable(SealedSource(SIZES, ROWS), BUDGETS[noise], recorder=recorder)
    assert list(map(plain, ask_everything(again))) == list(map(plain, first))
    assert again.account.charges == table.account.charges
    kept = [first[1][0], first[1][1], first[4][0]]
    assert list(map(plain, recorder.measurements)) == list(map(plain, kept))
    assert recorder.recoding == MERGED


@pytest.mark.parametrize("noise", BUDGETS)
def test_answers_to_queries_come_back_with_their_queries(ledger, noise):
    query = KroneckerQuery((np.array([[1, 1, 1], [0, 2, 0]]), np.eye(2, dtype=int)))
    handle = reserve(ledger, BUDGETS[noise])

    def ask(source, handle, query=query):
        table = PrivateTable(source, BUDGETS[noise], recorder=RunRecorder(ledger, handle))
        return table.measure([("a", "b"), ("c",)], rho=0.5, queries={("a", "b"): query})

    first, plain = ask(CodedSource(SIZES, ROWS), handle)
    recorder = RunRecorder(ledger, ledger.continue_run(handle.run))
    again, _ = ask(SealedSource(SIZES, ROWS), ledger.continue_run(handle.run))
    assert (again.clique, again.values.tolist(), again.sigma) == (first.clique, first.values.tolist(), first.sigma)
    assert [f.tolist() for f in again.query.factors] == [f.tolist() for f in query.factors]
    assert plain.query is None
    assert recorder.recall_rest()[0].query == query.digest
    assert recorder.measurements[0].query.shape == (4, 6)
    with pytest.raises(CannotContinue):
        ask(SealedSource(SIZES, ROWS), ledger.continue_run(handle.run), KroneckerQuery((np.eye(6, dtype=int),)))


def test_values_come_back_exactly_and_no_row_is_read_for_them(ledger):
    class Sealed(MemorySource):
        def values(self, column):
            raise AssertionError("rows were read")

    schema = Schema((Words(name="w"),))
    frame = pd.DataFrame({"w": ["plain", "\u00fc \u2265 \"'\\ \n", ""] * 500 + ["rare"]})
    handle = reserve(ledger)
    budget = BUDGETS["gaussian"]
    table = PrivateTable(MemorySource(frame, schema), budget, recorder=RunRecorder(ledger, handle))
    found = table.values("w", rho=1.0, delta=1e-8)
    assert "plain" in found
    assert "rare" not in found
    again = PrivateTable(Sealed(frame, schema), budget, recorder=RunRecorder(ledger, ledger.continue_run(handle.run)))
    told = again.values("w", rho=1.0, delta=1e-8)
    assert list(told.items()) == list(found.items())  # in the same order: it decides what is discovered next
    assert {type(count) for count in told.values()} == {int}


def test_new_questions_follow_the_recalled_ones_out_of_the_same_budget(ledger):
    budget = Budget.of(rho=1.0)
    handle = reserve(ledger, budget)
    PrivateTable(CodedSource(SIZES, ROWS), budget, recorder=RunRecorder(ledger, handle)).measure([("a",)], rho=0.6)
    handle = ledger.continue_run(handle.run)
    table = PrivateTable(CodedSource(SIZES, ROWS), budget, recorder=RunRecorder(ledger, handle))
    table.measure([("a",)], rho=0.6)
    with pytest.raises(Exception, match=r"and 0\.4 is left"):
        table.measure([("b",)], rho=0.6)
    table.measure([("b",)], rho=0.4)
    assert len(ledger.continue_run(handle.run).answers) == 2


def measuring(ledger, handle, source=CodedSource, **rest):
    return PrivateTable(source(SIZES, ROWS), BUDGETS["gaussian"], recorder=RunRecorder(ledger, handle, **rest))


@pytest.mark.parametrize(
    "other",
    [
        lambda table: table.measure([("b",)], rho=0.5),
        lambda table: table.measure([("a",)], rho=0.25),
        lambda table: table.measure([("a",), ("b",)], rho=0.5),
        lambda table: table.dependence([("a", "b")], rho=0.5),
        lambda table: table.tally({"a": Fraction(1, 2)}, what={"a": "bins"}),
    ],
)
def test_the_answer_to_another_question_is_not_given_and_nothing_is_read(ledger, other):
    handle = reserve(ledger)
    measuring(ledger, handle).measure([("a",)], rho=0.5)
    recorder = RunRecorder(ledger, ledger.continue_run(handle.run))
    table = PrivateTable(SealedSource(SIZES, ROWS), BUDGETS["gaussian"], recorder=recorder)
    with pytest.raises(CannotContinue, match="asks other questions"):
        other(table)
    assert table.account.charges == ()
    assert not recorder.measurements
    assert [charge.about for charge in recorder.recall_rest()] == [(("a",),)]
    assert [m.clique for m in recorder.measurements] == [("a",)]


def test_without_rows_only_what_is_on_record_is_answered(ledger):
    handle = reserve(ledger)
    first = measuring(ledger, handle).measure([("a",)], rho=0.5)
    table = measuring(ledger, ledger.continue_run(handle.run), SealedSource, has_rows=False)
    assert list(map(plain, table.measure([("a",)], rho=0.5))) == list(map(plain, first))
    with pytest.raises(CannotContinue, match="the table is not available"):
        table.measure([("b",)], rho=0.5)


def test_nobody_sees_an_answer_that_could_not_be_recorded(ledger):
    handle = reserve(ledger)
    recorder = RunRecorder(ledger, handle)
    table = PrivateTable(CodedSource(SIZES, ROWS), BUDGETS["gaussian"], recorder=recorder)
    ledger.continue_run(handle.run)  # from now on somebody else goes on with the run
    with pytest.raises(OutputError, match="another process is continuing run"):
        table.measure([("a",)], rho=0.5)
    assert not recorder.has_answers
    assert not recorder.measurements
    assert ledger.find(handle.run).answered is False


def test_of_two_that_continue_one_run_only_the_last_records(ledger):
    handle = reserve(ledger)
    slow = measuring(ledger, handle)
    slow.measure([("a",)], rho=0.25)
    quick = measuring(ledger, ledger.continue_run(handle.run))
    quick.measure([("a",)], rho=0.25)
    quick.measure([("b",)], rho=0.25)
    with pytest.raises(OutputError, match="Nothing was answered twice"):
        slow.measure([("b",)], rho=0.25)
    assert [body["charges"][0]["about"] for body, _ in ledger.continue_run(handle.run).answers] == [[["a"]], [["b"]]]


def test_seeded_answers_are_refused_before_a_row_is_read(ledger):
    handle = reserve(ledger)
    table = measuring(ledger, handle, SealedSource)
    with insecure(1), pytest.raises(SettingError, match="refuses answers in test mode"):
        table.measure([("a",)], rho=0.5)
    assert ledger.find(handle.run).answered is False


def test_seeded_answers_do_not_enter_the_ledger_when_test_mode_begins_while_rows_are_counted(ledger):
    mode = insecure(1)

    class Sneaking(CodedSource):
        def counts(self, cliques):
            mode.__enter__()
            return super().counts(cliques)

    handle = reserve(ledger)
    table = measuring(ledger, handle, Sneaking)
    try:
        with pytest.raises(SettingError, match="refuses answers in test mode"):
            table.measure([("a",)], rho=0.5)
    finally:
        mode.__exit__(None, None, None)
    assert ledger.find(handle.run).answered is False


def test_a_rehearsal_records_nothing_and_still_finishes_from_what_was_measured(ledger):
    recorder = RunRecorder(None, None)
    PrivateTable(CodedSource(SIZES, ROWS), BUDGETS["gaussian"], recorder=recorder).measure([("a",)], rho=0.5)
    assert recorder.has_answers
    assert [m.clique for m in recorder.measurements] == [("a",)]
    assert list(ledger.entries()) == []


def test_discovery_on_record_is_taken_as_one(ledger):
    handle = reserve(ledger)
    table = measuring(ledger, handle)
    table.tally({"a": Fraction(1, 10)}, what={"a": "type"})
    table.tally({"a": Fraction(1, 10)}, what={"a": "bounds"})
    table.measure([("b",)], rho=0.5)
    recorder = RunRecorder(ledger, ledger.continue_run(handle.run))
    assert [charge.what for charge in recorder.skip_discovery()] == ["type", "bounds"]
    assert not recorder.measurements
    again = PrivateTable(SealedSource(SIZES, ROWS), BUDGETS["gaussian"], recorder=recorder)
    assert [m.clique for m in again.measure([("b",)], rho=0.5)] == [("b",)]


# -- entries that were forged or damaged --


def forge(ledger, *, body=None, payload=None, hashed=True):
    """Change the last answer in the database, and its hash as well: somebody who knows the format."""
    with sqlite3.connect(ledger.address) as database:
        database.row_factory = sqlite3.Row
        row = dict(
            database.execute("select * from understudy_entries where kind = 'answer' order by number desc").fetchone()
        )
        text = json.loads(row["body"]) if body is None else body(json.loads(row["body"]))
        row["body"] = text if isinstance(text, str) else json.dumps(text)
        row["payload"] = row["payload"] if payload is None else payload(row["payload"])
        if hashed:
            row["leaf"] = leaf_hash(_leaf_data(row))
        database.execute(
            "update understudy_entries set body = :body, payload = :payload, leaf = :leaf where number = :number", row
        )
    database.close()


QUESTIONS = {
    "measure": lambda table: table.measure([("a",), ("b",)], rho=0.5),
    "select": lambda table: table.select(PAIRS, against={p: np.ones(table.domain.cells(p)) for p in PAIRS}, rho=0.5),
    "dependence": lambda table: table.dependence(PAIRS, rho=0.5),
    "distances": lambda table: table.distances(
        PAIRS, against={p: np.ones(table.domain.cells(p)) for p in PAIRS}, rho=0.5
    ),
    "cells": lambda table: table.select_cells(
        PAIRS, against={p: np.ones(table.domain.cells(p)) for p in PAIRS}, count=2, rho=0.5
    ),
    "quality": lambda table: table.error({("a",): np.ones(3)}, weights={("a",): 1}, rho=0.5),
    "tally": lambda table: table.tally({"a": Fraction(1, 2)}, what={"a": "bins"}),
}
DAMAGED = {
    "no numbers": ("measure", {"payload": lambda packed: b"\x00" * 9}),
    "nothing": ("measure", {"payload": lambda packed: b""}),
    "torn": ("measure", {"payload": lambda packed: packed[:-6]}),
    "too few": ("measure", {"payload": lambda packed: zlib.compress(b"\0" * 32)}),
    "too many": ("measure", {"payload": lambda packed: zlib.compress(b"\0" * 400)}),
    "a bomb": ("measure", {"payload": lambda packed: zlib.compress(b"\0" * (1 << 24))}),
    "half a number": ("measure", {"payload": lambda packed: zlib.compress(b"\0" * 39)}),
    "no sizes": ("measure", {"body": lambda body: {"charges": body["charges"]}}),
    "one size": ("measure", {"body": lambda body: body | {"cells": [5]}}),
    "a size beyond all memory": ("measure", {"body": lambda body: body | {"cells": [10**30]}}),
    "words for sizes": ("measure", {"body": lambda body: body | {"cells": "many"}}),
    "a recoding that is none": ("measure", {"body": lambda body: body | {"recoding": {"a": ["x"]}}}),
    "a list for a recoding": ("measure", {"body": lambda body: body | {"recoding": [3]}}),
    "no JSON": ("measure", {"body": lambda body: "{"}),
    "no mapping": ("measure", {"body": lambda body: [1]}),
    "no charges": ("measure", {"body": lambda body: {"cells": [3, 2]}}),
    "empty charges": ("measure", {"body": lambda body: body | {"charges": []}}),
    "charges of nothing": ("measure", {"body": lambda body: body | {"charges": [{}]}}),
    "no choice": ("select", {"body": lambda body: body | {"answer": 3}}),
    "no score": ("dependence", {"body": lambda body: body | {"cells": []}}),
    "too few scores": (
        "dependence",
        {"body": lambda body: body | {"cells": [1]}, "payload": lambda packed: zlib.compress(b"\0" * 8)},
    ),
    "too few distances": (
        "distances",
        {"body": lambda body: body | {"cells": [1]}, "payload": lambda packed: zlib.compress(b"\0" * 8)},
    ),
    "too few cells": (
        "cells",
        {"body": lambda body: body | {"cells": [1]}, "payload": lambda packed: zlib.compress(b"\0" * 8)},
    ),
    "a cell before the first": ("cells", {"payload": lambda packed: zlib.compress(b"\xff" * 16)}),
    "half a quality": ("quality", {"body": lambda body: body | {"answer": [1.0, 2.0]}}),
    "words for a quality": ("quality", {"body": lambda body: body | {"answer": ["much", 2.0, "gaussian"]}}),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_an_entry_that_was_forged_or_damaged_is_reported_and_not_used(ledger, case):
    kind, change = DAMAGED[case]
    handle = reserve(ledger)
    QUESTIONS[kind](measuring(ledger, handle))
    point = ledger.checkpoint(Ed25519PrivateKey.generate())
    forge(ledger, **change)
    with pytest.raises(LedgerError, match=r"an answer in the ledger cannot be read.*understudy ledger verify"):
        QUESTIONS[kind](measuring(ledger, ledger.continue_run(handle.run), SealedSource))
    assert ledger.verify([point]) != []


@pytest.mark.parametrize("case", DAMAGED)
def test_an_entry_that_differs_from_its_hash_is_refused_before_it_is_used(ledger, case):
    kind, change = DAMAGED[case]
    handle = reserve(ledger)
    QUESTIONS[kind](measuring(ledger, handle))
    forge(ledger, **change, hashed=False)
    with pytest.raises(LedgerError, match=r"entry \d+ of the ledger was altered"):
        ledger.continue_run(handle.run)
    assert ledger.verify() != []


def test_an_answer_under_another_recoding_is_not_given(ledger):
    handle = reserve(ledger)
    measuring(ledger, handle).recode(MERGED).measure([("a",)], rho=0.5)
    for recoding in (Recoding.identity(), Recoding({"a": np.array([0, 0, 1])})):  # one of another size, one of the same
        with pytest.raises(CannotContinue, match="asks other questions"):
            measuring(ledger, ledger.continue_run(handle.run), SealedSource).recode(recoding).measure([("a",)], rho=0.5)
    assert measuring(ledger, ledger.continue_run(handle.run), SealedSource).recode(MERGED).measure([("a",)], rho=0.5)


@pytest.mark.parametrize("case", ["no JSON", "no charges", "empty charges", "charges of nothing"])
def test_an_entry_without_its_charges_is_reported_wherever_it_is_used(ledger, case):
    handle = reserve(ledger)
    QUESTIONS["measure"](measuring(ledger, handle))
    forge(ledger, **DAMAGED[case][1])
    for use in (RunRecorder.skip_discovery, RunRecorder.recall_rest):
        with pytest.raises(LedgerError, match="cannot be read"):
            use(RunRecorder(ledger, ledger.continue_run(handle.run)))


def test_a_charge_that_gives_back_does_not_make_room(ledger):
    handle = reserve(ledger)
    table = measuring(ledger, handle)
    table.tally({"a": Fraction(1, 10)}, what={"a": "bins"})
    forge(ledger, body=lambda body: body | {"charges": [body["charges"][0] | {"rho": "-100"}]})
    recorder = RunRecorder(ledger, ledger.continue_run(handle.run))
    again = PrivateTable(SealedSource(SIZES, ROWS), BUDGETS["gaussian"], recorder=recorder)
    with pytest.raises(Exception, match="never refunded"):
        again.account.pay(recorder.skip_discovery())


def test_what_is_recorded_holds_no_count_and_nothing_of_the_rows_but_the_answers(ledger):
    """The same questions with the same noise about other rows: charges, sizes and recodings are the same."""
    said = []
    for rows in (ROWS, [[2, 1, 1]] * 7):
        handle = ledger.reserve("people", BUDGETS["gaussian"], unit="one row", spec={})
        table = PrivateTable(CodedSource(SIZES, rows), BUDGETS["gaussian"], recorder=RunRecorder(ledger, handle))
        ask_everything(table)
        bodies = [dict(body) for body, _ in ledger.continue_run(handle.run).answers]
        said.append([{key: value for key, value in body.items() if key != "answer"} for body in bodies])
    assert said[0] == said[1]


def test_a_charge_is_recorded_exactly(ledger):
    charge = gaussian_charge("measure", (("a",),), 1, share=Fraction(1, 3))
    handle = reserve(ledger)
    RunRecorder(ledger, handle).record([charge], [Measurement(("a",), np.array([3, -1, 4]), charge.scale)], MERGED)
    recorder = RunRecorder(ledger, ledger.continue_run(handle.run))
    assert recorder.recall_rest() == [charge]
    assert recorder.measurements[0].values.tolist() == [3, -1, 4]
    assert recorder.recoding == MERGED
