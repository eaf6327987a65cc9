"""Describe rules of a schema in words, and read rules from forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from understudy.errors import SchemaError, SettingError
from understudy.schema import Schema
from understudy.studio.app import Form
from understudy.studio.columns import parse_number, parse_pairs
from understudy.studio.conditions import find_column, read_conditions
from understudy.yaml_json import read_yaml

RULES = {
    "order": "One column is never above another",
    "determines": "One column determines another",
    "impossible": "Something cannot occur together",
}
"""The kinds of rules that a form builds, in words."""

_MOST_SHOWN = 3


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
