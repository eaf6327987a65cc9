"""The same private rows in one coding after another, for what is bought before the domain is known."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from understudy.schema import Schema
from understudy.source.protocol import Source
from understudy.source.read import open_source, read_table
from understudy.source.sql.located import Located
from understudy.source.unit import new_key

Opener: TypeAlias = Callable[[Schema], Source]
"""Gives the same rows coded by any schema of the same units."""


def opener(data: Any, schema: Schema) -> Opener:
    """A way to open a table again and again; a file is read once, and one bounding key serves all codings.

    Args:
        data: what `open_source` takes.
        schema: names every column that any of the codings reads.

    Raises:
        InputError: when the file cannot be used, saying why and what to do.
        SchemaError: when a file's columns do not fit the schema; those of other tables are looked at when it is coded.
    """
    key = new_key()
    if isinstance(data, Located):
        snapshot = data.fixed(schema)
        return lambda coding: snapshot.coded(coding, key=key)
    table = read_table(data, schema) if isinstance(data, str | os.PathLike) and Path(data).is_file() else data
    return lambda coding: open_source(table, coding, key=key)
