"""Rows in Spark: as a data frame, and written to a table with their types.

**Privacy.** Rows are synthetic; Spark's own messages are not passed on all the same: they quote places and settings.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from understudy.errors import InputError, OutputError, SettingError
from understudy.release.write import in_our_words
from understudy.schema.frames import to_frame
from understudy.source.errors import import_engine

_FILES = 4  # of a chunk of a million rows; Spark would make one of every ten thousand


def framed(table: Any, kind: Any) -> Any:
    """An arrow table as a frame of a kind; "spark" makes it in the session that is running.

    Raises:
        InputError: when that library is not installed, or no Spark session is running.
    """
    if kind != "spark":
        return to_frame(table, kind)
    try:
        session = import_engine("pyspark.sql", "spark").SparkSession.active()
    except SettingError:
        raise InputError("pyspark is not installed; pip install 'understudy[spark]', or ask for 'arrow'") from None
    except Exception:
        raise InputError("no Spark session is running; start one, or ask for 'arrow'") from None
    with in_our_words("Spark could not take the rows; is its session still running?"):
        return _in_spark(session, table)


def write_table(session: Any, name: str, chunks: Iterable[Any], *, overwrite: bool = False) -> None:
    """Fill a new table, which gets its name once all rows are in it.

    Until then it has another name beside it, and an error or an interrupt removes it. A table that is replaced is
    moved aside first and dropped last: it is back under its name if the new one cannot take it.

    Raises:
        OutputError: when the table is there already, is a view, or cannot be written.
    """
    taken = _taken(session, name, overwrite=overwrite)
    draft, aside = (_beside(name, f"_understudy_{word}_{secrets.token_hex(4)}") for word in ("draft", "old"))
    try:
        with in_our_words(f"table {name} could not be filled; is Spark still running, and has it room?"):
            for chunk in chunks:
                _in_spark(session, chunk).coalesce(_FILES).write.saveAsTable(draft, mode="append")
        with in_our_words(f"table {name} could not be given its name; may this session rename tables there?"):
            _renamed(session, draft, name, aside if taken else None)
    finally:
        with suppress(Exception):
            session.sql(f"drop table if exists {draft}")


def _taken(session: Any, name: str, *, overwrite: bool) -> bool:
    with in_our_words(
        f"the name {name!r} cannot be looked up; write it as spark.table takes it: NAME or DATABASE.NAME"
    ):
        taken = bool(session.catalog.tableExists(name))
        kind = session.catalog.getTable(name).tableType if taken else ""
    if kind in ("VIEW", "TEMPORARY"):
        raise OutputError(f"{name} is a view; choose another name")
    if taken and not overwrite:
        raise OutputError(f"table {name} is there already; choose another name, or say overwrite=True")
    return taken


def _renamed(session: Any, draft: str, name: str, aside: str | None) -> None:
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


def _beside(name: str, mark: str) -> str:
    return f"{name[:-1]}{mark}`" if name.endswith("`") else f"{name}{mark}"


def _in_spark(session: Any, table: Any) -> Any:
    """The rows with a type for every column that Spark need not guess."""
    import pyarrow as pa

    types = import_engine("pyspark.sql.types", "spark")
    fields = [types.StructField(field.name, _type(types, field.type)) for field in table.schema]
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) or pa.types.is_duration(field.type):
            kind = pa.timestamp("us", field.type.tz) if pa.types.is_timestamp(field.type) else pa.duration("us")
            table = table.set_column(index, field.name, table[index].cast(kind, safe=False))
    return session.createDataFrame(table, types.StructType(fields))


def _type(types: Any, kind: Any) -> Any:
    import pyarrow as pa

    names = {
        pa.int8(): "byte",
        **dict.fromkeys((pa.int16(), pa.uint8()), "short"),
        **dict.fromkeys((pa.int32(), pa.uint16()), "integer"),
        **dict.fromkeys((pa.int64(), pa.uint32()), "long"),
        pa.float32(): "float",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.date32(): "date",
    }
    if pa.types.is_dictionary(kind):
        return _type(types, kind.value_type)
    if pa.types.is_timestamp(kind):
        return types.TimestampNTZType() if kind.tz is None else types.TimestampType()
    if pa.types.is_duration(kind):
        return types.DayTimeIntervalType()
    if pa.types.is_uint64(kind) or pa.types.is_decimal(kind):
        return types.DecimalType(20, 0) if pa.types.is_uint64(kind) else types.DecimalType(kind.precision, kind.scale)
    name = names.get(kind, "string")
    return getattr(types, f"{name.capitalize()}Type")()
