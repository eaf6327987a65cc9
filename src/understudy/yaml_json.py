"""Safe reading and writing of YAML and JSON.

Everything that the package reads as YAML or JSON goes through `read_yaml` or `read_json`. Nothing in the text is
executed and the size of the result is bounded: a kilobyte of YAML can stand for gigabytes by repeating aliases, empty
brackets take up to three hundred times their size in memory, and deep nesting can break the parser. Such text is
refused before it is parsed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

MOST_YAML = 1_000_000
"""The most values in a YAML text, aliases counted each time they occur: below 800 MB in memory."""

MOST_JSON = 5_000_000
"""The most values, keys and brackets in a JSON text: below 500 MB in memory."""

DEEPEST = 100
"""The deepest nesting of lists and mappings."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NUMBER_SIGNS = "0123456789+-:_."

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader, in C where PyYAML has it: ten times faster on wide schemas."""


def is_yaml_or_json(name: str) -> bool:
    """Return whether a file name ends in .yaml, .yml or .json."""
    return Path(name).suffix in (".yaml", ".yml", ".json")


def dump_text(content: Any, ending: str = ".yaml") -> str:
    """Write plain data as JSON if the ending is .json, otherwise as YAML; keys keep their order."""
    if ending == ".json":
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100))


def read_yaml(text: str | bytes, loader: Any = LOADER, *, most: int = MOST_YAML) -> Any:
    """Parse YAML into plain data.

    Args:
        text: the YAML text.
        loader: a safe loader.
        most: the most values that the text may have, aliases counted each time.

    Raises:
        YAMLError: for invalid YAML, too many values, or a number or date that Python cannot represent.
    """
    _check_size(text, most)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader
    except (ValueError, RecursionError):
        raise yaml.YAMLError("a value that cannot be held") from None


def compose_yaml(text: str) -> Any:
    """Parse YAML into nodes, which know their line numbers.

    Raises:
        YAMLError: for invalid YAML or too many values.
    """
    _check_size(text, MOST_YAML)
    return yaml.compose(text, Loader=LOADER)


def read_json(text: str | bytes, *, most: int = MOST_JSON) -> Any:
    """Parse JSON in UTF-8 into plain data.

    Args:
        text: the JSON text.
        most: the most values, keys and brackets that the text may have.

    Raises:
        JSONDecodeError: for invalid JSON.
        ValueError: for too many values, too deep nesting, or a number or character that Python cannot represent.
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
        level = [inner for outer in level for inner in _values_of(outer) if isinstance(inner, dict | list)]
        depth += 1
    if level:
        raise ValueError("nested too deeply")
    if _SURROGATE.search(page):  # a lone surrogate cannot be written to a file or terminal: encoding fails
        json.dumps(content, ensure_ascii=False).encode()
    return content


def count_json(page: bytes) -> int:
    """Bound the number of values, keys and brackets of a JSON text; needs little more memory than the text.

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


def _values_of(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _check_size(text: str | bytes, most: int) -> None:
    """Refuse YAML with too many values, counted from parser events, which need no more memory than the text."""
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
            size += sizes.get(str(event.anchor), most)  # an alias inside its own anchor: endless
        elif isinstance(event, yaml.ScalarEvent):
            size += 1
            sizes |= {event.anchor: 1} if event.anchor is not None else {}
            if len(event.value) > 4300 and not event.value.strip(_NUMBER_SIGNS):  # base 60, as 1:00:00, takes minutes
                raise yaml.YAMLError("a number beyond all bounds")
        if size >= most or len(opened) > DEEPEST:
            raise yaml.YAMLError("it stands for too much")
