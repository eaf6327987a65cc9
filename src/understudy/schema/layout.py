"""The same column types out as went in: read from a frame as names, applied to decoded columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from understudy.schema.categorical import Categorical
from understudy.schema.coded import Coded
from understudy.schema.column import Column

_WIDTHS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float32", "float64")


def layout_of(frame: Any, names: Iterable[str]) -> dict[str, str]:
    """Type names of those columns that the frame has: "int32", "float32", "category", "string", "other" and so on."""
    import narwhals as nw
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return {name: _arrow_name(frame.schema.field(name).type) for name in names if name in frame.column_names}
    found = {}
    labels = {str(label): label for label in frame.columns}
    for name in names:
        if name in labels:
            dtype = nw.from_native(frame[labels[name]], series_only=True).dtype
            found[name] = _name(str(dtype))
    return found


def _name(dtype: str) -> str:
    plain = dtype.split("(")[0].lower()
    if plain in ("categorical", "enum"):
        return "enum" if plain == "enum" else "category"
    return plain if plain in (*_WIDTHS, *_FLOATS, "string") else "string" if plain == "object" else "other"


def _arrow_name(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return "enum" if kind.ordered else "category"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    names = {"float": "float32", "double": "float64"}
    name = names.get(str(kind), str(kind))
    return name if name in (*_WIDTHS, *_FLOATS) else "other"


def written_as_text(column: Column, name: str | None) -> bool:
    """Whether a column that is not text was text in the frame: it then comes back as text."""
    return name == "string" and isinstance(column, Coded)


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
