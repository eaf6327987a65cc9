"""Frames of rows: arrow, pandas, polars or Spark.

**Privacy.** Rows are synthetic, but Spark's own messages are not passed on: they quote addresses and settings.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from understudy.errors import InputError, OutputError, SettingError
from understudy.schema.frames import to_frame

Frame: TypeAlias = Literal["arrow", "pandas", "polars", "spark"]


def check_kind(kind: Any) -> None:
    """Refuse a kind of frame that is unknown.

    Raises:
        SettingError: naming the kinds.
    """
    if kind not in get_args(Frame):
        raise SettingError(f"as_: {kind!r} is unknown; use 'arrow', 'pandas', 'polars' or 'spark'")


def convert_rows(table: Any, kind: Frame) -> Any:
    """Convert an arrow table to a frame of a kind; "spark" uses the session that is running.

    Raises:
        InputError: if that library is not installed, no Spark session is running.
        OutputError: if Spark does not take the rows.
    """
    if kind != "spark":
        return to_frame(table, kind)
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError("pyspark is not installed; pip install 'understudy[spark]', or use as_='arrow'") from None
    try:
        session = SparkSession.active()
    except Exception:
        raise InputError("no Spark session is running; start one, or use as_='arrow'") from None
    try:
        return to_spark(session, table)
    except Exception:
        raise OutputError("Spark could not take the rows; check that its session is still running") from None


def to_spark(session: Any, table: Any) -> Any:
    """Make a Spark data frame of an arrow table, with the type of every column stated."""
    import pyarrow as pa
    from pyspark.sql import types

    fields = [types.StructField(field.name, _spark_type(types, field.type)) for field in table.schema]
    for index, field in enumerate(table.schema):
        if pa.types.is_time(field.type):  # Spark has no type for a time of day
            table = table.set_column(index, field.name, table[index].cast(pa.string()))
        elif pa.types.is_timestamp(field.type) or pa.types.is_duration(field.type):
            kind = pa.timestamp("us", field.type.tz) if pa.types.is_timestamp(field.type) else pa.duration("us")
            table = table.set_column(index, field.name, table[index].cast(kind, safe=False))
    return session.createDataFrame(table, types.StructType(fields))


def _spark_type(types: Any, kind: Any) -> Any:
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
        return _spark_type(types, kind.value_type)
    if pa.types.is_timestamp(kind):
        return types.TimestampNTZType() if kind.tz is None else types.TimestampType()
    if pa.types.is_duration(kind):
        return types.DayTimeIntervalType()
    if pa.types.is_uint64(kind) or pa.types.is_decimal(kind):
        return types.DecimalType(20, 0) if pa.types.is_uint64(kind) else types.DecimalType(kind.precision, kind.scale)
    name = names.get(kind, "string")
    return getattr(types, f"{name.capitalize()}Type")()
