"""Linked tables in a run: where they are, the gate's views of their virtual tables, and what the receipt says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy.accounting import Budget, Charge, Neighbours
from understudy.accounting.exact import float_below
from understudy.discovery.discover import NoRows
from understudy.errors import InputError, SettingError
from understudy.gate import PrivateTable
from understudy.mechanism.linked import LinkedMechanism
from understudy.model.fit import Fit
from understudy.progress import Progress, Step
from understudy.run.record import CannotContinue, Recorder
from understudy.schema.linked import LinkedSchema, VirtualTable
from understudy.source import Source
from understudy.source.linked import LinkedRows, check_tables
from understudy.source.place import CSV, PARQUET, source_kind
from understudy.source.read import collect_table

_IN_MEMORY = ("frame", "file", "files", "duckdb", "relation")
_ENDINGS = (*PARQUET, *CSV)


def find_tables(data: Any, schema: LinkedSchema) -> dict[str, Any]:
    """Return where each table is: frames and paths by name, or the files of a folder that have the tables' names.

    Raises:
        InputError: naming the table that is missing.
    """
    if isinstance(data, Mapping):
        missing = [name for name in schema.tables if name not in data]
        if missing:
            raise InputError(f"table {missing[0]!r} is missing; give one for each of {', '.join(schema.tables)}")
        if unknown := [str(name) for name in data if name not in schema.tables]:
            raise InputError(f"table {unknown[0]!r} is not in the schema; its tables are {', '.join(schema.tables)}")
        return {name: data[name] for name in schema.tables}
    if not isinstance(data, str | os.PathLike) or not Path(data).is_dir():
        raise InputError(
            "linked tables are given by name, such as {'patients': frame, 'visits': frame}, or as a folder with one "
            "file for each table"
        )
    return {name: _find_file(Path(data), name, schema.paths.get(name)) for name in schema.tables}


def _find_file(folder: Path, name: str, declared: str | None) -> str:
    named = [declared] if declared is not None else [f"{name}{ending}" for ending in _ENDINGS]
    found = [folder / one for one in named if (folder / one).exists()]
    if len(found) != 1:
        what = f"{named[0]} or " if declared else ""
        raise InputError(f"{folder}: give one file for table {name!r}, {what}such as {name}.csv or {name}.parquet")
    return str(found[0])


def check_places(tables: Mapping[str, Any]) -> None:
    """Refuse tables that live where linked rows cannot be counted; reads no row.

    Raises:
        SettingError, InputError: naming the table.
    """
    for name, one in tables.items():
        if (home := source_kind(one)) not in _IN_MEMORY:
            where = {"postgresql": "PostgreSQL", "spark": "Spark"}.get(home, "Ibis")
            raise SettingError(
                f"table {name!r}: linked tables are counted in memory, and rows must not leave {where}; export the "
                "tables to Parquet on the machine that runs understudy"
            )
        if home == "file" and not Path(one).exists():
            raise InputError(f"table {name!r}: {one}: no such file; check the path")


@contextmanager
def open_tables(tables: Mapping[str, Any] | None, schema: LinkedSchema) -> Iterator[dict[str, Any] | None]:
    """Yield the frames of all tables with their columns checked, before anything is reserved; None if they are gone."""
    if tables is None:
        yield None
        return
    frames = {name: collect_table(tables[name], schema.tables[name]) for name in schema.tables}
    check_tables(frames, schema)
    yield frames


def linked_neighbours(schema: LinkedSchema) -> Neighbours:
    """Return who is protected: a unit with all of its rows in all tables."""
    return Neighbours(schema.keys[schema.root], 1, schema.rows is not None, tuple(schema.most_rows.items()))


def linked_facts(schema: LinkedSchema) -> dict[str, str]:
    """Return the origin of each column's facts, and the assumptions about keys."""
    found: dict[str, str] = {
        f"{name}.{column.name}": column.origin for name, one in schema.tables.items() for column in one.columns
    }
    return found | dict.fromkeys(schema.assumptions, "assumed")


def fit_linked(
    frames: Mapping[str, Any] | None,
    schema: LinkedSchema,
    mechanism: LinkedMechanism,
    budget: Budget,
    *,
    noise: str,
    recorder: Recorder,
    progress: Progress,
) -> tuple[dict[str, Fit], Sequence[Charge]]:
    """Fit all virtual tables through one account; returns the fits and every charge.

    Raises:
        CannotContinue: if answers are missing and the tables are gone.
    """
    progress(Step("read", None, "the tables"))
    rows = None if frames is None else LinkedRows(frames, schema)
    root = schema.virtual_tables[schema.root]

    def source(virtual: VirtualTable) -> Source:
        return NoRows(virtual.schema, coded=True) if rows is None else rows.source(virtual)

    base = PrivateTable(source(root), budget, noise=noise, recorder=recorder)

    def view(virtual: VirtualTable) -> PrivateTable:
        return base.over(source(virtual), table=virtual.name)

    try:
        fits = mechanism.fit(view, schema, rho=float_below(base.account.remaining), progress=progress)
    except CannotContinue as reason:
        base.account.pay(recorder.recall_rest())
        fits = finish_linked(schema, mechanism, recorder, str(reason), progress)
    base.account.pay(recorder.recall_rest())
    return fits, base.account.charges


def finish_linked(
    schema: LinkedSchema, mechanism: LinkedMechanism, recorder: Recorder, reason: str, progress: Progress
) -> dict[str, Fit]:
    """Fit all virtual tables to recorded answers, at no further cost.

    Raises:
        CannotContinue: if nothing was measured about one of them yet.
    """
    found = {}
    for name, virtual in schema.virtual_tables.items():
        if not recorder.measured.get(name):
            raise CannotContinue(f"{reason}, and nothing was measured about {name} yet")
        found[name] = mechanism.for_table(virtual).finish(
            virtual.schema.domain,
            recorder.measured[name],
            recoding=recorder.recodings[name],
            groups=virtual.schema.code_groups,
            progress=progress,
        )
    return found
