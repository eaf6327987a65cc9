"""Decisions of a person about the columns of a draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from understudy.schema.rules import parse_rule

Decision = Literal["accept", "public", "drop", "later"]


def is_draft(field: Mapping[str, Any]) -> bool:
    """Return whether nobody has decided about a field yet."""
    return bool(field.get("understudy", {}).get("status") == "draft")


def decide(field: dict[str, Any], decision: Decision) -> dict[str, Any]:
    """Return a field as a person decided.

    Args:
        field: the drafted field.
        decision: "accept" it; accept it as "public" knowledge, from a document and not from the rows; "drop" the
            column; or decide "later".
    """
    if decision == "drop":
        return {"name": field["name"], "type": "any", "understudy": {"kind": "drop", "origin": "reviewed"}}
    if decision == "later":
        return field
    gone = ("status", "origin") if decision == "public" else ("status",)
    return field | {"understudy": {key: value for key, value in field.get("understudy", {}).items() if key not in gone}}


def drop_dependents(content: dict[str, Any]) -> dict[str, Any]:
    """Drop rules about columns that are left out, and leave out differences of such columns."""
    dropped = {field["name"] for field in content["fields"] if field.get("understudy", {}).get("kind") == "drop"}
    fields = [
        decide(field, "drop") if dropped & {*field.get("understudy", {}).get("of", ())} else field
        for field in content["fields"]
    ]
    ours = content["understudy"]
    rules = [rule for rule in ours.get("rules", []) if not dropped & {*parse_rule(rule).columns}]
    rest = {key: value for key, value in ours.items() if key != "rules"}
    return content | {"fields": fields, "understudy": rest | ({"rules": rules} if rules else {})}
