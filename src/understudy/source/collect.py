"""Rows of an engine's table, brought into memory: for evaluation, which is the custodian's own and needs them all."""

from __future__ import annotations

from os import PathLike
from typing import Any

from understudy.schema import Schema
from understudy.source.read import read_table
from understudy.source.sql.errors import our_words
from understudy.source.sql.place import home_of


def collected(data: Any, schema: Schema) -> Any:
    """The table as a frame: a frame as it is, a file read, a table of Spark, Ibis or DuckDB with the schema's columns.

    **Privacy.** Rows leave the engine. Never for synthesis, of which only counts come out.

    Args:
        data: a frame, the path of a file, or a table of an engine; one that does not fit into memory is sampled first.
        schema: names the columns; those that the table lacks are for the caller to miss.

    Raises:
        InputError: when the table cannot be read, saying why and what to do.
    """
    if isinstance(data, str | PathLike):
        return read_table(data, schema)
    home = home_of(data)
    if home not in ("spark", "ibis", "relation"):
        return data
    with our_words(
        "the table's rows cannot be brought here; is its session still open, and do the rows fit into memory? If they "
        "do not, give a sample of both tables, or save it as Parquet and give the file"
    ):
        names = [name for name in schema.needs if name in data.columns]
        if home == "spark":
            return data.select(*[data[f"`{name.replace('`', '``')}`"] for name in names]).toArrow()
        if home == "ibis":
            return data.select(*names).to_pyarrow()
        from duckdb import ColumnExpression

        return data.select(*map(ColumnExpression, names)).to_arrow_table()
