"""Read conditions on columns from forms, for questions about a release and for rules."""

from __future__ import annotations

import secrets
from typing import Any

from understudy.errors import SettingError
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded
from understudy.studio.app import Form

_FEW_VALUES = 24


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
