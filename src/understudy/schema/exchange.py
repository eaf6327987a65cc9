"""Exchange schemas with other tools: SDV metadata (JSON), SmartNoise metadata (YAML) and data dictionaries.

All contain less than a schema needs (SDV has neither bounds nor categories). Missing facts are listed as gaps, and the
written file does not load until a person has filled them: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from understudy.errors import InputError, SchemaError
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Constant, Dropped, Identifier
from understudy.schema.linked import LinkedSchema
from understudy.schema.numeric import Numeric
from understudy.schema.schema import Schema
from understudy.schema.temporal import Temporal


@dataclass(frozen=True)
class Imported:
    """The content of a schema file, and the gaps that a person still has to fill before it loads."""

    content: dict[str, Any]
    gaps: tuple[str, ...]


_SDV_TEXT = {"unknown", "text"}


def from_sdv(metadata: Any) -> Imported:
    """Import SDV metadata: kinds, datetime formats and keys. Bounds and categories are gaps.

    Metadata of several tables become a data package of linked tables; the largest numbers of children and the order of
    siblings are gaps as well.

    Raises:
        SchemaError: if this is not SDV metadata.
    """
    tables = metadata.get("tables") if isinstance(metadata, Mapping) else None
    if isinstance(tables, Mapping) and len(tables) > 1:
        return _from_sdv_tables(tables, metadata.get("relationships"))
    fields, gaps = _sdv_fields(next(iter(tables.values())) if isinstance(tables, Mapping) and tables else metadata)
    unit = "`privacy_unit`: SDV does not say who is protected"
    return Imported({"fields": fields, "understudy": {}}, (unit, *gaps))


def _sdv_fields(table: Any) -> tuple[list[dict[str, Any]], list[str]]:
    if not isinstance(table, Mapping) or not isinstance(table.get("columns"), Mapping):
        raise SchemaError("this is not SDV metadata: it has no `columns`; give the JSON that SDV's save_to_json wrote")
    fields, gaps = [], []
    for name, column in table["columns"].items():
        field, gap = _from_sdv(column if isinstance(column, Mapping) else {})
        fields.append({"name": str(name)} | field)
        gaps += [f"column {name!r}: {gap}"] if gap else []
    return fields, gaps


_RELATION = ("parent_table_name", "parent_primary_key", "child_table_name", "child_foreign_key")


def _from_sdv_tables(tables: Mapping[str, Any], relations: Any) -> Imported:
    """Import the metadata of several tables; a table below the first level also needs the root's key."""
    given = relations if isinstance(relations, list) else []
    if not all(isinstance(one, Mapping) and all(isinstance(one.get(key), str) for key in _RELATION) for one in given):
        raise SchemaError("this is not SDV metadata: a relationship has no tables and keys; write it with save_to_json")
    parents = {name: [one for one in given if one["child_table_name"] == name] for name in tables}
    roots = [name for name, found in parents.items() if not found]
    resources, gaps = [], []
    if len(roots) != 1:
        gaps.append(f"`privacy_unit`: {', '.join(roots) or 'no table'} without a parent; keep one root")
    for name, table in tables.items():
        fields, missing = _sdv_fields(table)
        gaps += [f"table {name!r}, {gap}" for gap in missing]
        key = table.get("primary_key")
        content: dict[str, Any] = ({"primaryKey": key} if isinstance(key, str) else {}) | {"fields": fields}
        for one in parents[name]:
            above = {"resource": one["parent_table_name"], "fields": one["parent_primary_key"]}
            foreign = {"fields": one["child_foreign_key"], "reference": above, "understudy": {}}
            content.setdefault("foreignKeys", []).append(foreign)
            gaps.append(f"table {name!r}: add `max_children`, and `order` if siblings have one, to its foreign key")
            if one["parent_table_name"] not in roots:
                gaps.append(
                    f"table {name!r}: refer to the root's key, too, or declare `unique: true` if no two units share "
                    f"a value of {one['parent_primary_key']!r}"
                )
        if len(parents[name]) > 1:
            gaps.append(f"table {name!r} belongs to {len(parents[name])} tables; keep one foreign key")
        resources.append({"name": str(name), "schema": content})
    ours = {"privacy_unit": {"table": roots[0]}} if len(roots) == 1 else {}
    return Imported({"resources": resources, "understudy": ours}, tuple(gaps))


def to_sdv_tables(schema: LinkedSchema) -> dict[str, Any]:
    """Export SDV metadata of linked tables: the kinds of columns, primary keys, and relationships."""
    tables = {}
    for name, one in schema.tables.items():
        key = schema.keys[name]
        tables[name] = {"columns": to_sdv(one)["columns"]} | ({} if key is None else {"primary_key": key})
    relations = [
        dict(zip(_RELATION, (link.parent, schema.keys[link.parent], name, link.parent_column), strict=True))
        for name, link in schema.links.items()
    ]
    return {"METADATA_SPEC_VERSION": "MULTI_TABLE_V1", "tables": tables, "relationships": relations}


def _from_sdv(column: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    kind = column.get("sdtype")
    if kind == "numerical":
        whole = str(column.get("computer_representation", "Float")).lower().startswith(("int", "uint"))
        return {"type": "integer" if whole else "number", "constraints": {}}, "add `minimum` and `maximum`"
    if kind == "datetime":
        pattern = column.get("datetime_format")
        moment = pattern is None or any(part in pattern for part in ("%H", "%I", "%S"))
        field = {"type": "datetime" if moment else "date"} | ({"format": pattern} if pattern else {})
        return field, "add `minimum` and `maximum`"
    if kind == "boolean":
        return {"type": "boolean"}, ""
    if kind == "categorical":
        return {"type": "string"}, "add `categories`"
    if kind == "id":
        return {"understudy": {"kind": "id"}}, ""
    return {"understudy": {"kind": "drop"}}, "" if column.get(
        "pii"
    ) or kind in _SDV_TEXT else "left out: unknown sdtype"


def to_sdv(schema: Schema) -> dict[str, Any]:
    """Export SDV metadata of one table: the kinds of its columns."""
    columns: dict[str, Any] = {}
    for column in schema.columns:
        if isinstance(column, Numeric):
            columns[column.name] = {"sdtype": "numerical"}
            columns[column.name] |= {"computer_representation": "Int64" if column.kind == "integer" else "Float"}
        elif isinstance(column, Temporal) and column.kind != "duration":
            default = "%Y-%m-%d" if column.kind == "date" else "%Y-%m-%dT%H:%M:%S"
            columns[column.name] = {"sdtype": "datetime", "datetime_format": column.pattern or default}
        elif isinstance(column, Boolean):
            columns[column.name] = {"sdtype": "boolean"}
        elif isinstance(column, Categorical | Constant):
            columns[column.name] = {"sdtype": "categorical"}
        elif isinstance(column, Identifier):
            columns[column.name] = {"sdtype": "id"}
        elif not isinstance(column, Dropped):
            columns[column.name] = {"sdtype": "numerical", "computer_representation": "Float"}
    return {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", "columns": columns}


_TABLE_KEYS = {
    "row_privacy", "rows", "max_ids", "max_contrib", "sample_max_ids", "censor_dims", "clamp_counts", "clamp_columns",
    "use_dpsu",
}  # fmt: skip
_SMARTNOISE = {"int": "integer", "float": "number", "string": "string", "boolean": "boolean", "datetime": "datetime"}


def from_smartnoise(metadata: Any) -> Imported:
    """Import SmartNoise metadata: types, bounds, nullability and the private key. Categories are gaps.

    Raises:
        SchemaError: if this is not SmartNoise metadata of one table.
    """
    table = _smartnoise_table(metadata)
    fields: list[dict[str, Any]] = []
    gaps: list[str] = []
    unit: Any = "row" if table.get("row_privacy") else None
    for name, column in table.items():
        if name in _TABLE_KEYS:
            continue
        column = column if isinstance(column, Mapping) else {}
        if column.get("private_id"):
            unit = {"column": name, "max_rows": table.get("max_contrib", table.get("max_ids", 1))}
            fields.append({"name": name, "understudy": {"kind": "id"}})
            continue
        field, gap = _from_smartnoise(column)
        fields.append({"name": name} | field)
        gaps += [f"column {name!r}: {gap}"] if gap else []
    if unit is None:
        gaps.insert(0, "`privacy_unit`: no column is a `private_id`, and `row_privacy` is not set")
    return Imported({"fields": fields, "understudy": {} if unit is None else {"privacy_unit": unit}}, tuple(gaps))


def _smartnoise_table(metadata: Any) -> Mapping[str, Any]:
    for depth in ("engine", "schema"):
        if not isinstance(metadata, Mapping) or len(metadata) != 1:
            raise SchemaError(
                f"this is not SmartNoise metadata of one table: expected one {depth}; keep one table in it"
            )
        metadata = next(iter(metadata.values()))
    if not isinstance(metadata, Mapping) or len(metadata) != 1:
        raise SchemaError("the SmartNoise metadata describes several tables; keep one table in it")
    table = next(iter(metadata.values()))
    if not isinstance(table, Mapping):
        raise SchemaError("the SmartNoise table has no columns; check the indentation of the file")
    return {str(key): value for key, value in table.items()}


def _from_smartnoise(column: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    kind = _SMARTNOISE.get(str(column.get("type")), "")
    if not kind:
        return {"understudy": {"kind": "drop"}}, "left out: unknown type"
    limits: dict[str, Any] = {"required": True} if column.get("nullable") is False else {}
    bounds = {ours: column[theirs] for ours, theirs in (("minimum", "lower"), ("maximum", "upper")) if theirs in column}
    field = {"type": kind} | ({"constraints": limits | bounds} if limits or bounds else {})
    if kind == "string":
        return field, "add `categories`"
    return field, "add `minimum` and `maximum`" if kind != "boolean" and len(bounds) < 2 else ""


def to_smartnoise(schema: Schema, table: str = "table") -> dict[str, Any]:
    """Export SmartNoise metadata of one table: types, bounds, nullability and the private key."""
    unit = schema.privacy_unit
    written: dict[str, Any] = {"row_privacy": unit.column is None}
    written |= {} if unit.column is None else {"max_ids": unit.max_rows}
    written |= {} if schema.rows is None else {"rows": schema.rows}
    for column in schema.columns:
        if column.name == unit.column:
            written[column.name] = {"type": "string", "private_id": True}
        elif isinstance(column, Numeric):
            low, high = (end / column.per_unit for end in column.bounds)
            kind = "int" if column.kind == "integer" else "float"
            bounds = {"lower": int(low) if kind == "int" else low, "upper": int(high) if kind == "int" else high}
            written[column.name] = {"type": kind, "nullable": column.nullable, **bounds}
        elif isinstance(column, Boolean):
            written[column.name] = {"type": "boolean", "nullable": column.nullable}
        elif isinstance(column, Categorical):
            written[column.name] = {"type": "string", "cardinality": column.size, "nullable": column.nullable}
        elif isinstance(column, Temporal) and column.kind != "duration":
            written[column.name] = {"type": "datetime", "nullable": column.nullable}
    if unit.column is not None and unit.column not in written:
        written[unit.column] = {"type": "string", "private_id": True}
    return {"": {"schema": {table: written}}}


# -- Data dictionaries: one line per value ---------------------------------------------------------------------------


_NAMES = {
    "column": ("column", "variable", "field", "name", "column name", "variable name", "field name"),
    "value": ("value", "code", "values", "codes"),
    "label": ("label", "meaning", "value label", "description", "text"),
    "type": ("type", "data type", "format"),
    "missing": ("missing", "missing reason", "reason"),
    "title": ("title", "column label", "variable label", "question"),
}
_RANGE = re.compile(r"^\s*(-?[0-9]+(?:\.[0-9]+)?)\s*(?:\.\.+|to|\u2013|-)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*$")
_WHOLE = re.compile(r"^-?(0|[1-9][0-9]*)$")


# -- JSON dictionaries of research tables: `domain.json` and SDNist.


_UNIT_GAP = "`privacy_unit`: a dictionary does not say who is protected"


def json_form(parsed: Any) -> str:
    """Return which kind of JSON dictionary this is: domain, sdnist or sdv."""
    if not isinstance(parsed, Mapping):
        return "sdv"
    inner = parsed.get("schema", parsed.get("domain", parsed))
    if not isinstance(inner, Mapping) or "columns" in inner or "tables" in inner:
        return "sdv"
    if isinstance(inner.get("shape"), list) or all(type(_size_of(about)) is int for about in inner.values()):
        return "domain"
    described = [about for about in inner.values() if isinstance(about, Mapping)]
    return "sdnist" if any(not {"values", "min", "dtype"}.isdisjoint(about) for about in described) else "sdv"


def from_domain(parsed: Any) -> Imported:
    """Import a `domain.json`: columns with numbers of codes, or lists of names and sizes.

    The columns are at the top or under "domain"; a column's number of codes may also be under its own "domain".

    Raises:
        InputError: if it has another form.
    """
    inner = parsed.get("domain", parsed) if isinstance(parsed, Mapping) else parsed
    if isinstance(inner, Mapping) and isinstance(inner.get("shape"), list):
        names = inner.get("attributes", inner.get("attrs"))
        inner = dict(zip(names, inner["shape"], strict=True)) if isinstance(names, list) else {}
    inner = {name: _size_of(about) for name, about in inner.items()} if isinstance(inner, Mapping) else inner
    if not isinstance(inner, Mapping) or not inner or not all(type(n) is int and n > 0 for n in inner.values()):
        raise InputError('a domain file holds columns and their numbers of codes, as in {"age": 85, "sex": 2}')
    fields = Schema.from_domain({str(name): size for name, size in inner.items()}).to_dict()["fields"]
    return Imported({"fields": fields, "understudy": {}}, (_UNIT_GAP,))


def _size_of(about: Any) -> Any:
    """Return the number of codes of a column, as in ``2`` and ``{"type": "discrete", "domain": 2}``."""
    return about.get("domain") if isinstance(about, Mapping) else about


def from_sdnist(parsed: Any) -> Imported:
    """Import a dictionary of SDNist: values with labels, or bounds, flat or under "schema".

    Raises:
        InputError: if it has another form.
    """
    inner = parsed.get("schema", parsed) if isinstance(parsed, Mapping) else None
    if not isinstance(inner, Mapping) or not all(isinstance(about, Mapping) for about in inner.values()):
        raise InputError("an SDNist dictionary holds a mapping for each column, with `values`, or `min` and `max`")
    fields, gaps = [], [_UNIT_GAP]
    for name, about in inner.items():
        field, gap = _from_sdnist(about)
        fields.append({"name": str(name)} | field)
        gaps += [f"column {name!r}: {gap}"] if gap else []
    return Imported({"fields": fields, "understudy": {}}, tuple(gaps))


def _from_sdnist(about: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    values = about.get("values", {})
    labels = {str(value): str(label) for value, label in values.items()} if isinstance(values, Mapping) else {}
    least, most = ((values if labels else about).get(key) for key in ("min", "max"))
    title = {"title": str(about["description"])} if about.get("description") else {}
    null = {str(about["null_value"]): "missing"} if about.get("has_null") and "null_value" in about else {}
    if least is None or most is None:
        listed = [value for value in labels or map(str, values) if value not in null]
        if not listed:
            return title | {"type": "string"}, "the values are missing; list them in `categories`"
        categories = [{"value": value, "label": labels[value]} if value in labels else value for value in listed]
        return title | {"type": "string", "categories": categories} | _describe_missing(null), ""
    codes = {value: label for value, label in labels.items() if value not in ("min", "max")}
    numbers = [float(code) for code in codes if re.fullmatch(r"-?[0-9]+", code)]
    low, high = min([float(least), *numbers]), max([float(most), *numbers])
    whole = low.is_integer() and high.is_integer() and "float" not in str(about.get("dtype", ""))
    ends = (int(low), int(high)) if whole else (low, high)
    missing = null | {code: label for code, label in codes.items() if not re.fullmatch(r"-?[0-9]+", code)}
    field = {"type": "integer" if whole else "number", "constraints": {"minimum": ends[0], "maximum": ends[1]}}
    return title | field | _describe_missing(missing), ""


def _describe_missing(reasons: dict[str, str]) -> dict[str, Any]:
    return {"understudy": {"missing": reasons}} if reasons else {}


def from_dictionary(lines: Sequence[Sequence[str]]) -> Imported:
    """Import a dictionary with one line per value: column, value, label, and optionally type, title, missing.

    A value like ``17..90`` declares bounds; a line with a ``missing`` cell declares a missing code and its reason. A
    column without values is reported as a gap.

    Raises:
        InputError: if the first line has no column and value headings.
    """
    places = _find_headings([cell.strip().lower() for cell in lines[0]] if lines else [])
    if "column" not in places or "value" not in places:
        raise InputError("the first line must name a column `column` and a column `value`; rename the headings")
    columns: dict[str, list[dict[str, str]]] = {}
    current = ""
    for row in lines[1:]:
        line = {key: row[place].strip() if place < len(row) else "" for key, place in places.items()}
        current = line["column"] or current  # spreadsheets name a column once and list its values below
        columns.setdefault(current, []).append(line)
    fields, gaps = [], ["`privacy_unit`: a dictionary does not say who is protected"]
    for name, listed in columns.items():
        field, gap = _from_dictionary(listed)
        fields.append({"name": name} | field)
        gaps += [f"column {name!r}: {gap}"] if gap else []
    return Imported({"fields": fields, "understudy": {}}, tuple(gaps))


def _find_headings(headings: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, names in _NAMES.items():
        for place, heading in enumerate(headings):
            if heading in names and key not in found and place not in found.values():
                found[key] = place
    return found


def _from_dictionary(lines: list[dict[str, str]]) -> tuple[dict[str, Any], str]:
    title = next((line["title"] for line in lines if line.get("title")), None)
    head: dict[str, Any] = {"title": title} if title else {}
    missing = {line["value"]: line["missing"] for line in lines if line.get("missing") and line["value"]}
    ours: dict[str, Any] = {"understudy": {"missing": missing}} if missing else {}
    named = [line for line in lines if line["value"] and line["value"] not in missing]
    ranges = [match for line in named if (match := _RANGE.match(line["value"]))]
    if ranges:
        return head | _read_bounds(ranges, named, missing), ""
    if not named:
        kind = next((line["type"].lower() for line in lines if line.get("type")), "string")
        return head | {"type": kind} | ours, "it lists no values; add `categories` or bounds, or `kind: drop`"
    values = list(dict.fromkeys(line["value"] for line in named))
    declared = next((line["type"].lower() for line in lines if line.get("type")), "")
    whole = all(_WHOLE.match(value) for value in values) and declared not in ("string", "text", "char")
    labels = {line["value"]: line.get("label", "") for line in named}
    typed = {value: int(value) if whole else value for value in values}
    shown = [{"value": typed[value], "label": labels[value]} if labels[value] else typed[value] for value in values]
    return head | {"type": "integer" if whole else "string", "categories": shown} | ours, ""


def _read_bounds(ranges: list[re.Match[str]], named: list[dict[str, str]], missing: dict[str, str]) -> dict[str, Any]:
    """Return bounds from the ranges; single values beside them become spikes."""
    numbers = [number for match in ranges for number in match.groups()]
    whole = all(_WHOLE.match(number) for number in numbers)
    convert = int if whole else float
    singles = [convert(line["value"]) for line in named if _WHOLE.match(line["value"])]
    ends = [convert(number) for number in numbers] + singles
    ours: dict[str, Any] = ({"missing": missing} if missing else {}) | ({"spikes": singles} if singles else {})
    field: dict[str, Any] = {"type": "integer" if whole else "number"}
    field["constraints"] = {"minimum": min(ends), "maximum": max(ends)}
    return field | ({"understudy": ours} if ours else {})
