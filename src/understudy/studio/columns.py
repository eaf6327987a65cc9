"""The columns of a schema as people see and edit them: a field of the schema file to a form, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from understudy.errors import SchemaError
from understudy.schema.file import parse_field
from understudy.schema.review import is_draft
from understudy.yaml_json import dump_text, read_yaml

KINDS = {
    "categorical": "Categories",
    "ordinal": "Ordered categories",
    "boolean": "True or false",
    "integer": "Whole number",
    "number": "Number",
    "date": "Date",
    "datetime": "Date and time",
    "duration": "Duration in seconds",
    "id": "Key: replaced by fresh ones",
    "drop": "Left out",
    "constant": "One fixed value",
    "difference": "Days between two dates",
    "discover": "Found out with budget",
}
"""The kinds of columns in words."""

AXES = ("integer", "number", "date", "datetime", "duration")
_MOST_SHOWN = 5
_MOST_TEXT = 200_000


@dataclass(frozen=True)
class ColumnView:
    """A column as a page lists it.

    Attributes:
        place: its place in the table.
        name: its name.
        kind: its kind in words.
        facts: its values or bounds in a few words.
        note: why it was proposed so.
        doubt: what to look at; empty if nothing.
        draft: whether nobody has accepted it yet.
    """

    place: int
    name: str
    kind: str
    facts: str
    note: str
    doubt: str
    draft: bool


def list_columns(content: Mapping[str, Any], notes: Mapping[str, str]) -> list[ColumnView]:
    """The columns of a schema, doubtful ones first, otherwise in the order of the table."""
    views = [view_column(field, place, notes) for place, field in enumerate(content["fields"])]
    return sorted(views, key=lambda view: (not view.doubt, view.place))


def view_column(field: Mapping[str, Any], place: int, notes: Mapping[str, str]) -> ColumnView:
    """A column as a page lists it."""
    name = field["name"]
    note = notes.get(name, "")
    draft = is_draft(field)
    return ColumnView(
        place, name, KINDS[kind_of(field)], _facts(field), note, _doubt(field, note) if draft else "", draft
    )


def kind_of(field: Mapping[str, Any]) -> str:
    """The kind of a field: a key of `KINDS`."""
    ours = field.get("understudy", {})
    if field.get("type") == "discover" or "discover" in [ours.get(key) for key in ("values", "bounds", "bins")]:
        return "discover"
    if ours.get("kind"):
        return str(ours["kind"])
    if "categories" in field or "enum" in field.get("constraints", {}):
        return "ordinal" if field.get("categoriesOrdered") else "categorical"
    return str(field.get("type", "categorical"))


def _facts(field: Mapping[str, Any]) -> str:
    kind, ours, limits = kind_of(field), field.get("understudy", {}), field.get("constraints", {})
    words = []
    if kind in ("categorical", "ordinal"):
        values = [_value_of(entry) for entry in field.get("categories", limits.get("enum", []))]
        more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
        words.append(", ".join(str(value) for value in values[:_MOST_SHOWN]) + more)
    elif kind in AXES and "minimum" in limits:
        words.append(f"from {limits['minimum']} to {limits['maximum']}")
    elif kind == "constant":
        words.append(str(ours.get("value")))
    elif kind == "difference":
        words.append(" minus ".join(ours.get("of", ())))
    elif kind == "id" and ours.get("pattern"):
        words.append(f"as {ours['pattern']}")
    if missing := ours.get("missing"):
        words.append(f"missing: {', '.join(map(str, list(missing)[:_MOST_SHOWN]))}")
    return "; ".join(words)


def _doubt(field: Mapping[str, Any], note: str) -> str:
    kind = kind_of(field)
    if kind == "drop":
        return "Will be left out. Is that right?"
    if kind == "id":
        return "Looks like a key. Does it name the people to protect?"
    if field.get("understudy", {}).get("missing"):
        return "Some cells were taken for missing. Are they?"
    return "Please check the note." if ";" in note else ""


def _value_of(entry: Any) -> Any:
    return entry.get("value") if isinstance(entry, Mapping) else entry


# -- Forms -----------------------------------------------------------------------------------------------------------


def to_form(field: Mapping[str, Any]) -> dict[str, Any]:
    """What the form of a column shows."""
    ours, limits = field.get("understudy", {}), field.get("constraints", {})
    listed = field.get("categories", limits.get("enum", []))
    bins = ours.get("bins", "")
    return {
        "kind": kind_of(field),
        "title": field.get("title") or "",
        "values": "\n".join(
            _format_pair(_value_of(e), e.get("label") if isinstance(e, Mapping) else None) for e in listed
        ),
        "minimum": limits.get("minimum", ""),
        "maximum": limits.get("maximum", ""),
        "bins": bins if isinstance(bins, int | str) else dump_text(bins, ".yaml").strip() if bins else "",
        "missing": "\n".join(_format_pair(token, reason) for token, reason in (ours.get("missing") or {}).items()),
        "empty": not limits.get("required", False),
        "pattern": ours.get("pattern") or "",
        "value": "" if ours.get("value") is None else str(ours["value"]),
        "levels": dump_text(ours["levels"], ".yaml").strip() if ours.get("levels") else "",
        "public": "origin" not in ours and not is_draft(field),
    }


def from_form(field: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """Return a field as a form describes it, accepted; facts that the form does not show are kept.

    Raises:
        SchemaError: naming the column and what is wrong.
    """
    name, kind = str(field["name"]), form.get("kind", "")
    if kind not in KINDS:
        raise SchemaError(f"column {name!r}: choose a kind")
    if any(len(text) > _MOST_TEXT for text in form.values()):
        raise SchemaError(f"column {name!r}: this is too long for a form; edit the schema file instead")
    same = kind == kind_of(field) or {kind, kind_of(field)} <= {"categorical", "ordinal"}
    made = {"name": name} | _form_facts(name, kind, field, form)
    before = field.get("understudy", {}) if same else {}
    ours = {key: value for key, value in before.items() if key not in ("status", "origin", "missing", "bins", "levels")}
    ours |= made.pop("understudy", {})
    if not form.get("public"):
        ours["origin"] = "reviewed"
    if same:
        kept = {key: field[key] for key in ("format", "trueValues", "falseValues", "description") if key in field}
        made = kept | made
    made |= {"title": title} if (title := form.get("title", "").strip()) else {}
    made = {"name": name, **made, "understudy": ours} if ours else made
    parse_field(made, 0)
    return made


def _form_facts(name: str, kind: str, field: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """The facts of a form that go with a kind."""
    if kind == "drop":
        return {"type": "any", "understudy": {"kind": "drop"}}
    if kind == "id":
        pattern = form.get("pattern", "").strip()
        return {"understudy": {"kind": "id"} | ({"pattern": pattern} if pattern else {})}
    if kind == "constant":
        return {"understudy": {"kind": "constant", "value": form.get("value", "")}}
    if kind == "difference":
        if kind_of(field) != "difference":
            raise SchemaError(f"column {name!r}: differences of dates are proposed by drafts, or written in the file")
        return {"type": "integer", "understudy": {"kind": "difference", "of": field["understudy"]["of"]}}
    if kind == "discover":
        return {"type": "discover"}
    limits: dict[str, Any] = {} if form.get("empty") else {"required": True}
    ours: dict[str, Any] = {}
    if missing := dict(_pairs(form.get("missing", ""))):
        ours["missing"] = missing
    if levels := form.get("levels", "").strip():
        ours["levels"] = _parse_yaml(name, "the hierarchy", levels)
    made: dict[str, Any] = {"type": kind}
    if kind in ("categorical", "ordinal"):
        made = _form_values(name, field, form) | ({"categoriesOrdered": True} if kind == "ordinal" else {})
    if kind in AXES:
        limits |= {key: _number(form.get(key, ""), kind) for key in ("minimum", "maximum") if form.get(key, "").strip()}
        if bins := form.get("bins", "").strip():
            ours["bins"] = int(bins) if bins.isdigit() else _parse_yaml(name, "the bins", bins)
    return made | ({"constraints": limits} if limits else {}) | ({"understudy": ours} if ours else {})


def _form_values(name: str, field: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """The values of categories; they stay numbers if they were and all still are."""
    pairs = list(_pairs(form.get("values", "")))
    if not pairs:
        raise SchemaError(f"column {name!r}: list at least one value")
    kind = field.get("type", "string") if "categories" in field else "string"
    if kind == "integer" and not all(re.fullmatch(r"[+-]?\d{1,18}", text) for text, _ in pairs):
        kind = "string"
    if kind not in ("integer", "string"):
        kind = "string"
    values = [int(text) if kind == "integer" else text for text, _ in pairs]
    entries = [
        value if label is None else {"value": value, "label": label}
        for value, (_, label) in zip(values, pairs, strict=True)
    ]
    return {"type": kind, "categories": entries}


def _pairs(text: str) -> Iterator[tuple[str, str | None]]:
    """Lines of ``value`` or ``value = meaning``; a value that holds " = " is written in double quotes."""
    for line in text.splitlines():
        if not line.strip():
            continue
        quoted = re.fullmatch(r'\s*"((?:[^"]|"")*)"\s*(?:=\s*(.*?))?\s*', line)
        if quoted is not None:
            yield quoted[1].replace('""', '"'), quoted[2] or None
            continue
        value, mark, meaning = line.partition(" = ")
        yield value.strip(), (meaning.strip() or None) if mark else None


def _format_pair(value: Any, meaning: Any) -> str:
    text = str(value)
    if " = " in text or text != text.strip() or text.startswith('"') or not text:
        text = '"' + text.replace('"', '""') + '"'
    return text if meaning is None else f"{text} = {meaning}"


def _number(text: str, kind: str) -> Any:
    text = text.strip()
    if kind in ("date", "datetime"):
        return text
    try:
        number = float(text)
    except ValueError:
        return text  # the column says what is wrong with it
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _parse_yaml(name: str, what: str, text: str) -> Any:
    try:
        return read_yaml(text)
    except yaml.YAMLError:
        raise SchemaError(f"column {name!r}: {what} cannot be read; check colons and indentation") from None
