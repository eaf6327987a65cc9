"""A schema from the names of columns alone: everything else is to be bought. Reads no row and spends nothing."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.errors import InputError, SettingError
from understudy.schema.drafting.sniff import beginning, quote_of
from understudy.schema.format.dialect import Dialect

TYPES = ("integer", "number", "string", "boolean", "date", "datetime", "duration", "drop", "id", "discover")
"""The types that can be given for a column; `discover` buys the type too."""

_LONGEST_HEADER = 1 << 20
_VALUE = re.compile(r"[\W\d_]*\d[\W\d_TZeE]*|.*@.*")  # a number, amount, date, time or telephone number; an address


def open_schema(names: Mapping[str, str], dialect: Dialect, unit: Any = "row") -> dict[str, Any]:
    """The content of a schema file in which everything but names and given types is to be bought.

    Args:
        names: the columns in order, with their types.
        dialect: how the table's file is written.
        unit: the privacy unit as a schema file writes it.

    Raises:
        SettingError: for an unknown type.
    """
    fields = [{"name": name} | _field(name, kind) for name, kind in names.items()]
    if isinstance(unit, dict):
        fields = [field if field["name"] != unit["column"] else _key(field["name"]) for field in fields]
    written = dialect.model_dump(exclude_defaults=True)
    return {"fields": fields, "understudy": {"privacy_unit": unit} | ({"dialect": written} if written else {})}


def _field(name: str, kind: str) -> dict[str, Any]:
    if kind not in TYPES:
        raise SettingError(f"--type {name}={kind}: unknown type; use one of {', '.join(TYPES)}")
    if kind in ("discover", "boolean"):
        return {"type": kind}
    if kind in ("drop", "id"):
        return {"understudy": {"kind": kind}}
    if kind == "string":
        return {"type": kind, "understudy": {"values": "discover"}}
    return {"type": kind, "understudy": {"bounds": "discover", "bins": "discover"}}


def _key(name: str) -> dict[str, Any]:
    return {"name": name, "understudy": {"kind": "id"}}


def header(path: Path) -> tuple[Dialect, list[str]]:
    """The dialect and the column names of a text file, from its first line alone.

    Raises:
        InputError: when the file cannot be read, or its first line does not look like names: it is never taken for
            names then, because it may be a row.
    """
    line, encoding = _first_line(path)
    if line.count('"') % 2:
        raise InputError(f"{path}: a column name in the first line has a line break; write it in one line")
    marks = {mark: line.count(mark) for mark in (",", ";", "\t", "|")}
    delimiter = max(marks, key=lambda mark: marks[mark])
    quote = quote_of([line])
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])]
    names = names[:-1] if len(names) > 1 and not names[-1] else names  # a delimiter at the end names no column
    if not any(names):
        raise InputError(f"{path}: the first line is empty; export the table again, with its header")
    if len(set(names)) != len(names) or not all(names) or any(map(_VALUE.fullmatch, names)):
        raise InputError(
            f"{path}: the first line does not look like column names (a number, a date, an empty or a repeated one); "
            "rows are not read here: give the file a header"
        )
    return Dialect(delimiter=delimiter, encoding=encoding, quote=quote), names


def _first_line(path: Path) -> tuple[str, str]:
    line = beginning(path, lambda file: file.readline(_LONGEST_HEADER))
    for encoding in ("utf-8-sig", "windows-1252"):
        try:
            return line.decode(encoding).rstrip("\r\n"), "utf-8" if encoding == "utf-8-sig" else encoding
        except UnicodeDecodeError:
            continue
    raise InputError(f"{path}: the first line is in no encoding that is known; save the file as UTF-8")


def typed_names(path: Path) -> dict[str, str]:
    """The columns of a Parquet file with their types, from its footer; what cannot be synthesised is left out.

    Raises:
        InputError: when the file cannot be read.
    """
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except Exception:  # arrow's own words may quote the file
        raise InputError(f"{path}: cannot be read as Parquet; check the path, or export the file again") from None
    return {field.name: type_of(field.type) for field in schema}


def type_of(kind: Any) -> str:
    """The type that a schema writes for an arrow type; "drop" where no column kind can hold it."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = {
        "boolean": pa.types.is_boolean, "integer": pa.types.is_integer, "date": pa.types.is_date,
        "datetime": pa.types.is_timestamp,
        "duration": lambda kind: pa.types.is_duration(kind) or pa.types.is_interval(kind),
    }  # fmt: skip
    for name, fits in tests.items():
        if fits(kind):
            return name
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return "string" if text else "drop"
