"""Conditions on columns and rules of a schema: described in words, and read from forms."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import yaml

from understudy.errors import SchemaError, SettingError
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded
from understudy.studio.app import Form
from understudy.studio.columns import parse_number, parse_pairs
from understudy.yaml_json import read_yaml

RULES = {
    "order": "One column is never above another",
    "determines": "One column determines another",
    "impossible": "Something cannot occur together",
}
"""The kinds of rules that a form builds, in words."""

_MOST_SHOWN = 3
_FEW_VALUES = 24


def describe_rule(rule: Mapping[str, Any]) -> str:
    """Describe a rule in words."""
    if "order" in rule:
        return f"{(' < ' if rule.get('strict') else ' ≤ ').join(rule['order'])}, in every row"
    if "impossible" in rule:
        parts = [f"{name} is {_describe_condition(condition)}" for name, condition in rule["impossible"].items()]
        return f"Never at once: {'; '.join(parts)}"
    given, stated = rule.get("from", ""), rule.get("map") or {}
    pairs = [f"{value} → {determined}" for value, determined in list(stated.items())[:_MOST_SHOWN]]
    listed = f" ({', '.join(pairs)}{' …' if len(stated) > _MOST_SHOWN else ''})" if pairs else ""
    return f"{', '.join(given) if isinstance(given, list) else given} determines {rule.get('determines')}{listed}"


def _describe_condition(condition: Any) -> str:
    if isinstance(condition, Mapping):
        words = {"minimum": "at least", "maximum": "at most"}
        return " and ".join(f"{words.get(key, key)} {value}" for key, value in condition.items())
    return " or ".join(map(str, condition)) if isinstance(condition, list) else str(condition)


def rule_from_form(schema: Schema, form: Form) -> dict[str, Any]:
    """Return the rule that a form describes, as the schema file writes it.

    Raises:
        SettingError: if the form is not complete.
        SchemaError: if it cannot be read. Whether it fits the columns is checked with the whole schema.
    """
    if text := form.get("rule", "").strip():
        try:
            return dict(read_yaml(text))
        except (yaml.YAMLError, TypeError, ValueError):
            raise SchemaError("the rule cannot be read; check colons and brackets") from None
    if form.get("kind") == "impossible":
        conditions = read_conditions(schema, form)
        if not conditions:
            raise SettingError("add at least one condition: choose a column, then its values")
        return {"impossible": {name: _format_condition(schema, name, said) for name, said in conditions.items()}}
    first, second = form.get("first", ""), form.get("second", "")
    if not first or not second or first == second:
        raise SettingError("a rule is about two different columns; choose both")
    if form.get("kind") != "determines":
        return {"order": [first, second]} | ({"strict": True} if form.get("strict") else {})
    stated = {value: determined for value, determined in parse_pairs(form.get("map", "")) if determined is not None}
    return {"from": [first], "determines": second} | ({"map": stated} if stated else {})


def _format_condition(schema: Schema, name: str, condition: Any) -> Any:
    """Return a condition as a rule writes it: values, or a range without its open end."""
    if isinstance(condition, list):
        return condition
    kind = find_column(schema, name).kind
    ends = zip(("minimum", "maximum"), condition, strict=True)
    return {key: parse_number(end, kind) for key, end in ends if end is not None}


# -- Conditions on columns, for questions about a release and for rules.


def find_column(schema: Schema, name: str) -> Coded:
    """Return a column that is synthesised.

    Raises:
        SettingError: if there is none of this name.
    """
    for column in schema.coded:
        if column.name == name:
            return column
    raise SettingError("there is no such column; choose one of the list")


def condition_form(column: Coded) -> dict[str, Any]:
    """Return the values that the form of a condition shows; its key distinguishes several conditions."""
    values = _values_of(column)
    return {
        "name": column.name,
        "key": secrets.token_hex(4),
        "values": values,
        "few": len(values) <= _FEW_VALUES,
        "bounds": _bounds_of(column),
    }


def _values_of(column: Coded) -> list[tuple[str, str]]:
    """Return the values that a condition can name, with their labels."""
    if isinstance(column, Categorical):
        return [(str(value), column.labels.get(str(value), str(value))) for value in column.values]
    return [("true", "true"), ("false", "false")] if isinstance(column, Boolean) else []


def _bounds_of(column: Coded) -> tuple[str, str]:
    if not isinstance(column, AxisColumn):
        return "", ""
    low, high = (f"{end:g}" if isinstance(end, float) else str(end) for end in (column.minimum, column.maximum))
    return low, high


def read_conditions(schema: Schema, form: Form) -> dict[str, Any]:
    """Return the conditions of a form by column, as `Release.answer` takes them: both ends of a range, or values.

    Raises:
        SettingError: naming the column and what is missing.
    """
    found: dict[str, Any] = {}
    for named in form.all("condition"):
        key, _, name = named.partition(":")
        column = find_column(schema, name)
        if name in found:
            raise SettingError(f"{name} has two conditions; remove one of them")
        if isinstance(column, AxisColumn):
            ends = tuple(form.get(f"{end}-{key}", "").strip() or None for end in ("from", "to"))
            if ends == (None, None):
                raise SettingError(f"{name}: give at least one end of the range")
            found[name] = ends
            continue
        chosen = form.all(f"value-{key}")
        if not chosen:
            raise SettingError(f"{name}: choose at least one value")
        texts = {str(value): value for value in getattr(column, "values", ())}
        found[name] = [texts.get(value, value == "true" if isinstance(column, Boolean) else value) for value in chosen]
    return found
