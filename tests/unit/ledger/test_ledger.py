"""The ledger's database: reservations, compare and set, grants, datasets, evidence, and what happens on each fault."""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from understudy.accounting import Budget
from understudy.errors import BudgetExceeded, LedgerError, OutputError, SettingError
from understudy.ledger import Grant, Ledger, database
from understudy.ledger import ledger as module
from understudy.testing import insecure

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
UNIT = "one row of the table; the guarantee compares its being in the table or not"
ONE = Budget.of(rho=0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "office" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path)


def reserve(ledger, dataset="people", budget=ONE, key=None, unit=UNIT):
    return ledger.reserve(dataset, budget, unit=unit, spec={"place": {}}, key=key)


def change(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def test_the_latest_entry_changes_with_every_entry(ledger, path):
    assert ledger.latest == 0
    assert not path.exists()
    reserve(ledger)
    first = ledger.latest
    assert first == max(entry.number for entry in ledger.entries())
    Ledger(path).grant(Grant("people", epsilon=4.0))
    assert ledger.latest == first + 1


# -- reserve, record, finish --


def test_a_reservation_counts_in_full_and_stays_exact(ledger):
    budget = Budget("zcdp", Fraction(1, 3), Fraction(10, 7), Fraction(1, 10**9), Fraction(1, 10**10))
    reserve(ledger, budget=budget)
    (found,) = Ledger(ledger.address).reservations("people")
    assert found.budget == budget
    assert (found.state, found.answers, found.unit) == ("unfinished", 0, UNIT)
    assert found.who == module.current_user()


def test_a_key_names_one_run_however_often_it_is_started(ledger):
    first = reserve(ledger, key="k")
    ledger.record(first, {"charges": [], "answer": 1}, b"x")
    second = reserve(Ledger(ledger.address), key="k")
    assert second.run == first.run
    assert second.answers == [({"charges": [], "answer": 1}, b"x")]
    assert reserve(ledger, key="other").run != first.run
    assert ledger.total("people").runs == 2


def test_only_the_last_to_continue_records(ledger):
    first = reserve(ledger, key="k")
    second = reserve(Ledger(ledger.address), key="k")
    with pytest.raises(OutputError, match="another process is continuing run"):
        ledger.record(first, {"charges": []}, None)
    ledger.record(second, {"charges": []}, None)
    with pytest.raises(OutputError, match="another process"):
        ledger.finish(first, {})
    with pytest.raises(OutputError, match="another process"):
        ledger.record_schema(first, {})
    assert ledger.reservations()[0].answers == 1


def test_a_live_process_of_this_machine_is_not_overtaken(ledger, monkeypatch):
    reserve(ledger, key="k")
    parent = os.getppid()
    import psutil

    monkeypatch.setattr(
        module, "_this_process",
        lambda: {"host": module.platform.node(), "process": parent, "started": psutil.Process(parent).create_time()},
    )  # fmt: skip
    reserve(ledger, key="k")
    monkeypatch.undo()
    with pytest.raises(OutputError, match=f"process {parent} is working on run"):
        reserve(ledger, key="k")


def test_a_process_that_is_gone_or_whose_number_was_given_again_is_overtaken(ledger, monkeypatch):
    for other in ({"process": 2**22 + 5}, {"process": os.getppid()}, {"host": "elsewhere", "process": os.getppid()}):
        entry = {"host": module.platform.node(), "started": -1.0} | other
        monkeypatch.setattr(module, "_this_process", lambda entry=entry: entry)
        reserve(ledger, key="k")
    monkeypatch.undo()
    assert reserve(ledger, key="k").run


def test_a_run_that_was_answered_nothing_can_be_cancelled_and_then_answers_nothing(ledger):
    handle = reserve(ledger, key="k")
    ledger.cancel(handle.run[:6])
    assert ledger.total("people").runs == 0
    with pytest.raises(OutputError, match="another process"):
        ledger.record(handle, {"charges": []}, None)
    assert reserve(ledger, key="k").run != handle.run
    with pytest.raises(LedgerError, match="cancelled"):
        ledger.continue_run(handle.run)


def test_a_run_that_was_answered_stays_paid(ledger):
    handle = reserve(ledger)
    ledger.record(handle, {"charges": []}, None)
    with pytest.raises(LedgerError, match="its charges stand"):
        ledger.cancel(handle.run)
    assert ledger.total("people").runs == 1


def test_what_a_run_learned_is_given_back_to_it(ledger):
    handle = reserve(ledger)
    ledger.record(handle, {"charges": [1]}, b"1")
    ledger.record_schema(handle, {"fields": []})
    ledger.record(handle, {"charges": [2]}, None)
    ledger.finish(handle, {"release": "d", "facts": {}})
    again = ledger.continue_run(handle.run)
    assert again.answers == [({"charges": [1]}, b"1"), ({"charges": [2]}, None)]
    assert again.schema == {"fields": []}
    assert again.finished == {"release": "d", "facts": {}}
    assert ledger.find_finished("d").run == handle.run
    assert ledger.find_finished("e") is None


@pytest.mark.parametrize("run", ["", "zz", "0" * 16])
def test_an_unknown_run_is_refused(ledger, run):
    reserve(ledger)
    for call in (ledger.continue_run, ledger.find, ledger.cancel):
        with pytest.raises(LedgerError, match="no run, or more than one, begins with"):
            call(run)


def test_looking_makes_no_ledger(path):
    ledger = Ledger(path)
    assert ledger.reservations() == []
    assert ledger.datasets() == {}
    assert ledger.grants() == []
    assert ledger.find_by_key("k") is None
    assert not path.exists()


def test_seeded_noise_never_enters(ledger):
    with insecure(1), pytest.raises(SettingError, match="test mode"):
        reserve(ledger)
    assert ledger.reservations() == []


@pytest.mark.parametrize("name", ["", ".x", "a/b", "x" * 101, 5, None, "a\nb"])
def test_a_name_that_cannot_name_a_dataset_is_refused(ledger, name):
    with pytest.raises(SettingError, match="dataset"):
        reserve(ledger, dataset=name)


# -- grants and datasets --


def test_runs_beyond_a_grant_are_refused_before_anything_is_entered(ledger):
    grant = ledger.grant(Grant("people", rho=0.2))
    reserve(ledger)
    reserve(ledger)
    before = len(list(ledger.entries()))
    with pytest.raises(BudgetExceeded, match=f"grant {grant.number} allows rho 0.2"):
        reserve(ledger)
    assert len(list(ledger.entries())) == before
    assert ledger.amount_used(grant) <= 0.2


def test_runs_from_before_the_first_grant_count_towards_it(ledger):
    reserve(ledger)
    ledger.grant(Grant("people", rho=0.15))
    with pytest.raises(BudgetExceeded):
        reserve(ledger)


def test_cancelled_runs_do_not_count_towards_a_grant(ledger):
    ledger.grant(Grant("people", rho=0.1))
    ledger.cancel(reserve(ledger).run)
    assert reserve(ledger).run


def test_a_revoked_grant_gives_nothing_and_a_new_one_does(ledger):
    first = ledger.grant(Grant("people", rho=0.1))
    reserve(ledger)
    ledger.revoke(first.number)
    second = ledger.grant(Grant("people", rho=0.1))
    assert ledger.reservations()[0].grants == (first.number,)
    reserve(ledger)
    assert ledger.reservations()[1].grants == (second.number,)
    with pytest.raises(SettingError, match="was revoked"):
        ledger.revoke(first.number)


def test_a_grant_names_who_may_draw_on_it(ledger, monkeypatch):
    ledger.grant(Grant("people", epsilon=9.0, to="user:anna"))
    with pytest.raises(BudgetExceeded, match="to user:anna"):
        reserve(ledger)
    monkeypatch.setattr(module, "current_user", lambda: "user:anna")
    assert reserve(ledger).run
    assert ledger.reservations()[0].who == "user:anna"


def test_a_grant_to_a_group_is_for_its_members(ledger, monkeypatch):
    ledger.grant(Grant("people", epsilon=9.0, to="group:stats"))
    with pytest.raises(BudgetExceeded):
        reserve(ledger)
    monkeypatch.setattr(module, "_groups", lambda: {"stats"})
    assert reserve(ledger).run


def test_a_token_is_known_by_its_digest_alone(ledger, path, monkeypatch):
    ledger.grant(Grant("people", epsilon=9.0, to=module.token_holder("sesame")))
    monkeypatch.setenv("UNDERSTUDY_TOKEN", "wrong")
    with pytest.raises(BudgetExceeded):
        reserve(ledger)
    monkeypatch.setenv("UNDERSTUDY_TOKEN", "sesame")
    reserve(ledger)
    ledger.close()
    assert b"sesame" not in path.read_bytes()


def test_somebody_elses_dataset_takes_a_grant(ledger, monkeypatch):
    reserve(ledger)
    owner = module.current_user()
    monkeypatch.setattr(module, "current_user", lambda: "user:ben")
    with pytest.raises(BudgetExceeded, match=f"was entered by {owner}, and no grant is for you"):
        reserve(ledger)
    monkeypatch.setattr(module, "current_user", lambda: owner)
    ledger.grant(Grant("people", epsilon=9.0, to="user:ben"))
    monkeypatch.setattr(module, "current_user", lambda: "user:ben")
    assert reserve(ledger).run


def test_datasets_that_share_people_share_their_budget(ledger):
    ledger.add_dataset("census")
    ledger.add_dataset("sample", parents=["census"])
    ledger.add_dataset("panel", parents=["sample"])
    ledger.grant(Grant("census", rho=0.2))
    reserve(ledger, dataset="panel")
    reserve(ledger, dataset="sample")
    for dataset in ("panel", "sample", "census"):
        with pytest.raises(BudgetExceeded, match="'census' would reach"):
            reserve(ledger, dataset=dataset)
    assert ledger.total("census").runs == 2
    assert ledger.total("panel").runs == 1
    assert reserve(ledger, dataset="others").run


def test_a_dataset_is_entered_once_and_under_known_parents(ledger):
    ledger.add_dataset("people")
    with pytest.raises(SettingError, match="already"):
        ledger.add_dataset("people")
    with pytest.raises(SettingError, match="'nobody' is not in the ledger"):
        ledger.add_dataset("x", parents=["nobody"])


def _race(address, start, won):
    start.wait()
    try:
        Ledger(address).reserve("people", ONE, unit=UNIT, spec={"place": {}})
    except BudgetExceeded:
        return
    won.put(os.getpid())


def race(address, processes):
    context = multiprocessing.get_context("fork")
    start, won = context.Event(), context.Queue()
    racing = [context.Process(target=_race, args=(address, start, won)) for _ in range(processes)]
    for process in racing:
        process.start()
    start.set()
    for process in racing:
        process.join()
    assert [process.exitcode for process in racing] == [0] * processes
    return sum(1 for _ in range(processes) if not won.empty() and won.get())


def test_processes_that_race_for_a_grant_never_exceed_it(ledger):
    grant = ledger.grant(Grant("people", rho=0.35))
    ledger.close()
    assert race(ledger.address, 12) == 3
    assert len(ledger.reservations()) == 3
    assert ledger.amount_used(grant) <= 0.35


# -- time --


def test_a_clock_set_back_does_not_make_entries_older(ledger, path, monkeypatch):
    ledger.grant(Grant("people", rho=0.1, per="year"))
    reserve(ledger)
    real = module.datetime

    class Back(real):
        @classmethod
        def now(cls, zone=None):
            return real(1970, 1, 1, tzinfo=zone)

    monkeypatch.setattr(module, "datetime", Back)
    with pytest.raises(BudgetExceeded):
        reserve(ledger)
    reserve(ledger, dataset="others")
    monkeypatch.undo()
    times = [entry.time for entry in ledger.entries()]
    assert times == sorted(times)
    assert ledger.verify() == []


def test_a_yearly_grant_is_free_again_after_a_year(ledger, monkeypatch):
    ledger.grant(Grant("people", rho=0.1, per="year"))
    reserve(ledger)
    real = module.datetime

    class Later(real):
        @classmethod
        def now(cls, zone=None):
            return real.now(zone) + timedelta(days=366)

    monkeypatch.setattr(module, "datetime", Later)
    assert reserve(ledger).run


# -- tamper evidence --


@pytest.fixture
def filled(ledger):
    handle = reserve(ledger)
    for number in range(4):
        ledger.record(handle, {"charges": [number]}, bytes([number]))
    point = ledger.checkpoint(KEY)
    reserve(ledger, dataset="others")
    ledger.close()
    return point


def test_an_honest_ledger_verifies_against_every_checkpoint(ledger, filled):
    assert ledger.verify([filled]) == []
    assert ledger.checkpoints() == [filled]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update understudy_entries set body = '{}' where number = 5", r"entry 5 \(answer\) was altered"),
        ("update understudy_entries set payload = x'00' where number = 5", r"entry 5 \(answer\) was altered"),
        ("update understudy_entries set who = 'user:ben' where number = 2", r"entry 2 \(reserve\) was altered"),
        ("delete from understudy_entries where number = 5", "entries 5 to 5 are missing"),
        ("delete from understudy_entries where number >= 6", "were removed"),
        ("update understudy_entries set number = 105 where number = 5", "missing"),
    ],
)
def test_what_was_changed_is_named(ledger, path, filled, statement, said):
    change(path, statement)
    wrong = "; ".join(ledger.verify([filled]))
    import re

    assert re.search(said, wrong), wrong


def test_an_entry_whose_digest_was_forged_too_is_found_by_the_checkpoint(ledger, path, filled):
    entry = next(entry for entry in ledger.entries() if entry.kind == "answer")
    row = {name: getattr(entry, name) for name in ("number", "time", "kind", "dataset", "run", "who", "payload")}
    row["body"] = json.dumps({"charges": [99]})
    forged = module.leaf_hash(module._leaf_data(row))
    change(path, "update understudy_entries set body = ?, leaf = ? where number = ?", row["body"], forged, entry.number)
    change(path, "delete from understudy_checkpoints")
    assert ledger.verify() == []
    assert ledger.verify([filled]) == [
        f"something between entries 1 and {filled.size} was altered since its checkpoint"
    ]


def test_a_checkpoint_of_another_ledger_or_another_key_is_refused(ledger, filled, tmp_path):
    other = Ledger(tmp_path / "other.db")
    reserve(other)
    theirs = other.checkpoint(KEY)
    assert any("another ledger" in word for word in ledger.verify([theirs]))
    from understudy.ledger.log import verifier_line

    stranger = verifier_line(filled.origin, Ed25519PrivateKey.generate().public_key())
    assert any("not signed by a given key" in word for word in ledger.verify([filled], verifiers=[stranger]))
    mine = verifier_line(filled.origin, KEY.public_key())
    assert ledger.verify([filled], verifiers=[mine]) == []


def test_an_export_has_every_entry_and_no_payload(ledger, filled):
    lines = [json.loads(line) for line in ledger.export()]
    assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(line["payload"] is None or len(line["payload"]) == 64 for line in lines)


# -- faults: each a documented error before anything is read --


def test_a_damaged_ledger_is_refused(path):
    path.parent.mkdir()
    path.write_bytes(b"SQLite format 3\0" + b"nonsense" * 600)
    with pytest.raises(LedgerError, match="is damaged"):
        reserve(Ledger(path))


def test_a_file_that_is_not_a_ledger_is_refused(path):
    path.parent.mkdir()
    path.write_text("dear diary\n" * 200)
    with pytest.raises(LedgerError, match="not a ledger"):
        reserve(Ledger(path))


def test_a_ledger_of_a_newer_version_is_refused(ledger, path):
    reserve(ledger)
    ledger.close()
    change(path, "update understudy_ledger set value = '99' where name = 'version'")
    with pytest.raises(LedgerError, match="newer understudy"):
        Ledger(path).reservations()


def test_a_ledger_locked_by_a_hung_process_is_refused_after_a_while(ledger, path, monkeypatch):
    reserve(ledger)
    ledger.close()
    monkeypatch.setattr(database, "_WAIT_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as hung:
        hung.execute("begin immediate")
        with pytest.raises(LedgerError, match="locked by another process"):
            reserve(Ledger(path))
    assert reserve(Ledger(path)).run


class BusyConnection:
    """A connection whose change of the journal meets that of another process a few times."""

    def __init__(self, times):
        self.left, self.done = times, []

    def execute(self, statement):
        if "journal_mode" in statement and self.left:
            self.left -= 1
            raise sqlite3.OperationalError("database is locked")
        self.done.append(statement)


def test_processes_that_open_a_new_ledger_at_the_same_time_wait_for_each_other(monkeypatch):
    """SQLite itself does not wait there: of 600 processes, four at a time, 12 were refused at once."""
    connection = BusyConnection(3)
    database._configure(connection, None)
    assert connection.done == ["pragma journal_mode = wal", "pragma synchronous = full"]
    monkeypatch.setattr(database, "_WAIT_SECONDS", 0.0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        database._configure(BusyConnection(10**9), None)


def test_a_full_disk_loses_no_entry(ledger, path):
    handle = reserve(ledger)
    ledger.record(handle, {"charges": []}, b"kept")
    pages = None
    with ledger._database.read() as connection:
        pages = connection.exec_driver_sql("pragma page_count").scalar()
    import sqlalchemy as sa

    engine = ledger._database._connect()

    def full(connection, *_):
        connection.execute(f"pragma max_page_count = {pages}")

    sa.event.listen(engine, "checkout", lambda c, *_: full(c))
    with pytest.raises(LedgerError, match="the disk is full"):
        ledger.record(handle, {"charges": []}, os.urandom(1 << 20))
    again = Ledger(path).continue_run(handle.run)
    assert again.answers == [({"charges": []}, b"kept")]


def test_a_ledger_on_a_full_disk_is_not_called_a_server():
    """SQLite reports an input/output error where it cannot even begin its log."""
    import sqlalchemy as sa

    error = sa.exc.OperationalError("insert", {}, Exception("disk I/O error"))
    assert "make room" in database._reason(error)


def test_a_read_only_ledger_is_refused(ledger, path, monkeypatch):
    reserve(ledger)
    ledger.close()
    monkeypatch.setattr(database, "_configure", lambda connection, _: connection.execute("pragma query_only = on"))
    with pytest.raises(LedgerError, match="read-only"):
        reserve(Ledger(path))
    assert len(Ledger(path).reservations()) == 1


def test_a_place_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="set UNDERSTUDY_LEDGER"):
        reserve(Ledger(tmp_path / "file" / "ledger.db"))


@pytest.mark.parametrize("address", ["mysql://x/y", "http://x"])
def test_another_kind_of_database_is_refused(address):
    with pytest.raises(LedgerError, match="postgresql://HOST/DATABASE"):
        Ledger(address)


def test_a_password_in_the_address_is_refused():
    with pytest.raises(LedgerError, match="PGPASSWORD"):
        Ledger("postgresql://me:secret@host/db")


def test_a_ledger_is_for_its_owner_alone(ledger, path):
    reserve(ledger)
    assert path.stat().st_mode & 0o077 == 0
