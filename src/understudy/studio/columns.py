"""Convert columns of a schema to forms and back: a field of the schema file, as people see and edit it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
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
_MOST_LEVELS = 10


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
    """Return the columns of a schema: doubtful ones first, otherwise in the order of the table."""
    views = [view_column(field, place, notes) for place, field in enumerate(content["fields"])]
    return sorted(views, key=lambda view: (not view.doubt, view.place))


def view_column(field: Mapping[str, Any], place: int, notes: Mapping[str, str]) -> ColumnView:
    """Return a column as a page lists it."""
    name = field["name"]
    note = notes.get(name, "")
    draft = is_draft(field)
    return ColumnView(
        place, name, KINDS[find_kind(field)], _describe_values(field), note, _doubt(field, note) if draft else "", draft
    )


def find_kind(field: Mapping[str, Any]) -> str:
    """Return the kind of a field: a key of `KINDS`."""
    ours = field.get("understudy", {})
    if field.get("type") == "discover" or "discover" in [ours.get(key) for key in ("values", "bounds", "bins")]:
        return "discover"
    if ours.get("kind"):
        return str(ours["kind"])
    if "categories" in field or "enum" in field.get("constraints", {}):
        return "ordinal" if field.get("categoriesOrdered") else "categorical"
    return str(field.get("type", "categorical"))


def _describe_values(field: Mapping[str, Any]) -> str:
    kind, ours, limits = find_kind(field), field.get("understudy", {}), field.get("constraints", {})
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
    if levels := ours.get("levels"):
        words.append(f"grouped by {', '.join(str(level.get('name')) for level in levels)}")
    if missing := ours.get("missing"):
        words.append(f"missing: {', '.join(map(str, list(missing)[:_MOST_SHOWN]))}")
    return "; ".join(words)


def _doubt(field: Mapping[str, Any], note: str) -> str:
    kind = find_kind(field)
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
    """Return the values that the form of a column shows."""
    ours, limits = field.get("understudy", {}), field.get("constraints", {})
    listed = field.get("categories", limits.get("enum", []))
    bins = ours.get("bins", "")
    return {
        "kind": find_kind(field),
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
        "of": ours.get("of", ("", "")),
        "levels": [_show_level(level) for level in ours.get("levels", ())],
        "levels_text": "",
        "add_level": False,
        "public": "origin" not in ours and not is_draft(field),
    }


def repeat_form(field: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a form that was sent, with a grouping of values added or removed if requested."""
    levels = _read_levels(form)
    if (number := form.get("remove_level", "")).isdigit():
        levels = [level for place, level in enumerate(levels, 1) if place != int(number)]
    if "add_level" in form and len(levels) < _MOST_LEVELS:
        levels.append(_new_level(form, levels))
    sent = {"levels": levels, "of": (form.get("later", ""), form.get("earlier", ""))}
    return to_form(field) | dict(form) | sent | {name: name in form for name in ("empty", "public", "add_level")}


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
    same = kind == find_kind(field) or {kind, find_kind(field)} <= {"categorical", "ordinal"}
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
    """Return the facts of a form that belong to a kind."""
    if kind == "drop":
        return {"type": "any", "understudy": {"kind": "drop"}}
    if kind == "id":
        pattern = form.get("pattern", "").strip()
        return {"understudy": {"kind": "id"} | ({"pattern": pattern} if pattern else {})}
    if kind == "constant":
        return {"understudy": {"kind": "constant", "value": form.get("value", "")}}
    if kind == "difference":
        if not form.get("later") or not form.get("earlier"):
            raise SchemaError(f"column {name!r}: choose the later and the earlier date")
        return {"type": "integer", "understudy": {"kind": "difference", "of": [form["later"], form["earlier"]]}}
    if kind == "discover":
        return {"type": "discover"}
    limits: dict[str, Any] = {} if form.get("empty") else {"required": True}
    ours: dict[str, Any] = {}
    if missing := dict(parse_pairs(form.get("missing", ""))):
        ours["missing"] = missing
    if text := form.get("levels_text", "").strip():
        ours["levels"] = _parse_yaml(name, "the groupings", text)
    elif levels := [_parse_level(name, kind, level) for level in _read_levels(form) if any(level.values())]:
        ours["levels"] = levels
    made: dict[str, Any] = {"type": kind}
    if kind in ("categorical", "ordinal"):
        made = _form_values(name, field, form) | ({"categoriesOrdered": True} if kind == "ordinal" else {})
    if kind in AXES:
        limits |= {
            key: parse_number(form.get(key, ""), kind) for key in ("minimum", "maximum") if form.get(key, "").strip()
        }
        if bins := form.get("bins", "").strip():
            ours["bins"] = int(bins) if bins.isdigit() else _parse_yaml(name, "the bins", bins)
    return made | ({"constraints": limits} if limits else {}) | ({"understudy": ours} if ours else {})


# -- Groupings of values: the levels of a hierarchy


def _show_level(level: Mapping[str, Any]) -> dict[str, str]:
    """Return a level as a form shows it: lines ``value = group``; for numbers and times a width, or edges."""
    groups, edges = level.get("groups") or {}, level.get("edges")
    lines = [_format_pair(value, group) for group, values in groups.items() for value in values]
    text = "\n".join(lines) if lines else ", ".join(map(str, edges)) if edges else str(level.get("width", ""))
    return {"name": str(level.get("name", "")), "text": text, "rest": str(level.get("rest") or "")}


def _read_levels(form: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the groupings of a form that was sent."""
    numbers = takewhile(lambda number: f"level-name-{number}" in form, range(1, _MOST_LEVELS + 1))
    parts = ("name", "text", "rest")
    return [{part: form.get(f"level-{part}-{number}", "").strip() for part in parts} for number in numbers]


def _new_level(form: Mapping[str, str], levels: list[dict[str, str]]) -> dict[str, str]:
    """Return an empty grouping: a line for each value, or for each group of the previous grouping."""
    before = [group for _, group in parse_pairs(levels[-1]["text"])] + [levels[-1]["rest"]] if levels else []
    values = before if levels else [value for value, _ in parse_pairs(form.get("values", ""))]
    lines = [f"{_format_pair(value, None)} = " for value in dict.fromkeys(values) if value]
    return {"name": "", "text": "\n".join(lines) if form.get("kind") not in AXES else "", "rest": ""}


def _parse_level(name: str, kind: str, level: Mapping[str, str]) -> dict[str, Any]:
    """Parse a grouping into the form of the schema file."""
    title, text, rest = level["name"], level["text"], level["rest"]
    if not title:
        raise SchemaError(f"column {name!r}: give the grouping a name, such as region")
    if kind in AXES:
        if not text:
            raise SchemaError(f"column {name!r}: say how wide the groups of {title!r} are, or where they begin")
        if "," in text:
            return {"name": title, "edges": [parse_number(edge, kind) for edge in text.split(",")]}
        return {"name": title, "width": parse_number(text, "number")}
    groups: dict[str, list[str]] = {}
    for value, group in parse_pairs(text):
        if group is not None:
            groups.setdefault(group, []).append(value)
        elif not rest:
            raise SchemaError(f"column {name!r}: {value!r} has no group in {title!r}; write it after “ = ”")
    return {"name": title, "groups": groups} | ({"rest": rest} if rest else {})


def _form_values(name: str, field: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of categories; numbers stay numbers if all of them still are."""
    pairs = list(parse_pairs(form.get("values", "")))
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


def parse_pairs(text: str) -> Iterator[tuple[str, str | None]]:
    r"""Parse lines of ``value`` or ``value = meaning``; a value that contains " = " is in double quotes.

    >>> list(parse_pairs('F = female\nX =\n"a = b" = c'))
    [('F', 'female'), ('X', None), ('a = b', 'c')]
    """
    for line in text.splitlines():
        if not line.strip():
            continue
        quoted = re.fullmatch(r'\s*"((?:[^"]|"")*)"\s*(?:=\s*(.*?))?\s*', line)
        if quoted is not None:
            yield quoted[1].replace('""', '"'), quoted[2] or None
            continue
        value, mark, meaning = f"{line} ".partition(" = ")
        yield value.strip(), (meaning.strip() or None) if mark else None


def _format_pair(value: Any, meaning: Any) -> str:
    text = str(value)
    if " = " in f"{text} " or text != text.strip() or text.startswith('"') or not text:
        text = '"' + text.replace('"', '""') + '"'
    return text if meaning is None else f"{text} = {meaning}"


def parse_number(text: str, kind: str) -> Any:
    """Parse a bound into the form of the schema file: a number or a date; other text is returned unchanged."""
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
