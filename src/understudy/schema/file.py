"""The parts of schema files: fields, keys and text of a Frictionless Table Schema in JSON or YAML.

Our own keys are under ``understudy``. Errors name the file, the line and the column; `Schema.load` reads a whole file.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from understudy.errors import SchemaError
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded, Column, Constant, Difference, Dropped, Identifier
from understudy.schema.custodian import find_marked
from understudy.schema.numeric import Numeric
from understudy.schema.open import COMMON, Open, find_discoveries, trial_facts
from understudy.schema.rules import Rule, parse_rule
from understudy.schema.temporal import Temporal
from understudy.schema.text import Dialect
from understudy.yaml_json import MOST_YAML, compose_yaml, read_json, read_yaml

OURS = "understudy"
_STANDARD = {
    "name", "type", "title", "description", "format", "categories", "categoriesOrdered", "trueValues", "falseValues",
    "constraints", OURS,
}  # fmt: skip
_PASSIVE = {"example", "rdfType"}
_CONSTRAINTS = {"required", "minimum", "maximum", "enum"}
_UNUSED_CONSTRAINTS = {"unique", "pattern", "minLength", "maxLength"}
_CLASS: dict[str, type[Column]] = {
    "drop": Dropped, "constant": Constant, "id": Identifier, "difference": Difference,
    "categorical": Categorical, "ordinal": Categorical,
    "boolean": Boolean, "integer": Numeric, "number": Numeric,
    "date": Temporal, "datetime": Temporal, "duration": Temporal,
}  # fmt: skip
_ELSEWHERE = {
    "name", "title", "description", "type", "values", "labels", "true_values", "false_values", "nullable", "minimum",
    "maximum",
}  # fmt: skip
"""Attributes of columns that the standard has keys for; all others are written under `understudy`."""
_KIND_KEYS = {
    shape: set(shape.model_fields) - _ELSEWHERE - COMMON - ({"pattern"} if shape is Temporal else set())
    for shape in _CLASS.values()
}
OUR_KEYS = set.union(COMMON, *_KIND_KEYS.values())
_ADVICE = {
    "decimalChar": "declare it once, in `understudy.dialect.decimal`",
    "groupChar": "declare it once, in `understudy.dialect.group`",
    "bareNumber": "remove it: numbers are written bare",
    "missingValues": "write `understudy: {missing: {token: reason}}` in the field",
}
FREE_TEXT = (
    "text without declared `categories` is free text, which cannot be synthesised; list its categories, discover them "
    "with `understudy: {values: discover}`, or declare `kind: drop` (leave it out) or `kind: id` (fresh keys)"
)


class FieldError(SchemaError):
    """A schema error with its position in the file: `path` leads to the key."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


def parse_field(field: Any, index: int) -> Column:
    """Return the column that a field declares.

    Raises:
        FieldError: naming the column, the key and the remedy.
    """
    path: tuple[str | int, ...] = ("fields", index)
    if not isinstance(field, Mapping):
        raise FieldError(f"field {index + 1}: must be a mapping with at least a `name`; correct it", path)
    name = field.get("name")
    if not isinstance(name, str) or not name:
        raise FieldError(f"field {index + 1}: `name` must be non-empty text; add it (quotes around numbers)", path)
    return _Field(field, index, name).column()


def fill_field(field: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """Return a field with discovered facts in place of `discover`, and their origin.

    Args:
        field: a field that asks for discovery.
        facts: `type`, `minimum`, `maximum`, `bins`, `spikes`, `decimals` or `categories`.
    """
    ours = {key: value for key, value in field.get(OURS, {}).items() if value != "discover"} | {"origin": "discovered"}
    ours |= {key: facts[key] for key in ("bounds", "bins", "values", "spikes", "decimals") if key in facts}
    limits = field.get("constraints", {}) | {key: facts[key] for key in ("minimum", "maximum") if key in facts}
    outer = {key: facts[key] for key in ("type", "categories") if key in facts}
    made = {key: value for key, value in field.items() if key != OURS} | outer | {OURS: ours}
    return made | ({"constraints": limits} if limits else {})


def format_field(column: Column) -> dict[str, Any]:
    """Return the field that declares a column; defaults are left out."""
    if isinstance(column, Open):
        return dict(column.field)
    field: dict[str, Any] = {"name": column.name, "type": _type_of(column)}
    field |= {key: getattr(column, key) for key in ("title", "description") if getattr(column, key) is not None}
    ours: dict[str, Any] = {"kind": column.kind} if column.kind in ("drop", "id", "constant", "difference") else {}
    for key in sorted(_KIND_KEYS[type(column)]):
        if getattr(column, key) != type(column).model_fields[key].get_default(call_default_factory=True):
            ours[key] = _to_plain(getattr(column, key))
    ours |= {"status": "draft"} if column.status == "draft" else {}
    ours |= {"origin": column.origin} if column.origin != "public" else {}
    ours |= {"role": column.role} if column.role is not None else {}
    if isinstance(column, Categorical):
        field |= _format_categories(column)
    if isinstance(column, Boolean):
        field |= _format_truth_values(column)
    if isinstance(column, Temporal) and column.pattern is not None:
        field["format"] = column.pattern
    limits: dict[str, Any] = {"required": True} if isinstance(column, Coded) and not column.nullable else {}
    if isinstance(column, AxisColumn):
        limits |= {
            key: _to_whole(getattr(column, key)) for key in ("minimum", "maximum") if getattr(column, key) is not None
        }
    return field | ({"constraints": limits} if limits else {}) | ({OURS: ours} if ours else {})


class _Field:
    """One field of a schema file. Its errors name the column, and lead to the key."""

    def __init__(self, field: Mapping[str, Any], index: int, name: str) -> None:
        self._field, self._index, self._name = field, index, name
        self._ours, self._limits = self._mapping(OURS), self._mapping("constraints")

    def _error(self, message: str, *keys: str) -> FieldError:
        return FieldError(f"column {self._name!r}: {message}", ("fields", self._index, *keys))

    def _mapping(self, key: str) -> dict[str, Any]:
        given = self._field.get(key, {})
        if not isinstance(given, Mapping):
            raise self._error(f"`{key}` must be a mapping of keys; correct it", key)
        return dict(given)

    def column(self) -> Column:
        """Return the column that the field declares."""
        self._check_keys()
        try:
            discovers = find_discoveries(self._field, self._ours)
        except ValueError as error:
            raise self._error(str(error), *_key_path(str(error))) from None
        if discovers:
            parse_field(fill_field(self._field, **trial_facts(self._field)), self._index)  # checks the rest by a trial
            common = {key: self._ours[key] for key in ("status", "origin", "role") if key in self._ours}
            given = common | {"name": self._name, "discovers": discovers, "field": dict(self._field)}
            return self._validate(Open, given)
        kind = self._find_kind()
        return self._validate(_CLASS[kind], self._flatten(kind))

    def _validate(self, shape: type[Column], given: dict[str, Any]) -> Column:
        given |= {key: self._field[key] for key in ("title", "description") if key in self._field}
        try:
            return shape.model_validate(given)
        except ValidationError as error:
            message = _explain(error)
            raise self._error(message, *_key_path(message)) from None

    def _check_keys(self) -> None:
        for key in self._field:
            if key in _STANDARD | _PASSIVE:
                continue
            remedy = _ADVICE.get(str(key), "remove it, or correct its spelling")
            if key in OUR_KEYS:
                remedy = f"move it under `{OURS}`"
            raise self._error(f"unknown key `{key}`; {remedy}", key)
        for key in self._limits:
            if key not in _CONSTRAINTS | _UNUSED_CONSTRAINTS:
                known = ", ".join(sorted(_CONSTRAINTS))
                raise self._error(f"unknown constraint `{key}`; use {known}", "constraints", key)

    def _find_kind(self) -> str:
        kind, declared = self._ours.get("kind"), self._field.get("type", "string")
        if kind is not None:
            if not isinstance(kind, str) or kind not in _CLASS:
                raise self._error(f"unknown kind {kind!r}; use one of {', '.join(_CLASS)}", OURS, "kind")
            return kind
        if "categories" in self._field or "enum" in self._limits:
            return "ordinal" if self._field.get("categoriesOrdered") else "categorical"
        if declared == "string":
            raise self._error(FREE_TEXT)
        usual = isinstance(declared, str) and declared in _CLASS
        if not usual or declared in ("drop", "id", "constant", "categorical", "ordinal"):
            known = "string, integer, number, boolean, date, datetime, duration"
            raise self._error(f"unknown type {declared!r}; use one of {known}", "type")
        return str(declared)

    def _flatten(self, kind: str) -> dict[str, Any]:
        """Return the attributes of the column by their names."""
        shape = _CLASS[kind]
        allowed = _KIND_KEYS[shape] | COMMON
        for key in self._ours:
            if key not in allowed:
                known = f"`{key}` does not go with kind {kind}" if key in OUR_KEYS else f"unknown key `{key}`"
                raise self._error(f"{known}; use {', '.join(sorted(allowed))}", OURS, key)
        given: dict[str, Any] = _dates_to_text(self._ours) | {"name": self._name, "kind": kind}
        if not issubclass(shape, Coded):
            return given
        if isinstance(given.get("missing"), Mapping):  # YAML reads -9 as a number
            given["missing"] = {str(token): reason for token, reason in given["missing"].items()}
        given["nullable"] = not self._limits.get("required", False)
        if issubclass(shape, AxisColumn):
            given |= {key: _dates_to_text(self._limits[key]) for key in ("minimum", "maximum") if key in self._limits}
        if shape is Temporal and self._field.get("format", "default") not in ("default", "any"):
            given["pattern"] = self._field["format"]
        if shape is Boolean:
            given |= {ours: self._field[theirs] for ours, theirs in _WORDS.items() if theirs in self._field}
        return given | (self._categories() if shape is Categorical else {})

    def _categories(self) -> dict[str, Any]:
        """Return categories: values, or mappings of value and label (Table Schema 2).

        `constraints.enum` is the older way.
        """
        listed = self._field.get("categories", self._limits.get("enum"))
        if not isinstance(listed, list | tuple):
            raise self._error("`categories` must be a list of values; add it", "categories")
        values, labels = [], {}
        for entry in listed:
            value = entry.get("value") if isinstance(entry, Mapping) else entry
            values.append(_dates_to_text(value))
            if isinstance(entry, Mapping) and entry.get("label") is not None:
                labels[str(value)] = str(entry["label"])
        return {"values": tuple(values), "labels": labels, "type": self._field.get("type", "string")}


_WORDS = {"true_values": "trueValues", "false_values": "falseValues"}


def _format_categories(column: Categorical) -> dict[str, Any]:
    listed = [
        {"value": value, "label": column.labels[str(value)]} if str(value) in column.labels else value
        for value in column.values
    ]
    return {"categories": listed} | ({"categoriesOrdered": True} if column.kind == "ordinal" else {})


def _format_truth_values(column: Boolean) -> dict[str, Any]:
    fields = Boolean.model_fields
    return {
        theirs: list(getattr(column, ours))
        for ours, theirs in _WORDS.items()
        if getattr(column, ours) != fields[ours].default
    }


def _type_of(column: Column) -> str:
    if isinstance(column, Categorical):
        return column.type
    if isinstance(column, Dropped | Identifier):
        return "any" if isinstance(column, Dropped) else "string" if column.pattern else "integer"
    if isinstance(column, Difference):
        return "integer"
    if isinstance(column, Constant):
        kinds = {bool: "boolean", int: "integer", float: "number"}
        return kinds.get(type(column.value), "string")
    return column.kind


def _dates_to_text(value: Any) -> Any:
    """Convert dates back to text: YAML turns 2024-01-31 into a date, and the schema keeps the text."""
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _dates_to_text(entry) for key, entry in value.items()}
    return [_dates_to_text(entry) for entry in value] if isinstance(value, list | tuple) else value


def _to_plain(value: Any) -> Any:
    """Convert models and tuples to JSON values."""
    if isinstance(value, BaseModel):
        return _to_plain(value.model_dump(by_alias=True, exclude_none=True))
    if isinstance(value, tuple | list):
        return [_to_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _to_plain(entry) for key, entry in value.items()}
    return _to_whole(value)


def _to_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


def _explain(error: ValidationError) -> str:
    """Rephrase pydantic's findings without repeating the offending value."""
    found = error.errors(include_url=False, include_input=False)
    first = next((entry for entry in found if entry["type"] == "value_error"), found[0])  # our own message first
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "value_error":
        return message
    key = next((step for step in map(str, first["loc"]) if not step.startswith(("function-", "lax-"))), "")
    return f"`{key}`: {message[:1].lower() + message[1:]}; correct it (see the guide to the schema)"


def _key_path(message: str) -> tuple[str, ...]:
    """Return where the first key that a message names lies in a field."""
    named = re.search(r"`([A-Za-z_]+)", message)
    if named is None or named[1] in _STANDARD:
        return () if named is None else (named[1],)
    return ("constraints", named[1]) if named[1] in _CONSTRAINTS else (OURS, named[1])


# -- Files -----------------------------------------------------------------------------------------------------------


_TABLE_STANDARD = {
    "fields", "title", "description", "name", "$schema", "missingValues", "primaryKey", "foreignKeys", "fieldsMatch",
    OURS,
}  # fmt: skip
DRAFT_MARK = "Drafted from the private rows. Review each column; do not share this file while it says draft."
_TABLE_KEYS = {"privacy_unit", "rows", "dialect", "rules", "custodian_only"}


def states_unit(path: Path) -> bool:
    """Return whether a schema file says who is protected; a draft that nobody has reviewed may not."""
    return "privacy_unit" in table_keys(parse_content(read_schema_text(path), path))


def error_path(message: str, names: list[str]) -> tuple[str | int, ...]:
    """Return where a contradiction between columns lies: at the last column that the message names, else at the key."""
    for index in reversed(range(len(names))):
        if repr(names[index]) in message:
            return ("fields", index)
    return next(((OURS, key) for key in _TABLE_KEYS if f"`{key}`" in message), ())


def table_keys(content: Any) -> Mapping[str, Any]:
    """Return the keys under `understudy` of a schema file's content.

    Raises:
        SchemaError: if the content is not that of a schema file, or has an unknown key.
    """
    if not isinstance(content, Mapping):
        raise FieldError(
            "a schema is a mapping with `fields`; this file holds something else: check which file it is", ()
        )
    ours = content.get(OURS, {})
    if not isinstance(ours, Mapping):
        raise FieldError(f"`{OURS}` must be a mapping of keys; correct it", (OURS,))
    for key in content:
        if key not in _TABLE_STANDARD:
            remedy = f"move it under `{OURS}`" if key in _TABLE_KEYS else "remove it, or correct its spelling"
            raise FieldError(f"unknown key `{key}`; {remedy}", (key,))
    if content.get("missingValues", [""]) != [""]:
        raise FieldError(
            "`missingValues` of the whole table gives no reasons; write `understudy: {missing: {token: reason}}` in "
            "each field that has missing codes (empty cells are missing anyway)",
            ("missingValues",),
        )
    for key in ours:
        if key not in _TABLE_KEYS:
            raise FieldError(f"`{OURS}`: unknown key `{key}`; use {', '.join(sorted(_TABLE_KEYS))}", (OURS, key))
    return ours


def parse_rules(given: Any) -> tuple[Rule, ...]:
    """Return the rules that a schema file lists.

    Raises:
        SchemaError: naming the rule by its number.
    """
    if not isinstance(given, list):
        raise FieldError("`rules` must be a list; put a dash before each rule", (OURS, "rules"))
    rules = []
    for index, entry in enumerate(given):
        try:
            rules.append(parse_rule(entry))
        except SchemaError as error:
            raise FieldError(f"rule {index + 1}: {error}", (OURS, "rules", index)) from None
    return tuple(rules)


def parse_dialect(given: Any) -> Dialect:
    """Return the dialect that a schema file declares.

    Raises:
        SchemaError: naming the key.
    """
    try:
        return Dialect.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(step) for step in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = f"is unknown; use {', '.join(Dialect.model_fields)}"
        text = f"`dialect`{f': `{key}`' if key else ''} {message[:1].lower() + message[1:]}"
        raise FieldError(text if ";" in text else f"{text}; correct it", (OURS, "dialect", *first["loc"])) from None


def read_schema_text(path: Path) -> str:
    """Read a schema file.

    Raises:
        SchemaError: if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: is not UTF-8 text; save the schema as UTF-8") from None
    except OSError:
        draft = find_marked(path)
        if draft != path:
            words = f"it is still a draft, {draft.name}; finish it with `understudy schema review {path}`"
            raise SchemaError(f"{path}: {words}") from None
        raise SchemaError(f"{path}: cannot be read; check the path") from None


def parse_content(text: str, path: Path) -> Any:
    """Parse the text of a schema file, JSON or YAML depending on its ending.

    Raises:
        SchemaError: naming the line of what is wrong.
    """
    import yaml

    if path.suffix == ".json":
        try:
            return read_json(text)
        except json.JSONDecodeError as error:
            raise SchemaError(
                f"{path}, line {error.lineno}: is not valid JSON; look for a missing comma or quote"
            ) from None
        except ValueError:
            raise SchemaError(
                f"{path}: is nested too deeply, too long, or holds a number or character out of range; correct it"
            ) from None
    try:
        return read_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise SchemaError(f"{path}{where}: is not valid YAML; check the indentation and the quotes") from None
    except yaml.YAMLError:
        words = "check the characters in it, numbers and dates out of range, and too many aliases (*) or brackets; "
        words += f"more than {MOST_YAML:,} values can only be read from JSON"
        raise SchemaError(f"{path}: is not valid YAML; {words}") from None


def find_line(text: str, path: tuple[str | int, ...]) -> int | None:
    """Return the line to which a path leads, as far as it can be followed. JSON is parsed as YAML."""
    import yaml

    try:
        node = compose_yaml(text)
    except yaml.YAMLError:
        return None
    line = node.start_mark.line if node is not None else 0
    for step in path:
        found = _find_child(node, step)
        if found is None:
            break
        line, node = found
    return int(line) + 1


def _find_child(node: Any, step: str | int) -> tuple[int, Any] | None:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark.line, value) for key, value in node.value if key.value == str(step)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line, node.value[step]
    return None
