"""Data frames in and out: pandas, polars and pyarrow tables become arrow columns, and decoded columns become frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from understudy.errors import InputError, SchemaError
from understudy.schema.text import (
    Dialect,
    make_valid_text,
    meanings,
    objects_to_text,
    to_objects,
    to_text,
)

FrameKind: TypeAlias = Literal["arrow", "pandas", "polars"]


def to_arrow_columns(frame: Any, names: Iterable[str], decimal: str = ".") -> tuple[dict[str, Any], int]:
    """Return the named columns as arrow arrays, and the number of rows. Other columns are not touched.

    Args:
        frame: the table.
        names: the columns.
        decimal: the decimal mark with which numbers among Python objects are written.

    Raises:
        SchemaError: if a column is missing, a name occurs twice, or the frame has no columns.
        InputError: if this is not a frame.
    """
    frame = pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame
    wanted, labels = list(names), column_labels(frame)
    check_names(map(str, labels), wanted)
    by_name = {str(label): label for label in labels}
    return {name: _to_arrow(_series(frame, by_name[name]), decimal) for name in wanted}, len(frame)


def columns_by_meaning(frame: Any, names: Iterable[str], dialect: Dialect) -> tuple[dict[str, Any], int]:
    """Return the named columns as arrow arrays with text replaced by its `meaning`, and the number of rows.

    In a table marked by `mark_as_written`, text keeps its spelling. In any other table the spelling of a cell may
    depend on what a reader found in other rows, so it is ignored.

    Raises:
        SchemaError: if a column is missing, a name occurs twice, or the frame has no columns.
        InputError: if this is not a frame.
    """
    cells, rows = to_arrow_columns(frame, names, dialect.decimal)
    if is_as_written(frame):
        return cells, rows
    return {name: _column_by_meaning(column, dialect) for name, column in cells.items()}, rows


def mark_as_written(table: Any) -> Any:
    """Mark an arrow table or batch as text from a file, in which no reader guessed a type."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _AS_WRITTEN: b"yes"})


def is_as_written(frame: Any) -> bool:
    """Return whether a frame is a table with the mark of `mark_as_written`."""
    return isinstance(frame, pa.Table | pa.RecordBatch) and _AS_WRITTEN in (frame.schema.metadata or {})


_AS_WRITTEN = b"understudy.as_written"


def _column_by_meaning(cells: Any, dialect: Dialect) -> Any:
    """Replace a column's text by its meaning, once per distinct text; other types are unchanged."""
    kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        cells = to_text(cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells, dialect.decimal)
        kind = cells.type
    if pa.types.is_string_view(kind):
        cells, kind = cells.cast(pa.large_string()), pa.large_string()
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return cells
    distinct = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
    return meanings(distinct, dialect.decimal, dialect.group)


def frame_kind(frame: Any) -> FrameKind:
    """Return the kind of a frame, as `decode` accepts it."""
    module = type(frame).__module__.split(".")[0]
    return "pandas" if module == "pandas" else "polars" if module == "polars" else "arrow"


def to_frame(table: Any, kind: FrameKind) -> Any:
    """Convert an arrow table to the requested frame type.

    Raises:
        InputError: if that library is not installed, or no such type is known.
    """
    if kind == "arrow":
        return table
    if kind not in ("pandas", "polars"):
        raise InputError(f"unknown frame type {kind!r}; use 'arrow', 'pandas' or 'polars'")
    try:
        return _to_pandas(table) if kind == "pandas" else _to_polars(table)
    except ImportError:
        raise InputError(f"{kind} is not installed; install it, or ask for 'arrow'") from None


def _to_pandas(table: Any) -> Any:
    """Convert to pandas; integers and booleans with nulls get pandas' nullable types, so that they keep their type."""
    import pandas as pd

    nullable = {getattr(pa, f"{sign}int{bits}")(): getattr(pd, f"{sign.upper()}Int{bits}Dtype")()
                for sign in ("", "u") for bits in (8, 16, 32, 64)}  # fmt: skip
    nullable[pa.bool_()] = pd.BooleanDtype()
    columns = {}
    for name in table.column_names:
        column = table[name]
        mapper = nullable.get if column.null_count and column.type in nullable else None
        columns[name] = column.to_pandas(types_mapper=mapper, date_as_object=False)
    return pd.DataFrame(columns)


def _to_polars(table: Any) -> Any:
    import polars as pl

    return pl.DataFrame(pl.from_arrow(table))


def check_names(names: Iterable[str], needed: Sequence[str]) -> None:
    """Refuse a table whose columns cannot be told apart, or which lacks a column that the schema needs.

    Several columns may have no name: spreadsheets export such columns, and nobody can ask for one.

    **Privacy.** Only names that the schema declares are quoted: the first line of a file without a header is a row.

    Raises:
        SchemaError: naming the columns, or their places, and the remedy.
    """
    listed = list(names)
    found = Counter(name for name in listed if name.strip() or name in needed)
    if not listed:
        raise SchemaError("the table has no columns; give one with the columns that the schema names")
    if missing := [name for name in needed if name not in found]:
        near = _describe_near(missing, listed)
        raise SchemaError(f"{list_columns(missing)} not in the table{near}; add or rename there, or correct the schema")
    if twice := [name for name in needed if found[name] > 1]:
        raise SchemaError(f"{list_columns(twice)} named more than once in the table; rename all but one")
    if len(found) < found.total():
        places = [place + 1 for place, name in enumerate(listed) if found[name] > 1]
        raise SchemaError(f"column {places[0]} and others of the table share a name; rename all but one")


def _describe_near(missing: list[str], listed: list[str]) -> str:
    """Point to another separator, or to a column whose name differs only in case, blanks or signs, by its position."""
    for mark in ",;\t|":
        if set(missing) <= {part.strip(" \"'") for part in mark.join(listed).split(mark)}:
            return (
                f" (its cells seem to be separated by {mark!r}, and the schema's `dialect` names another `delimiter`)"
            )
    bare = {re.sub(r"[\W_]", "", name).casefold(): place for place, name in enumerate(listed, 1)}
    bare.pop("", None)
    found = [(name, bare.get(re.sub(r"[\W_]", "", name).casefold())) for name in missing]
    name, place = next(((name, place) for name, place in found if place), ("", None))
    return "" if place is None else f" (its column number {place} is {name!r} except for case, blanks or signs)"


def list_columns(names: Sequence[str]) -> str:
    """Begin a sentence about columns: "columns 'a', 'b' are"."""
    listed = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"column {listed} is" if len(names) == 1 else f"columns {listed}{more} are"


def column_labels(frame: Any) -> list[Any]:
    """Return column labels unchanged: pandas allows repeated labels and labels that are not text.

    Raises:
        InputError: if this is not a frame.
    """
    if isinstance(frame, pa.Table):
        return list(frame.column_names)
    labels = None if hasattr(frame, "collect") else getattr(frame, "columns", None)
    if labels is None or callable(labels) or any(not isinstance(label, str | int | float | tuple) for label in labels):
        raise InputError(
            "the table must be a pandas, polars or pyarrow frame, or a path; collect a lazy frame before passing it"
        )
    return list(labels)


def _series(frame: Any, label: Any) -> Any:
    try:
        return frame[label]
    except Exception:  # any frame library's own error would quote data
        raise InputError(
            f"column {str(label)!r} cannot be read; give a pandas or polars frame, or a pyarrow table"
        ) from None


def holds_objects(series: Any) -> bool:
    """Return whether a column's cells, or its categories, are Python objects of any type."""
    kind = getattr(series, "dtype", "")
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)
    return str(kind) in ("object", "Object")


def _to_arrow(series: Any, decimal: str) -> Any:
    """Convert one column to one arrow array.

    Objects are read as text cell by cell, never by a type guessed from all of them: one odd cell must not change how
    the cells of other rows are coded.
    """
    import narwhals as nw

    given = series
    if not isinstance(series, pa.ChunkedArray | pa.Array):
        if holds_objects(series):
            return objects_to_text(list(series), decimal)
        try:
            series = nw.from_native(series, series_only=True).to_arrow()
        except Exception:  # a library's own error would quote a cell
            return objects_to_text(list(series), decimal)
    if isinstance(series.type, pa.BaseExtensionType):  # as pandas' periods, whose storage differs from their meaning
        return objects_to_text(to_objects(series) if given is series else list(given), decimal)
    if isinstance(series, pa.ChunkedArray):
        series = _widen(series).combine_chunks() if series.num_chunks != 1 else series.chunk(0)
    return make_valid_text(series)


def _widen(pieces: Any) -> Any:
    """Cast chunks to a type with room for all of them together.

    Arrow's short string type ends at 2 GiB, and the index type of a dictionary fits its first chunk only: such
    dictionaries are decoded.
    """
    if pa.types.is_dictionary(pieces.type):
        try:
            return pieces.unify_dictionaries()
        except pa.ArrowException:
            pieces = pieces.cast(pieces.type.value_type)
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(pieces.type)
    return pieces if wide is None else pieces.cast(wide)
