"""`draft` and `draft_names`: a proposed schema for a table in any place, for a person to review.

They read files and engines, which `schema/` may not: `schema/draft.py` proposes from cells in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from understudy.arguments import parse_unit
from understudy.errors import InputError, SchemaError, SettingError
from understudy.schema import Dialect, Schema
from understudy.schema.categorical import Categorical
from understudy.schema.draft import Draft, declared_decimals, draft_open_schema, read_header, schema_type
from understudy.schema.draft import draft as propose
from understudy.schema.sniff import sniff
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
