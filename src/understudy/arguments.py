"""Arguments of the facade as the kinds they are documented to be; another kind is refused by the option's name.

Each `as_` function takes the option's name and what was given, and returns it as the one kind that the code below works
with.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any
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


_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "a name"}
_LIMITS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}


def settings_error(owner: str, error: ValidationError) -> SettingError:
    """The error for settings that pydantic refused, with the name of the first wrong setting and what to give.

    >>> from pydantic import Field, TypeAdapter, ValidationError
    >>> from typing_extensions import Annotated, TypedDict
    >>> kind = TypedDict("Settings", {"rows": Annotated[int, Field(ge=2)], "ways": tuple[int, ...]})
    >>> for given in ({"rows": 1, "ways": (1,)}, {"rows": 2, "ways": ("x",)}):
    ...     try:
    ...         TypeAdapter(kind).validate_python(given, strict=True)
    ...     except ValidationError as error:
    ...         print(settings_error("metric", error))
    metric.rows: give a number of at least 2
    metric.ways: give a whole number, or several as [A, B]
    """
    first = error.errors()[0]
    place, kind, limits = first["loc"], first["type"], first.get("ctx", {})
    name = ".".join([owner, *(str(part) for part in place[:1])])
    several = ", or several as [A, B]" if len(place) > 1 and isinstance(place[1], int) else ""
    if kind == "unexpected_keyword_argument":
        return SettingError(f"{name}: there is no such setting; leave it out")
    if kind == "literal_error":
        return SettingError(f"{name}: choose among {limits['expected']}")
    if kind == "too_short":
        return SettingError(f"{name}: give at least {limits['min_length']}")
    for sign, words in _LIMITS.items():
        if sign in limits:
            return SettingError(f"{name}: give a number {words} {limits[sign]:g}{several}")
    words = _KINDS.get(kind.partition("_")[0], "what the documentation of this setting shows")
    return SettingError(f"{name}: give {words}{several}")
