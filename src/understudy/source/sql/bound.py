"""Contribution bounding by the embedded engine, which spills to disk where units do not fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.schema.kinds.table import compact
from understudy.source.sql.errors import our_words
from understudy.source.sql.temp import PrivateFolder

_TYPES = {np.uint8: "utinyint", np.uint16: "usmallint", np.uint32: "uinteger"}
_FAILED = "at most so many rows of a unit could not be chosen: is there room for them in --temp-dir? Nothing was spent"


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Some coded rows.

    **Privacy.** As private as the rows.

    Attributes:
        codes: one array by coded column.
        words: arrow texts of the columns whose values are being bought, null where a cell is no value.
        units: the canonical text of each row's unit, without nulls; None where a row is a unit.
    """

    codes: dict[str, NDArray[Any]]
    words: dict[str, Any] = field(default_factory=dict)
    units: Any = None


def bounded_batches(
    batches: Iterable[Batch], domain: Domain, folder: PrivateFolder, *, max_rows: int, key: bytes
) -> Iterator[Batch]:
    """The rows that count: of each unit the `max_rows` with the smallest keyed hash (see `unit`).

    Args:
        batches: coded rows with their units.
        domain: the coded columns.
        folder: where the engine may spill.
        max_rows: how many rows of a unit are kept at most.
        key: the run's key, 32 bytes.
    """
    from understudy.source.sql.duckdb import STEP_ROWS, connect

    connection = connect(folder)
    names: dict[str, str] = {}
    for batch in batches:
        with our_words(_FAILED):
            if not names:
                names = _create(connection, batch, domain)
            _insert(connection, batch, names)
    if not names:
        return
    with our_words(_FAILED):
        chosen = connection.sql(_chosen(list(names.values())), params=[max_rows, key.hex(), max_rows])
        for rows in chosen.to_arrow_reader(STEP_ROWS):
            codes = {column: rows[names[column]].to_numpy(zero_copy_only=False) for column in domain}
            yield Batch(codes, {column: rows[name] for column, name in names.items() if column not in domain})
    connection.close()


def _create(connection: Any, batch: Batch, domain: Domain) -> dict[str, str]:
    """The table's columns by those of the batch: codes, then texts; none of their names is the user's."""
    kinds = {column: _TYPES[compact(domain[column])] for column in domain} | dict.fromkeys(batch.words, "varchar")
    names = {column: f"{'c' if column in domain else 'w'}{place}" for place, column in enumerate(kinds)}
    listed = ", ".join(f"{name} {kinds[column]}" for column, name in names.items())
    connection.execute(f"create temp table coded (unit varchar, {listed})")
    return names


def _insert(connection: Any, batch: Batch, names: dict[str, str]) -> None:
    import pyarrow as pa

    columns = {"unit": batch.units} | {names[column]: pa.array(codes) for column, codes in batch.codes.items()}
    connection.register("batch", pa.table(columns | {names[column]: texts for column, texts in batch.words.items()}))
    connection.execute("insert into coded by name select * from batch")
    connection.unregister("batch")


def _chosen(columns: list[str]) -> str:
    """The statement of ``docs/decisions/contribution-bounding.md``; units with few rows keep them all, unhashed."""
    listed = ", ".join(columns)
    texts = ", ".join(name if name[0] == "c" else f"coalesce(sha256({name}), '')" for name in columns)
    return f"""
        with crowded as (select unit from coded group by unit having count(*) > ?),
        numbered as (
          select *, concat_ws(',', {texts}) as codes, row_number() over (partition by unit, {listed}) as ordinal
          from coded semi join crowded using (unit)
        ), ranked as (
          select *, row_number() over (
            partition by unit order by sha256(? || '|' || unit || '|' || codes || '|' || ordinal)) as place
          from numbered
        )
        select {listed} from coded anti join crowded using (unit)
        union all
        select {listed} from ranked where place <= ?"""  # noqa: S608 - names are ours: c0, w1, ...
