"""Validation of arguments and settings that users pass in; errors name the option.

Each `as_` function takes the option's name and a value, and returns the value as the one type that the code works with.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from numbers import Integral
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import parse_qsl, urlsplit

from understudy.errors import SettingError
from understudy.progress import Progress, silent

if TYPE_CHECKING:
    from pydantic import ValidationError

_MOST = 1 << 62
"""Whole numbers from here on may overflow 64-bit counters."""


def as_path(option: str, value: Any) -> Path:
    """Return the path of a file or folder.

    >>> as_path("output", "people.release").name
    'people.release'

    Raises:
        SettingError: if the value is neither text nor a path, or names no file.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise SettingError(f'{option}: give the path of a file, such as "people.release"')
    return Path(text)


def as_whole(option: str, value: Any, *, least: int = 0) -> int:
    """Return a whole number of Python or numpy as an int.

    Raises:
        SettingError: for anything else, and for a number below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < _MOST:
        raise SettingError(f"{option} must be a whole number of at least {least}")
    return int(value)


def as_flag(option: str, value: Any) -> bool:
    """Return true or false.

    Raises:
        SettingError: for anything else.
    """
    if not isinstance(value, bool):
        raise SettingError(f"{option} must be true or false")
    return value


def as_names(option: str, value: Any) -> list[str]:
    """Return a list of names; a single name becomes a list of one.

    Raises:
        SettingError: if the value is neither.
    """
    names: list[Any] = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise SettingError(f"{option}: give a list of names")
    return names


def as_mapping(option: str, value: Any, *, example: str) -> dict[Any, Any]:
    """Return a mapping as a dict.

    Raises:
        SettingError: for anything else, showing the example.
    """
    if not isinstance(value, Mapping):
        raise SettingError(f"{option}: give a mapping, such as {example}")
    return dict(value)


def as_progress(value: Any) -> Progress:
    """Return the progress callback; None becomes `silent`.

    Raises:
        SettingError: if the value is not callable.
    """
    if value is not None and not callable(value):
        raise SettingError("progress: give a function that takes one `Step`, or leave it out")
    return silent if value is None else value


def holds_password(address: str) -> bool:
    """Return whether an address such as ``postgresql://host/db`` holds a password; True if it cannot be parsed.

    >>> [holds_password(f"postgresql://{rest}") for rest in ("me@host/db", "me:x@host/db", "host/db?sslpassword=x")]
    [False, True, True]
    """
    if "://" not in address:
        return False
    try:
        parts = urlsplit(address)
        options = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        return parts.password is not None or bool(options & {"password", "sslpassword"})
    except ValueError:
        return True


# Settings of mechanisms and metrics: pydantic checks them against their declared types.


def plain_setting(value: Any) -> Any:
    """Return a setting as plain Python: lists become tuples, numpy numbers become Python numbers.

    >>> plain_setting([1, [2.5, "a"]])
    (1, (2.5, 'a'))
    """
    import numpy as np  # not at the top: arguments are checked before anything heavy is loaded

    if isinstance(value, list | tuple):
        return tuple(plain_setting(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value


def setting_error(owner: str, kinds: Mapping[str, Any], error: ValidationError) -> SettingError:
    """Return the error to raise for settings that pydantic refused; it names the first one and what is allowed.

    Args:
        owner: the mechanism or metric.
        kinds: the types of its settings, by name.
        error: what pydantic raised.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if name not in kinds:
        return unknown_setting(owner, name, kinds)
    if first["type"] == "value_error":
        return SettingError(f"{owner}.{name}: {first['ctx']['error']}")
    return SettingError(f"{owner}.{name}: give {describe_kind(kinds[name])}")


def unknown_setting(owner: str, name: str, known: Iterable[str]) -> SettingError:
    """Return the error to raise for a setting that a mechanism or metric does not have."""
    return SettingError(f"{owner} has no setting {name!r}; its settings are: {', '.join(known) or 'none'}")


def describe_kind(kind: Any) -> str:
    """Describe in words the values that a setting of this type allows.

    >>> from typing import Annotated
    >>> from pydantic import Field
    >>> describe_kind(Annotated[float, Field(gt=0, lt=1)]), describe_kind(Literal["pgm", "gum"])
    ('a number above 0 and below 1', 'one of pgm, gum')
    """
    of, parts = get_origin(kind), get_args(kind)
    if of is Annotated:
        limits = {
            word: getattr(limit, word)
            for part in parts[1:]
            for limit in getattr(part, "metadata", [part])
            for word in _LIMITS
            if hasattr(limit, word)
        }
        return describe_kind(parts[0]) + " and".join(f" {_LIMITS[word]} {value:g}" for word, value in limits.items())
    if of is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if of in (tuple, Sequence):
        return f"{describe_kind(parts[0])}, or several as [A, B]"
    if of in (Union, UnionType):
        return describe_kind(next(part for part in parts if part is not type(None)))
    return _WORDS.get(kind, "what its page in the guide shows")


_LIMITS = {"gt": "above", "ge": "of at least", "lt": "below", "le": "of at most"}
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}


def parse_unit(text: str, names: list[str] | None = None) -> Any:
    """Parse who is protected into what a schema file holds.

    Args:
        text: `row`, or COLUMN:K.
        names: the columns that it may name; None where others may be in the table.

    Raises:
        SettingError: if it is neither, or names no such column.
    """
    if text == "row":
        return "row"
    column, _, count = text.rpartition(":")
    if not column or not (count.isascii() and count.isdigit()) or int(count) < 1:
        raise SettingError(f"--unit {text}: write `row`, or COLUMN:K as in patient_id:3")
    if names is not None and column not in names:
        raise SettingError(f"--unit {text}: no such column; the columns are {', '.join(names)}")
    return {"column": column, "max_rows": int(count)}


# -- Values in notebooks.


_MOST_LINES = 40


def html_table(title: str, head: Sequence[str], lines: Sequence[Sequence[object]], *, notes: Sequence[str] = ()) -> str:
    """Write a table as HTML for a notebook, every text escaped; of many lines, the first ones.

    >>> html_table("T", ("a",), [("<b>",)])
    '<table><caption>T</caption><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    rows = [tuple(line) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        rows.append((f"and {len(lines) - _MOST_LINES} more", *[""] * (len(head) - 1)))
    top = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    caption, words = escape(title), "".join(f"<p>{escape(note)}</p>" for note in notes)
    header = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f"<table><caption>{caption}</caption>{header}<tbody>{body}</tbody></table>{words}"
