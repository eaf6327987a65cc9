"""The ledger's database: one append-only table of entries in SQLite or PostgreSQL, its version, and its errors.

The kinds of entries are `dataset`, `grant`, `revoke`, `reserve`, `attempt`, `answer`, `schema`, `finish` and `cancel`.
Entries are numbered without gaps, their times never decrease, and none is changed or removed.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from understudy.arguments import holds_password
from understudy.errors import LedgerError, SettingError

VERSION = 1
_WAIT_SECONDS = 20
_LOCK = 7_306_081_215_964_017  # PostgreSQL's advisory lock of writers: any number that nobody else uses

metadata = sa.MetaData()
entries = sa.Table(
    "understudy_entries",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("dataset", sa.String(100)),
    sa.Column("run", sa.String(40)),
    sa.Column("who", sa.String(200), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("payload", sa.LargeBinary),
    sa.Column("leaf", sa.LargeBinary(32), nullable=False),
    sa.Index("understudy_by_kind", "kind", "dataset"),
    sa.Index("understudy_by_run", "run", "number"),
)
checkpoints = sa.Table(
    "understudy_checkpoints",
    metadata,
    sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("note", sa.Text, nullable=False),
)
facts = sa.Table(
    "understudy_ledger",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)


class Database:
    """A connection to the ledger's database, opened on first use and again in a forked process.

    Args:
        address: the path of an SQLite file, or a `postgresql://` URL. By default the environment variable
            `UNDERSTUDY_LEDGER`, else a file in the user's data folder.
    """

    def __init__(self, address: str | os.PathLike[str] | None = None) -> None:
        path = address or os.environ.get("UNDERSTUDY_LEDGER") or default_path()
        given = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if not isinstance(given, str) or "\0" in given:
            raise SettingError("ledger: give the path of a file, or postgresql://HOST/DATABASE")
        self.is_postgres = given.startswith(("postgresql://", "postgres://"))
        if "://" in given and not self.is_postgres:
            raise LedgerError("ledger: give the path of a file, or postgresql://HOST/DATABASE")
        if self.is_postgres and holds_password(given):
            raise LedgerError(
                "ledger: leave the password out of the address; put it into PGPASSWORD, ~/.pgpass or a service file"
            )
        self.path = None if self.is_postgres else Path(given).expanduser()
        self.address = given if self.path is None else str(self.path)
        self._engine: sa.Engine | None = None
        self._process = 0

    @property
    def exists(self) -> bool:
        """Whether there is a ledger to read; True for any PostgreSQL server."""
        return self.path is None or self.path.exists()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a transaction for reading.

        Raises:
            LedgerError: if the ledger cannot be read.
        """
        with self._translate(), self._connect().begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction for writing, one writer at a time. It is durable when the block ends without an error.

        Raises:
            LedgerError: if the ledger cannot be written; nothing was written.
        """
        with self._translate(), self._connect().execution_options(writes=True).begin() as connection:
            if self.is_postgres:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield connection

    def close(self) -> None:
        """Close the connection."""
        if self._engine is not None and self._process == os.getpid():
            self._engine.dispose()
        self._engine = None

    def _connect(self) -> sa.Engine:
        if self._engine is None or self._process != os.getpid():
            engine = self._postgres() if self.is_postgres else self._sqlite()
            self._engine, self._process = engine, os.getpid()
            weakref.finalize(self, _dispose, engine, os.getpid())
            try:
                self._prepare(engine)
            except BaseException:
                self.close()
                raise
        return self._engine

    def _sqlite(self) -> sa.Engine:
        path = Path(self.address)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # for its owner alone
        except OSError as error:
            raise LedgerError(
                f"the ledger {path} cannot be written ({error.strerror}); set UNDERSTUDY_LEDGER to a path that can. "
                "Nothing was read"
            ) from None
        url = sa.URL.create("sqlite", database=str(path))
        engine = sa.create_engine(url, connect_args={"timeout": _WAIT_SECONDS, "isolation_level": None})
        sa.event.listen(engine, "connect", _configure)
        sa.event.listen(engine, "begin", _begin)
        return engine

    def _postgres(self) -> sa.Engine:
        url = sa.make_url(self.address).set(drivername="postgresql+psycopg")
        try:
            return sa.create_engine(url, connect_args={"connect_timeout": _WAIT_SECONDS}, pool_pre_ping=True)
        except ModuleNotFoundError:
            raise LedgerError("a ledger on PostgreSQL needs psycopg: pip install 'understudy[sql]'") from None

    def _prepare(self, engine: sa.Engine) -> None:
        """Create the tables of a new ledger, or check the version of an existing one."""
        with engine.connect() as connection:
            there = sa.inspect(connection).has_table(facts.name)
        if not there:
            with engine.execution_options(writes=True).begin() as connection:
                if self.is_postgres:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
                if not sa.inspect(connection).has_table(facts.name):
                    metadata.create_all(connection)
                    origin = f"understudy/{os.urandom(8).hex()}"
                    values = [{"name": "version", "value": str(VERSION)}, {"name": "origin", "value": origin}]
                    connection.execute(facts.insert(), values)
        with engine.connect() as connection:
            version = int(connection.execute(sa.select(facts.c.value).where(facts.c.name == "version")).scalar_one())
        if version > VERSION:
            raise LedgerError(
                f"the ledger {self.address} was written by a newer understudy (version {version}, this one knows "
                f"{VERSION}); update understudy. Nothing was read"
            )
        for step in MIGRATIONS[version - 1 :]:
            with engine.execution_options(writes=True).begin() as connection:
                step(connection)

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Translate the database's errors into ours: its messages may quote a statement with answers."""
        try:
            yield
        except exc.DBAPIError as error:
            raise LedgerError(f"the ledger {self.address} {_reason(error)}. Nothing more was answered") from None
        except (exc.SQLAlchemyError, ValueError) as error:
            if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
                raise
            raise LedgerError(f"the ledger {self.address} cannot be used. Nothing more was answered") from None


MIGRATIONS: list[Callable[[sa.Connection], None]] = []
"""The steps from version 1 to 2, from 2 to 3, and so on."""


def _dispose(engine: sa.Engine, process: int) -> None:
    """Close connections in the process that opened them; a forked process must not close its parent's."""
    if os.getpid() == process:
        engine.dispose()


def default_path() -> Path:
    """Return the path of the current user's ledger."""
    from platformdirs import user_data_path

    return user_data_path("understudy") / "ledger.db"


def _configure(connection: Any, _: Any) -> None:
    """Make commits durable: a write-ahead log, synchronised at every commit.

    SQLite does not wait for a lock when it changes the journal of a new file, which other processes may do as well.
    """
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            break
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("pragma synchronous = full")


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _reason(error: exc.DBAPIError) -> str:
    words = str(error.orig).lower()
    for sign, reason in (
        ("locked", "is locked by another process that does not finish; end that process, then run this again"),
        ("disk is full", "cannot be written: the disk is full; make room, then run this again"),
        ("disk i/o error", "cannot be written: its disk is full or damaged; make room, then run this again"),
        ("readonly", "cannot be written: it is read-only; change its permissions, or set UNDERSTUDY_LEDGER"),
        ("malformed", "is damaged; restore a backup, and compare it with a checkpoint (`understudy ledger verify`)"),
        ("not a database", "is not a ledger, or is damaged; restore a backup, or set UNDERSTUDY_LEDGER"),
        ("unable to open", "cannot be opened; check the path and its permissions, or set UNDERSTUDY_LEDGER"),
        ("permission denied", "refuses this user; ask its owner for access to the understudy_* tables"),
    ):
        if sign in words:
            return reason
    if error.connection_invalidated or isinstance(error, exc.OperationalError):
        return "cannot be reached; run the same command again when the server answers: no recorded answer is lost"
    return "cannot be used"
