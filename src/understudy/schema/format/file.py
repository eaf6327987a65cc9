"""The schema's file: a Frictionless Table Schema in JSON or YAML. Errors name the file, the line and the column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from understudy.errors import OutputError, SchemaError
from understudy.files import write_text
from understudy.schema.custodian import found
from understudy.schema.format.dialect import Dialect
from understudy.schema.format.fields import OURS, FieldError, column_of, field_of
from understudy.schema.rules.rule import Rule, rule_of
from understudy.yaml_json import MOST_YAML, compose_yaml, dump_text, read_json, read_yaml

if TYPE_CHECKING:
    from understudy.schema.schema import PrivacyUnit, Schema

_STANDARD = {
    "fields",
    "title",
    "description",
    "name",
    "$schema",
    "missingValues",
    "primaryKey",
    "foreignKeys",
    "fieldsMatch",
    OURS,
}
DRAFT_MARK = "Drafted from the private rows. Review each column; do not share this file while it says draft."
_KEYS = {"privacy_unit", "rows", "dialect", "rules", "custodian_only"}


def load(path: Path, *, unit: str | None = None) -> Schema:
    """The schema in a file.

    Args:
        path: the file.
        unit: who is protected where the file does not say so; None where it must.

    Raises:
        SchemaError: naming the file, the line and the column of what is wrong.
    """
    text = _read(path)
    try:
        return from_dict(_parse(text, path), unit=unit)
    except FieldError as error:
        line = _line(text, error.path)
        raise SchemaError(f"{path}{f', line {line}' if line else ''}: {error}") from None
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}" if not str(error).startswith(str(path)) else str(error)) from None


def save(schema: Schema, path: Path, *, overwrite: bool = False) -> None:
    """Write a schema completely or not at all; JSON when the file ends so, else YAML.

    **Privacy.** While a column is a draft, made from the rows without noise, its owner alone can read the file.

    Raises:
        OutputError: when the file cannot be written, or is there already and may not be overwritten.
    """
    if path.is_file() and not overwrite:
        raise OutputError(f"{path} is there already; choose another name, or say overwrite=True")
    text = dump_text(to_dict(schema), path.suffix)
    write_text(text, path, private=any(column.status == "draft" for column in schema.columns))


def to_dict(schema: Schema) -> dict[str, Any]:
    """The content of a schema file."""
    unit = schema.privacy_unit
    ours: dict[str, Any] = {
        "privacy_unit": "row" if unit.column is None else {"column": unit.column, "max_rows": unit.max_rows}
    }
    ours |= {"rows": schema.rows} if schema.rows is not None else {}
    dialect = schema.dialect.model_dump(exclude_defaults=True)
    ours |= {"dialect": dialect} if dialect else {}
    ours |= {"rules": [rule.to_dict() for rule in schema.rules]} if schema.rules else {}
    head = {"title": schema.title} if schema.title is not None else {}
    if any(column.status == "draft" for column in schema.columns):
        ours["custodian_only"] = DRAFT_MARK
    return head | {"fields": [field_of(column) for column in schema.columns], OURS: ours}


def states_unit(path: Path) -> bool:
    """Whether a schema's file says who is protected; a draft that nobody reviewed may not."""
    return "privacy_unit" in _ours(_parse(_read(path), path))


def from_dict(content: Any, *, unit: str | None = None) -> Schema:
    """The schema that a file's content declares.

    Args:
        content: what the file holds.
        unit: who is protected where it does not say so; None where it must.

    Raises:
        SchemaError: naming the column, the key and the remedy.
    """
    from understudy.schema.schema import Schema

    ours = _ours(content)
    fields = content.get("fields")
    if not isinstance(fields, list) or not fields:
        raise FieldError("the schema has no columns; list them under `fields`", ())
    columns = tuple(column_of(field, index) for index, field in enumerate(fields))
    title = content.get("title")
    parts: dict[str, Any] = {
        "privacy_unit": _unit(ours.get("privacy_unit", unit)),
        "rows": ours.get("rows"),
        "dialect": _dialect(ours.get("dialect", {})),
        "rules": _rules(ours.get("rules", [])),
        "title": None if title is None else str(title),
    }
    try:
        return Schema(columns, **parts)
    except SchemaError as error:
        raise FieldError(str(error), _place(str(error), [column.name for column in columns])) from None


def _place(message: str, names: list[str]) -> tuple[str | int, ...]:
    """Where a contradiction between columns lies: the last column that the message names, else the key it names."""
    for index in reversed(range(len(names))):
        if repr(names[index]) in message:
            return ("fields", index)
    return next(((OURS, key) for key in _KEYS if f"`{key}`" in message), ())


def _ours(content: Any) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise FieldError(
            "a schema is a mapping with `fields`; this file holds something else: check which file it is", ()
        )
    ours = content.get(OURS, {})
    if not isinstance(ours, Mapping):
        raise FieldError(f"`{OURS}` must be a mapping of keys; correct it", (OURS,))
    for key in content:
        if key not in _STANDARD:
            remedy = f"move it under `{OURS}`" if key in _KEYS else "remove it, or correct its spelling"
            raise FieldError(f"unknown key `{key}`; {remedy}", (key,))
    if content.get("missingValues", [""]) != [""]:
        raise FieldError(
            "`missingValues` of the whole table says no reasons; write `understudy: {missing: {token: reason}}` in "
            "each field that has missing codes (empty cells are missing anyway)",
            ("missingValues",),
        )
    for key in ours:
        if key not in _KEYS:
            raise FieldError(f"`{OURS}`: unknown key `{key}`; use {', '.join(sorted(_KEYS))}", (OURS, key))
    return ours


def _unit(given: Any) -> PrivacyUnit:
    from understudy.schema.schema import PrivacyUnit

    path = (OURS, "privacy_unit")
    if given is None:
        raise FieldError(
            "`privacy_unit` is not stated; write `privacy_unit: row` under `understudy` if nobody has two rows, else "
            "`privacy_unit: {column: patient_id, max_rows: 3}`",
            (OURS,),
        )
    if given == "row":
        return PrivacyUnit()
    if not isinstance(given, Mapping) or set(given) != {"column", "max_rows"} or not isinstance(given["column"], str):
        raise FieldError("`privacy_unit` is `row`, or `{column: NAME, max_rows: K}`; correct it", path)
    try:
        return PrivacyUnit(given["column"], given["max_rows"])
    except SchemaError as error:
        raise FieldError(str(error), path) from None


def _rules(given: Any) -> tuple[Rule, ...]:
    if not isinstance(given, list):
        raise FieldError("`rules` must be a list; put a dash before each rule", (OURS, "rules"))
    rules = []
    for index, entry in enumerate(given):
        try:
            rules.append(rule_of(entry))
        except SchemaError as error:
            raise FieldError(f"rule {index + 1}: {error}", (OURS, "rules", index)) from None
    return tuple(rules)


def _dialect(given: Any) -> Dialect:
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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: is not UTF-8 text; save the schema as UTF-8") from None
    except OSError:
        draft = found(path)
        if draft != path:
            words = f"it is still a draft, {draft.name}; finish it with `understudy schema review {path}`"
            raise SchemaError(f"{path}: {words}") from None
        raise SchemaError(f"{path}: cannot be read; check the path") from None


def _parse(text: str, path: Path) -> Any:
    import yaml

    if path.suffix == ".json":
        try:
            return read_json(text)
        except json.JSONDecodeError as error:
            raise SchemaError(
                f"{path}, line {error.lineno}: is no valid JSON; look for a missing comma or quote"
            ) from None
        except ValueError:
            raise SchemaError(
                f"{path}: is nested too deeply, too long, or holds a number or letter beyond all bounds; correct it"
            ) from None
    try:
        return read_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise SchemaError(f"{path}{where}: is no valid YAML; check the indentation and the quotes") from None
    except yaml.YAMLError:
        words = "check the characters in it, and for numbers, dates, aliases (*) and brackets beyond all bounds; "
        words += f"more than {MOST_YAML:,} values are read from JSON alone"
        raise SchemaError(f"{path}: is no valid YAML; {words}") from None


def _line(text: str, path: tuple[str | int, ...]) -> int | None:
    """The line where a path leads, as far as it can be followed. JSON is read as the YAML that it also is."""
    import yaml

    try:
        node = compose_yaml(text)
    except yaml.YAMLError:
        return None
    line = node.start_mark.line if node is not None else 0
    for step in path:
        found = _child(node, step)
        if found is None:
            break
        line, node = found
    return int(line) + 1


def _child(node: Any, step: str | int) -> tuple[int, Any] | None:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark.line, value) for key, value in node.value if key.value == str(step)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line, node.value[step]
    return None
