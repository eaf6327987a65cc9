"""The same column types out as went in: read from a frame as names, applied to decoded columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from understudy.errors import InputError
from understudy.schema.format.dialect import Dialect
from understudy.schema.kinds.categorical import Categorical
from understudy.schema.kinds.coded import Coded
from understudy.schema.kinds.column import Column

_WIDTHS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float32", "float64")


def layout_of(frame: Any, columns: Iterable[Column]) -> dict[str, str]:
    """Type names, where the frame's type differs from the declared one: "int32", "float32", "category", "string".

    **Privacy.** Readers turn whole numbers into floats, numbers and times into objects or text, and 64-bit integers
    into unsigned ones, when a single cell is empty, odd or very large. Such types say something about the cells and are
    left out, and so are those that they would have had otherwise: numpy's short integers in pandas, which hold no empty
    cell. What remains is what the frame's owner chose, and for objects and text what the schema says.
    """
    if not hasattr(frame, "columns"):
        raise InputError("this is no table; give a pandas or polars frame, or a pyarrow table")
    found = {}
    for column in columns:
        name = _type_name(frame, column.name)
        if name in ("object", "string"):
            name = "string" if _holds_words(column) else None
        if name is not None and _meaningful(name, column):
            found[column.name] = name
    return found


def _type_name(frame: Any, name: str) -> str | None:
    import narwhals as nw
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return _arrow_name(frame.schema.field(name).type) if name in frame.column_names else None
    label = next((label for label in frame.columns if str(label) == name), None)
    if label is None:
        return None
    series = frame[label]
    if str(series.dtype) in ("object", "Object"):  # narwhals would look at the cells to tell
        return "object"
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":  # floats, if a cell had been empty
        return None
    plain = str(nw.from_native(series, series_only=True).dtype).split("(")[0].lower()
    return {"categorical": "category"}.get(plain, plain)


def _holds_words(column: Column) -> bool:
    """Whether a column of numbers, times or truth declares missing tokens that only text can hold."""
    if not isinstance(column, Coded) or isinstance(column, Categorical):
        return False
    return any(reason is not None and column.token_value(token) is None for token, reason in column.missing.items())


def _meaningful(name: str, column: Column) -> bool:
    if isinstance(column, Categorical) and name in ("category", "enum"):
        return True
    if column.kind == "integer" or getattr(column, "type", "") == "integer":
        return (name in _WIDTHS and not name.endswith("int64")) or name == "string"
    if column.kind == "number" or getattr(column, "type", "") == "number":
        return name in ("float32", "string")
    return name == "string" and isinstance(column, Coded) and not isinstance(column, Categorical)


def _arrow_name(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return "enum" if kind.ordered else "category"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    return {"float": "float32", "double": "float64"}.get(str(kind), str(kind))


def written_as_text(column: Column, name: str | None) -> bool:
    """Whether a column that is not text was text in the frame: it then comes back as text."""
    return name == "string" and isinstance(column, Coded)


def layout_of_file(columns: Iterable[Column], dialect: Dialect) -> dict[str, str]:
    """The columns that only text can write as the table's own files do: missing tokens, patterns, other decimals.

    And lengths of time: CSV writers count them in microseconds, and everybody reads seconds.
    """
    return {
        column.name: "string"
        for column in columns
        if isinstance(column, Coded)
        and (
            column.missing
            or getattr(column, "pattern", None) is not None
            or column.kind in ("boolean", "duration")
            or (column.kind == "number" and (dialect.decimal != "." or dialect.group))
        )
    }


def laid_out(made: Mapping[str, Any], columns: Iterable[Column], layout: Mapping[str, str]) -> dict[str, Any]:
    """Decoded columns in the types of a layout, wherever that type holds all declared values."""
    return {
        column.name: _as(made[column.name], column, layout.get(column.name))
        for column in columns
        if column.name in made
    }


def _as(values: Any, column: Column, name: str | None) -> Any:
    import pyarrow as pa

    if name in ("category", "enum") and isinstance(column, Categorical):
        return _dictionary(values, column, ordered=name == "enum" or column.kind == "ordinal")
    fits = name in _WIDTHS and pa.types.is_integer(values.type)
    if not (fits or (name in _FLOATS and pa.types.is_floating(values.type))):
        return values
    try:
        return values.cast(getattr(pa, str(name))(), safe=bool(fits))
    except pa.ArrowInvalid:  # declared bounds wider than the type that came in
        return values


def _dictionary(values: Any, column: Categorical, *, ordered: bool) -> Any:
    """Declared values first and in order, then what else a cell can say, so that codes and order survive."""
    import pyarrow as pa
    import pyarrow.compute as pc

    shown = [*column.values]
    shown += [value for value in column.decode_special().to_pylist() if value is not None and value not in shown]
    known = pa.array(shown, column.arrow_type)
    return pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=known).cast(pa.int32()), known, ordered=ordered)
