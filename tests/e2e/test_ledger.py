"""An office's ledger on the command line: who grants, who spends, and what is noticed when somebody changes it."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import pytest

import understudy as us

OWNER, CLERK, STRANGER = "the owner's token", "the clerk's token", "a stranger's token"


@pytest.fixture
def office(call, tmp_path, monkeypatch):
    """Run a command as a person: (exit code, its JSON or the error's message)."""
    (tmp_path / "t.csv").write_text("a,b\n" + "0,1\n1,0\n" * 40)
    us.Schema.from_domain({"a": 2, "b": 2}).save(tmp_path / "s.yaml")

    def run(person, *arguments):
        monkeypatch.setenv("UNDERSTUDY_TOKEN", person)
        code, out, err = call(*arguments, "--json")
        return code, json.loads(out) if code == 0 else json.loads(err.splitlines()[-1])["message"]

    return run


def holder(token):
    from understudy.ledger.ledger import token_holder

    return token_holder(token)


def spend(office, tmp_path, person, name, rho="0.1"):
    return office(
        person, "synthesize", tmp_path / "t.csv", "-s", tmp_path / "s.yaml", "--rho", rho, "-m", "independent",
        "--dataset", "people", "-o", tmp_path / name,
    )  # fmt: skip


def test_only_who_entered_a_dataset_grants_and_revokes(office, tmp_path):
    assert office(OWNER, "ledger", "grant", "people", "--rho", "1", "--to", holder(CLERK))[0] == 0
    number = office(OWNER, "ledger", "show", "people")[1]["grants"][0]["grant"]
    for person in (CLERK, STRANGER):
        code, said = office(person, "ledger", "grant", "people", "--rho", "9", "--to", holder(person))
        assert code == us.errors.SettingError.exit_code
        assert "only they can grant budget for it" in said
        assert office(person, "ledger", "revoke", number)[0] == us.errors.SettingError.exit_code
    assert [grant.number for grant in us.Ledger().grants()] == [number]


def test_a_grant_is_drawn_on_by_whom_it_names_until_it_is_used_up_or_revoked(office, tmp_path):
    assert office(OWNER, "ledger", "grant", "people", "--rho", "0.2", "--to", holder(CLERK))[0] == 0
    assert spend(office, tmp_path, CLERK, "one")[0] == 0
    for person in (STRANGER, OWNER):  # the owner's own runs need a grant as well
        assert spend(office, tmp_path, person, "two")[0] == us.errors.BudgetExceeded.exit_code
    assert spend(office, tmp_path, CLERK, "two", "0.11")[0] == us.errors.BudgetExceeded.exit_code
    assert spend(office, tmp_path, CLERK, "two")[0] == 0
    assert spend(office, tmp_path, CLERK, "three", "0.001")[0] == us.errors.BudgetExceeded.exit_code
    grant = office(OWNER, "ledger", "grant", "people", "--rho", "5", "--to", holder(CLERK))[1]["grant"]
    assert office(OWNER, "ledger", "revoke", grant)[0] == 0
    assert spend(office, tmp_path, CLERK, "three", "0.001")[0] == us.errors.BudgetExceeded.exit_code
    assert not (tmp_path / "three").exists()
    assert us.Ledger().total("people").runs == 2
    assert {run["who"] for run in office(OWNER, "runs")[1]["runs"]} == {holder(CLERK)}


def test_datasets_that_share_people_share_their_grants(office, tmp_path):
    assert office(OWNER, "ledger", "grant", "register", "--rho", "0.15")[0] == 0
    assert office(OWNER, "ledger", "add", "people", "--parent", "register")[0] == 0
    assert spend(office, tmp_path, OWNER, "one")[0] == 0
    code, said = spend(office, tmp_path, OWNER, "two")
    assert code == us.errors.BudgetExceeded.exit_code
    assert "'register' would reach rho 0.2" in said


CHANGES = {
    "an answer": "update understudy_entries set payload = x'00' where kind = 'answer'",
    "a budget": """update understudy_entries set body = replace(body, '"rho":"', '"rho":"0') where kind = 'reserve'""",
    "who": "update understudy_entries set who = 'user:nobody' where kind = 'reserve'",
    "an entry removed": "delete from understudy_entries where kind = 'answer'",
    "the end removed": "delete from understudy_entries where number > 2",
    "everything removed": "delete from understudy_entries",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_before_a_checkpoint_is_noticed(office, tmp_path, change):
    assert spend(office, tmp_path, OWNER, "one")[0] == 0
    key, point = ("--key", tmp_path / "k"), tmp_path / "c"
    code, made = office(OWNER, "ledger", "checkpoint", "-o", point, *key)
    assert code == 0
    code, cosigned = office(CLERK, "ledger", "cosign", point, "--name", "auditor", "--key", tmp_path / "k2")
    assert code == 0
    assert spend(office, tmp_path, OWNER, "two")[0] == 0
    verify = ("ledger", "verify", point, "--verifier", made["verifier"])
    assert office(STRANGER, *verify)[1] == {"intact": True, "covered": made["size"]}
    assert office(STRANGER, "ledger", "verify", point, "--verifier", cosigned["verifier"])[0] == 0
    with closing(sqlite3.connect(os.environ["UNDERSTUDY_LEDGER"])) as database:
        assert database.execute(CHANGES[change]).rowcount > 0
        database.execute("delete from understudy_checkpoints")  # what is kept elsewhere is enough
        database.commit()
    code, said = office(STRANGER, *verify)
    assert code == us.errors.LedgerError.exit_code
    assert "was changed" in said


def test_a_checkpoint_of_another_key_or_another_ledger_proves_nothing(office, tmp_path, monkeypatch):
    assert spend(office, tmp_path, OWNER, "one")[0] == 0
    office(OWNER, "ledger", "checkpoint", "-o", tmp_path / "c", "--key", tmp_path / "k")
    _, other = office(OWNER, "ledger", "checkpoint", "-o", tmp_path / "c2", "--key", tmp_path / "k2")
    code, said = office(OWNER, "ledger", "verify", tmp_path / "c", "--verifier", other["verifier"])
    assert code == us.errors.LedgerError.exit_code
    assert "not signed by a given key" in said
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "other.db"))
    assert spend(office, tmp_path, OWNER, "two")[0] == 0
    code, said = office(OWNER, "ledger", "verify", tmp_path / "c")
    assert code == us.errors.LedgerError.exit_code
    assert "of another ledger" in said
