"""Plain data as pages of YAML and JSON, and pages that somebody else may have written as plain data.

Whatever the package reads as YAML or JSON comes through `read_yaml` or `read_json`: what they give is of bounded size,
and nothing in it is run. A page of a kilobyte can stand for gigabytes by naming its own parts again and again, one of
empty brackets takes up to three hundred times its size in memory, and one of many brackets can break the parser; all
are refused before anything is made of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

MOST_YAML = 1_000_000
"""The most values that a page of YAML may stand for, those named again counted again: below 800 MB in memory."""

MOST_JSON = 5_000_000
"""The most values, keys and brackets of a page of JSON: below 500 MB in memory."""

DEEPEST = 100
"""The most lists and mappings inside each other."""

_HALF_LETTER = re.compile(rb"\\u[dD][89a-fA-F]")
_NUMBER_SIGNS = "0123456789+-:_."

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader, in C where PyYAML has it: ten times faster on wide schemas."""


def is_page(name: str) -> bool:
    """Whether a name is that of a file of YAML or JSON, by its ending."""
    return Path(name).suffix in (".yaml", ".yml", ".json")


def as_page(content: Any, ending: str = ".yaml") -> str:
    """Plain data as a file of this ending holds it: JSON or else YAML, keys in their order, letters as they are."""
    if ending == ".json":
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100))


def read_yaml(text: str | bytes, loader: Any = LOADER, *, most: int = MOST_YAML) -> Any:
    """The content of a page of YAML.

    Args:
        text: the page.
        loader: a safe loader.
        most: the most values that it may stand for.

    Raises:
        YAMLError: for what is no YAML, stands for too much, or holds a number or date that Python cannot.
    """
    _check(text, most)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader
    except (ValueError, RecursionError):
        raise yaml.YAMLError("a value that cannot be held") from None


def compose_yaml(text: str) -> Any:
    """The nodes of a page of YAML, which know their lines.

    Raises:
        YAMLError: for what is no YAML, or stands for too much.
    """
    _check(text, MOST_YAML)
    return yaml.compose(text, Loader=LOADER)


def read_json(text: str | bytes, *, most: int = MOST_JSON) -> Any:
    """The content of a page of JSON in UTF-8.

    Args:
        text: the page.
        most: the most values, keys and brackets that it may have.

    Raises:
        JSONDecodeError: for what is no JSON.
        ValueError: for what has too many values, is nested too deeply, or holds a number or letter that Python cannot.
    """
    page = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if count_json(page) > most:
        raise ValueError("too many values")
    try:
        content = json.loads(page.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level, depth = [content], 0
    while level and depth < DEEPEST:
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]
        depth += 1
    if level:
        raise ValueError("nested too deeply")
    if _HALF_LETTER.search(page):  # the halves of a surrogate pair, which no file or terminal can show one by one
        json.dumps(content, ensure_ascii=False).encode()
    return content


def count_json(page: bytes) -> int:
    """How many values, keys and brackets a page of JSON has at most; takes little more memory than the page.

    >>> count_json(b'{"a": [1, 2], "b": "[,]"}')
    7
    """
    page = page.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, within_text = 1, 0
    for start in range(0, len(page), 1 << 16):
        parts = page[start : start + (1 << 16)].split(b'"')
        count += sum(map(b"".join(parts[within_text::2]).count, (b",", b":", b"[", b"{")))
        within_text ^= (len(parts) - 1) & 1
    return count


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _check(text: str | bytes, most: int) -> None:
    """Count what a page stands for from its events alone, which takes no more memory than the page."""
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    size = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, size))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            size += 1
            sizes |= {anchor: size - before} if anchor is not None else {}
        elif isinstance(event, yaml.AliasEvent):
            size += sizes.get(str(event.anchor), most)  # not known yet: a part that holds itself
        elif isinstance(event, yaml.ScalarEvent):
            size += 1
            sizes |= {event.anchor: 1} if event.anchor is not None else {}
            if len(event.value) > 4300 and not event.value.strip(_NUMBER_SIGNS):  # as 1:00:00, it takes minutes to read
                raise yaml.YAMLError("a number beyond all bounds")
        if size >= most or len(opened) > DEEPEST:
            raise yaml.YAMLError("it stands for too much")
