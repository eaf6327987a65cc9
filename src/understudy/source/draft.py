"""Draft the schema of a table in any place, for a person to review: from its rows, or from its column names alone.

Files and engines are read here, which `schema/` may not; `schema/draft.py` proposes from cells in memory.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa

from understudy.arguments import parse_unit
from understudy.errors import InputError, SchemaError, SettingError
from understudy.schema import Dialect, Schema
from understudy.schema.categorical import Categorical
from understudy.schema.draft import Draft
from understudy.schema.draft import draft as propose
from understudy.schema.sniff import guess_quote, read_beginning, sniff
from understudy.schema.text import is_text_type
from understudy.source.office import apply_labels, is_office, read_variables
from understudy.source.open import read_column_types
from understudy.source.place import PARQUET, list_files, source_kind
from understudy.source.read import collect_table


def draft(data: Any, *, unit: str | None = None, header: bool | None = None) -> Draft:
    """Propose a schema from the rows of a table, for a person to review.

    Args:
        data: whatever `synthesize` takes, if its rows fit into memory.
        unit: who is protected: `row`, or COLUMN:K for at most K rows of each value; None if the review decides.
        header: whether a text file's first line names the columns; None: guessed.

    **Privacy.** Made from the rows without noise: for the custodian only. Nothing in a draft may be released before a
    person has reviewed it (`Draft.accept`, or `understudy schema review`).

    Raises:
        InputError: if the table cannot be read, or has no rows.
        SettingError: if the unit names no column.
    """
    if isinstance(data, str | PathLike):
        place = fspath(data)
        table, names, dialect, asides = read_whole_table(place, header)
    else:
        place, dialect, asides = "the table", Dialect(), []
        names = [str(name) for name in getattr(data, "column_names", getattr(data, "columns", ()))]
        table = collect_table(data, _provisional(names, dialect))
    if not len(table):
        sheet = " in its first sheet, and others are not read" if place.lower().endswith(".xlsx") else ""
        raise InputError(
            f"{place}: the table has no rows to draft from{sheet}; draft with --discover, or write the schema by hand"
        )
    stated = None if unit is None else parse_unit(unit, names)
    proposal = propose(table, names, dialect, stated)
    content, notes = _add_labels(proposal.content, proposal.notes, Path(place))
    content = content if stated is None else set_unit(content, stated)
    Schema.from_dict(content)
    if unit is None and content["understudy"]["privacy_unit"] == "row":
        del content["understudy"]["privacy_unit"]  # not stated, and there is no default
    return Draft(content, notes, (*asides, *proposal.questions))


def set_unit(content: dict[str, Any], unit: Any) -> dict[str, Any]:
    """Set the privacy unit of a draft; the column that it names identifies people and is not synthesised."""
    key = None if unit == "row" else unit["column"]
    fresh = {"name": key, "understudy": {"kind": "id", "status": "draft", "origin": "reviewed"}}
    fields = [fresh if field["name"] == key and not _keeps_out(field) else field for field in content["fields"]]
    return content | {"fields": fields, "understudy": content["understudy"] | {"privacy_unit": unit}}


def _keeps_out(field: dict[str, Any]) -> bool:
    """Return whether a field is a key already, or a person decided to leave it out."""
    kind = field.get("understudy", {}).get("kind")
    return bool(kind == "id" or (kind == "drop" and field["understudy"].get("status") != "draft"))


_HEADLESS = (
    "The first line was taken for a row, so the columns are called field1, field2 and so on. If it names the columns, "
    "draft again with --header."
)


def read_whole_table(data: str, header: bool | None) -> tuple[Any, list[str], Any, list[str]]:
    """Read every column of a table before there is a schema, by means of a provisional schema.

    Returns:
        The table, the columns' names, how it is written, and what its owner should know about that.
    """
    home = source_kind(data)
    path = list_files(data)[0] if home == "files" else Path(data)  # all files of a folder are written alike
    if home in ("duckdb", "postgresql") or path.name.lower().endswith(PARQUET):
        dialect, names = Dialect(), list(read_column_types(data))
    elif is_office(path):
        dialect, names = Dialect(), [variable.name for variable in read_variables(path)]
    else:
        dialect, names = sniff(path, header)
    asides = [_HEADLESS] if header is None and not dialect.header else []
    unnamed = sum(not name.strip() for name in names)
    if unnamed:
        asides.append(f"Left out: {unnamed} of the file's columns, which have no name; name them there to use them.")
    places = [place for place, name in enumerate(names, 1) if name.strip() and names.count(name) > 1]
    names = [name for name in names if name.strip()]
    if not names:
        raise SchemaError(f"{path}: no column has a name; name the columns in the first line, or add --no-header")
    if places:
        raise SchemaError(
            f"{path}: columns {', '.join(map(str, places[:10]))} share a name with another column; rename them in the "
            "file, or add --no-header if its first line is a row"
        )
    return collect_table(data, _provisional(names, dialect)), names, dialect, asides


def _provisional(names: list[str], dialect: Dialect) -> Schema:
    """Return a schema that only names the columns, to read them with."""
    return Schema(tuple(Categorical(name=name, values=("",)) for name in names), dialect=dialect)


def _add_labels(content: dict[str, Any], notes: dict[str, str], path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Add the labels of an SPSS or Stata file to a draft; they come from the file's dictionary, not from rows."""
    if not is_office(path):
        return content, notes
    known = {variable.name: variable for variable in read_variables(path)}
    fields = [apply_labels(field, known[field["name"]]) for field in content["fields"]]
    found_labels = {
        field["name"]: "values and labels of the file's own dictionary" for field in fields if "categories" in field
    }
    labelled = {name: words for name, words in found_labels.items() if known[name].values}
    return content | {"fields": fields}, notes | labelled


# -- Drafts from column names alone: no row is read and nothing is spent ---------------------------------------------


TYPES = ("integer", "number", "string", "boolean", "date", "datetime", "duration", "drop", "id", "discover")
"""The types that can be given for a column; with `discover` the type is discovered too."""

_LONGEST_HEADER = 1 << 20
_MOST_DECIMALS = 9
_VALUE = re.compile(r"[\W\d_]*\d[\W\d_TZeE]*|.*@.*")  # a number, amount, date, time or telephone number; an address


def draft_names(
    data: str | PathLike[str], *, unit: str | None, types: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the content of a schema file that leaves everything but names and declared types to discovery.

    Args:
        data: the path or the address of a table.
        unit: who is protected: `row`, or COLUMN:K.
        types: by column, a type that the custodian knows.

    Returns:
        The content, and notes for the custodian.

    **Privacy.** Reads no row, and spends nothing: a run discovers the rest with a share of its budget.

    Raises:
        InputError: if the names cannot be read.
        SettingError: for a type of a column that does not exist, an unknown type, or no unit.
    """
    dialect, names, decimals = read_names(data)
    notes: list[str] = []
    if not decimals:
        notes.append(
            "Column names are the first line of the file, and will be public: make sure that it is no person's row."
        )
    for name, kind in (types or {}).items():
        if name not in names:
            raise SettingError(f"--type {name}={kind}: write NAME=TYPE with one of the columns {', '.join(names)}")
        names[name] = kind
    if unit is None:
        raise SettingError(
            "--unit is missing: give --unit row if nobody has two rows, else --unit COLUMN:K, as in patient_id:3"
        )
    content = draft_open_schema(names, dialect, parse_unit(unit, list(names)), decimals)
    Schema.from_dict(content)
    return content, tuple(notes)


def read_names(data: str | PathLike[str]) -> tuple[Dialect, dict[str, str], dict[str, int | None]]:
    """Read the names of a table's columns, and types and decimals where the table declares them. Reads no row.

    Returns:
        How the table is written; by column its type ("discover" where the table does not say); by column its decimals.

    Raises:
        InputError: if the table cannot be read, or its first line does not look like names.
    """
    place = fspath(data)
    if source_kind(place) != "file" or place.lower().endswith(PARQUET):
        found = read_column_types(place)
        decimals = {name: declared_decimals(kind) for name, kind in found.items()}
        return Dialect(), {name: schema_type(kind) for name, kind in found.items()}, decimals
    if is_office(Path(place)):
        return Dialect(), dict.fromkeys((variable.name for variable in read_variables(Path(place))), "discover"), {}
    dialect, listed = read_header(Path(place))
    return dialect, dict.fromkeys(listed, "discover"), {}


def draft_open_schema(
    names: Mapping[str, str], dialect: Dialect, unit: Any = "row", decimals: Mapping[str, int | None] | None = None
) -> dict[str, Any]:
    """Return the content of a schema file in which everything except names and given types is left to discovery.

    Args:
        names: the columns in order, with their types.
        dialect: how the table's file is written.
        unit: the privacy unit as a schema file writes it.
        decimals: by column of numbers, the decimals that its type declares.

    Raises:
        SettingError: for an unknown type.
    """
    fields = [{"name": name} | _make_field(name, kind) for name, kind in names.items()]
    for field in fields:
        if field.get("type") == "number" and (places := (decimals or {}).get(field["name"])):
            field["understudy"]["decimals"] = places
    if isinstance(unit, dict):
        fields = [field if field["name"] != unit["column"] else _id_field(field["name"]) for field in fields]
    written = dialect.model_dump(exclude_defaults=True)
    return {"fields": fields, "understudy": {"privacy_unit": unit} | ({"dialect": written} if written else {})}


def _make_field(name: str, kind: str) -> dict[str, Any]:
    if kind not in TYPES:
        raise SettingError(f"--type {name}={kind}: unknown type; use one of {', '.join(TYPES)}")
    if kind in ("discover", "boolean"):
        return {"type": kind}
    if kind in ("drop", "id"):
        return {"understudy": {"kind": kind}}
    if kind == "string":
        return {"type": kind, "understudy": {"values": "discover"}}
    return {"type": kind, "understudy": {"bounds": "discover", "bins": "discover"}}


def _id_field(name: str) -> dict[str, Any]:
    return {"name": name, "understudy": {"kind": "id"}}


def read_header(path: Path) -> tuple[Dialect, list[str]]:
    """Read the dialect and the column names of a text file from its first line alone.

    Raises:
        InputError: if the file cannot be read, or its first line does not look like names, because it may be a row.
    """
    line, encoding = _read_first_line(path)
    if line.count('"') % 2:
        raise InputError(f"{path}: a column name in the first line has a line break; write it in one line")
    marks = {mark: line.count(mark) for mark in (",", ";", "\t", "|")}
    delimiter = max(marks, key=lambda mark: marks[mark])
    quote = guess_quote([line])
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])]
    names = names[:-1] if len(names) > 1 and not names[-1] else names  # a trailing delimiter does not name a column
    if not any(names):
        raise InputError(f"{path}: the first line is empty; export the table again, with its header")
    if len(set(names)) != len(names) or not all(names) or any(map(_VALUE.fullmatch, names)):
        raise InputError(
            f"{path}: the first line does not look like column names (a number, a date, an empty or a repeated one); "
            "rows are not read here: give the file a header"
        )
    return Dialect(delimiter=delimiter, encoding=encoding, quote=quote), names


def _read_first_line(path: Path) -> tuple[str, str]:
    line = read_beginning(path, lambda file: file.readline(_LONGEST_HEADER))
    for encoding in ("utf-8-sig", "windows-1252"):
        try:
            return line.decode(encoding).rstrip("\r\n"), "utf-8" if encoding == "utf-8-sig" else encoding
        except UnicodeDecodeError:
            continue
    raise InputError(f"{path}: the first line is in an unknown encoding; save the file as UTF-8")


def declared_decimals(kind: Any) -> int | None:
    """Return the decimals that an arrow type declares, as a database's numeric(10, 2) does; None if it declares none.

    >>> declared_decimals(pa.decimal128(10, 2)), declared_decimals(pa.float64())
    (2, None)
    """
    return int(kind.scale) if pa.types.is_decimal(kind) and 0 < kind.scale <= _MOST_DECIMALS else None


def schema_type(kind: Any) -> str:
    """Return the schema's name for an arrow type; "drop" if no kind of column can hold it."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = {
        "boolean": pa.types.is_boolean, "integer": pa.types.is_integer, "date": pa.types.is_date,
        "datetime": pa.types.is_timestamp,
        "duration": lambda kind: pa.types.is_duration(kind) or pa.types.is_interval(kind),
    }  # fmt: skip
    for name, fits in tests.items():
        if fits(kind):
            return name
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "string" if is_text_type(kind) else "drop"
