"""Operations of the ledger: datasets, grants, runs and answers.

**Privacy.** A run reserves its whole budget before a row is read. Each answer is durable before it is used, and is
recorded only if the run's last entry was written by this process: if two processes continue the same run, one of them
can record the next answer, and the other stops without using its own. No question is answered twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import sqlalchemy as sa

from understudy.accounting import Budget
from understudy.errors import BudgetExceeded, LedgerError, OutputError, SettingError
from understudy.ledger.database import Database, checkpoints, entries, facts
from understudy.ledger.log import Checkpoint, leaf_hash, tree_root
from understudy.ledger.spending import Grant, Reservation, Total, add_up, budget_from_dict, budget_to_dict
from understudy.yaml_json import read_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Role: TypeAlias = Literal["custodian", "analyst"]
ROLES: tuple[Role, ...] = ("custodian", "analyst")

_NAME = re.compile(r"[\w][\w .+-]{0,99}")

# Statements that every answer uses, built once: building a statement takes longer than executing it.
_LAST_ENTRY = sa.select(entries.c.number, entries.c.time).order_by(entries.c.number.desc()).limit(1)
_LAST = sa.select(sa.func.max(entries.c.number))
_LAST_OF_RUN = sa.select(sa.func.max(entries.c.number)).where(entries.c.run == sa.bindparam("run"))
_FIRST_OF_KIND = (
    sa.select(entries)
    .where(entries.c.run == sa.bindparam("run"), entries.c.kind == sa.bindparam("kind"))
    .order_by(entries.c.number)
    .limit(1)
)
_ADD = entries.insert()


@dataclass(frozen=True)
class LedgerEntry:
    """One entry of the ledger."""

    number: int
    time: str
    kind: str
    dataset: str | None
    run: str | None
    who: str
    body: Mapping[str, Any]
    payload: bytes | None
    leaf: bytes

    @property
    def when(self) -> datetime:
        """The time, with its zone."""
        return datetime.fromisoformat(self.time)


@dataclass
class RunHandle:
    """A run that this process works on.

    Attributes:
        run: the run's identifier.
        dataset: the dataset.
        spec: plain data from which the run can be started again.
        answers: the recorded answers, as (body, payload), in order, if they were read.
        answered: whether there are recorded answers.
        schema: the schema that discovery completed, or None.
        finished: the content of the last `finish` entry, or None.
        releases: the digests of all releases of the run.
    """

    run: str
    dataset: str
    spec: Mapping[str, Any]
    answers: list[tuple[Mapping[str, Any], bytes | None]] = field(default_factory=list)
    answered: bool = False
    schema: Mapping[str, Any] | None = None
    finished: Mapping[str, Any] | None = None
    releases: set[str] = field(default_factory=set)
    last: int = 0
    """The number of the run's last entry; only the process that wrote it may write the next one."""


@dataclass(frozen=True)
class Token:
    """A token with which a person signs in to the studio.

    Attributes:
        holder: the digest of the token; the token itself is never stored.
        role: "custodian" (may spend) or "analyst" (sees what was shared).
        name: whom it was given to.
        number: the number of its entry in the ledger.
        revoked: whether it was revoked.
    """

    holder: str
    role: Role
    name: str
    number: int = 0
    revoked: bool = False


class Ledger:
    """The ledger at an address.

    Args:
        address: the path of an SQLite file or a `postgresql://` URL; by default `UNDERSTUDY_LEDGER`, else a file in the
            user's data folder.
    """

    def __init__(self, address: str | os.PathLike[str] | None = None) -> None:
        self._database = Database(address)

    @property
    def exists(self) -> bool:
        """Whether there is a ledger at its address; does not connect to a PostgreSQL server."""
        return self._database.exists

    @property
    def address(self) -> str:
        """The address of the ledger."""
        return self._database.address

    @property
    def latest(self) -> int:
        """The number of the last entry, 0 if there is none: what was read stays true as long as it does not change."""
        if not self._database.exists:
            return 0
        with self._database.read() as connection:
            return int(connection.execute(_LAST).scalar() or 0)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @contextmanager
    def _read(self) -> Iterator[_Log]:
        """Read entries within one transaction."""
        with self._database.read() as connection:
            yield _Log(connection)

    @contextmanager
    def _write(self) -> Iterator[_Log]:
        """Read and add entries within one transaction, one writer at a time."""
        with self._database.write() as connection:
            yield _Log(connection)

    # -- runs ------------------------------------------------------------------------------------------------------

    def reserve(
        self,
        dataset: str,
        budget: Budget,
        *,
        unit: str,
        spec: Mapping[str, Any],
        key: str | None = None,
        run: str | None = None,
    ) -> RunHandle:
        """Reserve a run's whole budget, or continue the run of the same key.

        Args:
            dataset: the dataset.
            budget: the run's whole budget.
            unit: who is protected, in words.
            spec: plain data from which the run can be started again; no seed and nothing computed from rows.
            key: a digest that identifies the run; None for a new run.
            run: the identifier of a new run; by default a random one.

        **Guarantees.** The check against grants and the entry are one transaction, so concurrent runs never exceed a
        grant. A run is counted once, even if it is started several times.

        Raises:
            BudgetExceeded: if no grant of the dataset, or of a dataset it is derived from, allows it.
            OutputError: if another process is working on the run.
            LedgerError: if the ledger cannot be used. Nothing was read in any of these cases.
        """
        _refuse_test_mode()
        check_name(dataset)
        with self._write() as log:
            if key is not None and (known := self._find(log, key)) is not None:
                return self._attempt(log, known)
            self._check_owner(log, dataset)
            new = Reservation(run or secrets.token_hex(8), dataset, budget, unit, log.now, log.now, current_user())
            drawn = self._draw(log, new)
            body = {"budget": budget_to_dict(budget), "unit": unit, "key": key, "grants": drawn, "spec": dict(spec)}
            log.add("reserve", body, dataset=dataset, run=new.run)
            return self._attempt(log, new.run)

    def continue_run(self, run: str) -> RunHandle:
        """Continue a run, given its identifier or the beginning of it.

        Raises:
            LedgerError: if there is no such run, or it was cancelled.
            OutputError: if another process is working on it.
            SettingError: in test mode.
        """
        _refuse_test_mode()
        with self._write() as log:
            return self._attempt(log, self._resolve_run(log, run))

    def find(self, run: str) -> RunHandle:
        """Return a run without its answers, given its identifier or the beginning of it; writes nothing.

        Raises:
            LedgerError: if there is no such run.
        """
        with self._read() as log:
            return self._handle(log, self._resolve_run(log, run), answers=False)

    def find_by_key(self, key: str) -> RunHandle | None:
        """Return the run of this key without its answers, or None; writes nothing."""
        if not self._database.exists:
            return None
        with self._read() as log:
            run = self._find(log, key)
            return None if run is None else self._handle(log, run, answers=False)

    def find_finished(self, release: str) -> RunHandle | None:
        """Return the finished run whose release has this digest, or None."""
        if not self._database.exists:
            return None
        with self._read() as log:
            found = [entry.run for entry in log.find(kind="finish") if entry.body.get("release") == release]
            return self._handle(log, str(found[-1]), answers=False) if found else None

    def record(self, handle: RunHandle, body: Mapping[str, Any], payload: bytes | None) -> None:
        """Record one question's charges and its answer, durably.

        Raises:
            OutputError: if another process continues the run; the answer must not be used.
            LedgerError: if the ledger cannot be written; the answer must not be used.
        """
        self._append(handle, "answer", body, payload)

    def record_schema(self, handle: RunHandle, schema: Mapping[str, Any]) -> None:
        """Record the schema that discovery completed from recorded answers."""
        self._append(handle, "schema", {"schema": dict(schema)})

    def finish(self, handle: RunHandle, body: Mapping[str, Any]) -> None:
        """Record that the release of the run is made."""
        self._append(handle, "finish", body)
        handle.finished = dict(body)

    def abandon(self, handle: RunHandle) -> None:
        """Cancel the reservation of a run for which this process received no answer.

        Raises:
            OutputError: if another process continues the run; its reservation stands.
            LedgerError: if the run has answers, or the ledger cannot be written.
        """
        with self._write() as log:
            if log.last_of(handle.run) != handle.last:
                raise OutputError(f"another process is continuing run {handle.run}")
            self._cancel(log, handle.run)

    def cancel(self, run: str) -> None:
        """Cancel the reservation of a run that has no answer.

        **Privacy.** A process that still works on the run can no longer record an answer, and so cannot use one.

        Raises:
            LedgerError: if there is no such run, or it has answers, whose charges stand.
            OutputError: if another process continued the run in the meantime.
        """
        with self._write() as log:
            self._cancel(log, self._resolve_run(log, run))

    def reservations(self, dataset: str | None = None) -> list[Reservation]:
        """Return the runs about a dataset and datasets derived from it, or all runs; oldest first."""
        if not self._database.exists:
            return []
        with self._read() as log:
            return log.reservations(None if dataset is None else _descendants(log, dataset))

    def _append(self, handle: RunHandle, kind: str, body: Mapping[str, Any], payload: bytes | None = None) -> None:
        with self._write() as log:
            if log.last_of(handle.run) != handle.last:
                raise OutputError(
                    f"another process is continuing run {handle.run}; this one stops. Nothing was answered twice"
                )
            number = log.add(kind, body, dataset=handle.dataset, run=handle.run, payload=payload)
        handle.last = number

    def _cancel(self, log: _Log, run: str) -> None:
        if log.first(run, "answer") is not None:
            raise LedgerError(
                f"run {run} has recorded answers, so its charges stand; continue it with `understudy resume {run}`"
            )
        if log.first(run, "cancel") is None:
            log.add("cancel", {}, dataset=log.find(run=run, kind="reserve")[0].dataset, run=run)

    def _resolve_run(self, log: _Log, run: str) -> str:
        named = [entry.run for entry in log.find(kind="reserve") if str(entry.run).startswith(run)]
        if len(named) != 1 or not run:
            raise LedgerError(f"no run, or more than one, begins with {run!r}; `understudy runs` lists them")
        return str(named[0])

    def _find(self, log: _Log, key: str) -> str | None:
        """Return the run of a key that was not cancelled."""
        for entry in reversed(log.find(kind="reserve")):
            if entry.body.get("key") == key and log.first(str(entry.run), "cancel") is None:
                return str(entry.run)
        return None

    def _attempt(self, log: _Log, run: str) -> RunHandle:
        """Record that this process continues the run; from then on no other process can record answers for it."""
        handle = self._handle(log, run)
        before = log.find(run=run, kind="attempt")
        if handle.finished is None and before and _is_alive(before[-1].body):
            raise OutputError(
                f"process {before[-1].body['process']} is working on run {run}; wait for it or end it. Nothing was read"
            )
        if log.first(run, "cancel") is not None:
            raise LedgerError(f"run {run} was cancelled; start a new one")
        handle.last = log.add("attempt", _this_process(), dataset=handle.dataset, run=run)
        return handle

    def _handle(self, log: _Log, run: str, *, answers: bool = True) -> RunHandle:
        handle = RunHandle(run, "", {}, answered=log.first(run, "answer") is not None)
        for entry in log.find(run=run) if answers else log.find(run=run, kinds=("reserve", "schema", "finish")):
            handle.last = entry.number
            if entry.kind == "reserve":
                handle.dataset, handle.spec = str(entry.dataset), entry.body["spec"]
            elif entry.kind == "answer":
                handle.answers.append((entry.body, entry.payload))
            elif entry.kind == "schema":
                handle.schema = entry.body["schema"]
            elif entry.kind == "finish":
                handle.finished = entry.body
                handle.releases |= {entry.body["release"]} - {None}
        return handle

    # -- datasets and grants ---------------------------------------------------------------------------------------

    def add_dataset(self, name: str, *, parents: Sequence[str] = ()) -> None:
        """Add a dataset, with other datasets about the same people: what is spent on it counts for those as well.

        Raises:
            SettingError: if the name is taken or not allowed, or a parent is unknown.
        """
        check_name(name)
        with self._write() as log:
            known = {entry.dataset for entry in log.find(kind="dataset")}
            if name in known:
                raise SettingError(f"dataset {name!r} is already in the ledger; choose another name")
            for parent in parents:
                if parent not in known:
                    raise SettingError(f"dataset {parent!r} is not in the ledger; add it first")
            log.add("dataset", {"parents": list(parents)}, dataset=name)

    def datasets(self) -> dict[str, tuple[str, ...]]:
        """Return every dataset with its parents."""
        if not self._database.exists:
            return {}
        with self._read() as log:
            return _parents(log)

    def grant(self, grant: Grant) -> Grant:
        """Add a grant and return it with its number. Only the user who entered a dataset grants budget for it.

        Raises:
            SettingError: if it is not a grant, its name is not allowed, or another user entered the dataset.
        """
        if not isinstance(grant, Grant):
            raise SettingError("grant: give a `Grant`, such as Grant('people', epsilon=4)")
        check_name(grant.dataset)
        with self._write() as log:
            self._check_grantor(log, grant.dataset)
            self._check_owner(log, grant.dataset)
            terms = {name: getattr(grant, name) for name in ("epsilon", "delta", "rho", "per", "to")}
            return replace(grant, number=log.add("grant", terms, dataset=grant.dataset))

    def revoke(self, number: int) -> None:
        """Revoke a grant: nothing more can be drawn on it.

        Raises:
            SettingError: if there is no such grant, or another user entered its dataset.
        """
        with self._write() as log:
            found = [grant for grant in log.grants() if grant.number == number and not grant.revoked]
            if not found:
                raise SettingError(
                    f"grant {number} is not in the ledger, or was revoked; `understudy ledger show` lists them"
                )
            self._check_grantor(log, found[0].dataset)
            log.add("revoke", {"grant": number}, dataset=found[0].dataset)

    def grants(self, dataset: str | None = None) -> list[Grant]:
        """Return the grants of a dataset, or all."""
        if not self._database.exists:
            return []
        with self._read() as log:
            return [grant for grant in log.grants() if dataset in (None, grant.dataset)]

    def amount_used(self, grant: Grant) -> float:
        """Return what counts towards a grant now, in its own unit; runs from before the first grant count too."""
        with self._read() as log:
            return grant.amount_used(log.reservations_of(grant), log.now)

    def total(self, dataset: str) -> Total:
        """Return the total of all runs about a dataset and about datasets derived from it."""
        return add_up(self.reservations(dataset))

    def describe(self, dataset: str) -> dict[str, Any]:
        """Return as plain data what was spent on a dataset, and its grants with what was used of each."""
        total = self.total(dataset)
        page: dict[str, Any] = {"dataset": dataset, "runs": total.runs, "rho": total.rho, "epsilon": total.epsilon}
        page |= {"delta": total.delta, "mixed_units": total.mixed, "text": str(total)}
        page["grants"] = [_describe_grant(grant, self.amount_used(grant)) for grant in self.grants(dataset)]
        return page

    def _check_owner(self, log: _Log, dataset: str) -> None:
        """Add a new dataset; refuse the dataset of another user unless a grant allows it."""
        found = log.find(kind="dataset", dataset=dataset)
        if not found:
            log.add("dataset", {"parents": []}, dataset=dataset)
        elif found[0].who != current_user() and not any(_may_draw(g) for g in log.grants() if g.dataset == dataset):
            raise BudgetExceeded(
                f"dataset {dataset!r} was entered by {found[0].who}, and no grant is for you ({current_user()}). "
                "If you mean the same table, ask for a grant "
                f"(`understudy ledger grant {dataset} --to {current_user()}`); else choose another name (--dataset). "
                "Nothing was read"
            )

    def _check_grantor(self, log: _Log, dataset: str) -> None:
        found = log.find(kind="dataset", dataset=dataset)
        if found and found[0].who != current_user():
            raise SettingError(f"dataset {dataset!r} was entered by {found[0].who}; only they can grant budget for it")

    def _draw(self, log: _Log, new: Reservation) -> list[int]:
        """Return the grants that a reservation draws on: one of its dataset and one of each parent dataset."""
        drawn = []
        for dataset in _ancestors(_parents(log), new.dataset):
            grants = [grant for grant in log.grants() if grant.dataset == dataset and not grant.revoked]
            if not grants:
                continue
            reasons = []
            for grant in grants:
                reason = (
                    grant.refusal(log.reservations_of(grant), new)
                    if _may_draw(grant)
                    else f"grant {grant.number} is {grant}"
                )
                if reason is None:
                    drawn.append(grant.number)
                    break
                reasons.append(reason)
            else:
                raise BudgetExceeded(f"{'; '.join(reasons)}. Ask for a grant that allows this run. Nothing was read")
        return drawn

    # -- tokens ----------------------------------------------------------------------------------------------------

    def add_token(self, role: Role, name: str) -> tuple[Token, str]:
        """Add a token for the studio; returns its entry, and the token itself, which is shown once.

        Raises:
            SettingError: for an unknown role, or a name that is empty, too long or not printable.
        """
        if role not in ROLES:
            raise SettingError(f"role: {role!r} is unknown; the roles are {' and '.join(ROLES)}")
        if not isinstance(name, str) or not 0 < len(name.strip()) <= 100 or not name.isprintable():
            raise SettingError("name: say in at most 100 characters whom the token is for")
        secret = secrets.token_urlsafe(24)
        new = Token(token_holder(secret), role, name.strip())
        with self._write() as log:
            body = {"holder": new.holder, "role": new.role, "name": new.name}
            return replace(new, number=log.add("token", body)), secret

    def tokens(self) -> list[Token]:
        """Return every token of the studio, revoked ones marked."""
        if not self._database.exists:
            return []
        with self._read() as log:
            gone = {entry.body["token"] for entry in log.find(kind="revoke_token")}
            return [
                Token(**entry.body, number=entry.number, revoked=entry.number in gone)
                for entry in log.find(kind="token")
            ]

    def revoke_token(self, number: int) -> None:
        """Revoke a token: nobody can sign in with it any more.

        Raises:
            SettingError: if there is no such token.
        """
        if number not in [token.number for token in self.tokens() if not token.revoked]:
            raise SettingError(f"token {number} is not in the ledger, or was revoked")
        with self._write() as log:
            log.add("revoke_token", {"token": number})

    # -- tamper evidence -------------------------------------------------------------------------------------------

    def entries(self, *, start: int = 1) -> Iterator[LedgerEntry]:
        """Every entry from a number on, in order."""
        if not self._database.exists:
            return
        with self._database.read() as connection:
            rows = connection.execute(sa.select(entries).where(entries.c.number >= start).order_by(entries.c.number))
            yield from map(_entry, rows)

    @property
    def origin(self) -> str:
        """The ledger's own name, which its checkpoints contain."""
        with self._database.read() as connection:
            return str(connection.execute(sa.select(facts.c.value).where(facts.c.name == "origin")).scalar_one())

    def checkpoint(self, key: Ed25519PrivateKey) -> Checkpoint:
        """Sign the current state and keep the checkpoint."""
        origin = self.origin
        with self._database.write() as connection:
            leaves = _leaves(connection)
            made = Checkpoint.of(origin, len(leaves), tree_root(leaves)).sign(origin, key)
            connection.execute(sa.delete(checkpoints).where(checkpoints.c.size == made.size))
            connection.execute(checkpoints.insert().values(size=made.size, note=made.note))
        return made

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints that the ledger keeps, smallest first."""
        with self._database.read() as connection:
            notes = connection.execute(sa.select(checkpoints.c.note).order_by(checkpoints.c.size)).scalars()
            return [Checkpoint.parse(note) for note in notes]

    def verify(self, given: Iterable[Checkpoint] = (), *, verifiers: Sequence[str] = ()) -> list[str]:
        """List what is wrong with the ledger; empty if every entry is unchanged since every checkpoint.

        Args:
            given: checkpoints that were kept elsewhere, in addition to those in the ledger.
            verifiers: keys, one of which must have signed each given checkpoint.
        """
        wrong: list[str] = []
        with self._database.read() as connection:
            leaves, expected, before = [], 1, ""
            for row in connection.execute(sa.select(entries).order_by(entries.c.number)):
                if row.number != expected:
                    wrong.append(f"entries {expected} to {row.number - 1} are missing")
                if (leaf := leaf_hash(_leaf_data(row))) != row.leaf:
                    wrong.append(f"entry {row.number} ({row.kind}) was altered")
                if row.time < before:
                    wrong.append(f"entry {row.number} is older than the one before it")
                before, expected = row.time, row.number + 1
                leaves.append(leaf)
        good, all_given = 0, [(point, True) for point in given]
        kept = [(point, False) for point in self.checkpoints()]
        for point, outside in sorted([*kept, *all_given], key=lambda pair: pair[0].size):
            if outside and verifiers and not any(point.is_signed_by(line) for line in verifiers):
                wrong.append(f"the checkpoint of {point.size} entries is not signed by a given key")
            elif outside and point.origin != self.origin:
                wrong.append(f"the checkpoint is of another ledger ({point.origin})")
            elif point.size > len(leaves):
                wrong.append(f"entries after {len(leaves)} were removed: a checkpoint has {point.size}")
            elif tree_root(leaves[: point.size]) != point.root:
                wrong.append(f"something between entries {good + 1} and {point.size} was altered since its checkpoint")
            else:
                good = point.size
        return wrong

    def export(self) -> Iterator[str]:
        """Yield every entry as a line of JSON, with digests instead of payloads, for an auditor."""
        for entry in self.entries():
            line = {name: getattr(entry, name) for name in ("number", "time", "kind", "dataset", "run", "who", "body")}
            line["payload"] = None if entry.payload is None else hashlib.sha256(entry.payload).hexdigest()
            yield json.dumps(line | {"leaf": entry.leaf.hex()})


class _Log:
    """The entries within one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        last = connection.execute(_LAST_ENTRY).first()
        self._number = 0 if last is None else int(last.number)
        now = datetime.now(UTC)
        self.now = now if last is None else max(now, datetime.fromisoformat(last.time))  # a clock may be set back

    def add(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        dataset: str | None = None,
        run: str | None = None,
        payload: bytes | None = None,
    ) -> int:
        """Append an entry; returns its number."""
        self._number += 1
        row: dict[str, Any] = {
            "number": self._number,
            "time": self.now.isoformat(timespec="milliseconds"),
            "kind": kind,
            "dataset": dataset,
            "run": run,
            "who": current_user(),
            "body": json.dumps(body, separators=(",", ":"), allow_nan=False),
            "payload": payload,
        }
        row["leaf"] = leaf_hash(_leaf_data(row))
        self._connection.execute(_ADD, row)
        return self._number

    def find(
        self,
        *,
        kind: str | None = None,
        dataset: str | None = None,
        run: str | None = None,
        kinds: Sequence[str] = (),
    ) -> list[LedgerEntry]:
        """Return entries by kind, dataset and run, in order."""
        query = sa.select(entries).order_by(entries.c.number)
        for column, value in ((entries.c.kind, kind), (entries.c.dataset, dataset), (entries.c.run, run)):
            query = query if value is None else query.where(column == value)
        query = query.where(entries.c.kind.in_(kinds)) if kinds else query
        return list(map(_entry, self._connection.execute(query)))

    def first(self, run: str, kind: str) -> LedgerEntry | None:
        """Return the first entry of a kind about a run."""
        row = self._connection.execute(_FIRST_OF_KIND, {"run": run, "kind": kind}).first()
        return None if row is None else _entry(row)

    def last_of(self, run: str) -> int:
        """Return the number of the last entry about a run."""
        return int(self._connection.execute(_LAST_OF_RUN, {"run": run}).scalar() or 0)

    def grants(self) -> list[Grant]:
        """Return every grant, revoked ones marked."""
        gone = {entry.body["grant"] for entry in self.find(kind="revoke")}
        return [
            Grant(str(entry.dataset), **entry.body, number=entry.number, revoked=entry.number in gone)
            for entry in self.find(kind="grant")
        ]

    def reservations_of(self, grant: Grant) -> list[Reservation]:
        """Return the reservations that count towards a grant: those that draw on it or on no grant."""
        siblings = {one.number for one in self.grants() if one.dataset == grant.dataset}
        about = self.reservations(_descendants(self, grant.dataset))
        return [one for one in about if grant.number in one.grants or siblings.isdisjoint(one.grants)]

    def reservations(self, datasets: Iterable[str] | None = None) -> list[Reservation]:
        """Return all reservations, or those of some datasets, with the state of their runs."""
        wanted = None if datasets is None else set(datasets)
        query = sa.select(
            entries.c.run,
            sa.func.max(entries.c.time).label("last"),
            *(
                sa.func.sum(sa.case((entries.c.kind == kind, 1), else_=0)).label(kind)
                for kind in ("answer", "finish", "cancel")
            ),
        ).group_by(entries.c.run)
        states = {row.run: row for row in self._connection.execute(query.where(entries.c.run.is_not(None)))}
        found = []
        for entry in self.find(kind="reserve"):
            if wanted is not None and entry.dataset not in wanted:
                continue
            state, time = states[entry.run], datetime.fromisoformat(str(entry.body.get("time") or entry.time))
            found.append(
                Reservation(
                    run=str(entry.run),
                    dataset=str(entry.dataset),
                    budget=budget_from_dict(entry.body["budget"]),
                    unit=str(entry.body["unit"]),
                    time=time,
                    last=time if entry.body.get("time") else datetime.fromisoformat(state.last),
                    who=entry.who,
                    grants=tuple(entry.body["grants"]),
                    state="cancelled" if state.cancel else "finished" if state.finish else "unfinished",
                    answers=int(state.answer),
                )
            )
        return found


_acting: ContextVar[str | None] = ContextVar("acting", default=None)


@contextmanager
def acting_as(who: str | None) -> Iterator[None]:
    """Record what is done within the block under another name, as a server does for the holder of a token.

    Args:
        who: the name, as `token_holder` returns it; None for the current user.
    """
    before = _acting.set(who)
    try:
        yield
    finally:
        _acting.reset(before)


def current_user() -> str:
    """Return the current user.

    That is who `acting_as` names, the holder of the token in `UNDERSTUDY_TOKEN`, or the operating system's user.
    """
    if (who := _acting.get()) is not None:
        return who
    if token := os.environ.get("UNDERSTUDY_TOKEN"):
        return token_holder(token)
    try:
        import pwd

        return f"user:{pwd.getpwuid(os.getuid()).pw_name}"
    except (ImportError, KeyError):
        import getpass

        return f"user:{getpass.getuser()}" if sys.platform == "win32" else f"user:{os.getuid()}"


def token_holder(token: str) -> str:
    """Return the name under which a token's holder is recorded: a digest, which does not reveal the token."""
    return f"token:{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def check_name(dataset: Any) -> str:
    """Refuse a dataset's name that has characters other than letters, digits, blanks and . _ + -.

    Raises:
        SettingError: if the name is not allowed.
    """
    if not isinstance(dataset, str) or not _NAME.fullmatch(dataset):
        raise SettingError(
            "dataset: use a name of letters, digits, blanks and . _ + - (at most 100). If no name is given "
            "(--dataset), the table's own name is used"
        )
    return dataset


def _refuse_test_mode() -> None:
    from understudy.gate.randomness import is_insecure  # imported late: queries of the ledger do not need the gate

    if is_insecure():
        raise SettingError("the ledger refuses runs in test mode: their noise is seeded and protects nobody")


def _may_draw(grant: Grant) -> bool:
    kind, _, name = grant.to.partition(":")
    if grant.to == "anyone" or grant.to == current_user():
        return True
    return kind == "group" and name in _groups()


def _describe_grant(grant: Grant, used: float) -> dict[str, Any]:
    shown = used if math.isfinite(used) else None  # JSON has no infinity
    terms = {"grant": grant.number, "amount": grant.amount, "used": shown, "text": str(grant), "to": grant.to}
    return terms | {"unit": "rho" if grant.rho is not None else "epsilon", "revoked": grant.revoked}


def _groups() -> set[str]:
    try:
        import grp

        return {grp.getgrgid(number).gr_name for number in {*os.getgroups(), os.getgid()}}
    except (ImportError, KeyError):
        return set()


def _this_process() -> dict[str, Any]:
    import psutil

    return {"host": platform.node(), "process": os.getpid(), "started": psutil.Process().create_time()}


def _is_alive(process: Mapping[str, Any]) -> bool:
    """Return whether a process of this machine is alive; processes of other machines are assumed to have ended."""
    import psutil

    if process["host"] != platform.node() or process["process"] == os.getpid():
        return False
    try:
        return bool(psutil.Process(process["process"]).create_time() == process["started"])
    except psutil.Error:
        return False


def _parents(log: _Log) -> dict[str, tuple[str, ...]]:
    return {str(entry.dataset): tuple(entry.body["parents"]) for entry in log.find(kind="dataset")}


def _ancestors(parents: Mapping[str, tuple[str, ...]], dataset: str) -> list[str]:
    """Return the dataset itself and every dataset it is derived from."""
    found: list[str] = [dataset]
    for name in found:
        found += [parent for parent in parents.get(name, ()) if parent not in found]
    return found


def _descendants(log: _Log, dataset: str) -> list[str]:
    parents = _parents(log)
    return [name for name in {*parents, dataset} if dataset in _ancestors(parents, name)]


def _leaf_data(row: Any) -> bytes:
    """Return the bytes that a leaf hashes: all fields of the entry, its payload by a digest."""
    get: Callable[[str], Any] = row.get if isinstance(row, Mapping) else lambda name: getattr(row, name)
    payload = get("payload")
    facts = [get(name) for name in ("number", "time", "kind", "dataset", "run", "who", "body")]
    return json.dumps([*facts, None if payload is None else hashlib.sha256(payload).hexdigest()]).encode()


def _leaves(connection: sa.Connection) -> list[bytes]:
    rows = connection.execute(sa.select(entries).order_by(entries.c.number))
    return [leaf_hash(_leaf_data(row)) for row in rows]


def _entry(row: Any) -> LedgerEntry:
    """Read an entry and check it against its hash.

    Raises:
        LedgerError: if it was altered. An altered ledger is not used for spending or answering.
    """
    if leaf_hash(_leaf_data(row)) != row.leaf:
        raise LedgerError(
            f"entry {row.number} of the ledger was altered; `understudy ledger verify` lists all altered entries. "
            "Restore a backup. Nothing was read"
        )
    try:
        body = read_json(row.body)
    except ValueError:
        body = {}
    fields = {name: getattr(row, name) for name in ("number", "time", "kind", "dataset", "run", "who", "payload")}
    return LedgerEntry(**fields, body=body, leaf=bytes(row.leaf))
