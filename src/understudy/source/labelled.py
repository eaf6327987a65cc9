"""A schema from the dictionary of an office file: labels are metadata that the file's owner declared, not rows.

**Privacy.** Made of variable labels, value labels and missing codes. Which of the labelled values occur in the rows is
not looked at, so a value that nobody has is declared like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from understudy.schema.format.exchange import Imported
from understudy.source.office import Variable


def labelled_field(field: Mapping[str, Any], variable: Variable) -> dict[str, Any]:
    """A drafted field with what the file says: its title, and for a labelled variable its values and missing reasons.

    A variable on a scale keeps the bounds that were drafted, with its missing codes; one whose labels name only missing
    codes does too.
    """
    made = dict(field) | ({"title": variable.label} if variable.label else {})
    ours = dict(made.get("understudy", {}))
    if not variable.values and not variable.missing:
        return made
    missing = {_token(code): _reason(variable, code) for code in variable.missing}
    kept = {key: value for key, value in ours.items() if key in ("status", "origin")}
    if _lists_its_values(variable):
        values = {value: label for value, label in variable.values.items() if _token(value) not in missing}
        return _head(made) | _categories(values, ordered=variable.measure == "ordinal") | _ours(kept, missing)
    if ours.get("kind") in ("drop", "id"):
        return made
    return made | {"understudy": ours | ({"missing": dict(ours.get("missing", {})) | missing} if missing else {})}


def import_variables(variables: Sequence[Variable]) -> Imported:
    """A schema from a file's dictionary alone, and what a person still has to add."""
    fields, gaps = [], ["`privacy_unit`: the file does not say who is protected"]
    for variable in variables:
        field = labelled_field({"name": variable.name, "type": "string"}, variable)
        fields.append(field)
        if "categories" not in field:
            gaps.append(f"column {variable.name!r}: it lists no values; add `categories` or bounds, or `kind: drop`")
    return Imported({"fields": fields, "understudy": {}}, tuple(gaps))


def _lists_its_values(variable: Variable) -> bool:
    tokens = {_token(code) for code in variable.missing}
    return variable.measure != "scale" and any(_token(value) not in tokens for value in variable.values)


def _categories(values: Mapping[Any, str], *, ordered: bool) -> dict[str, Any]:
    numbers = all(isinstance(value, int | float) for value in values)
    whole = numbers and all(float(value).is_integer() for value in values)
    listed = [
        {"value": int(value) if whole else float(value) if numbers else str(value), "label": label}
        for value, label in values.items()
    ]
    kind = "integer" if whole else "number" if numbers else "string"
    return {"type": kind, "categories": listed} | ({"categoriesOrdered": True} if ordered else {})


def _head(field: Mapping[str, Any]) -> dict[str, Any]:
    return {key: field[key] for key in ("name", "title", "description") if key in field}


def _ours(kept: Mapping[str, Any], missing: Mapping[str, str]) -> dict[str, Any]:
    ours = dict(kept) | ({"missing": dict(missing)} if missing else {})
    return {"understudy": ours} if ours else {}


def _reason(variable: Variable, code: Any) -> str:
    return variable.values.get(code) or f"missing ({_token(code)})"


def _token(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
