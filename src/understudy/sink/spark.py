"""Synthetic rows written to a Spark table, with their types.

**Privacy.** Rows are synthetic, but Spark's own messages are not passed on: they quote addresses and settings.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from understudy.errors import OutputError
from understudy.release import Release
from understudy.release.frames import to_spark
from understudy.sink.files import replace_errors

_FILES = 4  # of a chunk of a million rows; Spark would make one of every ten thousand


def write_spark(
    release: Release, session: Any, table: str, *, rows: int | None = None, overwrite: bool = False, **options: Any
) -> int:
    """Write synthetic rows of a release to a new Spark table, with their types, without holding all of them.

    The table appears when all rows are in it; a run that fails or is interrupted leaves nothing behind. The table has
    the session's default format.

    Args:
        release: the release.
        session: the Spark session.
        table: the table's name, such as "clinic.visits_standin".
        rows: how many; by default as `Release.sample`.
        overwrite: replace a table of that name.
        options: `seed`, `rare`, `where` and `as_written`, as in `Release.stream`.

    Returns:
        How many rows were written.

    **Privacy.** Post-processing: costs nothing.

    Raises:
        OutputError: if the table exists already, or cannot be written.
        SettingError: as `Release.sample`.
    """
    count, chunks = release.stream(rows, **options)
    write_table(session, table, chunks, overwrite=overwrite)
    return count


def write_table(session: Any, name: str, chunks: Iterable[Any], *, overwrite: bool = False) -> None:
    """Write chunks to a new table, which gets its name once all rows are in it.

    Until then it has a temporary name, and an error or an interrupt removes it. A table that is replaced is renamed
    first and dropped last: it gets its name back if the new table cannot take it.

    Raises:
        OutputError: if the table already exists, is a view, or cannot be written.
    """
    taken = _table_exists(session, name, overwrite=overwrite)
    draft, aside = (_append_to_name(name, f"_understudy_{word}_{secrets.token_hex(4)}") for word in ("draft", "old"))
    try:
        with replace_errors(f"table {name} could not be filled; is Spark still running, and has it room?"):
            for chunk in chunks:
                to_spark(session, chunk).coalesce(_FILES).write.saveAsTable(draft, mode="append")
        with replace_errors(f"table {name} could not be given its name; may this session rename tables there?"):
            _rename_draft(session, draft, name, aside if taken else None)
    finally:
        with suppress(Exception):
            session.sql(f"drop table if exists {draft}")


def _table_exists(session: Any, name: str, *, overwrite: bool) -> bool:
    with replace_errors(
        f"the name {name!r} cannot be looked up; write it as spark.table takes it: NAME or DATABASE.NAME"
    ):
        taken = bool(session.catalog.tableExists(name))
        kind = session.catalog.getTable(name).tableType if taken else ""
    if kind in ("VIEW", "TEMPORARY"):
        raise OutputError(f"{name} is a view; choose another name")
    if taken and not overwrite:
        raise OutputError(f"table {name} already exists; choose another name, or pass overwrite=True")
    return taken


def _rename_draft(session: Any, draft: str, name: str, aside: str | None) -> None:
    if aside is not None:
        session.sql(f"alter table {name} rename to {aside}")
    try:
        session.sql(f"alter table {draft} rename to {name}")
    except BaseException:
        if aside is not None:
            session.sql(f"alter table {aside} rename to {name}")
        raise
    if aside is not None:
        session.sql(f"drop table {aside}")


def _append_to_name(name: str, mark: str) -> str:
    return f"{name[:-1]}{mark}`" if name.endswith("`") else f"{name}{mark}"
