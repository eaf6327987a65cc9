"""The ledger on a real PostgreSQL server: races, a server that goes away, and tokens."""

from __future__ import annotations

import multiprocessing
import os

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import understudy as us
from understudy.accounting import Budget
from understudy.errors import BudgetExceeded, LedgerError, RunInterrupted
from understudy.ledger import Grant, Ledger
from understudy.ledger.ledger import token_holder
from understudy.testing.spy import Spy

UNIT = "one row of the table; the guarantee compares its being in the table or not"
ONE = Budget.of(rho=0.1)
SCHEMA = us.Schema.from_domain({"a": 3, "b": 2})


@pytest.fixture
def address(postgres, password):
    """A database of its own for each test."""
    name = f"ledger{os.urandom(4).hex()}"
    with postgres.connect() as connection:
        connection.execute(f"create database {name}")
    return postgres.url.rsplit("/", 1)[0] + f"/{name}"


def _race(address, start, won):
    start.wait()
    try:
        Ledger(address).reserve("people", ONE, unit=UNIT, spec={"place": {}})
        won.put(1)
    except BudgetExceeded:
        pass


def test_fifty_processes_that_race_for_the_last_unit_never_exceed_a_grant(address):
    ledger = Ledger(address)
    ledger.grant(Grant("people", rho=0.55))
    ledger.close()
    context = multiprocessing.get_context("fork")
    start, won = context.Event(), context.Queue()
    racing = [context.Process(target=_race, args=(address, start, won)) for _ in range(50)]
    for process in racing:
        process.start()
    start.set()
    for process in racing:
        process.join()
    assert [process.exitcode for process in racing] == [0] * 50
    assert sum(won.get() for _ in range(5)) == 5
    assert won.empty()
    assert len(Ledger(address).reservations()) == 5


def table():
    import pyarrow as pa

    return pa.table({"a": [0, 1, 2] * 200, "b": [0, 1] * 300})


def test_a_run_keeps_its_answers_on_the_server(address):
    with Spy() as spy:
        release = us.synthesize(table(), SCHEMA, rho=0.5, dataset="people", ledger=address)
    (run,) = Ledger(address).reservations()
    assert (run.state, run.dataset) == ("finished", "people")
    again = us.resume(run.run, ledger=address)
    assert len(spy.seen) == len(release.receipt.charges)
    for first, second in zip(release.measurements, again.measurements, strict=True):
        assert first.values.tolist() == second.values.tolist()
    assert Ledger(address).total("people").runs == 1


def test_a_server_that_goes_away_before_an_answer_is_recorded_leaves_a_run_that_can_be_continued(address):
    record, calls = Ledger.record, []

    def gone(ledger, *arguments):
        calls.append(arguments)
        if len(calls) == 3:  # what an administrator or a network does to a session
            with ledger._database.write() as connection:
                connection.exec_driver_sql("select pg_terminate_backend(pg_backend_pid())")
        record(ledger, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "record", gone)
        with pytest.raises(RunInterrupted, match=r"cannot be reached.*understudy resume"):
            us.synthesize(table(), SCHEMA, rho=0.5, mechanism="mst", dataset="people", ledger=address)
    (run,) = Ledger(address).reservations()
    assert (run.state, run.answers) == ("unfinished", 2)
    release = us.resume(run.run, data=table(), ledger=address)
    assert Ledger(address).total("people").runs == 1
    assert release.receipt.rho <= 0.5


def test_a_server_that_cannot_be_reached_is_said_before_anything_is_read(postgres, password):
    gone = postgres.url.replace(f":{postgres.port}/", ":1/")
    with Spy() as spy, pytest.raises(LedgerError, match="cannot be reached"):
        us.synthesize(table(), SCHEMA, rho=0.5, dataset="people", ledger=gone)
    assert spy.seen == []


def test_a_token_lets_its_holder_spend(address, monkeypatch):
    ledger = Ledger(address)
    ledger.grant(Grant("people", rho=1.0, to=token_holder("open-sesame")))
    with pytest.raises(BudgetExceeded):
        ledger.reserve("people", ONE, unit=UNIT, spec={"place": {}})
    monkeypatch.setenv("UNDERSTUDY_TOKEN", "open-sesame")
    ledger.reserve("people", ONE, unit=UNIT, spec={"place": {}})
    assert ledger.reservations()[0].who == token_holder("open-sesame")


def test_the_log_verifies_on_the_server(address, postgres):
    ledger = Ledger(address)
    handle = ledger.reserve("people", ONE, unit=UNIT, spec={"place": {}})
    ledger.record(handle, {"charges": []}, b"answer")
    point = ledger.checkpoint(Ed25519PrivateKey.generate())
    assert ledger.verify([point]) == []
    with ledger._database.write() as connection:
        connection.exec_driver_sql("update understudy_entries set payload = 'x' where kind = 'answer'")
    assert any("was altered" in word for word in ledger.verify([point]))
