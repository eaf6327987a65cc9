"""Rows made from a schema alone, for practice, demonstrations and tests. They describe no real people."""

from __future__ import annotations

from typing import Any

import numpy as np

from understudy.errors import SettingError
from understudy.planning.made_up import assume_facts, made_up_codes
from understudy.schema import Schema

ROWS, DISCOVERY_ROWS, MOST = 1000, 20_000, 100_000
"""Rows of a rehearsal: the default, the default with discovery (which finds nothing in few rows), and the most."""


def rehearsal_rows(schema: Schema, rows: int | None = None, *, seed: int = 0) -> Any:
    """Make an arrow table that fits the schema; the same schema, number and seed give the same rows.

    Columns are dependent, so that mechanisms have something to find, and values are about equally frequent, so that
    most of them occur. Units have one row, two, ... up to the limit. Columns left to discovery are filled as `plan`
    assumes them; the rehearsal then discovers facts from these rows.

    **Privacy.** The rows depend on declared facts and a seed only.

    Args:
        schema: what is public about the columns.
        rows: how many; by default the declared number, else 1000, or 20,000 with discovery.
        seed: for everything that is drawn.

    Raises:
        SettingError: if the number of rows is below 1.
    """
    number = min(rows or schema.rows or (DISCOVERY_ROWS if schema.open else ROWS), MOST)
    if number < 1:
        raise SettingError("rows must be at least 1")
    schema, _ = assume_facts(schema)
    rng = np.random.default_rng(seed)
    table = schema.decode(made_up_codes(rng, schema.domain, number, even=True), rng)
    return _with_units(table, schema, number)


def _with_units(table: Any, schema: Schema, rows: int) -> Any:
    """The table with its unit column: units of one row, of two, and so on in turn."""
    import pyarrow as pa

    unit = schema.privacy_unit
    if unit.column is None:
        return table
    starts = np.concatenate([np.arange(size) == 0 for size in range(1, min(unit.max_rows, 100) + 1)])
    names = pa.array(np.cumsum(np.resize(starts, rows)).astype(str))
    place = table.schema.get_field_index(unit.column)
    return table.append_column(unit.column, names) if place < 0 else table.set_column(place, unit.column, names)
