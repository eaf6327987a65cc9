"""Whether a table that is declared public is the private table itself: the mistake that would undo everything."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.errors import SettingError
from understudy.schema import PrivacyUnit, Schema
from understudy.source import read_table
from understudy.source.sql.located import Located


class DeclaredPublic:
    """A remembrance of a public table: its path and a fingerprint of its coded rows, never the rows.

    Args:
        public: a frame or the path of a file; anything else is remembered by identity alone.
        schema: the private table's schema, by which both are coded.
    """

    def __init__(self, public: Any, schema: Schema) -> None:
        self._schema = schema
        self._object = id(public)
        self._path = Path(public) if isinstance(public, str | os.PathLike) else None
        as_rows = replace(schema, privacy_unit=PrivacyUnit(), rows=None)  # a public table need not have the unit column
        self._fingerprint = None if hasattr(public, "counts") else _fingerprint(table_of(public, as_rows), as_rows)

    def refuse(self, data: Any) -> Any:
        """The private table as a frame, after making sure that it is another one.

        **Privacy.** Compares rows and keeps nothing. A refusal tells that the two are the same: it comes before
        anything is spent, in a run that makes no release, to a custodian who holds both.

        Args:
            data: a frame or the path of a file.

        Raises:
            SettingError: when it is the same file, the same object, or holds the same rows in any order.
        """
        if isinstance(data, Located):  # its rows never come here, so only its files can be compared
            if self._path is not None and any(_same_file(file, self._path) for file in data.files):
                raise _the_same()
            return data
        path = Path(data) if isinstance(data, str | os.PathLike) else None
        same = id(data) == self._object or (
            path is not None and self._path is not None and _same_file(path, self._path)
        )
        frame = None if same else table_of(data, self._schema)
        if same or (self._fingerprint is not None and _fingerprint(frame, self._schema) == self._fingerprint):
            raise _the_same()
        return frame


def _the_same() -> SettingError:
    return SettingError(
        "public: the table declared public is the sensitive table itself; give one that is really public, "
        "or use the mechanism mst, which needs none. Nothing was spent"
    )


def table_of(data: Any, schema: Schema) -> Any:
    """The frame itself, or the columns of a file that the schema needs."""
    return read_table(data, schema) if isinstance(data, str | os.PathLike) else data


def _same_file(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:
        return False


def _fingerprint(frame: Any, schema: Schema) -> tuple[int, int]:
    """The number of rows and a sum of one hash per coded row: equal for the same rows in any order."""
    encoded = schema.encode(frame)
    rows = np.zeros(len(encoded.keep), np.uint64)
    for codes in encoded.codes.values():
        rows = (rows ^ (rows >> np.uint64(29)) ^ codes.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    rows ^= rows >> np.uint64(32)
    return len(rows), int((rows * np.uint64(0xD1B54A32D192ED03)).sum(dtype=np.uint64))
