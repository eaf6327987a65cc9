"""Plain data as pages of YAML and JSON, and pages that somebody else may have written as plain data.

What is read is of bounded size, and nothing in it is run. A page of a kilobyte can stand for gigabytes by naming its
own parts again and again, and one of many brackets can break the parser; both are refused before anything is made of
them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

MOST_VALUES = 10_000_000
"""The most values that a page may stand for, those named again counted again."""

DEEPEST = 100
"""The most lists and mappings inside each other."""

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


def read_yaml(text: str | bytes, loader: Any = LOADER) -> Any:
    """The content of a page of YAML.

    Args:
        text: the page.
        loader: a safe loader.

    Raises:
        YAMLError: for what is no YAML, stands for too much, or holds a number or date that Python cannot.
    """
    _check(text)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader
    except (ValueError, RecursionError):
        raise yaml.YAMLError("a value that cannot be held") from None


def read_json(text: str) -> Any:
    """The content of a page of JSON.

    Raises:
        JSONDecodeError: for what is no JSON.
        ValueError: for what is nested too deeply, or holds a number that Python cannot.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level, depth = [content], 0
    while level and depth < DEEPEST:
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]
        depth += 1
    if level:
        raise ValueError("nested too deeply")
    return content


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _check(text: str | bytes) -> None:
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
            size += sizes.get(str(event.anchor), MOST_VALUES)  # not known yet: a part that holds itself
        elif isinstance(event, yaml.ScalarEvent):
            size += 1
            sizes |= {event.anchor: 1} if event.anchor is not None else {}
        if size >= MOST_VALUES or len(opened) > DEEPEST:
            raise yaml.YAMLError("it stands for too much")
