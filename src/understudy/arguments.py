"""Arguments of the facade as the kinds they are documented to be; another kind is refused by the option's name.

Each `as_` function takes the option's name and what was given, and returns it as the one kind that the code below works
with.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
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
"""Whole numbers from here on fit no machine's counters."""


def as_path(option: str, value: Any) -> Path:
    """The path of a file or folder.

    >>> as_path("output", "people.release").name
    'people.release'

    Raises:
        SettingError: for what is neither text nor a path, or names no file.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise SettingError(f'{option}: give the path of a file, such as "people.release"')
    return Path(text)


def as_whole(option: str, value: Any, *, least: int = 0) -> int:
    """A whole number, of Python or of numpy.

    Raises:
        SettingError: for anything else, and below the least.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < _MOST:
        raise SettingError(f"{option} must be a whole number of at least {least}")
    return int(value)


def as_names(option: str, value: Any) -> list[str]:
    """A list of names; one name alone is a list of one.

    Raises:
        SettingError: for what is neither.
    """
    names: list[Any] = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise SettingError(f"{option}: give a list of names")
    return names


def as_mapping(option: str, value: Any, *, example: str) -> dict[Any, Any]:
    """A mapping.

    Raises:
        SettingError: for anything else, showing the example.
    """
    if not isinstance(value, Mapping):
        raise SettingError(f"{option}: give a mapping, such as {example}")
    return dict(value)


def as_progress(value: Any) -> Progress:
    """What is called with each step; nothing is told where none was given.

    Raises:
        SettingError: for what cannot be called.
    """
    if value is not None and not callable(value):
        raise SettingError("progress: give a function that takes one `Step`, or leave it out")
    return silent if value is None else value


def holds_password(address: str) -> bool:
    """Whether an address such as ``postgresql://host/db`` holds a password; one that cannot be read may.

    >>> [holds_password(f"postgresql://{rest}") for rest in ("me@host/db", "me:x@host/db", "host/db?sslpassword=x")]
    [False, True, True]
    """
    if "://" not in address:
        return False
    try:
        parts = urlsplit(address)
        said = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        return parts.password is not None or bool(said & {"password", "sslpassword"})
    except ValueError:
        return True


# Settings of mechanisms and metrics, checked by pydantic against the types that they are declared with.


def plain_setting(value: Any) -> Any:
    """A setting as plain Python: lists as tuples, numbers of numpy as Python's.

    >>> plain_setting([1, [2.5, "a"]])
    (1, (2.5, 'a'))
    """
    import numpy as np  # here: arguments are checked before anything heavy is loaded

    if isinstance(value, list | tuple):
        return tuple(plain_setting(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value


def setting_error(owner: str, kinds: Mapping[str, Any], error: ValidationError) -> SettingError:
    """The error to raise for settings that pydantic refused: it names the first one and what may be given.

    Args:
        owner: the mechanism or metric.
        kinds: by name the types of its settings.
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
    """The error to raise for a setting that a mechanism or metric does not have."""
    return SettingError(f"{owner} has no setting {name!r}; its settings are: {', '.join(known) or 'none'}")


def describe_kind(kind: Any) -> str:
    """What may be given for a setting of this type, in words.

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
